"""Who lives where: what the fold makes of coming and going, what is to be done then, and which node somebody gets."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.link.calls import PROTOCOL, Hello
from agent_orchestrator.cluster.link.connection import LinkLost
from agent_orchestrator.cluster.nodes.assignment import CHOOSING_WITHIN, NodeAssignment
from agent_orchestrator.cluster.nodes.placement import ManualPlacer, NodeInfo, Requirements
from agent_orchestrator.cluster.nodes.registry import Nodes
from agent_orchestrator.cluster.nodes.remote import RemoteNode
from agent_orchestrator.cluster.nodes.settings import ClusterSettings
from agent_orchestrator.config.tokens import Identity, Tokens
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import HomeFacts, SessionFacts
from agent_orchestrator.core.fold.home import reduce_home
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.reactions import lifecycle_intents
from agent_orchestrator.core.status import derive
from agent_orchestrator.errors import Denied
from agent_orchestrator.fleet.scheduling.slots import CHOOSING_NODE_REASON
from agent_orchestrator.server.access import auth
from tests.parts import make_core
from tests.unit.core.world import SESSION, Time, created

GB = 1 << 30
pytestmark = pytest.mark.anyio


def told(facts: SessionFacts | None, *bodies: e.Body, at: float = 1001.0, generation: int = 0) -> SessionFacts:
    for number, body in enumerate(bodies):
        key = f"{body.type}:{at}:{number}:{facts.seq if facts else 0}"
        facts = reduce(facts, Event(body, at, "node", key, "app", SESSION, generation))
    assert facts is not None
    return facts


def kinds(facts: SessionFacts) -> list[str]:
    return [intent.kind for intent in lifecycle_intents(facts) if intent.kind != "silence"]


def new() -> SessionFacts:
    facts = reduce(None, created(runtime="ray", workspace="clone"))
    assert facts is not None
    return facts


MADE = e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g", shared=False)


def working() -> SessionFacts:
    facts = told(new(), e.SessionAdmitted(), e.SessionPlaced("n1"), MADE)
    facts = told(facts, e.AgentLaunched({}), generation=1)
    return told(facts, e.AgentActivity("active"), generation=1)


# -- the fold ----------------------------------------------------------------------------------------------------------


def test_a_session_is_placed_before_its_workspace_is_made() -> None:
    facts = told(new(), e.SessionAdmitted())
    assert kinds(facts) == ["place"] and derive(facts, 1001.0).why == "a node is being chosen for it"
    facts = told(facts, e.SessionPlaced("n1"))
    assert facts.node == "n1" and kinds(facts) == ["prepare"]
    assert kinds(told(facts, MADE)) == ["launch"]


def test_a_lost_node_costs_what_was_not_published() -> None:
    facts = told(working(), e.HeadMoved("c1"), e.WorkPublished("c1"), e.HeadMoved("c2"))
    facts = told(facts, e.AgentLost("node n1 is lost"), generation=1)
    assert facts.launch is not None and facts.launch.cut_short
    facts = told(facts, e.SessionDisplaced("n1", "node n1 is lost", lost=True))
    assert (facts.node, facts.head, facts.losses, facts.admitted) == (None, "c1", 1, False)
    assert facts.place is not None and not facts.place.present
    assert kinds(facts) == [] and derive(facts, 1002.0).name == "queued"
    facts = told(facts, e.SessionAdmitted())
    assert kinds(facts) == ["place"]
    facts = told(facts, e.SessionPlaced("n2"), MADE)
    [launch] = [intent for intent in lifecycle_intents(facts) if intent.kind == "launch"]
    assert launch.generation == 2
    facts = told(facts, e.AgentLaunched({}), generation=2)
    assert told(facts, e.AgentTurnEnded("done"), generation=2).losses == 0
    lost = e.SessionDisplaced("n2", "node n2 is lost", lost=True)
    soon = told(facts, lost, at=facts.launch.at + 30) if facts.launch else facts
    late = told(facts, lost, at=facts.launch.at + 3600) if facts.launch else facts
    assert (soon.losses, late.losses) == (2, 1), "who worked for long on it is not to blame"


def test_one_at_rest_gets_a_workspace_elsewhere_when_it_is_needed() -> None:
    facts = told(working(), e.HeadMoved("c1"), e.WorkPublished("c1"))
    facts = told(facts, e.AgentExited(0), generation=1)
    facts = told(facts, e.SessionDisplaced("n1", "node n1 is lost", lost=True, restart=False))
    assert facts.admitted and kinds(facts) == ["open-pr"]  # its change needs no workspace
    facts = told(facts, e.MessageQueued("m1", "go on"))
    assert kinds(facts) == ["place"]
    before = lifecycle_intents(facts)[0].key
    again = told(facts, e.SessionPlaced("n2"), e.SessionDisplaced("n2", "lost too", lost=True, restart=False))
    assert lifecycle_intents(again)[0].kind == "place" and lifecycle_intents(again)[0].key != before


def test_one_that_is_moved_keeps_its_messages_and_its_turn() -> None:
    facts = told(working(), e.MessageQueued("m1", "hello"), e.MoveRequested("n1", "n1 is being drained"))
    assert kinds(facts) == ["stop"] and "leaves node n1" in derive(facts, 1001.0).why
    assert told(facts, e.MoveRequested("n1", "again")) == replace(facts, updated_at=facts.updated_at)
    facts = told(facts, e.AgentStopped(143), generation=1)
    assert kinds(facts) == ["move"] and facts.messages[0].state == "queued"
    facts = told(facts, e.SessionDisplaced("n1", "n1 is being drained"))
    assert (facts.node, facts.moving, facts.losses) == (None, "", 0) and not facts.admitted
    facts = told(facts, e.SessionAdmitted(), e.SessionPlaced("n2"), MADE)
    assert kinds(facts) == ["launch"]


def given(facts: SessionFacts, *messages: str, at: float = 1002.0) -> SessionFacts:
    for message in messages:
        facts = told(facts, e.MessageQueued(message, message), at=at)
        facts = told(facts, e.MessageDelivered(message), at=at, generation=facts.generation)
    return facts


@pytest.mark.parametrize("end", [e.AgentLost("node n1 is lost"), e.AgentStopped(143)])
def test_what_a_lost_agent_was_given_and_did_not_take_up_has_failed(end: e.Body) -> None:
    facts = told(given(working(), "m1", "m2"), e.AgentAck("m1"), at=1003.0, generation=1)
    facts = told(facts, e.MessageQueued("m3", "m3"), e.MoveRequested("n1", "n1 is being drained"), at=1004.0)
    facts = told(facts, end, at=1005.0, generation=1)
    assert [one.state for one in facts.messages] == ["acknowledged", "failed", "queued"]
    assert "send it again if it was not followed" in facts.messages[1].reason
    again = told(facts, e.MessageDelivered("m2"), at=1005.0, generation=1)
    assert [one.state for one in again.messages] == ["acknowledged", "failed", "queued"]
    # What its next agent takes up without saying what is its own message, not the lost one's.
    facts = told(facts, e.SessionDisplaced("n1", "lost", lost=True), e.SessionAdmitted(), e.SessionPlaced("n2"), MADE)
    facts = told(facts, e.AgentLaunched({}), e.MessageDelivered("m3"), e.AgentAck(), at=1006.0, generation=2)
    assert [one.state for one in facts.messages] == ["acknowledged", "failed", "acknowledged"]
    # A word of the lost one that comes late is true all the same.
    facts = told(facts, e.MessageDelivered("m2"), e.AgentAck("m2"), at=1007.0, generation=1)
    assert [one.state for one in facts.messages] == ["acknowledged"] * 3


def test_what_one_that_never_acknowledges_was_given_last_is_in_doubt() -> None:
    facts = told(given(working(), "m1"), e.AgentActivity("active"), at=1003.0, generation=1)
    lost = told(given(facts, "m2", at=1004.0), e.AgentLost("node n1 is lost"), at=1005.0, generation=1)
    assert [one.state for one in lost.messages] == ["delivered", "delivered"]
    assert [one.reason for one in lost.messages] == [
        "",
        "its agent was lost (node n1 is lost), and may not have read it",
    ]


def test_what_was_delivered_when_the_agent_was_lost_already_is_no_secret() -> None:
    facts = told(given(working(), "m1"), e.AgentAck(), e.AgentLost("cut off"), at=1003.0, generation=1)
    assert [one.state for one in given(facts, "m2", at=1004.0).messages] == ["acknowledged", "failed"]


def test_a_person_who_wants_it_stopped_has_it_stopped_wherever_it_is() -> None:
    facts = told(working(), e.MoveRequested("n1", "n1 is being drained"), e.StopRequested())
    assert kinds(facts) == ["stop"]
    lost = told(told(working(), e.StopRequested()), e.AgentLost("node n1 is lost"), generation=1)
    lost = told(lost, e.SessionDisplaced("n1", "node n1 is lost", lost=True))
    assert lost.run == 1 and kinds(lost) == ["clean-up"]


def test_what_is_said_of_another_node_changes_nothing() -> None:
    facts = working()
    for body in (e.SessionDisplaced("n2", "lost"), e.SessionUnseen("n2"), e.MoveRequested("n2", "drained")):
        after = told(facts, body)
        assert (after.node, after.unseen_since, after.moving) == ("n1", None, "")


def test_not_seen_is_not_dead() -> None:
    facts = told(working(), e.SessionUnseen("n1", "its link is gone"))
    status = derive(facts, 1002.0)
    assert status.name == "working" and "node n1 is unreachable since" in status.why
    assert derive(told(facts, e.SessionSeen("n1")), 1002.0).why == "in a turn"


def test_a_nodes_drain_outlasts_its_absence() -> None:
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


async def test_the_least_loaded_one_that_fits_is_chosen() -> None:
    made = placer(SMALL, LARGE)
    wish = Requirements(1.0, GB)
    assert [await made.place(f"s{number}", 1, wish) for number in range(6)] == [*["large"] * 4, "small", "large"]
    assert made.choose("gpu", Requirements(1.0, GB, {"gpu": "yes"})) == ("large", "")
    assert made.choose("here", Requirements(1.0, GB, node="small")) == ("small", "")
    assert made.choose("s4", wish) == ("small", "")  # who has a place keeps it


def test_why_nobody_fits() -> None:
    cases = [
        (placer(), Requirements(), "a node: none is connected"),
        (placer(SMALL), Requirements(node="n9"), "the node n9, which is not connected"),
        (placer(SMALL), Requirements(labels={"gpu": "yes"}), "a node with the labels gpu=yes"),
        (placer(SMALL), Requirements(4.0, GB), "a node with 4 cpus and 1024 MB free"),
        (placer(SMALL, most=0), Requirements(), "a free place on a node (0 agents at most on each)"),
        (placer(replace(SMALL, ready=False, why="is unreachable")), Requirements(), "a node: small is unreachable"),
    ]
    for made, wish, why in cases:
        assert made.choose("s", wish) == ("", why)


async def test_who_waits_gets_the_place_that_somebody_leaves() -> None:
    made = placer(SMALL)
    await made.place("a", 1, Requirements(2.0, GB))
    waits = asyncio.create_task(made.place("b", 1, Requirements(1.0, GB)))
    await asyncio.sleep(0)
    assert made.why("b") == "a node with 1 cpus and 1024 MB free"
    await made.release("a")
    assert await waits == "small" and made.why("b") == ""


# -- the gate ----------------------------------------------------------------------------------------------------------


def settings(most: int | None = None) -> ClusterSettings:
    return ClusterSettings(Path("/n"), None, "", 10.0, 120.0, most, Requirements(1.0, GB))


async def test_the_gate_says_what_a_session_waits_for_once_that_lasts(tmp_path: Path) -> None:
    clock, nodes = Time(), [SMALL]
    core = make_core(tmp_path, clock=clock)
    made = ManualPlacer(lambda: nodes, lambda: None)
    placing = NodeAssignment(core, made, settings)
    nodes.clear()
    facts = new()
    assert placing.gate(facts, []) == CHOOSING_NODE_REASON
    await asyncio.sleep(0)
    clock.now += CHOOSING_WITHIN
    assert placing.gate(facts, []) == "a node: none is connected"
    nodes.append(SMALL)
    made.recheck()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert placing.gate(facts, []) == "" and placing.node_of(facts) == "small"
    full = NodeAssignment(core, made, lambda: settings(1))
    full.gate(facts, [])
    await asyncio.sleep(0)
    there = replace(working(), id="other", node="small")
    assert full.gate(facts, [there]) == "a free place on small (1 of 1 agents at work)"
    await placing.close()
    await full.close()


def test_a_node_that_was_asked_for_is_where_a_session_begins(tmp_path: Path) -> None:
    placing = NodeAssignment(make_core(tmp_path, clock=Time()), placer(SMALL), settings)
    facts = reduce(None, created(runtime="ray", workspace="clone", node="n1"))
    assert facts is not None and placing.wish(facts).node == "n1"
    facts = told(facts, e.SessionAdmitted(), e.SessionPlaced("n1"), e.SessionDisplaced("n1", "n1 is lost", lost=True))
    assert placing.wish(facts).node is None
    assert placing.wish(told(facts, e.SessionPlaced("n2"))).node == "n2"


async def test_a_session_whose_nodes_are_lost_one_after_the_other_is_tried_less_and_less(
    tmp_path: Path,
) -> None:
    clock = Time()
    placing = NodeAssignment(make_core(tmp_path, clock=clock), placer(SMALL), settings)
    facts = replace(new(), losses=3, displaced_at=clock.now)
    assert placing.gate(facts, []) == "a while: 3 nodes were lost with it"
    clock.now += 8.0
    assert placing.gate(facts, []) == CHOOSING_NODE_REASON
    assert placing.gate(replace(facts, losses=1, displaced_at=clock.now), []) == CHOOSING_NODE_REASON
    await placing.close()


# -- leases ------------------------------------------------------------------------------------------------------------


def test_only_the_launch_that_is_the_sessions_own_may_go_on(tmp_path: Path) -> None:
    sessions: dict[str, Any] = {}
    flow = cast(Flow, SimpleNamespace(sessions=sessions))
    nodes = Nodes(flow, Home(tmp_path), settings, cast(Any, lambda _remote: None))
    sessions[SESSION] = facts = working()
    may = nodes.is_current
    assert may("n1", SESSION, 1) and not may("n1", SESSION, 2) and not may("n2", SESSION, 1)
    assert not may("n1", "app-unknown", 1)
    sessions[SESSION] = told(facts, e.AgentLost("cut off"), generation=1)
    assert not may("n1", SESSION, 1) and may("n1", SESSION, 2)  # the next one is being started
    assert nodes.accepts_data_of("n1", SESSION, 1) and not nodes.accepts_data_of("n2", SESSION, 1)
    sessions[SESSION] = replace(facts, stopped=True)
    assert not may("n1", SESSION, 1)
    hello = Hello("n1", "boot", "1", PROTOCOL, Path("/n"), 1, GB)
    assert RemoteNode(hello, Home(tmp_path)).connected is False


class Line:
    """A link to a node that answers, or does not."""

    def __init__(self, *, answers: bool) -> None:
        self.heard = time.monotonic()
        self.closed = asyncio.Event()
        self.home = SimpleNamespace(path=Path("/n"))
        self._answers = answers

    async def present(self, _path: Path) -> bool:
        if not self._answers:
            await self.closed.wait()
            raise LinkLost("it is gone")
        self.heard = time.monotonic()
        return True

    async def close(self) -> None:
        self.closed.set()


async def test_a_node_that_says_nothing_is_hung_up_on_when_its_leases_are_over(tmp_path: Path) -> None:
    lease = 0.2
    nodes = Nodes(cast(Flow, None), Home(tmp_path), lambda: replace(settings(), lease=lease), cast(Any, None))
    began = time.monotonic()
    silent, answers = Line(answers=False), Line(answers=True)
    listening = [asyncio.create_task(nodes._listen(cast(Any, one), cast(Any, one))) for one in (silent, answers)]
    await asyncio.wait_for(silent.closed.wait(), 60)
    assert time.monotonic() - began > lease
    await asyncio.sleep(lease)
    assert not answers.closed.is_set()
    for one in listening:
        one.cancel()


# -- tokens ------------------------------------------------------------------------------------------------------------


def test_a_nodes_token_is_for_that_node_alone(tmp_path: Path) -> None:
    tokens = Tokens(Home(tmp_path))
    _, first = tokens.new_node("n1")
    found = tokens.check(first)
    assert found is not None and (found.kind, found.role, found.name) == ("node", None, "n1")
    _, second = tokens.new_node("n1")
    assert tokens.check(first) is None and tokens.check(second) is not None
    tokens.revoke("n1")
    assert tokens.check(second) is None
    made = tokens.for_node("n2")
    found = tokens.check(made)
    assert found is not None and (found.kind, found.role, found.name) == ("node", None, "n2")
    assert tokens.check(made.replace("n2", "n3")) is None
    assert tokens.check(tokens.for_session("node n2", 1).replace("aos_", "aon_")) is None


def test_a_node_may_open_nothing_but_its_link() -> None:
    node = Identity("node", name="n1")
    auth.require_permission(node, auth.WEBSOCKET, auth.LINK)
    for method, path in (("GET", "/api/sessions"), ("POST", "/mcp"), (auth.WEBSOCKET, "/api/sessions/x/terminal")):
        with pytest.raises(Denied):
            auth.require_permission(node, method, path)
    with pytest.raises(Denied):
        auth.require_role(node, "viewer")
