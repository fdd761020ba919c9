"""Chooses the commit at which a branch starts: the newer of the local base and its remote's, fetched within a time limit.

If the remote cannot be reached, the base as last fetched is used and a note says so.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import Layout, read_refs
from agent_orchestrator.base.git.settings import GitConfig
from agent_orchestrator.errors import AoError, Conflict, NotFound
from agent_orchestrator.protocols import WorkspaceSpec

FETCH_CACHE_SECONDS = 30.0
"""Seconds for which one fetch of a branch serves every workspace, also a failed fetch."""


@dataclass(frozen=True, slots=True)
class SourceRepository:
    """The repository that a workspace is made from."""

    git: Git
    layout: Layout
    config: GitConfig


@dataclass(slots=True)
class StartPoint:
    """The commit at which a workspace's branch begins."""

    commit: str
    base_commit: str
    new_branch: bool
    notes: list[str] = field(default_factory=list)


_fetch_outcomes: dict[tuple[str, str, str], tuple[float, str]] = {}
_pending_fetches: dict[tuple[str, str, str], asyncio.Task[str]] = {}


async def fetch_branch(git: Git, layout: Layout, remote: str, branch: str, config: GitConfig, timeout: float) -> str:
    """Update `refs/remotes/<remote>/<branch>`; return the reason if that failed, or "". Simultaneous callers share one fetch."""
    key = (str(layout.common), remote, branch)
    fetched_at, outcome = _fetch_outcomes.get(key, (-FETCH_CACHE_SECONDS, ""))
    if time.monotonic() - fetched_at < FETCH_CACHE_SECONDS:
        return outcome
    task = _pending_fetches.get(key)
    if task is None:
        task = _pending_fetches[key] = asyncio.create_task(_fetch(git, key, config, timeout))
        task.add_done_callback(lambda _: _pending_fetches.pop(key, None))
    return await asyncio.shield(task)


async def _fetch(git: Git, key: tuple[str, str, str], config: GitConfig, timeout: float) -> str:
    """Fetch one branch, store the outcome for `FETCH_CACHE_SECONDS` and return it: the error text, or ""."""
    _, remote, branch = key
    outcome = ""
    try:
        await git.fetch(
            remote, [f"+refs/heads/{branch}:refs/remotes/{remote}/{branch}"], timeout=timeout, config=config
        )
    except AoError as error:
        outcome = error.text
    for expired in [
        expired
        for expired, (fetched_at, _) in _fetch_outcomes.items()
        if time.monotonic() - fetched_at > FETCH_CACHE_SECONDS
    ]:
        del _fetch_outcomes[expired]
    _fetch_outcomes[key] = (time.monotonic(), outcome)
    return outcome


def remote_of(branch: str, config: GitConfig) -> tuple[str, str] | None:
    """Return the remote and the branch there that a local branch tracks; otherwise `origin` and the same name, or None."""
    remote = config.effective_value(f"branch.{branch}.remote")
    merge = config.effective_value(f"branch.{branch}.merge")
    if remote and remote != "." and merge and config.effective_value(f"remote.{remote}.url"):
        return remote, merge.removeprefix("refs/heads/")
    return ("origin", branch) if config.effective_value("remote.origin.url") else None


def _split_remote_name(name: str, config: GitConfig) -> tuple[str, str] | None:
    """Split a remote branch's name: `origin/main` → (`origin`, `main`); None if there is no such remote."""
    name = name.removeprefix("refs/remotes/").removeprefix("remotes/")
    matching_remotes = [remote for remote in _remote_names(config) if name.startswith(f"{remote}/")]
    return max(
        ((remote, name[len(remote) + 1 :]) for remote in matching_remotes), key=lambda pair: len(pair[0]), default=None
    )


def _remote_names(config: GitConfig) -> list[str]:
    """Return the names of the configured remotes."""
    return [key[len("remote.") : -len(".url")] for key in config if key.startswith("remote.") and key.endswith(".url")]


async def choose_start(
    git: Git, layout: Layout, spec: WorkspaceSpec, config: GitConfig, refs: dict[str, str]
) -> StartPoint:
    """Return where the workspace's branch starts; `refs` are those of `relevant_refs`."""
    if spec.existing:
        return await _continued_start(git, layout, spec, config, refs)
    notes: list[str] = []
    commit = await _newest_base(git, layout, spec, config, refs, notes)
    return StartPoint(commit, commit, True, notes)


async def relevant_refs(git: Git, layout: Layout, spec: WorkspaceSpec, *more: str) -> dict[str, str]:
    """Return all refs that the choice needs: the base, those that block the branch's name, and `more`."""
    base, branch_ref = spec.base.removeprefix("refs/heads/"), f"refs/heads/{spec.branch}"
    parent_refs = [f"refs/heads/{parent}" for parent in map(str, PurePosixPath(spec.branch).parents) if parent != "."]
    names = (branch_ref, *parent_refs, f"refs/heads/{base}", f"refs/remotes/origin/{base}", *more)
    refs = await asyncio.to_thread(read_refs, layout.common, names, branch_ref)
    return await git.refs(*names) if refs is None else refs


async def _continued_start(
    git: Git, layout: Layout, spec: WorkspaceSpec, config: GitConfig, refs: dict[str, str]
) -> StartPoint:
    """Return the start of a branch that is continued: local, fetched from its remote, or recreated at its last known commit."""
    notes: list[str] = []
    local = refs.get(f"refs/heads/{spec.branch}")
    commit = local
    if commit is None:
        remote = remote_of(spec.branch, config)
        if remote is not None:
            fetch_error = await fetch_branch(git, layout, *remote, config, spec.fetch_timeout)
            commit = await git.resolve(f"refs/remotes/{remote[0]}/{remote[1]}")
            if commit and fetch_error:
                notes.append(
                    f"offline: {spec.branch} could not be fetched from {remote[0]} ({fetch_error}); it is as last fetched"
                )
    if commit is None and spec.last:
        commit = await git.resolve(f"{spec.last}^{{commit}}")
        notes.append(f"branch {spec.branch} was gone: it was made anew at {spec.last[:8]}, where it was last seen")
    if commit is None:
        raise await _not_found_error(git, "branch", spec.branch, spec.repo)
    base = await git.resolve(f"refs/heads/{spec.base}") or await git.resolve(spec.base)
    base_commit = await git.merge_base(base, commit) if base else None
    return StartPoint(commit, base_commit or base or commit, local is None, notes)


async def _newest_base(
    git: Git, layout: Layout, spec: WorkspaceSpec, config: GitConfig, refs: dict[str, str], notes: list[str]
) -> str:
    """Return the newest commit of the base; fetches its remote, and adds a note if that fails."""
    name = spec.base.removeprefix("refs/heads/")
    local = refs.get(f"refs/heads/{name}")
    remote = remote_of(name, config) if local else None
    if local is None:
        remote = _split_remote_name(name, config)
        if remote is None and config.effective_value("remote.origin.url") and f"refs/remotes/origin/{name}" in refs:
            remote = ("origin", name)
    if remote is None:
        return local or await git.resolve(spec.base) or await _fetch_unknown_base(git, layout, spec, config)
    fetch_error = await fetch_branch(git, layout, *remote, config, spec.fetch_timeout)
    remote_commit = await git.resolve(f"refs/remotes/{remote[0]}/{remote[1]}")
    commit = await _newer_commit(git, local, remote_commit, name, remote[0], notes)
    if commit is None:
        raise await _not_found_error(git, "base", spec.base, spec.repo)
    if fetch_error and not (remote_commit is None and "couldn't find remote ref" in fetch_error):
        notes.append(await _offline_note(git, commit, name, remote[0], fetch_error))
    return commit


async def _newer_commit(
    git: Git, local: str | None, remote_commit: str | None, name: str, remote: str, notes: list[str]
) -> str | None:
    """Return the newer of two commits; the remote's, with a note, if they have diverged."""
    if local is None or remote_commit is None or local == remote_commit:
        return remote_commit or local
    if await git.is_ancestor(local, remote_commit):
        return remote_commit
    if not await git.is_ancestor(remote_commit, local):
        notes.append(f"{name} and {remote}/{name} have diverged: {remote}/{name} was taken as the base")
        return remote_commit
    return local


async def _fetch_unknown_base(git: Git, layout: Layout, spec: WorkspaceSpec, config: GitConfig) -> str:
    """Fetch a base that is not known locally from `origin` and return its commit. Raises `NotFound`."""
    if config.effective_value("remote.origin.url"):
        await fetch_branch(git, layout, "origin", spec.base, config, spec.fetch_timeout)
        commit = await git.resolve(f"refs/remotes/origin/{spec.base}")
        if commit:
            return commit
    raise await _not_found_error(git, "base", spec.base, spec.repo)


async def _offline_note(git: Git, commit: str, name: str, remote: str, reason: str) -> str:
    """Return the note that the base could not be fetched, with its age."""
    age = time.time() - int(await git.text("show", "-s", "--format=%ct", "--end-of-options", commit))
    return f"offline: {name} could not be fetched from {remote} ({reason}); the base is {format_age(age)} old"


def format_age(seconds: float) -> str:
    """Return a duration as text for people: `3 days`."""
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return "less than a minute"


async def _not_found_error(git: Git, kind: str, name: str, repo: object) -> AoError:
    """Return the error for a missing branch or base, with similar names; another one if there is no commit at all."""
    refs = await git.refs("refs/heads", "refs/remotes", "refs/tags")
    if not refs and await git.resolve("HEAD") is None:
        return Conflict(
            f"{repo} has no commit yet", "make a first commit, for instance: git commit --allow-empty -m 'Start'"
        )
    names = sorted({"/".join(ref.split("/")[2:]) for ref in refs})
    similar = difflib.get_close_matches(name, names, 3, 0.5)
    remedy = f"nearest: {', '.join(similar)}" if similar else "git branch --all lists what there is"
    return NotFound(f"{repo} has no {kind} {name!r}", remedy)


async def find_start(
    source: SourceRepository, spec: WorkspaceSpec, refs: dict[str, str], *, continued: bool
) -> StartPoint:
    """Return where the branch begins: at its tip if it is continued, otherwise at its base. Raises `Conflict` if it cannot be made."""
    branch_ref = f"refs/heads/{spec.branch}"
    if continued:
        commit = refs[branch_ref]
        return StartPoint(commit, await source.git.merge_base(spec.base, commit) or commit, False)
    if not spec.existing and branch_ref in refs:
        raise Conflict(
            f"branch {spec.branch} exists already in {spec.repo}",
            f"continue it with --branch {spec.branch}, or choose another name with --name",
        )
    for ref in refs:
        if branch_ref not in refs and (branch_ref.startswith(f"{ref}/") or ref.startswith(f"{branch_ref}/")):
            other = ref.removeprefix("refs/heads/")
            raise Conflict(
                f"branch {spec.branch} cannot be beside branch {other}: Git keeps one as a folder of the other",
                "choose another name with --branch",
            )
    return await choose_start(source.git, source.layout, spec, source.config, refs)
