"""What predictions are good for before anything is merged: whose landing spoils whose, and tasks that had better not run at once. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from agent_orchestrator.changes.conflicts.model import Pair, is_lock_file

_WORD = re.compile(r"[^\s\"'`<>()\[\]{},;|]+")


def clashes(pairs: Iterable[Pair]) -> dict[str, frozenset[str]]:
    """Session → those of which only one can land as it is."""
    found: dict[str, set[str]] = {}
    for pair in pairs:
        if pair.kind == "text":
            found.setdefault(pair.a, set()).add(pair.b)
            found.setdefault(pair.b, set()).add(pair.a)
    return {session: frozenset(others) for session, others in found.items()}


def words(text: str) -> frozenset[str]:
    """The words of a text that may be files' names."""
    found = (word.rstrip(".:!?").removeprefix("./") for word in _WORD.findall(text))
    bare = (re.sub(r"(:\d+)+$", "", word) for word in found)
    return frozenset(word for word in bare if "." in word.strip(".") or "/" in word.strip("/"))


class Names:
    """Files, found by what a text calls them; made once for many texts."""

    def __init__(self, files: Collection[str]) -> None:
        self.files = frozenset(files)
        self._by_name: dict[str, list[str]] = {}
        for path in files:
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)

    def named(self, text: str) -> frozenset[str]:
        """The files that a text names: by path, or by a name that only one of them has."""
        wanted = words(text)
        found = {word for word in wanted if word in self.files}
        alone = (self._by_name.get(word, ()) for word in wanted if "/" not in word)
        found |= {paths[0] for paths in alone if len(paths) == 1}
        return frozenset(path for path in found if not is_lock_file(path))


def named_files(text: str, files: Collection[str]) -> frozenset[str]:
    """The files that one text names."""
    return Names(files).named(text)
