"""Compares snapshots of one repository, every two of them, and remembers what it found for as long as it holds.

Few Git processes, whatever the number of branches: one reads the history (`merge_bases.py` finds where every two parted), one lists what
changed, some merge those pairs that may collide at all (`paths.py`), and one shows the changes of those that merge well (`hunks.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes.conflicts import hunks
from agent_orchestrator.changes.conflicts.merge_bases import Graph, Two, two, with_snapshots
from agent_orchestrator.changes.conflicts.model import Kind, Snapshot, is_lock_file
from agent_orchestrator.changes.conflicts.paths import Changes, Stretch, TreePair, parse_changes
from agent_orchestrator.changes.merge.merge_tree import WRITES_TREES
from agent_orchestrator.errors import Missing

BATCHED = (2, 39)
"""The first Git whose `merge-tree` does many merges in one process."""
TREES = "--no-commit-header", "--format=%H %T %P", "--topo-order"
_SIDE_BY_SIDE = max(2, os.cpu_count() or 2)
_MOST_PATHS = 500
_NAMED = 30


@dataclass(frozen=True, slots=True)
class Verdict:
    """What comes of merging two snapshots; no kind: they go together."""

    kind: Kind | None = None
    files: tuple[str, ...] = ()


GOOD = Verdict()


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Two snapshots that may collide; with the files that both changed, seen from where they parted."""

    pair: Two
    base: str
    """The tree where they parted."""
    shared: frozenset[str]


@dataclass(slots=True)
class _Plan:
    """What is known of a round before anything is merged."""

    graph: Graph
    trees: Mapping[str, str]
    bases: Mapping[Two, Sequence[str]]
    forks: Mapping[str, str] = field(default_factory=dict)
    points: Sequence[str] = ()
    """Fork points along the base branch, oldest first."""


class Comparison:
    """Compares the branches of one repository."""

    def __init__(self, git: Git, attributes: Path) -> None:
        self.git = git
        """In the repository, with an object folder of our own."""
        self.attributes = attributes
        """Says which language a file is in, where the repository does not."""
        self._graph = Graph()
        self._verdicts: dict[Two, Verdict] = {}
        self._changes: dict[TreePair, Changes] = {}
        self._version: tuple[int, ...] = ()

    def forget(self) -> None:
        """The history may have been rewritten, or objects of ours are gone."""
        self._graph = Graph()

    async def compare(self, snapshots: Sequence[Snapshot], base: str | None) -> dict[Two, Verdict]:
        """What comes of merging every two of them; those that did not move since are not merged again.

        `base` is the commit that the branch they are to land on is at: it makes the comparison cheaper, nothing else.
        """
        if not self._version:
            self._version = await self.git.version()
        if self._version < WRITES_TREES:
            version = ".".join(map(str, self._version))
            raise Missing(f"Git {version} cannot predict conflicts", "install Git 2.38 or newer")
        by_commit = {one.commit: one for one in snapshots}
        wanted = [two(a, b) for place, a in enumerate(by_commit) for b in list(by_commit)[place + 1 :]]
        missing = [pair for pair in wanted if pair not in self._verdicts]
        if missing:
            self._verdicts.update(await self._judge(by_commit, missing, base))
        self._verdicts = {pair: self._verdicts[pair] for pair in wanted}
        return dict(self._verdicts)

    async def changed(self, snapshot: Snapshot, base: str) -> frozenset[str]:
        """The paths that a branch changed since it left its base."""
        start = await self.git.merge_base(base, snapshot.head)
        if start is None:
            return frozenset()
        tree = await self.git.text("rev-parse", "--verify", f"{start}^{{tree}}")
        return (await self._listed([(tree, snapshot.tree)]))[tree, snapshot.tree].paths

    # -- one round -----------------------------------------------------------------------------------------------------

    async def _judge(
        self, snapshots: Mapping[str, Snapshot], missing: Sequence[Two], base: str | None
    ) -> dict[Two, Verdict]:
        plan = await self._plan(snapshots, missing, base)
        candidates = await self._candidates(plan, missing)
        verdicts = dict.fromkeys(missing, GOOD)
        merged = await self._merge([one.pair for one in candidates])
        clean = []
        for one in candidates:
            conflicts = merged[one.pair]
            files = tuple(path for path in conflicts or () if not is_lock_file(path))
            if files or conflicts == ():
                verdicts[one.pair] = Verdict("text", files or tuple(sorted(one.shared))[:_NAMED])
            elif one.shared:
                clean.append(one)
        for pair, paths in (await self._overlaps(clean, plan.trees)).items():
            verdicts[pair] = Verdict("overlap", paths)
        return verdicts

    async def _plan(self, snapshots: Mapping[str, Snapshot], missing: Sequence[Two], base: str | None) -> _Plan:
        heads = list(dict.fromkeys([one.head for one in snapshots.values()] + ([base] if base else [])))
        moved = {commit for pair in missing for commit in pair}
        graph = await self._history(heads, anew=False)
        plan = await asyncio.to_thread(_find_bases, graph, snapshots, moved, base)
        if any(pair not in plan.bases for pair in missing):  # somebody went back behind what all had in common
            graph = await self._history(heads, anew=True)
            plan = await asyncio.to_thread(_find_bases, graph, snapshots, moved, base)
        return plan

    async def _history(self, heads: Sequence[str], *, anew: bool) -> Graph:
        known = self._graph.nodes
        if anew or not any(head in known for head in heads):
            shared = await self.git.run("merge-base", "--octopus", "--all", *heads, ok=(0, 1))
            bottom = shared.text.split()
            below = [f"^{sha}" for sha in bottom]
            listing = await self.git.text("rev-list", *TREES, "--stdin", input=_lines([*heads, *below]))
            ends = await self.git.text("rev-list", *TREES, "--no-walk", *bottom) if bottom else ""
            self._graph = await asyncio.to_thread(Graph.parse, f"{listing}\n{ends}")
        elif fresh := [head for head in heads if head not in known]:
            below = [f"^{head}" for head in heads if head in known]
            listing = await self.git.text("rev-list", *TREES, "--stdin", input=_lines([*fresh, *below]))
            newer = await asyncio.to_thread(Graph.parse, listing)
            self._graph = self._graph.above(Graph({sha: one for sha, one in newer.nodes.items() if sha not in known}))
        return self._graph

    async def _candidates(self, plan: _Plan, missing: Sequence[Two]) -> list[_Candidate]:
        """The pairs whose changes leave anything to collide on."""
        trees = plan.trees
        steps = [(trees[a], trees[b]) for a, b in zip(plan.points, plan.points[1:], strict=False)]
        own = {commit: (trees[fork], trees[commit]) for commit, fork in plan.forks.items()}
        near, far = _sorted_by_distance(plan, missing)
        direct = [(trees[plan.bases[pair][0]], trees[side]) for pair in far for side in pair]
        changes = await self._listed([*steps, *own.values(), *direct])
        places = {point: place for place, point in enumerate(plan.points)}
        stretch = Stretch(places, [changes[step] for step in steps])

        def choose() -> list[_Candidate]:
            found = []
            for pair in missing:
                bases = plan.bases.get(pair, ())
                if not bases or bases[0] in pair:
                    continue  # nothing in common to merge by, or one has all of the other
                if pair in near:
                    a, b = (changes[own[side]] for side in pair)
                    meets = a.meets(b) or _base_meets(stretch, plan, pair, a, b)
                else:
                    a, b = (changes[trees[bases[0]], trees[side]] for side in pair)
                    meets = len(bases) > 1 or a.meets(b)
                if meets:
                    found.append(_Candidate(pair, trees[bases[0]], a.paths & b.paths))
            return found

        candidates = await asyncio.to_thread(choose)
        self._changes = changes
        return candidates

    async def _listed(self, wanted: Iterable[TreePair]) -> dict[TreePair, Changes]:
        needed = dict.fromkeys(wanted)
        unknown = [trees for trees in needed if trees not in self._changes]
        found: dict[TreePair, Changes] = {}
        if unknown:
            options = ("--stdin", "-r", "-z", "--name-status", "--no-renames")
            feed = _lines(f"{before} {after}" for before, after in unknown)
            done = await self.git.run("diff-tree", *options, input=feed, timeout=None)
            found = await asyncio.to_thread(parse_changes, os.fsdecode(done.out))
        return {trees: found.get(trees) or self._changes.get(trees) or Changes() for trees in needed}

    # -- merging -------------------------------------------------------------------------------------------------------

    async def _merge(self, pairs: Sequence[Two]) -> dict[Two, tuple[str, ...] | None]:
        """For each pair the files in conflict; none: there is no conflict."""
        if self._version < BATCHED:
            return {pair: await self._merge_one(pair) for pair in pairs}
        share = -(-len(pairs) // _SIDE_BY_SIDE) or 1
        parts = [pairs[start : start + share] for start in range(0, len(pairs), share)]
        done = await asyncio.gather(*(self._merge_many(part) for part in parts))
        return {pair: files for part in done for pair, files in part.items()}

    async def _merge_many(self, pairs: Sequence[Two]) -> dict[Two, tuple[str, ...] | None]:
        options = ("--write-tree", "--stdin", "--name-only", "--no-messages")
        feed = _lines(f"{a} {b}" for a, b in pairs)
        done = await self.git.run("merge-tree", *options, input=feed, timeout=None)
        return dict(zip(pairs, _parse_merges(os.fsdecode(done.out)), strict=True))

    async def _merge_one(self, pair: Two) -> tuple[str, ...] | None:
        options = ("--write-tree", "-z", "--name-only", "--no-messages")
        done = await self.git.run("merge-tree", *options, *pair, ok=(0, 1), timeout=None)
        _, *files = os.fsdecode(done.out).rstrip("\0").split("\0")
        return tuple(dict.fromkeys(files)) if done.code else None

    async def _overlaps(self, candidates: Sequence[_Candidate], trees: Mapping[str, str]) -> dict[Two, tuple[str, ...]]:
        """Of pairs that merge well, those that change the same function or section, with the files."""
        if not candidates:
            return {}
        asked = {(one.base, trees[side]): None for one in candidates for side in one.pair}
        paths = sorted({path for one in candidates for path in one.shared})
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
        done = await self.git.run(
            "diff-tree",
            *options,
            "--",
            *(paths if len(paths) <= _MOST_PATHS else ()),
            config=(f"core.attributesFile={self.attributes}",),
            env={"GIT_LITERAL_PATHSPECS": "1"},
            input=_lines(f"{before} {after}" for before, after in asked),
            timeout=None,
        )

        def look() -> dict[Two, tuple[str, ...]]:
            sections = hunks.parse_sections(os.fsdecode(done.out))
            found = {}
            for one in candidates:
                ours, theirs = (sections.get((one.base, trees[side]), {}) for side in one.pair)
                files = [
                    path for path in sorted(one.shared) if hunks.overlaps(ours.get(path, ()), theirs.get(path, ()))
                ]
                if files:
                    found[one.pair] = tuple(files)
            return found

        return await asyncio.to_thread(look)


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _parse_merges(out: str) -> list[tuple[str, ...] | None]:
    """The output of `merge-tree --stdin --name-only --no-messages`: status, tree, files, and an empty word at the end of each."""
    found: list[tuple[str, ...] | None] = []
    words = iter(out.split("\0"))
    for status in words:
        if not status.strip():
            continue
        next(words)
        files = tuple(dict.fromkeys(iter(lambda: next(words, ""), "")))
        found.append(None if status.strip() == "1" else files)
    return found


def _find_bases(graph: Graph, snapshots: Mapping[str, Snapshot], moved: set[str], base: str | None) -> _Plan:
    """Where every two parted, and where each left the base branch."""
    ours = [(one.commit, one.tree, one.head) for one in snapshots.values()]
    whole = with_snapshots(graph, ours)
    heads = list(dict.fromkeys([*snapshots, *([base] if base else [])]))
    bases = whole.bases(heads, heads if base else moved)
    trees = {sha: node.tree for sha, node in whole.nodes.items()}
    forks = {}
    for commit in snapshots:
        if base is None:
            break
        met = bases.get(two(commit, base), []) if commit != base else [commit]
        if len(met) == 1:
            forks[commit] = met[0]
    chain = whole.chain(base)
    used = set(forks.values())
    return _Plan(whole, trees, bases, forks, [sha for sha in chain if sha in used])


def _sorted_by_distance(plan: _Plan, missing: Sequence[Two]) -> tuple[set[Two], list[Two]]:
    """Pairs that parted where one of them left the base branch, and those that did not."""
    points = set(plan.points)
    near: set[Two] = set()
    far: list[Two] = []
    for pair in missing:
        bases = plan.bases.get(pair, ())
        if not bases or bases[0] in pair:
            continue
        forks = [plan.forks.get(side) for side in pair]
        simple = len(bases) == 1 and bases[0] in forks and points.issuperset(forks) and None not in forks
        near.add(pair) if simple else far.append(pair)
    return near, far


def _base_meets(stretch: Stretch, plan: _Plan, pair: Two, a: Changes, b: Changes) -> bool:
    """What the base changed until the later of both left it counts as that one's change."""
    fork_a, fork_b = (plan.forks[side] for side in pair)
    if fork_a == fork_b:
        return False
    start = plan.bases[pair][0]
    return stretch.meets(start, fork_a, b) if start == fork_b else stretch.meets(start, fork_b, a)
