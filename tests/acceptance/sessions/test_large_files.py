"""Huge files are not read, block no command, and are not lost."""

from __future__ import annotations

import time
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox


def test_a_file_of_300_gb_is_neither_compared_nor_saved_but_kept(box: Sandbox) -> None:
    box.ao("new", "[[edit: small.txt|x]] [[say: ready]]", "--name", "l")
    box.wait_until(lambda: box.session("l")["activity"] == "idle")
    workspace = Path(box.session("l")["workspacePath"])
    with (workspace / "huge.bin").open("wb") as file:
        file.truncate(300 << 30)
    started_at = time.monotonic()
    diff = box.ao("diff", "l")
    assert "+x" in diff.stdout and "huge.bin" not in diff.stdout
    assert "too large to be shown: huge.bin; see it: ao sh l -- git diff" in diff.stderr
    assert "huge.bin | too large to be compared" in box.ao("diff", "l", "--stat").stdout
    stopped = box.ao("stop", "l").stdout
    assert "the workspace stays (huge.bin is too large to be saved: more than 4 GB)" in stopped
    assert time.monotonic() - started_at < 60
    assert (workspace / "huge.bin").stat().st_size == 300 << 30 and (workspace / "small.txt").exists()
    box.ao("restore", "l")
    box.wait_until(lambda: box.session("l")["activity"] == "idle", "it to be back")
    assert (workspace / "huge.bin").exists() and (workspace / "small.txt").read_text().strip() == "x"
