"""What keeps one agent's Git configuration and hooks from another and from the user: variables that every Git it starts obeys."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from agent_orchestrator.base.git.commands import LFS_OFF, SPARSE, Config
from agent_orchestrator.base.git.refs import Layout
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.protocols.host import Host


def git_environment(
    host: Host, spec: WorkspaceSpec, layout: Layout, config: Config, notes: list[str]
) -> dict[str, str]:
    """Pin hooks and identity as they are now, switch off what would ask for a passphrase or collect shared objects."""
    pinned: list[tuple[str, str]] = [("core.hooksPath", _hooks(spec, layout, config))]
    for key in ("user.name", "user.email"):
        value = config.last(key)
        if value:
            pinned.append((key, value))
    signing = [key for key in ("commit.gpgsign", "tag.gpgsign") if config.true(key)]
    if signing:
        pinned += [(key, "false") for key in ("commit.gpgsign", "tag.gpgsign")]
        notes.append(f"signing is switched off for the agent ({', '.join(signing)} would ask for a passphrase)")
    # A rebase that moves other branches along is not on the own branch alone.
    pinned += [("gc.auto", "0"), ("maintenance.auto", "false"), ("rebase.updateRefs", "false")]
    # A folder with the files of a bare repository is none by that: anybody who may write files could make one, and name programs in it.
    pinned.append(("safe.bareRepository", "explicit"))
    if spec.sparse:
        pinned += [(key, value) for key, _, value in (setting.partition("=") for setting in SPARSE)]
    if "filter.lfs.clean" in config and not host.which("git-lfs"):
        pinned += [(key, value) for key, _, value in (setting.partition("=") for setting in LFS_OFF)]
        notes.append("git-lfs is not installed: large files stay pointers")
    variables = {"GIT_CONFIG_COUNT": str(len(pinned))}
    for number, (key, value) in enumerate(pinned):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def _hooks(spec: WorkspaceSpec, layout: Layout, config: Config) -> str:
    """The folder for the agent's hooks: the workspace's own tracked one, or a private copy of what the user has."""
    named = config.last("core.hookspath")
    if named and not Path(named).expanduser().is_absolute() and ".." not in Path(named).parts:
        return named
    source = layout.common / "hooks"
    if named:
        source = Path(os.path.normpath((layout.top or layout.common) / Path(named).expanduser()))
    private = spec.private / "hooks"
    forget_hooks(spec)
    private.mkdir(mode=0o700, parents=True)
    if source.is_dir() and str(source) != os.devnull:
        _copy_hooks(source, private)
    return str(private)


def _copy_hooks(source: Path, private: Path) -> None:
    """Copy what links point to, for a relative link would point elsewhere from the copy; examples stay behind."""
    for entry in source.iterdir():
        if entry.is_file() and entry.suffix != ".sample":
            shutil.copy(entry, private / entry.name)
        elif entry.is_dir():
            shutil.copytree(entry, private / entry.name, symlinks=True)


def forget_hooks(spec: WorkspaceSpec) -> None:
    """Remove the private copy."""
    shutil.rmtree(spec.private / "hooks", ignore_errors=True)
