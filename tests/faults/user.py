"""A person who works in the same repository at the same time, and remembers what is his."""

from __future__ import annotations

import random
import subprocess

from agent_orchestrator.testing.sandbox import Sandbox

DEEDS = ("commit", "commit", "switch", "stash", "rebase", "draft", "gc", "prune", "pack", "tag")


class User:
    """Commits, switches branches, stashes, rebases, edits, collects garbage. What failed was not done."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.commits: dict[str, str] = {}
        """Branch → the last commit that he made there."""
        self.files: dict[str, str] = {}
        """What he wrote and did not commit."""
        self.stashes: list[str] = []
        self.tags: dict[str, str] = {}
        self._number = 0

    def work(self, chance: random.Random) -> str:
        """Do something; returns what."""
        what = chance.choice(DEEDS)
        self._number += 1
        return f"{what} {getattr(self, f'_{what}')(f'user-{self._number}')}"

    def _git(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["git", *argv], cwd=self.box.repo, env=self.box.env, capture_output=True, text=True, check=False
        )

    def branch(self) -> str:
        return self._git("symbolic-ref", "--short", "HEAD").stdout.strip()

    def _commit(self, name: str) -> str:
        path = self.box.repo / f"{name}.txt"
        path.write_text(f"{name}\n")
        branch = self.branch()
        done = self._git("add", path.name)
        if done.returncode == 0:
            done = self._git("commit", "-q", "-m", f"by {name}", "--", path.name)
        if done.returncode:
            self._git("rm", "-q", "--cached", "--", path.name)
            path.unlink(missing_ok=True)
            return f"refused: {done.stderr.strip()}"
        made = self._git("rev-parse", "HEAD").stdout.strip()
        self.commits[branch] = made
        return f"{branch} {made[:9]}"

    def _switch(self, name: str) -> str:
        argv = ["switch", "-q", "main"] if self.branch() != "main" else ["switch", "-q", "-c", name]
        done = self._git(*argv)
        if not done.returncode and argv[-1] != "main":
            self.commits.setdefault(argv[-1], self._git("rev-parse", "HEAD").stdout.strip())
        return f"{argv[-1]} {done.stderr.strip()}"

    def _stash(self, name: str) -> str:
        readme = self.box.repo / "README.md"
        before = readme.read_text()
        readme.write_text(f"{before}{name}\n")
        done = self._git("stash", "push", "-q", "-m", name, "--", "README.md")
        listed = self._git("stash", "list", "--format=%H %gs").stdout
        mine = [line.split()[0] for line in listed.splitlines() if line.endswith(f": {name}")]
        self.stashes += mine
        if done.returncode:
            readme.write_text(before)
        return done.stderr.strip()

    def _rebase(self, _name: str) -> str:
        branch = self.branch()
        if branch == "main":
            return "nothing"
        done = self._git("rebase", "-q", "main")
        if done.returncode:
            self._git("rebase", "--abort")
        self.commits[branch] = self._git("rev-parse", branch).stdout.strip()
        return f"{branch} {done.stderr.strip()}"

    def _draft(self, name: str) -> str:
        self.files[f"{name}.draft"] = f"{name} is not done\n"
        (self.box.repo / f"{name}.draft").write_text(self.files[f"{name}.draft"])
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
