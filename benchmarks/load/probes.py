"""The times of API answers, measured from a separate process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from random import Random
from typing import Any

from benchmarks.load.connection import AsyncHTTPConnection

RequestFactory = Callable[[int], tuple[str, str, object]]
"""Returns method, path and body of the request with this number."""


def play(pipe: Connection, url: str, token: str, sessions: Sequence[str], seconds: float) -> dict[str, Any]:
    """Request each route at its own rate, each over a separate connection; return the times and errors."""
    return asyncio.run(_probe(pipe, url, token, sessions, seconds))


def _routes(sessions: Sequence[str]) -> dict[str, tuple[float, RequestFactory]]:
    """Return the routes by name: requests per second, and the function that makes a request."""

    def of(number: int) -> str:
        return sessions[number * 7919 % len(sessions)]

    return {
        "list": (4.0, lambda _: ("GET", "/api/sessions?all=1", None)),
        "session": (4.0, lambda n: ("GET", f"/api/sessions/{of(n)}", None)),
        "status": (4.0, lambda n: ("GET", f"/api/sessions/{of(n)}/status", None)),
        "overview": (2.0, lambda _: ("GET", "/api/overview", None)),
        "timeline": (1.0, lambda n: ("GET", f"/api/sessions/{of(n)}/timeline", None)),
        "events": (1.0, lambda _: ("GET", "/api/events?limit=100", None)),
        "message": (1.0, lambda n: ("POST", f"/api/sessions/{of(n)}/message", {"content": f"lm{n}. noted"})),
        "healthz": (3.0, lambda _: ("GET", "/healthz", None)),
    }


async def _probe(pipe: Connection, url: str, token: str, sessions: Sequence[str], seconds: float) -> dict[str, Any]:
    times_by_route: dict[str, list[float]] = {}
    wrong_answers: list[str] = []
    accepted: list[tuple[str, str]] = []

    async def keep_asking(name: str, per_second: float, make_request: RequestFactory) -> None:
        connection, chance, times = AsyncHTTPConnection(url, token), Random(name), times_by_route.setdefault(name, [])
        due, number, ended = time.monotonic() + chance.random() / per_second, 0, 0.0
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            # Who would have asked while the answer before was still awaited waits too.
            begun = due if ended > due else time.monotonic()
            method, path, body = make_request(number)
            status, _, answer = await connection.request(method, path, body)
            ended = time.monotonic()
            times.append(ended - begun)
            if status not in (200, 202):
                wrong_answers.append(f"{method} {path}: {status} {answer[:200]!r}")
            elif isinstance(body, dict):
                accepted.append((path.split("/")[3], str(body["content"]).partition(" ")[0]))
            number += 1
            due += chance.expovariate(per_second)
        connection.close()

    pipe.send("ready")
    pipe.recv()
    end = time.monotonic() + seconds
    await asyncio.gather(*(keep_asking(name, *route) for name, route in _routes(sessions).items()))
    return {"took": times_by_route, "wrong": wrong_answers, "messages": accepted}
