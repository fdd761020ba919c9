"""Which paths two sides changed, and whether that leaves anything to collide on. Pure.

A merge cannot fail where this says no: conflicts need a path that both sides touched, a file where the other has a folder, or a folder
that one side moved away and the other put something into.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agent_orchestrator.changes.conflicts.model import is_lock_file

TreePair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """What lies between two trees."""

    paths: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    """Every folder above a path, the top one (an empty name) included."""
    left: frozenset[str] = frozenset()
    """Folders above paths that are gone."""
    entered: frozenset[str] = frozenset()
    """Folders above paths that are new."""

    @classmethod
    def of(cls, entries: Iterable[tuple[str, str]]) -> Changes:
        """From (status letter, path); lock files are left out."""
        kept = [(letter, path) for letter, path in entries if not is_lock_file(path)]
        return cls(
            frozenset(path for _, path in kept),
            _folders(path for _, path in kept),
            _folders(path for letter, path in kept if letter == "D"),
            _folders(path for letter, path in kept if letter == "A"),
        )

    def meets(self, other: Changes) -> bool:
        """May a merge of both collide?"""
        return not (
            self.paths.isdisjoint(other.paths)
            and self.paths.isdisjoint(other.folders)
            and self.folders.isdisjoint(other.paths)
            and self.left.isdisjoint(other.entered)
            and self.entered.isdisjoint(other.left)
        )


def _folders(paths: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for path in paths:
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            if folder in found:
                break
            found.add(folder)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What the base changed on its way, in steps from one fork point to the next."""

    points: dict[str, int]
    """Fork point → its place."""
    steps: Sequence[Changes]

    def meets(self, start: str, end: str, other: Changes) -> bool:
        """May what the base changed between two fork points collide with a side's own change?"""
        return any(step.meets(other) for step in self.steps[self.points[start] : self.points[end]])


def parse_changes(out: str) -> dict[TreePair, Changes]:
    """The output of `diff-tree --stdin -r -z --name-status` for pairs of trees."""
    entries: dict[TreePair, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    words = iter(out.split("\0"))
    for word in words:
        *heads, letter = word.split("\n")
        for head in heads:
            before, _, after = head.partition(" ")
            current = entries.setdefault((before, after), [])
        if letter:
            current.append((letter[0], next(words)))
    return {trees: Changes.of(found) for trees, found in entries.items()}
