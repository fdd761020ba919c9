"""What watching GitHub costs as sessions grow in number, and how soon a webhook is answered; counted at a GitHub on loopback."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.forges.pull_requests import (
    REPOSITORIES,
    SECRET,
    address,
    hooked,
    opened,
    points_of,
    prepared,
    published,
)
from benchmarks.measure import Figure

SIZES = (10, 50, 100, 200)
CHANGES = 10
QUIET = 75.0
"""Seconds in which nothing changes: three polls."""
ROUNDS = 3
SESSIONS = 50
EXAMPLES = "octokit-webhooks-examples-*/api.github.com/index.json"


def growing(folder: Path) -> Iterator[Figure]:
    """Requests while nothing changes and points for a change, with ten to two hundred sessions of one daemon."""
    schema = published()
    if schema is None:
        return
    quiet: dict[int, float] = {}
    spent: dict[int, float] = {}
    with GitHubServer(schema=schema) as forge, Sandbox(folder / "box", "process") as box:
        prepared(box, forge)
        pulls: dict[str, int] = {}
        for size in SIZES:
            pulls |= opened(box, forge, range(len(pulls), size))
            quiet[size] = _a_minute(forge)
        hooked(box, forge)
        for size in SIZES:  # of two hundred sessions as many change as there were before
            spent[size] = _points_for(box, forge, list(pulls)[: size // CHANGES], pulls)
    least, most = SIZES[0], SIZES[-1]
    note = ", ".join(f"{size}: {count:.3g}" for size, count in quiet.items())
    title = f"requests a minute, nothing changing, {most} sessions ÷ {least}"
    yield Figure(title, quiet[most] / max(quiet[least], 1.0), 1.5, note=f"sessions: requests a minute: {note}")
    slope = (quiet[most] - quiet[least]) / (most - least)
    yield Figure("requests a minute for each further session", slope, 0.02, "requests")
    note = ", ".join(f"{size // CHANGES}: {points:g}" for size, points in spent.items())
    each = max(points / (size // CHANGES) for size, points in spent.items())
    yield Figure(f"GraphQL points for a change, {most} sessions", each, 2.0, "points", note=f"changes: points: {note}")


def answering(folder: Path) -> Iterator[Figure]:
    """From sending a webhook to its answer, with fifty sessions that what it says is read for."""
    schema = published()
    examples = next(iter(sorted(schema.parent.parent.glob(EXAMPLES))), None) if schema else None
    if schema is None or examples is None:
        return
    with GitHubServer(schema=schema) as forge, Sandbox(folder / "box", "process") as box:
        prepared(box, forge)
        pulls = opened(box, forge, range(SESSIONS))
        deliveries = _deliveries(examples, [number for id_, number in pulls.items() if id_.startswith("one-")])
        before = len(forge.ledger.requests)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as poster:
            took, bare = poster.submit(_post, address(box), deliveries).result()
        time.sleep(2.0)
        reads = len(forge.ledger.requests) - before
    took.sort()
    bare.sort()
    p50, p95, p99 = (took[int(len(took) * part)] for part in (0.5, 0.95, 0.99))
    sizes = sorted(len(body) for _, _, body in deliveries)
    note = (
        f"p50 {p50 * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms, worst {took[-1] * 1e3:.1f} ms; {len(took)} deliveries of "
        f"{sizes[len(sizes) // 2] / 1e3:.0f} kB (largest {sizes[-1] / 1e3:.0f} kB), {reads} requests to GitHub because of them"
    )
    yield Figure(f"webhook sent → answered, {SESSIONS} sessions (p99)", p99 * 1e3, 50.0, "ms", note=note)
    least = bare[len(bare) // 2]
    note = f"{p50 * 1e3:.1f} ms ÷ {least * 1e3:.1f} ms, made in turns"
    yield Figure("the same ÷ `GET /healthz` (median)", p50 / least, 3.0, note=note)


Delivery = tuple[str, str, bytes]
"""What happened, its id, and the body."""


def _deliveries(examples: Path, pulls: list[int]) -> list[Delivery]:
    """Every payload that GitHub publishes as an example, made to be about our pull requests."""
    found: list[Delivery] = []
    for turn in range(ROUNDS):
        for event in json.loads(examples.read_text()):
            for example in event["examples"]:
                number = pulls[len(found) % len(pulls)]
                found.append((event["name"], f"{turn}-{len(found)}", _ours(example, number)))
    return found


def _ours(example: dict[str, Any], number: int) -> bytes:
    if "repository" in example:
        example["repository"]["full_name"] = REPOSITORIES[0]
    for part in ("pull_request", "issue"):
        if isinstance(example.get(part), dict):
            example[part]["number"] = number
    return json.dumps(example).encode()


def _post(url: str, deliveries: list[Delivery]) -> tuple[list[float], list[float]]:
    """Send one after the other, each by a connection of its own as GitHub does, and in turns ask for next to nothing; seconds until each
    answer.
    """
    took, bare = [], []
    place = urlsplit(url)
    for event, name, body in deliveries:
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": name,
            "X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest(),
        }
        took.append(_asked(place.netloc, "POST", place.path, body, headers, 202))
        bare.append(_asked(place.netloc, "GET", "/healthz", None, {}, 200))
    return took, bare


def _asked(host: str, method: str, path: str, body: bytes | None, headers: dict[str, str], wanted: int) -> float:
    begun = time.perf_counter()
    wire = http.client.HTTPConnection(host, timeout=30)
    wire.request(method, path, body, headers)
    answer = wire.getresponse()
    answer.read()
    took = time.perf_counter() - begun
    wire.close()
    if answer.status != wanted:
        raise RuntimeError(f"{method} {path} was answered with {answer.status}")
    return took


def _a_minute(forge: GitHubServer) -> float:
    time.sleep(35.0)  # what was under way comes to its end
    before = dict(forge.ledger.counts())
    time.sleep(QUIET)
    after = forge.ledger.counts()
    return (after.get("rest", 0) - before.get("rest", 0)) / (QUIET / 60)


def _points_for(box: Sandbox, forge: GitHubServer, sessions: list[str], pulls: dict[str, int]) -> float:
    """What is spent until a comment on each of these is known here."""
    before = points_of(forge)
    for number, session in enumerate(sessions):
        text = f"grown{len(sessions)}x{number} [[say: noted]]"
        forge.comment(forge.find_pull(f"acme/{session.rpartition('-')[0]}", pulls[session]), text, by="rev")
        box.until(lambda text=text, session=session: text in json.dumps(box.events(session)), "the comment", 60)  # type: ignore[misc]
    time.sleep(1.0)
    return points_of(forge) - before
