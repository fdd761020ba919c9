"""Sessions on nodes: placement, loss and moves in the facts, the following intents, and the choice of a node."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.base.api_tokens import Identity, Tokens
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.daemon.node_assignment import CHOICE_SECONDS, NodeAssignment
from agent_orchestrator.cluster.daemon.placement import ManualPlacer, NodeInfo, Requirements
from agent_orchestrator.cluster.daemon.registry import NodeRegistry
from agent_orchestrator.cluster.daemon.remote_node import RemoteNode
from agent_orchestrator.cluster.daemon.settings import ClusterSettings
from agent_orchestrator.cluster.link.calls import PROTOCOL_VERSION, Hello
from agent_orchestrator.cluster.link.connection import LinkLost
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import HomeFacts, SessionFacts
from agent_orchestrator.core.fold.home import reduce_home
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.reactions import lifecycle_intents
from agent_orchestrator.core.status import derive_status
from agent_orchestrator.errors import Denied
from agent_orchestrator.fleet.scheduling.start_decision import CHOOSING_NODE_REASON
from agent_orchestrator.server.access import auth
from tests.parts import make_core
from tests.unit.core.world import SESSION, ManualClock, created

GB = 1 << 30
pytestmark = pytest.mark.anyio


def facts_after(facts: SessionFacts | None, *bodies: e.Body, at: float = 1001.0, generation: int = 0) -> SessionFacts:
    for number, body in enumerate(bodies):
        key = f"{body.type}:{at}:{number}:{facts.seq if facts else 0}"
        facts = reduce(facts, Event(body, at, "node", key, "app", SESSION, generation))
    assert facts is not None
    return facts


def intent_kinds(facts: SessionFacts) -> list[str]:
    return [intent.kind for intent in lifecycle_intents(facts) if intent.kind != "silence"]


def new() -> SessionFacts:
    facts = reduce(None, created(runtime="ray", workspace="clone"))
    assert facts is not None
    return facts


WORKSPACE_CREATED = e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g", shared=False)


def working() -> SessionFacts:
    facts = facts_after(new(), e.SessionAdmitted(), e.SessionPlaced("n1"), WORKSPACE_CREATED)
    facts = facts_after(facts, e.AgentLaunched({}), generation=1)
    return facts_after(facts, e.AgentActivity("active"), generation=1)


# -- the fold ----------------------------------------------------------------------------------------------------------


def test_a_session_is_placed_before_its_workspace_is_created() -> None:
    facts = facts_after(new(), e.SessionAdmitted())
    assert intent_kinds(facts) == ["place"] and derive_status(facts, 1001.0).why == "a node is being chosen for it"
    facts = facts_after(facts, e.SessionPlaced("n1"))
    assert facts.node == "n1" and intent_kinds(facts) == ["prepare"]
    assert intent_kinds(facts_after(facts, WORKSPACE_CREATED)) == ["launch"]


def test_a_lost_node_loses_only_unpublished_commits() -> None:
    facts = facts_after(working(), e.HeadMoved("c1"), e.WorkPublished("c1"), e.HeadMoved("c2"))
    facts = facts_after(facts, e.AgentLost("node n1 is lost"), generation=1)
    assert facts.launch is not None and facts.launch.lost_in_turn
    facts = facts_after(facts, e.SessionDisplaced("n1", "node n1 is lost", lost=True))
    assert (facts.node, facts.head, facts.losses, facts.admitted) == (None, "c1", 1, False)
    assert facts.workspace is not None and not facts.workspace.present
    assert intent_kinds(facts) == [] and derive_status(facts, 1002.0).name == "queued"
    facts = facts_after(facts, e.SessionAdmitted())
    assert intent_kinds(facts) == ["place"]
    facts = facts_after(facts, e.SessionPlaced("n2"), WORKSPACE_CREATED)
    [launch] = [intent for intent in lifecycle_intents(facts) if intent.kind == "launch"]
    assert launch.generation == 2
    facts = facts_after(facts, e.AgentLaunched({}), generation=2)
    assert facts_after(facts, e.AgentTurnEnded("done"), generation=2).losses == 0
    lost = e.SessionDisplaced("n2", "node n2 is lost", lost=True)
    soon = facts_after(facts, lost, at=facts.launch.at + 30) if facts.launch else facts
    late = facts_after(facts, lost, at=facts.launch.at + 3600) if facts.launch else facts
    assert (soon.losses, late.losses) == (2, 1), "who worked for long on it is not to blame"


def test_an_idle_session_gets_a_workspace_elsewhere_when_needed() -> None:
    facts = facts_after(working(), e.HeadMoved("c1"), e.WorkPublished("c1"))
    facts = facts_after(facts, e.AgentExited(0), generation=1)
    facts = facts_after(facts, e.SessionDisplaced("n1", "node n1 is lost", lost=True, restart=False))
    assert facts.admitted and intent_kinds(facts) == ["open-pr"]  # its change needs no workspace
    facts = facts_after(facts, e.MessageQueued("m1", "go on"))
    assert intent_kinds(facts) == ["place"]
    before = lifecycle_intents(facts)[0].key
    again = facts_after(facts, e.SessionPlaced("n2"), e.SessionDisplaced("n2", "lost too", lost=True, restart=False))
    assert lifecycle_intents(again)[0].kind == "place" and lifecycle_intents(again)[0].key != before


def test_a_moved_session_keeps_its_messages() -> None:
    facts = facts_after(working(), e.MessageQueued("m1", "hello"), e.MoveRequested("n1", "n1 is being drained"))
    assert intent_kinds(facts) == ["stop"] and "leaves node n1" in derive_status(facts, 1001.0).why
    assert facts_after(facts, e.MoveRequested("n1", "again")) == replace(facts, updated_at=facts.updated_at)
    facts = facts_after(facts, e.AgentStopped(143), generation=1)
    assert intent_kinds(facts) == ["move"] and facts.messages[0].state == "queued"
    facts = facts_after(facts, e.SessionDisplaced("n1", "n1 is being drained"))
    assert (facts.node, facts.move_reason, facts.losses) == (None, "", 0) and not facts.admitted
    facts = facts_after(facts, e.SessionAdmitted(), e.SessionPlaced("n2"), WORKSPACE_CREATED)
    assert intent_kinds(facts) == ["launch"]


def with_messages(facts: SessionFacts, *messages: str, at: float = 1002.0) -> SessionFacts:
    for message in messages:
        facts = facts_after(facts, e.MessageQueued(message, message), at=at)
        facts = facts_after(facts, e.MessageDelivered(message), at=at, generation=facts.generation)
    return facts


@pytest.mark.parametrize("end", [e.AgentLost("node n1 is lost"), e.AgentStopped(143)])
def test_messages_not_acknowledged_by_a_lost_agent_have_failed(end: e.Body) -> None:
    facts = facts_after(with_messages(working(), "m1", "m2"), e.AgentAck("m1"), at=1003.0, generation=1)
    facts = facts_after(facts, e.MessageQueued("m3", "m3"), e.MoveRequested("n1", "n1 is being drained"), at=1004.0)
    facts = facts_after(facts, end, at=1005.0, generation=1)
    assert [message.state for message in facts.messages] == ["acknowledged", "failed", "queued"]
    assert "send it again if it was not followed" in facts.messages[1].reason
    again = facts_after(facts, e.MessageDelivered("m2"), at=1005.0, generation=1)
    assert [message.state for message in again.messages] == ["acknowledged", "failed", "queued"]
    # An acknowledgement without an id of the next agent belongs to its own message.
    facts = facts_after(
        facts,
        e.SessionDisplaced("n1", "lost", lost=True),
        e.SessionAdmitted(),
        e.SessionPlaced("n2"),
        WORKSPACE_CREATED,
    )
    facts = facts_after(facts, e.AgentLaunched({}), e.MessageDelivered("m3"), e.AgentAck(), at=1006.0, generation=2)
    assert [message.state for message in facts.messages] == ["acknowledged", "failed", "acknowledged"]
    # A late acknowledgement of the lost agent counts.
    facts = facts_after(facts, e.MessageDelivered("m2"), e.AgentAck("m2"), at=1007.0, generation=1)
    assert [message.state for message in facts.messages] == ["acknowledged"] * 3


def test_the_last_message_of_an_agent_without_acknowledgements_is_doubtful() -> None:
    facts = facts_after(with_messages(working(), "m1"), e.AgentActivity("active"), at=1003.0, generation=1)
    lost = facts_after(with_messages(facts, "m2", at=1004.0), e.AgentLost("node n1 is lost"), at=1005.0, generation=1)
    assert [message.state for message in lost.messages] == ["delivered", "delivered"]
    assert [message.reason for message in lost.messages] == [
        "",
        "its agent was lost (node n1 is lost), and may not have read it",
    ]


def test_a_message_delivered_after_the_loss_has_failed() -> None:
    facts = facts_after(with_messages(working(), "m1"), e.AgentAck(), e.AgentLost("cut off"), at=1003.0, generation=1)
    assert [message.state for message in with_messages(facts, "m2", at=1004.0).messages] == ["acknowledged", "failed"]


def test_a_requested_stop_is_completed_on_any_node() -> None:
    facts = facts_after(working(), e.MoveRequested("n1", "n1 is being drained"), e.StopRequested())
    assert intent_kinds(facts) == ["stop"]
    lost = facts_after(facts_after(working(), e.StopRequested()), e.AgentLost("node n1 is lost"), generation=1)
    lost = facts_after(lost, e.SessionDisplaced("n1", "node n1 is lost", lost=True))
    assert lost.run == 1 and intent_kinds(lost) == ["clean-up"]


def test_events_of_another_node_change_nothing() -> None:
    facts = working()
    for body in (e.SessionDisplaced("n2", "lost"), e.SessionUnseen("n2"), e.MoveRequested("n2", "drained")):
        after = facts_after(facts, body)
        assert (after.node, after.unseen_since, after.move_reason) == ("n1", None, "")


def test_an_unreachable_node_does_not_end_its_sessions() -> None:
    facts = facts_after(working(), e.SessionUnseen("n1", "its link is gone"))
    status = derive_status(facts, 1002.0)
    assert status.name == "working" and "node n1 is unreachable since" in status.why
    assert derive_status(facts_after(facts, e.SessionSeen("n1")), 1002.0).why == "in a turn"


def test_a_drain_outlasts_the_absence_of_its_node() -> None:
    home = HomeFacts()
    for body in (e.NodeJoined("n1", "10.0.0.1", 4.0, GB), e.DrainRequested("n1"), e.NodeLost("n1"), e.NodeJoined("n1")):
        home = reduce_home(home, Event(body, 1000.0, "node", body.type))
    assert (home.nodes["n1"].state, home.nodes["n1"].drained) == ("ready", True)
    gone = reduce_home(home, Event(e.NodeLost("n1"), 1000.0, "node", "l"))
    later = Event(e.NodeJoined("n2"), 1000.0 + 90000.0, "node", "j")
    assert "n1" in reduce_home(gone, later).nodes
    forgotten = reduce_home(reduce_home(gone, Event(e.DrainEnded("n1"), 1000.0, "person", "u")), later)
    assert list(forgotten.nodes) == ["n2"]


# -- choosing ----------------------------------------------------------------------------------------------------------


def placer(*nodes: NodeInfo, most: int | None = None) -> ManualPlacer:
    return ManualPlacer(lambda: nodes, lambda: most)


SMALL, LARGE = NodeInfo("small", 2.0, 4 * GB), NodeInfo("large", 8.0, 16 * GB, {"gpu": "yes"})


async def test_the_least_loaded_matching_node_is_chosen() -> None:
    chosen_placer = placer(SMALL, LARGE)
    wish = Requirements(1.0, GB)
    assert [await chosen_placer.place(f"s{number}", 1, wish) for number in range(6)] == [
        *["large"] * 4,
        "small",
        "large",
    ]
    assert chosen_placer.choose("gpu", Requirements(1.0, GB, {"gpu": "yes"})) == ("large", "")
    assert chosen_placer.choose("here", Requirements(1.0, GB, node="small")) == ("small", "")
    assert chosen_placer.choose("s4", wish) == ("small", "")  # who has a place keeps it


def test_the_reason_why_no_node_matches_is_named() -> None:
    cases = [
        (placer(), Requirements(), "a node: none is connected"),
        (placer(SMALL), Requirements(node="n9"), "the node n9, which is not connected"),
        (placer(SMALL), Requirements(labels={"gpu": "yes"}), "a node with the labels gpu=yes"),
        (placer(SMALL), Requirements(4.0, GB), "a node with 4 cpus and 1024 MB free"),
        (placer(SMALL, most=0), Requirements(), "a free place on a node (0 agents at most on each)"),
        (
            placer(replace(SMALL, ready=False, not_ready_reason="is unreachable")),
            Requirements(),
            "a node: small is unreachable",
        ),
    ]
    for chosen_placer, wish, why in cases:
        assert chosen_placer.choose("s", wish) == ("", why)


async def test_a_released_node_goes_to_the_next_waiting_session() -> None:
    chosen_placer = placer(SMALL)
    await chosen_placer.place("a", 1, Requirements(2.0, GB))
    waits = asyncio.create_task(chosen_placer.place("b", 1, Requirements(1.0, GB)))
    await asyncio.sleep(0)
    assert chosen_placer.waiting_reason("b") == "a node with 1 cpus and 1024 MB free"
    await chosen_placer.release("a")
    assert await waits == "small" and chosen_placer.waiting_reason("b") == ""


# -- the gate ----------------------------------------------------------------------------------------------------------


def settings(most: int | None = None) -> ClusterSettings:
    return ClusterSettings(Path("/n"), None, "", 10.0, 120.0, most, Requirements(1.0, GB))


async def test_the_gate_names_what_a_session_waits_for(tmp_path: Path) -> None:
    clock, nodes = ManualClock(), [SMALL]
    core = make_core(tmp_path, clock=clock)
    chosen_placer = ManualPlacer(lambda: nodes, lambda: None)
    placing = NodeAssignment(core, chosen_placer, settings)
    nodes.clear()
    facts = new()
    assert placing.gate(facts, []) == CHOOSING_NODE_REASON
    await asyncio.sleep(0)
    clock.now += CHOICE_SECONDS
    assert placing.gate(facts, []) == "a node: none is connected"
    nodes.append(SMALL)
    chosen_placer.recheck()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert placing.gate(facts, []) == "" and placing.node_of(facts) == "small"
    full = NodeAssignment(core, chosen_placer, lambda: settings(1))
    full.gate(facts, [])
    await asyncio.sleep(0)
    there = replace(working(), id="other", node="small")
    assert full.gate(facts, [there]) == "a free place on small (1 of 1 agents at work)"
    await placing.close()
    await full.close()


def test_a_requested_node_is_used_for_the_first_launch(tmp_path: Path) -> None:
    placing = NodeAssignment(make_core(tmp_path, clock=ManualClock()), placer(SMALL), settings)
    facts = reduce(None, created(runtime="ray", workspace="clone", node="n1"))
    assert facts is not None and placing.requirements(facts).node == "n1"
    facts = facts_after(
        facts, e.SessionAdmitted(), e.SessionPlaced("n1"), e.SessionDisplaced("n1", "n1 is lost", lost=True)
    )
    assert placing.requirements(facts).node is None
    assert placing.requirements(facts_after(facts, e.SessionPlaced("n2"))).node == "n2"


async def test_a_session_that_loses_several_nodes_waits_longer(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    placing = NodeAssignment(make_core(tmp_path, clock=clock), placer(SMALL), settings)
    facts = replace(new(), losses=3, displaced_at=clock.now)
    assert placing.gate(facts, []) == "a while: 3 nodes were lost with it"
    clock.now += 8.0
    assert placing.gate(facts, []) == CHOOSING_NODE_REASON
    assert placing.gate(replace(facts, losses=1, displaced_at=clock.now), []) == CHOOSING_NODE_REASON
    await placing.close()


# -- leases ------------------------------------------------------------------------------------------------------------


def test_only_the_current_launch_of_a_session_is_renewed(tmp_path: Path) -> None:
    sessions: dict[str, Any] = {}
    flow = cast(Flow, SimpleNamespace(sessions=sessions))
    nodes = NodeRegistry(flow, Home(tmp_path), settings, cast(Any, lambda _remote: None))
    sessions[SESSION] = facts = working()
    may = nodes.is_current
    assert may("n1", SESSION, 1) and not may("n1", SESSION, 2) and not may("n2", SESSION, 1)
    assert not may("n1", "app-unknown", 1)
    sessions[SESSION] = facts_after(facts, e.AgentLost("cut off"), generation=1)
    assert not may("n1", SESSION, 1) and may("n1", SESSION, 2)  # the next one is being started
    assert nodes.accepts_data_of("n1", SESSION, 1) and not nodes.accepts_data_of("n2", SESSION, 1)
    sessions[SESSION] = replace(facts, stopped=True)
    assert not may("n1", SESSION, 1)
    hello = Hello("n1", "boot", "1", PROTOCOL_VERSION, Path("/n"), 1, GB)
    assert RemoteNode(hello, Home(tmp_path)).connected is False


class Line:
    """A link to a node that answers or stays silent."""

    def __init__(self, *, answers: bool) -> None:
        self.last_received = time.monotonic()
        self.closed = asyncio.Event()
        self.home = SimpleNamespace(path=Path("/n"))
        self._answers = answers

    async def path_exists(self, _path: Path) -> bool:
        if not self._answers:
            await self.closed.wait()
            raise LinkLost("it is gone")
        self.last_received = time.monotonic()
        return True

    async def close(self) -> None:
        self.closed.set()


async def test_a_silent_node_is_disconnected_when_its_leases_end(tmp_path: Path) -> None:
    lease = 0.2
    nodes = NodeRegistry(
        cast(Flow, None), Home(tmp_path), lambda: replace(settings(), lease_seconds=lease), cast(Any, None)
    )
    began = time.monotonic()
    silent, answers = Line(answers=False), Line(answers=True)
    listening = [
        asyncio.create_task(nodes._check_silence(cast(Any, message), cast(Any, message)))
        for message in (silent, answers)
    ]
    await asyncio.wait_for(silent.closed.wait(), 60)
    assert time.monotonic() - began > lease
    await asyncio.sleep(lease)
    assert not answers.closed.is_set()
    for message in listening:
        message.cancel()


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_nodes_token_is_valid_for_that_node_only(tmp_path: Path) -> None:
    tokens = Tokens(Home(tmp_path))
    _, first = tokens.create_for_node("n1")
    identity = tokens.check(first)
    assert identity is not None and (identity.kind, identity.role, identity.name) == ("node", None, "n1")
    _, second = tokens.create_for_node("n1")
    assert tokens.check(first) is None and tokens.check(second) is not None
    tokens.revoke("n1")
    assert tokens.check(second) is None
    chosen_placer = tokens.for_node("n2")
    identity = tokens.check(chosen_placer)
    assert identity is not None and (identity.kind, identity.role, identity.name) == ("node", None, "n2")
    assert tokens.check(chosen_placer.replace("n2", "n3")) is None
    assert tokens.check(tokens.for_session("node n2", 1).replace("aos_", "aon_")) is None


def test_a_node_may_open_only_its_link() -> None:
    node = Identity("node", name="n1")
    auth.require_permission(node, auth.WEBSOCKET_METHOD, auth.NODE_LINK_PATH)
    for method, path in (
        ("GET", "/api/sessions"),
        ("POST", "/mcp"),
        (auth.WEBSOCKET_METHOD, "/api/sessions/x/terminal"),
    ):
        with pytest.raises(Denied):
            auth.require_permission(node, method, path)
    with pytest.raises(Denied):
        auth.require_role(node, "viewer")
