"""Find out from the paths that two sides changed whether they can conflict at all. Pure functions.

If `can_conflict_with` is False, a merge cannot fail: a conflict needs a path that both sides changed, a file where the other side has a
folder, or a folder that one side moved away and the other side added something to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_orchestrator.changes.conflicts.model import is_lock_file

TreePair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TreeChanges:
    """The differences between two trees."""

    paths: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    """Every folder above a changed path, including the top folder (an empty name)."""
    removed_from: frozenset[str] = frozenset()
    """Folders above removed paths."""
    added_to: frozenset[str] = frozenset()
    """Folders above new paths."""

    @classmethod
    def from_entries(cls, entries: Iterable[tuple[str, str]]) -> TreeChanges:
        """Create changes from (status letter, path); lock files are ignored."""
        relevant_entries = [(letter, path) for letter, path in entries if not is_lock_file(path)]
        return cls(
            frozenset(path for _, path in relevant_entries),
            _folders(path for _, path in relevant_entries),
            _folders(path for letter, path in relevant_entries if letter == "D"),
            _folders(path for letter, path in relevant_entries if letter == "A"),
        )

    def can_conflict_with(self, other: TreeChanges) -> bool:
        """Return whether a merge of both can conflict."""
        return not (
            self.paths.isdisjoint(other.paths)
            and self.paths.isdisjoint(other.folders)
            and self.folders.isdisjoint(other.paths)
            and self.removed_from.isdisjoint(other.added_to)
            and self.added_to.isdisjoint(other.removed_from)
        )


def _folders(paths: Iterable[str]) -> frozenset[str]:
    """Return every folder above these paths."""
    folders: set[str] = set()
    for path in paths:
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            if folder in folders:
                break
            folders.add(folder)
    return frozenset(folders)


@dataclass(frozen=True, slots=True)
class BaseChanges:
    """The changes of the base branch, in steps from one fork point to the next."""

    points: dict[str, int]
    """Index of each fork point."""
    steps: Sequence[TreeChanges]

    def can_conflict_with(self, start: str, end: str, other: TreeChanges) -> bool:
        """Return whether the base's changes between two fork points can conflict with `other`."""
        return any(step.can_conflict_with(other) for step in self.steps[self.points[start] : self.points[end]])


def parse_changes(out: str) -> dict[TreePair, TreeChanges]:
    """Parse the output of `diff-tree --stdin -r -z --name-status` for pairs of trees."""
    entries: dict[TreePair, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    fields = iter(out.split("\0"))
    for field in fields:
        *heads, letter = field.split("\n")
        for head in heads:
            before, _, after = head.partition(" ")
            current = entries.setdefault((before, after), [])
        if letter:
            current.append((letter[0], next(fields)))
    return {trees: TreeChanges.from_entries(tree_entries) for trees, tree_entries in entries.items()}
