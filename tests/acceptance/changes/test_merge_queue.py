"""The merge queue: many changes at once, a change that breaks the others, leaving the queue, crashes, and failing checks in the queue."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

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
)

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
    """Commit to the base branch, so that queued changes are checked again on top of it."""
    (box.repo / name).write_text("x\n")
    box.git("add", name)
    box.git("commit", "-q", "-m", name)


def queue_entries(box: Sandbox) -> list[Json]:
    return list(box.json("queue")["entries"])


def request_merge(box: Sandbox, *names: str) -> None:
    for name in names:
        box.request("POST", f"/api/sessions/{name}/merge", {})


def create_checked_sessions(box: Sandbox, *names: str) -> None:
    for name in names:
        create_session(box, name, DONE.format(name))
    for name in names:
        wait_for_checks(box, name)


def title(box: Sandbox, name: str) -> str:
    return f"Work on {name} (#{box.session(name)['pr']['number']})"


def hold_checks(box: Sandbox) -> Path:
    """Create the file that keeps checks from ending, and return its path."""
    hold = box.folder / "hold"
    hold.touch()
    return hold


def test_many_changes_are_merged_together_and_the_one_that_breaks_the_others_is_rejected(box: Sandbox) -> None:
    run_log = box.folder / "runs"
    wait = f"while test -e {box.folder}/hold; do sleep 0.02; done"
    configure(box, f"echo . >>{run_log}; {wait}; test ! -e a.txt -o ! -e c.txt || {{ echo 'error: a and c'; exit 1; }}")
    names = ["a", "b", "c", "d"]
    create_checked_sessions(box, *names)
    hold, before = hold_checks(box), len(run_log.read_text().split())
    for name in names:
        box.request("POST", f"/api/sessions/{name}/merge", {})
    first = title(box, "a")

    def entries() -> list[Json]:
        return list(box.json("queue")["entries"])

    # The first is checked already: merged onto the base it is the same commit.
    box.wait_until(
        lambda: first in box.git("log", "--format=%s", "main").splitlines(), "the first to be merged", TIMEOUT
    )
    box.wait_until(
        lambda: [entry["state"] for entry in entries()] == ["checking"] * 3, "the others to be checked", TIMEOUT
    )
    queue = entries()
    assert [(entry["session"], entry["position"], entry["base"]) for entry in queue] == [
        ("app-b", 1, "main"),
        ("app-c", 2, "main"),
        ("app-d", 3, "main"),
    ]
    assert [entry["ahead"] for entry in queue] == [[], ["app-b"], ["app-b", "app-c"]]
    assert len({entry["tree"] for entry in queue}) == 3 and all(entry["tree"] for entry in queue)
    assert "app-d" in box.ao("queue").stdout
    hold.unlink()
    for name in ("a", "b", "d"):
        wait_for_status(box, name, "merged")
    assert "the check default fails on top of main" in refusal(box, "c")
    [text] = box.wait_until(lambda: rule_messages(box, "c"), "the message to the agent", TIMEOUT)
    assert "error: a and c" in text and "on top of main" in text
    subjects = box.git("log", "--format=%s", "main").splitlines()
    assert subjects == [title(box, "d"), title(box, "b"), first, "start"]
    assert box.json("queue") == {"entries": []}
    assert before == 4


def test_a_change_can_leave_the_merge_queue(box: Sandbox) -> None:
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done")
    create_checked_sessions(box, "a", "b")
    commit(box, "base")
    hold = hold_checks(box)
    for name in ("a", "b"):
        box.request("POST", f"/api/sessions/{name}/merge", {})
    box.wait_until(
        lambda: [entry["state"] for entry in box.json("queue")["entries"]] == ["checking"] * 2, "both", TIMEOUT
    )
    output = box.ao("merge", "a", "--cancel").stdout
    assert "app-a is not to land any more" in output
    assert [entry["session"] for entry in box.json("queue")["entries"]] == ["app-b"]
    assert_refused(box.ao("merge", "a", "--cancel", check=False), 1, "is not to land", "ao queue")
    hold.unlink()
    wait_for_status(box, "b", "merged")
    assert box.session("a")["status"] != "merging" and not (box.repo / "a.txt").exists()
    assert box.json("merge", "a")["status"] == "merged", "it may be asked for again"


def test_the_merge_queue_survives_a_crash_of_the_daemon(box: Sandbox) -> None:
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done; test ! -e bad.txt")
    names = ["a", "b", "c"]
    create_checked_sessions(box, *names)
    commit(box, "base")
    hold = hold_checks(box)
    for name in names:
        box.request("POST", f"/api/sessions/{name}/merge", {})
    box.wait_until(
        lambda: [entry["state"] for entry in box.json("queue")["entries"]] == ["checking"] * 3, "all", TIMEOUT
    )
    box.stop(signal.SIGKILL)
    box.start()
    box.wait_until(
        lambda: [entry["session"] for entry in box.json("queue")["entries"]] == ["app-a", "app-b", "app-c"], "all"
    )
    hold.unlink()
    for name in names:
        wait_for_status(box, name, "merged")
    subjects = [title(box, name) for name in names]
    assert box.git("log", "--format=%s", "main").splitlines() == [*reversed(subjects), "base", "start"]


# -- the order -----------------------------------------------------------------------------------------------------------


def test_a_change_that_conflicts_with_others_is_merged_after_them(box: Sandbox) -> None:
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done", parallel=1)
    scripts = {"front": ("front",), "spoiler": ("x", "y"), "one": ("x",), "two": ("y",)}
    for name, files in scripts.items():
        writes = " ".join(f"[[write: {file}.txt|{name}]]" for file in files)
        create_session(box, name, f"{writes} [[commit: {name}]] [[done: {name}]]")
    for name in scripts:
        wait_for_checks(box, name)
    assert len(box.json("conflicts")["pairs"]) == 2
    commit(box, "base")
    hold = hold_checks(box)
    request_merge(box, *scripts)
    order = ["app-front", "app-one", "app-two", "app-spoiler"]
    box.wait_until(lambda: [entry["session"] for entry in queue_entries(box)] == order, "the order", TIMEOUT)
    last = queue_entries(box)[-1]
    assert (last["passedBy"], last["collides"]) == (["app-one", "app-two"], ["app-one", "app-two"])
    assert queue_entries(box)[1]["collides"] == ["app-spoiler"] and queue_entries(box)[1]["passedBy"] == []
    table = box.ao("queue").stdout.splitlines()
    assert "app-one, app-two: it collides with 2 of the queue" in table[-1]
    hold.unlink()
    for name in ("front", "one", "two"):
        wait_for_status(box, name, "merged")
    wait_for_session(box, "spoiler", lambda now: now["status"] == "conflicted", "the one that is sent back")
    titles = [title(box, name) for name in ("two", "one", "front")]
    assert box.git("log", "--format=%s", "main").splitlines() == [*titles, "base", "start"]


# -- what may befall them ----------------------------------------------------------------------------------------------------


def refusal(box: Sandbox, name: str) -> str:
    def reasons() -> list[str]:
        return [event["data"]["reason"] for event in box.events(f"app-{name}") if event["type"] == "landing-failed"]

    [reason] = box.wait_until(reasons, f"the refusal of {name}", TIMEOUT)
    return str(reason)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("sleep 27182 & setsid sleep 27182 & sleep 27182", "did not finish within 6 s and was stopped"),
        ("kill -9 0", "was killed"),
    ],
)
def test_a_hanging_or_killed_check_in_the_queue_does_not_block_other_changes(
    box: Sandbox, command: str, reason: str
) -> None:
    configure(box, f"if test -e ill.txt -a -e base; then {command}; fi", timeout="6s")
    names = ["a", "ill", "b"]
    create_checked_sessions(box, *names)
    commit(box, "base")
    request_merge(box, *names)
    for name in ("a", "b"):
        wait_for_status(box, name, "merged")
    assert reason in refusal(box, "ill") and "on top of main" in refusal(box, "ill")
    assert queue_entries(box) == []
    box.wait_until(lambda: "27182" not in command_lines(), "what it started to be gone")
    assert not (box.repo / "ill.txt").exists()


def command_lines() -> str:
    """Return the command lines of all processes."""
    lines = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                lines.append((entry / "cmdline").read_bytes().decode(errors="replace"))
    return "\n".join(lines)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a disk with hardly more space than the start of an agent needs."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system can only be mounted by root")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_check_in_the_queue_that_fills_the_disk_does_not_block_the_queue(small_disk: Path) -> None:
    with Sandbox(small_disk, "process") as box:
        box.repository(config="defaults: {agent: demo, runtime: process}\n")
        box.start()
        fill = "dd if=/dev/zero of=big bs=1M 2>&1; sleep 1; exit 1"
        configure(box, f"if test -e fat.txt -a -e base; then {fill}; fi", parallel=2)
        names = ["a", "fat", "b"]
        create_checked_sessions(box, *names)
        pid = box.daemon_pid()
        commit(box, "base")
        request_merge(box, *names)
        for name in ("a", "b"):
            wait_for_status(box, name, "merged")
        assert "on top of main" in refusal(box, "fat") and queue_entries(box) == []
        summaries = [
            item["data"].get("summary", "") for item in box.events("app-fat") if item["type"] == "check-finished"
        ]
        assert any("No space left on device" in item for item in summaries), summaries
        assert box.daemon_pid() == pid and "Traceback" not in box.home.log.read_text()
        titles = box.git("log", "--format=%s", "main").splitlines()
        assert sorted(titles) == sorted([title(box, "a"), title(box, "b"), "base", "start"])


def test_a_force_pushed_branch_leaves_the_queue_and_the_others_are_merged(box: Sandbox) -> None:
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done")
    names = ["a", "b", "c"]
    create_checked_sessions(box, *names)
    commit(box, "base")
    hold = hold_checks(box)
    request_merge(box, *names)
    box.wait_until(lambda: [entry["state"] for entry in queue_entries(box)] == ["checking"] * 3, "all", TIMEOUT)
    workspace = Path(box.session("b")["workspacePath"])
    box.git("commit", "-q", "--amend", "-m", "forced", cwd=workspace)
    forced = box.git("rev-parse", "feature/b")
    assert "its branch moved meanwhile" in refusal(box, "b")
    hold.unlink()
    for name in ("a", "c"):
        wait_for_status(box, name, "merged")
    wait_for_session(
        box, "b", lambda now: now["head"] == forced and now["status"] == "review_pending", "what is there now"
    )
    assert box.json("merge", "b")["status"] == "merged"
    assert [(box.repo / f"{name}.txt").read_text() for name in names] == ["a\n", "b\n", "c\n"]
