"""`ao backlog`: what would be taken up next, by which profile, and why not yet."""

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
    found = box.json("backlog")["entries"]
    assert [one["position"] for one in found] == list(range(1, len(found) + 1))
    return [(one["issue"], one["profile"], one["ready"], "; ".join(one["reasons"])) for one in found]


def test_the_backlog_by_profile_with_reasons(box: Sandbox) -> None:
    assert "No issue is open" in box.ao("backlog").stdout
    box.ao("issue", "new", "Serve it", "--label", "api")
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
    shown = box.ao("backlog").stdout
    assert "Serve it" in shown and "backend" in shown and "no profile takes its labels (docs)" in shown
    (box.repo / "agent-orchestrator.yaml").write_text(CONFIG + "orchestrator: {autoAssign: true}\n")
    box.until(lambda: rows(box)[0] == (1, "backend", True, ""), "the new configuration")
    made = box.json("new", "1", "--agent", "backend")["id"]
    box.until(lambda: (1, "backend", False, f"{made} works on it") in rows(box), "it to be taken")
    assert box.request("GET", "/api/backlog?project=app")["entries"] == box.json("backlog", "-A")["entries"]
    box.ao("issue", "assign", "2", "bob")
    box.ao("issue", "close", "1")
    assert "it is assigned to bob" in {number: why for number, _, _, why in rows(box)}[2]
    (box.repo / "agent-orchestrator.yaml").write_text("defaults: {agent: demo, runtime: process}\n")
    box.until(lambda: box.json("backlog")["entries"][0]["agent"] == "demo", "the project's own agent")
    assert {profile for _, profile, _, _ in rows(box)} == {None}
