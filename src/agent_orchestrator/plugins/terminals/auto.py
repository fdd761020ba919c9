"""Which terminal to take when none was named: the one that the person sits at, else one that is installed, else the browser."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agent_orchestrator.errors import Missing

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

_SITS_AT = (
    ("TMUX", "", "tmux"),
    ("KITTY_WINDOW_ID", "", "kitty"),
    ("WEZTERM_PANE", "", "wezterm"),
    ("TERM_PROGRAM", "iTerm.app", "iterm2"),
    ("LC_TERMINAL", "iTerm2", "iterm2"),
    ("WT_SESSION", "", "windows-terminal"),
    ("GNOME_TERMINAL_SCREEN", "", "gnome-terminal"),
)
"""What a terminal says of itself to what runs in it; no value: any."""

_OF_OUR_OWN = ("kitty", "wezterm", "gnome-terminal")
_OTHERS: Mapping[str, tuple[str, ...]] = {
    "konsole": ("--new-tab", "--workdir", "{{cwd}}", "-e", "{{command}}"),
    "alacritty": ("--title", "{{session}}", "--working-directory", "{{cwd}}", "-e", "{{command}}"),
    "foot": ("--title", "{{session}}", "--working-directory", "{{cwd}}", "{{command}}"),
    "xfce4-terminal": ("--title", "{{session}}", "--working-directory", "{{cwd}}", "-x", "{{command}}"),
    "x-terminal-emulator": ("-e", "{{command}}"),
    "xterm": ("-T", "{{session}}", "-e", "{{command}}"),
}
"""Programs that the `command` plugin can be told of."""

Chosen = tuple[str, Mapping[str, Any]]
"""A plugin's name, and its configuration."""


def pick(host: Host, environ: Mapping[str, str], platform: str = sys.platform) -> Chosen:
    """`Missing` where nothing that is opened here would be seen by the person."""
    for variable, value, name in _SITS_AT:
        given = environ.get(variable, "")
        if given == value if value else given:
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
    for name in _OF_OUR_OWN:
        if host.which(name):
            return name, {}
    for name, arguments in _OTHERS.items():
        if host.which(name):
            return "command", {"command": [name, *arguments]}
    return "web", {}


def _has_iterm(environ: Mapping[str, str]) -> bool:
    from pathlib import Path

    places = (Path("/Applications"), Path(environ.get("HOME", "/")) / "Applications")
    return any((place / "iTerm.app").is_dir() for place in places)
