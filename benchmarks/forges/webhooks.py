"""Webhooks per second: signed like GitHub's, all different, with the daemon pinned to one core."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.client import Address, HTTPConnection, measure_request_rate, pin_to_one_core, tcp_address
from benchmarks.fleet import request_sessions, wait_for_status
from benchmarks.measure import Figure, Result, quantile, quartiles

WEBHOOK_COUNT = 8000
"""Prepared deliveries: more than are accepted in the time."""
SECONDS = 2.0
ROUNDS = 3
SESSION_COUNT = 50
BODY_BYTES = 8000
"""Bytes of a delivery, a usual size at GitHub."""
SECRET = "s3cret"
HEALTH_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
CONFIG = f"""
defaults: {{agent: demo, runtime: tmux}}
orchestrator: {{maxParallelAgents: 100}}
projects:
  app:
    path: .
    repo: acme/app
    tracker: local
    scm: {{plugin: github, token: none, apiUrl: "http://127.0.0.1:9", webhook: {{secret: {SECRET}}}}}
"""


def measure_webhooks(folder: Path) -> Iterator[Result]:
    """Measure webhooks with fifty sessions; check that unsigned and repeated ones are not accepted."""
    with Sandbox(folder / "box", "tmux") as box:
        box.repository(config=CONFIG)
        box.start()
        request_sessions(box, [f"n{number}" for number in range(SESSION_COUNT)])
        wait_for_status(box, SESSION_COUNT)
        yield measure_rate(box, f"{SESSION_COUNT} sessions")


def measure_rate(box: Sandbox, title: str, repo: str = "acme/app", secret: str = SECRET) -> Figure:
    """Return the figure of accepted webhooks per second; check that repeated and forged ones are not accepted."""
    pid, address = box.daemon_pid(), tcp_address(box)
    assert pid is not None
    deliveries = [signed_delivery(number, repo, secret) for number in range(WEBHOOK_COUNT)]
    _check_answers(address, deliveries[0], signed_delivery(0, repo, "wrong"))
    per_round = (WEBHOOK_COUNT - 1) // ROUNDS
    with pin_to_one_core(pid):
        health_rate = measure_request_rate(pid, address, [HEALTH_REQUEST], 1.0)
        rounds = [
            measure_request_rate(
                pid,
                address,
                deliveries[1 + turn * per_round : 1 + (turn + 1) * per_round],
                SECONDS,
                expected_status=202,
                repeat=False,
            )
            for turn in range(ROUNDS)
        ]
    rates, cpu = [result.per_second for result in rounds], min(result.cpu_seconds_each for result in rounds)
    note = (
        f"{cpu * 1e6:.0f} µs of CPU and {len(deliveries[0]) / 1e3:.0f} kB each; "
        "what they tell of is read from the forge, not from them"
    )
    why = f"{health_rate.cpu_seconds_each * 1e6:.0f} µs are spent on a request that does nothing, `GET /healthz`"
    return Figure(
        f"webhooks taken and verified, {title}, one core",
        quantile(rates, 0.5),
        1000,
        "a second",
        at_least=True,
        note=note,
        stretch=3000,
        spread=quartiles(rates),
        why=why,
    )


def signed_delivery(number: int, repo: str, secret: str) -> bytes:
    """Return a signed delivery about a pull request, as an HTTP request."""
    pull = {
        "number": 1 + number % SESSION_COUNT,
        "head": {"sha": f"{number:040x}", "ref": f"b{number}"},
        "state": "open",
    }
    about = {"action": "synchronize", "pull_request": pull, "repository": {"full_name": repo}}
    filler = random.Random(number).randbytes(BODY_BYTES // 2).hex()
    body = json.dumps({**about, "body": filler[: BODY_BYTES - len(json.dumps(about))]}).encode()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    head = (
        "POST /api/webhooks/github HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"X-GitHub-Event: pull_request\r\nX-GitHub-Delivery: {repo}-{number}\r\n"
        f"X-Hub-Signature-256: sha256={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _check_answers(address: Address, genuine: bytes, forged: bytes) -> None:
    """Check that a delivery is accepted once and a forged one refused."""
    with HTTPConnection.connect(address) as line:
        answers = [line.send(genuine), line.send(genuine), line.send(forged)]
    if [status for status, _ in answers] != [202, 202, 401] or [
        json.loads(body)["taken"] for _, body in answers[:2]
    ] != [True, False]:
        raise RuntimeError(f"webhooks were answered with {answers}")
