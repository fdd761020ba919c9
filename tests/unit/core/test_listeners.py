"""Listeners: called after a commit by type of event or signal, until the subscription ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agent_orchestrator.core import events as e
from agent_orchestrator.core.listeners import FactsChange, Listeners


@dataclass(frozen=True)
class Rang:
    """A signal."""

    times: int


def change(body: e.Body) -> FactsChange:
    return FactsChange(e.Event(body, 1.0, "person", body.type), None, None)


def test_a_listener_gets_only_the_types_that_it_named() -> None:
    listeners, received = Listeners(), list[list[str]]()
    listeners.on_events(
        lambda changes: received.append([change.event.type for change in changes]), e.PrReady, e.PrClosed
    )
    listeners.notify([change(e.PrReady()), change(e.AgentOutput()), change(e.PrClosed("x"))])
    listeners.notify([change(e.AgentOutput())])
    assert received == [["pr-ready", "pr-closed"]]


def test_a_listener_for_every_event_is_called_for_each_commit() -> None:
    listeners, sizes = Listeners(), list[int]()
    listeners.on_events(lambda changes: sizes.append(len(changes)))
    listeners.notify([change(e.PrReady()), change(e.AgentOutput())])
    listeners.notify([])
    assert sizes == [2, 0]


def test_an_error_stops_no_other_listener() -> None:
    listeners, called = Listeners(), list[str]()

    def fails(_changes: Sequence[FactsChange]) -> None:
        raise ValueError("broken")

    def fails_too(_signal: Rang) -> None:
        raise ValueError("broken")

    listeners.on_events(fails)
    listeners.on_events(lambda _changes: called.append("event"))
    listeners.on_signal(Rang, fails_too)
    listeners.on_signal(Rang, lambda signal: called.append(f"signal {signal.times}"))
    listeners.notify([change(e.PrReady())])
    listeners.emit(Rang(2))
    assert called == ["event", "signal 2"]


def test_a_subscription_ends_even_while_listeners_are_called() -> None:
    listeners, called = Listeners(), list[str]()

    def once(_changes: Sequence[FactsChange]) -> None:
        called.append("once")
        end()

    end = listeners.on_events(once)
    listeners.on_events(lambda _changes: called.append("always"))
    listeners.notify([change(e.PrReady())])
    listeners.notify([change(e.PrReady())])
    assert called == ["once", "always", "always"]


def test_the_table_names_events_and_listeners() -> None:
    listeners = Listeners()

    class Part:
        def __init__(self) -> None:
            listeners.on_events(self.react, e.PrReady)
            listeners.on_events(lambda _changes: None)
            listeners.on_signal(Rang, lambda _signal: None)

        def react(self, changes: Sequence[FactsChange]) -> None: ...

    Part()
    prefix = "test_the_table_names_events_and_listeners"
    assert [(kind, name.removeprefix(prefix)) for kind, name in listeners.list_subscriptions()] == [
        ("PrReady", ""),
        ("Rang", ""),
        ("every event", ""),
    ]
    assert listeners.has_signal_listener(Rang) and not listeners.has_signal_listener(Part)
