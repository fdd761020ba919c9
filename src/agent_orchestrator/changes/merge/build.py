"""Make the merge commit of a branch's exact head and the base's head, or the commit that is to merge before it, without a checkout.

With every strategy the tree is that of merging head and base; strategies differ only in the commits that lead to it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from agent_orchestrator.base.files.safe import UnsafePath, git_path_parts
from agent_orchestrator.changes.merge.commit_message import distinct_people, merge_message
from agent_orchestrator.changes.merge.commits import Commit, CommitWriter, read_commits
from agent_orchestrator.changes.merge.merge_records import find_recorded_merge
from agent_orchestrator.changes.merge.merge_tree import Merger, open_merger
from agent_orchestrator.changes.merge.model import BuiltMerge, Conflicted, MergeSpec
from agent_orchestrator.changes.merge.repository import Repository, open_repository
from agent_orchestrator.errors import Conflict, UsageError
from agent_orchestrator.protocols.host import Host


async def build_merge(host: Host, spec: MergeSpec, on: str | None = None) -> BuiltMerge | Conflicted:
    """Build a merge on a commit, or on the present head of the base.

    If it has merged already, that merge is returned. Raises `UsageError` if branch and base are the same.
    """
    if spec.branch == spec.base:
        raise UsageError(f"{spec.branch} cannot land on itself", "name another base branch")
    repository = await open_repository(host, spec.repo, spec.branch, spec.base)
    base = await repository.base_head(spec.base)
    if on is not None:
        base = await repository.resolve_commit(on)
    head = await repository.resolve_commit(spec.head)
    earlier_merge = await find_recorded_merge(repository, spec.session, head, base)
    if earlier_merge is not None:
        is_unchanged = earlier_merge.base_before == earlier_merge.commit
        return BuiltMerge(
            earlier_merge.commit,
            await repository.tree(earlier_merge.commit),
            earlier_merge.base_before,
            up_to_date=is_unchanged,
        )
    async with open_merger(repository, spec.work, base) as merger:
        merge = await merger.merge(base, head)
        if merge.conflicts:
            return Conflicted(merge.conflicts, base)
        if merge.tree == await repository.tree(base):
            return BuiltMerge(base, merge.tree, base, up_to_date=True)
        await _check_paths(repository, base, merge.tree)
        writer = CommitWriter(repository.git, await repository.git.config(), spec.work)
        commit = None
        if spec.strategy == "rebase":
            commits = await read_commits(repository.git, "--reverse", "--first-parent", f"{base}..{head}")
            replayed = await replay(repository, merger, writer, base, commits)
            # A branch that merges but cannot be replayed contains a merge that resolved conflicts with the base.
            if not isinstance(replayed, Conflicted) and replayed[1] == merge.tree:
                commit = replayed[0]
        commit = commit or await _write_commit(repository, writer, spec, base, head, merge.tree)
    return BuiltMerge(commit, merge.tree, base, notes=tuple(writer.notes))


async def _check_paths(repository: Repository, base: str, tree: str) -> None:
    """Raise `Conflict` if a tree has a path that cannot be checked out.

    A tree can be made by hand, with names in it that lead outside of every checkout.
    """
    result = await repository.git.run("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, tree, timeout=None)
    for name in filter(None, os.fsdecode(result.out).split("\0")):
        try:
            git_path_parts(name)
        except UnsafePath as error:
            raise Conflict(f"it cannot land: {error}", "commit it anew without that file") from None


async def _write_commit(
    repository: Repository, writer: CommitWriter, spec: MergeSpec, base: str, head: str, tree: str
) -> str:
    """Write the merge commit, or the one commit with all changes, and return its id."""
    commits = await read_commits(repository.git, f"{base}..{head}")
    last_commit = commits[0]
    author = spec.author or last_commit.author
    if spec.strategy == "merge":
        message_text = merge_message(spec.title, spec.body, fallback=f"Merge branch '{spec.branch}'")
        return await writer.write(tree, (base, head), message_text, author)
    authors = [
        author_of_commit for commit in reversed(commits) for author_of_commit in (commit.author, *commit.co_authors)
    ]
    message_text = merge_message(
        spec.title, spec.body, fallback=last_commit.subject or spec.branch, others=distinct_people(authors, author)
    )
    return await writer.write(tree, (base,), message_text, author, last_commit.date)


async def replay(
    repository: Repository, merger: Merger, writer: CommitWriter, base: str, commits: Sequence[Commit]
) -> tuple[str, str] | Conflicted:
    """Replay commits one by one on top of the base; return the last one and its tree.

    A merge commit counts as the change that it brought.
    """
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
    """Return the tree after one commit is replayed on top of `tip`, or the conflicts."""
    parent = commit.parents[0] if commit.parents else None
    if parent is not None and await repository.tree(parent) == tree:
        return commit.tree
    merge = await merger.apply(parent, commit.id, tip)
    return Conflicted(merge.conflicts, tip) if merge.conflicts else merge.tree
