"""The suite that every Terminal plugin must pass. To run it on yours:

    from agent_orchestrator.testing.contracts.terminal import TerminalContract
    from agent_orchestrator.testing.programs import Programs

    class TestMyTerminal(TerminalContract):
        @pytest.fixture
        def programs(self, tmp_path: Path) -> Programs:
            return Programs(tmp_path, "my-terminal")

        @pytest.fixture
        def terminal(self, programs: Programs) -> Terminal:
            return MyTerminal({}, programs.host)

`programs` are stand-ins for the programs that the plugin starts, so that no window is opened. A plugin that does not pass the command
as separate arguments overrides `command_words`. `bare` may return the plugin with its program not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Terminal, Window
from agent_orchestrator.testing.programs import Programs

HOSTILE = (
    "two words",
    "it's",
    'a "quoted" one',
    "semi;colon",
    "$(touch pwned)",
    "`touch pwned`",
    "back\\slash",
    "{{7*7}}",
    "%s #{pane_id}",
    "-e",
    "Übel 日本語",
)


class TerminalContract:
    """Subclass it and define the fixtures `programs` and `terminal`."""

    pytestmark = pytest.mark.anyio
    by_page = False
    """Whether the plugin opens the session's page instead of running its command."""

    @pytest.fixture
    def programs(self) -> Programs:
        """Stand-ins for the programs that the plugin starts."""
        raise NotImplementedError("give a fixture named `programs`")

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        """The plugin under test, created with `programs.host`."""
        raise NotImplementedError("give a fixture named `terminal`")

    @pytest.fixture
    def bare(self) -> Terminal | None:
        """The plugin with its program not installed, or None if it needs none."""
        return None

    @pytest.fixture
    def window(self, tmp_path: Path) -> Window:
        """The window to open."""
        folder = tmp_path / "a workspace's folder"
        folder.mkdir()
        command = ("ao", "attach", "app-fix-login")
        return Window("app-fix-login", command, folder, "http://127.0.0.1:3000/sessions/app-fix-login")

    def command_words(self, argv: Sequence[str]) -> Sequence[str]:
        """Return the words of a started program that contain the command."""
        return argv

    def _opens_window(self, argv: Sequence[str], window: Window) -> bool:
        if self.by_page:
            return window.url in argv
        argv_words, command = list(self.command_words(argv)), list(window.command)
        return any(argv_words[at : at + len(command)] == command for at in range(len(argv_words)))

    async def test_it_opens_the_session(self, terminal: Terminal, programs: Programs, window: Window) -> None:
        await terminal.open(window)
        assert any(self._opens_window(argv, window) for argv in programs.started())

    @pytest.mark.parametrize("word", HOSTILE)
    async def test_hostile_words_arrive_unchanged(
        self, terminal: Terminal, programs: Programs, window: Window, word: str
    ) -> None:
        hostile_window = replace(window, command=("env", f"AO_HOME={word}", word, "ao", "attach", "app-fix-login"))
        await terminal.open(hostile_window)
        assert any(self._opens_window(argv, hostile_window) for argv in programs.started())
        assert not (Path.cwd() / "pwned").exists() and not (window.cwd / "pwned").exists()

    async def test_each_session_gets_its_own_window(
        self, terminal: Terminal, programs: Programs, window: Window
    ) -> None:
        windows = [
            replace(
                window, session=f"app-{number}", command=("ao", "attach", f"app-{number}"), url=f"{window.url}-{number}"
            )
            for number in range(3)
        ]
        for other in windows:
            await terminal.open(other)
        started = programs.started(3)
        assert all(any(self._opens_window(argv, other) for argv in started) for other in windows)

    async def test_a_missing_program_is_an_error_with_a_remedy(self, bare: Terminal | None, window: Window) -> None:
        if bare is None:
            pytest.skip("it needs no program")
        with pytest.raises(AoError) as raised:
            await bare.open(window)
        assert raised.value.remedy and "\n" not in str(raised.value)
