"""Traces: one for each event that had an effect, from the event to its result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, EffectRunner
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.store.database import Database
from agent_orchestrator.errors import AoError
from agent_orchestrator.views.tracing import Tracing
from tests.unit.core.world import ManualClock

pytestmark = pytest.mark.anyio

SECRET = "the text of the task"


class Ticking(ManualClock):
    """A clock that advances whenever it is read."""

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


class World:
    """A flow with one effect, and its exported spans."""

    def __init__(self, folder: Path) -> None:
        self.time = Ticking(100.0)
        self.fails = False
        self.flow = Flow(Database.sqlite(folder / "ao.db"), self.time, lambda _p, _q: tuple(DEFAULT_RULES))
        self.runner = EffectRunner(self.flow, {"prepare": Effect(self._prepare, fatal_step="prepare")})
        self.spans = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracing = Tracing(self.flow, provider)

    async def _prepare(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        if self.fails:
            raise AoError("no room", "make some")
        self.time.now += 5.0
        body = e.WorkspaceCreated(path="/w", base_commit="b", git_dir="/g", branch="feature/x", base="main", head="b")
        return [Event(body, self.time.now, "daemon", "made", "app", intent.session)]

    async def run(self) -> dict[str, Any]:
        body = e.SessionCreated("T1", "x", "x", SECRET, "demo", "process", "worktree", "feature/x", "main", "/r", "/w")
        self.runner.start(await self.flow.start())
        created = Event(body, 1.0, "person", "created", "app", "app-x")
        await self.flow.append(created, Event(e.SessionAdmitted(), 2.0, "scheduler", "admit", "app", "app-x"))
        async with asyncio.timeout(60):
            while not any(span.name.startswith("effect prepare") for span in self.spans.get_finished_spans()):
                await asyncio.sleep(0)
        spans = self.spans.get_finished_spans()
        first = next(span for span in spans if span.name == "event session-admitted")
        return {span.name: span for span in spans if span.context.trace_id == first.context.trace_id}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    scene = World(tmp_path)
    yield scene
    await scene.runner.drain()
    await scene.flow.stop()
    await scene.flow.store.close()


async def test_a_trace_runs_from_the_event_to_its_result(world: World) -> None:
    spans = await world.run()
    chain = ["event session-admitted", "decide", "intent prepare", "effect prepare", "event workspace-created"]
    assert spans[chain[0]].parent is None
    for above, below in pairwise(chain):
        assert spans[below].parent.span_id == spans[above].context.span_id, (above, below)
        assert spans[below].context.trace_id == spans[above].context.trace_id
        assert spans[below].start_time >= spans[above].start_time
    effect = spans["effect prepare"]
    assert effect.end_time - effect.start_time > 5_000_000_000
    assert effect.attributes["ao.session"] == "app-x" and effect.attributes["ao.state"] == "done"
    assert spans[chain[0]].attributes["ao.seq"] == effect.attributes["ao.cause"] == 2


async def test_the_effect_of_a_result_is_a_separate_linked_trace(world: World) -> None:
    spans = await world.run()
    roots = [span for span in world.spans.get_finished_spans() if span.parent is None]
    second = next(span for span in roots if span.name == "event workspace-created")
    first = spans["event session-admitted"]
    assert second.context.trace_id != first.context.trace_id
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


async def test_a_failed_effect_has_an_error_status(world: World) -> None:
    world.fails = True
    spans = await world.run()
    status = spans["effect prepare"].status
    assert status.status_code is StatusCode.ERROR and status.description == "no room"
    assert spans["event session-failed"].parent.span_id == spans["effect prepare"].context.span_id


async def test_traces_contain_no_texts(world: World) -> None:
    await world.run()
    assert SECRET not in str([(span.name, dict(span.attributes or {})) for span in world.spans.get_finished_spans()])


async def test_an_event_without_an_effect_makes_no_trace(world: World) -> None:
    await world.run()
    before = len(world.spans.get_finished_spans())
    await world.flow.append(Event(e.AgentProgress(1, 2), 3.0, "spool", "p", "app", "app-x"))
    assert len(world.spans.get_finished_spans()) == before
