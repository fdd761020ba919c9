"""Where a branch starts: the freshest of the local base and its remote's, fetched within a time limit, or what is here."""

from __future__ import annotations

import asyncio
import difflib
import time
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from agent_orchestrator.base.git.commands import Config, Git
from agent_orchestrator.base.git.refs import Layout, read_refs
from agent_orchestrator.errors import AoError, Conflict, NotFound
from agent_orchestrator.protocols import WorkspaceSpec

FRESH_FOR = 30.0
"""Seconds for which one fetch of a branch serves every creation, also one that failed."""


@dataclass(slots=True)
class Start:
    """Where the workspace's branch begins."""

    commit: str
    base_commit: str
    new_branch: bool
    notes: list[str] = field(default_factory=list)


_fetched: dict[tuple[str, str, str], tuple[float, str]] = {}
_fetching: dict[tuple[str, str, str], asyncio.Task[str]] = {}


async def fetch_branch(git: Git, layout: Layout, remote: str, branch: str, config: Config, timeout: float) -> str:
    """Bring `refs/remotes/<remote>/<branch>` up to date; returns why that failed, or nothing. One fetch serves all who ask."""
    key = (str(layout.common), remote, branch)
    at, outcome = _fetched.get(key, (-FRESH_FOR, ""))
    if time.monotonic() - at < FRESH_FOR:
        return outcome
    task = _fetching.get(key)
    if task is None:
        task = _fetching[key] = asyncio.create_task(_fetch(git, key, config, timeout))
        task.add_done_callback(lambda _: _fetching.pop(key, None))
    return await asyncio.shield(task)


async def _fetch(git: Git, key: tuple[str, str, str], config: Config, timeout: float) -> str:
    _, remote, branch = key
    outcome = ""
    try:
        await git.fetch(
            remote, [f"+refs/heads/{branch}:refs/remotes/{remote}/{branch}"], timeout=timeout, config=config
        )
    except AoError as error:
        outcome = error.text
    for old in [old for old, (at, _) in _fetched.items() if time.monotonic() - at > FRESH_FOR]:
        del _fetched[old]
    _fetched[key] = (time.monotonic(), outcome)
    return outcome


def remote_of(branch: str, config: Config) -> tuple[str, str] | None:
    """The remote and the name there that a local branch goes with: its upstream's, else `origin`'s of the same name."""
    remote = config.last(f"branch.{branch}.remote")
    merge = config.last(f"branch.{branch}.merge")
    if remote and remote != "." and merge and config.last(f"remote.{remote}.url"):
        return remote, merge.removeprefix("refs/heads/")
    return ("origin", branch) if config.last("remote.origin.url") else None


def _remote_named(name: str, config: Config) -> tuple[str, str] | None:
    """`origin/main` → (`origin`, `main`), if there is such a remote."""
    name = name.removeprefix("refs/remotes/").removeprefix("remotes/")
    found = [remote for remote in _remotes(config) if name.startswith(f"{remote}/")]
    return max(((remote, name[len(remote) + 1 :]) for remote in found), key=lambda pair: len(pair[0]), default=None)


def _remotes(config: Config) -> list[str]:
    return [key[len("remote.") : -len(".url")] for key in config if key.startswith("remote.") and key.endswith(".url")]


async def choose_start(git: Git, layout: Layout, spec: WorkspaceSpec, config: Config, refs: dict[str, str]) -> Start:
    """Find the commit to begin at; `refs` are those of `wanted_refs`."""
    if spec.existing:
        return await _continued(git, layout, spec, config, refs)
    notes: list[str] = []
    commit = await _freshest(git, layout, spec, config, refs, notes)
    return Start(commit, commit, True, notes)


async def wanted_refs(git: Git, layout: Layout, spec: WorkspaceSpec, *more: str) -> dict[str, str]:
    """All refs that a decision needs: the base, whatever stands in the branch's way, and `more`."""
    base, own = spec.base.removeprefix("refs/heads/"), f"refs/heads/{spec.branch}"
    above = [f"refs/heads/{one}" for one in map(str, PurePosixPath(spec.branch).parents) if one != "."]
    names = (own, *above, f"refs/heads/{base}", f"refs/remotes/origin/{base}", *more)
    found = await asyncio.to_thread(read_refs, layout.common, names, own)
    return await git.refs(*names) if found is None else found


async def _continued(git: Git, layout: Layout, spec: WorkspaceSpec, config: Config, refs: dict[str, str]) -> Start:
    notes: list[str] = []
    local = refs.get(f"refs/heads/{spec.branch}")
    commit = local
    if commit is None:
        remote = remote_of(spec.branch, config)
        if remote is not None:
            failed = await fetch_branch(git, layout, *remote, config, spec.fetch_timeout)
            commit = await git.resolve(f"refs/remotes/{remote[0]}/{remote[1]}")
            if commit and failed:
                notes.append(
                    f"offline: {spec.branch} could not be fetched from {remote[0]} ({failed}); it is as last fetched"
                )
    if commit is None and spec.last:
        commit = await git.resolve(f"{spec.last}^{{commit}}")
        notes.append(f"branch {spec.branch} was gone: it was made anew at {spec.last[:8]}, where it was last seen")
    if commit is None:
        raise await _not_found(git, "branch", spec.branch, spec.repo)
    base = await git.resolve(f"refs/heads/{spec.base}") or await git.resolve(spec.base)
    base_commit = await git.merge_base(base, commit) if base else None
    return Start(commit, base_commit or base or commit, local is None, notes)


async def _freshest(
    git: Git, layout: Layout, spec: WorkspaceSpec, config: Config, refs: dict[str, str], notes: list[str]
) -> str:
    name = spec.base.removeprefix("refs/heads/")
    local = refs.get(f"refs/heads/{name}")
    remote = remote_of(name, config) if local else None
    if local is None:
        remote = _remote_named(name, config)
        if remote is None and config.last("remote.origin.url") and f"refs/remotes/origin/{name}" in refs:
            remote = ("origin", name)
    if remote is None:
        return local or await git.resolve(spec.base) or await _only_there(git, layout, spec, config)
    failed = await fetch_branch(git, layout, *remote, config, spec.fetch_timeout)
    theirs = await git.resolve(f"refs/remotes/{remote[0]}/{remote[1]}")
    commit = await _newer(git, local, theirs, name, remote[0], notes)
    if commit is None:
        raise await _not_found(git, "base", spec.base, spec.repo)
    if failed and not (theirs is None and "couldn't find remote ref" in failed):
        notes.append(await _offline(git, commit, name, remote[0], failed))
    return commit


async def _newer(
    git: Git, local: str | None, theirs: str | None, name: str, remote: str, notes: list[str]
) -> str | None:
    if local is None or theirs is None or local == theirs:
        return theirs or local
    if await git.is_ancestor(local, theirs):
        return theirs
    if not await git.is_ancestor(theirs, local):
        notes.append(f"{name} and {remote}/{name} have diverged: {remote}/{name} was taken as the base")
        return theirs
    return local


async def _only_there(git: Git, layout: Layout, spec: WorkspaceSpec, config: Config) -> str:
    """A base that nothing here knows: the remote may."""
    if config.last("remote.origin.url"):
        await fetch_branch(git, layout, "origin", spec.base, config, spec.fetch_timeout)
        commit = await git.resolve(f"refs/remotes/origin/{spec.base}")
        if commit:
            return commit
    raise await _not_found(git, "base", spec.base, spec.repo)


async def _offline(git: Git, commit: str, name: str, remote: str, why: str) -> str:
    age = time.time() - int(await git.text("show", "-s", "--format=%ct", "--end-of-options", commit))
    return f"offline: {name} could not be fetched from {remote} ({why}); the base is {in_words(age)} old"


def in_words(seconds: float) -> str:
    """A length of time for a person: `3 days`."""
    for size, word in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {word}{'s' if count > 1 else ''}"
    return "less than a minute"


async def _not_found(git: Git, what: str, name: str, repo: object) -> AoError:
    refs = await git.refs("refs/heads", "refs/remotes", "refs/tags")
    if not refs and await git.resolve("HEAD") is None:
        return Conflict(
            f"{repo} has no commit yet", "make a first commit, for instance: git commit --allow-empty -m 'Start'"
        )
    names = sorted({"/".join(ref.split("/")[2:]) for ref in refs})
    near = difflib.get_close_matches(name, names, 3, 0.5)
    remedy = f"nearest: {', '.join(near)}" if near else "git branch --all lists what there is"
    return NotFound(f"{repo} has no {what} {name!r}", remedy)
