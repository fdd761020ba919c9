"""`Listeners`: who is called after a commit, for which types of events, and who receives which signals.

Look here to find out what reacts to an event: `table` lists all subscriptions, and `docs/architecture.md` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from agent_orchestrator.core.events import Body, Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.outbox import OutboxRow

log = structlog.get_logger()

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class FactsChange:
    """A stored event with the session's facts before and after it."""

    event: Event
    before: SessionFacts | None
    after: SessionFacts | None


OnChanges = Callable[[Sequence[FactsChange]], None]
"""Receives the changes of one commit."""
OnRows = Callable[[Sequence[OutboxRow]], None]
"""Receives the new outbox rows of one commit."""


class Listeners:
    """All subscriptions. An error in a listener is logged; the other listeners are called all the same."""

    def __init__(self) -> None:
        self._events: list[tuple[OnChanges, tuple[type[Body], ...]]] = []
        self._rows: list[OnRows] = []
        self._signals: dict[type, list[Callable[[Any], None]]] = {}

    def on_events(self, listener: OnChanges, *types: type[Body]) -> Callable[[], None]:
        """Subscribe to changes by events of these types, or of all types; return a function that ends the subscription."""
        subscription = (listener, types)
        self._events.append(subscription)
        return lambda: self._events.remove(subscription)

    def on_rows(self, listener: OnRows) -> Callable[[], None]:
        """Subscribe to new outbox rows; return a function that ends the subscription."""
        self._rows.append(listener)
        return lambda: self._rows.remove(listener)

    def on_signal(self, kind: type[S], listener: Callable[[S], None]) -> Callable[[], None]:
        """Subscribe to signals of a kind; return a function that ends the subscription."""
        listeners = self._signals.setdefault(kind, [])
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def has_signal_listener(self, kind: type) -> bool:
        """Return whether a signal of this kind has a listener."""
        return bool(self._signals.get(kind))

    def notify(self, changes: Sequence[FactsChange]) -> None:
        """Call each listener with the changes that it subscribed to; one for certain types is not called without any."""
        for listener, types in tuple(self._events):
            selected = [change for change in changes if isinstance(change.event.body, types)] if types else changes
            if selected or not types:
                _call(listener, selected, changes=[change.event.key for change in selected])

    def notify_rows(self, rows: Sequence[OutboxRow]) -> None:
        """Call the listeners for new outbox rows."""
        for listener in tuple(self._rows):
            _call(listener, rows, rows=[row.intent.key for row in rows])

    def emit(self, signal: object) -> None:
        """Call the listeners of a signal."""
        for listener in tuple(self._signals.get(type(signal), ())):
            _call(listener, signal, signal=type(signal).__name__)

    def list_subscriptions(self) -> list[tuple[str, str]]:
        """Return all subscriptions as pairs: the class of the event or signal or `every event`, and the listener's qualified name."""
        rows = [
            (kind, _listener_name(listener))
            for listener, types in self._events
            for kind in ([event_type.__name__ for event_type in types] or ["every event"])
        ]
        rows += [("new outbox rows", _listener_name(listener)) for listener in self._rows]
        rows += [
            (kind.__name__, _listener_name(listener))
            for kind, listeners in self._signals.items()
            for listener in listeners
        ]
        return sorted(rows)


def _call(listener: Callable[[Any], None], argument: object, **context: object) -> None:
    """Call a listener; log an error in it."""
    try:
        listener(argument)
    except Exception:
        log.exception("a listener failed", listener=_listener_name(listener), **context)


def _listener_name(listener: object) -> str:
    """Return a listener's name for people: `Class.method`, or for a small function the method that subscribed it."""
    return (
        str(getattr(listener, "__qualname__", type(listener).__name__))
        .partition(".<locals>")[0]
        .removesuffix(".__init__")
    )
