"""Fixtures: a scripted daemon in the test's own home, and a function that runs a command line against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from agent_orchestrator.cli import main
from tests.unit.cli.scripted import ScriptedDaemon, daemon_at


class AoResult(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., AoResult]


@pytest.fixture
def home(own_world: Path) -> Path:
    return own_world / "ao"


@pytest.fixture
def daemon(home: Path) -> Iterator[ScriptedDaemon]:
    with daemon_at(home) as daemon:
        yield daemon


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*argv: str | Sequence[str]) -> AoResult:
        code = main([str(each) for each in argv])
        captured = capsys.readouterr()
        return AoResult(code, captured.out, captured.err)

    return run
