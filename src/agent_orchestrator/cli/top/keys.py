"""The keys of the board and of its dialogs."""

from __future__ import annotations

from agent_orchestrator.cli.top.widgets import Keys

KEY_HELP = (
    ("↑ ↓ j k", "the session above, below"),
    ("← → h l", "the column before, behind"),
    ("Enter", "attach to its real terminal"),
    ("s", "send a message to its agent"),
    ("a", "answer what it asks: allow, always, deny, or text"),
    ("d", "its diff, checks and reviews"),
    ("A", "approve its change"),
    ("c", "request changes"),
    ("m", "merge: let its change land"),
    ("x", "stop it; everything unsaved is saved first"),
    ("r", "restore it"),
    ("o", "open it in a window of its own"),
    ("e", "open its workspace in your editor"),
    ("/", "filter by words, status:X, project:X, agent:X, column:X"),
    ("p", "show or hide the terminal below"),
    ("?", "these keys"),
    ("q", "quit; sessions run on"),
)
ATTACH_HINT = "Enter attach"
KEY_HINTS = (
    *("? keys", "q quit", "/ filter", ATTACH_HINT, "s send", "a answer", "d diff", "m merge", "x stop"),
    *("A approve", "c request changes", "r restore", "o open"),
)
"""Hints for the last line, as many as fit."""


def key_hints(runtime: str | None) -> list[str]:
    """Return the hints for a session on this runtime: tmux shows its detach key, for others it is added."""
    leaving = "" if runtime in (None, "tmux") else " (Ctrl-] leaves it)"
    return [f"{hint}{leaving}" if hint == ATTACH_HINT else hint for hint in KEY_HINTS]


CHANGE_KEYS: Keys = {
    "A": ("approve", "approve"),
    "c": ("request changes", "changes"),
    "m": ("merge", "merge"),
    "s": ("send", "send"),
    "q": ("back", ""),
}
DECISIONS: dict[str, Keys] = {  # none of them is the key that asked for it, pressed twice
    "permission": {
        "y": ("allow", "allow"),
        "A": ("allow always", "always"),
        "n": ("deny", "deny"),
        "t": ("text", "text"),
    },
    "message": {"y": ("let it reach the agent", "allow"), "n": ("refuse it", "deny")},
    "offer": {"y": ("have it done", "allow"), "n": ("leave it", "deny")},
}
BOARD_KEYS = (
    ("up,k", "move(0,-1)"),
    ("down,j", "move(0,1)"),
    ("left,h", "move(-1,0)"),
    ("right,l", "move(1,0)"),
    ("tab", "move(1,0)"),
    ("shift+tab", "move(-1,0)"),
    ("pageup", "move(0,-10)"),
    ("pagedown", "move(0,10)"),
    ("home,g", "move(0,-100000)"),
    ("end,G", "move(0,100000)"),
    ("enter", "attach"),
    ("s", "send"),
    ("a", "answer"),
    ("d", "diff"),
    ("A", "approve"),
    ("c", "changes"),
    ("m", "merge"),
    ("x", "stop"),
    ("r", "restore"),
    ("o", "open"),
    ("e", "edit"),
    ("p", "preview"),
    ("slash", "filter"),
    ("escape", "unfilter"),
    ("question_mark", "keys"),
    ("q", "quit"),
)
"""The action of a key ends before the next key is handled, so that keys typed quickly reach the dialog that it opens."""
BOARD_ACTIONS = frozenset(action.partition("(")[0] for _, action in BOARD_KEYS)
YES_NO_KEYS: Keys = {"y": ("yes", "yes"), "n": ("no", "")}
