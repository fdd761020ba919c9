"""Control sequences in external text are neutralized in the output of every command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon


@pytest.mark.parametrize("how", [(), ("--json",)])
@pytest.mark.parametrize("shape", [str, lambda text: {"x": text}])
def test_control_sequences_of_a_configuration_are_neutralized(
    daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch, how: tuple[str], shape: Callable[[str], object]
) -> None:
    hostile = "a\x1b]0;owned\x07\x9b31m\u202eb"
    daemon.route("GET", "/api/config/value.*", {"key": "k", "value": shape(hostile), "file": "f"})
    assert hostile in run("config", "get", "k").out or how or shape is not str, "a program gets it as it is"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    output = run("config", "get", "k", *how).out
    assert "owned" in output and all(letter.isprintable() or letter == "\n" for letter in output)
    if how:
        assert json.loads(output)["value"] == shape(hostile)


HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202eb"


@pytest.mark.parametrize(
    ("argv", "route", "answer"),
    [
        (["status", "s", "--prompt"], "/api/sessions/s/prompt", {"system": HOSTILE, "prompt": HOSTILE}),
        (["events", "--json"], "/api/events.*", {"events": [{"seq": 1, "type": "x", "data": {"rules": HOSTILE}}]}),
        (["audit", "--json"], "/api/audit.*", {"entries": [{"seq": 1, "time": "", "data": {"rules": HOSTILE}}]}),
        (["prune"], "/api/prune", {"removed": [{"what": HOSTILE}], "kept": [{"what": HOSTILE}]}),
        (["doctor"], "/api/doctor.*", {"checks": [{"name": HOSTILE, "state": "failed", "remedy": HOSTILE}]}),
        (["projects"], "/api/projects", {"projects": [{"id": "p", "defaultBranch": HOSTILE, "path": HOSTILE}]}),
        (["init"], "/api/projects", {"id": "p", "defaultBranch": HOSTILE, "path": HOSTILE, "created": HOSTILE}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_control_sequences_of_responses_are_neutralized(
    daemon: ScriptedDaemon,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    argv: list[str],
    route: str,
    answer: dict[str, Any],
) -> None:
    method = "POST" if argv[0] in ("prune", "init") else "GET"
    daemon.route(method, route, answer)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    output = run(*argv).out
    assert "owned" in output and all(letter.isprintable() or letter == "\n" for letter in output), repr(output)


def test_ao_api_neutralizes_only_for_a_terminal(
    daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [b'{"title": "owned \xc2', b"\x9b31m \xe2\x80", b'\xae \x1b]0;x"}']
    daemon.route("GET", "/api/sessions/s", DaemonReply(chunks=pieces))
    assert run("api", "GET", "sessions/s").out == b"".join(pieces).decode() + "\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run("api", "GET", "sessions/s").out == '{"title": "owned \\u009b31m \\u202e \\u001b]0;x"}\n'


def test_a_name_in_a_command_to_copy_is_quoted(daemon: ScriptedDaemon, run: Run) -> None:
    """The names of a forge's checks are external text."""
    name = "lint; $(touch owned) `touch owned` 'x'"
    numbers = dict.fromkeys(("passed", "failed", "skipped", "reason", "remedy", "command")) | {"new": 0, "known": 0}
    lists: dict[str, list[str]] = {
        key: [] for key in ("newFailures", "knownFailures", "ownedFailures", "vanished", "newlySkipped")
    }
    check = {"name": name, "state": "failure", "summary": "", **numbers, **lists}
    review = {"session": "s", "number": 1, "base": "main", "checks": [check], "failing": [check]}
    daemon.route("GET", "/api/sessions/s/review", review)
    copied = run("checks", "s").out.splitlines()[-1]
    assert shlex.split(copied) == ["ao", "checks", "s", "--log", name]


def test_control_sequences_of_a_replayed_log_are_neutralized(daemon: ScriptedDaemon, run: Run, tmp_path: Path) -> None:
    daemon.route("POST", "/api/events/replay", {"steps": [{"seq": 1, "type": HOSTILE, "session": HOSTILE}]})
    recorded = tmp_path / "log"
    recorded.write_text(json.dumps({"type": HOSTILE, "session": HOSTILE}))
    output = run("events", "--replay", str(recorded)).out
    assert "owned" in output and all(letter.isprintable() or letter == "\n" for letter in output), repr(output)
