"""Events derived from a forge's pull requests: for any sequence of states the facts agree with the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.changes.forge_sync.pull_request_events import (
    UNKNOWN_FILES,
    merges_other_commit,
    pull_request_news,
)
from agent_orchestrator.core import events as e
from agent_orchestrator.core.episodes import current_occurrence
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.pull_request import MAX_REPLIES, PASSING_STATES, UNFINISHED_STATES
from agent_orchestrator.core.reactions import lifecycle_intents, react_to
from agent_orchestrator.core.status import derive_status
from agent_orchestrator.protocols.forge import (
    Author,
    PullRequestCheck,
    PullRequestComment,
    PullRequestReview,
    PullRequestState,
)
from tests.unit.core.event_strategies import created, launched

HEAD, BASE = "c1", "b1"
PULL = PullRequestState(
    7, "PR_7", "https://forge/7", "Title", "open", draft=True, branch="b", head=HEAD, base="main", base_head=BASE
)
PLACE = e.WorkspaceCreated("/w", "b", "main", BASE, BASE, "/w/.git")
ANN = Author("ann", write_access="yes")


def with_pull_request(*more: e.Body, **spec: Any) -> SessionFacts:
    """Return a session with a pull request at a forge."""
    bodies = (e.WorkPushed(HEAD), e.PrOpened(7, "Title", "main", url="u", node="PR_7"), *more)
    return changed(committed(**spec), bodies)


def committed(**spec: Any) -> SessionFacts:
    """Return a session with a commit that was not pushed yet."""
    begun = reduce(None, created(scm="github", **spec))
    assert begun is not None
    begun = reduce(changed(begun, [e.SessionAdmitted(), PLACE]), launched())
    assert begun is not None
    return changed(begun, [e.HeadMoved(HEAD)])


def changed(facts: SessionFacts, bodies: Sequence[e.Body]) -> SessionFacts:
    for number, body in enumerate(bodies):
        event = Event(body, facts.updated_at, "github", f"{facts.seq}:{number}", "app", facts.id, seq=facts.seq + 1)
        after = reduce(facts, event)
        assert after is not None
        facts = after
    return facts


def after_reading(facts: SessionFacts, pull: PullRequestState, conflicts: Sequence[str] = ()) -> SessionFacts:
    return changed(facts, pull_request_news(facts, pull, conflicts))


names = st.sampled_from(["lint", "test", "build"])
states = st.sampled_from(["queued", "running", "success", "failure", "cancelled", "timed_out", "skipped"])
authors = st.builds(
    Author,
    st.sampled_from(["ann", "bob", "x[bot]"]),
    st.sampled_from(["person", "bot", "agent"]),
    st.sampled_from(["yes", "no"]),
)
checks = st.lists(
    st.builds(PullRequestCheck, st.text("0123", max_size=2), names, states), unique_by=lambda check: check.name
).map(tuple)
reviews = st.lists(
    st.builds(
        PullRequestReview,
        st.sampled_from(["r1", "r2", "r3"]),
        st.sampled_from(["approved", "changes_requested", "commented"]),
        authors,
        st.just("words"),
        st.sampled_from([HEAD, "c0"]),
        st.floats(0, 9),
    ),
    unique_by=lambda item: item.id,
).map(tuple)
comments = st.lists(
    st.builds(
        PullRequestComment,
        st.sampled_from(["m1", "m2", "m3", "m4"]),
        st.just("words"),
        authors,
        st.floats(0, 9),
        thread=st.none(),
        head=st.just(HEAD),
    ),
    unique_by=lambda item: item.id,
).map(tuple)
pulls = st.builds(
    replace,
    st.just(PULL),
    title=st.sampled_from(["Title", "Other"]),
    state=st.sampled_from(["open", "open", "open", "closed"]),
    draft=st.booleans(),
    head=st.sampled_from([HEAD, "c2"]),
    base_head=st.sampled_from([BASE, "b2"]),
    mergeable=st.sampled_from(["yes", "no", "unknown"]),
    blocked=st.sampled_from(["", "a review is demanded"]),
    checks=checks,
    checks_expected=st.sampled_from([None, True, False]),
    reviews=reviews,
    comments=comments,
)


@given(st.lists(pulls, min_size=1, max_size=6))
def test_the_facts_agree_with_the_last_reading(sequence: list[PullRequestState]) -> None:
    facts = with_pull_request()
    for pull in sequence:
        facts = after_reading(facts, pull)
        assert pull_request_news(facts, pull) == [], "a state yields its events only once"
    pr, last = facts.pr, sequence[-1]
    assert pr is not None and pr.state == last.state
    assert {comment.id for comment in last.comments} <= {comment.id for comment in pr.comments}
    assert {r.id: r.verdict for r in last.reviews}.items() <= {r.id: r.verdict for r in pr.reviews}.items()
    if last.state != "open":
        return
    assert (pr.title, pr.draft, pr.blocked) == (last.title, last.draft, last.blocked)
    if last.head == facts.head:
        ended = all(check.state not in UNFINISHED_STATES for check in last.checks)
        green = ended and all(check.state in PASSING_STATES for check in last.checks) and bool(last.checks)
        if last.checks or last.checks_expected is False:
            assert pr.is_green(HEAD) == (green or not last.checks)
        if last.mergeable != "unknown":
            assert pr.mergeability(HEAD, facts.base_head) == last.mergeable


def test_pending_checks_are_not_green_but_a_forge_without_checks_is() -> None:
    facts = with_pull_request(e.PrReady(), e.AgentActivity("idle"))
    for expected in (None, True):
        waiting = after_reading(facts, replace(PULL, draft=False, checks_expected=expected))
        assert derive_status(waiting, 1001.0).name == "ci_running"
        assert waiting.pr is not None and not waiting.pr.is_green(HEAD)
    without = after_reading(facts, replace(PULL, draft=False, checks_expected=False))
    assert without.pr is not None and without.pr.is_green(HEAD) and without.pr.has_no_checks


def test_a_push_does_not_turn_a_checked_change_into_an_unchecked_one() -> None:
    failed = replace(PULL, draft=False, checks=(PullRequestCheck("1", "test", "failure"),))
    facts = changed(
        after_reading(with_pull_request(e.PrReady(), e.AgentActivity("idle")), failed),
        [e.HeadMoved("c2"), e.WorkPushed("c2")],
    )
    facts = after_reading(facts, replace(PULL, draft=False, head="c2", checks_expected=False))
    assert facts.pr is not None and not facts.pr.is_green("c2")
    assert derive_status(facts, 1001.0).name == "ci_running"


def test_a_restarted_check_withdraws_its_earlier_result() -> None:
    failed = replace(PULL, draft=False, checks=(PullRequestCheck("1", "test", "failure"),))
    facts = after_reading(with_pull_request(), failed)
    assert facts.pr is not None and facts.pr.settled_head == HEAD and facts.pr.failing_checks(HEAD)
    facts = after_reading(facts, replace(failed, checks=(PullRequestCheck("2", "test", "running"),)))
    assert facts.pr is not None and facts.pr.settled_head is None and not facts.pr.failing_checks(HEAD)
    facts = after_reading(facts, replace(failed, checks=(PullRequestCheck("2", "test", "success"),)))
    assert facts.pr is not None and facts.pr.is_green(HEAD)


def test_a_dismissed_review_and_a_resolved_thread_block_nothing() -> None:
    review = PullRequestReview("r", "changes_requested", ANN, "no", HEAD, 1.0)
    line = PullRequestComment("m", "why?", ANN, 2.0, path="a.py", line=3, thread="T")
    facts = after_reading(
        with_pull_request(e.PrReady(), e.AgentActivity("idle")),
        replace(PULL, draft=False, reviews=(review,), comments=(line,)),
    )
    assert facts.pr is not None and facts.pr.verdict(HEAD) == "changes_requested"
    pull = replace(
        PULL, draft=False, reviews=(replace(review, verdict="commented"),), comments=(replace(line, resolved=True),)
    )
    facts = after_reading(facts, pull)
    assert facts.pr is not None and facts.pr.verdict(HEAD) == "none" and facts.pr.comments[0].resolved


def test_a_comment_posted_for_the_agent_is_recognized_as_its_own() -> None:
    comment = e.CommentAdded("c-1", "done", "demo", thread="T", by_agent=True)
    facts = with_pull_request(comment)
    mine = PullRequestComment("IC_9", "done", Author("me", "agent", "yes"), 3.0, thread="T", mark="c-1")
    assert not [
        body for body in pull_request_news(facts, replace(PULL, comments=(mine,))) if isinstance(body, e.CommentAdded)
    ]


def test_replies_of_an_agent_to_the_forge_are_limited() -> None:
    facts, posted = with_pull_request(), 0
    for number in range(MAX_REPLIES + 20):
        body = e.CommentAdded(f"c-{number}", "so", "demo", by_agent=True)
        after = reduce(facts, event := Event(body, facts.updated_at, "spool", f"r{number}", "app", facts.id))
        assert after is not None
        facts = after
        posted += [intent.kind for intent in react_to(event, facts, (), 1.0)].count("reply")
    assert facts.pr is not None and len(facts.pr.comments) == facts.pr.reply_count == posted == MAX_REPLIES
    others = PullRequestComment("IC_9", "so", Author("me", "agent", "yes"), 3.0)
    facts = after_reading(facts, replace(PULL, comments=(others,)))
    assert not [
        body for body in pull_request_news(facts, replace(PULL, comments=(others,))) if isinstance(body, e.CommentAdded)
    ]


def test_conflicts_name_their_files_if_known() -> None:
    facts = with_pull_request()
    conflicted = replace(PULL, mergeable="no")
    assert e.ConflictsSeen(HEAD, BASE, ("a.py",)) in pull_request_news(facts, conflicted, ["a.py"])
    assert e.ConflictsSeen(HEAD, BASE, UNKNOWN_FILES) in pull_request_news(facts, conflicted)


def test_a_forges_change_is_pushed_and_opened_but_not_checked_locally() -> None:
    facts = with_pull_request(e.PrReady(), e.HeadMoved("c2"))
    assert [intent.kind for intent in lifecycle_intents(facts) if intent.kind != "silence"] == ["push"]
    facts = changed(facts, [e.WorkPushed("c2")])
    assert {intent.kind for intent in lifecycle_intents(facts)} == {"silence"}
    before = committed()
    assert {intent.kind for intent in lifecycle_intents(before)} == {"push", "silence"}
    assert "open-pr" in {intent.kind for intent in lifecycle_intents(changed(before, [e.WorkPushed(HEAD)]))}


def test_a_pull_request_merged_or_closed_at_the_forge_is_recorded() -> None:
    facts = with_pull_request()
    [merged] = [
        body
        for body in pull_request_news(facts, replace(PULL, state="merged", merged_as="m1"))
        if isinstance(body, e.PrMerged)
    ]
    assert (merged.commit, merged.head) == ("m1", HEAD)
    facts = after_reading(facts, replace(PULL, state="closed"))
    assert facts.pr is not None and facts.pr.state == "closed"
    facts = after_reading(facts, PULL)
    assert facts.pr is not None and facts.pr.state == "open"


def test_a_forge_merge_of_another_commit_is_canceled() -> None:
    facts = with_pull_request(e.PrReady(), e.MergeRequested())
    queued = replace(PULL, draft=False, queued=True)
    assert not merges_other_commit(facts, queued) and e.LandingFailed not in map(type, pull_request_news(facts, queued))
    other = replace(queued, head="c9")
    assert merges_other_commit(facts, other)
    [failed] = [body for body in pull_request_news(facts, other) if isinstance(body, e.LandingFailed)]
    assert failed.cause == "moved" and "c9" in failed.reason
    for harmless in (replace(other, queued=False), replace(other, state="merged")):
        assert not merges_other_commit(facts, harmless)
    assert not merges_other_commit(with_pull_request(e.PrReady()), other)


def test_a_merge_refused_for_one_commit_may_be_retried_with_another() -> None:
    good = [
        e.ChecksSettled("c2", none=True),
        e.ReviewSubmitted("r", "approved", "c2", "ann", kind="person", counts=True),
    ]
    moved = [e.HeadMoved("c2"), e.LandingFailed("its branch moved", "moved"), *good]
    facts = changed(
        with_pull_request(e.PrReady(), e.BaseMoved(BASE), e.MergeRequested()), [*moved, e.ConflictsSeen("c2", BASE)]
    )
    assert facts.pr is not None and facts.pr.merge_failure
    trigger = "approved-and-green"
    assert current_occurrence(trigger, facts, derive_status(facts, facts.updated_at)) == f"c2:{BASE}"
    again = changed(facts, [e.MergeRequested(), e.LandingFailed("no", "forge")])
    assert current_occurrence(trigger, again, derive_status(again, again.updated_at)) is None


def test_a_merge_at_the_forge_is_followed_locally() -> None:
    facts = with_pull_request(e.PrReady(), e.MergeRequested())
    [merged] = [
        body
        for body in pull_request_news(facts, replace(PULL, state="merged", merged_as="m1"))
        if isinstance(body, e.PrMerged)
    ]
    assert merged.remove_there
    after = changed(facts, [merged])
    assert after.pr is not None and after.pr.merged_head == HEAD
    event = Event(merged, 0.0, "github", "k", "app", facts.id)
    assert [intent.kind for intent in react_to(event, after, (), 0.0)] == ["follow"]
    local = replace(after, spec=replace(after.spec, scm="local"))
    assert react_to(event, local, (), 0.0) == []


def test_the_last_commit_of_a_stopped_session_is_pushed_before_its_merge() -> None:
    """Without the push its checks would never run: a stopped session pushes nothing else."""
    over = with_pull_request(e.HeadMoved("c2"), e.StopRequested(), e.AgentStopped(0), e.SessionStopped(()))
    assert over.stopped and [intent.kind for intent in lifecycle_intents(over)] == []
    requested = changed(over, [e.MergeRequested("squash")])
    assert [intent.key.partition(":")[0] for intent in lifecycle_intents(requested)] == ["push", "land"]
    assert [intent.kind for intent in lifecycle_intents(changed(requested, [e.WorkPushed("c2")]))] == ["land"]
