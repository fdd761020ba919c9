"""The fold's part for machines of a cluster: which there are, and which sessions live on which. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Checkpoint, NodeFacts, SessionFacts
from agent_orchestrator.core.fold.pull_requests import Step

KEPT_NODE = 86400.0
"""Seconds that a node is remembered that is gone."""


def reduce_nodes(nodes: Mapping[str, NodeFacts], event: Event) -> Mapping[str, NodeFacts]:
    """The cluster's machines after one more event."""
    match event.body:
        case e.NodeJoined() as body:
            known = nodes.get(body.node)
            drained = known.drained if known else False
            joined = NodeFacts(
                body.node, body.address, body.cpus, body.memory, body.labels, event.time, drained=drained
            )
            kept = {name: one for name, one in nodes.items() if _kept(one, event.time)}
            return {**kept, body.node: joined}
        case e.NodeUnreachable() as body:
            return _changed(nodes, body.node, state="unreachable", reason=body.reason, since=event.time)
        case e.NodeLost() as body:
            return _changed(nodes, body.node, state="gone", reason=body.reason, since=event.time)
        case e.DrainRequested() as body:
            return _changed(nodes, body.node, drained=True)
        case e.DrainEnded() as body:
            return _changed(nodes, body.node, drained=False)
    return nodes


def _kept(node: NodeFacts, now: float) -> bool:
    return node.state != "gone" or node.drained or now - node.since < KEPT_NODE


def _changed(nodes: Mapping[str, NodeFacts], name: str, **changes: object) -> Mapping[str, NodeFacts]:
    known = nodes.get(name)
    return nodes if known is None else {**nodes, name: replace(known, **changes)}  # type: ignore[arg-type]


def _placed(facts: SessionFacts, _event: Event, body: e.SessionPlaced) -> SessionFacts:
    return replace(facts, node=body.node, unseen="", unseen_since=None)


def _unseen(facts: SessionFacts, event: Event, body: e.SessionUnseen) -> SessionFacts:
    if facts.node != body.node or facts.unseen_since is not None:
        return facts
    return replace(facts, unseen=body.reason or "its node does not answer", unseen_since=event.time)


def _seen(facts: SessionFacts, _event: Event, body: e.SessionSeen) -> SessionFacts:
    return replace(facts, unseen="", unseen_since=None) if facts.node == body.node else facts


def _checkpointed(facts: SessionFacts, event: Event, body: e.WorkCheckpointed) -> SessionFacts:
    return replace(facts, checkpoint=Checkpoint(body.commit, body.head, event.time))


def _to_move(facts: SessionFacts, _event: Event, body: e.MoveRequested) -> SessionFacts:
    """Whatever waits for its agent waits for the next launch; one that has none is started at its next message."""
    if facts.node != body.node or facts.moving or facts.stopped:
        return facts
    return replace(facts, moving=body.reason, run=facts.run + facts.live)


def _displaced(facts: SessionFacts, event: Event, body: e.SessionDisplaced) -> SessionFacts:
    """What is not in the main repository went with the node: the branch is where it was published last."""
    if facts.node != body.node:
        return facts
    place = facts.place and replace(facts.place, present=False)
    head = (facts.published or facts.place.base_commit) if facts.place and body.lost else facts.head
    due = facts.launched_run != facts.run
    begun_anew = body.restart and facts.wanted == "run" and not due
    return replace(
        facts,
        node=None,
        moving="",
        moves=facts.moves + 1,
        losses=facts.losses_with(event.time) if body.lost else facts.losses,
        displaced_at=event.time,
        unseen="",
        unseen_since=None,
        place=place,
        head=head,
        run=facts.run + begun_anew,
        admitted=facts.admitted and not (begun_anew or due),
        waiting_for="",
        turn_since=None,
    )


STEPS: Mapping[type[e.Body], Step] = {
    e.SessionPlaced: _placed,
    e.SessionUnseen: _unseen,
    e.SessionSeen: _seen,
    e.WorkCheckpointed: _checkpointed,
    e.MoveRequested: _to_move,
    e.SessionDisplaced: _displaced,
}
