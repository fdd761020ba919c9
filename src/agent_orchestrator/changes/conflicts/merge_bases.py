"""Where branches parted: the best common ancestors of every two of many heads, from one reading of the history. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Two = tuple[str, str]
"""Two commits, in order of their names."""


def two(a: str, b: str) -> Two:
    """A pair, whichever way it is asked for."""
    return (a, b) if a < b else (b, a)


@dataclass(frozen=True, slots=True)
class Node:
    """A commit."""

    tree: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Commits, each before its parents, down to one that all heads share."""

    nodes: Mapping[str, Node] = field(default_factory=dict)

    @classmethod
    def parse(cls, listing: str) -> Graph:
        """From lines of commit, tree and parents, each commit before its parents."""
        rows = (line.split() for line in listing.splitlines() if line)
        return cls({sha: Node(tree, tuple(parents)) for sha, tree, *parents in rows})

    def above(self, newer: Graph) -> Graph:
        """With commits that are no ancestors of any here."""
        return Graph({**newer.nodes, **self.nodes})

    def chain(self, tip: str | None) -> list[str]:
        """The tip's first parents, as far down as is known, oldest first."""
        found: list[str] = []
        while tip is not None and (node := self.nodes.get(tip)) is not None:
            found.append(tip)
            tip = node.parents[0] if node.parents else None
        return found[::-1]

    def bases(self, heads: Sequence[str], moved: Collection[str]) -> dict[Two, list[str]]:
        """The best common ancestors of every two heads of which one at least is among `moved`."""
        number = {head: 1 << place for place, head in enumerate(heads)}
        asked = sum(number[head] for head in set(moved))
        masks, below = self._spread(number)
        found: dict[Two, list[str]] = {}
        for sha, mask in masks.items():
            children = below.get(sha, ())
            if not mask & asked or mask.bit_count() < 2 or mask in children:
                continue
            for place in _bits(mask & asked):
                others = mask & ~(1 << place)
                for child in children:  # what a child has in common is a better ancestor
                    if child >> place & 1:
                        others &= ~child
                for other in _bits(others):
                    here = found.setdefault(two(heads[place], heads[other]), [])
                    if sha not in here:
                        here.append(sha)
        return found

    def _spread(self, number: Mapping[str, int]) -> tuple[dict[str, int], dict[str, list[int]]]:
        """For each commit which heads contain it, and the same for each of its children."""
        masks: dict[str, int] = {}
        below: dict[str, list[int]] = {}
        for sha, node in self.nodes.items():
            mask = masks.get(sha, 0) | number.get(sha, 0)
            if mask:
                masks[sha] = mask
                for parent in node.parents:
                    if parent in self.nodes:
                        masks[parent] = masks.get(parent, 0) | mask
                        below.setdefault(parent, []).append(mask)
        return masks, below


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def with_snapshots(graph: Graph, snapshots: Iterable[tuple[str, str, str]]) -> Graph:
    """The graph with commits of our own on top: (commit, tree, parent)."""
    return graph.above(Graph({commit: Node(tree, (head,)) for commit, tree, head in snapshots if commit != head}))
