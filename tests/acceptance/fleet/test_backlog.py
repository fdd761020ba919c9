"""`ao backlog`: which issues start next, with which profile, and what blocks them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """
defaults: {agent: demo, runtime: process}
agents:
  frontend: {tool: demo, filters: {labels: [ui, css], excludeLabels: [api]}}
  backend: {tool: demo, filters: {labels: [api]}, maxParallelAgents: 1}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


def rows(box: Sandbox) -> list[tuple[int, str | None, bool, str]]:
    entries = box.json("backlog")["entries"]
    assert [entry["position"] for entry in entries] == list(range(1, len(entries) + 1))
    return [(entry["issue"], entry["profile"], entry["ready"], "; ".join(entry["reasons"])) for entry in entries]


def test_the_backlog_by_profile_with_reasons(box: Sandbox) -> None:
    assert "No issue is open" in box.ao("backlog").stdout
    box.ao("issue", "new", "Serve it", "-m", "[[wait]]", "--label", "api")
    box.ao("issue", "new", "Style it", "--label", "UI", "--after", "1")
    box.ao("issue", "new", "Write about it", "--label", "docs")
    box.ao("issue", "new", "Test it", "--label", "api")
    off = "autoAssign is off: take it by ao new {}"
    assert rows(box) == [
        (1, "backend", True, off.format(1)),
        (2, "frontend", False, "issue 1 is open"),
        (3, None, False, "no profile takes its labels (docs)"),
        (4, "backend", False, "no place is free for backend (1 of 1 taken)"),
    ]
    output = box.ao("backlog").stdout
    assert "Serve it" in output and "backend" in output and "no profile takes its labels (docs)" in output
    (box.repo / "agent-orchestrator.yaml").write_text(CONFIG + "orchestrator: {autoAssign: true}\n")
    expected = (1, "backend", False, "app-serve-it works on it")
    box.wait_until(lambda: expected in rows(box), "the new configuration, by which it is taken")
    first = box.session("serve-it")
    assert (first["profile"], first["issue"]) == ("backend", "1")
    box.ao("stop", "serve-it")
    again = "app-serve-it has attempted it: try again by ao new 1"
    box.wait_until(lambda: (1, "backend", False, again) in rows(box), "it not to be taken twice")
    box.stop(9)
    box.start()
    box.wait_until(lambda: len(box.sessions()) == 2, "the next one to be taken, and this one not again")
    assert sorted(session["issue"] for session in box.sessions()) == ["1", "4"]
    assert box.request("GET", "/api/backlog?project=app")["entries"] == box.json("backlog", "-A")["entries"]
    box.ao("issue", "assign", "2", "bob")
    box.ao("issue", "close", "1")
    assert "it is assigned to bob" in {number: reason for number, _, _, reason in rows(box)}[2]
    (box.repo / "agent-orchestrator.yaml").write_text("defaults: {agent: demo, runtime: process}\n")
    box.wait_until(lambda: box.json("backlog")["entries"][0]["agent"] == "demo", "the project's own agent")
    assert {profile for number, profile, _, _ in rows(box) if number != 4} == {None}
