"""How soon the API answers, asked from a process of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from random import Random
from typing import Any

from benchmarks.load.connection import Line

Asking = Callable[[int], tuple[str, str, object]]
"""The how manieth → method, path and body."""


def play(pipe: Connection, url: str, token: str, sessions: Sequence[str], seconds: float) -> dict[str, Any]:
    """Ask for everything at its own pace, each on a line of its own."""
    return asyncio.run(_probe(pipe, url, token, sessions, seconds))


def _routes(sessions: Sequence[str]) -> dict[str, tuple[float, Asking]]:
    """Name → times a second, and what is asked."""

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
    took: dict[str, list[float]] = {}
    wrong: list[str] = []
    accepted: list[tuple[str, str]] = []

    async def keep_asking(name: str, pace: float, asking: Asking) -> None:
        line, chance, mine = Line(url, token), Random(name), took.setdefault(name, [])
        due, number, ended = time.monotonic() + chance.random() / pace, 0, 0.0
        while due < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            # Who would have asked while the answer before was still awaited waits too.
            begun = due if ended > due else time.monotonic()
            method, path, body = asking(number)
            status, _, answer = await line.ask(method, path, body)
            ended = time.monotonic()
            mine.append(ended - begun)
            if status not in (200, 202):
                wrong.append(f"{method} {path}: {status} {answer[:200]!r}")
            elif isinstance(body, dict):
                accepted.append((path.split("/")[3], str(body["content"]).partition(" ")[0]))
            number += 1
            due += chance.expovariate(pace)
        line.close()

    pipe.send("ready")
    pipe.recv()
    end = time.monotonic() + seconds
    await asyncio.gather(*(keep_asking(name, *route) for name, route in _routes(sessions).items()))
    return {"took": took, "wrong": wrong, "messages": accepted}
