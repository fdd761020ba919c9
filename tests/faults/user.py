"""A person who works in the same repository at the same time and records their own work."""

from __future__ import annotations

import random
import subprocess

from agent_orchestrator.testing.sandbox import Sandbox

ACTIONS = ("commit", "commit", "switch", "stash", "rebase", "draft", "gc", "prune", "pack", "tag")


class RepositoryUser:
    """Commits, switches branches, stashes, rebases, edits, collects garbage. Failed actions are undone, later if the disk is full now."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.commits: dict[str, str] = {}
        """Branch → the person's last commit on it."""
        self.files: dict[str, str] = {}
        """Uncommitted files and their text."""
        self.stashes: list[str] = []
        self.tags: dict[str, str] = {}
        self._number = 0
        self._undone: list[tuple[str, str | None]] = []
        """File, and the text to restore; None removes it, also from the index."""

    def work(self, chance: random.Random) -> str:
        """Do a random action and return its description."""
        what = chance.choice(ACTIONS)
        self._number += 1
        try:
            return f"{what} {getattr(self, f'_{what}')(f'user-{self._number}')}"
        except OSError as error:
            return f"{what} refused: {error}"

    def retry_undo(self) -> None:
        """Undo again what could not be undone before."""
        undone, self._undone = self._undone, []
        for name, text in undone:
            self._undo(name, text)

    def _undo(self, name: str, text: str | None) -> None:
        completed = self._git("reset", "-q", "--", name)
        try:
            if text is None:
                (self.box.repo / name).unlink(missing_ok=True)
            else:
                self._write(name, text)
        except OSError:
            completed.returncode = 1
        if completed.returncode:
            self._undone.append((name, text))

    def _write(self, name: str, text: str) -> None:
        """Write a file atomically, as editors do."""
        draft = self.box.repo / f".{name}.new"
        try:
            draft.write_text(text)
            draft.replace(self.box.repo / name)
        finally:
            draft.unlink(missing_ok=True)

    def _git(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *argv], cwd=self.box.repo, env=self.box.env, capture_output=True, text=True, check=False
        )

    def branch(self) -> str:
        return self._git("symbolic-ref", "--short", "HEAD").stdout.strip()

    def _commit(self, name: str) -> str:
        path = self.box.repo / f"{name}.txt"
        self._write(path.name, f"{name}\n")
        branch = self.branch()
        completed = self._git("add", path.name)
        if completed.returncode == 0:
            completed = self._git("commit", "-q", "-m", f"by {name}", "--", path.name)
        if completed.returncode and self._git("log", "-1", "--format=%s").stdout.strip() != f"by {name}":
            self._undo(path.name, None)
            return f"refused: {completed.stderr.strip()}"
        commit = self._git("rev-parse", "HEAD").stdout.strip()
        self.commits[branch] = commit
        return f"{branch} {commit[:9]}"

    def _switch(self, name: str) -> str:
        argv = ["switch", "-q", "main"] if self.branch() != "main" else ["switch", "-q", "-c", name]
        completed = self._git(*argv)
        if not completed.returncode and argv[-1] != "main":
            self.commits.setdefault(argv[-1], self._git("rev-parse", "HEAD").stdout.strip())
        return f"{argv[-1]} {completed.stderr.strip()}"

    def _stash(self, name: str) -> str:
        readme = self.box.repo / "README.md"
        before = readme.read_text()
        self._write("README.md", f"{before}{name}\n")
        completed = self._git("stash", "push", "-q", "-m", name, "--", "README.md")
        listed = self._git("stash", "list", "--format=%H %gs").stdout
        own_stashes = [line.split()[0] for line in listed.splitlines() if line.endswith(f": {name}")]
        self.stashes += own_stashes
        if completed.returncode:
            self._undo("README.md", before)
        return completed.stderr.strip()

    def _rebase(self, _name: str) -> str:
        branch = self.branch()
        if branch == "main":
            return "nothing"
        completed = self._git("rebase", "-q", "main")
        if completed.returncode:
            self._git("rebase", "--abort")
        self.commits[branch] = self._git("rev-parse", branch).stdout.strip()
        return f"{branch} {completed.stderr.strip()}"

    def _draft(self, name: str) -> str:
        self._write(f"{name}.draft", f"{name} is not done\n")
        self.files[f"{name}.draft"] = f"{name} is not done\n"
        return ""

    def _gc(self, _name: str) -> str:
        return self._git("gc", "-q").stderr.strip()

    def _prune(self, _name: str) -> str:
        return self._git("worktree", "prune").stderr.strip()

    def _pack(self, _name: str) -> str:
        return self._git("pack-refs", "--all").stderr.strip()

    def _tag(self, name: str) -> str:
        if not self._git("tag", name).returncode:
            self.tags[name] = self._git("rev-parse", name).stdout.strip()
        return ""
