"""Records of launches: restored completely or not at all, and only for the same launch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import RetryLater
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.protocols import AgentLaunch
from agent_orchestrator.sessions.agents.observer import Observer
from agent_orchestrator.sessions.lifecycle.delivery import FIRST_REPORT_TIMEOUT, Deliveries
from agent_orchestrator.sessions.lifecycle.launch import Launches
from agent_orchestrator.sessions.lifecycle.launch_record import LaunchRecord, load, message_of_lost_launch, store
from tests.parts import HandSetClock, make_core
from tests.unit.core.world import SESSION, created


def launch_record(conversation: str = "c-1", *, stdin: Path | None = None) -> LaunchRecord:
    plan = AgentLaunch(
        ("cli", "--task", "two\nlines \udcff"),
        MappingProxyType({"NAME": "value"}),
        stdin=stdin,
        conversation=conversation,
        plugin_data=MappingProxyType({"port": "4711"}),
    )
    return LaunchRecord(plan, "two\nlines", "m-1")


def test_a_repeated_launch_restores_its_record(tmp_path: Path) -> None:
    for stored in (launch_record(), launch_record(stdin=tmp_path / "task.md")):
        store(tmp_path, 2, 1, stored)
        assert load(tmp_path, 2, 1) == stored


def test_the_stored_names_stay_those_of_earlier_versions(tmp_path: Path) -> None:
    store(tmp_path, 2, 1, launch_record())
    assert json.loads((tmp_path / "begun.2.1.json").read_text())["plan"]["memo"] == {"port": "4711"}


def test_another_launch_has_another_record(tmp_path: Path) -> None:
    store(tmp_path, 1, 1, launch_record("c-1"))
    assert load(tmp_path, 2, 1) is None and load(tmp_path, 1, 2) is None
    store(tmp_path, 2, 1, launch_record("c-2"))
    assert [path.name for path in tmp_path.iterdir()] == ["begun.2.1.json"]


def test_a_launch_on_another_node_starts_over_and_its_old_message_is_known(tmp_path: Path) -> None:
    store(tmp_path, 2, 1, launch_record("c-1"), moves=0)
    assert message_of_lost_launch(tmp_path, 2, 0) is None
    assert load(tmp_path, 2, 1, moves=1) is None and message_of_lost_launch(tmp_path, 2, 1) == "m-1"
    assert message_of_lost_launch(tmp_path, 3, 1) is None
    store(tmp_path, 2, 1, launch_record("c-2"), moves=1)
    assert load(tmp_path, 2, 1, moves=1) == launch_record("c-2") and message_of_lost_launch(tmp_path, 2, 1) is None
    assert message_of_lost_launch(tmp_path, 2, 2) == "m-1" and load(tmp_path, 2, 1) is None


def test_an_incomplete_record_counts_as_absent(tmp_path: Path) -> None:
    store(tmp_path, 1, 1, launch_record())
    file = tmp_path / "begun.1.1.json"
    assert file.stat().st_mode & 0o777 == 0o600
    for text in ("", file.read_text()[:40], "{}", '{"plan": {"argv": ["x"]}}'):
        file.write_text(text)
        assert load(tmp_path, 1, 1) is None


def test_a_message_that_a_lost_node_may_have_delivered_is_not_sent_twice(tmp_path: Path) -> None:
    core, nothing = make_core(tmp_path, clock=HandSetClock()), cast("Any", None)
    private = core.home.session(SESSION)
    private.mkdir(parents=True)
    launches = Launches(core, nothing, nothing)
    facts = reduce(None, created(runtime="ray", workspace="clone"))
    queued = Event(e.MessageQueued("m-1", "hello"), 1001.0, "person", "m-1", "app", SESSION)
    facts = reduce(facts, queued)
    assert facts is not None
    store(private, 1, 1, launch_record())
    launches._fail_uncertain_message(facts, 1)  # the same node: it is the same launch
    with pytest.raises(RetryLater) as retry:
        launches._fail_uncertain_message(replace(facts, moves=1), 1)
    [event] = retry.value.events
    failed = reduce(facts, event)
    assert (
        failed is not None and failed.messages[0].state == "failed" and "may have read it" in failed.messages[0].reason
    )
    launches._fail_uncertain_message(replace(failed, moves=1), 1)


@pytest.mark.anyio
async def test_a_clock_jump_does_not_shorten_the_wait_for_the_first_report(tmp_path: Path) -> None:
    """A message typed too early could answer a dialog."""
    clock = HandSetClock()
    facts = reduce(None, created(prompt="first"))
    for number, body in enumerate(
        (e.AgentLaunched({}), e.AgentActivity("active"), e.MessageQueued("m-1", "hello")), start=1
    ):
        source = "process" if isinstance(body, e.AgentActivity) else "daemon"
        facts = reduce(facts, Event(body, clock(), source, f"{number}", "app", SESSION, 1))
    assert facts is not None
    core = make_core(tmp_path, clock=clock)
    core.flow.sessions[SESSION] = facts

    class Typed(Exception):
        """The message would be typed."""

    def agent_of(_facts: object) -> None:
        raise Typed

    core = replace(core, plugins=cast("Any", SimpleNamespace(agent_of=agent_of)))
    usage = cast("Any", SimpleNamespace(claim_turn_or_wait=lambda _facts: None))
    deliveries = Deliveries(core, Observer(core), Launches(core, cast("Any", None), usage), usage)
    intent = Intent("deliver", "deliver:m-1:1", SESSION, 1, args={"message": "m-1"})
    clock.now += 60.0
    clock.jump_seconds += 60.0
    with pytest.raises(RetryLater):
        await deliveries.deliver(intent, 0)
    clock.now += FIRST_REPORT_TIMEOUT
    with pytest.raises(Typed):
        await deliveries.deliver(intent, 0)
