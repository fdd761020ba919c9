"""Traces by OpenTelemetry, from event to effect: which event caused what, how long it waited and how long it took.

Each event that causes something has one trace: `event` → `decide` → `intent` → `effect` (one for each attempt) → the
events that report its result. An event caused by an event of another trace is linked to that trace. Loaded only if a
receiver is configured by OpenTelemetry's own variables, which also define how it is reached and what is sampled.
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
from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.outbox import OutboxRow
from agent_orchestrator.core.signals import EffectAttempted

MAX_REMEMBERED_SPANS = 10_000
"""The number of traces and intents that are remembered, because spans may still be added."""
SHUTDOWN_SECONDS = 3.0
"""Seconds in which the last spans are sent when the daemon ends."""

K = TypeVar("K")


def create_provider() -> TracerProvider:
    """Return a tracer provider that sends to the address in `OTEL_EXPORTER_OTLP_ENDPOINT`."""
    resource = Resource.create()
    own_attributes = {"service.version": __version__}
    if str(resource.attributes.get("service.name", "")).startswith("unknown_service"):
        own_attributes["service.name"] = "agent-orchestrator"
    traces = TracerProvider(resource=resource.merge(Resource(own_attributes)), shutdown_on_exit=False)
    traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return traces


class Tracing:
    """Traces what is recorded and carried out."""

    def __init__(self, flow: Flow, traces: TracerProvider) -> None:
        self.flow = flow
        self._provider = traces
        self._tracer = traces.get_tracer("agent_orchestrator", __version__)
        self._events_by_seq: dict[int, Event] = {}
        self._event_spans: OrderedDict[int, SpanContext] = OrderedDict()
        self._intent_spans: OrderedDict[str, SpanContext] = OrderedDict()
        flow.listeners.on_events(self._on_change)
        flow.listeners.on_rows(self._on_rows)
        flow.listeners.on_signal(EffectAttempted, self._on_attempt)

    async def close(self) -> None:
        """Send the remaining spans, within `SHUTDOWN_SECONDS`."""
        shutdown = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        shutdown.start()
        await asyncio.to_thread(shutdown.join, SHUTDOWN_SECONDS)

    def _on_change(self, changes: Sequence[FactsChange]) -> None:
        self._events_by_seq = {change.event.seq: change.event for change in changes}

    def _on_rows(self, rows: Sequence[OutboxRow]) -> None:
        """Trace the intents that the last events caused; they were recorded in one transaction."""
        for cause in dict.fromkeys(row.cause for row in rows):
            if event := self._events_by_seq.get(cause):
                self._trace_event(event, [row for row in rows if row.cause == cause])

    def _trace_event(self, event: Event, rows: Sequence[OutboxRow]) -> None:
        started_at, decided_at = self.flow.decision_times
        cause_root = self._event_spans.get(event.cause or 0)
        root = self._tracer.start_span(
            f"event {event.type}",
            Context(),
            links=[Link(cause_root)] if cause_root else [],
            start_time=_ns(started_at),
            attributes=_event_attributes(event),
        )
        deciding = self._tracer.start_span("decide", set_span_in_context(root), start_time=_ns(started_at))
        deciding.end(_ns(decided_at))
        now = _ns(max(self.flow.clock(), decided_at))
        for row in rows:
            attributes: dict[str, AttributeValue] = {"ao.intent": row.intent.key, "ao.session": row.intent.session}
            if row.due > decided_at:
                attributes["ao.due_in"] = round(row.due - decided_at, 3)
            intent = self._tracer.start_span(
                f"intent {row.intent.kind}",
                set_span_in_context(deciding),
                start_time=_ns(decided_at),
                attributes=attributes,
            )
            intent.end(now)
            _remember(self._intent_spans, row.intent.key, intent.get_span_context())
        root.end(now)
        _remember(self._event_spans, event.seq, root.get_span_context())

    def _on_attempt(self, attempt: EffectAttempted) -> None:
        """Trace an attempt at an effect; one that only checked whether it is due is left out."""
        before, after, started_at, result_events = attempt.before, attempt.after, attempt.began, attempt.events
        if after.state == "pending" and after.attempts == before.attempts and not result_events:
            return
        intent = before.intent
        parent = self._intent_spans.get(intent.key)
        context = set_span_in_context(NonRecordingSpan(parent)) if parent else Context()
        effect = self._tracer.start_span(
            f"effect {intent.kind}",
            context,
            start_time=_ns(started_at),
            attributes={
                "ao.intent": intent.key,
                "ao.session": intent.session,
                "ao.cause": before.cause,
                "ao.attempt": max(after.attempts, 1),
                "ao.state": after.state,
            },
        )
        if after.state == "failed" or (after.state == "pending" and after.result):
            effect.set_status(Status(StatusCode.ERROR, REDACTOR.redact_text(after.result)))
        now = _ns(max(self.flow.clock(), started_at))
        for event in result_events:
            result = self._tracer.start_span(
                f"event {event.type}", set_span_in_context(effect), start_time=now, attributes=_event_attributes(event)
            )
            result.end(now)
        effect.end(now)
        if after.state != "pending":
            self._intent_spans.pop(intent.key, None)


def _event_attributes(event: Event) -> dict[str, AttributeValue]:
    """Return what an event is and what it is about, without its content."""
    attributes: dict[str, AttributeValue] = {"ao.seq": event.seq, "ao.source": event.source, "ao.actor": event.actor}
    if event.session:
        attributes["ao.session"] = event.session
    if event.project:
        attributes["ao.project"] = event.project
    if event.cause is not None:
        attributes["ao.cause"] = event.cause
    return attributes


def _ns(time: float) -> int:
    return int(time * 1_000_000_000)


def _remember(contexts: OrderedDict[K, SpanContext], key: K, context: SpanContext) -> None:
    contexts[key] = context
    while len(contexts) > MAX_REMEMBERED_SPANS:
        contexts.popitem(last=False)
