"""A repository, a workspace of it, and its files and Git state for comparisons."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.workspaces.git_workspace import GitWorkspace
from agent_orchestrator.protocols import WorkspaceSpec
from agent_orchestrator.sessions.rescue import RestoreResult, restore_work


def git(folder: Path, *argv: str, check: bool = True, env: Mapping[str, str] | None = None, stdin: bytes = b"") -> str:
    """Run Git as an agent would."""
    done = subprocess.run(
        ["git", "-C", str(folder), *argv],
        input=stdin,
        capture_output=True,
        env={**os.environ, **(env or {})},
        check=False,
    )
    if check and done.returncode:
        raise AssertionError(f"git {' '.join(argv)}: {done.stderr.decode()}")
    return done.stdout.decode(errors="surrogateescape").strip("\n")


def make_repository(path: Path, files: Mapping[str, str] | None = None) -> Path:
    """Create a repository with one commit on `main`."""
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    for name, content in (
        files or {"a.txt": "one\n", "b.txt": "two\n", "d/c.txt": "three\n", ".gitignore": "*.log\nout/\n"}
    ).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    return path


@dataclass
class RescueWorld:
    """A session's workspace."""

    host: LocalHost
    plugin: GitWorkspace
    spec: WorkspaceSpec

    @property
    def path(self) -> Path:
        return self.spec.path

    async def make(self) -> None:
        await self.plugin.create(self.spec, lambda _: None)

    async def recreate(self) -> RestoreResult:
        """Remove the workspace, create it again on its branch, restore the saved work and return the result."""
        await self.plugin.remove(self.spec)
        assert not self.path.exists()
        await self.plugin.create(replace(self.spec, existing=True), lambda _: None)
        return await restore_work(self.host, self.spec.repo, self.path, self.spec.session)


FileState = tuple[str, int, bytes]
"""Kind, mode and content of a file."""


def read_files(root: Path) -> dict[bytes, FileState]:
    """Return the state of every path below a folder, except its `.git`."""
    files: dict[bytes, FileState] = {}
    top = os.fsencode(root)
    for folder, folders, names in os.walk(top):
        if folder == top and b".git" in folders:
            folders.remove(b".git")
        for name in [*folders, *names]:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            relative = os.path.relpath(path, top)
            if relative == b".git":
                continue
            if stat.S_ISLNK(mode):
                files[relative] = ("link", 0, os.readlink(path))  # noqa: PTH115
            elif stat.S_ISDIR(mode):
                files[relative] = ("folder", 0, b"")
            elif stat.S_ISREG(mode):
                files[relative] = ("file", stat.S_IMODE(mode), Path(os.fsdecode(path)).read_bytes())
    return files


def read_git_state(root: Path) -> dict[str, str]:
    """Return the Git state of a checkout: HEAD, index, status, stash, unfinished commands and own refs."""
    quiet = {"GIT_OPTIONAL_LOCKS": "0"}
    git_dir = Path(git(root, "rev-parse", "--absolute-git-dir"))
    unfinished = [
        path for name in ("rebase-merge", "rebase-apply", "sequencer") for path in (git_dir / name).rglob("*")
    ]
    unfinished += [path for path in git_dir.glob("[A-Z]*") if path.name not in ("FETCH_HEAD", "HEAD")]
    return {
        "HEAD": git(root, "rev-parse", "HEAD", check=False),
        "branch": git(root, "symbolic-ref", "-q", "HEAD", check=False),
        "index": git(root, "ls-files", "-s", "-v", "-z"),
        "status": git(root, "status", "--porcelain=v2", "-z", "-uall", "--branch", env=quiet),
        "sparse": git(root, "sparse-checkout", "list", check=False),
        "stash": git(root, "stash", "list", "--format=%H %gs"),
        "bisect": git(root, "for-each-ref", "refs/bisect"),
        **{f"file {path.relative_to(git_dir)}": path.read_bytes().hex() for path in unfinished if path.is_file()},
    }


def ignored_paths(root: Path) -> list[str]:
    """Return the untracked paths that Git ignores; of an ignored folder the folder alone."""
    listing = git(root, "status", "--porcelain", "-z", "--ignored", env={"GIT_OPTIONAL_LOCKS": "0"})
    return [entry[3:].rstrip("/") for entry in listing.split("\0") if entry.startswith("!! ")]


def without_ignored_folders(root: Path, files: dict[bytes, FileState]) -> dict[bytes, FileState]:
    """Return the files without ignored folders: of ignored content only named files are kept."""
    folders = [name for name, state in files.items() if state[0] == "folder"]
    listing = git(
        root, "check-ignore", "--stdin", "-z", stdin=b"".join(b"%s/\0" % name for name in folders), check=False
    )
    ignored = {os.fsencode(name.rstrip("/")) for name in listing.split("\0")}
    return {name: state for name, state in files.items() if name not in ignored}
