"""The merge queue as people meet it: many changes at once, one that breaks the others, leaving the queue, and the daemon's death."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.forging import PLENTY, Json, checked, messages, status, until, work
from tests.acceptance.saying import refused

CONFIG = """
defaults: {{agent: demo, runtime: process}}
ci: {{command: "{command}", parallel: 4}}
reactions: {{ci-failed: {{message: "{{{{errors}}}}"}}}}
"""
DONE = "[[write: {0}.txt|{0}]] [[commit: {0}]] [[done: {0}]]"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config="defaults: {agent: demo, runtime: process}\n")
        sandbox.start()
        yield sandbox


def configure(box: Sandbox, command: str) -> None:
    (box.repo / "agent-orchestrator.yaml").write_text(CONFIG.format(command=command))


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
    until(box, "c", lambda now: now["status"] == "ci_failed", "the refusal")
    [failed] = [one["data"] for one in box.events("app-c") if one["type"] == "landing-failed"]
    assert "the check default fails on top of main" in failed["reason"]
    [text] = box.until(lambda: messages(box, "c"), "its agent to be told", PLENTY)
    assert "error: a and c" in text and "on top of main" in text
    subjects = box.git("log", "--format=%s", "main").splitlines()
    assert subjects == [title(box, "d"), title(box, "b"), first, "start"]
    assert box.json("queue") == {"entries": []}
    assert before == 4


def test_a_change_is_taken_out_of_the_queue_again(box: Sandbox) -> None:
    configure(box, f"while test -e {box.folder}/hold; do sleep 0.02; done")
    ready(box, "a", "b")
    (box.repo / "base.txt").write_text("x\n")
    box.git("add", "base.txt")
    box.git("commit", "-q", "-m", "base")
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
    (box.repo / "base.txt").write_text("x\n")
    box.git("add", "base.txt")
    box.git("commit", "-q", "-m", "base")
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
