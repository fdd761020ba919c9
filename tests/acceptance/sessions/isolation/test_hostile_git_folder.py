"""Pipes and checkouts in one agent's Git folder do not block merges, stops and starts of other sessions."""

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


def create_session(box: Sandbox, name: str, script: str) -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": f"Work on {name}", "prompt": script})


def test_a_pipe_in_one_sessions_git_folder_blocks_no_other_session(box: Sandbox) -> None:
    for name in ("bad", "stopped"):
        create_session(box, name, "[[say: here]]")
        wait_for_status(box, name, "idle")
    create_session(box, "good", "[[edit: good.txt|good]] [[commit: good]] [[done: made]]")
    wait_for_checks(box, "good")
    git_folder = Path(box.git("rev-parse", "--absolute-git-dir", cwd=Path(box.session("app-bad")["workspacePath"])))
    (git_folder / "rebase-merge").mkdir()
    os.mkfifo(git_folder / "rebase-merge/head-name")
    os.mkfifo(git_folder / "index.lock")
    box.ao("merge", "good")
    assert box.git("show", "main:good.txt") == "good"
    (git_folder / "gitdir").unlink()
    os.mkfifo(git_folder / "gitdir")
    box.ao("stop", "stopped")
    assert box.session("app-stopped")["status"] == "stopped"
    create_session(box, "next", "[[say: here]]")
    wait_for_status(box, "next", "idle")


def test_an_agent_that_checked_out_the_base_does_not_block_merges(box: Sandbox) -> None:
    box.git("switch", "-qc", "mine")
    create_session(box, "bad", "[[say: here]]")
    wait_for_status(box, "bad", "idle")
    create_session(box, "good", "[[edit: README.md|good]] [[commit: good]] [[done: made]]")
    wait_for_checks(box, "good")
    workspace = Path(box.session("app-bad")["workspacePath"])
    box.git("switch", "-q", "main", cwd=workspace)
    (workspace / "README.md").write_text("its own\n")
    before = box.git("rev-parse", "main")
    box.ao("merge", "good")
    assert "good" in box.git("show", "main:README.md") and (workspace / "README.md").read_text() == "its own\n"
    assert box.git("rev-parse", "--abbrev-ref", "HEAD", cwd=workspace) == "HEAD"
    assert box.git("rev-parse", "HEAD", cwd=workspace) == before
