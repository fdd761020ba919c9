"""Counts how often an agent's shell command calls a forge through the forge's CLI, which uses the rate limit that we share with it."""

from __future__ import annotations

import re

_SEPARATOR = re.compile(r"&&|\|\||[;|&\n(`]")
_PREFIX = re.compile(r"[A-Za-z_]\w*=\S*\s+|(?:sudo|env|exec|time|command|if|then|do|while|!|\{)\s+")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\(?:.|\Z)|[^\"\\])*(?:\"|(?P<open>\Z))", re.DOTALL)
_FORGE_CALL = re.compile(r"(?:\S*/)?(?:gh|glab)\s+(?!(?:version|help|config|alias|completion|extension)\b)(?!-)\S")


def forge_calls(command: str) -> int:
    """Return the number of calls of `gh` and `glab` in a shell command that reach their host; text in quotes is not counted."""
    bare = _QUOTED.sub(_replace_quoted, command)
    return sum(_is_forge_call(part.strip()) for part in _SEPARATOR.split(bare))


def _replace_quoted(quoted: re.Match[str]) -> str:
    """Return the replacement for quoted text: `_`, or the text itself if it contains `$(` or the quote is never closed."""
    if quoted["open"] is not None:
        return quoted[0]
    return "_" if "$(" not in quoted[0] else quoted[0].strip("\"'")


def _is_forge_call(part: str) -> bool:
    """Return whether a command calls a forge, after the variables and words before it."""
    position = 0
    while prefix := _PREFIX.match(part, position):
        position = prefix.end()
    return _FORGE_CALL.match(part, position) is not None
