"""The fleet client: handlers and their order, and waiting for idle sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from agent_orchestrator.client.api import fleet as fleets
from agent_orchestrator.client.api import sessions
from agent_orchestrator.client.api.connection import DaemonConnection, Json, TimedOut
from agent_orchestrator.client.api.events import Event
from agent_orchestrator.client.api.fleet import SessionTracker
from agent_orchestrator.client.api.sessions import Session

pytestmark = pytest.mark.anyio


class _Slow:
    """A daemon whose first response arrives after its second."""

    def __init__(self, session: Json) -> None:
        self.session = session
        self.requests = 0
        self.second = asyncio.Event()

    async def get_if_running(self, _path: str) -> Any:
        self.requests += 1
        if self.requests == 1:
            with_patience = asyncio.wait_for(self.second.wait(), 0.2)
            await asyncio.gather(with_patience, return_exceptions=True)
        self.second.set()
        return self.session

    async def follow_events(self, _after: int, *, project: str) -> AsyncGenerator[Json | None, None]:
        for seq, step in enumerate(("one", "two", "three"), 1):
            yield {
                "seq": seq,
                "type": "agent-progress",
                "session": "app-a",
                "project": project,
                "source": "spool",
                "time": "2026-01-01T00:00:00Z",
                "data": {"step": step},
            }


async def test_a_handler_is_called_in_the_order_of_events() -> None:
    steps: list[str] = []
    fleet = SessionTracker(
        cast("DaemonConnection", _Slow({"id": "app-a", "status": "working", "activity": "active"})), "app", 0
    )

    async def handler(event: Event) -> None:
        steps.append(event.data["step"])
        await asyncio.sleep(0)

    fleet.on("agent-progress", None, handler)
    async with asyncio.timeout(60):
        while len(steps) < 3:
            await asyncio.sleep(0.01)
    await fleet.close(report=True)
    assert steps == ["one", "two", "three"]


class _Waiting:
    """A daemon with an idle session and messages in the given states."""

    def __init__(self, *states: str) -> None:
        self.session = {"id": "app-a", "status": "pr_open", "activity": "idle", "column": "Working", "waitingFor": None}
        self.session |= {"pr": None, "updatedAt": "2026-01-01T00:00:00Z"}
        self.states = list(states)
        self.news: asyncio.Queue[Json | None] = asyncio.Queue()

    async def get_if_running(self, path: str) -> Any:
        return {"messages": [{"state": state} for state in self.states]} if path.endswith("/messages") else self.session

    async def get(self, path: str, _query: object = None) -> Any:
        return {"events": []} if path.endswith("/events") else self.session

    async def newest_event_number(self) -> int:
        return 0

    async def follow_events(self, _after: int, **_filters: str) -> AsyncGenerator[Json | None, None]:
        yield None
        while True:
            yield await self.news.get()

    def says(self, kind: str) -> None:
        item = {"seq": 1, "type": kind, "session": "app-a", "project": "app", "source": "spool", "data": {}}
        self.news.put_nowait({**item, "time": "2026-01-01T00:00:00Z"})

    async def idle(self, way: str, timeout: float | None) -> None:
        session = Session(cast("DaemonConnection", self), self.session)
        if way == "session":
            await session.wait("idle", timeout)
            return
        fleet = SessionTracker(cast("DaemonConnection", self), "app", 0)
        await fleet.track(session)
        try:
            await fleet.wait(timeout, "idle")
        finally:
            await fleet.close(report=False)


@pytest.fixture(params=["session", "fleet"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return which object waits, with a short settling time."""
    for module in (sessions, fleets):
        monkeypatch.setattr(module, "SETTLE_SECONDS", 0.02)
    return str(request.param)


@pytest.mark.parametrize("states", [("queued",), ("acknowledged", "queued"), ("acknowledged", "held", "delivered")])
async def test_a_session_with_unread_messages_is_not_idle(way: str, states: tuple[str, ...]) -> None:
    daemon = _Waiting(*states)
    with pytest.raises(TimedOut):
        await daemon.idle(way, 0.3)
    waiting = asyncio.ensure_future(daemon.idle(way, 60.0))
    daemon.states = ["acknowledged"]
    daemon.says("agent-ack")
    await waiting


@pytest.mark.parametrize(
    "states", [(), ("delivered",), ("acknowledged", "held"), ("delivered", "acknowledged"), ("acknowledged", "failed")]
)
async def test_a_session_whose_messages_were_read_is_idle(way: str, states: tuple[str, ...]) -> None:
    await _Waiting(*states).idle(way, 60.0)


async def test_an_unread_message_is_awaited_for_a_limited_time(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sessions, fleets):
        monkeypatch.setattr(module, "ACKNOWLEDGE_TIMEOUT", 0.1)
    await _Waiting("acknowledged", "delivered").idle(way, 60.0)


async def test_a_handlers_message_counts_before_its_event_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "SETTLE_SECONDS", 0.02)
    daemon = _Waiting()
    fleet = SessionTracker(cast("DaemonConnection", daemon), "app", 0)

    async def answer(_result: object) -> None:
        daemon.states = ["queued"]

    await fleet.track(Session(cast("DaemonConnection", daemon), daemon.session), answer)
    with pytest.raises(TimedOut):
        await fleet.wait(0.3, "idle")
    await fleet.close(report=False)
