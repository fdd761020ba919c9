"""Glob patterns of paths: `*` within a folder, `**` across folders, a bare name at any depth, a folder with all its
contents. Pure.

A pattern may be malicious: matching takes at most time proportional to the length of the pattern times that of the
path. A `*` matches up to the first place where the text after it fits and never backtracks to a later one. No match
is lost by that, as the next `*` in the same file or folder name reaches whatever a later place would have reached,
and `**` stands for whole folders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

MAX_WILDCARDS = 20
"""Maximum number of wildcards `*` in a pattern; what follows the last of them is ignored."""
MAX_PARENT_FOLDERS = 50
"""Maximum number of folders around a path that are considered."""
_NAME_END = r"(?=/|\Z)"
_MATCHES_NOTHING = re.compile(r"(?!)")
_SLASHES = re.compile(r"/+")
_STARS = re.compile(r"\*+")
_TOKEN = re.compile(r"\*+|\?|\[[^/][^\]/]*\]|.", re.DOTALL)


def matches(pattern: str, path: str) -> bool:
    """Return whether a path matches a pattern."""
    return _compile(pattern).match(path) is not None


def matching_paths(patterns: Iterable[str], paths: Iterable[str]) -> frozenset[str]:
    """Return those paths that match any of the patterns."""
    matches: set[str] = set()
    unmatched = set(paths)
    for regex in [_compile(pattern) for pattern in dict.fromkeys(patterns)]:
        new_matches = {path for path in unmatched if regex.match(path)}
        matches |= new_matches
        unmatched -= new_matches
    return frozenset(matches)


def is_glob(text: str) -> bool:
    """Return whether a pattern may match more than one path."""
    return has_wildcard(text) or text.endswith("/")


def has_wildcard(text: str) -> bool:
    """Return whether a text contains a wildcard character."""
    return any(character in text for character in "*?[")


def parent_folders(path: str) -> list[str]:
    """Return the folders around a path, the innermost last; of a very deep path only the outer ones."""
    slashes = islice(_SLASHES.finditer(path.rstrip("/")), MAX_PARENT_FOLDERS)
    return [path[: slash.start()] for slash in slashes if slash.start()]


@lru_cache(maxsize=1024)
def _compile(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob pattern; what follows its `MAX_WILDCARDS`th wildcard is ignored."""
    normalized = pattern.strip().removeprefix("./").strip("/")
    if not normalized:
        return _MATCHES_NOTHING
    stars = list(_STARS.finditer(normalized))[:MAX_WILDCARDS]
    if len(stars) == MAX_WILDCARDS:
        normalized = normalized[: stars[-1].end()]
    return re.compile(_to_regex([] if "/" in normalized else ["**"], normalized.split("/")), re.DOTALL)


def _to_regex(prefix: list[str], names: list[str]) -> str:
    """Return a regular expression that matches the beginning of a path; everything in a matching folder matches too."""
    groups: list[list[str]] = [[]]
    for name in (*prefix, *names):
        if name.startswith("**"):
            groups.append([])
            name = f"*{name.lstrip('*')}" if name.strip("*") else ""
        if name:
            groups[-1].append(name)
    regex = "/".join(map(_name_regex, groups[0]))
    for group in groups[1:]:
        slash = "/" if regex and not regex.endswith("/") else ""
        regex += slash + (f"(?>(?:[^/]*+/)*?{'/'.join(map(_name_regex, group))})" if group else "")
    return regex


def _name_regex(pattern: str) -> str:
    """Return the regular expression for the name of one file or folder."""
    parts = [""]
    for token in _TOKEN.findall(pattern):
        if token[0] == "*":
            parts.append("")
        else:
            parts[-1] += "[^/]" if token == "?" else _set_regex(token) if len(token) > 1 else re.escape(token)
    if len(parts) == 1:
        return parts[0] + _NAME_END
    last = f"(?>[^/]*?{parts[-1]}{_NAME_END})" if parts[-1] else "[^/]*+"
    return parts[0] + "".join(f"(?>[^/]*?{part})" for part in parts[1:-1] if part) + last


def _set_regex(token: str) -> str:
    """Return the regular expression for `[ab]` or `[!ab]`; an invalid set stands for itself."""
    content = token[1:-1]
    negation = "^" if content[0] in "!^" and len(content) > 1 else ""
    characters = "".join(
        character if character == "-" else re.escape(character) for character in content[len(negation) :]
    )
    try:
        if "--" in characters:
            return re.escape(token)
        re.compile(f"[{negation}{characters}]")
    except re.error:  # such as [z-a]
        return re.escape(token)
    return f"(?!/)[{negation}{characters}]"
