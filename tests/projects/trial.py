"""A new user with one project: a fresh home, a clone, a real daemon, and sessions of the scripted agent. Cleans up by process id."""

from __future__ import annotations

import base64
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ruamel.yaml import YAML

from agent_orchestrator.testing.sandbox import Sandbox
from tests.projects.corpus import Change, Project
from tests.projects.machine import environment, home
from tests.projects.registry import repository

Json = dict[str, Any]

PLENTY = 900.0
RUNNING = ("queued", "running")
CONFIG = "agent-orchestrator.yaml"


class Trial:
    """One project in a place of its own; commands are run in its clone."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.place = tempfile.TemporaryDirectory(prefix=f"ao-{project.name}-", ignore_cleanup_errors=True)
        self.box = Sandbox(Path(self.place.name))
        env = environment(project, self.box.user_home)
        kept = ("HOME", "AO_HOME", "GIT_CONFIG_NOSYSTEM", "DBUS_SESSION_BUS_ADDRESS", "SHELL")
        self.box.env = {**env, **{name: self.box.env[name] for name in kept}}
        self.box.repo = Path(self.place.name, project.name)

    def __enter__(self) -> Trial:
        self.box.__enter__()
        home(self.box.user_home, environment(self.project, self.box.user_home))
        subprocess.run(["git", "clone", "-q", str(repository(self.project)), str(self.box.repo)], check=True)
        self.box.git("remote", "remove", "origin")
        self.box.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.box.clean_up()
        self.place.cleanup()

    # -- configuration -------------------------------------------------------------------------------------------------

    def configure(self, text: str, *, set_up: bool = True) -> None:
        """Write this configuration as the user's own, without its set-up if so wanted, and register the project."""
        yaml = YAML()
        data = yaml.load(text)
        if not set_up:
            _without(data, "postCreate")
        data.setdefault("reactions", {})["ci-failed"] = {"auto": False}  # the scripted agent would answer with a commit
        with (self.box.repo / CONFIG).open("w") as file:
            yaml.dump(data, file)
        self.box.ao("trust", "--yes")

    def configuration(self) -> str:
        """The configuration as it is."""
        return (self.box.repo / CONFIG).read_text()

    def set_auto_merge(self) -> None:
        """Have what is approved and green merged without a person."""
        self.box.ao("config", "set", "reactions.approved-and-green.auto", "true")
        self.box.ao("trust", "--yes")

    # -- sessions ------------------------------------------------------------------------------------------------------

    def session(self, name: str, *changes: str) -> Json:
        """A session whose agent makes these changes, commits them and says that it is done; returned with its checks' verdicts."""
        script = " ".join([*changes, f"[[commit: {name}]]", f"[[done: {name}]]"])
        body = {"name": name, "title": name, "prompt": script, "agent": "demo", "runtime": "process"}
        made = self.box.request("POST", "/api/sessions", body)
        return self.verdict(made["id"])

    def verdict(self, session: str) -> Json:
        """The session, once each of its checks at its head has a state that stays."""

        def look() -> Json:
            now = self.box.session(session)
            checks = now["pr"]["checks"] if now["pr"] and now["pr"]["head"] == now["head"] != now["base"] else []
            settled = checks and all(one["state"] not in RUNNING for one in checks)
            failed = now["status"] in ("failed", "exited", "not_set_up") and not checks
            return now if settled or failed else {}

        return self.box.until(look, f"the checks of {session}", PLENTY)

    def main(self) -> str:
        """The commit of the base branch."""
        return self.box.git("rev-parse", "main")

    def merge(self, session: str) -> tuple[int, str]:
        """What `ao merge` exits with and says; a person at no terminal, no force."""
        done = self.box.ao("merge", session, check=False)
        return done.returncode, (done.stdout + done.stderr).strip()

    def approve(self, session: str) -> None:
        """Approve it, and wait until that is known."""
        self.box.request("POST", f"/api/sessions/{session}/review", {"verdict": "approved"})
        self.box.until(lambda: self.box.session(session)["pr"]["review"] == "approved", "the approval", PLENTY)

    def branch(self, name: str, files: dict[str, str], changes: Sequence[Change] = ()) -> None:
        """A branch off main with one more commit, made in a clone of its own."""
        with tempfile.TemporaryDirectory(dir=self.place.name) as folder:
            tree = Path(folder, "tree")
            self.box.git("worktree", "add", "-q", "-b", name, str(tree), "main")
            for path, text in files.items():
                (tree / path).write_text(text)
            for change in changes:
                change.apply(tree)
            self.box.git("add", "-A", cwd=tree)
            self.box.git("commit", "-q", "--no-verify", "-m", name, cwd=tree)
            self.box.git("worktree", "remove", "--force", str(tree))


def _without(data: Any, key: str) -> None:
    """Take a key away wherever it is."""
    if isinstance(data, dict):
        data.pop(key, None)
        for value in data.values():
            _without(value, key)


def harmless(name: str) -> str:
    """What the agent does for a change that can break nothing."""
    return f"[[write: {name}.txt|A change that breaks nothing.]]"


def planted(project: Project) -> str:
    """What the agent does to plant the bug: it applies a patch that is in its script."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "clone", "-q", str(repository(project)), str(tree)], check=True)
        project.bug.apply(tree)
        patch = subprocess.run(["git", "diff", "-U2"], cwd=tree, capture_output=True, check=True).stdout
    return f"[[sh: echo {base64.b64encode(patch).decode()} | base64 -d | git apply]]"
