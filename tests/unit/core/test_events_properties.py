"""Events: each kind can be written to the log and read back."""

from __future__ import annotations

import json
import pkgutil
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, decode, encode, event_from_json, event_json
from tests.examples import example_count
from tests.unit.core.event_strategies import ANY_BODY, JSON, TEXT, bodies


@pytest.mark.parametrize("kind", sorted(set(e.EVENT_KINDS) - {"unknown"}))
def test_a_body_can_be_written_to_the_log_and_read_back(kind: str) -> None:
    @settings(max_examples=example_count(0.25))
    @given(bodies(e.EVENT_KINDS[kind]))
    def body_is_restored(body: e.Body) -> None:
        assert body.type == kind
        text = json.dumps(encode(body))
        assert decode(kind, json.loads(text)) == body
        assert encode(decode(kind, json.loads(text))) == encode(body)

    body_is_restored()


@given(ANY_BODY, st.integers(0, 4_000_000_000_000), TEXT, TEXT, st.integers(0, 9), st.none() | TEXT, st.none() | TEXT)
def test_an_event_can_be_written_as_json_and_read_back(
    body: e.Body, milliseconds: int, source: str, key: str, generation: int, project: str | None, session: str | None
) -> None:
    event = Event(body, milliseconds / 1000, source or "log", key or "k", project, session, generation, 5)
    restored = event_from_json(json.loads(json.dumps(event_json(event))))
    assert restored.body == (body if body.type in e.EVENT_KINDS or isinstance(body, e.Unknown) else restored.body)
    assert abs(restored.time - event.time) < 0.002
    assert (restored.key, restored.source, restored.project, restored.session) == (
        event.key,
        event.source,
        project,
        session,
    )
    assert (restored.generation, restored.seq) == (generation, 5)


@given(TEXT.filter(lambda name: name not in e.EVENT_KINDS), st.dictionaries(TEXT, JSON, max_size=3))
def test_an_unknown_kind_keeps_all_its_data(name: str, data: dict[str, object]) -> None:
    body = decode(name, data)
    assert body.type == name
    assert encode(body) == data


@given(st.dictionaries(TEXT.map(lambda text: f"new{text}"), JSON, max_size=3))
def test_unknown_fields_of_a_known_kind_are_ignored(more: dict[str, object]) -> None:
    assert decode("agent-exited", {"code": 3, **more}) == e.AgentExited(3)


def test_a_body_without_a_required_field_keeps_its_data() -> None:
    body = decode("message-queued", {"text": "no id"})
    assert isinstance(body, e.Unknown)
    assert (body.type, encode(body)) == ("message-queued", {"text": "no id"})


def test_every_kind_of_event_is_exported_by_the_package() -> None:
    modules = [f"{e.__name__}.{module.name}" for module in pkgutil.iter_modules(e.__path__)]
    kinds = [kind for kind in e.EVENT_KINDS.values() if kind.__module__ in modules]
    assert [name for name in modules if name not in sys.modules] == []
    assert [kind.__name__ for kind in kinds if getattr(e, kind.__name__, None) is not kind] == []
    assert len(kinds) > 150
