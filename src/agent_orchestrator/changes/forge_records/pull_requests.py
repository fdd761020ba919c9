"""The pull requests of one project, as the facts of its sessions have them; implements `PullRequestStorage`."""

from __future__ import annotations

from collections.abc import Iterator

from agent_orchestrator.changes.forge_records.numbers import NumberAllocator
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import Comment, PullRequest
from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols.forge import Author, PullRequestComment, PullRequestReview, PullRequestSpec
from agent_orchestrator.protocols.forge_storage import PullRequestRecord

SOURCE = "forge"
"""The source of the events."""


class ProjectPullRequests:
    """Reads from the facts and records events; each pull request belongs to a session."""

    def __init__(self, flow: Flow, numbers: NumberAllocator, project: str) -> None:
        self._flow = flow
        self._numbers = numbers
        self._project = project

    def get(self, number: int) -> PullRequestRecord | None:
        """Return a pull request, or None if there is none with this number."""
        return next((_pull_record(facts, pr) for facts, pr in self._all() if pr.number == number), None)

    def find(self, branch: str) -> PullRequestRecord | None:
        """Return the open pull request of a branch, else its newest one, or None."""
        pulls = [_pull_record(facts, pr) for facts, pr in self._all() if facts.branch == branch]
        return max(pulls, key=lambda pull: (pull.state == "open", pull.number), default=None)

    async def open(self, spec: PullRequestSpec) -> PullRequestRecord:
        """Open a pull request for a session's branch with the next free number, or return the session's."""
        async with self._numbers.lock:
            facts = self._session_for(spec)
            if facts.pr is None:
                opened = e.PrOpened(self._numbers.next_number(self._project), spec.title, spec.base, spec.draft)
                await self._record(facts, opened, f"open-pr:{facts.id}:done")
        facts = self._flow.sessions[facts.id]
        assert facts.pr is not None
        return _pull_record(facts, facts.pr)

    def _session_for(self, spec: PullRequestSpec) -> SessionFacts:
        """Return the session that the pull request is for: the named one, else one that works on the branch, oldest first."""
        if spec.session:
            return self._flow.sessions[spec.session]
        on_branch = [
            facts
            for facts in self._flow.sessions.values()
            if (facts.project, facts.branch) == (self._project, spec.branch)
        ]
        without_pull = [facts for facts in on_branch if facts.pr is None and not facts.stopped]
        with_open_pull = [facts for facts in on_branch if facts.pr and facts.pr.state == "open"]
        if candidates := without_pull + with_open_pull:
            return candidates[0]
        raise NotFound(f"no session works on {spec.branch}", "start one: ao new --branch")

    async def ready(self, number: int) -> None:
        """Mark a draft as ready for review."""
        facts, pr = self._find(number)
        if pr.draft and pr.state == "open":
            await self._record(facts, e.PrReady(), f"ready-pr:{facts.id}:{facts.head}:done")

    async def close(self, number: int) -> None:
        """Close an open pull request without merging it."""
        facts, pr = self._find(number)
        if pr.state == "open":
            await self._record(facts, e.PrClosed(), f"close-pr:{facts.id}:{facts.seq}:done")

    async def comment(self, number: int, text: str, key: str, thread: str | None = None) -> str:
        """Comment on the whole or in a discussion; the comment's id is the key."""
        facts, _ = self._find(number)
        comment = e.CommentAdded(key, text, "agent", thread=thread, by_agent=True, head=facts.head or "", kind="agent")
        await self._record(facts, comment, f"comment:{facts.id}:{key}")
        return key

    async def resolve(self, thread: str) -> None:
        """Mark a discussion as resolved."""
        for facts, pr in self._all():
            if any(not comment.resolved for comment in pr.threads.get(thread, ())):
                await self._record(facts, e.ThreadSettled(thread, True), f"resolve:{facts.id}:{thread}:{facts.seq}")

    def _all(self) -> Iterator[tuple[SessionFacts, PullRequest]]:
        """Yield the project's sessions that have a pull request, with it."""
        for facts in list(self._flow.sessions.values()):
            if facts.project == self._project and facts.pr is not None:
                yield facts, facts.pr

    def _find(self, number: int) -> tuple[SessionFacts, PullRequest]:
        """Return a pull request with its session. Raises `NotFound`."""
        for facts, pr in self._all():
            if pr.number == number:
                return facts, pr
        raise NotFound(f"{self._project} has no pull request #{number}", "see what there is: ao status")

    async def _record(self, facts: SessionFacts, body: e.Body, key: str) -> None:
        """Record an event about a session's pull request."""
        await self._flow.append(Event(body, self._flow.clock(), SOURCE, key, self._project, facts.id))


def _pull_record(facts: SessionFacts, pr: PullRequest) -> PullRequestRecord:
    """Return a session's pull request as a record for plugins."""
    reviews = tuple(
        PullRequestReview(
            review.id,
            review.verdict,
            Author(review.author, review.kind, review.write_access),
            review.body,
            review.head,
            review.at,
        )
        for review in pr.reviews
    )
    comments = tuple(_pull_comment(comment) for comment in pr.comments)
    return PullRequestRecord(
        pr.number, pr.title, facts.branch, pr.base, pr.state, pr.draft, reviews, comments, merged_as=pr.merge_commit
    )


def _pull_comment(comment: Comment) -> PullRequestComment:
    """Return a comment of the facts as plugins read it."""
    return PullRequestComment(
        comment.id,
        comment.body,
        Author(comment.author, comment.kind, comment.write_access),
        comment.at,
        comment.path,
        comment.line,
        comment.thread or comment.id,
        comment.review,
        comment.head,
        comment.resolved,
        mark=comment.id if comment.by_agent else "",
    )
