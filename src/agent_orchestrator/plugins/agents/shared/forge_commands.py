"""How often an agent's shell command asks a forge by the forge's own command line: that spends the budget which we share with it."""

from __future__ import annotations

import re

_PARTS = re.compile(r"&&|\|\||[;|&\n(`]")
_SET = re.compile(r"[A-Za-z_]\w*=\S*\s+|(?:sudo|env|exec|time|command|if|then|do|while|!|\{)\s+")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\(?:.|\Z)|[^\"\\])*(?:\"|(?P<open>\Z))", re.DOTALL)
_ASKS = re.compile(r"(?:\S*/)?(?:gh|glab)\s+(?!(?:version|help|config|alias|completion|extension)\b)(?!-)\S")


def forge_calls(command: str) -> int:
    """The calls of `gh` and `glab` in a shell command that reach their host; those in quotes are words."""
    bare = _QUOTED.sub(_unquoted, command)
    return sum(_asks(part.strip()) for part in _PARTS.split(bare))


def _unquoted(found: re.Match[str]) -> str:
    """What is left of what stands in quotes; those that nothing closes are none."""
    if found["open"] is not None:
        return found[0]
    return "_" if "$(" not in found[0] else found[0].strip("\"'")


def _asks(part: str) -> bool:
    """Does a command ask a forge, after the variables and words before it?"""
    at = 0
    while found := _SET.match(part, at):
        at = found.end()
    return _ASKS.match(part, at) is not None
