"""A repository, a home and the checks that run on them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.checks.spec import CheckSpec, Limits
from tests.integration.rescue.world import git


@dataclass
class CheckStage:
    """Everything a test of checks needs; `outside` is a folder that no checkout touches."""

    repo: Path
    home: Home
    outside: Path
    host: LocalHost = field(default_factory=LocalHost)
    limits: Limits = field(default_factory=lambda: Limits(kill_timeout=0.2))

    def __post_init__(self) -> None:
        self.checks = Checks(self.home, self.host, limits=self.limits)

    def spec(self, command: str, **changes: object) -> CheckSpec:
        env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "OUT": str(self.outside)}
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        spec = CheckSpec("app", self.repo, "HEAD", "test", command, timeout=30.0, env=env)
        return replace(spec, **changes)  # type: ignore[arg-type]

    def commit(self, files: Mapping[str, str], message: str = "change") -> str:
        for name, content in files.items():
            (self.repo / name).parent.mkdir(parents=True, exist_ok=True)
            (self.repo / name).write_text(content)
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", message)
        return git(self.repo, "rev-parse", "HEAD")

    def checkout_names(self) -> list[str]:
        """Return the names of the existing checkouts."""
        return [folder.name for folder in (self.home.path / "checks" / "work").glob("*/*")]

    def lines(self, name: str) -> list[str]:
        """Return the lines that a command wrote into a file outside."""
        file = self.outside / name
        return file.read_text().splitlines() if file.exists() else []

    def until(self, condition: Callable[[], bool], description: str = "") -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {description or condition}"
            time.sleep(0.01)

    def alive(self, name: str) -> list[int]:
        """Return the pids that a command recorded in a file and that are still running."""
        return [int(pid) for pid in self.lines(name) if self.host.process(int(pid))]
