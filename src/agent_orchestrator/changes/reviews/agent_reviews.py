"""Reviews by agents: a separate session, at the change's head, reviews another session's change.

Its verdict triggers the same reactions as a person's; it counts as approval only where the project allows that. When
the change moves on, the agent is asked again, for a limited number of rounds.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import find_layout, read_head, read_ref
from agent_orchestrator.changes.reviews.new_review import NewReview, parse_review
from agent_orchestrator.changes.reviews.reviews import Reviews
from agent_orchestrator.config.projects.projects import NO_CONTEXT
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import COORDINATOR_KIND, REVIEWER_KIND, SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.pull_request import PullRequest, Review
from agent_orchestrator.core.reactions import Intent, message_id
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.core.turn_text.review_parser import VERDICTS
from agent_orchestrator.errors import AoError, Conflict, Denied, UsageError
from agent_orchestrator.sessions.creation.new_session import NewSession
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.sessions import Sessions

log = structlog.get_logger()

_FIRST_PROMPT = """\
Review the change of {session} (pull request #{number}, {title!r}) before it lands on {base}.
This folder has it checked out: change nothing here.

See it: git diff {since}...HEAD
Its task was:
{task}

Look for what is wrong, missing, unsafe or untested; not for matters of taste. {more}"""
"""The first prompt of a reviewing agent."""

_VERDICT_FORM = """\
End with your judgement as a block of exactly this form, each comment on a line of the new files:

```review
{"verdict": "approved", "body": "in a sentence or two",
 "comments": [{"path": "file.py", "line": 12, "body": "what is wrong, and what to do"}]}
```
The verdict is "approved", "changes_requested" or "commented"."""
"""The form in which the agent gives its verdict."""

_NEXT_ROUND = """\
The change moved on to {head}: {how}. Your last judgement was of {before}; see what is new: git diff {before}..{head}
Judge it again: is what you asked for done, and is anything else wrong?"""
"""The message that asks for another round."""


class AgentReviews(Part):
    """Requests reviews by agents, posts their verdicts, and requests further rounds."""

    source = "review"

    def __init__(self, core: Core, sessions: Sessions, reviews: Reviews) -> None:
        super().__init__(core)
        self.sessions = sessions
        self.reviews = reviews
        self._scheduled_checks: set[str] = set()

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {"post-review": Effect(self.post_review)}

    def start(self) -> None:
        """Check every change that a reviewing agent is on, now and whenever one moves."""
        self.on(self._check_changed)
        self.on(self._delete_stopped_branches, e.SessionStopped)
        for facts in self._reviewers():
            self._schedule_check(facts.spec.reviews or "")
            if facts.stopped:
                self.spawn(self._delete_branch(facts))

    # -- requests ------------------------------------------------------------------------------------------------------

    async def request_review(
        self, session: str, agent: str | None, text: str = "", *, key: str | None = None, rule: str = ""
    ) -> dict[str, Any]:
        """Have an agent review a session's change; return the view of the session that does.

        Raises `Conflict` if such an agent reviews it already, or if a rule asks for more rounds than the project
        allows.
        """
        created = await self.flow.store.event_by_key(f"create:{key}") if key else None
        if created is not None and created.session:  # perhaps by a daemon that ended before it recorded the request
            await self._record_request(self.flow.sessions[session], created.session)
            return self.sessions.view(created.session)
        facts, pr = self._find_reviewable(session)
        settings = self.core.config.agent(facts.project, agent)
        name = (settings.profile or settings.tool) if settings else agent or ""
        active_reviewers = [
            reviewer for reviewer in self._reviewers(session) if _agent_name(reviewer) == name and _is_active(reviewer)
        ]
        if active_reviewers:
            raise Conflict(
                f"{active_reviewers[0].id} reviews {session} already",
                f"see how far it is: ao status {active_reviewers[0].id}",
            )
        max_rounds = self._max_rounds(facts)
        if rule and count_rounds(pr) >= max_rounds:
            raise Conflict(
                f"{session} was judged {count_rounds(pr)} times by agents", f"judge it yourself: ao review {session}"
            )
        number = len(self._reviewers(session)) + 1
        short_name = f"review-{facts.name[:28].rstrip('-')}{'' if number == 1 else f'-{number}'}"
        request = NewSession(
            project=facts.project,
            name=short_name,
            title=f"Review {facts.id}",
            prompt=self._make_prompt(facts, pr, text),
            agent=agent,
            branch=f"review/{facts.name}-{(facts.head or '')[:8]}-{number}",
            base=facts.branch,
            kind=REVIEWER_KIND,
            reviews=facts.id,
            spawned=(*facts.spec.spawned, rule) if rule else (),
        )
        session_view = await self.sessions.create(request, key, NO_CONTEXT)
        await self._record_request(facts, session_view["id"])
        return session_view

    async def _record_request(self, facts: SessionFacts, reviewer: str) -> None:
        """Record that the agent was asked for its first review of the change; the key makes sure that it is recorded once."""
        requested = e.ReviewRequested(reviewer, facts.head or "", (count_rounds(facts.pr) if facts.pr else 0) + 1)
        await self.flow.append(self.event(facts, requested, f"review-requested:{reviewer}:1", source="person"))

    def _find_reviewable(self, session: str) -> tuple[SessionFacts, PullRequest]:
        """Return the session with its pull request. Raises an error if it cannot be reviewed."""
        facts = self.flow.sessions[session]
        if facts.spec.kind == REVIEWER_KIND:
            raise UsageError(f"{session} is a reviewer itself", f"name the change: ao review {facts.spec.reviews}")
        if facts.spec.kind == COORDINATOR_KIND:
            raise UsageError(f"{session} coordinates and has no change", "name a session that makes one")
        if facts.pr is None:
            raise Conflict(f"{session} has no pull request yet", "it gets one with its first commit")
        if facts.pr.state != "open":
            raise Conflict(f"the pull request of {session} is {facts.pr.state}", f"see it: ao status {session}")
        return facts, facts.pr

    def _make_prompt(self, facts: SessionFacts, pr: PullRequest, text: str) -> str:
        """Return the first prompt of a reviewing agent."""
        assert facts.workspace is not None
        task = "\n".join(f"> {line}" for line in facts.spec.prompt.splitlines()[:60]) or "> (none)"
        instructions = _FIRST_PROMPT.format(
            session=facts.id,
            number=pr.number,
            title=pr.title,
            base=pr.base,
            since=facts.workspace.base_commit[:12],
            task=task,
            more="Earlier threads are shown by: ao review " + facts.id if pr.comments else "",
        )
        return "\n\n".join(part for part in (instructions.strip(), text.strip(), _VERDICT_FORM) if part)

    def _max_rounds(self, facts: SessionFacts) -> int:
        """Return how many rounds of review by agents the project allows."""
        return self.core.settings.project(facts.project).review.max_rounds

    # -- verdicts ------------------------------------------------------------------------------------------------------

    async def post_review(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Post a reviewing agent's verdict on the change; once per intent, however often it is tried.

        A reviewer whose review is over cannot post.
        """
        reviewer = self.flow.sessions[intent.session]
        if not _is_active(reviewer):
            return []
        return await self.post_verdict(reviewer, parse_review(intent.args), intent.key)

    async def submit(self, agent: str, session: str, review: NewReview, key: str | None) -> dict[str, Any]:
        """Post a verdict that an agent gives by the command line or the API.

        Raises `Denied` unless it was asked to review this change.
        """
        reviewer = self.flow.sessions.get(agent)
        if reviewer is None or reviewer.spec.reviews != session:
            target = "its own change" if agent == session else session
            raise Denied(f"{agent} was not asked to judge {target}", f"ask a reviewer: ao review {session} --agent A")
        if not _is_active(reviewer):
            raise Denied(f"the review by {agent} is over", f"ask for another: ao review {session} --agent A")
        events = await self.post_verdict(reviewer, review, f"said:{agent}:{key or uuid.uuid4().hex}")
        if events:
            await self.flow.append(*events)
        return self.reviews.view(session, to_agent=True)

    async def post_verdict(self, reviewer: SessionFacts, review: NewReview, key: str) -> list[Event]:
        """Post a verdict, and return the events that follow from it: the end of the review, or a notice after the last round."""
        target = self.flow.sessions.get(reviewer.spec.reviews or "")
        if target is None:
            return []
        verdict, body = VERDICTS.get(review.verdict, "commented"), review.body
        if verdict != "approved" and not body.strip() and not review.comments:
            body = "(no words)"
        over = self.event(reviewer, e.StopRequested(), f"{key}:over")
        try:
            head = read_head(Path(reviewer.workspace.git_dir)) if reviewer.workspace else None
            reviewer_at_head = replace(reviewer, head=head or reviewer.head)  # no event may report it yet
            await self.reviews.submit(target.id, verdict, body, review.comments, key=key, reviewer=reviewer_at_head)
        except AoError as error:
            if error.retryable:
                raise
            log.info("a review came too late", session=target.id, reviewer=reviewer.id, error=str(error))
            return [over]
        target_facts = self.flow.sessions[target.id]
        count = count_rounds(target_facts.pr) if target_facts.pr else 0
        last_review = _last_verdict(target_facts.pr, reviewer) if target_facts.pr else None
        if verdict == "commented" or last_review is None or not _is_bound_to_commit(last_review):
            return [over]
        if count < self._max_rounds(target):
            return []
        if verdict == "approved":
            return [over]
        text = f"{count} rounds of review by {_agent_name(reviewer)} did not end in its approval: judge it yourself, ao review {target.id}"
        notice = e.Notified("changes-requested", f"{target.id}: {count} rounds of review", text, "urgent")
        return [
            over,
            self.event(target, notice, f"{key}:told"),
            self.event(target, e.Escalated("changes-requested", "changes-requested", text), f"{key}:called"),
        ]

    # -- further rounds ------------------------------------------------------------------------------------------------

    def _reviewers(self, session: str | None = None) -> list[SessionFacts]:
        """Return the reviewing sessions, of one change or of all."""
        return [
            facts
            for facts in self.flow.sessions.values()
            if facts.spec.reviews and session in (None, facts.spec.reviews)
        ]

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        """Check the changes and reviewers that events are about."""
        for session in {change.event.session for change in changes if change.event.session}:
            facts = self.flow.sessions.get(session)
            if facts is not None:
                self._schedule_check(facts.spec.reviews or session)

    def _delete_stopped_branches(self, changes: Sequence[FactsChange]) -> None:
        """Delete the branches of reviewers that have stopped."""
        for change in changes:
            if change.after and change.after.spec.reviews:
                self.spawn(self._delete_branch(change.after))

    def _schedule_check(self, session: str) -> None:
        """Schedule a check of a change and its reviewers; checks that are requested together run once."""
        if session in self._scheduled_checks or not any(_is_active(reviewer) for reviewer in self._reviewers(session)):
            return
        self._scheduled_checks.add(session)
        self.spawn(self._check_reviews(session))

    async def _delete_branch(self, reviewer: SessionFacts) -> None:
        """Delete a reviewer's branch after its end, if all of it is in the change that it reviewed."""
        target = self.flow.sessions.get(reviewer.spec.reviews or "")
        repo, ref = Path(reviewer.spec.repo), f"refs/heads/{reviewer.branch}"
        layout, git = find_layout(repo), Git(self.host, repo)
        try:
            tip = read_ref(layout.common, ref) if layout else None
            if tip and target and target.head and await git.is_ancestor(tip, target.head):
                await git.delete_ref(ref, tip)
        except AoError as error:
            log.info("a reviewer's branch stays", branch=reviewer.branch, error=str(error))

    async def _check_reviews(self, session: str) -> None:
        """End the reviews of a change that is not open any more, and request further rounds that are due."""
        self._scheduled_checks.discard(session)
        target = self.flow.sessions.get(session)
        for reviewer in self._reviewers(session):
            if not _is_active(reviewer):
                continue
            try:
                if target is None or target.stopped or target.pr is None or target.pr.state != "open":
                    over = e.StopRequested()
                    await self.flow.append(self.event(reviewer, over, f"review-over:{reviewer.id}:{reviewer.run}"))
                elif last_review := review_to_repeat(target, reviewer):
                    await self._request_next_round(target, reviewer, last_review)
            except AoError as error:
                log.warning("a review could not be gone on with", reviewer=reviewer.id, error=str(error))

    async def _request_next_round(self, target: SessionFacts, reviewer: SessionFacts, last_review: Review) -> None:
        """Request another round: check out the change's head in the reviewer's workspace and queue a message."""
        assert target.head is not None and target.pr is not None and reviewer.workspace is not None
        site = self.core.sites.for_session(reviewer)
        await site.make_commits_available(reviewer.id, target.branch)
        git = Git(site.host, Path(reviewer.workspace.path))
        checkout = await git.run("checkout", "--quiet", "--detach", target.head, "--", ok=(0, 1, 128))
        how = "it is checked out here" if not checkout.code else f"check it out: git checkout --detach {target.head}"
        text = _NEXT_ROUND.format(head=target.head[:12], how=how, before=last_review.head[:12])
        key = f"review-again:{reviewer.id}:{target.head}"
        queued = e.MessageQueued(message_id(key), f"{text}\n\n{_VERDICT_FORM}", "review")
        requested = e.ReviewRequested(reviewer.id, target.head, count_rounds(target.pr) + 1)
        await self.flow.append(self.event(reviewer, queued, key), self.event(target, requested, f"{key}:asked"))


def count_rounds(pr: PullRequest) -> int:
    """Return how many verdicts agents gave on a change."""
    return sum(review.kind == "agent" and review.verdict != "commented" for review in pr.reviews)


def review_to_repeat(target: SessionFacts, reviewer: SessionFacts) -> Review | None:
    """Return the reviewing agent's last review if it is to be repeated, or None.

    It is if the change moved on since, is done again, and its checks pass.
    """
    pr, head = target.pr, target.head
    if pr is None or pr.draft or _is_reviewing(reviewer) or reviewer.workspace is None:
        return None
    last_review = _last_verdict(pr, reviewer)
    if last_review is None or not _is_bound_to_commit(last_review) or last_review.head == head:
        return None
    is_at_rest = not target.live or (
        target.activity.state not in IN_TURN_ACTIVITIES and target.done_summary is not None
    )
    is_good = pr.is_green(head) or pr.manual_checks_head == head
    was_asked = any(message.id == message_id(f"review-again:{reviewer.id}:{head}") for message in reviewer.messages)
    return last_review if is_at_rest and is_good and not was_asked else None


def _is_reviewing(reviewer: SessionFacts) -> bool:
    """Return whether a reviewer is reviewing, or about to.

    Until it has given its verdict its workspace is not changed.
    """
    has_message = any(message.pending and message.sender == "review" for message in reviewer.messages)
    return has_message or reviewer.activity.state in {*IN_TURN_ACTIVITIES, "blocked", "limited", "waiting_input"}


def _last_verdict(pr: PullRequest, reviewer: SessionFacts) -> Review | None:
    """Return a reviewer's last verdict on a change, or None."""
    reviews = [review for review in pr.reviews if review.reviewer == reviewer.id and review.verdict != "commented"]
    return reviews[-1] if reviews else None


def _is_bound_to_commit(review: Review) -> bool:
    """Return whether a review must be repeated for the next commit: it requests changes, or is an approval that allows to merge."""
    return review.verdict == "changes_requested" or review.is_sufficient


def _agent_name(facts: SessionFacts) -> str:
    """Return the name of a reviewer's agent or profile."""
    return facts.spec.profile or facts.spec.agent


def _is_active(facts: SessionFacts) -> bool:
    """Return whether a reviewing session is to run."""
    return facts.requested_state == "run" and not facts.stopped
