"""Fixtures for the tests of a plugin. Add to its `conftest.py`:

pytest_plugins = ["agent_orchestrator.testing.fixtures"]
"""

from __future__ import annotations

from pathlib import Path

import pytest

_REMOVED_VARIABLES = ("AO_CONFIG", "AO_SESSION", "AO_SHELL", "TMUX", "TMUX_PANE", "EDITOR", "VISUAL", "XDG_CONFIG_HOME")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio, the only backend that the daemon supports."""
    return "asyncio"


@pytest.fixture(autouse=True)
def own_world(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the user's home, configuration and terminals out of every test."""
    home = tmp_path_factory.mktemp("home")
    (home / ".gitconfig").write_text(
        "[user]\nname = Test\nemail = test@example.invalid\n[init]\ndefaultBranch = main\n"
    )
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AO_HOME", str(home / "ao"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in _REMOVED_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return home
