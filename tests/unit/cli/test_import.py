"""`ao import` at a terminal: a person is asked before anything of his file is replaced, and before what is not his own may run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from agent_orchestrator.cli.setup import import_config
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import Daemon, Reply

KEPT = {"key": "default_program", "outcome": "kept", "to": "defaults.agent", "note": 'the file says "demo"'}


@pytest.fixture
def asked(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Questions that were asked; the daemon says that one key is kept unless it may be replaced."""

    def answer(request: Any) -> Reply:
        given = request.json()
        entry = KEPT | ({"outcome": "taken"} if given["replace"] else {})
        told = {"kind": "claude-squad", "source": given["path"], "file": "/r/agent-orchestrator.yaml", "itself": False}
        told |= {"written": not given.get("dryRun"), "text": "x: 1\n", "entries": [entry], "warnings": []}
        return Reply({**told, "commands": [], "digest": ""})

    daemon.route("POST", "/api/config/import", answer)
    monkeypatch.setattr(import_config, "is_interactive", lambda: True)
    return []


def answered(monkeypatch: pytest.MonkeyPatch, asked: list[str], *, yes: bool) -> None:
    """Questions are noted, and answered so."""

    def confirm(question: str) -> bool:
        asked.append(question)
        return yes

    monkeypatch.setattr(click, "confirm", confirm)


@pytest.mark.parametrize("yes", [True, False])
def test_a_person_is_asked_before_his_words_are_replaced(
    daemon: Daemon, run: Run, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, yes: bool
) -> None:
    answered(monkeypatch, asked, yes=yes)
    (tmp_path / "config.json").write_text("{}")
    ran = run("import", str(tmp_path / "config.json"))
    assert ran.code == 0
    assert asked == ["Replace what /r/agent-orchestrator.yaml says about 1 key?"]
    assert [one.json().get("dryRun", False) for one in daemon.requests] == [True, *([True] if yes else []), False]
    assert daemon.requests[-1].json()["replace"] is yes
    assert 'the file says "demo"' in ran.out and ran.out.endswith("is written.\n")
    assert ran.out.count("is a configuration of") == (2 if yes else 1)


@pytest.mark.parametrize("option", ["--replace", "--dry-run", "--json"])
def test_nobody_is_asked_where_it_was_said_already(
    daemon: Daemon, run: Run, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
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
def test_a_person_is_shown_and_asked_what_is_not_his_own(
    daemon: Daemon, run: Run, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, yes: bool
) -> None:
    answered(monkeypatch, asked, yes=yes)
    daemon.route("POST", "/api/config/import", lambda _request: Reply(FOREIGN))
    (tmp_path / "old.yaml").write_text("")
    ran = run("import", str(tmp_path / "old.yaml"))
    assert asked == ["/r/old.yaml is not your own. Let /r/agent-orchestrator.yaml run and open that?"]
    assert "  projects.app.postCreate: touch X\n" in ran.out
    assert [one.json().get("digest") for one in daemon.requests] == ([None, "d1"] if yes else [None])
    assert ran.code == (0 if yes else 1) and ("nothing was written" in ran.err) is not yes


@pytest.mark.parametrize(("options", "sent"), [(["--json"], None), (["--json", "--yes"], "d1"), (["-y"], "d1")])
def test_without_a_person_to_ask_his_word_is_yes(
    daemon: Daemon,
    run: Run,
    asked: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    sent: str | None,
) -> None:
    monkeypatch.setattr(click, "confirm", lambda question: asked.append(question))
    daemon.route("POST", "/api/config/import", lambda _request: Reply(FOREIGN))
    (tmp_path / "old.yaml").write_text("")
    run("import", *options, str(tmp_path / "old.yaml"))
    assert daemon.requests[-1].json().get("digest") == sent and not asked
