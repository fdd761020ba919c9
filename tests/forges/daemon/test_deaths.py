"""The daemon is killed right after a request to a forge, before the result is recorded; `make crashes` does so everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
API = "/api/*/repos/acme/app"


@pytest.mark.parametrize(
    ("story", "fault_point"),
    [
        ("forge", f"http POST {API}/pulls: pull_requests.open < pull_requests.open"),
        ("forge", f"http POST {API}/issues/*/comments: issues.comment < issue_sync.track"),
        ("forge", "http mutation Reply: host.graphql < pull_requests.reply < pull_requests.reply"),
        ("forge", f"http PUT {API}/pulls/*/merge: merge.merge_now < merge.merge_or_enqueue < pull_requests.merge < pull_requests._merge"),
        ("asked", "http mutation AutoMerge: host.graphql < merge._request_merge < merge.merge_or_enqueue < pull_requests.merge"),
    ],
    ids=["open-pr", "track", "reply", "merge", "auto-merge"],
)  # fmt: skip
def test_a_kill_after_a_request_to_the_forge_does_not_repeat_it(schema: Path, story: str, fault_point: str) -> None:
    # In a separate process: it forks its daemons, which a process with threads should not do.
    argv = [sys.executable, "-m", "tests.faults.statements", "--only", f"{story}-process", "--at", f"1# {fault_point}"]
    process = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert process.returncode == 0, process.stdout + process.stderr
