"""From events to facts: the nodes of the cluster, and which sessions run on which.

Part of the fold in `core/fold/sessions.py`. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import Checkpoint, NodeFacts, SessionFacts
from agent_orchestrator.core.fold.step import Step

LOST_NODE_SECONDS = 86400.0
"""Seconds that a lost node is kept."""


def reduce_nodes(nodes: Mapping[str, NodeFacts], event: Event) -> Mapping[str, NodeFacts]:
    """Return the cluster's nodes after an event."""
    match event.body:
        case e.NodeJoined() as body:
            earlier = nodes.get(body.node)
            drained = earlier.drained if earlier else False
            joined = NodeFacts(
                body.node, body.address, body.cpus, body.memory, body.labels, event.time, drained=drained
            )
            remaining = {name: node for name, node in nodes.items() if _is_kept(node, event.time)}
            return {**remaining, body.node: joined}
        case e.NodeUnreachable() as body:
            return _with_changes(nodes, body.node, state="unreachable", reason=body.reason, since=event.time)
        case e.NodeLost() as body:
            return _with_changes(nodes, body.node, state="gone", reason=body.reason, since=event.time)
        case e.DrainRequested() as body:
            return _with_changes(nodes, body.node, drained=True)
        case e.DrainEnded() as body:
            return _with_changes(nodes, body.node, drained=False)
    return nodes


def _is_kept(node: NodeFacts, now: float) -> bool:
    """Return whether a node is kept: it is not gone, or gone only recently, or drained."""
    return node.state != "gone" or node.drained or now - node.since < LOST_NODE_SECONDS


def _with_changes(nodes: Mapping[str, NodeFacts], name: str, **changes: object) -> Mapping[str, NodeFacts]:
    """Return the nodes with changes to one of them, or unchanged if it is unknown."""
    node = nodes.get(name)
    return nodes if node is None else {**nodes, name: replace(node, **changes)}  # type: ignore[arg-type]


def _apply_session_placed(facts: SessionFacts, _event: Event, body: e.SessionPlaced) -> SessionFacts:
    """Record the node that a session was placed on."""
    return replace(facts, node=body.node, unreachable_reason="", unseen_since=None)


def _apply_session_unseen(facts: SessionFacts, event: Event, body: e.SessionUnseen) -> SessionFacts:
    """Record that the session's node is unreachable."""
    if facts.node != body.node or facts.unseen_since is not None:
        return facts
    return replace(facts, unreachable_reason=body.reason or "its node does not answer", unseen_since=event.time)


def _apply_session_seen(facts: SessionFacts, _event: Event, body: e.SessionSeen) -> SessionFacts:
    """Record that the session's node is reachable again."""
    return replace(facts, unreachable_reason="", unseen_since=None) if facts.node == body.node else facts


def _apply_work_checkpointed(facts: SessionFacts, event: Event, body: e.WorkCheckpointed) -> SessionFacts:
    """Record the session's work as last saved from its node."""
    return replace(facts, checkpoint=Checkpoint(body.commit, body.head, event.time))


def _apply_move_requested(facts: SessionFacts, _event: Event, body: e.MoveRequested) -> SessionFacts:
    """Record that a session is to leave its node.

    A running agent gets a new launch, and undelivered messages wait for it; a session without a running agent is
    started at its next message.
    """
    if facts.node != body.node or facts.move_reason or facts.stopped:
        return facts
    return replace(facts, move_reason=body.reason, run=facts.run + facts.live)


def _apply_session_displaced(facts: SessionFacts, event: Event, body: e.SessionDisplaced) -> SessionFacts:
    """Record that a session has left its node.

    If the node was lost, so was work that is not in the main repository: the head is the last published commit. The
    session starts again if that was requested, or if a launch was due.
    """
    if facts.node != body.node:
        return facts
    workspace = facts.workspace and replace(facts.workspace, present=False)
    head = (facts.published_head or facts.workspace.base_commit) if facts.workspace and body.lost else facts.head
    is_launch_due = facts.launched_run != facts.run
    is_restarted = body.restart and facts.requested_state == "run" and not is_launch_due
    return replace(
        facts,
        node=None,
        move_reason="",
        moves=facts.moves + 1,
        losses=facts.losses_after_another(event.time) if body.lost else facts.losses,
        displaced_at=event.time,
        unreachable_reason="",
        unseen_since=None,
        workspace=workspace,
        head=head,
        run=facts.run + is_restarted,
        admitted=facts.admitted and not (is_restarted or is_launch_due),
        waiting_for="",
        slot_wait_since=None,
    )


STEPS: Mapping[type[e.Body], Step] = {
    e.SessionPlaced: _apply_session_placed,
    e.SessionUnseen: _apply_session_unseen,
    e.SessionSeen: _apply_session_seen,
    e.WorkCheckpointed: _apply_work_checkpointed,
    e.MoveRequested: _apply_move_requested,
    e.SessionDisplaced: _apply_session_displaced,
}
