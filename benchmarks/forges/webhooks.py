"""Webhooks a second: signed as GitHub signs them, each another one, taken by a daemon that is kept to one core."""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.client import Line, Place, one_core, rate, tcp
from benchmarks.fleet import asked_for, waiting
from benchmarks.measure import Figure, Result, quartiles, share

COUNT = 8000
"""Deliveries at hand: more than are taken in the time."""
SECONDS = 2.0
ROUNDS = 3
SESSIONS = 50
SIZE = 8000
"""Bytes of a delivery, as most of GitHub's are."""
SECRET = "s3cret"
NOTHING = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
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


def webhooks(folder: Path) -> Iterator[Result]:
    """With fifty sessions; and one that nobody signed is refused, one that came before not taken again."""
    with Sandbox(folder / "box", "tmux") as box:
        box.repository(config=CONFIG)
        box.start()
        asked_for(box, [f"n{number}" for number in range(SESSIONS)])
        waiting(box, SESSIONS)
        yield taken(box, f"{SESSIONS} sessions")


def taken(box: Sandbox, what: str, repo: str = "acme/app", secret: str = SECRET) -> Figure:
    """How many are taken a second; every one of them only once, and none that is not genuine."""
    pid, place = box.daemon_pid(), tcp(box)
    assert pid is not None
    deliveries = [signed(number, repo, secret) for number in range(COUNT)]
    _checked(place, deliveries[0], signed(0, repo, "wrong"))
    each = (COUNT - 1) // ROUNDS
    with one_core(pid):
        nothing = rate(pid, place, [NOTHING], 1.0)
        rounds = [
            rate(pid, place, deliveries[1 + turn * each : 1 + (turn + 1) * each], SECONDS, wanted=202, again=False)
            for turn in range(ROUNDS)
        ]
    rates, used = [one.a_second for one in rounds], min(one.each for one in rounds)
    note = (
        f"{used * 1e6:.0f} µs of CPU and {len(deliveries[0]) / 1e3:.0f} kB each; "
        "what they tell of is read from the forge, not from them"
    )
    why = f"{nothing.each * 1e6:.0f} µs are spent on a request that does nothing, `GET /healthz`"
    return Figure(
        f"webhooks taken and verified, {what}, one core",
        share(rates, 0.5),
        1000,
        "a second",
        at_least=True,
        note=note,
        stretch=3000,
        spread=quartiles(rates),
        why=why,
    )


def signed(number: int, repo: str, secret: str) -> bytes:
    """A delivery about a pull request."""
    pull = {"number": 1 + number % SESSIONS, "head": {"sha": f"{number:040x}", "ref": f"b{number}"}, "state": "open"}
    about = {"action": "synchronize", "pull_request": pull, "repository": {"full_name": repo}}
    rest = random.Random(number).randbytes(SIZE // 2).hex()
    body = json.dumps({**about, "body": rest[: SIZE - len(json.dumps(about))]}).encode()
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    head = (
        "POST /api/webhooks/github HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"X-GitHub-Event: pull_request\r\nX-GitHub-Delivery: {repo}-{number}\r\n"
        f"X-Hub-Signature-256: sha256={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _checked(place: Place, genuine: bytes, forged: bytes) -> None:
    """What is measured is what is meant."""
    with Line.to(place) as line:
        answers = [line.send(genuine), line.send(genuine), line.send(forged)]
    if [status for status, _ in answers] != [202, 202, 401] or [
        json.loads(body)["taken"] for _, body in answers[:2]
    ] != [True, False]:
        raise RuntimeError(f"webhooks were answered with {answers}")
