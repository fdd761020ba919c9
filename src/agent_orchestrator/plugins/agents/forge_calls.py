"""How often an agent's shell command asks a forge by the forge's own command line: that spends the budget which we share with it."""

from __future__ import annotations

import re

_PARTS = re.compile(r"&&|\|\||[;|&\n(`]")
_SET = re.compile(r"[A-Za-z_]\w*=\S*\s+|(?:sudo|env|exec|time|command|if|then|do|while|!|\{)\s+")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"")
_ASKS = re.compile(r"(?:\S*/)?(?:gh|glab)\s+(?!(?:version|help|config|alias|completion|extension)\b)(?!-)\S")


def forge_calls(command: str) -> int:
    """The calls of `gh` and `glab` in a shell command that reach their host; those in quotes are words."""
    bare = _QUOTED.sub(lambda found: "_" if "$(" not in found[0] else found[0].strip("\"'"), command)
    return sum(bool(_ASKS.match(_unset(part.strip()))) for part in _PARTS.split(bare))


def _unset(part: str) -> str:
    """A command without the variables and words before it."""
    while found := _SET.match(part):
        part = part[found.end() :]
    return part
