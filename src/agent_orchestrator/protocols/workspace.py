"""The slot Workspace: makes the folder and the branch that a session works in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Protocol, runtime_checkable

from agent_orchestrator.protocols.host import Report
from agent_orchestrator.protocols.records import record


@record
class WorkspaceSpec:
    """What a session's folder is to be."""

    session: str
    repo: Path
    """The user's checkout, or the bare repository, that the workspace is made from."""
    path: Path
    """Where the workspace is to be: a folder that does not exist yet, or the unfinished one of an earlier try."""
    link: Path | None
    """Where a symlink to it is to be (`<repo>/.worktrees/<name>`), kept out of `git status`; none: no symlink."""
    private: Path
    """The session's private folder (`$AO_HOME/sessions/<id>`): hooks and the like go here, never into the workspace."""
    branch: str
    base: str
    """Branch, tag or commit to start from. For a branch with a remote the freshest of both is taken."""
    existing: bool = False
    """Continue `branch`, which exists; otherwise it is made and must not exist."""
    last: str = ""
    """Commit at which a branch to be continued was last seen: if it is gone, it is made anew there."""
    copy: tuple[str, ...] = ()
    """Glob patterns relative to `repo`: copied into the workspace (`.env`)."""
    symlinks: tuple[str, ...] = ()
    """Paths relative to `repo`: shared with the main checkout (`node_modules`)."""
    sparse: tuple[str, ...] = ()
    """The only folders to check out, beside the files on the way to them (Git's cone mode); nothing: all."""
    post_create: tuple[str, ...] = ()
    """Shell commands run in the new workspace, in order, with `env`."""
    env: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    """Address that a clone of its own has as `origin`; nothing: what the repository itself has, or is."""
    fetch_timeout: float = 10.0


@record
class WorkspaceInfo:
    """The workspace that was made."""

    path: Path
    branch: str
    base: str
    """Name of the base branch as the project knows it (`main`)."""
    base_commit: str
    head: str
    git_dir: Path
    """Where this workspace's own HEAD lives: its `logs/HEAD` is watched for commits."""
    notes: tuple[str, ...] = ()
    """What the person should know: offline base, signing switched off …"""
    git_env: Mapping[str, str] = field(default_factory=dict)
    """`GIT_CONFIG_*` variables that isolate this workspace's Git configuration and hooks."""
    shared: bool = True
    """Commits made in it are in the main repository at once; otherwise `publish` brings them there."""


@runtime_checkable
class Workspace(Protocol):
    """Makes and removes the folder a session works in."""

    async def create(self, spec: WorkspaceSpec, report: Report) -> WorkspaceInfo:
        """Make the workspace, or finish what an earlier try began; leave nothing behind on failure."""
        ...

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Bring the branch's commits into the main repository; nothing to do where they are there already."""
        ...

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove folder and symlink; the branch stays. The caller has made sure that nothing in it is lost."""
        ...

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Take away what a try that was cut short left, its new branch included; a finished workspace stays, and is told."""
        ...
