"""Chooses the terminal if none is configured: the one that the person uses, else an installed one, else the browser."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_orchestrator.errors import Missing

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

_CURRENT_TERMINAL = (
    ("TMUX", "", "tmux"),
    ("KITTY_WINDOW_ID", "", "kitty"),
    ("WEZTERM_PANE", "", "wezterm"),
    ("TERM_PROGRAM", "iTerm.app", "iterm2"),
    ("LC_TERMINAL", "iTerm2", "iterm2"),
    ("WT_SESSION", "", "windows-terminal"),
    ("GNOME_TERMINAL_SCREEN", "", "gnome-terminal"),
)
"""The variable that a terminal sets for the programs in it, its value ("": any), and the plugin."""

_TERMINALS_WITH_PLUGIN = ("kitty", "wezterm", "gnome-terminal")
_TERMINALS_WITHOUT_PLUGIN: Mapping[str, tuple[str, ...]] = {
    "konsole": ("--new-tab", "--workdir", "{{cwd}}", "-e", "{{command}}"),
    "alacritty": ("--title", "{{session}}", "--working-directory", "{{cwd}}", "-e", "{{command}}"),
    "foot": ("--title", "{{session}}", "--working-directory", "{{cwd}}", "{{command}}"),
    "xfce4-terminal": ("--title", "{{session}}", "--working-directory", "{{cwd}}", "-x", "{{command}}"),
    "x-terminal-emulator": ("-e", "{{command}}"),
    "xterm": ("-T", "{{session}}", "-e", "{{command}}"),
}
"""Programs that the `command` plugin can start, with their arguments."""

TerminalChoice = tuple[str, Mapping[str, Any]]
"""A plugin's name, and its configuration."""


def choose_terminal(host: Host, environ: Mapping[str, str], platform: str = sys.platform) -> TerminalChoice:
    """Return the terminal to use. Raises `Missing` if the person would not see a window that is opened here."""
    for variable, value, name in _CURRENT_TERMINAL:
        actual = environ.get(variable, "")
        if actual == value if value else actual:
            return name, {}
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        raise Missing(
            "a window that is opened here is not on your screen: you came by SSH",
            "use ao attach, or run this inside tmux",
        )
    if platform == "darwin":
        return ("iterm2", {}) if _has_iterm(environ) else ("web", {})
    if host.which("wt.exe"):
        return "windows-terminal", {}
    if platform == "win32":
        return "web", {}
    if not environ.get("DISPLAY") and not environ.get("WAYLAND_DISPLAY"):
        raise Missing("there is no screen here to open a window on", "use ao attach, or run this inside tmux")
    for name in _TERMINALS_WITH_PLUGIN:
        if host.which(name):
            return name, {}
    for name, arguments in _TERMINALS_WITHOUT_PLUGIN.items():
        if host.which(name):
            return "command", {"command": [name, *arguments]}
    return "web", {}


def _has_iterm(environ: Mapping[str, str]) -> bool:
    """Return whether iTerm2 is installed."""
    from pathlib import Path

    folders = (Path("/Applications"), Path(environ.get("HOME", "/")) / "Applications")
    return any((folder / "iTerm.app").is_dir() for folder in folders)
