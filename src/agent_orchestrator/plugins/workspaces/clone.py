"""`clone`: a repository of its own that borrows the main one's objects: own configuration, own hooks, own refs.

Borrowed objects must stay where they are: `refs/ao/keep/<session>` in the main repository holds the commit that the clone began
at, whatever happens to the branches there, until the clone is removed. The session's branch exists in the main repository
too; `publish` brings it up to what the clone has.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from agent_orchestrator.errors import Conflict
from agent_orchestrator.git import ABSENT, Config, Git, GitFailed
from agent_orchestrator.git_files import Layout, find_layout, ref_safe
from agent_orchestrator.plugins.workspaces.base import Start
from agent_orchestrator.plugins.workspaces.making import GitWorkspace, Source
from agent_orchestrator.plugins.workspaces.record import read_record
from agent_orchestrator.protocols import WorkspaceSpec

_TAKEN_OVER = (
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.sshcommand",
)
_TAKEN_OVER_SECTIONS = ("filter.", "merge.", "diff.", "url.", "http.", "credential.", "lfs.", "submodule.")


class Clone(GitWorkspace):
    """Makes each session a clone with borrowed objects."""

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Bring the clone's commits into the main repository's branch; raises `Conflict` if that has gone another way."""
        if find_layout(spec.path) is None:
            return
        main, inside = Git(self._host, spec.repo), Git(self._host, spec.path)
        new = await inside.resolve(f"refs/heads/{spec.branch}")
        if new is None:
            return
        branch, mark = f"refs/heads/{spec.branch}", _published(spec)
        known = await main.refs(branch, mark)
        if known.get(mark) != new:
            await main.fetch(str(spec.path), [f"+{branch}:{mark}"], timeout=600)
        old = known.get(branch)
        if old == new:
            return
        ours = old is None or old == known.get(mark) or await main.is_ancestor(old, new)
        if not ours:
            raise Conflict(
                f"branch {spec.branch} in {spec.repo} has commits that the workspace {spec.path} does not have",
                f"its work is safe as {mark}; merge the two",
            )
        checkouts = [entry.path for entry in await main.worktrees() if entry.branch == spec.branch]
        if checkouts:
            raise Conflict(
                f"branch {spec.branch} is checked out in {checkouts[0]} and cannot be moved",
                f"the work is safe as {mark}; switch {checkouts[0]} to another branch",
            )
        await main.update_ref(branch, new, old or ABSENT, "ao: publish")

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Publish the branch, then remove folder and symlink. The caller has made sure that nothing else in it is lost."""
        if read_record(spec) is not None and spec.path.is_dir():
            await self.publish(spec)
        await super().remove(spec)

    async def _make(self, spec: WorkspaceSpec, source: Source, start: Start) -> Path:
        main, branch = source.git, f"refs/heads/{spec.branch}"
        if start.new_branch:
            try:
                await main.update_ref(branch, start.commit, ABSENT, "ao: new session")
            except GitFailed as error:
                raise Conflict(
                    f"branch {spec.branch} could not be made: {error.text}", "choose another with --branch"
                ) from None
        await main.update_refs([f"update {_keep(spec)} {start.commit}", f"update {_published(spec)} {start.commit}"])
        inside = Git(self._host, spec.path)
        await main.run("init", "--quiet", "--template=", "--initial-branch", spec.branch, "--", str(spec.path))
        git_dir = spec.path / ".git"
        borrow(git_dir, source.layout)
        with (git_dir / "config").open("a", errors="surrogateescape") as stream:
            stream.write(own_config(source, await main.config("--local")))
        refs = refs_of_clone(await main.refs("refs/heads", "refs/remotes/origin", "refs/tags"), source.config)
        refs[branch] = start.commit
        await inside.update_refs([f"create {name} {sha}" for name, sha in refs.items()])
        await self._fill(spec, start.notes)
        return git_dir

    async def _unregister(self, spec: WorkspaceSpec, git: Git, layout: Layout) -> None:  # noqa: ARG002
        found = await git.refs(_keep(spec), _published(spec))
        for ref in (_keep(spec), _published(spec)):
            if ref in found:
                await git.delete_ref(ref, found[ref])


def _keep(spec: WorkspaceSpec) -> str:
    return f"refs/ao/keep/{ref_safe(spec.session)}"


def _published(spec: WorkspaceSpec) -> str:
    return f"refs/ao/clone/{ref_safe(spec.session)}"


def borrow(git_dir: Path, layout: Layout) -> None:
    """Let a new Git folder use a repository's objects, and know what it ignores and where its history is cut off."""
    info = git_dir / "objects" / "info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "alternates").write_text(f"{layout.common / 'objects'}\n", errors="surrogateescape")
    (git_dir / "info").mkdir(exist_ok=True)
    for name in ("shallow", "info/exclude", "info/attributes"):
        if (layout.common / name).is_file():
            shutil.copyfile(layout.common / name, git_dir / name)


def refs_of_clone(refs: dict[str, str], config: Config) -> dict[str, str]:
    """What the clone knows from its start: tags, and origin's branches — the main repository's own if that has no origin."""
    found = {name: sha for name, sha in refs.items() if name.startswith("refs/tags/")}
    before = "refs/remotes/origin/" if config.last("remote.origin.url") else "refs/heads/"
    for name, sha in refs.items():
        if name.startswith(before) and name != "refs/remotes/origin/HEAD":
            found["refs/remotes/origin/" + name.removeprefix(before)] = sha
    return found


def own_config(source: Source, local: Config) -> str:
    """The clone's configuration: where it pushes to, and what decides how files look."""
    config, layout = source.config, source.layout
    url = config.last("remote.origin.url") or str(layout.top or layout.common)
    settings = [("remote.origin.url", url), ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")]
    settings += [(key, value) for key in ("user.name", "user.email") if (value := config.last(key))]
    for key, values in local.items():
        if key in _TAKEN_OVER or key.startswith(_TAKEN_OVER_SECTIONS):
            settings += [(key, value) for value in values]
    if (layout.common / "lfs").is_dir() and not config.last("lfs.storage"):
        settings.append(("lfs.storage", str(layout.common / "lfs")))
    return "".join(_setting(key, value) for key, value in settings)


def _setting(key: str, value: str) -> str:
    section, _, rest = key.partition(".")
    subsection, dot, name = rest.rpartition(".")
    head = f'[{section} "{_escaped(subsection)}"]' if dot else f"[{section}]"
    quoted = _escaped(value).replace("\n", "\\n").replace("\t", "\\t")
    return f'{head}\n\t{name} = "{quoted}"\n'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
