"""What every test gets: asyncio as the only event loop, and a home, a Git identity and a tmux of its own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

from agent_orchestrator.testing import preloaded, sandbox

settings.register_profile("same every time", derandomize=True, database=None, deadline=None)
settings.load_profile("same every time")

sandbox.launch = preloaded.launch

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell: programs started by tests would ignore Ctrl-C too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
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
    for name in ("AO_CONFIG", "AO_SESSION", "AO_SHELL", "TMUX", "TMUX_PANE", "EDITOR", "VISUAL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home
