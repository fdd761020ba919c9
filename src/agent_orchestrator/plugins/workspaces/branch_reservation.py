"""The main repository's part of making a workspace on another machine: its branch and start point are made here.

The other machine then continues an existing branch, from what it fetched of this repository.
"""

from __future__ import annotations

import asyncio

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.errors import Conflict, NotFound
from agent_orchestrator.plugins.workspaces.branch_publication import delete_refs, published_ref
from agent_orchestrator.plugins.workspaces.git_workspace import check_names, effective_config
from agent_orchestrator.plugins.workspaces.start_point import SourceRepository, StartPoint, find_start, relevant_refs
from agent_orchestrator.protocols import WorkspaceSpec


async def reserve(main: Git, spec: WorkspaceSpec) -> StartPoint:
    """Return where the session's branch begins, with its base as fresh as possible, and make the branch; safe to repeat.

    Raises `NotFound` if there is no repository, `Conflict` if the branch cannot be made.
    """
    check_names(spec)
    layout = await main.layout()
    if layout is None:
        raise NotFound(f"{spec.repo} is not a Git repository", "give a repository, or make one with git init")
    branch_ref, mark_ref = f"refs/heads/{spec.branch}", published_ref(spec.session)
    config, refs = await asyncio.gather(effective_config(main, layout), relevant_refs(main, layout, spec, mark_ref))
    marked_commit = refs.pop(mark_ref, None)
    start = await find_start(
        SourceRepository(main, layout, config), spec, refs, continued=marked_commit is not None and branch_ref in refs
    )
    if not start.new_branch:
        if marked_commit is None:
            await main.update_ref(mark_ref, start.commit, reason="ao: new session")
        return start
    try:
        await main.update_refs(
            [f"create {branch_ref} {start.commit}", f"update {mark_ref} {start.commit}"], "ao: new session"
        )
    except GitFailed as error:
        raise Conflict(
            f"branch {spec.branch} could not be made: {error.text}", "choose another with --branch"
        ) from None
    return start


async def release(main: Git, spec: WorkspaceSpec, start: StartPoint) -> None:
    """Remove the branch after the workspace could not be made, if the branch was made for it and has no new commits."""
    branch_ref = f"refs/heads/{spec.branch}"
    if start.new_branch and (await main.refs(branch_ref)).get(branch_ref) == start.commit:
        await main.delete_ref(branch_ref, start.commit)
    await delete_refs(main, spec.session)
