"""A new user with one project: a fresh home, a clone, a real daemon, and sessions of the scripted agent. Ends its processes by id."""

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
from tests.projects.corpus import CorpusProject, Replacement
from tests.projects.machine import login_environment, make_home
from tests.projects.registry import fetch_repository

Json = dict[str, Any]

TIMEOUT = 900.0
RUNNING = ("queued", "running")
CONFIG = "agent-orchestrator.yaml"


class Trial:
    """One project in a temporary folder; commands run in its clone."""

    def __init__(self, project: CorpusProject) -> None:
        self.project = project
        self.folder = tempfile.TemporaryDirectory(prefix=f"ao-{project.name}-", ignore_cleanup_errors=True)
        self.box = Sandbox(Path(self.folder.name))
        env = login_environment(project, self.box.user_home)
        kept = ("HOME", "AO_HOME", "GIT_CONFIG_NOSYSTEM", "DBUS_SESSION_BUS_ADDRESS", "SHELL")
        self.box.env = {**env, **{name: self.box.env[name] for name in kept}}
        self.box.repo = Path(self.folder.name, project.name)

    def __enter__(self) -> Trial:
        self.box.__enter__()
        make_home(self.box.user_home, login_environment(self.project, self.box.user_home))
        subprocess.run(["git", "clone", "-q", str(fetch_repository(self.project)), str(self.box.repo)], check=True)
        self.box.git("remote", "remove", "origin")
        self.box.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.box.clean_up()
        self.folder.cleanup()

    # -- configuration -------------------------------------------------------------------------------------------------

    def configure(self, text: str, *, set_up: bool = True) -> None:
        """Write this configuration, without its set-up unless `set_up`, and trust the project."""
        yaml = YAML()
        data = yaml.load(text)
        if not set_up:
            _without(data, "postCreate")
        data.setdefault("reactions", {})["ci-failed"] = {"auto": False}  # the scripted agent would answer with a commit
        with (self.box.repo / CONFIG).open("w") as file:
            yaml.dump(data, file)
        self.box.ao("trust", "--yes")

    def configuration(self) -> str:
        """Return the text of the configuration."""
        return (self.box.repo / CONFIG).read_text()

    def set_auto_merge(self) -> None:
        """Turn on the automatic merge of approved changes with passed checks."""
        self.box.ao("config", "set", "reactions.approved-and-green.auto", "true")
        self.box.ao("trust", "--yes")

    # -- sessions ------------------------------------------------------------------------------------------------------

    def session(self, name: str, *changes: str) -> Json:
        """Start a session whose agent makes these changes and commits them; return it once its checks have ended."""
        script = " ".join([*changes, f"[[commit: {name}]]", f"[[done: {name}]]"])
        body = {"name": name, "title": name, "prompt": script, "agent": "demo", "runtime": "process"}
        session = self.box.request("POST", "/api/sessions", body)
        return self.wait_for_checks(session["id"])

    def wait_for_checks(self, session: str) -> Json:
        """Wait until each check of the session's head has a final state; return the session."""

        def read_settled() -> Json:
            shown_session = self.box.session(session)
            checks = (
                shown_session["pr"]["checks"]
                if shown_session["pr"] and shown_session["pr"]["head"] == shown_session["head"] != shown_session["base"]
                else []
            )
            settled = checks and all(check["state"] not in RUNNING for check in checks)
            failed = shown_session["status"] in ("failed", "exited", "not_set_up") and not checks
            return shown_session if settled or failed else {}

        return self.box.wait_until(read_settled, f"the checks of {session}", TIMEOUT)

    def base_commit(self) -> str:
        """Return the commit of the base branch."""
        return self.box.git("rev-parse", "main")

    def merge(self, session: str) -> tuple[int, str]:
        """Run `ao merge` without a terminal and without force; return its exit code and output."""
        process = self.box.ao("merge", session, check=False)
        return process.returncode, (process.stdout + process.stderr).strip()

    def approve(self, session: str) -> None:
        """Approve the session's change and wait until the approval is recorded."""
        self.box.request("POST", f"/api/sessions/{session}/review", {"verdict": "approved"})
        self.box.wait_until(lambda: self.box.session(session)["pr"]["review"] == "approved", "the approval", TIMEOUT)

    def branch(self, name: str, files: dict[str, str], changes: Sequence[Replacement] = ()) -> None:
        """Make a branch off main with one more commit, in a temporary worktree."""
        with tempfile.TemporaryDirectory(dir=self.folder.name) as folder:
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
    """Remove a key at all levels."""
    if isinstance(data, dict):
        data.pop(key, None)
        for value in data.values():
            _without(value, key)


def harmless_script(name: str) -> str:
    """Return the agent's script for a change that breaks nothing."""
    return f"[[write: {name}.txt|A change that breaks nothing.]]"


def bug_script(project: CorpusProject) -> str:
    """Return the agent's script that adds the bug, by a patch inside the script."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "clone", "-q", str(fetch_repository(project)), str(tree)], check=True)
        project.bug.apply(tree)
        patch = subprocess.run(["git", "diff", "-U2"], cwd=tree, capture_output=True, check=True).stdout
    return f"[[sh: echo {base64.b64encode(patch).decode()} | base64 -d | git apply]]"
