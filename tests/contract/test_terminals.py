"""The built-in terminals against the contract of terminals, with stand-ins for their programs."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.projects.plugin_registry import BUILTIN_PLUGINS, PluginRegistry
from agent_orchestrator.errors import Missing, UsageError
from agent_orchestrator.plugins.terminals import iterm2
from agent_orchestrator.plugins.terminals.auto import choose_terminal
from agent_orchestrator.plugins.terminals.command import CommandTerminal
from agent_orchestrator.plugins.terminals.gnome_terminal import GnomeTerminal
from agent_orchestrator.plugins.terminals.iterm2 import ITerm2
from agent_orchestrator.plugins.terminals.kitty import Kitty
from agent_orchestrator.plugins.terminals.tmux import TmuxWindow
from agent_orchestrator.plugins.terminals.web import Web
from agent_orchestrator.plugins.terminals.wezterm import WezTerm
from agent_orchestrator.plugins.terminals.windows_terminal import WindowsTerminal
from agent_orchestrator.protocols import Terminal, Window
from agent_orchestrator.testing.contracts.terminal import TerminalContract
from agent_orchestrator.testing.programs import Programs
from agent_orchestrator.testing.sandbox import have_tmux

pytestmark = pytest.mark.anyio


@pytest.fixture
def empty(tmp_path: Path) -> Programs:
    return Programs(tmp_path / "empty")


class TestKitty(TerminalContract):
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Programs:
        return Programs(tmp_path, "kitty")

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        return Kitty({}, programs.host, {})

    @pytest.fixture
    def bare(self, empty: Programs) -> Terminal:
        return Kitty({}, empty.host, {})

    async def test_a_listening_kitty_gets_a_tab(self, programs: Programs, window: Window) -> None:
        await Kitty({}, programs.host, {"KITTY_LISTEN_ON": "unix:/tmp/kitty"}).open(window)
        expected = ["kitty", "@", "--to", "unix:/tmp/kitty", "launch", "--type=tab", "--title", "app-fix-login"]
        expected += ["--tab-title", "app-fix-login", "--cwd", str(window.cwd), *window.command]
        assert programs.started() == [expected]

    async def test_a_kitty_that_does_not_listen_is_started(
        self, terminal: Terminal, programs: Programs, window: Window
    ) -> None:
        await terminal.open(window)
        new = ["kitty", "--title", "app-fix-login", "--directory", str(window.cwd), *window.command]
        assert programs.started() == [new]


class TestWezTerm(TerminalContract):
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Programs:
        return Programs(tmp_path, "wezterm", then={"wezterm": "echo 42"})

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        return WezTerm({}, programs.host, {})

    @pytest.fixture
    def bare(self, empty: Programs) -> Terminal:
        return WezTerm({}, empty.host, {})

    async def test_inside_wezterm_a_tab_with_a_title_is_opened(self, programs: Programs, window: Window) -> None:
        await WezTerm({}, programs.host, {"WEZTERM_PANE": "3"}).open(window)
        spawn = ["wezterm", "cli", "spawn", "--cwd", str(window.cwd), "--", *window.command]
        named = ["wezterm", "cli", "set-tab-title", "--pane-id", "42", "app-fix-login"]
        assert programs.started(2) == [spawn, named]

    async def test_a_window_can_be_configured(self, programs: Programs, window: Window) -> None:
        await WezTerm({"as": "window"}, programs.host, {"WEZTERM_PANE": "3"}).open(window)
        assert programs.started(2)[0][:4] == ["wezterm", "cli", "spawn", "--new-window"]


class TestGnomeTerminal(TerminalContract):
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Programs:
        return Programs(tmp_path, "gnome-terminal")

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        return GnomeTerminal({}, programs.host)

    @pytest.fixture
    def bare(self, empty: Programs) -> Terminal:
        return GnomeTerminal({}, empty.host)

    async def test_a_tab(self, terminal: Terminal, programs: Programs, window: Window) -> None:
        await terminal.open(window)
        options = ["--tab", "--title=app-fix-login", f"--working-directory={window.cwd}"]
        assert programs.started() == [["gnome-terminal", *options, "--", *window.command]]

    async def test_the_error_of_gnome_terminal_is_reported(self, tmp_path: Path, window: Window) -> None:
        failing = Programs(
            tmp_path / "f", "gnome-terminal", then={"gnome-terminal": "echo Cannot open display >&2; exit 1"}
        )
        with pytest.raises(Missing, match="gnome-terminal failed: Cannot open display: run `ao attach app-fix-login`"):
            await GnomeTerminal({}, failing.host).open(window)


class TestTmux(TerminalContract):
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Programs:
        return Programs(tmp_path, "tmux")

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        return TmuxWindow({}, programs.host, {"TMUX": "/tmp/tmux-0/default,1,0"})

    @pytest.fixture
    def bare(self, programs: Programs) -> Terminal:
        return TmuxWindow({}, programs.host, {})

    async def test_a_window_has_its_name(self, terminal: Terminal, programs: Programs, window: Window) -> None:
        await terminal.open(window)
        named = ["tmux", "new-window", "-n", "app-fix-login", "-c", str(window.cwd)]
        assert programs.started() == [[*named, "--", *window.command]]

    @pytest.mark.skipif(not have_tmux(), reason="there is no tmux")
    @pytest.mark.parametrize("kind", ["window", "pane"])
    async def test_no_folder_is_a_command(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        """The folder of workspaces may be configured by the repository."""
        socket, output, cwd = (
            tmp_path / "tmux.sock",
            tmp_path / "there",
            tmp_path / f"w#(touch {tmp_path.name})#{{pid}}",
        )
        cwd.mkdir()
        tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        subprocess.run([*tmux, "new-session", "-d", "-c", str(tmp_path), "sleep 60"], check=True)
        try:
            monkeypatch.setenv("TMUX", f"{socket},1,0")
            opened = TmuxWindow({"as": kind}, LocalHost())
            await opened.open(Window("app-#(touch s)", ("sh", "-c", 'pwd > "$0"', str(output)), cwd))
            async with asyncio.timeout(60):
                while not output.exists() or not output.read_text():
                    await asyncio.sleep(0.01)
        finally:
            subprocess.run([*tmux, "kill-server"], check=True)
        assert output.read_text() == f"{cwd}\n"
        assert sorted(path.name for path in tmp_path.iterdir() if path != socket) == ["there", cwd.name]


class TestITerm2(TerminalContract):
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Programs:
        return Programs(tmp_path, "osascript")

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        return ITerm2({}, programs.host)

    @pytest.fixture
    def bare(self, empty: Programs) -> Terminal:
        return ITerm2({}, empty.host)

    def command_words(self, argv: Sequence[str]) -> Sequence[str]:
        return shlex.split(argv[argv.index("--") + 1])

    async def test_the_script_is_constant(self, terminal: Terminal, programs: Programs, window: Window) -> None:
        await terminal.open(window)
        (argv,) = programs.started()
        script = [word for line in iterm2.SCRIPT for word in ("-e", line)]
        assert argv == ["osascript", *script, "--", "ao attach app-fix-login", "app-fix-login", "tab"]


class TestWindowsTerminal(TerminalContract):
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Programs:
        return Programs(tmp_path, "wt.exe")

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        return WindowsTerminal({}, programs.host, {})

    @pytest.fixture
    def bare(self, empty: Programs) -> Terminal:
        return WindowsTerminal({}, empty.host, {})

    def command_words(self, argv: Sequence[str]) -> Sequence[str]:
        return [word.replace("\\;", ";") for word in argv]

    async def test_a_semicolon_begins_no_other_command(
        self, terminal: Terminal, programs: Programs, window: Window
    ) -> None:
        await terminal.open(Window("app-x", ("ao", "attach", "a;b"), window.cwd))
        expected = ["wt.exe", "-w", "0", "new-tab", "--title", "app-x", "-d", str(window.cwd)]
        assert programs.started() == [[*expected, "ao", "attach", "a\\;b"]]

    async def test_from_a_linux_within_windows(self, programs: Programs, window: Window) -> None:
        await WindowsTerminal({}, programs.host, {"WSL_DISTRO_NAME": "Debian"}).open(window)
        inner = ["wsl.exe", "-d", "Debian", "--cd", str(window.cwd), "--", *window.command]
        assert programs.started()[0][6:] == inner


class TestWeb(TerminalContract):
    by_page = True

    @pytest.fixture
    def programs(self, tmp_path: Path) -> Programs:
        return Programs(tmp_path, "xdg-open", "lynx")

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        return Web({}, programs.host, "linux", {})

    @pytest.fixture
    def bare(self, empty: Programs) -> Terminal:
        return Web({}, empty.host, "linux", {})

    async def test_the_configured_browser_is_used(self, programs: Programs, window: Window) -> None:
        await Web({}, programs.host, "linux", {"BROWSER": "lynx"}).open(window)
        assert programs.started() == [["lynx", window.url]]


class TestCommand(TerminalContract):
    @pytest.fixture
    def programs(self, tmp_path: Path) -> Programs:
        return Programs(tmp_path, "foot")

    @pytest.fixture
    def terminal(self, programs: Programs) -> Terminal:
        return CommandTerminal({"command": ["foot", "--title", "{{session}}", "{{command}}"]}, programs.host)

    @pytest.fixture
    def bare(self, empty: Programs) -> Terminal:
        return CommandTerminal({"command": "foot"}, empty.host)

    @pytest.mark.parametrize(
        ("command", "argv"),
        [
            ("foot", ["foot", "ao", "attach", "app-fix-login"]),
            ("foot -D {{cwd}} -- {{command}}", ["foot", "-D", "CWD", "--", "ao", "attach", "app-fix-login"]),
            (["foot", "sh", "-c", "exec {{command}}"], ["foot", "sh", "-c", "exec ao attach app-fix-login"]),
            (["foot", "{{url}}"], ["foot", "http://127.0.0.1:3000/sessions/app-fix-login"]),
        ],
    )
    async def test_placeholders_are_filled_in(
        self, programs: Programs, window: Window, command: str | list[str], argv: list[str]
    ) -> None:
        if isinstance(command, str):
            command = command.replace("{{cwd}}", "'{{cwd}}'")
        await CommandTerminal({"command": command}, programs.host).open(window)
        assert programs.started() == [[str(window.cwd) if word == "CWD" else word for word in argv]]

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({}, "needs a `command`"),
            ({"command": []}, "needs a `command`"),
            ({"command": [1]}, "needs a `command`"),
            ({"command": "foot 'x"}, "cannot be split"),
            ({"command": ["foot", "{{titel}}"]}, "titel"),
            ({"cmd": "foot"}, "knows no 'cmd'"),
        ],
    )
    async def test_an_invalid_command_is_refused(
        self, programs: Programs, config: dict[str, object], message: str
    ) -> None:
        with pytest.raises(UsageError, match=message):
            CommandTerminal(config, programs.host)

    @pytest.mark.parametrize("word", ["cd {{cwd}}; exec {{command}}", "cd '{{ cwd }}'", "--directory={{cwd}}"])
    async def test_no_folder_is_a_command(self, programs: Programs, tmp_path: Path, word: str) -> None:
        cwd = tmp_path / "w$(touch there)'"
        cwd.mkdir()
        window = Window("app-x", ("ao", "attach", "app-x"), cwd)
        with pytest.raises(UsageError, match=r"give '\{\{cwd\}\}' as a word of its own"):
            await CommandTerminal({"command": ["foot", "sh", "-c", word]}, programs.host).open(window)
        await CommandTerminal({"command": ["foot", "sh", "-c", 'cd "$1"', "sh", "{{ cwd }}"]}, programs.host).open(
            window
        )
        assert programs.started() == [["foot", "sh", "-c", 'cd "$1"', "sh", str(cwd), *window.command]]

    async def test_a_plain_folder_may_be_part_of_a_word(self, programs: Programs, window: Window) -> None:
        await CommandTerminal({"command": ["foot", "sh", "-c", "cd {{cwd}}; exec {{command}}"]}, programs.host).open(
            Window(window.session, window.command, Path("/"))
        )
        assert programs.started() == [["foot", "sh", "-c", "cd /; exec ao attach app-fix-login"]]

    async def test_a_window_that_stays_open_does_not_block(self, tmp_path: Path, window: Window) -> None:
        lasting = Programs(tmp_path / "l", "foot", then={"foot": f'echo $$ > "{tmp_path}/pid"; exec sleep 60'})
        await CommandTerminal({"command": "foot"}, lasting.host).open(window)
        assert lasting.started() == [["foot", *window.command]]
        import os
        import signal
        import time

        until = time.monotonic() + 60
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            assert time.monotonic() < until
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("environ", "programs", "platform", "chosen"),
    [
        ({"TMUX": "x", "KITTY_WINDOW_ID": "1"}, (), "linux", "tmux"),
        ({"TMUX": "x", "SSH_CONNECTION": "1"}, (), "linux", "tmux"),
        ({"KITTY_WINDOW_ID": "1"}, (), "linux", "kitty"),
        ({"WEZTERM_PANE": "0"}, (), "darwin", "wezterm"),
        ({"TERM_PROGRAM": "iTerm.app"}, (), "darwin", "iterm2"),
        ({"TERM_PROGRAM": "Apple_Terminal", "HOME": "/nowhere"}, (), "darwin", "web"),
        ({"WT_SESSION": "guid"}, (), "win32", "windows-terminal"),
        ({}, (), "win32", "web"),
        ({}, ("wt.exe",), "linux", "windows-terminal"),
        ({"GNOME_TERMINAL_SCREEN": "/x"}, (), "linux", "gnome-terminal"),
        ({"DISPLAY": ":0"}, ("xterm", "gnome-terminal"), "linux", "gnome-terminal"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, ("foot",), "linux", "command"),
        ({"DISPLAY": ":0"}, (), "linux", "web"),
    ],
)
def test_the_current_terminal_is_detected(
    tmp_path: Path, environ: dict[str, str], programs: tuple[str, ...], platform: str, chosen: str
) -> None:
    assert choose_terminal(Programs(tmp_path, *programs).host, environ, platform)[0] == chosen


@pytest.mark.parametrize("environ", [{}, {"DISPLAY": ":0", "SSH_CONNECTION": "10.0.0.1 1 10.0.0.2 22"}])
def test_no_window_is_opened_that_could_not_be_seen(tmp_path: Path, environ: dict[str, str]) -> None:
    with pytest.raises(Missing, match="ao attach"):
        choose_terminal(Programs(tmp_path, "kitty").host, environ, "linux")


@pytest.mark.parametrize("name", ["konsole", "alacritty", "foot", "xfce4-terminal", "x-terminal-emulator", "xterm"])
async def test_other_terminals_are_started_by_their_command(tmp_path: Path, name: str) -> None:
    programs = Programs(tmp_path, name)
    chosen, options = choose_terminal(programs.host, {"DISPLAY": ":0"}, "linux")
    await (
        PluginRegistry()
        .create("terminal", chosen, options, programs.host)
        .open(Window("s", ("ao", "attach", "s"), tmp_path))
    )
    (argv,) = programs.started()
    assert argv[0] == name and argv[-3:] == ["ao", "attach", "s"]


@pytest.mark.parametrize("name", [name for name in BUILTIN_PLUGINS["terminal"] if name != "command"])
def test_an_unknown_option_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="knows no 'profil'"):
        PluginRegistry().create("terminal", name, {"profil": "x"}, Programs(tmp_path).host)
