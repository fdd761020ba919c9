"""A session's change on its way to the base branch: pull request, checks, reviews, landing. Facts, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent_orchestrator.core.authors import WRITES

GOOD = frozenset({"success", "flaky", "skipped"})
BAD = frozenset({"failure", "timed_out", "cancelled"})
UNDER_WAY = frozenset({"queued", "running"})
NOT_SET_UP = "not_set_up"
"""The state of a check whose environment lacks something: neither good nor bad, and nothing merges through it."""
DEPENDENCY_ENDED = "dependency-ended"
"""What a person is asked for: what a session comes after has ended without landing, and it may go on without."""


@dataclass(frozen=True, slots=True)
class CheckRun:
    """One check at one commit; the fields that `CheckFinished` has too mean the same."""

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
    """An earlier version took the failure for the base branch's without comparing tests: the check runs again."""

    @property
    def is_known(self) -> bool:
        """Whether everything that fails also fails on the base branch and is not the session's task."""
        return self.state == "failure" and bool(self.known) and not self.new and not self.owned

    @property
    def fails(self) -> bool:
        """Whether it fails through the session's own change, or with failures that its task is to fix."""
        return self.state in BAD and not self.is_known and not self.outdated

    @property
    def is_untested(self) -> bool:
        """Whether it fails before any test is run, as on the base branch: nothing is known of the tests."""
        return self.state == "failure" and bool(self.reason)

    @property
    def drops_tests(self) -> bool:
        """Whether tests that pass on the base branch are not run any more, or none is run at all."""
        return bool(self.vanished or self.newly_skipped or self.fewer or self.is_untested)

    @property
    def dropped(self) -> str:
        """The tests that are not run any more, in words; an empty string if there are none."""
        if self.is_untested:
            return self.reason
        named = [*self.vanished, *(f"{name} (skipped)" for name in self.newly_skipped)]
        some = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
        fewer = f"{self.fewer} fewer tests than before" if self.fewer else ""
        return "; ".join(filter(None, (some, fewer)))

    @property
    def compared(self) -> str:
        """How its failures compare with the base branch's, in words: `1 new, 3 known`; an empty string if that was not compared."""
        owned = f"{len(self.owned)} to fix" if self.owned else ""
        known = len(self.known) - len(self.owned)
        parts = [f"{len(self.new)} new" if self.new else "", owned, f"{known} known" if known else ""]
        return ", ".join(filter(None, parts)) if self.known else ""


@dataclass(frozen=True, slots=True)
class Review:
    """Somebody's judgement."""

    id: str
    verdict: str
    head: str
    author: str
    body: str
    at: float
    write_access: str = WRITES
    """May the author write to the repository: `yes`, `no` or `unknown`."""
    kind: str = "person"
    """`person`, `bot` or `agent`."""
    reviewer: str = ""
    """The session of the agent that judged."""
    counts: bool = True
    """It is approval enough."""
    heard: str = ""
    """The session's own head when it became known here: only a later one may be the answer to it."""

    @property
    def stands_at(self) -> str:
        """The head that has not answered it yet."""
        return self.heard or self.head


MOST_REPLIES = 500
"""What an agent says about one change; it has nothing to say beyond that, and a forge would be told all of it."""


@dataclass(frozen=True, slots=True)
class Comment:
    """Something said about the change."""

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
    """The commit that was looked at."""
    write_access: str = WRITES
    kind: str = "person"
    """`person`, `bot` or `agent`."""
    resolved: bool = False
    heard: str = ""
    """The session's own head when it became known here: only a later one may be the answer to it."""

    @property
    def stands_at(self) -> str:
        """The head that has not answered it yet."""
        return self.heard or self.head


@dataclass(frozen=True, slots=True)
class Landing:
    """It is to land."""

    strategy: str
    force: bool
    delete_after: bool
    at: float
    waits: str = ""
    head: str = ""
    """The commit that may land, and no other."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """The change and everything known about it."""

    number: int
    title: str
    base: str
    draft: bool = True
    state: str = "open"
    """`open`, `merged` or `closed`."""
    url: str | None = None
    node: str = ""
    """Its name at the forge for good; empty: it is a local one."""
    blocked: str = ""
    """What the forge demands before it may land."""
    checks: Mapping[str, CheckRun] = field(default_factory=dict)
    """By name, at the newest commit that they ran at."""
    settled: str | None = None
    """The commit at which every check has a result."""
    by_hand: str | None = None
    """The commit at which no check runs until it is asked for."""
    unchecked: bool = False
    """No check is configured."""
    asked: int = 0
    """How often the checks were asked for by hand."""
    reviews: tuple[Review, ...] = ()
    requested: tuple[str, ...] = ()
    """People whom somebody here had asked to look at it."""
    comments: tuple[Comment, ...] = ()
    conflicts: tuple[str, ...] = ()
    compared: tuple[str, str] | None = None
    """Head and base head that were looked at for conflicts."""
    landing: Landing | None = None
    refused: str = ""
    """Why the last landing failed."""
    refused_head: str = ""
    """The commit that was to land then; another one may be tried."""
    landed: str | None = None
    landed_head: str = ""
    """The commit of its branch that landed."""
    base_before: str | None = None
    """Where the base was before it landed."""
    keep_branch: bool = False
    left: tuple[str, ...] = ()
    """What was not committed when it landed."""

    @property
    def replies(self) -> int:
        """How often agents said something about it."""
        return sum(one.by_agent for one in self.comments)

    @property
    def threads(self) -> Mapping[str, list[Comment]]:
        """Comments by what they answer, oldest first."""
        found: dict[str, list[Comment]] = {}
        for comment in self.comments:
            found.setdefault(comment.thread or comment.id, []).append(comment)
        return found

    @property
    def shown_state(self) -> str:
        """`draft`, `open`, `merged` or `closed`."""
        return "draft" if self.draft and self.state == "open" else self.state

    def runs(self, head: str | None) -> list[CheckRun]:
        """The checks at this commit."""
        return [run for run in self.checks.values() if run.head == head]

    def failing(self, head: str | None) -> list[CheckRun]:
        """Checks at this commit whose failures are the session's to fix."""
        return [run for run in self.runs(head) if run.fails]

    def not_set_up(self, head: str | None) -> list[CheckRun]:
        """Checks at this commit that have no verdict, because their environment is not set up."""
        return [run for run in self.runs(head) if run.state == NOT_SET_UP]

    def forbidden(self, head: str | None) -> list[CheckRun]:
        """Checks whose failures the base branch has too, in a project in which these hold a merge."""
        return [run for run in self.runs(head) if run.is_known and run.forbidden]

    def dropping(self, head: str | None) -> list[CheckRun]:
        """Checks that do not run tests any more that they run on the base branch, which no person has approved at this commit."""
        if self.person_approved(head):
            return []
        return [run for run in self.runs(head) if run.drops_tests and not run.outdated]

    def red(self, head: str | None) -> list[CheckRun]:
        """Checks that hold the merge of this commit, whatever a reviewer says."""
        return [*self.failing(head), *self.not_set_up(head), *self.forbidden(head)]

    def merge_blocker(self, head: str | None) -> str:
        """Why the checks at this commit hold its merge, or an empty string if they do not."""
        if failing := self.failing(head):
            return f"checks fail: {', '.join(run.name for run in failing)}"
        if lacking := self.not_set_up(head):
            return f"{lacking[0].name}: environment not set up: {lacking[0].reason}"
        if known := self.forbidden(head):
            return f"{known[0].name} fails on {self.base} too, and redBase is forbid"
        if dropping := self.dropping(head):
            return self.drop_text(dropping[0])
        return ""

    def drop_text(self, run: CheckRun) -> str:
        """Which tests a check does not run, in a sentence."""
        if run.is_untested:
            return f"{run.name} fails before its tests: {run.dropped}"
        return f"{run.name} does not run tests that pass on {self.base}: {run.dropped}"

    def person_approved(self, head: str | None) -> bool:
        """Whether a person's last review approves exactly this commit."""
        given = [one for one in self.judgements if one.kind == "person"]
        return bool(given) and given[-1].verdict == "approved" and given[-1].stands_at == head

    def running(self, head: str | None) -> bool:
        """Some check at this commit has no result yet."""
        return any(run.state in UNDER_WAY or (run.outdated and self.state == "open") for run in self.runs(head))

    def awaited(self, head: str | None) -> bool:
        """Nothing is known of the checks at this commit, and something will be."""
        return head not in (self.settled, self.by_hand) and all(run.head != head for run in self.checks.values())

    def green(self, head: str | None) -> bool:
        """Every check that is to run has run at this commit, and passed. Not reported is not green."""
        if self.settled != head:
            return False
        passed = all(run.state in GOOD or (run.is_known and not run.forbidden) for run in self.runs(head))
        return self.unchecked or (passed and not self.dropping(head))

    @property
    def judgements(self) -> list[Review]:
        """The reviews that count: those of people who may write to the repository. Anybody else's is but a comment.

        An agent's approval is none, unless the project says so; but it takes back what that agent asked for before.
        """
        given = [one for one in self.reviews if one.verdict != "commented" and one.write_access == WRITES]
        content = {one.reviewer or one.author for one in _last_of_each(given) if one.verdict == "approved"}
        return [
            one
            for one in given
            if one.kind == "person"
            or (one.counts and one.verdict == "approved")
            or (one.verdict != "approved" and (one.reviewer or one.author) not in content)
        ]

    @property
    def seen_by_person(self) -> bool:
        """A person has looked at the change and said something: its history must not be rewritten any more."""
        kinds = [one.kind for one in self.reviews] + [one.kind for one in self.comments if not one.by_agent]
        return "person" in kinds

    @property
    def agents_word(self) -> Review | None:
        """The last judgement of a reviewing agent."""
        return next((one for one in reversed(self.reviews) if one.kind == "agent" and one.verdict != "commented"), None)

    def verdict(self, head: str | None) -> str:
        """`none`, `pending`, `approved` or `changes_requested`: the last judgement, as far as it is about this commit.

        A person's approval holds for what is committed later, an agent's for the very commit that it had before it.
        """
        given = self.judgements
        judged = [one for one in given if one.kind == "person" or one.verdict != "approved" or one.stands_at == head]
        if not judged:
            return "pending" if given else "none"
        last = judged[-1]
        return "pending" if last.verdict == "changes_requested" and last.stands_at != head else last.verdict

    def mergeable(self, head: str | None, base_head: str | None) -> str:
        """`yes`, `no` or `unknown`: only a look at these two commits counts."""
        if self.compared is None or self.compared != (head, base_head):
            return "unknown"
        return "no" if self.conflicts else "yes"


def _last_of_each(reviews: list[Review]) -> list[Review]:
    """Of each bot and agent its last word."""
    return list({one.reviewer or one.author: one for one in reviews if one.kind != "person"}.values())


@dataclass(frozen=True, slots=True)
class Episode:
    """One unbroken time in which a trigger's state holds."""

    since: float
    attempts: int = 0
    occurrence: str = ""
    """What was last reacted to: another one within the episode is the next attempt."""
    escalated: bool = False
    first: str = ""
    """What was reacted to at first: names the episode."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan says of an issue that is one of its tasks."""

    plan: str
    task: str
    profile: str | None = None
    priority: int = 0
    files: tuple[str, ...] = ()
    start: bool = True


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue: of the local tracker, or read from another one."""

    number: int
    project: str
    title: str
    created_at: float
    updated_at: float
    body: str = ""
    state: str = "open"
    labels: tuple[str, ...] = ()
    author: str = "person"
    assignee: str | None = None
    after: tuple[int, ...] = ()
    comments: tuple[Comment, ...] = ()
    write_access: str = WRITES
    key: str = ""
    """How the tracker calls it, where that is not its number."""
    url: str | None = None
    tracker: str = "local"
    branch: str | None = None
    """The branch that the tracker suggests."""
    planned: Planned | None = None

    @property
    def name(self) -> str:
        """How people call it."""
        return self.key or str(self.number)


_LONGEST_NUMBER = 18
"""Digits that the number of an issue may have."""


def issue_number(name: str) -> int | None:
    """The number in the name of an issue: 3 of `LIN-3`."""
    digits = name.rpartition("-")[2].lstrip("#")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_NUMBER else None
