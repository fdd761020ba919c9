"""`ao plan` with a scripted daemon."""

from __future__ import annotations

import pytest

from agent_orchestrator.cli import out
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import ScriptedDaemon


def test_a_plan_fits_into_a_narrow_terminal(daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a-task-{number}" for number in range(9)]
    task = {"effort": "small", "labels": [], "files": ["app/" * 9], "profile": None, "issue": None, "issueKey": None}
    tasks = [task | {"id": name, "title": f"Annotate the module {name}", "dependencies": []} for name in names]
    plan = {"id": "P1", "goal": "Go", "state": "draft", "tasks": tasks, "notes": [], "error": None}
    daemon.route("GET", "/api/plans/P1", plan)
    assert run("plan", "P1").out.splitlines()[2].split()[-3:] == ["LABELS", "PROFILE", "FILES"]
    monkeypatch.setattr(out, "terminal_width", lambda: 50)
    lines = run("plan", "P1").out.splitlines()
    assert all(out.display_width(line) <= 50 for line in lines[:-1]), lines
    assert lines[2].split() == ["ID", "TITLE", "EFFORT"] or lines[2].split() == ["ID", "TITLE"]
    assert "Annotate the module a-task-0" in lines[3]
    assert lines[-5:-2] == [
        "  1  a-task-0   a-task-1   a-task-2   a-task-3",
        "     a-task-4   a-task-5   a-task-6   a-task-7",
        "     a-task-8",
    ]


def test_an_applied_plan_opens_no_editor(daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "false")
    daemon.route("GET", "/api/plans/P1", {"id": "P1", "state": "applied"})
    refused = run("plan", "P1", "--edit")
    assert refused.code and refused.err == "ao: P1 is applied, and cannot be changed: change its issues: ao issues\n"
    assert run("plan", "P1", "P2").err == "ao: one plan at a time: ao plan P1\n"
