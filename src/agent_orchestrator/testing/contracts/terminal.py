"""What every Terminal plugin must do. Yours too:

    from agent_orchestrator.testing.contracts.terminal import TerminalContract
    from agent_orchestrator.testing.programs import Programs

    class TestMyTerminal(TerminalContract):
        @pytest.fixture
        def programs(self, tmp_path: Path) -> Programs:
            return Programs(tmp_path, "my-terminal")

        @pytest.fixture
        def terminal(self, programs: Programs) -> Terminal:
            return MyTerminal({}, programs.host)

`programs` are stand-ins for what the plugin starts, so that no window is opened. A plugin that hands the command over in another form
than as words of its own says by `shown` how it is read. `bare` may give the plugin where its program is not installed.
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
    """Subclass it and give the fixtures `programs` and `terminal`."""

    pytestmark = pytest.mark.anyio
    by_page = False
    """It shows the session's page, not its command."""

    @pytest.fixture
    def programs(self) -> Programs:
        """Stand-ins for what it starts."""
        raise NotImplementedError("give a fixture named `programs`")

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        """The plugin under test, made with `programs.host`."""
        raise NotImplementedError("give a fixture named `terminal`")

    @pytest.fixture
    def bare(self) -> Terminal | None:
        """The plugin where its program is not installed; none: it needs none."""
        return None

    @pytest.fixture
    def window(self, tmp_path: Path) -> Window:
        """What is to be shown."""
        folder = tmp_path / "a workspace's folder"
        folder.mkdir()
        command = ("ao", "attach", "app-fix-login")
        return Window("app-fix-login", command, folder, "http://127.0.0.1:3000/sessions/app-fix-login")

    def shown(self, argv: Sequence[str]) -> Sequence[str]:
        """The words among which the command is to be found."""
        return argv

    def _shows(self, argv: Sequence[str], window: Window) -> bool:
        if self.by_page:
            return window.url in argv
        words, wanted = list(self.shown(argv)), list(window.command)
        return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))

    async def test_it_shows_the_session(self, terminal: Terminal, programs: Programs, window: Window) -> None:
        await terminal.open(window)
        assert any(self._shows(argv, window) for argv in programs.started())

    @pytest.mark.parametrize("word", HOSTILE)
    async def test_words_stay_what_they_are(
        self, terminal: Terminal, programs: Programs, window: Window, word: str
    ) -> None:
        asked = replace(window, command=("env", f"AO_HOME={word}", word, "ao", "attach", "app-fix-login"))
        await terminal.open(asked)
        assert any(self._shows(argv, asked) for argv in programs.started())
        assert not (Path.cwd() / "pwned").exists() and not (window.cwd / "pwned").exists()

    async def test_each_session_gets_its_own(self, terminal: Terminal, programs: Programs, window: Window) -> None:
        others = [
            replace(
                window, session=f"app-{number}", command=("ao", "attach", f"app-{number}"), url=f"{window.url}-{number}"
            )
            for number in range(3)
        ]
        for one in others:
            await terminal.open(one)
        started = programs.started(3)
        assert all(any(self._shows(argv, one) for argv in started) for one in others)

    async def test_without_its_program_it_says_what_to_do(self, bare: Terminal | None, window: Window) -> None:
        if bare is None:
            pytest.skip("it needs no program")
        with pytest.raises(AoError) as raised:
            await bare.open(window)
        assert raised.value.remedy and "\n" not in str(raised.value)
