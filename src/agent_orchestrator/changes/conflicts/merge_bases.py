"""Find the merge bases (best common ancestors) of every two of many heads, from one reading of the history. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

CommitPair = tuple[str, str]
"""Two commits, sorted by name."""


def commit_pair(a: str, b: str) -> CommitPair:
    """Return a pair of commits in sorted order."""
    return (a, b) if a < b else (b, a)


@dataclass(frozen=True, slots=True)
class HistoryNode:
    """The tree and the parents of a commit."""

    tree: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """Commits, each before its parents, down to one that all heads share."""

    nodes: Mapping[str, HistoryNode] = field(default_factory=dict)

    @classmethod
    def parse(cls, listing: str) -> Graph:
        """Parse lines of commit, tree and parents, each commit before its parents."""
        rows = (line.split() for line in listing.splitlines() if line)
        return cls({sha: HistoryNode(tree, tuple(parents)) for sha, tree, *parents in rows})

    def with_newer(self, newer: Graph) -> Graph:
        """Return the graph with commits added that are not ancestors of any commit in it."""
        return Graph({**newer.nodes, **self.nodes})

    def first_parents(self, tip: str | None) -> list[str]:
        """Return the first parents of the tip, as far as they are known, oldest first."""
        commits: list[str] = []
        while tip is not None and (node := self.nodes.get(tip)) is not None:
            commits.append(tip)
            tip = node.parents[0] if node.parents else None
        return commits[::-1]

    def bases(self, heads: Sequence[str], moved: Collection[str]) -> dict[CommitPair, list[str]]:
        """Return the best common ancestors of every two heads, for pairs with at least one head in `moved`."""
        head_bits = {head: 1 << index for index, head in enumerate(heads)}
        moved_mask = sum(head_bits[head] for head in set(moved))
        masks, child_masks = self._head_masks(head_bits)
        bases: dict[CommitPair, list[str]] = {}
        for sha, mask in masks.items():
            children = child_masks.get(sha, ())
            if not mask & moved_mask or mask.bit_count() < 2 or mask in children:
                continue
            for index in _bits(mask & moved_mask):
                other_heads = mask & ~(1 << index)
                for child in children:  # heads that share a child of this commit have a better ancestor
                    if child >> index & 1:
                        other_heads &= ~child
                for other_index in _bits(other_heads):
                    pair_bases = bases.setdefault(commit_pair(heads[index], heads[other_index]), [])
                    if sha not in pair_bases:
                        pair_bases.append(sha)
        return bases

    def _head_masks(self, head_bits: Mapping[str, int]) -> tuple[dict[str, int], dict[str, list[int]]]:
        """Return for each commit the bit mask of the heads that contain it, and the masks of its children."""
        masks: dict[str, int] = {}
        child_masks: dict[str, list[int]] = {}
        for sha, node in self.nodes.items():
            mask = masks.get(sha, 0) | head_bits.get(sha, 0)
            if mask:
                masks[sha] = mask
                for parent in node.parents:
                    if parent in self.nodes:
                        masks[parent] = masks.get(parent, 0) | mask
                        child_masks.setdefault(parent, []).append(mask)
        return masks, child_masks


def _bits(mask: int) -> Iterator[int]:
    """Yield the positions of the bits that are set, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def with_snapshots(graph: Graph, snapshots: Iterable[tuple[str, str, str]]) -> Graph:
    """Return the graph with our own commits on top, each given as (commit, tree, parent)."""
    return graph.with_newer(
        Graph({commit: HistoryNode(tree, (head,)) for commit, tree, head in snapshots if commit != head})
    )
