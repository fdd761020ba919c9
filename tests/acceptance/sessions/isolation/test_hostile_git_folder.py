"""An agent puts into its own Git folder what the daemon must not wait for: other sessions land, end and begin as ever."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.session_states import wait_for_checks, wait_for_status

CONFIG = """
defaults: {agent: demo, runtime: process}
ci: {command: "true"}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


def begin(box: Sandbox, name: str, script: str) -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": f"Work on {name}", "prompt": script})


def test_a_pipe_in_one_sessions_git_folder_holds_up_no_other(box: Sandbox) -> None:
    for name in ("bad", "stopped"):
        begin(box, name, "[[say: here]]")
        wait_for_status(box, name, "idle")
    begin(box, "good", "[[edit: good.txt|good]] [[commit: good]] [[done: made]]")
    wait_for_checks(box, "good")
    own = Path(box.git("rev-parse", "--absolute-git-dir", cwd=Path(box.session("app-bad")["workspacePath"])))
    (own / "rebase-merge").mkdir()
    os.mkfifo(own / "rebase-merge/head-name")
    os.mkfifo(own / "index.lock")
    box.ao("merge", "good")
    assert box.git("show", "main:good.txt") == "good"
    (own / "gitdir").unlink()
    os.mkfifo(own / "gitdir")
    box.ao("stop", "stopped")
    assert box.session("app-stopped")["status"] == "stopped"
    begin(box, "next", "[[say: here]]")
    wait_for_status(box, "next", "idle")


def test_an_agent_that_has_checked_the_base_out_keeps_no_other_from_landing(box: Sandbox) -> None:
    box.git("switch", "-qc", "mine")
    begin(box, "bad", "[[say: here]]")
    wait_for_status(box, "bad", "idle")
    begin(box, "good", "[[edit: README.md|good]] [[commit: good]] [[done: made]]")
    wait_for_checks(box, "good")
    workspace = Path(box.session("app-bad")["workspacePath"])
    box.git("switch", "-q", "main", cwd=workspace)
    (workspace / "README.md").write_text("its own\n")
    before = box.git("rev-parse", "main")
    box.ao("merge", "good")
    assert "good" in box.git("show", "main:README.md") and (workspace / "README.md").read_text() == "its own\n"
    assert box.git("rev-parse", "--abbrev-ref", "HEAD", cwd=workspace) == "HEAD"
    assert box.git("rev-parse", "HEAD", cwd=workspace) == before
