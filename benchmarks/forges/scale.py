"""The cost of polling GitHub as the number of sessions grows, and the time of webhook answers; counted at a test server."""

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
    add_webhooks,
    graphql_points,
    open_sessions,
    prepare_repositories,
    published_schema,
    webhook_url,
)
from benchmarks.measure import Figure

SIZES = (10, 50, 100, 200)
CHANGE_COUNT = 10
QUIET_SECONDS = 75.0
"""Seconds without a change: three polls."""
ROUNDS = 3
SESSION_COUNT = 50
EXAMPLES = "octokit-webhooks-examples-*/api.github.com/index.json"


def measure_github_scale(folder: Path) -> Iterator[Figure]:
    """Measure requests without changes and points per change, with 10 to 200 sessions of one daemon."""
    schema = published_schema()
    if schema is None:
        return
    quiet: dict[int, float] = {}
    spent: dict[int, float] = {}
    with GitHubServer(schema=schema) as forge, Sandbox(folder / "box", "process") as box:
        prepare_repositories(box, forge)
        pulls: dict[str, int] = {}
        for size in SIZES:
            pulls |= open_sessions(box, forge, range(len(pulls), size))
            quiet[size] = _requests_per_minute(forge)
        add_webhooks(box, forge)
        for size in SIZES:  # of two hundred sessions as many change as there were before
            spent[size] = _points_of_comments(box, forge, list(pulls)[: size // CHANGE_COUNT], pulls)
    least, most = SIZES[0], SIZES[-1]
    note = ", ".join(f"{size}: {count:.3g}" for size, count in quiet.items())
    title = f"requests a minute, nothing changing, {most} sessions ÷ {least}"
    yield Figure(title, quiet[most] / max(quiet[least], 1.0), 1.5, note=f"sessions: requests a minute: {note}")
    slope = (quiet[most] - quiet[least]) / (most - least)
    yield Figure("requests a minute for each further session", slope, 0.02, "requests")
    note = ", ".join(f"{size // CHANGE_COUNT}: {points:g}" for size, points in spent.items())
    each = max(points / (size // CHANGE_COUNT) for size, points in spent.items())
    yield Figure(f"GraphQL points for a change, {most} sessions", each, 2.0, "points", note=f"changes: points: {note}")


def measure_webhook_answers(folder: Path) -> Iterator[Figure]:
    """Measure from sending a webhook to its answer, with fifty sessions that it is about."""
    schema = published_schema()
    examples = next(iter(sorted(schema.parent.parent.glob(EXAMPLES))), None) if schema else None
    if schema is None or examples is None:
        return
    with GitHubServer(schema=schema) as forge, Sandbox(folder / "box", "process") as box:
        prepare_repositories(box, forge)
        pulls = open_sessions(box, forge, range(SESSION_COUNT))
        deliveries = _deliveries(examples, [number for id_, number in pulls.items() if id_.startswith("one-")])
        before = len(forge.ledger.requests)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as poster:
            webhook_seconds, health_seconds = poster.submit(_post, webhook_url(box), deliveries).result()
        time.sleep(2.0)
        reads = len(forge.ledger.requests) - before
    webhook_seconds.sort()
    health_seconds.sort()
    p50, p95, p99 = (webhook_seconds[int(len(webhook_seconds) * part)] for part in (0.5, 0.95, 0.99))
    sizes = sorted(len(body) for _, _, body in deliveries)
    note = (
        f"p50 {p50 * 1e3:.1f} ms, p95 {p95 * 1e3:.1f} ms, worst {webhook_seconds[-1] * 1e3:.1f} ms; {len(webhook_seconds)} deliveries of "
        f"{sizes[len(sizes) // 2] / 1e3:.0f} kB (largest {sizes[-1] / 1e3:.0f} kB), {reads} requests to GitHub because of them"
    )
    yield Figure(f"webhook sent → answered, {SESSION_COUNT} sessions (p99)", p99 * 1e3, 50.0, "ms", note=note)
    health_median = health_seconds[len(health_seconds) // 2]
    note = f"{p50 * 1e3:.1f} ms ÷ {health_median * 1e3:.1f} ms, made in turns"
    yield Figure("the same ÷ `GET /healthz` (median)", p50 / health_median, 3.0, note=note)


Delivery = tuple[str, str, bytes]
"""The event, the delivery's id, and the body."""


def _deliveries(examples: Path, pulls: list[int]) -> list[Delivery]:
    """Return all example payloads that GitHub publishes, changed to be about our pull requests."""
    deliveries: list[Delivery] = []
    for round_number in range(ROUNDS):
        for event in json.loads(examples.read_text()):
            for example in event["examples"]:
                number = pulls[len(deliveries) % len(pulls)]
                deliveries.append(
                    (event["name"], f"{round_number}-{len(deliveries)}", _for_our_repository(example, number))
                )
    return deliveries


def _for_our_repository(example: dict[str, Any], number: int) -> bytes:
    if "repository" in example:
        example["repository"]["full_name"] = REPOSITORIES[0]
    for part in ("pull_request", "issue"):
        if isinstance(example.get(part), dict):
            example[part]["number"] = number
    return json.dumps(example).encode()


def _post(url: str, deliveries: list[Delivery]) -> tuple[list[float], list[float]]:
    """Send each delivery over a new connection, as GitHub does, in turns with a health request; return the seconds of both."""
    webhook_seconds, health_seconds = [], []
    address = urlsplit(url)
    for event, name, body in deliveries:
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": name,
            "X-Hub-Signature-256": "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest(),
        }
        webhook_seconds.append(_timed_request(address.netloc, "POST", address.path, body, headers, 202))
        health_seconds.append(_timed_request(address.netloc, "GET", "/healthz", None, {}, 200))
    return webhook_seconds, health_seconds


def _timed_request(
    host: str, method: str, path: str, body: bytes | None, headers: dict[str, str], expected_status: int
) -> float:
    started_at = time.perf_counter()
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    response.read()
    seconds = time.perf_counter() - started_at
    connection.close()
    if response.status != expected_status:
        raise RuntimeError(f"{method} {path} was answered with {response.status}")
    return seconds


def _requests_per_minute(forge: GitHubServer) -> float:
    time.sleep(35.0)  # what was under way comes to its end
    before = dict(forge.ledger.counts())
    time.sleep(QUIET_SECONDS)
    after = forge.ledger.counts()
    return (after.get("rest", 0) - before.get("rest", 0)) / (QUIET_SECONDS / 60)


def _points_of_comments(box: Sandbox, forge: GitHubServer, sessions: list[str], pulls: dict[str, int]) -> float:
    """Comment on the pull request of each session; return the points spent until the daemon has read them."""
    before = graphql_points(forge)
    for number, session in enumerate(sessions):
        text = f"grown{len(sessions)}x{number} [[say: noted]]"
        forge.comment(forge.find_pull(f"acme/{session.rpartition('-')[0]}", pulls[session]), text, by="rev")
        box.wait_until(lambda text=text, session=session: text in json.dumps(box.events(session)), "the comment", 60)  # type: ignore[misc]
    time.sleep(1.0)
    return graphql_points(forge) - before
