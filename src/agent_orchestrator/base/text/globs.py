"""Glob patterns of paths, as people write them: `*` within a folder, `**` across, a bare name anywhere, a folder with all in it. Pure.

Whoever writes a pattern may mean harm: matching takes time by the length of the pattern times that of the path, and never more. A `*` takes
up to the first place where what follows it fits and does not come back for another; that loses nothing, as the next `*` of the same
folder's name reaches whatever a later place would have, and `**` stands for whole folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

MOST_STARS = 20
"""Of one pattern; what stands behind the last of them does not count."""
DEEPEST = 50
"""Folders around a path that are looked at."""
_END = r"(?=/|\Z)"
_NOTHING = re.compile(r"(?!)")
_SLASHES = re.compile(r"/+")
_STARS = re.compile(r"\*+")
_TOKEN = re.compile(r"\*+|\?|\[[^/][^\]/]*\]|.", re.DOTALL)


def covers(pattern: str, path: str) -> bool:
    """Is a path one of those that a pattern means?"""
    return _compiled(pattern).match(path) is not None


def covered(patterns: Iterable[str], paths: Iterable[str]) -> frozenset[str]:
    """Those paths that any of the patterns means."""
    found: set[str] = set()
    left = set(paths)
    for one in [_compiled(pattern) for pattern in dict.fromkeys(patterns)]:
        now = {path for path in left if one.match(path)}
        found |= now
        left -= now
    return frozenset(found)


def is_glob(text: str) -> bool:
    """May it mean more than one path?"""
    return has_wildcard(text) or text.endswith("/")


def has_wildcard(text: str) -> bool:
    """Is there a sign in it that stands for others?"""
    return any(sign in text for sign in "*?[")


def folders(path: str) -> list[str]:
    """The folders around a path, the innermost last; of a deeper one the outer ones alone."""
    slashes = islice(_SLASHES.finditer(path.rstrip("/")), DEEPEST)
    return [path[: found.start()] for found in slashes if found.start()]


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    plain = pattern.strip().removeprefix("./").strip("/")
    if not plain:
        return _NOTHING
    starred = list(_STARS.finditer(plain))[:MOST_STARS]
    if len(starred) == MOST_STARS:
        plain = plain[: starred[-1].end()]
    return re.compile(_translated([] if "/" in plain else ["**"], plain.split("/")), re.DOTALL)


def _translated(before: list[str], names: list[str]) -> str:
    """The start of a path that fits; whatever is in a folder that fits does too."""
    groups: list[list[str]] = [[]]
    for name in (*before, *names):
        if name.startswith("**"):
            groups.append([])
            name = f"*{name.lstrip('*')}" if name.strip("*") else ""
        if name:
            groups[-1].append(name)
    found = "/".join(map(_name, groups[0]))
    for group in groups[1:]:
        slash = "/" if found and not found.endswith("/") else ""
        found += slash + (f"(?>(?:[^/]*+/)*?{'/'.join(map(_name, group))})" if group else "")
    return found


def _name(pattern: str) -> str:
    """The name of one file or folder."""
    parts = [""]
    for token in _TOKEN.findall(pattern):
        if token[0] == "*":
            parts.append("")
        else:
            parts[-1] += "[^/]" if token == "?" else _one_of(token) if len(token) > 1 else re.escape(token)
    if len(parts) == 1:
        return parts[0] + _END
    last = f"(?>[^/]*?{parts[-1]}{_END})" if parts[-1] else "[^/]*+"
    return parts[0] + "".join(f"(?>[^/]*?{part})" for part in parts[1:-1] if part) + last


def _one_of(token: str) -> str:
    """`[ab]` or `[!ab]`; what is no such set means itself."""
    inside = token[1:-1]
    but = "^" if inside[0] in "!^" and len(inside) > 1 else ""
    signs = "".join(sign if sign == "-" else re.escape(sign) for sign in inside[len(but) :])
    try:
        if "--" in signs:
            return re.escape(token)
        re.compile(f"[{but}{signs}]")
    except re.error:  # such as [z-a]
        return re.escape(token)
    return f"(?!/)[{but}{signs}]"
