"""The main repository's half of making a workspace on another machine: its branch is made here, where it begins is decided here.

The other machine then continues a branch that exists, from what it fetched of this repository.
"""

from __future__ import annotations

import asyncio

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.errors import Conflict, NotFound
from agent_orchestrator.plugins.workspaces.branch_publication import forget, published_ref
from agent_orchestrator.plugins.workspaces.git_workspace import Source, check_names, config_of, find_start
from agent_orchestrator.plugins.workspaces.start_point import Start, wanted_refs
from agent_orchestrator.protocols import WorkspaceSpec


async def reserve(main: Git, spec: WorkspaceSpec) -> Start:
    """Find where the session's branch begins, its base as fresh as it can be had, and make it; safe to repeat."""
    check_names(spec)
    layout = await main.layout()
    if layout is None:
        raise NotFound(f"{spec.repo} is not a Git repository", "give a repository, or make one with git init")
    name, mark = f"refs/heads/{spec.branch}", published_ref(spec.session)
    config, refs = await asyncio.gather(config_of(main, layout), wanted_refs(main, layout, spec, mark))
    ours = refs.pop(mark, None)
    start = await find_start(Source(main, layout, config), spec, refs, continued=ours is not None and name in refs)
    if not start.new_branch:
        if ours is None:
            await main.update_ref(mark, start.commit, reason="ao: new session")
        return start
    try:
        await main.update_refs([f"create {name} {start.commit}", f"update {mark} {start.commit}"], "ao: new session")
    except GitFailed as error:
        raise Conflict(
            f"branch {spec.branch} could not be made: {error.text}", "choose another with --branch"
        ) from None
    return start


async def release(main: Git, spec: WorkspaceSpec, start: Start) -> None:
    """The workspace could not be made: take the branch away again, if it was made for it and has not grown."""
    name = f"refs/heads/{spec.branch}"
    if start.new_branch and (await main.refs(name)).get(name) == start.commit:
        await main.delete_ref(name, start.commit)
    await forget(main, spec.session)
