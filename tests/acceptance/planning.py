"""Helpers for tests of plans: goals that the demo agent turns into a given plan, and daemons that crash at a given statement."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.sandbox import Sandbox

ROOT = Path(__file__).parents[2]
WRITES = "[[write: {0}.txt|{0}]] [[commit: {0}]] [[done: made {0}]]"


def task(name: str, *after: str, **more: Any) -> dict[str, Any]:
    fields = {"id": name, "title": f"Make {name}", "description": WRITES.format(name), "dependencies": list(after)}
    return {**fields, "acceptance": [f"{name}.txt is there"], "effort": "small", "files": [f"{name}.txt"], **more}


def goal(*tasks: dict[str, Any], before: str = "", notes: list[str] | None = None) -> str:
    return f"{before}[[plan: {json.dumps({'tasks': tasks, 'notes': notes or []})}]]"


def start_crashing_daemon(box: Sandbox, at: str) -> subprocess.Popen[bytes]:
    """Start a daemon that kills itself at this statement."""
    plan = box.folder / "crash-plan"
    plan.write_text(f"{at}\n")
    box.home.daemon_info.unlink(missing_ok=True)
    daemon = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.crash_points", "--port", "0"],
        cwd=ROOT,
        env={**box.env, "AO_CRASH_PLAN": str(plan)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    box.wait_until(lambda: box.daemon_pid() == daemon.pid or daemon.poll() is not None, "the daemon", 60)
    return daemon
