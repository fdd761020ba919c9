"""Glob patterns of paths, as people write them: `*` within a folder, `**` across, a bare name anywhere, a folder with all in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def covers(pattern: str, path: str) -> bool:
    """Is a path one of those that a pattern means?"""
    return _compiled(pattern).fullmatch(path) is not None


def covered(patterns: Iterable[str], paths: Iterable[str]) -> frozenset[str]:
    """Those paths that any of the patterns means."""
    compiled = [_compiled(pattern) for pattern in patterns]
    return frozenset(path for path in paths if any(one.fullmatch(path) for one in compiled))


def is_glob(text: str) -> bool:
    """May it mean more than one path?"""
    return any(sign in text for sign in "*?[") or text.endswith("/")


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    plain = pattern.strip().removeprefix("./").removeprefix("/")
    anywhere = "" if "/" in plain.rstrip("/") else "(?:.*/)?"
    return re.compile(f"{anywhere}{_translated(plain.rstrip('/'))}(?:/.*)?", re.DOTALL)


def _translated(pattern: str) -> str:
    found, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            found, at = f"{found}(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            found, at = f"{found}.*", at + 2
        elif pattern[at] == "*":
            found, at = f"{found}[^/]*", at + 1
        elif pattern[at] == "?":
            found, at = f"{found}[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            found, at = f"{found}[{'^' + inside[1:] if inside[0] in '!^' else inside}]", end + 1
        else:
            found, at = found + re.escape(pattern[at]), at + 1
    return found
