"""The forge: a GitHub on loopback in a process of its own, on whose pull requests a reviewer comments all the time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from agent_orchestrator.testing.github import GitHubServer
from benchmarks.load.plan import REPOSITORIES, SECRET


def play(pipe: Connection, schema: Path) -> dict[str, Any]:
    """Serve; then, once told where webhooks go and what is open, comment for so many seconds, and tell how each delivery was answered."""
    with GitHubServer(schema=schema) as forge:
        for repo in REPOSITORIES:
            forge.repository(repo, {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
        pipe.send({"url": forge.url, "token": forge.token("dev")})
        heads: Mapping[str, Sequence[tuple[int, str]]] = pipe.recv()
        for repo, pulls in heads.items():
            for _, head in pulls:
                forge.check(repo, head, "tests", "success")
        pipe.send("ready")
        hook, a_minute, seconds = pipe.recv()
        for repo in REPOSITORIES:
            forge.hook(repo, hook, SECRET)
        before = dict(forge.ledger.counts())
        said = _comment(
            forge, [(repo, number) for repo, pulls in heads.items() for number, _ in pulls], a_minute, seconds
        )
        forge.hooks.wait()
        answered = Counter(delivery.status_code for delivery in forge.hooks.sent)
        asked = {kind: count - before.get(kind, 0) for kind, count in forge.ledger.counts().items()}
        pipe.send({"comments": said, "answered": dict(answered), "asked": asked, "cpu": time.process_time()})
        pipe.recv()
    return {}


def _comment(forge: GitHubServer, pulls: Sequence[tuple[str, int]], a_minute: float, seconds: float) -> list[str]:
    """At moments of chance; returns what tells each from all others."""
    chance = Random(5)
    said: list[str] = []
    begun = due = time.monotonic()
    while due < begun + seconds:
        time.sleep(max(0.0, due - time.monotonic()))
        repo, number = chance.choice(pulls)
        said.append(f"lc{len(said)}.")
        forge.comment(forge.find_pull(repo, number), f"{said[-1]} please look at this [[say: noted]]", by="rev")
        due += chance.expovariate(a_minute / 60)
    return said
