"""The daemon is killed right after it did something at a forge, before that is recorded; `make crashes` does so everywhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
API = "/api/*/repos/acme/app"


@pytest.mark.parametrize(
    ("story", "place"),
    [
        ("forge", f"http POST {API}/pulls: pull_requests.open < pull_requests.open < pull_requests.run"),
        ("forge", f"http POST {API}/issues/*/comments: issues.comment < issue_sync.track"),
        ("forge", "http mutation Reply: host.graphql < pull_requests.reply < pull_requests.reply"),
        ("forge", f"http PUT {API}/pulls/*/merge: merge.merge_now < merge.merge_or_enqueue < pull_requests.merge < pull_requests._land"),
        ("asked", "http mutation AutoMerge: host.graphql < merge._asked < merge.merge_or_enqueue < pull_requests.merge"),
    ],
    ids=["open-pr", "track", "reply", "land", "auto-merge"],
)  # fmt: skip
def test_a_death_doubles_nothing_at_the_forge(schema: Path, story: str, place: str) -> None:
    # A process of its own: it forks its daemons, which one with threads should not.
    argv = [sys.executable, "-m", "tests.faults.statements", "--only", f"{story}-process", "--at", f"1# {place}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
