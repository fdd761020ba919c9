"""A real daemon for each test, on each runtime that this machine has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import RUNTIMES, Sandbox, have_tmux


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    """Return each runtime; skip tmux if it is not installed."""
    if request.param == "tmux" and not have_tmux():
        pytest.skip("tmux is not installed")
    return str(request.param)


@pytest.fixture
def box(tmp_path: Path, runtime: str) -> Iterator[Sandbox]:
    """Yield a home, a repository with the demo agent and a running daemon, on each runtime."""
    with Sandbox(tmp_path, runtime) as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


@pytest.fixture
def process_box(tmp_path: Path) -> Iterator[Sandbox]:
    """Yield the same on runtime process only, for tests that do not depend on terminals."""
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield one daemon for a whole module, for independent tests: each uses its own repositories and names."""
    with Sandbox(tmp_path_factory.mktemp("shared"), "process") as sandbox:
        sandbox.repository()
        sandbox.start()
        yield sandbox
