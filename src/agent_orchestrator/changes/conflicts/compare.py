"""Compare every two snapshots of one repository and remember the results while they are valid (`BranchComparer`).

The number of Git processes does not grow with the number of branches: one reads the history (`merge_bases.py` finds the merge bases), one
lists what changed, some merge the pairs that can conflict at all (`tree_changes.py`), and one shows the changes of the pairs that merge
(`hunks.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.conflicts import hunks
from agent_orchestrator.changes.conflicts.merge_bases import CommitPair, Graph, commit_pair, with_snapshots
from agent_orchestrator.changes.conflicts.model import BranchSnapshot, Kind, is_lock_file
from agent_orchestrator.changes.conflicts.tree_changes import BaseChanges, TreeChanges, TreePair, parse_changes
from agent_orchestrator.changes.merge.merge_tree import MERGE_TREE_VERSION
from agent_orchestrator.errors import Missing

BATCH_MERGE_VERSION = (2, 39)
"""The first Git version whose `merge-tree` does many merges in one process."""
REV_LIST_OPTIONS = "--no-commit-header", "--format=%H %T %P", "--topo-order"
_PARALLEL_MERGES = max(2, os.cpu_count() or 2)
_MAX_PATHS = 500
_MAX_NAMED_FILES = 30


@dataclass(frozen=True, slots=True)
class PairResult:
    """The result of merging two snapshots; without a kind they do not conflict."""

    kind: Kind | None = None
    files: tuple[str, ...] = ()


NO_CONFLICT = PairResult()


@dataclass(frozen=True, slots=True)
class _PairCandidate:
    """Two snapshots that may conflict, with the files that both changed since their merge base."""

    pair: CommitPair
    base: str
    """The tree of their merge base."""
    shared: frozenset[str]


@dataclass(slots=True)
class _PairHistory:
    """What is known about the pairs before anything is merged."""

    graph: Graph
    trees: Mapping[str, str]
    bases: Mapping[CommitPair, Sequence[str]]
    forks: Mapping[str, str] = field(default_factory=dict)
    fork_points: Sequence[str] = ()
    """Fork points along the base branch, oldest first."""


class BranchComparer:
    """Compares the branches of one repository."""

    def __init__(self, git: Git, attributes: Path) -> None:
        self.git = git
        """Git in the repository, with our own object folder."""
        self.attributes = attributes
        """File that assigns languages to files where the repository does not."""
        self._graph = Graph()
        self._results: dict[CommitPair, PairResult] = {}
        self._changes: dict[TreePair, TreeChanges] = {}
        self._version: tuple[int, ...] = ()

    def forget_history(self) -> None:
        """Forget the history, because it may have been rewritten or our objects may be gone."""
        self._graph = Graph()

    async def compare(self, snapshots: Sequence[BranchSnapshot], base: str | None) -> dict[CommitPair, PairResult]:
        """Return the verdict for every two snapshots; pairs that were compared before are not merged again.

        `base` is the commit of the branch that they are to be merged into; it only makes the comparison faster. Raises `Missing` if Git is
        too old.
        """
        if not self._version:
            self._version = await self.git.version()
        if self._version < MERGE_TREE_VERSION:
            version = ".".join(map(str, self._version))
            raise Missing(f"Git {version} cannot predict conflicts", "install Git 2.38 or newer")
        by_commit = {snapshot.commit: snapshot for snapshot in snapshots}
        pairs = [commit_pair(a, b) for index, a in enumerate(by_commit) for b in list(by_commit)[index + 1 :]]
        missing = [pair for pair in pairs if pair not in self._results]
        if missing:
            self._results.update(await self._compare_pairs(by_commit, missing, base))
        self._results = {pair: self._results[pair] for pair in pairs}
        return dict(self._results)

    async def changed_paths(self, snapshot: BranchSnapshot, base: str) -> frozenset[str]:
        """Return the paths that a branch changed since it left its base."""
        merge_base = await self.git.merge_base(base, snapshot.head)
        if merge_base is None:
            return frozenset()
        tree = await self.git.text("rev-parse", "--verify", f"{merge_base}^{{tree}}")
        return (await self._list_changes([(tree, snapshot.tree)]))[tree, snapshot.tree].paths

    # -- one round -----------------------------------------------------------------------------------------------------

    async def _compare_pairs(
        self, snapshots: Mapping[str, BranchSnapshot], missing: Sequence[CommitPair], base: str | None
    ) -> dict[CommitPair, PairResult]:
        """Return the verdicts for the pairs: merge those that may conflict, and look for overlaps in those that merge."""
        plan = await self._read_pair_history(snapshots, missing, base)
        candidates = await self._find_candidates(plan, missing)
        verdicts = dict.fromkeys(missing, NO_CONFLICT)
        merged = await self._merge([candidate.pair for candidate in candidates])
        clean = []
        for candidate in candidates:
            conflicts = merged[candidate.pair]
            files = tuple(path for path in conflicts or () if not is_lock_file(path))
            if files or conflicts == ():
                verdicts[candidate.pair] = PairResult(
                    "text", files or tuple(sorted(candidate.shared))[:_MAX_NAMED_FILES]
                )
            elif candidate.shared:
                clean.append(candidate)
        for pair, paths in (await self._find_overlaps(clean, plan.trees)).items():
            verdicts[pair] = PairResult("overlap", paths)
        return verdicts

    async def _read_pair_history(
        self, snapshots: Mapping[str, BranchSnapshot], missing: Sequence[CommitPair], base: str | None
    ) -> _PairHistory:
        """Find the merge bases of the pairs; read the whole history again if the known part does not contain one."""
        heads = list(dict.fromkeys([snapshot.head for snapshot in snapshots.values()] + ([base] if base else [])))
        moved = {commit for pair in missing for commit in pair}
        graph = await self._read_history(heads, from_scratch=False)
        plan = await asyncio.to_thread(_find_bases, graph, snapshots, moved, base)
        if any(pair not in plan.bases for pair in missing):  # a branch moved behind what all heads shared
            graph = await self._read_history(heads, from_scratch=True)
            plan = await asyncio.to_thread(_find_bases, graph, snapshots, moved, base)
        return plan

    async def _read_history(self, heads: Sequence[str], *, from_scratch: bool) -> Graph:
        """Return the history of the heads down to what they share, and keep it; only new commits are read unless `from_scratch`."""
        known_nodes = self._graph.nodes
        if from_scratch or not any(head in known_nodes for head in heads):
            shared = await self.git.run("merge-base", "--octopus", "--all", *heads, ok=(0, 1))
            shared_ancestors = shared.text.split()
            exclusions = [f"^{sha}" for sha in shared_ancestors]
            listing = await self.git.text("rev-list", *REV_LIST_OPTIONS, "--stdin", input=_lines([*heads, *exclusions]))
            ancestor_listing = (
                await self.git.text("rev-list", *REV_LIST_OPTIONS, "--no-walk", *shared_ancestors)
                if shared_ancestors
                else ""
            )
            self._graph = await asyncio.to_thread(Graph.parse, f"{listing}\n{ancestor_listing}")
        elif new_heads := [head for head in heads if head not in known_nodes]:
            exclusions = [f"^{head}" for head in heads if head in known_nodes]
            listing = await self.git.text(
                "rev-list", *REV_LIST_OPTIONS, "--stdin", input=_lines([*new_heads, *exclusions])
            )
            new_graph = await asyncio.to_thread(Graph.parse, listing)
            self._graph = self._graph.with_newer(
                Graph({sha: node for sha, node in new_graph.nodes.items() if sha not in known_nodes})
            )
        return self._graph

    async def _find_candidates(self, plan: _PairHistory, missing: Sequence[CommitPair]) -> list[_PairCandidate]:
        """Return the pairs whose changes make a conflict or an overlap possible."""
        trees = plan.trees
        steps = [(trees[a], trees[b]) for a, b in zip(plan.fork_points, plan.fork_points[1:], strict=False)]
        own_steps = {commit: (trees[fork], trees[commit]) for commit, fork in plan.forks.items()}
        near, far = _split_by_distance(plan, missing)
        direct_steps = [(trees[plan.bases[pair][0]], trees[side]) for pair in far for side in pair]
        changes = await self._list_changes([*steps, *own_steps.values(), *direct_steps])
        positions = {point: position for position, point in enumerate(plan.fork_points)}
        stretch = BaseChanges(positions, [changes[step] for step in steps])

        def select_candidates() -> list[_PairCandidate]:
            selected = []
            for pair in missing:
                bases = plan.bases.get(pair, ())
                if not bases or bases[0] in pair:
                    continue  # there is no merge base, or one side contains the other
                if pair in near:
                    a, b = (changes[own_steps[side]] for side in pair)
                    can_conflict = a.can_conflict_with(b) or _base_can_conflict(stretch, plan, pair, a, b)
                else:
                    a, b = (changes[trees[bases[0]], trees[side]] for side in pair)
                    can_conflict = len(bases) > 1 or a.can_conflict_with(b)
                if can_conflict:
                    selected.append(_PairCandidate(pair, trees[bases[0]], a.paths & b.paths))
            return selected

        candidates = await asyncio.to_thread(select_candidates)
        self._changes = changes
        return candidates

    async def _list_changes(self, tree_pairs: Iterable[TreePair]) -> dict[TreePair, TreeChanges]:
        """Return what changed between the two trees of each pair; known pairs are not listed again."""
        unique_pairs = dict.fromkeys(tree_pairs)
        missing_pairs = [trees for trees in unique_pairs if trees not in self._changes]
        new_changes: dict[TreePair, TreeChanges] = {}
        if missing_pairs:
            options = ("--stdin", "-r", "-z", "--name-status", "--no-renames")
            input_lines = _lines(f"{before} {after}" for before, after in missing_pairs)
            result = await self.git.run("diff-tree", *options, input=input_lines, timeout=None)
            new_changes = await asyncio.to_thread(parse_changes, os.fsdecode(result.out))
        return {trees: new_changes.get(trees) or self._changes.get(trees) or TreeChanges() for trees in unique_pairs}

    # -- merging -------------------------------------------------------------------------------------------------------

    async def _merge(self, pairs: Sequence[CommitPair]) -> dict[CommitPair, tuple[str, ...] | None]:
        """Return the files in conflict for each pair, or None for a pair without a conflict."""
        if self._version < BATCH_MERGE_VERSION:
            return {pair: await self._merge_one(pair) for pair in pairs}
        part_size = -(-len(pairs) // _PARALLEL_MERGES) or 1
        parts = [pairs[start : start + part_size] for start in range(0, len(pairs), part_size)]
        merged_parts = await asyncio.gather(*(self._merge_many(part) for part in parts))
        return {pair: files for part in merged_parts for pair, files in part.items()}

    async def _merge_many(self, pairs: Sequence[CommitPair]) -> dict[CommitPair, tuple[str, ...] | None]:
        """Merge the pairs in one Git process."""
        options = ("--write-tree", "--stdin", "--name-only", "--no-messages")
        input_lines = _lines(f"{a} {b}" for a, b in pairs)
        result = await self.git.run("merge-tree", *options, input=input_lines, timeout=None)
        return dict(zip(pairs, _parse_merges(os.fsdecode(result.out)), strict=True))

    async def _merge_one(self, pair: CommitPair) -> tuple[str, ...] | None:
        """Merge one pair, for Git versions without batches."""
        options = ("--write-tree", "-z", "--name-only", "--no-messages")
        result = await self.git.run("merge-tree", *options, *pair, ok=(0, 1), timeout=None)
        _, *files = os.fsdecode(result.out).rstrip("\0").split("\0")
        return tuple(dict.fromkeys(files)) if result.code else None

    async def _find_overlaps(
        self, candidates: Sequence[_PairCandidate], trees: Mapping[str, str]
    ) -> dict[CommitPair, tuple[str, ...]]:
        """Return the files in which both sides of a pair change the same function or section, for pairs that merge."""
        if not candidates:
            return {}
        tree_pairs = {(candidate.base, trees[side]): None for candidate in candidates for side in candidate.pair}
        paths = sorted({path for candidate in candidates for path in candidate.shared})
        options = (
            "--stdin",
            "-r",
            "-z",
            "-p",
            "-W",
            "-U0",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
        )
        result = await self.git.run(
            "diff-tree",
            *options,
            "--",
            *(paths if len(paths) <= _MAX_PATHS else ()),
            config=(f"core.attributesFile={self.attributes}",),
            env={"GIT_LITERAL_PATHSPECS": "1"},
            input=_lines(f"{before} {after}" for before, after in tree_pairs),
            timeout=None,
        )

        def find_overlaps() -> dict[CommitPair, tuple[str, ...]]:
            sections = hunks.parse_sections(os.fsdecode(result.out))
            overlaps = {}
            for candidate in candidates:
                ours, theirs = (sections.get((candidate.base, trees[side]), {}) for side in candidate.pair)
                files = [
                    path
                    for path in sorted(candidate.shared)
                    if hunks.overlaps(ours.get(path, ()), theirs.get(path, ()))
                ]
                if files:
                    overlaps[candidate.pair] = tuple(files)
            return overlaps

        return await asyncio.to_thread(find_overlaps)


def _lines(lines: Iterable[str]) -> bytes:
    """Return the lines as input for Git."""
    return "".join(f"{line}\n" for line in lines).encode()


def _parse_merges(out: str) -> list[tuple[str, ...] | None]:
    """Parse the output of `merge-tree --stdin --name-only --no-messages`: status, tree, files, and an empty field after each merge."""
    merges: list[tuple[str, ...] | None] = []
    fields = iter(out.split("\0"))
    for status in fields:
        if not status.strip():
            continue
        next(fields)
        files = tuple(dict.fromkeys(iter(lambda: next(fields, ""), "")))
        merges.append(None if status.strip() == "1" else files)
    return merges


def _find_bases(
    graph: Graph, snapshots: Mapping[str, BranchSnapshot], moved: set[str], base: str | None
) -> _PairHistory:
    """Find the merge bases of every two snapshots, and the fork point of each on the base branch."""
    snapshot_nodes = [(snapshot.commit, snapshot.tree, snapshot.head) for snapshot in snapshots.values()]
    full_graph = with_snapshots(graph, snapshot_nodes)
    heads = list(dict.fromkeys([*snapshots, *([base] if base else [])]))
    bases = full_graph.bases(heads, heads if base else moved)
    trees = {sha: node.tree for sha, node in full_graph.nodes.items()}
    forks = {}
    for commit in snapshots:
        if base is None:
            break
        common_commits = bases.get(commit_pair(commit, base), []) if commit != base else [commit]
        if len(common_commits) == 1:
            forks[commit] = common_commits[0]
    chain = full_graph.first_parents(base)
    fork_points = set(forks.values())
    return _PairHistory(full_graph, trees, bases, forks, [sha for sha in chain if sha in fork_points])


def _split_by_distance(plan: _PairHistory, missing: Sequence[CommitPair]) -> tuple[set[CommitPair], list[CommitPair]]:
    """Split the pairs: those whose merge base is a fork point on the base branch, and the others."""
    points = set(plan.fork_points)
    near: set[CommitPair] = set()
    far: list[CommitPair] = []
    for pair in missing:
        bases = plan.bases.get(pair, ())
        if not bases or bases[0] in pair:
            continue
        forks = [plan.forks.get(side) for side in pair]
        is_near = len(bases) == 1 and bases[0] in forks and points.issuperset(forks) and None not in forks
        near.add(pair) if is_near else far.append(pair)
    return near, far


def _base_can_conflict(
    stretch: BaseChanges, plan: _PairHistory, pair: CommitPair, a: TreeChanges, b: TreeChanges
) -> bool:
    """Return whether the base's changes between the two fork points can conflict with the side that forked earlier.

    They count as changes of the side that forked later.
    """
    fork_a, fork_b = (plan.forks[side] for side in pair)
    if fork_a == fork_b:
        return False
    start = plan.bases[pair][0]
    return (
        stretch.can_conflict_with(start, fork_a, b) if start == fork_b else stretch.can_conflict_with(start, fork_b, a)
    )
