"""A change that stood on another one: first its commits go onto the base, then it is compared with that."""

from __future__ import annotations

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import lifecycle_intents
from agent_orchestrator.core.status import derive
from tests.unit.core.test_facts_properties import begun, step

READY = (e.HeadMoved("c1"), e.PrOpened(1, "x", "feature/low", draft=False), e.ChecksSettled("c1", none=True))
LANDED = e.BaseChanged("main", "app-low has landed", "l1")


def told(*bodies: e.Body) -> SessionFacts:
    facts = begun()
    for number, body in enumerate((*READY, *bodies)):
        facts = step(facts, Event(body, 1001.0, "test", f"t{number}", "app", facts.id, facts.generation))
    return facts


def kinds(*bodies: e.Body) -> set[str]:
    return {intent.kind for intent in lifecycle_intents(told(*bodies))} & {"rebase", "compare"}


def test_it_is_compared_with_its_base_when_its_commits_are_there_or_cannot_be() -> None:
    assert kinds(e.BaseMoved("b1")) == {"compare"}
    assert kinds(LANDED, e.BaseMoved("b1")) == {"rebase"}
    assert kinds(LANDED, e.BaseMoved("b1"), e.RebaseRefused("c1", "conflicts in a")) == {"rebase", "compare"}
    assert kinds(LANDED, e.BaseMoved("b1"), e.HeadMoved("c2"), e.BranchRebased("b1")) == {"compare"}
    assert kinds(LANDED, e.BaseMoved("b1"), e.MergeRequested("squash", False, True)) == set()


def test_what_was_compared_with_the_old_base_says_nothing_about_the_new_one() -> None:
    clash = (e.BaseMoved("l1"), e.ConflictsSeen("c1", "l1", ("a",)), e.AgentActivity("idle"))
    assert derive(told(*clash), 1002.0).name == "conflicted"
    facts = told(*clash, LANDED)
    assert derive(facts, 1002.0).name != "conflicted" and facts.base == "main"
    assert facts.pr is not None and facts.pr.base == "main" and facts.pr.mergeable("c1", "l1") == "unknown"
    moved = told(LANDED, e.HeadMoved("c2"), e.BranchRebased("b1"))
    assert moved.below is None and moved.place is not None and moved.place.base_commit == "b1"
