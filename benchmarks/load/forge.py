"""The forge: a GitHub test server in a separate process, with a reviewer who comments on pull requests all the time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from agent_orchestrator.testing.github import GitHubServer
from benchmarks.load.plan import REPOSITORIES, SECRET, random_times


def play(pipe: Connection, schema: Path) -> dict[str, Any]:
    """Serve; receive the pull requests and the webhook URL; comment for so many seconds; send the statuses of all deliveries."""
    with GitHubServer(schema=schema) as forge:
        for repo in REPOSITORIES:
            forge.repository(repo, {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
        pipe.send({"url": forge.url, "token": forge.token("dev")})
        heads: Mapping[str, Sequence[tuple[int, str]]] = pipe.recv()
        for repo, pulls in heads.items():
            for _, head in pulls:
                forge.check(repo, head, "tests", "success")
        pipe.send("ready")
        hook, per_minute, seconds = pipe.recv()
        for repo in REPOSITORIES:
            forge.hook(repo, hook, SECRET)
        before = dict(forge.ledger.counts())
        comments = _comment(
            forge, [(repo, number) for repo, pulls in heads.items() for number, _ in pulls], per_minute, seconds
        )
        forge.hooks.wait()
        statuses = Counter(delivery.status_code for delivery in forge.hooks.sent)
        request_counts = {kind: count - before.get(kind, 0) for kind, count in forge.ledger.counts().items()}
        pipe.send(
            {"comments": comments, "answered": dict(statuses), "asked": request_counts, "cpu": time.process_time()}
        )
        pipe.recv()
    return {}


def _comment(forge: GitHubServer, pulls: Sequence[tuple[str, int]], per_minute: float, seconds: float) -> list[str]:
    """Comment at random intervals; return the unique mark of each comment."""
    random = Random(5)
    marks: list[str] = []
    started_at = time.monotonic()
    for due in random_times(random, per_minute, seconds):
        time.sleep(max(0.0, started_at + due - time.monotonic()))
        repo, number = random.choice(pulls)
        marks.append(f"lc{len(marks)}.")
        forge.comment(forge.find_pull(repo, number), f"{marks[-1]} please look at this [[say: noted]]", by="rev")
    return marks
