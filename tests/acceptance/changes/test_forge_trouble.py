"""Checks that cannot be trusted, bases and branches that move, a workspace with work left in it, a person who edits all the time:
a clear word each time, and nothing lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import AoError, Conflict
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import refused
from tests.acceptance.session_states import PLENTY, Json, checked, messages, status, turned, until, work

CONFIG = """
defaults: {{agent: demo, runtime: process}}
ci: {{command: "{command}", timeout: {timeout}}}
"""
DONE = "[[write: {0}.txt|{0}]] [[commit: {0}]] [[done: {0}]]"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    """A repository without a configuration yet."""
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config="defaults: {agent: demo, runtime: process}\n")
        sandbox.start()
        yield sandbox


def configure(box: Sandbox, command: str, timeout: str = "60s") -> None:
    (box.repo / "agent-orchestrator.yaml").write_text(CONFIG.format(command=command, timeout=timeout))


def told(box: Sandbox, level: str) -> list[str]:
    found = box.request("GET", "/api/notifications")["notifications"]
    return [f"{one['title']}: {one['message']}" for one in found if one["level"] == level]


def failing(box: Sandbox, session: str, state: str = "ci_failed") -> Json:
    def found() -> list[Json]:
        now = box.session(session)
        return box.json("review", session)["failing"] if now["pr"] and now["status"] == state else []

    [one] = box.until(found, f"{session} to be red", PLENTY)
    return dict(one)


def marked(box: Sandbox, mark: str) -> list[str]:
    """Processes with this word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark.encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
    return [pid for pid in found if int(pid) != os.getpid()]


# -- checks --------------------------------------------------------------------------------------------------------------


def test_a_check_whose_command_is_missing_is_a_persons_matter_and_never_green(box: Sandbox) -> None:
    configure(box, "no-such-program --all")
    work(box, "m", DONE.format("m"))
    found = failing(box, "m", "not_set_up")
    assert "`no-such-program --all` ended with exit code 127: a command was not found" in found["summary"]
    now = box.session("m")
    assert now["column"] == "Needs you" and "command no-such-program not found" in now["why"]
    assert messages(box, "m") == [], "no agent's change fixes it"
    [said] = told(box, "action")
    assert "command no-such-program not found" in said and "ao init --check" in said
    refused(box.ao("merge", "m", check=False), 1, "environment not set up", "--force")
    box.request("POST", "/api/sessions/m/review", {"verdict": "approved"})
    assert box.session("m")["status"] == "not_set_up"
    assert not [event for event in box.events("m") if event["data"].get("trigger") == "approved-and-green"]
    configure(box, "true")
    box.ao("checks", "m", "--run")
    status(box, "m", "mergeable")
    assert box.json("merge", "m")["status"] == "merged"


def test_a_landing_is_refused_where_its_check_cannot_be_run(box: Sandbox) -> None:
    configure(box, "true")
    work(box, "m", DONE.format("m"))
    checked(box, "m")
    box.git("commit", "-q", "--allow-empty", "-m", "meanwhile")
    (box.repo / "base.txt").write_text("x\n")
    box.git("add", "base.txt")
    box.git("commit", "-q", "-m", "base")
    configure(box, "no-such-program")
    refused(box.ao("merge", "m", check=False), 1, "did not land", "on top of main", "command no-such-program not found")
    assert not (box.repo / "m.txt").exists()


def test_a_check_that_hangs_is_ended_with_all_it_started_and_told_to_the_agent(box: Sandbox) -> None:
    configure(box, "sleep 31415 & setsid sleep 31415 & echo waiting; sleep 31415", "4s")
    work(box, "h", DONE.format("h"))
    found = failing(box, "h")
    assert found["state"] == "timed_out"
    assert found["summary"].splitlines()[0].endswith("did not finish within 4 s and was stopped")
    box.until(lambda: marked(box, "31415") == [], "all of it to be gone")
    [text] = box.until(lambda: messages(box, "h"), "the agent to be told", PLENTY)
    assert "did not finish within 4 s" in text and "waiting" in text


def test_a_check_that_is_killed_says_nothing_about_the_change(box: Sandbox) -> None:
    configure(box, "echo begun; kill -9 0")
    work(box, "k", DONE.format("k"))
    found = failing(box, "k", "not_set_up")
    assert found["state"] == "not_set_up" and "was killed" in found["summary"].splitlines()[0]
    assert "begun" in box.ao("checks", "k", "--log", "default").stdout
    assert box.session("k")["column"] == "Needs you" and messages(box, "k") == []
    refused(box.ao("merge", "k", check=False), 1, "environment not set up")


def test_a_check_that_prints_200_mb_is_bounded_and_holds_nobody_up(box: Sandbox) -> None:
    size = 200_000_000
    configure(
        box,
        f"echo the very first; yes 0123456789abcdef | head -c {size}; echo; echo 'error: at the very end'; test ! -e p.txt",
    )
    work(box, "p", DONE.format("p") + " [[wait]] [[say: I see]]")
    until(box, "p", lambda now: bool(now["pr"] and now["pr"]["checks"]), "its check")
    longest = 0.0
    while box.session("p")["status"] != "ci_failed":
        began = time.monotonic()
        box.request("GET", "/healthz")
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.05)
    assert longest < 10.0
    found = failing(box, "p")
    assert "error: at the very end" in found["summary"] and len(found["summary"]) < 5000
    log = Path(found["log"])
    assert log.stat().st_size < 51_000_000
    with log.open("rb") as file:
        assert file.readline() == b"the very first\n"
        file.seek(-100, os.SEEK_END)
        assert file.read().endswith(b"error: at the very end\n")
    pid = box.daemon_pid()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 250_000, peak
    [text] = box.until(lambda: messages(box, "p"), "the agent to be told", PLENTY)
    assert len(text) < 13_000


def test_what_fails_on_the_base_too_is_told_once_and_stops_nobody(box: Sandbox) -> None:
    (box.repo / "broken.txt").write_text("x\n")
    box.git("add", "broken.txt")
    box.git("commit", "-q", "-m", "break the base")
    configure(box, "test ! -e broken.txt")
    for name in ("a", "b"):
        work(box, name, DONE.format(name))
    for name in ("a", "b"):
        until(box, name, lambda now: now["pr"] and any(one["onBase"] for one in now["pr"]["checks"]), "its check")
    assert [text for text in told(box, "warning") if "fails on main" in text] == told(box, "warning")
    assert len(told(box, "warning")) == 1
    assert messages(box, "a") == messages(box, "b") == []


def test_what_the_base_has_mended_meanwhile_is_neither_the_changes_nor_told_of_the_base(box: Sandbox) -> None:
    (box.repo / "broken.txt").write_text("x\n")
    box.git("add", "broken.txt")
    box.git("commit", "-q", "-m", "break the base")
    (box.folder / "hold").touch()
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done; test ! -e broken.txt")
    work(box, "a", DONE.format("a"))
    until(box, "a", lambda now: now["pr"] and any(one["state"] == "running" for one in now["pr"]["checks"]), "to run")
    box.git("rm", "-q", "broken.txt")
    box.git("commit", "-q", "-m", "mend the base")
    box.until(lambda: any(one["data"].get("head") == box.git("rev-parse", "main") for one in box.events("a")), "news")
    (box.folder / "hold").unlink()
    status(box, "a", "review_pending")
    assert told(box, "warning") == [] == messages(box, "a")
    [finished] = [one["data"] for one in box.events("a") if one["type"] == "check-finished"]
    assert (finished["state"], finished["onBase"], finished["fixedSince"]) == ("failure", True, True)
    story = json.dumps(box.request("GET", "/api/sessions/a/timeline"))
    assert "as at the branch point; since fixed on the base branch" in story
    box.request("POST", "/api/sessions/a/review", {"verdict": "approved"})
    assert box.json("merge", "a")["status"] == "merged"


# -- branches that move ----------------------------------------------------------------------------------------------------


def test_a_base_that_moves_during_a_landing_is_built_upon_and_checked_again(box: Sandbox) -> None:
    out = box.folder
    configure(box, f"ls >>{out}/runs; echo . >>{out}/runs; while test -e {out}/hold; do sleep 0.02; done")
    work(box, "l", DONE.format("l"))
    checked(box, "l")

    def commit(name: str) -> None:
        (box.repo / name).write_text(name)
        box.git("add", name)
        box.git("commit", "-q", "-m", name)

    def runs() -> list[list[str]]:
        return [run.split() for run in (out / "runs").read_text().split(".\n") if run]

    commit("first")
    (out / "hold").touch()
    box.request("POST", "/api/sessions/l/merge", {})
    box.until(lambda: "first" in runs()[-1], "the landing's check", PLENTY)
    commit("second")
    (out / "hold").unlink()
    status(box, "l", "merged")
    assert {"first", "second", "l.txt"} <= set(runs()[-1]), "what landed is what was checked"
    assert box.git("log", "--format=%s", "-4", "main").splitlines() == ["Work on l (#1)", "second", "first", "start"]
    assert box.git("status", "--porcelain") == "?? agent-orchestrator.yaml"


def amended(workspace: Path, box: Sandbox, text: str) -> str:
    """What a forced push does to a branch: another commit in place of the one that was there."""
    (workspace / "f.txt").write_text(f"{text}\n")
    box.git("commit", "-q", "-a", "--amend", "-m", text, cwd=workspace)
    return box.git("rev-parse", "HEAD", cwd=workspace)


def _states(session: dict[str, Any]) -> list[str]:
    """Of the checks of its newest commit; none yet, right after that came."""
    return [check["state"] for check in session["pr"]["checks"]]


@pytest.mark.parametrize("agent", ["lives", "has ended"])
def test_a_branch_that_is_forced_elsewhere_while_its_pull_request_is_open_is_checked_anew(
    box: Sandbox, agent: str
) -> None:
    configure(box, "! grep bad f.txt || { echo 'error [[say: seen]]'; exit 1; }")
    work(box, "f", DONE.format("f") + (" [[exit: 0]]" if agent == "has ended" else ""))
    before = checked(box, "f")["head"]
    box.request("POST", "/api/sessions/f/review", {"verdict": "approved"})
    status(box, "f", "mergeable")
    forced = amended(Path(box.session("f")["workspacePath"]), box, "bad")
    until(
        box,
        "f",
        lambda now: now["head"] == forced != before and _states(now) == ["failure"],
        "the check of what is there",
    )
    refused(box.ao("merge", "f", check=False), 1, "is red")
    turned(box, "f")
    forced = amended(Path(box.session("f")["workspacePath"]), box, "good")
    until(box, "f", lambda now: now["head"] == forced and now["status"] == "mergeable", "the new check")
    assert box.json("merge", "f")["status"] == "merged"
    assert (box.repo / "f.txt").read_text() == "good\n"


def test_a_branch_that_is_forced_elsewhere_while_it_is_to_land_does_not_land_unchecked(box: Sandbox) -> None:
    configure(box, "true")
    work(box, "f", DONE.format("f") + " [[exit: 0]]")
    old = checked(box, "f")["head"]
    (box.repo / "f.txt").write_text("in the way\n")
    box.request("POST", "/api/sessions/f/merge", {})
    until(box, "f", lambda now: "f.txt" in (now["waitingFor"] or ""), "it to wait for the checkout")
    other = box.git("commit-tree", f"{old}^{{tree}}", "-p", f"{old}^", "-m", "forced from outside")
    box.git("update-ref", "refs/heads/feature/f", other)
    (box.repo / "f.txt").unlink()
    until(box, "f", lambda now: now["status"] != "merging", "the landing to be refused")
    assert "its branch moved meanwhile" in box.json("review", "f")["refused"]
    assert not (box.repo / "f.txt").exists()
    until(box, "f", lambda now: now["head"] == other and now["status"] == "review_pending", "what is there now")
    assert box.json("merge", "f")["status"] == "merged"
    assert (box.repo / "f.txt").read_text() == "f\n"


# -- work that is not committed ----------------------------------------------------------------------------------------------


def test_what_is_not_committed_when_a_branch_lands_is_named_and_saved(box: Sandbox) -> None:
    configure(box, "true")
    work(
        box,
        "d",
        "[[write: d.txt|landed]] [[commit: d]] [[write: d.txt|edited after]] [[write: notes/new.txt|untracked]]"
        " [[sh: echo staged >staged.txt && git add staged.txt]] [[done: d]]",
    )
    checked(box, "d")
    said = box.ao("merge", "d").stdout
    assert "not committed" in said and "d.txt" in said and "notes/new.txt" in said
    assert (box.repo / "d.txt").read_text() == "landed\n"
    now = until(box, "d", lambda now: now["workspacePath"] is None, "its clean-up")
    ref = "refs/ao/rescue/app-d"
    assert ref in now["why"] and ref in box.ao("status", "d").stdout
    for file, text in (("d.txt", "edited after"), ("notes/new.txt", "untracked"), ("staged.txt", "staged")):
        assert box.git("show", f"{ref}:{file}") == text
    assert box.git("branch", "--list", "feature/d") == ""


class Person(threading.Thread):
    """Edits, adds and commits in his own checkout, without a pause and without regard to anybody."""

    def __init__(self, box: Sandbox) -> None:
        super().__init__(daemon=True)
        self.box = box
        self.over = threading.Event()
        self.rounds = 0
        self.next_commit = 0.0
        self.commits: list[str] = []
        self.problems: list[str] = []

    def run(self) -> None:
        while not self.over.is_set():
            self.rounds += 1
            for file, text in self.files().items():
                (self.box.repo / file).write_text(text)
            if time.monotonic() > self.next_commit:
                self.commit()
            time.sleep(0.002)

    def files(self) -> dict[str, str]:
        return {"README.md": f"my {self.rounds}\n", "untracked.txt": f"{self.rounds}\n"}

    def commit(self) -> None:
        name = f"mine-{self.rounds}"
        (self.box.repo / "mine.txt").write_text(name)
        for command in (["add", "mine.txt"], ["commit", "-q", "-m", name]):
            while not self.git(*command):
                time.sleep(0.01)
        self.commits.append(name)
        self.next_commit = time.monotonic() + 3.0

    def git(self, *argv: str) -> bool:
        done = subprocess.run(["git", *argv], cwd=self.box.repo, env=self.box.env, capture_output=True, text=True)
        if done.returncode and "index.lock" not in done.stderr and "cannot lock ref" not in done.stderr:
            self.problems.append(done.stderr + done.stdout)
            return True
        return not done.returncode


def test_a_person_edits_and_commits_in_his_checkout_while_changes_land(box: Sandbox) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        work(box, name, DONE.format(name))
    for name in names:
        status(box, name, "review_pending")
    person = Person(box)
    person.start()
    try:
        box.until(lambda: len(person.commits) >= 2, "the person at work")
        landed = box.json("merge", *names)["sessions"]
        assert [one["status"] for one in landed] == ["merged"] * len(names)
        seen = len(person.commits)
        box.until(lambda: len(person.commits) >= seen + 2, "the person at work")
    finally:
        person.over.set()
        person.join()
    assert person.problems == []
    subjects = box.git("log", "--format=%s", "main").splitlines()
    assert [one for one in reversed(subjects) if one.startswith("mine-")] == person.commits
    assert sorted(one for one in subjects if one.startswith("Work on")) == [
        f"Work on {n} (#{k})" for n, k in numbers(box)
    ]
    for file, text in person.files().items():
        assert (box.repo / file).read_text() == text
    for name in names:
        assert (box.repo / f"{name}.txt").read_text() == f"{name}\n"
    left = box.git("status", "--porcelain").splitlines()
    assert sorted(left) == ["?? agent-orchestrator.yaml", "?? untracked.txt", "M README.md"]


def numbers(box: Sandbox) -> list[tuple[str, int]]:
    return sorted((one["name"], one["pr"]["number"]) for one in box.sessions())


# -- two at once -----------------------------------------------------------------------------------------------------------


def test_of_two_decisions_at_once_one_counts_and_the_other_is_told_so(box: Sandbox) -> None:
    work(box, "q", "[[block: Allow it?]] [[write: allowed.txt|x]] [[say: over]]")
    status(box, "q", "blocked")

    def decide(decision: str) -> str:
        try:
            box.request("POST", "/api/sessions/q/answer", {"decision": decision})
        except Conflict as refusal:
            return str(refusal)
        except AoError as error:
            return f"wrong: {error}"
        return decision

    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(decide, ("allow", "deny")))
    [counted] = [one for one in said if one in ("allow", "deny")]
    [other] = [one for one in said if one not in ("allow", "deny")]
    assert "answered already" in other or "waits for no permission" in other
    until(box, "q", lambda now: now["activity"] == "idle", "its turn's end")
    assert (Path(box.session("q")["workspacePath"]) / "allowed.txt").exists() == (counted == "allow")
    answered = [event["data"] for event in box.events("q") if event["type"] == "permission-answered"]
    assert [one["decision"] for one in answered] == [counted], json.dumps(answered)


def test_a_change_that_cannot_be_compared_with_its_base_is_compared_as_soon_as_it_can(tmp_path: Path) -> None:
    fails, tried, programs = tmp_path / "fails", tmp_path / "tried", tmp_path / "programs"
    programs.mkdir()
    fails.touch()
    git = programs / "git"
    git.write_text(
        f'#!/bin/sh\ncase " $* " in *" merge-tree "*) if [ -e {fails} ]; then echo x >> {tried}; '
        f'echo "fatal: mmap failed: Cannot allocate memory" >&2; exit 128; fi ;; esac\nexec {shutil.which("git")} "$@"\n'
    )
    git.chmod(0o755)
    with Sandbox(tmp_path / "box", "process") as box:
        box.env["PATH"] = f"{programs}:{box.env['PATH']}"
        box.repository(config="defaults: {agent: demo, runtime: process}\n")
        box.start()
        work(box, "m", DONE.format("m"))
        box.until(lambda: tried.exists() and tried.read_text().count("x") > 1, "a second try", PLENTY)
        assert box.session("m")["pr"]["mergeable"] == "unknown"
        fails.unlink()
        until(box, "m", lambda now: now["pr"]["mergeable"] == "yes", "to be compared")


def test_a_landing_that_was_cut_short_right_after_it_moved_the_base_leaves_no_lock(tmp_path: Path) -> None:
    failed, programs = tmp_path / "failed", tmp_path / "programs"
    programs.mkdir()
    real, git, repo = shutil.which("git"), programs / "git", tmp_path / "box" / "app"
    git.write_text(
        f'#!/bin/sh\ncase " $* " in *" HEAD^{{commit}} "*) if [ -e {repo}/.git/index.lock ] && [ $(cat {failed} | wc -l) -lt 3 ] && '
        f"[ $({real} -C {repo} rev-list --count main) -gt 1 ]; then echo x >> {failed}; kill -9 $$; fi ;; esac\n"
        f'exec {real} "$@"\n'
    )
    git.chmod(0o755)
    failed.touch()
    with Sandbox(tmp_path / "box", "process") as box:
        box.env["PATH"] = f"{programs}:{box.env['PATH']}"
        box.repository(config="defaults: {agent: demo, runtime: process}\n")
        box.start()
        work(box, "m", DONE.format("m"))
        status(box, "m", "review_pending")
        box.ao("merge", "m")
        assert failed.read_text() and (box.repo / "m.txt").exists()
        assert not (box.repo / ".git" / "index.lock").exists()
