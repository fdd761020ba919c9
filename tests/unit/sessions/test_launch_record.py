"""What a launch was begun with is found again, whole or not at all, and only by the same launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Again
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.protocols import AgentLaunch
from agent_orchestrator.sessions.launch_record import Begun, given_before, keep, kept
from agent_orchestrator.sessions.lifecycle import FIRST_WORD_WITHIN, Lifecycle
from tests.unit.core.world import SESSION, Time, created


def begun(conversation: str = "c-1", *, stdin: Path | None = None) -> Begun:
    plan = AgentLaunch(
        ("cli", "--task", "two\nlines \udcff"),
        MappingProxyType({"NAME": "value"}),
        stdin=stdin,
        conversation=conversation,
        memo=MappingProxyType({"port": "4711"}),
    )
    return Begun(plan, "two\nlines", "m-1")


def test_a_launch_that_is_begun_again_is_the_same_one(tmp_path: Path) -> None:
    for wanted in (begun(), begun(stdin=tmp_path / "task.md")):
        keep(tmp_path, 2, 1, wanted)
        assert kept(tmp_path, 2, 1) == wanted


def test_another_launch_is_another_one(tmp_path: Path) -> None:
    keep(tmp_path, 1, 1, begun("c-1"))
    assert kept(tmp_path, 2, 1) is None and kept(tmp_path, 1, 2) is None
    keep(tmp_path, 2, 1, begun("c-2"))
    assert [path.name for path in tmp_path.iterdir()] == ["begun.2.1.json"]


def test_on_another_node_a_launch_is_begun_anew_and_what_it_carried_is_known(tmp_path: Path) -> None:
    keep(tmp_path, 2, 1, begun("c-1"), moves=0)
    assert given_before(tmp_path, 2, 0) is None
    assert kept(tmp_path, 2, 1, moves=1) is None and given_before(tmp_path, 2, 1) == "m-1"
    assert given_before(tmp_path, 3, 1) is None
    keep(tmp_path, 2, 1, begun("c-2"), moves=1)
    assert kept(tmp_path, 2, 1, moves=1) == begun("c-2") and given_before(tmp_path, 2, 1) is None
    assert given_before(tmp_path, 2, 2) == "m-1" and kept(tmp_path, 2, 1) is None


def test_what_was_not_written_whole_counts_as_not_begun(tmp_path: Path) -> None:
    keep(tmp_path, 1, 1, begun())
    file = tmp_path / "begun.1.1.json"
    assert file.stat().st_mode & 0o777 == 0o600
    for text in ("", file.read_text()[:40], "{}", '{"plan": {"argv": ["x"]}}'):
        file.write_text(text)
        assert kept(tmp_path, 1, 1) is None


def test_a_message_that_may_have_been_read_on_a_lost_node_is_not_given_twice(tmp_path: Path) -> None:
    home = Home(tmp_path)
    private = home.session(SESSION)
    private.mkdir(parents=True)
    flow = cast(Flow, SimpleNamespace(clock=Time()))
    life = Lifecycle(flow, home, *cast(Any, (None, None, None, None, None)))
    facts = reduce(None, created(runtime="ray", workspace="clone"))
    queued = Event(e.MessageQueued("m-1", "hello"), 1001.0, "person", "m-1", "app", SESSION)
    facts = reduce(facts, queued)
    assert facts is not None
    keep(private, 1, 1, begun())
    life._doubt_given(facts, 1)  # the same node: it is the same launch
    with pytest.raises(Again) as again:
        life._doubt_given(replace(facts, moves=1), 1)
    [event] = again.value.events
    told = reduce(facts, event)
    assert told is not None and told.messages[0].state == "failed" and "may have read it" in told.messages[0].reason
    life._doubt_given(replace(told, moves=1), 1)


@pytest.mark.anyio
async def test_a_clock_that_jumps_gives_an_agent_no_less_time_for_its_first_word(tmp_path: Path) -> None:
    """What is typed before it may answer a dialog."""
    now, steady = Time(), Time()
    facts = reduce(None, created(prompt="first"))
    for number, body in enumerate(
        (e.AgentLaunched({}), e.AgentActivity("active"), e.MessageQueued("m-1", "hello")), start=1
    ):
        source = "process" if isinstance(body, e.AgentActivity) else "daemon"
        facts = reduce(facts, Event(body, now(), source, f"{number}", "app", SESSION, 1))
    assert facts is not None
    flow = cast(Flow, SimpleNamespace(clock=now, sessions={SESSION: facts}))

    class Spoken(Exception):
        """It came to be spoken to."""

    def agent_of(_facts: object) -> None:
        raise Spoken

    plugins = SimpleNamespace(agent_of=agent_of)
    life = Lifecycle(flow, Home(tmp_path), *cast(Any, (None, plugins, None, None, None, steady)))
    intent = Intent("deliver", "deliver:m-1:1", SESSION, 1, args={"message": "m-1"})
    now.advance(60.0)
    with pytest.raises(Again):
        await life.deliver(intent, 0)
    steady.advance(FIRST_WORD_WITHIN)
    with pytest.raises(Spoken):
        await life.deliver(intent, 0)
