"""A sender of signed webhooks, each over a new connection, most of them about unwatched pull requests."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from random import Random
from typing import Any
from urllib.parse import urlsplit

from benchmarks.load.plan import SECRET, random_times

BODY_BYTES = 9000
"""Bytes of a body; GitHub's have about ten thousand."""
REPEATED_SHARE = 0.03
"""The share that is sent again, as by a forge that got no answer."""
RELEVANT_SHARE = 0.1
"""The share about watched commits or pull requests, which the daemon then reads."""


def play(
    pipe: Connection, url: str, pulls: Mapping[str, Sequence[tuple[int, str]]], per_minute: float, seconds: float
) -> dict[str, Any]:
    """Send webhooks at random intervals; `pulls` has each repository's watched pull requests and their commits."""
    return asyncio.run(_send(pipe, url, pulls, per_minute, seconds))


async def _send(
    pipe: Connection, url: str, pulls: Mapping[str, Sequence[tuple[int, str]]], per_minute: float, seconds: float
) -> dict[str, Any]:
    random, address = Random(11), urlsplit(url)
    answers: list[tuple[str, int, bool | None]] = []
    times: list[float] = []

    async def post(id_: str, kind: str, content: bytes) -> None:
        started_at = time.monotonic()
        try:
            status, was_taken = await _post(address.hostname or "", address.port or 0, address.path, id_, kind, content)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            status, was_taken = 0, None
        times.append(time.monotonic() - started_at)
        answers.append((id_, status, was_taken))

    pipe.send("ready")
    pipe.recv()
    started_at = time.monotonic()
    tasks: set[asyncio.Task[None]] = set()
    last_delivery: tuple[str, str, bytes] | None = None
    number = 0
    for due in random_times(random, per_minute, seconds):
        await asyncio.sleep(max(0.0, started_at + due - time.monotonic()))
        if last_delivery is None or random.random() > REPEATED_SHARE:
            number += 1
            kind, body = _make_event(random, pulls, number)
            last_delivery = (f"load-{number}", kind, body)
        task = asyncio.create_task(post(*last_delivery))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return {"answers": answers, "took": times, "different": number}


def _make_event(random: Random, pulls: Mapping[str, Sequence[tuple[int, str]]], number: int) -> tuple[str, bytes]:
    """Return the type and the body of a random event."""
    repo = random.choice(list(pulls))
    payload: dict[str, Any] = {"repository": {"id": 1, "full_name": repo}, "sender": {"login": "someone"}}
    sha = hashlib.sha1(b"%d" % number).hexdigest()
    is_relevant = random.random() < RELEVANT_SHARE and pulls[repo]
    pull, head = random.choice(pulls[repo]) if is_relevant else (100_000 + number, sha)
    kind = random.choice(("check_run", "workflow_job", "pull_request", "push", "issues", "star", "status"))
    if kind in ("check_run", "workflow_job"):
        payload |= {"action": "completed", kind: {"id": number, "head_sha": head, "name": "tests"}}
    elif kind == "pull_request":
        payload |= {"action": "labeled", "number": pull, kind: {"number": pull}}
    elif kind == "push":
        payload |= {"ref": f"refs/heads/feature-{number}", "before": sha, "after": sha}
    elif kind == "issues":
        payload |= {"action": "labeled", "issue": {"number": 100_000 + number}}
    elif kind == "status":
        payload |= {"sha": head, "state": "success", "context": "ci"}
    else:
        payload |= {"action": "created"}
    body = json.dumps(payload)
    return kind, json.dumps({**payload, "filler": "x" * max(0, BODY_BYTES - len(body))}).encode()


async def _post(host: str, port: int, path: str, id_: str, kind: str, body: bytes) -> tuple[int, bool | None]:
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"X-GitHub-Event: {kind}\r\nX-GitHub-Delivery: {id_}\r\nX-Hub-Signature-256: sha256={signature}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(head.encode() + body)
        async with asyncio.timeout(10):
            answer = await reader.read()
    finally:
        writer.close()
    first, _, remainder = answer.partition(b"\r\n")
    response_body = remainder.partition(b"\r\n\r\n")[2]
    status = int(first.split()[1])
    return status, json.loads(response_body)["taken"] if status == 202 else None
