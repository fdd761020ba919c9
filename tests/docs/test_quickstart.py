"""The quickstart runs as written: each `sh` block in order, in the folder in which the previous one ended."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.interpreter import make_launchers
from agent_orchestrator.testing.sandbox import Sandbox
from tests.docs.pages import ROOT, Block, blocks

QUICKSTART = ROOT / "docs" / "quickstart.md"


@pytest.mark.long
def test_the_quickstart_runs_as_written(tmp_path: Path) -> None:
    programs = tmp_path / "ao-programs"
    make_launchers(str(programs))
    with Sandbox(tmp_path, env={"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}) as box:
        folder = tmp_path
        for block in blocks(QUICKSTART, "sh"):
            folder = run(box, block, folder)
            box.wait_until(lambda: box.daemon_pid() is None or settled(box), f"what {block} began", 120.0)
        merged = dict.fromkeys(("say-hello", "greet-by-name"), "merged")
        ends = {**merged, "store": "review_pending", "draft": "idle", "copy": "review_pending"}
        box.wait_until(lambda: {session["name"]: session["status"] for session in box.sessions()} == ends, str(ends))
        assert box.git("show", "feature/store:store.txt", cwd=folder) == "PostgreSQL"
        assert box.git("log", "-2", "--format=%s", "main", cwd=folder).splitlines() == [
            "Greet by name (#4)",
            "Say hello (#1)",
        ]
        issues = box.request("GET", "/api/issues?all=1&state=all")["issues"]
        assert [(issue["number"], issue["state"]) for issue in issues] == [(2, "closed"), (3, "open")]


def run(box: Sandbox, block: Block, here: Path) -> Path:
    """Run a block and return the folder in which it ends."""
    end = box.folder / "end"
    script = f"set -eu\n{block.text}\npwd >{end}\n"
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=here,
        env=box.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return Path(end.read_text().strip())


def settled(box: Sandbox) -> bool:
    """Return whether no agent works and every commit has a pull request, so that a reader would continue."""
    return all(session["column"] != "Working" and not _unopened(session) for session in box.sessions())


def _unopened(session: dict[str, Any]) -> bool:
    """Return whether a session has commits without a pull request."""
    if session["workspacePath"] is None or session["pr"]:
        return False
    ahead = ["git", "rev-list", "--count", f"{session['base']}..HEAD"]
    done = subprocess.run(ahead, cwd=session["workspacePath"], capture_output=True, text=True, check=False)
    return done.stdout.strip() not in ("", "0")
