"""A repository with `main` checked out by the user and a session's branch in a worktree, with helpers to build and merge it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.merge import (
    BuiltMerge,
    CompletedMerge,
    Conflicted,
    MergeSpec,
    Strategy,
    build_merge,
    merge,
)
from agent_orchestrator.changes.merge.merge_into_base import MergeOutcome
from tests.integration.rescue.world import git

STEPS = ("recorded", "locked", "files", "index", "ref", "unlocked")
FILES = {"a.txt": "one\ntwo\nthree\nfour\nfive\n", "b.txt": "b\n", "d/c.txt": "c\n", ".gitignore": "*.log\n"}


class DaemonKilled(BaseException):
    """Raised in place of a kill of the daemon."""


def kill_after(step: str) -> Callable[[str], None]:
    """Return a hook that raises Killed after one step."""

    def hook(done: str) -> None:
        if done == step:
            raise DaemonKilled(step)

    return hook


def write(folder: Path, files: Mapping[str, str | bytes | None]) -> None:
    """Write files; remove those whose content is None."""
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@dataclass
class MergeWorld:
    """The repository, the session's worktree and the merge to make."""

    root: Path
    spec: MergeSpec
    host: LocalHost

    @property
    def repo(self) -> Path:
        return self.spec.repo

    @property
    def agent(self) -> Path:
        """The session's worktree."""
        return self.root / "agent"

    def commit(self, files: Mapping[str, str | bytes | None], message: str = "work", target: Path | None = None) -> str:
        """Commit in the session's worktree (or another one), set the merge to the branch's new head, and return the commit."""
        folder = target or self.agent
        write(folder, files)
        git(folder, "add", "-A")
        git(folder, "commit", "-qm", message)
        if folder == self.agent:
            self.use_head()
        return git(folder, "rev-parse", "HEAD")

    def use_head(self) -> None:
        """Set the merge to the branch's current head."""
        self.spec = replace(self.spec, head=git(self.agent, "rev-parse", "HEAD"))

    def use_strategy(self, strategy: Strategy) -> None:
        """Set the strategy of the merge."""
        self.spec = replace(self.spec, strategy=strategy)

    async def build(self) -> BuiltMerge:
        built = await build_merge(self.host, self.spec)
        assert not isinstance(built, Conflicted), built
        return built

    async def merge(self, built: BuiltMerge | None = None) -> MergeOutcome:
        return await merge(self.host, self.spec, built or await self.build())

    async def merge_successfully(self, built: BuiltMerge | None = None) -> CompletedMerge:
        outcome = await self.merge(built)
        assert isinstance(outcome, CompletedMerge), outcome
        return outcome

    def main(self) -> str:
        return git(self.repo, "rev-parse", "refs/heads/main")

    def show(self, path: str, at: str = "main") -> str:
        return git(self.repo, "show", f"{at}:{path}")

    def status(self, where: Path | None = None) -> str:
        return git(where or self.repo, "status", "--porcelain", "--untracked-files=all")

    def tree_of_merge(self) -> str:
        """Return the tree of the merge of head and `main`, computed by Git."""
        return git(self.repo, "merge-tree", "--write-tree", "main", self.spec.head)

    def leftovers(self) -> list[str]:
        """Return the temporary files that a merge must not leave behind."""
        names = [p.name for d in (self.repo / ".git", *(self.repo / ".git/worktrees").glob("*")) for p in d.iterdir()]
        scratch = [p.name for p in self.spec.work.iterdir()] if self.spec.work.exists() else []
        return [name for name in names if name.startswith("ao-") or name.endswith(".lock")] + scratch


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return mode and content of every file except Git's."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if ".git" in path.relative_to(folder).parts or (path.is_dir() and not path.is_symlink()):
            continue
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        files[str(path.relative_to(folder))] = (
            stat.S_IFMT(path.lstat().st_mode) | path.lstat().st_mode & 0o100,
            content,
        )
    return files


def make_world(root: Path) -> MergeWorld:
    """Create a repository with `main` checked out and the branch `feature/x` in a worktree."""
    repo = root / "repo"
    repo.mkdir(parents=True)
    git(repo, "init", "-q", "-b", "main")
    write(repo, FILES)
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "first")
    git(repo, "worktree", "add", "-q", "--no-track", "-b", "feature/x", str(root / "agent"))
    spec = MergeSpec(
        session="app-x",
        repo=repo,
        branch="feature/x",
        head=git(repo, "rev-parse", "HEAD"),
        base="main",
        strategy="squash",
        title="Add x",
        body="Because of y.",
        work=root / "ao" / "landing",
    )
    return MergeWorld(root, spec, LocalHost())
