"""A forge's sender: signed webhooks, each by a connection of its own, most of them about nothing that matters here."""

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

from benchmarks.load.plan import SECRET

SIZE = 9000
"""Bytes of a body, about: what GitHub sends has some ten thousand."""
AGAIN = 0.03
"""Of them, so many are sent once more, as a forge does that saw no answer."""
CONCERNS = 0.1
"""Of them, so many are about a commit or a pull request that is watched, and make it be read."""


def play(
    pipe: Connection, url: str, pulls: Mapping[str, Sequence[tuple[int, str]]], a_minute: float, seconds: float
) -> dict[str, Any]:
    """Send at moments of chance; `pulls`: each repository's watched pull requests and their commits."""
    return asyncio.run(_send(pipe, url, pulls, a_minute, seconds))


async def _send(
    pipe: Connection, url: str, pulls: Mapping[str, Sequence[tuple[int, str]]], a_minute: float, seconds: float
) -> dict[str, Any]:
    chance, place = Random(11), urlsplit(url)
    answers: list[tuple[str, int, bool | None]] = []
    took: list[float] = []

    async def post(id_: str, kind: str, body: bytes) -> None:
        begun = time.monotonic()
        try:
            status, taken = await _post(place.hostname or "", place.port or 0, place.path, id_, kind, body)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            status, taken = 0, None
        took.append(time.monotonic() - begun)
        answers.append((id_, status, taken))

    pipe.send("ready")
    pipe.recv()
    begun = due = time.monotonic()
    under_way: set[asyncio.Task[None]] = set()
    last: tuple[str, str, bytes] | None = None
    number = 0
    while due < begun + seconds:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        if last is None or chance.random() > AGAIN:
            number += 1
            kind, told = _happening(chance, pulls, number)
            last = (f"load-{number}", kind, told)
        task = asyncio.create_task(post(*last))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        due += chance.expovariate(a_minute / 60)
    await asyncio.gather(*under_way)
    return {"answers": answers, "took": took, "different": number}


def _happening(chance: Random, pulls: Mapping[str, Sequence[tuple[int, str]]], number: int) -> tuple[str, bytes]:
    """A kind and a body."""
    repo = chance.choice(list(pulls))
    told: dict[str, Any] = {"repository": {"id": 1, "full_name": repo}, "sender": {"login": "somebody"}}
    sha = hashlib.sha1(b"%d" % number).hexdigest()
    concerned = chance.random() < CONCERNS and pulls[repo]
    pull, head = chance.choice(pulls[repo]) if concerned else (100_000 + number, sha)
    kind = chance.choice(("check_run", "workflow_job", "pull_request", "push", "issues", "star", "status"))
    if kind in ("check_run", "workflow_job"):
        told |= {"action": "completed", kind: {"id": number, "head_sha": head, "name": "tests"}}
    elif kind == "pull_request":
        told |= {"action": "labeled", "number": pull, kind: {"number": pull}}
    elif kind == "push":
        told |= {"ref": f"refs/heads/feature-{number}", "before": sha, "after": sha}
    elif kind == "issues":
        told |= {"action": "labeled", "issue": {"number": 100_000 + number}}
    elif kind == "status":
        told |= {"sha": head, "state": "success", "context": "ci"}
    else:
        told |= {"action": "created"}
    body = json.dumps(told)
    return kind, json.dumps({**told, "filler": "x" * max(0, SIZE - len(body))}).encode()


async def _post(host: str, port: int, path: str, id_: str, kind: str, body: bytes) -> tuple[int, bool | None]:
    signed = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        f"X-GitHub-Event: {kind}\r\nX-GitHub-Delivery: {id_}\r\nX-Hub-Signature-256: sha256={signed}\r\nConnection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(head.encode() + body)
        async with asyncio.timeout(10):
            answer = await reader.read()
    finally:
        writer.close()
    first, _, rest = answer.partition(b"\r\n")
    said = rest.partition(b"\r\n\r\n")[2]
    status = int(first.split()[1])
    return status, json.loads(said)["taken"] if status == 202 else None
