"""Stacked changes: once the lower change is merged, the commits are rebased before the change is compared with the base."""

from __future__ import annotations

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import lifecycle_intents
from agent_orchestrator.core.status import derive_status
from tests.unit.core.test_facts_properties import begun, step

READY = (e.HeadMoved("c1"), e.PrOpened(1, "x", "feature/low", draft=False), e.ChecksSettled("c1", none=True))
LOWER_MERGED = e.BaseChanged("main", "app-low has landed", "l1")


def session_after(*bodies: e.Body) -> SessionFacts:
    facts = begun()
    for number, body in enumerate((*READY, *bodies)):
        facts = step(facts, Event(body, 1001.0, "test", f"t{number}", "app", facts.id, facts.generation))
    return facts


def intents_after(*bodies: e.Body) -> set[str]:
    return {intent.kind for intent in lifecycle_intents(session_after(*bodies))} & {"rebase", "compare"}


def test_a_stacked_change_is_compared_once_its_commits_are_on_the_base() -> None:
    assert intents_after(e.BaseMoved("b1")) == {"compare"}
    assert intents_after(LOWER_MERGED, e.BaseMoved("b1")) == {"rebase"}
    assert intents_after(LOWER_MERGED, e.BaseMoved("b1"), e.RebaseRefused("c1", "conflicts in a")) == {
        "rebase",
        "compare",
    }
    assert intents_after(LOWER_MERGED, e.BaseMoved("b1"), e.HeadMoved("c2"), e.BranchRebased("b1")) == {"compare"}
    assert intents_after(LOWER_MERGED, e.BaseMoved("b1"), e.MergeRequested("squash", False, True)) == set()


def test_a_comparison_with_the_old_base_does_not_count_for_the_new_one() -> None:
    conflict = (e.BaseMoved("l1"), e.ConflictsSeen("c1", "l1", ("a",)), e.AgentActivity("idle"))
    assert derive_status(session_after(*conflict), 1002.0).name == "conflicted"
    facts = session_after(*conflict, LOWER_MERGED)
    assert derive_status(facts, 1002.0).name != "conflicted" and facts.base == "main"
    assert facts.pr is not None and facts.pr.base == "main" and facts.pr.mergeability("c1", "l1") == "unknown"
    moved = session_after(LOWER_MERGED, e.HeadMoved("c2"), e.BranchRebased("b1"))
    assert moved.old_base_commit is None and moved.workspace is not None and moved.workspace.base_commit == "b1"
