"""The slot Workspace: creates the folder and the branch that a session works in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from agent_orchestrator.protocols.host import LineCallback
from agent_orchestrator.protocols.records import record


@record
class WorkspaceSpec:
    """What a session's workspace is to be."""

    session: str
    repo: Path
    """The user's checkout, or the bare repository, that the workspace is created from."""
    path: Path
    """Where the workspace is to be: a folder that does not exist yet, or the unfinished one of an earlier attempt."""
    link: Path | None
    """Where a symlink to it is to be (`<repo>/.worktrees/<name>`), excluded from `git status`; None: no symlink."""
    private: Path
    """The session's private folder (`$AO_HOME/sessions/<id>`): hooks and similar files go here, never into the workspace."""
    branch: str
    base: str
    """Branch, tag or commit to start from. Of a branch and its remote branch, the newer one is used."""
    existing: bool = False
    """Continue `branch`, which exists; otherwise it is created and must not exist."""
    last: str = ""
    """Commit at which a branch to be continued was last seen: if the branch is gone, it is created again there."""
    copy: tuple[str, ...] = ()
    """Glob patterns relative to `repo`: copied into the workspace (`.env`)."""
    symlinks: tuple[str, ...] = ()
    """Paths relative to `repo`: shared with the main checkout (`node_modules`)."""
    sparse: tuple[str, ...] = ()
    """The only folders to check out, in addition to the files directly in their parent folders (Git's cone mode); empty: all."""
    post_create: tuple[str, ...] = ()
    """Shell commands run in the new workspace, in order, with `env`."""
    env: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    """URL that a separate clone has as `origin`; empty: the one that the repository itself has, or the repository."""
    fetch_timeout: float = 10.0


@record
class WorkspaceInfo:
    """A workspace that was created."""

    path: Path
    branch: str
    base: str
    """Name of the base branch as the project knows it (`main`)."""
    base_commit: str
    head: str
    git_dir: Path
    """Where this workspace's own HEAD is: its `logs/HEAD` is watched for commits."""
    notes: tuple[str, ...] = ()
    """What the person should know: offline base, signing switched off …"""
    git_env: Mapping[str, str] = field(default_factory=dict)
    """`GIT_CONFIG_*` variables that isolate this workspace's Git configuration and hooks."""
    shared: bool = True
    """Whether commits made in it are in the main repository at once; otherwise `publish` brings them there."""


class Workspace(ABC):
    """Creates and removes the folder a session works in."""

    @abstractmethod
    async def create(self, spec: WorkspaceSpec, report: LineCallback) -> WorkspaceInfo:
        """Create the workspace, or finish what an earlier attempt began; leave nothing behind on failure."""

    @abstractmethod
    async def publish(self, spec: WorkspaceSpec) -> None:
        """Bring the branch's commits into the main repository; no effect if they are there already."""

    @abstractmethod
    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove folder and symlink; the branch stays. The caller has made sure that no work in it is lost."""

    @abstractmethod
    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Remove what an interrupted attempt left, its new branch included; a finished workspace stays, and is returned."""
