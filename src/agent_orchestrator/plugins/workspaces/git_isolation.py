"""Keeps one agent's Git configuration and hooks apart from others and from the user's: environment variables for every Git it starts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from agent_orchestrator.base.git.refs import Layout
from agent_orchestrator.base.git.settings import LFS_OFF_CONFIG, SPARSE_CHECKOUT_CONFIG, GitConfig
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.protocols.host import Host


def git_environment(
    host: Host, spec: WorkspaceSpec, layout: Layout, config: GitConfig, notes: list[str]
) -> dict[str, str]:
    """Return variables that fix hooks and identity at their current values, and switch off what would ask for a passphrase.

    They also switch off Git's automatic maintenance, which would collect shared objects.
    """
    settings: list[tuple[str, str]] = [("core.hooksPath", _hooks_folder(spec, layout, config))]
    for key in ("user.name", "user.email"):
        value = config.effective_value(key)
        if value:
            settings.append((key, value))
    signing = [key for key in ("commit.gpgsign", "tag.gpgsign") if config.is_true(key)]
    if signing:
        settings += [(key, "false") for key in ("commit.gpgsign", "tag.gpgsign")]
        notes.append(f"signing is switched off for the agent ({', '.join(signing)} would ask for a passphrase)")
    # `rebase.updateRefs` would move branches other than the session's own.
    settings += [("gc.auto", "0"), ("maintenance.auto", "false"), ("rebase.updateRefs", "false")]
    # Ignore bare repositories inside folders: an agent that writes files could make one that names programs to run.
    settings.append(("safe.bareRepository", "explicit"))
    if spec.sparse:
        settings += [(key, value) for key, _, value in (setting.partition("=") for setting in SPARSE_CHECKOUT_CONFIG)]
    if "filter.lfs.clean" in config and not host.which("git-lfs"):
        settings += [(key, value) for key, _, value in (setting.partition("=") for setting in LFS_OFF_CONFIG)]
        notes.append("git-lfs is not installed: large files stay pointers")
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings):
        variables[f"GIT_CONFIG_KEY_{number}"] = key
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def _hooks_folder(spec: WorkspaceSpec, layout: Layout, config: GitConfig) -> str:
    """Return the folder for the agent's hooks: the workspace's own tracked one, or a private copy of the user's."""
    configured_path = config.effective_value("core.hookspath")
    if (
        configured_path
        and not Path(configured_path).expanduser().is_absolute()
        and ".." not in Path(configured_path).parts
    ):
        return configured_path
    source = layout.common / "hooks"
    if configured_path:
        source = Path(os.path.normpath((layout.top or layout.common) / Path(configured_path).expanduser()))
    private = spec.private / "hooks"
    forget_hooks(spec)
    private.mkdir(mode=0o700, parents=True)
    if source.is_dir() and str(source) != os.devnull:
        _copy_hooks(source, private)
    return str(private)


def _copy_hooks(source: Path, private: Path) -> None:
    """Copy the hooks, following links (a relative one would lead elsewhere from the copy); examples are left out."""
    for entry in source.iterdir():
        if entry.is_file() and entry.suffix != ".sample":
            shutil.copy(entry, private / entry.name)
        elif entry.is_dir():
            shutil.copytree(entry, private / entry.name, symlinks=True)


def forget_hooks(spec: WorkspaceSpec) -> None:
    """Remove the private copy."""
    shutil.rmtree(spec.private / "hooks", ignore_errors=True)
