"""Failing and hanging checks, moving base branches and branches, uncommitted work and simultaneous edits: clear messages, no lost work."""

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
from tests.acceptance.commands import assert_refused
from tests.acceptance.session_states import (
    TIMEOUT,
    Json,
    create_session,
    rule_messages,
    wait_for_checks,
    wait_for_session,
    wait_for_status,
    wait_for_turns,
)

CONFIG = """
defaults: {{agent: demo, runtime: process}}
ci: {{command: "{command}", timeout: {timeout}}}
"""
DONE = "[[write: {0}.txt|{0}]] [[commit: {0}]] [[done: {0}]]"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield a daemon and a repository with a minimal configuration."""
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config="defaults: {agent: demo, runtime: process}\n")
        sandbox.start()
        yield sandbox


def configure(box: Sandbox, command: str, timeout: str = "60s") -> None:
    (box.repo / "agent-orchestrator.yaml").write_text(CONFIG.format(command=command, timeout=timeout))


def notification_texts(box: Sandbox, level: str) -> list[str]:
    notifications = box.request("GET", "/api/notifications")["notifications"]
    return [f"{event['title']}: {event['message']}" for event in notifications if event["level"] == level]


def wait_for_failed_check(box: Sandbox, session: str, state: str = "ci_failed") -> Json:
    def failed_checks() -> list[Json]:
        now = box.session(session)
        return box.json("review", session)["failing"] if now["pr"] and now["status"] == state else []

    [event] = box.wait_until(failed_checks, f"{session} to be red", TIMEOUT)
    return dict(event)


def processes_with(box: Sandbox, marker: str) -> list[str]:
    """Return the ids of processes with this marker in their command line."""
    pids = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "cmdline").read_bytes():
                pids.append(entry.name)
    return [pid for pid in pids if int(pid) != os.getpid()]


# -- checks --------------------------------------------------------------------------------------------------------------


def test_a_check_whose_command_is_missing_needs_a_person_and_never_passes(box: Sandbox) -> None:
    configure(box, "no-such-program --all")
    create_session(box, "m", DONE.format("m"))
    failure = wait_for_failed_check(box, "m", "not_set_up")
    assert "`no-such-program --all` ended with exit code 127: a command was not found" in failure["summary"]
    now = box.session("m")
    assert now["column"] == "Needs you" and "command no-such-program not found" in now["why"]
    assert rule_messages(box, "m") == [], "no agent's change fixes it"
    [notice] = notification_texts(box, "action")
    assert "command no-such-program not found" in notice and "ao init --check" in notice
    assert_refused(box.ao("merge", "m", check=False), 1, "environment not set up", "--force")
    box.request("POST", "/api/sessions/m/review", {"verdict": "approved"})
    assert box.session("m")["status"] == "not_set_up"
    assert not [event for event in box.events("m") if event["data"].get("trigger") == "approved-and-green"]
    configure(box, "true")
    box.ao("checks", "m", "--run")
    wait_for_status(box, "m", "mergeable")
    assert box.json("merge", "m")["status"] == "merged"


def test_a_merge_is_refused_if_its_check_cannot_run(box: Sandbox) -> None:
    configure(box, "true")
    create_session(box, "m", DONE.format("m"))
    wait_for_checks(box, "m")
    box.git("commit", "-q", "--allow-empty", "-m", "meanwhile")
    (box.repo / "base.txt").write_text("x\n")
    box.git("add", "base.txt")
    box.git("commit", "-q", "-m", "base")
    configure(box, "no-such-program")
    assert_refused(
        box.ao("merge", "m", check=False), 1, "did not land", "on top of main", "command no-such-program not found"
    )
    assert not (box.repo / "m.txt").exists()


def test_a_hanging_check_is_killed_with_its_children_and_reported_to_the_agent(box: Sandbox) -> None:
    configure(box, "sleep 31415 & setsid sleep 31415 & echo waiting; sleep 31415", "4s")
    create_session(box, "h", DONE.format("h"))
    failure = wait_for_failed_check(box, "h")
    assert failure["state"] == "timed_out"
    assert failure["summary"].splitlines()[0].endswith("did not finish within 4 s and was stopped")
    box.wait_until(lambda: processes_with(box, "31415") == [], "all of it to be gone")
    [text] = box.wait_until(lambda: rule_messages(box, "h"), "the message to the agent", TIMEOUT)
    assert "did not finish within 4 s" in text and "waiting" in text


def test_a_killed_check_does_not_count_as_a_failure_of_the_change(box: Sandbox) -> None:
    configure(box, "echo begun; kill -9 0")
    create_session(box, "k", DONE.format("k"))
    failure = wait_for_failed_check(box, "k", "not_set_up")
    assert failure["state"] == "not_set_up" and "was killed" in failure["summary"].splitlines()[0]
    assert "begun" in box.ao("checks", "k", "--log", "default").stdout
    assert box.session("k")["column"] == "Needs you" and rule_messages(box, "k") == []
    assert_refused(box.ao("merge", "k", check=False), 1, "environment not set up")


@pytest.mark.long
def test_120_mb_of_check_output_is_truncated_and_does_not_block_the_daemon(box: Sandbox) -> None:
    size = 120_000_000
    configure(
        box,
        f"echo the very first; yes 0123456789abcdef | head -c {size}; echo; echo 'error: at the very end'; test ! -e p.txt",
    )
    create_session(box, "p", DONE.format("p") + " [[wait]] [[say: I see]]")
    wait_for_session(box, "p", lambda now: bool(now["pr"] and now["pr"]["checks"]), "its check")
    longest = 0.0
    while box.session("p")["status"] != "ci_failed":
        started_at = time.monotonic()
        box.request("GET", "/healthz")
        longest = max(longest, time.monotonic() - started_at)
        time.sleep(0.05)
    assert longest < 10.0
    failure = wait_for_failed_check(box, "p")
    assert "error: at the very end" in failure["summary"] and len(failure["summary"]) < 5000
    log = Path(failure["log"])
    assert log.stat().st_size < 51_000_000
    with log.open("rb") as file:
        assert file.readline() == b"the very first\n"
        file.seek(-100, os.SEEK_END)
        assert file.read().endswith(b"error: at the very end\n")
    pid = box.daemon_pid()
    peak = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 250_000, peak
    [text] = box.wait_until(lambda: rule_messages(box, "p"), "the message to the agent", TIMEOUT)
    assert len(text) < 13_000


def test_a_failure_of_the_base_is_notified_once_and_blocks_no_session(box: Sandbox) -> None:
    (box.repo / "broken.txt").write_text("x\n")
    box.git("add", "broken.txt")
    box.git("commit", "-q", "-m", "break the base")
    configure(box, "test ! -e broken.txt")
    for name in ("a", "b"):
        create_session(box, name, DONE.format(name))
    for name in ("a", "b"):
        wait_for_session(
            box, name, lambda now: now["pr"] and any(check["onBase"] for check in now["pr"]["checks"]), "its check"
        )
    assert [text for text in notification_texts(box, "warning") if "fails on main" in text] == notification_texts(
        box, "warning"
    )
    assert len(notification_texts(box, "warning")) == 1
    assert rule_messages(box, "a") == rule_messages(box, "b") == []


def test_a_failure_fixed_on_the_base_meanwhile_is_not_attributed_to_the_change(box: Sandbox) -> None:
    (box.repo / "broken.txt").write_text("x\n")
    box.git("add", "broken.txt")
    box.git("commit", "-q", "-m", "break the base")
    (box.folder / "hold").touch()
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done; test ! -e broken.txt")
    create_session(box, "a", DONE.format("a"))
    wait_for_session(
        box, "a", lambda now: now["pr"] and any(entry["state"] == "running" for entry in now["pr"]["checks"]), "to run"
    )
    box.git("rm", "-q", "broken.txt")
    box.git("commit", "-q", "-m", "mend the base")
    box.wait_until(
        lambda: any(entry["data"].get("head") == box.git("rev-parse", "main") for entry in box.events("a")), "news"
    )
    (box.folder / "hold").unlink()
    wait_for_status(box, "a", "review_pending")
    assert notification_texts(box, "warning") == [] == rule_messages(box, "a")
    [finished] = [entry["data"] for entry in box.events("a") if entry["type"] == "check-finished"]
    assert (finished["state"], finished["onBase"], finished["fixedSince"]) == ("failure", True, True)
    timeline = json.dumps(box.request("GET", "/api/sessions/a/timeline"))
    assert "as at the branch point; since fixed on the base branch" in timeline
    box.request("POST", "/api/sessions/a/review", {"verdict": "approved"})
    assert box.json("merge", "a")["status"] == "merged"


# -- branches that move ----------------------------------------------------------------------------------------------------


def test_a_merge_is_rebuilt_and_checked_again_if_the_base_moves(box: Sandbox) -> None:
    folder = box.folder
    configure(box, f"ls >>{folder}/runs; echo . >>{folder}/runs; while test -e {folder}/hold; do sleep 0.02; done")
    create_session(box, "l", DONE.format("l"))
    wait_for_checks(box, "l")

    def commit(name: str) -> None:
        (box.repo / name).write_text(name)
        box.git("add", name)
        box.git("commit", "-q", "-m", name)

    def runs() -> list[list[str]]:
        return [run.split() for run in (folder / "runs").read_text().split(".\n") if run]

    commit("first")
    (folder / "hold").touch()
    box.request("POST", "/api/sessions/l/merge", {})
    box.wait_until(lambda: "first" in runs()[-1], "the check of the merge", TIMEOUT)
    commit("second")
    (folder / "hold").unlink()
    wait_for_status(box, "l", "merged")
    assert {"first", "second", "l.txt"} <= set(runs()[-1]), "the merged commit is the checked one"
    assert box.git("log", "--format=%s", "-4", "main").splitlines() == ["Work on l (#1)", "second", "first", "start"]
    assert box.git("status", "--porcelain") == "?? agent-orchestrator.yaml"


def amend_commit(workspace: Path, box: Sandbox, text: str) -> str:
    """Amend the last commit of a workspace, as before a forced push, and return its hash."""
    (workspace / "f.txt").write_text(f"{text}\n")
    box.git("commit", "-q", "-a", "--amend", "-m", text, cwd=workspace)
    return box.git("rev-parse", "HEAD", cwd=workspace)


def _states(session: dict[str, Any]) -> list[str]:
    """Return the states of the checks of a session's newest commit."""
    return [check["state"] for check in session["pr"]["checks"]]


@pytest.mark.parametrize("agent", ["lives", "has ended"])
def test_a_force_pushed_branch_of_an_open_pull_request_is_checked_again(box: Sandbox, agent: str) -> None:
    configure(box, "! grep bad f.txt || { echo 'error [[say: seen]]'; exit 1; }")
    create_session(box, "f", DONE.format("f") + (" [[exit: 0]]" if agent == "has ended" else ""))
    before = wait_for_checks(box, "f")["head"]
    box.request("POST", "/api/sessions/f/review", {"verdict": "approved"})
    wait_for_status(box, "f", "mergeable")
    forced = amend_commit(Path(box.session("f")["workspacePath"]), box, "bad")
    wait_for_session(
        box,
        "f",
        lambda now: now["head"] == forced != before and _states(now) == ["failure"],
        "the check of what is there",
    )
    assert_refused(box.ao("merge", "f", check=False), 1, "is red")
    wait_for_turns(box, "f")
    forced = amend_commit(Path(box.session("f")["workspacePath"]), box, "good")
    wait_for_session(box, "f", lambda now: now["head"] == forced and now["status"] == "mergeable", "the new check")
    assert box.json("merge", "f")["status"] == "merged"
    assert (box.repo / "f.txt").read_text() == "good\n"


def test_a_branch_force_pushed_while_it_waits_to_merge_is_not_merged_unchecked(box: Sandbox) -> None:
    configure(box, "true")
    create_session(box, "f", DONE.format("f") + " [[exit: 0]]")
    old_head = wait_for_checks(box, "f")["head"]
    (box.repo / "f.txt").write_text("in the way\n")
    box.request("POST", "/api/sessions/f/merge", {})
    wait_for_session(box, "f", lambda now: "f.txt" in (now["waitingFor"] or ""), "it to wait for the checkout")
    forced_head = box.git("commit-tree", f"{old_head}^{{tree}}", "-p", f"{old_head}^", "-m", "forced from outside")
    box.git("update-ref", "refs/heads/feature/f", forced_head)
    (box.repo / "f.txt").unlink()
    wait_for_session(box, "f", lambda now: now["status"] != "merging", "the merge to be refused")
    assert "its branch moved meanwhile" in box.json("review", "f")["refused"]
    assert not (box.repo / "f.txt").exists()
    wait_for_session(
        box, "f", lambda now: now["head"] == forced_head and now["status"] == "review_pending", "what is there now"
    )
    assert box.json("merge", "f")["status"] == "merged"
    assert (box.repo / "f.txt").read_text() == "f\n"


# -- work that is not committed ----------------------------------------------------------------------------------------------


def test_uncommitted_files_are_named_and_saved_when_a_branch_is_merged(box: Sandbox) -> None:
    configure(box, "true")
    create_session(
        box,
        "d",
        "[[write: d.txt|landed]] [[commit: d]] [[write: d.txt|edited after]] [[write: notes/new.txt|untracked]]"
        " [[sh: echo staged >staged.txt && git add staged.txt]] [[done: d]]",
    )
    wait_for_checks(box, "d")
    output = box.ao("merge", "d").stdout
    assert "not committed" in output and "d.txt" in output and "notes/new.txt" in output
    assert (box.repo / "d.txt").read_text() == "landed\n"
    now = wait_for_session(box, "d", lambda now: now["workspacePath"] is None, "its clean-up")
    ref = "refs/ao/rescue/app-d"
    assert ref in now["why"] and ref in box.ao("status", "d").stdout
    for file, text in (("d.txt", "edited after"), ("notes/new.txt", "untracked"), ("staged.txt", "staged")):
        assert box.git("show", f"{ref}:{file}") == text
    assert box.git("branch", "--list", "feature/d") == ""


class Person(threading.Thread):
    """A person who edits, adds and commits in the main checkout without a pause."""

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
        result = subprocess.run(["git", *argv], cwd=self.box.repo, env=self.box.env, capture_output=True, text=True)
        if result.returncode and "index.lock" not in result.stderr and "cannot lock ref" not in result.stderr:
            self.problems.append(result.stderr + result.stdout)
            return True
        return not result.returncode


def test_a_person_can_edit_and_commit_in_the_checkout_while_changes_are_merged(box: Sandbox) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        create_session(box, name, DONE.format(name))
    for name in names:
        wait_for_status(box, name, "review_pending")
    person = Person(box)
    person.start()
    try:
        box.wait_until(lambda: len(person.commits) >= 2, "the person at work")
        merged = box.json("merge", *names)["sessions"]
        assert [item["status"] for item in merged] == ["merged"] * len(names)
        commit_count = len(person.commits)
        box.wait_until(lambda: len(person.commits) >= commit_count + 2, "the person at work")
    finally:
        person.over.set()
        person.join()
    assert person.problems == []
    subjects = box.git("log", "--format=%s", "main").splitlines()
    assert [item for item in reversed(subjects) if item.startswith("mine-")] == person.commits
    assert sorted(item for item in subjects if item.startswith("Work on")) == [
        f"Work on {n} (#{k})" for n, k in numbers(box)
    ]
    for file, text in person.files().items():
        assert (box.repo / file).read_text() == text
    for name in names:
        assert (box.repo / f"{name}.txt").read_text() == f"{name}\n"
    status_lines = box.git("status", "--porcelain").splitlines()
    assert sorted(status_lines) == ["?? agent-orchestrator.yaml", "?? untracked.txt", "M README.md"]


def numbers(box: Sandbox) -> list[tuple[str, int]]:
    return sorted((session["name"], session["pr"]["number"]) for session in box.sessions())


# -- two at once -----------------------------------------------------------------------------------------------------------


def test_of_two_simultaneous_answers_one_counts_and_the_other_is_refused(box: Sandbox) -> None:
    create_session(box, "q", "[[block: Allow it?]] [[write: allowed.txt|x]] [[say: over]]")
    wait_for_status(box, "q", "blocked")

    def decide(decision: str) -> str:
        try:
            box.request("POST", "/api/sessions/q/answer", {"decision": decision})
        except Conflict as refusal:
            return str(refusal)
        except AoError as error:
            return f"wrong: {error}"
        return decision

    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(decide, ("allow", "deny")))
    [counted] = [reply for reply in replies if reply in ("allow", "deny")]
    [other] = [reply for reply in replies if reply not in ("allow", "deny")]
    assert "answered already" in other or "waits for no permission" in other
    wait_for_session(box, "q", lambda now: now["activity"] == "idle", "its turn's end")
    assert (Path(box.session("q")["workspacePath"]) / "allowed.txt").exists() == (counted == "allow")
    answered = [event["data"] for event in box.events("q") if event["type"] == "permission-answered"]
    assert [reply["decision"] for reply in answered] == [counted], json.dumps(answered)


def test_a_failed_comparison_with_the_base_is_retried(tmp_path: Path) -> None:
    fails, attempts, programs = tmp_path / "fails", tmp_path / "tried", tmp_path / "programs"
    programs.mkdir()
    fails.touch()
    git = programs / "git"
    git.write_text(
        f'#!/bin/sh\ncase " $* " in *" merge-tree "*) if [ -e {fails} ]; then echo x >> {attempts}; '
        f'echo "fatal: mmap failed: Cannot allocate memory" >&2; exit 128; fi ;; esac\nexec {shutil.which("git")} "$@"\n'
    )
    git.chmod(0o755)
    with Sandbox(tmp_path / "box", "process") as box:
        box.env["PATH"] = f"{programs}:{box.env['PATH']}"
        box.repository(config="defaults: {agent: demo, runtime: process}\n")
        box.start()
        create_session(box, "m", DONE.format("m"))
        box.wait_until(lambda: attempts.exists() and attempts.read_text().count("x") > 1, "a second try", TIMEOUT)
        assert box.session("m")["pr"]["mergeable"] == "unknown"
        fails.unlink()
        wait_for_session(box, "m", lambda now: now["pr"]["mergeable"] == "yes", "to be compared")


def test_a_merge_interrupted_after_it_moved_the_base_leaves_no_lock(tmp_path: Path) -> None:
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
        create_session(box, "m", DONE.format("m"))
        wait_for_status(box, "m", "review_pending")
        box.ao("merge", "m")
        assert failed.read_text() and (box.repo / "m.txt").exists()
        assert not (box.repo / ".git" / "index.lock").exists()
