"""The merge queue as people meet it: many changes at once, one that breaks the others, leaving the queue, the daemon's death, and all
that may befall a check or a branch in the queue."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import refused
from tests.acceptance.session_states import PLENTY, Json, checked, messages, status, until, work

CONFIG = """
defaults: {{agent: demo, runtime: process}}
ci: {{command: "{command}", parallel: {parallel}, timeout: {timeout}}}
reactions: {{ci-failed: {{message: "{{{{errors}}}}"}}}}
"""
DONE = "[[write: {0}.txt|{0}]] [[commit: {0}]] [[done: {0}]]"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config="defaults: {agent: demo, runtime: process}\n")
        sandbox.start()
        yield sandbox


def configure(box: Sandbox, command: str, parallel: int = 4, timeout: str = "60s") -> None:
    text = CONFIG.format(command=command, parallel=parallel, timeout=timeout)
    (box.repo / "agent-orchestrator.yaml").write_text(text)


def commit(box: Sandbox, name: str) -> None:
    """Somebody commits on the base: whatever was checked before is checked again on top of it."""
    (box.repo / name).write_text("x\n")
    box.git("add", name)
    box.git("commit", "-q", "-m", name)


def queued(box: Sandbox) -> list[Json]:
    return list(box.json("queue")["entries"])


def ask(box: Sandbox, *names: str) -> None:
    for name in names:
        box.request("POST", f"/api/sessions/{name}/merge", {})


def ready(box: Sandbox, *names: str) -> None:
    for name in names:
        work(box, name, DONE.format(name))
    for name in names:
        checked(box, name)


def title(box: Sandbox, name: str) -> str:
    return f"Work on {name} (#{box.session(name)['pr']['number']})"


def held(box: Sandbox) -> Path:
    """Checks do not end while this file is there."""
    hold = box.folder / "hold"
    hold.touch()
    return hold


def test_many_land_together_and_the_one_that_breaks_the_others_is_told_why(box: Sandbox) -> None:
    runs = box.folder / "runs"
    wait = f"while test -e {box.folder}/hold; do sleep 0.02; done"
    configure(box, f"echo . >>{runs}; {wait}; test ! -e a.txt -o ! -e c.txt || {{ echo 'error: a and c'; exit 1; }}")
    names = ["a", "b", "c", "d"]
    ready(box, *names)
    hold, before = held(box), len(runs.read_text().split())
    for name in names:
        box.request("POST", f"/api/sessions/{name}/merge", {})
    first = title(box, "a")

    def entries() -> list[Json]:
        return list(box.json("queue")["entries"])

    # The first is checked already: what it would make of the base is what it is.
    box.until(lambda: first in box.git("log", "--format=%s", "main").splitlines(), "the first to land", PLENTY)
    box.until(lambda: [one["state"] for one in entries()] == ["checking"] * 3, "the others to be checked", PLENTY)
    shown = entries()
    assert [(one["session"], one["position"], one["base"]) for one in shown] == [
        ("app-b", 1, "main"),
        ("app-c", 2, "main"),
        ("app-d", 3, "main"),
    ]
    assert [one["ahead"] for one in shown] == [[], ["app-b"], ["app-b", "app-c"]]
    assert len({one["tree"] for one in shown}) == 3 and all(one["tree"] for one in shown)
    assert "app-d" in box.ao("queue").stdout
    hold.unlink()
    for name in ("a", "b", "d"):
        status(box, name, "merged")
    assert "the check default fails on top of main" in refusal(box, "c")
    [text] = box.until(lambda: messages(box, "c"), "its agent to be told", PLENTY)
    assert "error: a and c" in text and "on top of main" in text
    subjects = box.git("log", "--format=%s", "main").splitlines()
    assert subjects == [title(box, "d"), title(box, "b"), first, "start"]
    assert box.json("queue") == {"entries": []}
    assert before == 4


def test_a_change_is_taken_out_of_the_queue_again(box: Sandbox) -> None:
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done")
    ready(box, "a", "b")
    commit(box, "base")
    hold = held(box)
    for name in ("a", "b"):
        box.request("POST", f"/api/sessions/{name}/merge", {})
    box.until(lambda: [one["state"] for one in box.json("queue")["entries"]] == ["checking"] * 2, "both", PLENTY)
    said = box.ao("merge", "a", "--cancel").stdout
    assert "app-a is not to land any more" in said
    assert [one["session"] for one in box.json("queue")["entries"]] == ["app-b"]
    refused(box.ao("merge", "a", "--cancel", check=False), 1, "is not to land", "ao queue")
    hold.unlink()
    status(box, "b", "merged")
    assert box.session("a")["status"] != "merging" and not (box.repo / "a.txt").exists()
    assert box.json("merge", "a")["status"] == "merged", "it may be asked for again"


def test_the_queue_survives_the_daemons_death(box: Sandbox) -> None:
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done; test ! -e bad.txt")
    names = ["a", "b", "c"]
    ready(box, *names)
    commit(box, "base")
    hold = held(box)
    for name in names:
        box.request("POST", f"/api/sessions/{name}/merge", {})
    box.until(lambda: [one["state"] for one in box.json("queue")["entries"]] == ["checking"] * 3, "all", PLENTY)
    box.stop(signal.SIGKILL)
    box.start()
    box.until(lambda: [one["session"] for one in box.json("queue")["entries"]] == ["app-a", "app-b", "app-c"], "all")
    hold.unlink()
    for name in names:
        status(box, name, "merged")
    landed = [title(box, name) for name in names]
    assert box.git("log", "--format=%s", "main").splitlines() == [*reversed(landed), "base", "start"]


# -- the order -----------------------------------------------------------------------------------------------------------


def test_who_would_spoil_others_lands_after_them_and_is_told_why(box: Sandbox) -> None:
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done", parallel=1)
    scripts = {"front": ("front",), "spoiler": ("x", "y"), "one": ("x",), "two": ("y",)}
    for name, files in scripts.items():
        writes = " ".join(f"[[write: {file}.txt|{name}]]" for file in files)
        work(box, name, f"{writes} [[commit: {name}]] [[done: {name}]]")
    for name in scripts:
        checked(box, name)
    assert len(box.json("conflicts")["pairs"]) == 2
    commit(box, "base")
    hold = held(box)
    ask(box, *scripts)
    order = ["app-front", "app-one", "app-two", "app-spoiler"]
    box.until(lambda: [one["session"] for one in queued(box)] == order, "the order", PLENTY)
    last = queued(box)[-1]
    assert (last["passedBy"], last["collides"]) == (["app-one", "app-two"], ["app-one", "app-two"])
    assert queued(box)[1]["collides"] == ["app-spoiler"] and queued(box)[1]["passedBy"] == []
    shown = box.ao("queue").stdout.splitlines()
    assert "app-one, app-two: it collides with 2 of the queue" in shown[-1]
    hold.unlink()
    for name in ("front", "one", "two"):
        status(box, name, "merged")
    until(box, "spoiler", lambda now: now["status"] == "conflicted", "the one that is sent back")
    titles = [title(box, name) for name in ("two", "one", "front")]
    assert box.git("log", "--format=%s", "main").splitlines() == [*titles, "base", "start"]


# -- what may befall them ----------------------------------------------------------------------------------------------------


def refusal(box: Sandbox, name: str) -> str:
    def found() -> list[str]:
        return [one["data"]["reason"] for one in box.events(f"app-{name}") if one["type"] == "landing-failed"]

    [reason] = box.until(found, f"the refusal of {name}", PLENTY)
    return str(reason)


@pytest.mark.parametrize(
    ("harm", "word"),
    [
        ("sleep 27182 & setsid sleep 27182 & sleep 27182", "did not finish within 6 s and was stopped"),
        ("kill -9 0", "was killed"),
    ],
)
def test_a_check_in_the_queue_that_hangs_or_is_killed_stops_nobody_else(box: Sandbox, harm: str, word: str) -> None:
    configure(box, f"if test -e ill.txt -a -e base; then {harm}; fi", timeout="6s")
    names = ["a", "ill", "b"]
    ready(box, *names)
    commit(box, "base")
    ask(box, *names)
    for name in ("a", "b"):
        status(box, name, "merged")
    assert word in refusal(box, "ill") and "on top of main" in refusal(box, "ill")
    assert queued(box) == []
    box.until(lambda: "27182" not in commands(), "what it started to be gone")
    assert not (box.repo / "ill.txt").exists()


def commands() -> str:
    """All command lines there are."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
    return "\n".join(found)


@pytest.fixture
def soon_full(tmp_path: Path) -> Iterator[Path]:
    """A disk with hardly more than an agent wants to be started."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_check_in_the_queue_that_fills_the_disk_stops_nobody_for_good(soon_full: Path) -> None:
    with Sandbox(soon_full, "process") as box:
        box.repository(config="defaults: {agent: demo, runtime: process}\n")
        box.start()
        fill = "dd if=/dev/zero of=big bs=1M 2>&1; sleep 1; exit 1"
        configure(box, f"if test -e fat.txt -a -e base; then {fill}; fi", parallel=2)
        names = ["a", "fat", "b"]
        ready(box, *names)
        pid = box.daemon_pid()
        commit(box, "base")
        ask(box, *names)
        for name in ("a", "b"):
            status(box, name, "merged")
        assert "on top of main" in refusal(box, "fat") and queued(box) == []
        told = [one["data"].get("summary", "") for one in box.events("app-fat") if one["type"] == "check-finished"]
        assert any("No space left on device" in one for one in told), told
        assert box.daemon_pid() == pid and "Traceback" not in box.home.log.read_text()
        titles = box.git("log", "--format=%s", "main").splitlines()
        assert sorted(titles) == sorted([title(box, "a"), title(box, "b"), "base", "start"])


def test_a_branch_that_is_forced_elsewhere_among_others_is_out_and_they_land(box: Sandbox) -> None:
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done")
    names = ["a", "b", "c"]
    ready(box, *names)
    commit(box, "base")
    hold = held(box)
    ask(box, *names)
    box.until(lambda: [one["state"] for one in queued(box)] == ["checking"] * 3, "all", PLENTY)
    workspace = Path(box.session("b")["workspacePath"])
    box.git("commit", "-q", "--amend", "-m", "forced", cwd=workspace)
    forced = box.git("rev-parse", "feature/b")
    assert "its branch moved meanwhile" in refusal(box, "b")
    hold.unlink()
    for name in ("a", "c"):
        status(box, name, "merged")
    until(box, "b", lambda now: now["head"] == forced and now["status"] == "review_pending", "what is there now")
    assert box.json("merge", "b")["status"] == "merged"
    assert [(box.repo / f"{name}.txt").read_text() for name in names] == ["a\n", "b\n", "c\n"]
