"""A session's pull request, its checks, reviews and comments: facts, and what follows from them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_orchestrator.core.authors import HAS_WRITE_ACCESS

PASSING_STATES = frozenset({"success", "flaky", "skipped"})
"""States of a check that allow a merge."""
FAILED_STATES = frozenset({"failure", "timed_out", "cancelled"})
"""States of a check that failed."""
UNFINISHED_STATES = frozenset({"queued", "running"})
"""States of a check that has no result yet."""
NOT_SET_UP = "not_set_up"
"""State of a check that could not run because its environment lacks something: neither passed nor failed, but it blocks the merge."""
DEPENDENCY_ENDED = "dependency-ended"
"""Trigger of an offer to a person: a session that this one depends on ended without being merged, and this one may start anyway."""


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One run of a check at one commit; fields that `CheckFinished` also has mean the same."""

    name: str
    head: str
    state: str
    summary: str = ""
    log: str = ""
    tree: str = ""
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None
    new: Mapping[str, str] = field(default_factory=dict)
    known: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()
    vanished: tuple[str, ...] = ()
    newly_skipped: tuple[str, ...] = ()
    fewer: int = 0
    forbidden: bool = False
    reason: str = ""
    remedy: str = ""
    command: str = ""
    url: str = ""
    outdated: bool = False
    """An earlier version attributed the failure to the base branch without comparing tests: the check runs again."""

    @property
    def is_known(self) -> bool:
        """Whether every failure also occurs on the base branch and is not the session's task."""
        return self.state == "failure" and bool(self.known) and not self.new and not self.owned

    @property
    def fails(self) -> bool:
        """Whether it fails because of the session's own change, or with failures that are its task to fix."""
        return self.state in FAILED_STATES and not self.is_known and not self.outdated

    @property
    def is_untested(self) -> bool:
        """Whether it fails before any test runs, as on the base branch, so that nothing is known about the tests."""
        return self.state == "failure" and bool(self.reason)

    @property
    def drops_tests(self) -> bool:
        """Whether tests that pass on the base branch no longer run, or no test runs at all."""
        return bool(self.vanished or self.newly_skipped or self.fewer or self.is_untested)

    @property
    def dropped_tests_text(self) -> str:
        """The tests that no longer run, as text; an empty string if there are none."""
        if self.is_untested:
            return self.reason
        test_names = [*self.vanished, *(f"{name} (skipped)" for name in self.newly_skipped)]
        listed = ", ".join(test_names[:3]) + (f" and {len(test_names) - 3} more" if len(test_names) > 3 else "")
        fewer = f"{self.fewer} fewer tests than before" if self.fewer else ""
        return "; ".join(filter(None, (listed, fewer)))

    @property
    def comparison_text(self) -> str:
        """How its failures compare with those of the base branch, as text (`1 new, 3 known`); an empty string if they were not compared."""
        owned = f"{len(self.owned)} to fix" if self.owned else ""
        known_count = len(self.known) - len(self.owned)
        parts = [f"{len(self.new)} new" if self.new else "", owned, f"{known_count} known" if known_count else ""]
        return ", ".join(filter(None, parts)) if self.known else ""


@dataclass(frozen=True, slots=True)
class Review:
    """A review of the change, by a person, a bot or an agent."""

    id: str
    verdict: str
    head: str
    author: str
    body: str
    at: float
    write_access: str = HAS_WRITE_ACCESS
    """Whether the author may write to the repository: `yes`, `no` or `unknown`."""
    kind: str = "person"
    """`person`, `bot` or `agent`."""
    reviewer: str = ""
    """The session of the reviewing agent."""
    is_sufficient: bool = True
    """The project counts this agent's approval as sufficient."""
    session_head: str = ""
    """The session's head when the review became known here: only a later head can be the response to it."""

    @property
    def unanswered_head(self) -> str:
        """The head that does not respond to the review yet."""
        return self.session_head or self.head


MAX_REPLIES = 500
"""Number of comments by agents on one pull request that are kept and passed on to a forge."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on the change or on an issue."""

    id: str
    body: str
    author: str
    at: float
    path: str | None = None
    line: int | None = None
    thread: str | None = None
    review: str | None = None
    by_agent: bool = False
    head: str = ""
    """The commit that the comment refers to."""
    write_access: str = HAS_WRITE_ACCESS
    kind: str = "person"
    """`person`, `bot` or `agent`."""
    resolved: bool = False
    session_head: str = ""
    """The session's head when the comment became known here: only a later head can be the response to it."""

    @property
    def unanswered_head(self) -> str:
        """The head that does not respond to the comment yet."""
        return self.session_head or self.head


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """A requested merge."""

    strategy: str
    force: bool
    delete_after: bool
    at: float
    wait_reason: str = ""
    """What the merge waits for."""
    head: str = ""
    """The commit that may be merged; any other one may not."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request and everything known about it."""

    number: int
    title: str
    base: str
    draft: bool = True
    state: str = "open"
    """`open`, `merged` or `closed`."""
    url: str | None = None
    permanent_id: str = ""
    """Its permanent id at the forge; empty for a local one."""
    blocked: str = ""
    """What the forge requires before it can be merged."""
    checks: Mapping[str, CheckRun] = field(default_factory=dict)
    """By name, at the newest commit that they ran at."""
    settled_head: str | None = None
    """The commit at which every check has a result."""
    manual_checks_head: str | None = None
    """The commit at which checks run only on request."""
    has_no_checks: bool = False
    """No check is configured."""
    check_request_count: int = 0
    """How often the checks were requested again."""
    reviews: tuple[Review, ...] = ()
    requested_reviewers: tuple[str, ...] = ()
    """People who were asked here to review it."""
    comments: tuple[Comment, ...] = ()
    conflicting_files: tuple[str, ...] = ()
    compared_heads: tuple[str, str] | None = None
    """Head and base head that were compared for conflicts."""
    merge_request: MergeRequest | None = None
    """The requested merge, if there is one."""
    merge_failure: str = ""
    """Why the last merge failed."""
    merge_failure_head: str = ""
    """The commit whose merge failed then; a different one can be tried."""
    merge_commit: str | None = None
    """The commit on the base branch that it was merged as."""
    merged_head: str = ""
    """The commit of its branch that was merged."""
    base_before: str | None = None
    """Head of the base branch before the merge."""
    keep_branch: bool = False
    uncommitted_files: tuple[str, ...] = ()
    """Files that were not committed when it was merged."""

    @property
    def forge_id(self) -> str:
        """Its id as the forge's plugin has it."""
        return self.permanent_id or str(self.number)

    @property
    def reply_count(self) -> int:
        """The number of comments by agents."""
        return sum(comment.by_agent for comment in self.comments)

    @property
    def threads(self) -> Mapping[str, list[Comment]]:
        """The comments by thread, oldest first."""
        threads: dict[str, list[Comment]] = {}
        for comment in self.comments:
            threads.setdefault(comment.thread or comment.id, []).append(comment)
        return threads

    @property
    def shown_state(self) -> str:
        """`draft`, `open`, `merged` or `closed`."""
        return "draft" if self.draft and self.state == "open" else self.state

    def check_runs(self, head: str | None) -> list[CheckRun]:
        """Return the check runs at this commit."""
        return [run for run in self.checks.values() if run.head == head]

    def failing_checks(self, head: str | None) -> list[CheckRun]:
        """Return the checks at this commit whose failures the session must fix."""
        return [run for run in self.check_runs(head) if run.fails]

    def checks_not_set_up(self, head: str | None) -> list[CheckRun]:
        """Return the checks at this commit that could not run because their environment is not set up."""
        return [run for run in self.check_runs(head) if run.state == NOT_SET_UP]

    def forbidden_failures(self, head: str | None) -> list[CheckRun]:
        """Return the checks that fail as on the base branch, in a project where such failures block a merge."""
        return [run for run in self.check_runs(head) if run.is_known and run.forbidden]

    def checks_dropping_tests(self, head: str | None) -> list[CheckRun]:
        """Return the checks that no longer run tests of the base branch; none if a person has approved this commit."""
        if self.is_approved_by_person(head):
            return []
        return [run for run in self.check_runs(head) if run.drops_tests and not run.outdated]

    def blocking_checks(self, head: str | None) -> list[CheckRun]:
        """Return the checks that block the merge of this commit, whatever its reviews say."""
        return [*self.failing_checks(head), *self.checks_not_set_up(head), *self.forbidden_failures(head)]

    def merge_blocker(self, head: str | None) -> str:
        """Return why the checks at this commit block its merge, or "" if they do not."""
        if failing := self.failing_checks(head):
            return f"checks fail: {', '.join(run.name for run in failing)}"
        if missing_setup := self.checks_not_set_up(head):
            return f"{missing_setup[0].name}: environment not set up: {missing_setup[0].reason}"
        if forbidden := self.forbidden_failures(head):
            return f"{forbidden[0].name} fails on {self.base} too, and redBase is forbid"
        if dropping := self.checks_dropping_tests(head):
            return self.drop_text(dropping[0])
        return ""

    def drop_text(self, run: CheckRun) -> str:
        """Return a sentence that names the tests a check does not run."""
        if run.is_untested:
            return f"{run.name} fails before its tests: {run.dropped_tests_text}"
        return f"{run.name} does not run tests that pass on {self.base}: {run.dropped_tests_text}"

    def is_approved_by_person(self, head: str | None) -> bool:
        """Return whether a person's last review approves exactly this commit."""
        reviews = [review for review in self.counting_reviews if review.kind == "person"]
        return bool(reviews) and reviews[-1].verdict == "approved" and reviews[-1].unanswered_head == head

    def has_running_checks(self, head: str | None) -> bool:
        """Return whether a check at this commit has no result yet."""
        return any(
            run.state in UNFINISHED_STATES or (run.outdated and self.state == "open") for run in self.check_runs(head)
        )

    def awaits_checks(self, head: str | None) -> bool:
        """Return whether checks at this commit are expected and none has started."""
        return head not in (self.settled_head, self.manual_checks_head) and all(
            run.head != head for run in self.checks.values()
        )

    def is_green(self, head: str | None) -> bool:
        """Return whether every expected check has run at this commit and passed; a missing result does not count as passed."""
        if self.settled_head != head:
            return False
        has_passed = all(
            run.state in PASSING_STATES or (run.is_known and not run.forbidden) for run in self.check_runs(head)
        )
        return self.has_no_checks or (has_passed and not self.checks_dropping_tests(head))

    @property
    def counting_reviews(self) -> list[Review]:
        """The reviews that count: those by authors who may write to the repository; other reviews are treated as comments.

        An agent's approval does not count unless the project says so, but it withdraws the changes that this agent
        requested before.
        """
        reviews = [
            review
            for review in self.reviews
            if review.verdict != "commented" and review.write_access == HAS_WRITE_ACCESS
        ]
        approving_authors = {
            review.reviewer or review.author for review in _last_agent_reviews(reviews) if review.verdict == "approved"
        }
        return [
            review
            for review in reviews
            if review.kind == "person"
            or (review.is_sufficient and review.verdict == "approved")
            or (review.verdict != "approved" and (review.reviewer or review.author) not in approving_authors)
        ]

    @property
    def is_reviewed_by_person(self) -> bool:
        """Whether a person has reviewed or commented on the change; its history must not be rewritten then."""
        kinds = [entry.kind for entry in self.reviews] + [entry.kind for entry in self.comments if not entry.by_agent]
        return "person" in kinds

    @property
    def last_agent_review(self) -> Review | None:
        """The last review by an agent that is more than a comment."""
        return next(
            (review for review in reversed(self.reviews) if review.kind == "agent" and review.verdict != "commented"),
            None,
        )

    def verdict(self, head: str | None) -> str:
        """Return `none`, `pending`, `approved` or `changes_requested`: the last review that applies to this commit.

        A person's approval also applies to later commits, an agent's only to the commit that it reviewed.
        """
        reviews = self.counting_reviews
        applicable = [
            review
            for review in reviews
            if review.kind == "person" or review.verdict != "approved" or review.unanswered_head == head
        ]
        if not applicable:
            return "pending" if reviews else "none"
        last = applicable[-1]
        return "pending" if last.verdict == "changes_requested" and last.unanswered_head != head else last.verdict

    def mergeability(self, head: str | None, base_head: str | None) -> str:
        """Return `yes`, `no` or `unknown`; only a comparison of exactly these two commits counts."""
        if self.compared_heads is None or self.compared_heads != (head, base_head):
            return "unknown"
        return "no" if self.conflicting_files else "yes"


def _last_agent_reviews(reviews: list[Review]) -> list[Review]:
    """Return the last review of each bot and agent."""
    return list({review.reviewer or review.author: review for review in reviews if review.kind != "person"}.values())


LOCAL_FORGE = "local"
"""The forge and tracker of what nothing else is configured for."""


def is_hosted(name: str, recorded: bool | None) -> bool:
    """Return whether a forge or tracker is a service; events from before that was recorded are about one unless it was `local`."""
    return name != LOCAL_FORGE if recorded is None else recorded
