"""Make the commit that would land: the branch's exact head merged onto the base's head, or onto what is to land before it, with no
checkout touched.

Whatever the strategy, the tree is that of merging head and base; strategies differ only in the commits that lead there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from agent_orchestrator.base.files.safe import NotPlain, parts_in_git
from agent_orchestrator.changes.merge.commits import Commit, Writer, read_commits
from agent_orchestrator.changes.merge.merge_tree import Merger, merging
from agent_orchestrator.changes.merge.message import distinct, message
from agent_orchestrator.changes.merge.model import Built, Conflicted, LandingSpec
from agent_orchestrator.changes.merge.records import landing_done
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.errors import Conflict, UsageError
from agent_orchestrator.protocols.host import Host


async def build(host: Host, spec: LandingSpec, on: str | None = None) -> Built | Conflicted:
    """Build a landing on a commit, or on the base as it is now; one that is done already is given back as it was done."""
    if spec.branch == spec.base:
        raise UsageError(f"{spec.branch} cannot land on itself", "name another base branch")
    repository = await open_repository(host, spec.repo, spec.branch, spec.base)
    base = await repository.base(spec.base)
    if on is not None:
        base = await repository.commit(on)
    head = await repository.commit(spec.head)
    done = await landing_done(repository, spec.session, head, base)
    if done is not None:
        same = done.base_before == done.commit
        return Built(done.commit, await repository.tree(done.commit), done.base_before, up_to_date=same)
    async with merging(repository, spec.work, base) as merger:
        merge = await merger.merge(base, head)
        if merge.conflicts:
            return Conflicted(merge.conflicts, base)
        if merge.tree == await repository.tree(base):
            return Built(base, merge.tree, base, up_to_date=True)
        await _judge_names(repository, base, merge.tree)
        writer = Writer(repository.git, await repository.git.config(), spec.work)
        commit = None
        if spec.strategy == "rebase":
            commits = await read_commits(repository.git, "--reverse", "--first-parent", f"{base}..{head}")
            replayed = await replay(repository, merger, writer, base, commits)
            # One that cannot be replayed while it merges had conflicts with the base solved in a merge of its own.
            if not isinstance(replayed, Conflicted) and replayed[1] == merge.tree:
                commit = replayed[0]
        commit = commit or await _one_commit(repository, writer, spec, base, head, merge.tree)
    return Built(commit, merge.tree, base, notes=tuple(writer.notes))


async def _judge_names(repository: Repository, base: str, tree: str) -> None:
    """Nothing lands that could not be checked out: a tree can be made by hand, with names in it that lead out of every checkout."""
    done = await repository.git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, tree, timeout=None)
    for name in filter(None, os.fsdecode(done.out).split("\0")):
        try:
            parts_in_git(name)
        except NotPlain as error:
            raise Conflict(f"it cannot land: {error}", "commit it anew without that file") from None


async def _one_commit(
    repository: Repository, writer: Writer, spec: LandingSpec, base: str, head: str, tree: str
) -> str:
    """A merge commit, or one commit with everything."""
    commits = await read_commits(repository.git, f"{base}..{head}")
    last = commits[0]
    author = spec.author or last.author
    if spec.strategy == "merge":
        text = message(spec.title, spec.body, fallback=f"Merge branch '{spec.branch}'")
        return await writer.write(tree, (base, head), text, author)
    everybody = [someone for commit in reversed(commits) for someone in (commit.author, *commit.others)]
    text = message(spec.title, spec.body, fallback=last.subject or spec.branch, others=distinct(everybody, author))
    return await writer.write(tree, (base,), text, author, last.date)


async def replay(
    repository: Repository, merger: Merger, writer: Writer, base: str, commits: Sequence[Commit]
) -> tuple[str, str] | Conflicted:
    """Commits one by one on top of the base: the last one and its tree. A merge counts as the change it brought."""
    tip, tree = base, await repository.tree(base)
    for commit in commits:
        replayed = await _tree_after(repository, merger, commit, tip, tree)
        if isinstance(replayed, Conflicted):
            return replayed
        if replayed == tree:
            continue
        if commit.parents == (tip,):
            tip = commit.id
        else:
            tip = await writer.write(replayed, (tip,), commit.message, commit.author, commit.date)
        tree = replayed
    return tip, tree


async def _tree_after(repository: Repository, merger: Merger, commit: Commit, tip: str, tree: str) -> str | Conflicted:
    parent = commit.parents[0] if commit.parents else None
    if parent is not None and await repository.tree(parent) == tree:
        return commit.tree
    merge = await merger.apply(parent, commit.id, tip)
    return Conflicted(merge.conflicts, tip) if merge.conflicts else merge.tree
