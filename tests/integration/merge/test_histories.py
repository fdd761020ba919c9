"""Random small histories: each is merged exactly once, with Git's result, and no local changes are lost."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent_orchestrator.changes.merge import (
    Blocked,
    CompletedMerge,
    Conflicted,
    MovedBase,
    Strategy,
    build_merge,
    merge,
)
from tests.examples import example_count
from tests.integration.merge.world import STEPS, DaemonKilled, MergeWorld, kill_after, make_world, snapshot, write
from tests.integration.rescue.world import git

NAMES = ("a.txt", "b.txt", "d/c.txt", "d/e.txt", "n w.txt")
LINES = st.lists(st.sampled_from("12345"), max_size=3).map(lambda lines: "\n".join(["top", *lines, "end", ""]))
EDIT = st.tuples(st.sampled_from(NAMES), st.one_of(st.none(), LINES))
SIDES = st.lists(
    st.tuples(st.sampled_from(["agent", "main", "merge"]), st.lists(EDIT, min_size=1, max_size=2)), max_size=5
)
STRATEGIES: st.SearchStrategy[Strategy] = st.sampled_from(("squash", "merge", "rebase"))


def commit(world: MergeWorld, folder: Path, edits: Sequence[tuple[str, str | None]]) -> None:
    write(folder, {name: text for name, text in edits if text is not None or (folder / name).exists()})
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "step")


def play(world: MergeWorld, sides: list[tuple[str, list[tuple[str, str | None]]]]) -> None:
    for side, edits in sides:
        if side == "merge":
            git(world.agent, "merge", "-q", "--no-edit", "main", check=False)
            if git(world.agent, "ls-files", "--unmerged"):
                git(world.agent, "merge", "--abort")
        else:
            commit(world, world.agent if side == "agent" else world.repo, edits)
    world.use_head()


async def check(world: MergeWorld, strategy: Strategy, dirty: tuple[str, str | None], step: str, edits: bool) -> None:
    world.use_strategy(strategy)
    listing = git(world.repo, "merge-tree", "--write-tree", "--name-only", "main", world.spec.head, check=False)
    expected_tree, base = listing.splitlines()[0], world.main()
    built = await build_merge(world.host, world.spec)
    if isinstance(built, Conflicted):
        assert set(built.files) <= set(listing.splitlines()[1:])
        assert world.main() == base
        return
    assert built.tree == expected_tree
    if edits:
        write(world.repo, {dirty[0]: dirty[1]} if dirty[1] is not None or (world.repo / dirty[0]).exists() else {})
    files, status = snapshot(world.repo), world.status()
    try:
        await merge(world.host, world.spec, built, kill_after(step))
    except DaemonKilled:
        pass
    outcome = await merge(world.host, world.spec, built)
    if isinstance(outcome, Blocked):
        assert (world.main(), snapshot(world.repo), world.status()) == (base, files, status)
        return
    assert outcome == CompletedMerge(base, built.commit), outcome
    assert (git(world.repo, "rev-parse", "main^{tree}"), world.main()) == (expected_tree, built.commit)
    dirty_files = {line[3:].strip('"') for line in status.splitlines()}
    now = snapshot(world.repo)
    assert {name: now.get(name) for name in dirty_files} == {name: files.get(name) for name in dirty_files}
    git(world.repo, "stash", "-q", "--include-untracked")
    assert git(world.repo, "rev-parse", "HEAD^{tree}") == expected_tree
    assert world.status() == ""
    kept_refs = git(world.repo, "for-each-ref", "--format=%(refname)", "--contains", world.spec.head, "refs/ao/landed")
    assert kept_refs.endswith(world.spec.head)
    other = git(world.repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "later")
    git(world.repo, "update-ref", "refs/heads/main", other)
    assert not isinstance(await merge(world.host, world.spec, built), MovedBase)
    assert world.main() == other


@settings(
    max_examples=example_count(0.25),
    suppress_health_check=list(HealthCheck),
)
@given(SIDES, STRATEGIES, EDIT, st.sampled_from(STEPS), st.booleans())
def test_any_history_is_merged_exactly_once_with_gits_result(
    sides: list[tuple[str, list[tuple[str, str | None]]]],
    strategy: Strategy,
    dirty: tuple[str, str | None],
    step: str,
    edits: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = make_world(Path(folder))
        play(world, sides)
        asyncio.run(check(world, strategy, dirty, step, edits))
