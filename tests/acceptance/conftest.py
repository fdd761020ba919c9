"""A real daemon for each test, on each runtime that this machine has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import RUNTIMES, Sandbox, have_tmux


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    """Each runtime; tmux is skipped by name where it is not installed."""
    if request.param == "tmux" and not have_tmux():
        pytest.skip("tmux is not installed")
    return str(request.param)


@pytest.fixture
def box(tmp_path: Path, runtime: str) -> Iterator[Sandbox]:
    """A home, a repository with the demo agent, and its daemon, on each runtime."""
    with Sandbox(tmp_path, runtime) as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Sandbox]:
    """The same on runtime process alone, for what has nothing to do with terminals."""
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One daemon for a whole module, for tests that leave each other alone: each makes repositories and names of its own."""
    with Sandbox(tmp_path_factory.mktemp("shared"), "process") as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox
