"""Traces by OpenTelemetry, from event to effect: which event led to what, how long it waited and how long it took.

One trace for each event that something is to be done about: `event` → `decide` → `intent` → `effect`, one for each attempt, → the
events that tell its result. An event that comes of another one's trace is linked to it. Loaded only where a receiver is configured, by
OpenTelemetry's own variables, which also say how it is reached and what is sampled.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue

from agent_orchestrator import __version__
from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.core.effects import Runner
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.outbox import Row

REMEMBERED = 10_000
"""Traces and intents that something may still be added to."""
PATIENCE = 3.0
"""Seconds for the last spans to be sent when the daemon ends."""

K = TypeVar("K")


def provider() -> TracerProvider:
    """Sends to whom `OTEL_EXPORTER_OTLP_ENDPOINT` names."""
    given = Resource.create()
    ours = {"service.version": __version__}
    if str(given.attributes.get("service.name", "")).startswith("unknown_service"):
        ours["service.name"] = "agent-orchestrator"
    made = TracerProvider(resource=given.merge(Resource(ours)), shutdown_on_exit=False)
    made.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return made


class Tracing:
    """Listens to what is recorded and carried out."""

    def __init__(self, flow: Flow, runner: Runner, traces: TracerProvider) -> None:
        self.flow = flow
        self._provider = traces
        self._tracer = traces.get_tracer("agent_orchestrator", __version__)
        self._batch: dict[int, Event] = {}
        self._roots: OrderedDict[int, SpanContext] = OrderedDict()
        self._intents: OrderedDict[str, SpanContext] = OrderedDict()
        flow.on_change.append(self._on_change)
        flow.on_rows.insert(0, self._on_rows)
        runner.on_attempt.append(self._on_attempt)

    async def close(self) -> None:
        """Send what is left, if that is possible soon."""
        last = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        last.start()
        await asyncio.to_thread(last.join, PATIENCE)

    def _on_change(self, changes: Sequence[Change]) -> None:
        self._batch = {change.event.seq: change.event for change in changes}

    def _on_rows(self, rows: Sequence[Row]) -> None:
        """What events led to, in one transaction with them."""
        for cause in dict.fromkeys(row.cause for row in rows):
            if event := self._batch.get(cause):
                self._begin(event, [row for row in rows if row.cause == cause])

    def _begin(self, event: Event, rows: Sequence[Row]) -> None:
        began, decided = self.flow.decided
        before = self._roots.get(event.cause or 0)
        root = self._tracer.start_span(
            f"event {event.type}",
            Context(),
            links=[Link(before)] if before else [],
            start_time=_ns(began),
            attributes=_of_event(event),
        )
        deciding = self._tracer.start_span("decide", set_span_in_context(root), start_time=_ns(began))
        deciding.end(_ns(decided))
        now = _ns(max(self.flow.clock(), decided))
        for row in rows:
            attributes: dict[str, AttributeValue] = {"ao.intent": row.intent.key, "ao.session": row.intent.session}
            if row.due > decided:
                attributes["ao.due_in"] = round(row.due - decided, 3)
            intent = self._tracer.start_span(
                f"intent {row.intent.kind}",
                set_span_in_context(deciding),
                start_time=_ns(decided),
                attributes=attributes,
            )
            intent.end(now)
            _keep(self._intents, row.intent.key, intent.get_span_context())
        root.end(now)
        _keep(self._roots, event.seq, root.get_span_context())

    def _on_attempt(self, before: Row, after: Row, began: float, told: Sequence[Event]) -> None:
        """An effect was tried; what only looked whether it is time yet is not worth a span."""
        if after.state == "pending" and after.attempts == before.attempts and not told:
            return
        intent = before.intent
        parent = self._intents.get(intent.key)
        context = set_span_in_context(NonRecordingSpan(parent)) if parent else Context()
        effect = self._tracer.start_span(
            f"effect {intent.kind}",
            context,
            start_time=_ns(began),
            attributes={
                "ao.intent": intent.key,
                "ao.session": intent.session,
                "ao.cause": before.cause,
                "ao.attempt": max(after.attempts, 1),
                "ao.state": after.state,
            },
        )
        if after.state == "failed" or (after.state == "pending" and after.result):
            effect.set_status(Status(StatusCode.ERROR, KNOWN.text(after.result)))
        now = _ns(max(self.flow.clock(), began))
        for event in told:
            result = self._tracer.start_span(
                f"event {event.type}", set_span_in_context(effect), start_time=now, attributes=_of_event(event)
            )
            result.end(now)
        effect.end(now)
        if after.state != "pending":
            self._intents.pop(intent.key, None)


def _of_event(event: Event) -> dict[str, AttributeValue]:
    """What it is, and whom it is about; nothing of what it says."""
    found: dict[str, AttributeValue] = {"ao.seq": event.seq, "ao.source": event.source, "ao.actor": event.actor}
    if event.session:
        found["ao.session"] = event.session
    if event.project:
        found["ao.project"] = event.project
    if event.cause is not None:
        found["ao.cause"] = event.cause
    return found


def _ns(time: float) -> int:
    return int(time * 1_000_000_000)


def _keep(known: OrderedDict[K, SpanContext], key: K, context: SpanContext) -> None:
    known[key] = context
    while len(known) > REMEMBERED:
        known.popitem(last=False)
