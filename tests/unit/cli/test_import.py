"""`ao import` at a terminal: it asks before replacing values of a file and before accepting commands from others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from agent_orchestrator.cli.setup import import_config
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon

KEPT_ROW = {"key": "default_program", "outcome": "kept", "to": "defaults.agent", "note": 'the file says "demo"'}


@pytest.fixture
def questions(daemon: ScriptedDaemon, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Yield the list of questions; the daemon keeps one key unless it may be replaced."""

    def answer(request: Any) -> DaemonReply:
        request_body = request.json()
        entry = KEPT_ROW | ({"outcome": "taken"} if request_body["replace"] else {})
        preview = {
            "kind": "claude-squad",
            "source": request_body["path"],
            "file": "/r/agent-orchestrator.yaml",
            "itself": False,
        }
        preview |= {"written": not request_body.get("dryRun"), "text": "x: 1\n", "entries": [entry], "warnings": []}
        return DaemonReply({**preview, "commands": [], "digest": ""})

    daemon.route("POST", "/api/config/import", answer)
    monkeypatch.setattr(import_config, "is_interactive", lambda: True)
    return []


def answer_all(monkeypatch: pytest.MonkeyPatch, questions: list[str], *, yes: bool) -> None:
    """Record questions and give the same answer to all."""

    def confirm(question: str) -> bool:
        questions.append(question)
        return yes

    monkeypatch.setattr(click, "confirm", confirm)


@pytest.mark.parametrize("yes", [True, False])
def test_a_person_is_asked_before_values_are_replaced(
    daemon: ScriptedDaemon, run: Run, questions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, yes: bool
) -> None:
    answer_all(monkeypatch, questions, yes=yes)
    (tmp_path / "config.json").write_text("{}")
    ran = run("import", str(tmp_path / "config.json"))
    assert ran.code == 0
    assert questions == ["Replace what /r/agent-orchestrator.yaml says about 1 key?"]
    assert [request.json().get("dryRun", False) for request in daemon.requests] == [
        True,
        *([True] if yes else []),
        False,
    ]
    assert daemon.requests[-1].json()["replace"] is yes
    assert 'the file says "demo"' in ran.out and ran.out.endswith("is written.\n")
    assert ran.out.count("is a configuration of") == (2 if yes else 1)


@pytest.mark.parametrize("option", ["--replace", "--dry-run", "--json"])
def test_an_option_replaces_the_question(
    daemon: ScriptedDaemon, run: Run, questions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    monkeypatch.setattr(click, "confirm", lambda question: pytest.fail(f"asked: {question}"))
    (tmp_path / "config.json").write_text("{}")
    assert run("import", option, str(tmp_path / "config.json")).code == 0
    assert daemon.requests[-1].json()["replace"] is (option == "--replace")
    assert len(daemon.requests) == (1 if option == "--dry-run" else 2)


FOREIGN = {
    "kind": "agent-orchestrator",
    "source": "/r/old.yaml",
    "file": "/r/agent-orchestrator.yaml",
    "itself": False,
    "written": True,
    "text": "x: 1\n",
    "entries": [],
    "warnings": [],
    "commands": ["projects.app.postCreate: touch X"],
    "digest": "d1",
}


@pytest.mark.parametrize("yes", [True, False])
def test_commands_from_others_are_shown_and_need_confirmation(
    daemon: ScriptedDaemon, run: Run, questions: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, yes: bool
) -> None:
    answer_all(monkeypatch, questions, yes=yes)
    daemon.route("POST", "/api/config/import", lambda _request: DaemonReply(FOREIGN))
    (tmp_path / "old.yaml").write_text("")
    ran = run("import", str(tmp_path / "old.yaml"))
    assert questions == ["/r/old.yaml is not your own. Let /r/agent-orchestrator.yaml run and open that?"]
    assert "  projects.app.postCreate: touch X\n" in ran.out
    assert [request.json().get("digest") for request in daemon.requests] == ([None, "d1"] if yes else [None])
    assert ran.code == (0 if yes else 1) and ("nothing was written" in ran.err) is not yes


@pytest.mark.parametrize(("options", "sent"), [(["--json"], None), (["--json", "--yes"], "d1"), (["-y"], "d1")])
def test_without_a_terminal_yes_must_be_given_as_an_option(
    daemon: ScriptedDaemon,
    run: Run,
    questions: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    sent: str | None,
) -> None:
    monkeypatch.setattr(click, "confirm", lambda question: questions.append(question))
    daemon.route("POST", "/api/config/import", lambda _request: DaemonReply(FOREIGN))
    (tmp_path / "old.yaml").write_text("")
    run("import", *options, str(tmp_path / "old.yaml"))
    assert daemon.requests[-1].json().get("digest") == sent and not questions
