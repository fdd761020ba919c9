"""Find the files that the text of a task names. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection

from agent_orchestrator.changes.conflicts.model import is_lock_file

_WORD = re.compile(r"[^\s\"'`<>()\[\]{},;|]+")


def path_words(text: str) -> frozenset[str]:
    """Return the words of a text that may be file names."""
    stripped_words = (word.rstrip(".:!?").removeprefix("./") for word in _WORD.findall(text))
    plain_words = (re.sub(r"(:\d+)+$", "", word) for word in stripped_words)
    return frozenset(word for word in plain_words if "." in word.strip(".") or "/" in word.strip("/"))


class FileNameIndex:
    """Finds the files that a text names; made once for many texts."""

    def __init__(self, files: Collection[str]) -> None:
        self.files = frozenset(files)
        self._by_name: dict[str, list[str]] = {}
        for path in files:
            self._by_name.setdefault(path.rpartition("/")[2], []).append(path)

    def find(self, text: str) -> frozenset[str]:
        """Return the files that a text names: by path, or by a name that only one file has."""
        text_words = path_words(text)
        matching_files = {word for word in text_words if word in self.files}
        paths_by_name = (self._by_name.get(word, ()) for word in text_words if "/" not in word)
        matching_files |= {paths[0] for paths in paths_by_name if len(paths) == 1}
        return frozenset(path for path in matching_files if not is_lock_file(path))


def find_named_files(text: str, files: Collection[str]) -> frozenset[str]:
    """Return the files that one text names."""
    return FileNameIndex(files).find(text)
