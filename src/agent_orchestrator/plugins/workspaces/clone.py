"""`clone`: a separate repository that borrows the main one's objects: own configuration, own hooks, own refs.

Borrowed objects must not be deleted from the main repository: `refs/ao/keep/<session>` there holds the commit that the clone began at
until the clone is removed, whatever happens to the branches. The session's branch exists in the main repository too; `publish` updates
it to the clone's commits (`branch_publication.py`).
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

from agent_orchestrator.base.files.safe import UnsafePath, read_regular_file
from agent_orchestrator.base.git.commands import REF_ABSENT, Git, GitFailed
from agent_orchestrator.base.git.refs import Layout, find_layout
from agent_orchestrator.base.git.settings import SPARSE_CHECKOUT_CONFIG, GitConfig
from agent_orchestrator.errors import Conflict
from agent_orchestrator.plugins.workspaces.branch_publication import (
    copy_large_files,
    delete_refs,
    keep_ref,
    move_branch,
    published_ref,
    workspace_ref,
)
from agent_orchestrator.plugins.workspaces.git_workspace import GitWorkspace
from agent_orchestrator.plugins.workspaces.start_point import SourceRepository, StartPoint
from agent_orchestrator.plugins.workspaces.workspace_record import read_record
from agent_orchestrator.protocols import WorkspaceSpec

_COPIED_SETTINGS = (
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.sshcommand",
)
_COPIED_SECTIONS = ("filter.", "merge.", "diff.", "url.", "http.", "credential.", "lfs.", "submodule.")


class CloneWorkspace(GitWorkspace):
    """Makes each session a clone with borrowed objects."""

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Bring the clone's commits into the main repository's branch. Raises `Conflict` if that has other commits."""
        layout = find_layout(spec.path)
        if layout is None:
            return
        main, clone_git = Git(self._host, spec.repo), Git(self._host, spec.path)
        if (layout.git_dir / "lfs").is_dir() and (origin := await main.layout()):
            await asyncio.to_thread(copy_large_files, layout.git_dir, origin.common)
        tip = await clone_git.resolve(f"refs/heads/{spec.branch}")
        if tip is None:
            return
        brought = workspace_ref(spec.session)
        before = (await main.refs(brought)).get(brought)
        if before != tip:
            await main.fetch(str(spec.path), [f"+refs/heads/{spec.branch}:{brought}"], timeout=600, checked=True)
        await move_branch(main, spec.session, spec.branch, spec.path, before)

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Publish the branch, then remove folder and symlink. The caller has made sure that nothing else in it is lost."""
        if read_record(spec) is not None and spec.path.is_dir():
            await self.publish(spec)
        await super().remove(spec)

    async def _create_folder(self, spec: WorkspaceSpec, source: SourceRepository, start: StartPoint) -> Path:
        """Make the clone with its files, and its branch in the main repository; return its Git folder. Raises `Conflict`."""
        main, branch = source.git, f"refs/heads/{spec.branch}"
        if start.new_branch:
            try:
                await main.update_ref(branch, start.commit, REF_ABSENT, "ao: new session")
            except GitFailed as error:
                raise Conflict(
                    f"branch {spec.branch} could not be made: {error.text}", "choose another with --branch"
                ) from None
        mark_refs = (keep_ref(spec.session), workspace_ref(spec.session), published_ref(spec.session))
        await main.update_refs([f"update {mark} {start.commit}" for mark in mark_refs])
        clone_git = Git(self._host, spec.path)
        await main.run("init", "--quiet", "--template=", "--initial-branch", spec.branch, "--", str(spec.path))
        git_dir = spec.path / ".git"
        share_objects(git_dir, source.layout)
        with (git_dir / "config").open("a", errors="surrogateescape") as stream:
            stream.write(clone_config(source, await main.config("--local"), spec.origin))
            if spec.sparse:
                stream.write("".join(_setting(*setting.split("=")) for setting in SPARSE_CHECKOUT_CONFIG))
        refs = refs_of_clone(await main.refs("refs/heads", "refs/remotes/origin", "refs/tags"), source.config)
        refs[branch] = start.commit
        await clone_git.update_refs([f"create {name} {sha}" for name, sha in refs.items()])
        await self._fill(spec, start.notes)
        return git_dir

    async def _unregister(self, spec: WorkspaceSpec, git: Git, layout: Layout) -> None:  # noqa: ARG002
        """Delete the session's refs in the main repository."""
        await delete_refs(git, spec.session)


def share_objects(git_dir: Path, layout: Layout) -> None:
    """Let a new Git folder use a repository's objects, and copy its ignore rules, attributes and shallow boundaries."""
    info = git_dir / "objects" / "info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "alternates").write_text(f"{layout.common / 'objects'}\n", errors="surrogateescape")
    (git_dir / "info").mkdir(exist_ok=True)
    for name in ("shallow", "info/exclude", "info/attributes"):
        with suppress(FileNotFoundError, NotADirectoryError, UnsafePath):
            content = read_regular_file(Path(os.path.realpath(layout.common / name)))
            (git_dir / name).write_bytes(content)


def refs_of_clone(refs: dict[str, str], config: GitConfig) -> dict[str, str]:
    """Return the clone's initial refs: tags, and origin's branches, or the main repository's own branches if it has no origin."""
    clone_refs = {name: sha for name, sha in refs.items() if name.startswith("refs/tags/")}
    prefix = "refs/remotes/origin/" if config.effective_value("remote.origin.url") else "refs/heads/"
    for name, sha in refs.items():
        if name.startswith(prefix) and name != "refs/remotes/origin/HEAD":
            clone_refs["refs/remotes/origin/" + name.removeprefix(prefix)] = sha
    return clone_refs


def clone_config(source: SourceRepository, local: GitConfig, origin: str = "") -> str:
    """Return the clone's configuration: where it pushes to, and the settings that decide how files look."""
    config, layout = source.config, source.layout
    url = origin or config.effective_value("remote.origin.url") or str(layout.top or layout.common)
    settings = [("remote.origin.url", url), ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")]
    settings += [(key, value) for key in ("user.name", "user.email") if (value := config.effective_value(key))]
    for key, values in local.items():
        if key in _COPIED_SETTINGS or key.startswith(_COPIED_SECTIONS):
            settings += [(key, value) for value in values]
    if (layout.common / "lfs").is_dir() and not config.effective_value("lfs.storage"):
        settings.append(("lfs.storage", str(layout.common / "lfs")))
    return "".join(_setting(key, value) for key, value in settings)


def _setting(key: str, value: str) -> str:
    """Return one setting as it is written to a configuration file."""
    section, _, qualified_name = key.partition(".")
    subsection, dot, name = qualified_name.rpartition(".")
    header = f'[{section} "{_escaped(subsection)}"]' if dot else f"[{section}]"
    quoted = _escaped(value).replace("\n", "\\n").replace("\t", "\\t")
    return f'{header}\n\t{name} = "{quoted}"\n'


def _escaped(text: str) -> str:
    """Return the text with backslashes and double quotes escaped."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
