"""The slots SCM and Tracker: pull requests and issues, and the records that are exchanged with forges.

A plugin never reports what changed, it reports the state: `SCM.read` returns whole pull requests, and
`changes/forge_sync/pull_request_events.py` finds out what is new. So it does not matter whether a webhook arrives
late, twice, out of order or not at all: each is only a `Hint` that something should be read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar, Literal, Protocol, runtime_checkable

from agent_orchestrator.protocols.records import record
from agent_orchestrator.protocols.text import clean_text, one_line

MAX_FORGE_TEXT_LENGTH = 200_000
"""Maximum characters of one text from a forge that are kept: anyone may have written it."""


def _limited_text(raw: str) -> str:
    """Return a text without control characters, cut at `MAX_FORGE_TEXT_LENGTH` characters."""
    text = clean_text(raw)
    return text if len(text) <= MAX_FORGE_TEXT_LENGTH else f"{text[:MAX_FORGE_TEXT_LENGTH].rstrip()}\n\n… (cut)"


def _clean_fields(record_object: object, lines: str = "", texts: str = "") -> None:
    """Convert the fields of a record from a forge to plain text, as others wrote them; so it happens whichever plugin
    made the record.

    `lines` and `texts` are names of fields, separated by spaces: those that become one line, and those that may
    have several. A URL that is not HTTP is removed, labels and attachments become single lines.
    """
    for names, clean in ((lines, one_line), (texts, _limited_text)):
        for name in names.split():
            if value := getattr(record_object, name):
                object.__setattr__(record_object, name, clean(value))
    if (url := getattr(record_object, "url", None)) and not url.startswith(("https://", "http://")):
        object.__setattr__(record_object, "url", "" if isinstance(record_object, PullRequestState) else None)
    for name in ("labels", "attachments"):
        if values := getattr(record_object, name, ()):
            object.__setattr__(record_object, name, tuple(one_line(item) for item in values))


@record
class Author:
    """The author of a comment, review, issue or pull request."""

    name: str
    kind: str = "person"
    """`person`, `bot`, or `agent`: ourselves, recognised by the daemon's own login and mark."""
    write_access: str = "unknown"
    """Whether the author may write to the repository: `yes`, `no` or `unknown`."""

    def __post_init__(self) -> None:
        _clean_fields(self, lines="name")


@record
class PullRequestCheck:
    """One check of a pull request's head."""

    id: str
    """Different for each run of the check."""
    name: str
    state: str
    """`queued running success failure flaky cancelled timed_out skipped`."""
    url: str | None = None
    summary: str = ""
    job: str | None = None
    """The id of the job, for `SCM.log`."""
    log: str = ""
    """The local file that its output was written to."""

    def __post_init__(self) -> None:
        _clean_fields(self, lines="name url", texts="summary")


@record
class PullRequestReview:
    """A review of a pull request."""

    id: str
    verdict: str
    """`approved`, `changes_requested` or `commented`."""
    author: Author
    body: str
    head: str
    at: float

    def __post_init__(self) -> None:
        _clean_fields(self, texts="body")


@record
class PullRequestComment:
    """A comment on a line, or on the whole pull request."""

    id: str
    body: str
    author: Author
    at: float
    path: str | None = None
    line: int | None = None
    thread: str | None = None
    """The discussion that it belongs to, as `SCM.reply` and `SCM.resolve` name it."""
    review: str | None = None
    head: str = ""
    resolved: bool = False
    mark: str = ""
    """The key with which we wrote the comment."""

    def __post_init__(self) -> None:
        _clean_fields(self, texts="body")


@record
class PullRequestState:
    """The state of a pull request."""

    number: int
    id: str
    """A permanent id, which does not change if the repository is renamed."""
    url: str
    title: str
    state: str
    """`open`, `merged` or `closed`."""
    draft: bool
    branch: str
    head: str
    base: str
    base_head: str
    mergeable: str = "unknown"
    """`yes`, `no` (it conflicts) or `unknown`."""
    blocked: str = ""
    """What the forge requires before it may be merged; empty if nothing is known."""
    checks: tuple[PullRequestCheck, ...] = ()
    checks_expected: bool | None = None
    """Whether checks will run: False if none are configured, None if that is not known."""
    reviews: tuple[PullRequestReview, ...] = ()
    comments: tuple[PullRequestComment, ...] = ()
    labels: tuple[str, ...] = ()
    queued: bool = False
    """Whether it is in the forge's own merge queue, or the forge merges it automatically once its requirements are met."""
    merged_as: str | None = None
    """The commit on the base branch that it was merged as."""
    fork: str = ""
    """The repository that its branch is in, if that is another one."""
    unread: tuple[str, ...] = ()
    """Which of `checks`, `reviews`, `comments`, `labels` could not be read this time: their earlier values stay valid."""

    def __post_init__(self) -> None:
        _clean_fields(self, lines="title url blocked")


@record
class PullRequestSpec:
    """The pull request to open for a branch."""

    branch: str
    base: str
    title: str
    body: str
    draft: bool = True
    session: str = ""
    """The session whose work it is."""


@record
class MergeOptions:
    """How a pull request is to be merged."""

    head: str
    """The exact commit to merge."""
    strategy: str
    title: str
    body: str = ""
    delete_branch: bool = True


@record
class Merged:
    """The pull request was merged."""

    commit: str


@record
class MergeQueued:
    """The pull request is in the forge's own queue, which merges it later."""

    reason: str


@record
class Unmergeable:
    """The pull request cannot be merged in its current state."""

    reason: str
    moved: bool = False
    """Its head is another commit than the one to merge."""


@record
class Hint:
    """What a webhook or poll says may have changed, and should be read."""

    repo: str
    """The repository, as `SCM.repo` names it."""
    pulls: tuple[int, ...] = ()
    heads: tuple[str, ...] = ()
    """Commits whose checks may have changed."""
    branches: tuple[str, ...] = ()
    """Branches whose head moved."""
    issues: tuple[str, ...] = ()


@record
class KnownPullRequest:
    """What is already known of a pull request, as the input of a poll."""

    number: int
    id: str
    head: str
    settled: bool
    """Whether all its checks have ended."""
    read_at: float


@record
class BaseChecks:
    """The state of a base branch, by its newest commit for which checks ran."""

    head: str
    state: Literal["green", "red", "running"]
    failing: tuple[str, ...] = ()
    """The names of the failed checks."""


@record
class MissingPermission:
    """Something that a token does not allow."""

    what: str
    """`the token from GITHUB_TOKEN lacks the scope workflow`."""
    purpose: str = ""
    """What it is needed for: `to push changes of .github/workflows`."""
    remedy: str = ""
    vital: bool = False
    """Whether nothing works without it."""

    def __str__(self) -> str:
        return f"{self.what}, needed {self.purpose}" if self.purpose else self.what


@record
class Access:
    """The account at a forge or tracker, and what its token allows."""

    author: Author
    evidence: str = ""
    """The token's scopes, or how else its permissions were found out."""
    lacks: tuple[MissingPermission, ...] = ()
    until: float | None = None
    """When the token expires, if known."""


class SCM(ABC):
    """Where pull requests, checks and reviews live; one instance for each repository.

    Inherit from it: what is not abstract here then has a default.
    """

    hosted: ClassVar[bool] = True
    """Whether pull requests are at a service, which has its own state, runs the checks and merges.

    A class that says False keeps them in the daemon's log, by the `records` of its configuration; the daemon runs the
    checks and merges.
    """

    @property
    @abstractmethod
    def repo(self) -> str:
        """The repository's name at the forge: `owner/name`."""

    @abstractmethod
    async def configured(self) -> bool:
        """Return whether there is a token for it, without network access."""

    @abstractmethod
    async def login(self) -> Author:
        """Return the account that the token belongs to. Raises `Denied` with what is wrong with the token."""

    @abstractmethod
    def push_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL that branches are pushed to, and the environment that lets Git do so without prompting."""

    @abstractmethod
    def fetch_url(self) -> tuple[str, Mapping[str, str]]:
        """Return the URL that base branches are fetched from, and its environment."""

    @abstractmethod
    async def find(self, branch: str) -> PullRequestState | None:
        """Return the open pull request of a branch, else its newest one."""

    @abstractmethod
    async def get(self, number: int) -> PullRequestState:
        """Return a pull request by its number."""

    @abstractmethod
    async def open(self, spec: PullRequestSpec) -> PullRequestState:
        """Open a pull request for a branch; if it has one already, that one is returned, and no second one opened."""

    @abstractmethod
    async def read(self, ids: Sequence[str]) -> list[PullRequestState]:
        """Return pull requests with all their checks, reviews and comments, in as few requests as possible; deleted ones are left out."""

    @abstractmethod
    async def changed(self, pulls: Sequence[KnownPullRequest]) -> Hint:
        """Return what may have changed since the last call, by conditional requests that cost nothing while nothing has changed."""

    @abstractmethod
    async def ready(self, pull: PullRequestState) -> None:
        """Mark a draft as ready for review."""

    @abstractmethod
    async def close(self, pull: PullRequestState) -> None:
        """Close without merging."""

    @abstractmethod
    async def merge(self, pull: PullRequestState, how: MergeOptions) -> Merged | MergeQueued | Unmergeable:
        """Merge it, or add it to the forge's own merge queue."""

    @abstractmethod
    async def cancel_merge(self, pull: PullRequestState) -> None:
        """Remove it from the forge's own merge queue, so that it is not merged automatically. No effect if it is not queued."""

    @abstractmethod
    async def comment(self, pull: PullRequestState, text: str, key: str) -> str:
        """Comment on the whole pull request, once per key; returns the comment's id."""

    @abstractmethod
    async def reply(self, pull: PullRequestState, thread: str, text: str, key: str) -> str:
        """Reply in a discussion, once per key; returns the comment's id."""

    @abstractmethod
    async def resolve(self, thread: str) -> None:
        """Mark a discussion as resolved."""

    @abstractmethod
    async def request_review(self, pull: PullRequestState, people: Sequence[str]) -> None:
        """Request a review from people."""

    @abstractmethod
    async def rerun(self, pull: PullRequestState) -> int:
        """Run the failed checks of its head again; returns how many."""

    @abstractmethod
    async def log(self, job: str, most: int) -> bytes:
        """Return at most so many bytes from the end of a check's output."""

    def bases(self) -> Mapping[str, BaseChecks]:
        """Return the state of base branches, by name, as of the last poll, without network access; empty if polls do not report it."""
        return {}

    async def access(self) -> Access | None:
        """Return what the host says the token allows, or None if it cannot say. Raises `Denied` if the token is not accepted at all."""
        return None

    def pause(self) -> float:
        """Return the seconds that background reading should wait now, because the host limits the number of requests."""
        return 0.0

    def budget(self) -> Sequence[str]:
        """Return what is left of the host's request limits, one line per kind of request, for people."""
        return ()


@record
class TrackerComment:
    """A comment on an issue."""

    id: str
    author: Author
    body: str
    at: float

    def __post_init__(self) -> None:
        _clean_fields(self, texts="body")


@record
class TrackerIssue:
    """An issue of a tracker."""

    id: str
    """As people name it: `123`, `LIN-3`."""
    title: str
    body: str = ""
    url: str | None = None
    state: str = "open"
    """`open` or `closed`."""
    labels: tuple[str, ...] = ()
    assignee: str | None = None
    author: Author = Author("")
    comments: tuple[TrackerComment, ...] = ()
    attachments: tuple[str, ...] = ()
    """URLs."""
    branch: str | None = None
    """The branch that the tracker suggests."""
    updated_at: float = 0.0

    def __post_init__(self) -> None:
        _clean_fields(self, lines="title url assignee", texts="body")


@record
class IssueChange:
    """What to change in an issue; None: leave as it is."""

    state: str | None = None
    """`open`, `in_progress`, `in_review` or `closed`; the tracker translates them to its own states."""
    assignee: str | None = None
    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    title: str | None = None
    body: str | None = None


class Tracker(ABC):
    """Where issues live.

    Inherit from it: what is not abstract here then has a default.
    """

    hosted: ClassVar[bool] = True
    """Whether issues are at a service. A class that says False keeps them in the daemon's log, by the `records` of its
    configuration: the daemon need not read it, nor report to it."""

    @abstractmethod
    async def get(self, issue: str) -> TrackerIssue:
        """Read one issue with its comments. Raises `NotFound`."""

    @abstractmethod
    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[TrackerIssue]:
        """Return issues without their comments, the newest first; `assignee`: `none`, or a name."""

    @abstractmethod
    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> TrackerIssue:
        """Create an issue."""

    @abstractmethod
    async def change(self, issue: str, change: IssueChange) -> None:
        """Change an issue; what has the right value already stays."""

    @abstractmethod
    async def comment(self, issue: str, text: str, key: str) -> str:
        """Comment on an issue, once per key; returns the comment's id."""

    async def access(self) -> Access | None:
        """Return what the host says the token allows, or None if it cannot say. Raises `Denied` if the token is not accepted at all."""
        return None

    def pause(self) -> float:
        """Return the seconds that background reading should wait now, because the host limits the number of requests."""
        return 0.0

    def budget(self) -> Sequence[str]:
        """Return what is left of the host's request limits, one line per kind of request, for people."""
        return ()


@record
class WebhookDelivery:
    """A webhook request whose signature was verified."""

    id: str
    """The sender's own id of it: the same one again is a repetition."""
    kind: str
    """`pull_request`, `Merge Request Hook`, `TrackerIssue` …"""
    payload: Mapping[str, object] = field(default_factory=dict)
    at: float | None = None
    """When it was sent, if it says so."""


@runtime_checkable
class Hooks(Protocol):
    """A forge or tracker that sends webhooks."""

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """Return the delivery if one of the secrets signed it, else None. Raises `UsageError` if the request is not a delivery at all."""
        ...

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """Return what should be read because of a delivery, or None if nothing."""
        ...
