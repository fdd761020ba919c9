"""Hypothesis strategies for events: any body by its type hints, and events of one session in any order."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Body, Event
from agent_orchestrator.protocols import Activity

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
SESSION = "app-x"
NAMES = st.sampled_from(["m1", "m2", "m3"])


def value(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of a type hint."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(value(inner) for inner in args))
    if origin is tuple:
        return st.lists(value(args[0]), max_size=3).map(tuple)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(TEXT, JSON if args[1] is Any else value(args[1]), max_size=2)
    strategies: dict[Any, st.SearchStrategy[Any]] = {
        str: TEXT,
        int: st.integers(-(2**53), 2**53),
        float: st.floats(0, 4e9),
        bool: st.booleans(),
        type(None): st.none(),
    }
    return strategies[hint]


def bodies(kind: type[Body]) -> st.SearchStrategy[Body]:
    """Return a strategy for bodies of a kind, with and without the optional fields."""
    hints = typing.get_type_hints(kind)
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for item in fields(kind):
        needed = item.default is MISSING and item.default_factory is MISSING
        (required if needed else optional)[item.name] = value(hints[item.name])
    return st.fixed_dictionaries(required, optional=optional).map(lambda values: kind(**values))


ANY_BODY = st.sampled_from(sorted(e.EVENT_KINDS)).flatmap(lambda name: bodies(e.EVENT_KINDS[name]))

LIKELY_BODIES = st.one_of(
    st.builds(e.SessionAdmitted),
    st.builds(e.SessionWaiting, TEXT),
    st.builds(e.SessionFailed, TEXT, TEXT),
    st.just(e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g")),
    st.builds(e.AgentLaunched, st.just({"pid": 7})),
    st.builds(e.StopRequested, st.booleans()),
    st.builds(e.SessionStopped, kept=st.booleans()),
    st.builds(e.RestoreRequested),
    st.builds(e.TimerDue, st.sampled_from(["limit", "silence"])),
    st.builds(e.AgentActivity, st.sampled_from([str(state) for state in Activity]), TEXT),
    st.builds(e.AgentAck, NAMES | st.just("")),
    st.builds(e.AgentProgress, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9)),
    st.builds(e.AgentUsage, input=st.integers(0, 99), output=st.integers(0, 99), usd=st.none() | st.integers(0, 8)),
    st.builds(e.AgentLimit, st.none() | st.floats(1000, 1200)),
    st.builds(e.AgentAsk, TEXT),
    st.builds(e.AgentDone, TEXT),
    st.builds(e.AgentOutput),
    st.builds(e.AgentExited, st.none() | st.integers(0, 2), st.none() | st.just(9)),
    st.builds(e.AgentLost, TEXT),
    st.builds(e.AgentStopped),
    st.sampled_from(["c0", "c1", "c2"]).map(e.HeadMoved),
    st.builds(e.MessageQueued, NAMES, TEXT, task=st.booleans(), hold=st.sampled_from(["", "", "why"])),
    st.builds(e.MessageReleased, NAMES),
    st.builds(e.MessageHeld, NAMES, TEXT),
    st.builds(e.MessageDelivered, NAMES),
    st.builds(e.MessageFailed, NAMES, TEXT),
)

MESSAGES = st.one_of(
    st.builds(e.MessageQueued, NAMES, TEXT),
    st.builds(e.MessageReleased, NAMES),
    st.builds(e.MessageHeld, NAMES, TEXT),
    st.builds(e.MessageDelivered, NAMES),
    st.builds(e.MessageFailed, NAMES, TEXT),
    st.builds(e.AgentAck, NAMES | st.just("")),
)


@st.composite
def events(draw: st.DrawFn, body: st.SearchStrategy[Body] = LIKELY_BODIES) -> Event:
    """Draw an event of the session from any source and launch, at a time within two minutes; sensible or not."""
    return Event(
        draw(body),
        1000.0 + draw(st.integers(0, 120)),
        draw(st.sampled_from(["spool", "screen", "process", "daemon", "person"])),
        draw(st.sampled_from(["spool:app-x:1:0:40", "spool:app-x:1:40:90", "odd:key", "k1", "k2", ""])),
        "app",
        SESSION,
        draw(st.integers(0, 3)),
    )


def created(**more: Any) -> Event:
    """Return the event that creates the session."""
    spec = {
        "task": "T1",
        "name": "x",
        "title": "x",
        "prompt": "do x",
        "agent": "demo",
        "runtime": "process",
        "workspace": "worktree",
        "branch": "feature/x",
        "base": "main",
        "repo": "/r",
        "path": "/w",
        **more,
    }
    return Event(e.SessionCreated(**spec), 1000.0, "person", "created", "app", SESSION)


def launched(generation: int = 1, at: float = 1000.0) -> Event:
    """Return the event that the session's agent was launched."""
    return Event(e.AgentLaunched({"pid": 7}), at, "daemon", f"launched:{generation}", "app", SESSION, generation)
