"""The slots SCM and Tracker: pull requests and issues, and what is exchanged with the places where they live.

A plugin never reports what changed, it reports the state: `SCM.read` returns whole pull requests, and
`changes/forge_sync/pull_request_events.py` finds out what is new. So it does not matter whether a webhook came late, twice, out of order
or not at all: each is only a `Hint` that something is worth reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, Protocol, runtime_checkable

from agent_orchestrator.protocols.records import record
from agent_orchestrator.protocols.text import clean_text, one_line

LONGEST_TEXT = 200_000
"""Characters of one text from a forge that are kept: who writes there may be anybody."""


def _text(said: str) -> str:
    text = clean_text(said)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT].rstrip()}\n\n… (cut)"


def _as_text(told: object, lines: str = "", texts: str = "") -> None:
    """What a forge tells is written by others: it is kept as plain text, whichever plugin it comes through."""
    for names, plain in ((lines, one_line), (texts, _text)):
        for name in names.split():
            if value := getattr(told, name):
                object.__setattr__(told, name, plain(value))
    if (url := getattr(told, "url", None)) and not url.startswith(("https://", "http://")):
        object.__setattr__(told, "url", "" if isinstance(told, PullState) else None)
    for name in ("labels", "attachments"):
        if some := getattr(told, name, ()):
            object.__setattr__(told, name, tuple(one_line(one) for one in some))


@record
class Author:
    """Who said something."""

    name: str
    kind: str = "person"
    """`person`, `bot`, or `agent`: ourselves, with the daemon's own login and mark."""
    write_access: str = "unknown"
    """May he write to the repository: `yes`, `no` or `unknown`."""

    def __post_init__(self) -> None:
        _as_text(self, lines="name")


@record
class PullCheck:
    """One check of a pull request's head."""

    id: str
    """Another one for each time that it is run."""
    name: str
    state: str
    """`queued running success failure flaky cancelled timed_out skipped`."""
    url: str | None = None
    summary: str = ""
    job: str | None = None
    """What `SCM.log` wants to know."""
    log: str = ""
    """The file that its output was written to, here."""

    def __post_init__(self) -> None:
        _as_text(self, lines="name url", texts="summary")


@record
class PullReview:
    """Somebody's judgement."""

    id: str
    verdict: str
    """`approved`, `changes_requested` or `commented`."""
    author: Author
    body: str
    head: str
    at: float

    def __post_init__(self) -> None:
        _as_text(self, texts="body")


@record
class PullComment:
    """Something said: on a line, or about the whole."""

    id: str
    body: str
    author: Author
    at: float
    path: str | None = None
    line: int | None = None
    thread: str | None = None
    """The discussion that it belongs to, by the name that `SCM.reply` and `SCM.resolve` know."""
    review: str | None = None
    head: str = ""
    resolved: bool = False
    mark: str = ""
    """The key that we said it with."""

    def __post_init__(self) -> None:
        _as_text(self, texts="body")


@record
class PullState:
    """A pull request as it is."""

    number: int
    id: str
    """Its name for good, whatever becomes of the repository's."""
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
    """What the forge demands before it may land; nothing: nothing that is known."""
    checks: tuple[PullCheck, ...] = ()
    checks_expected: bool | None = None
    """Will there be checks: none are configured (`False`), or that is not known."""
    reviews: tuple[PullReview, ...] = ()
    comments: tuple[PullComment, ...] = ()
    labels: tuple[str, ...] = ()
    queued: bool = False
    """It is in the forge's own merge queue, or lands by itself when it is good."""
    merged_as: str | None = None
    """The commit that it landed as."""
    fork: str = ""
    """The repository that its branch is in, where that is another one."""
    unread: tuple[str, ...] = ()
    """What could not be read this time, of `checks`, `reviews`, `comments`, `labels`: what was known of it stays."""

    def __post_init__(self) -> None:
        _as_text(self, lines="title url blocked")


@record
class PullSpec:
    """The pull request that a branch is to have."""

    branch: str
    base: str
    title: str
    body: str
    draft: bool = True


@record
class Merging:
    """How a pull request is to land."""

    head: str
    """The exact commit that may."""
    strategy: str
    title: str
    body: str = ""
    delete_branch: bool = True


@record
class Merged:
    """It has landed."""

    commit: str


@record
class Waiting:
    """The forge lands it itself when its turn has come."""

    reason: str


@record
class Unmergeable:
    """It cannot land as it is."""

    reason: str
    moved: bool = False
    """Its head is another commit than the one that may land."""


@record
class Hint:
    """Something is worth reading: a webhook or a poll says so."""

    repo: str
    """As `SCM.repo` names it."""
    pulls: tuple[int, ...] = ()
    heads: tuple[str, ...] = ()
    """Commits whose checks may have changed."""
    branches: tuple[str, ...] = ()
    """Branches that moved."""
    issues: tuple[str, ...] = ()


@record
class Known:
    """What is already known of a pull request, for a poll."""

    number: int
    id: str
    head: str
    settled: bool
    """Its checks have all ended."""
    read_at: float


@runtime_checkable
class SCM(Protocol):
    """Where pull requests, checks and reviews live; one instance for each repository."""

    @property
    def repo(self) -> str:
        """The repository's name there: `owner/name`."""
        ...

    async def configured(self) -> bool:
        """Is there a token for it? Asks nobody outside this machine."""
        ...

    async def login(self) -> Author:
        """Who we are there. Raises `Denied` with what is wrong with the token."""
        ...

    def push_url(self) -> tuple[str, Mapping[str, str]]:
        """Where branches are pushed to, and the environment that lets Git do so without asking."""
        ...

    def fetch_url(self) -> tuple[str, Mapping[str, str]]:
        """Where bases are fetched from, likewise."""
        ...

    async def find(self, branch: str) -> PullState | None:
        """The open pull request of a branch, else its newest one."""
        ...

    async def get(self, number: int) -> PullState:
        """A pull request by its number."""
        ...

    async def open(self, spec: PullSpec) -> PullState:
        """Give a branch a pull request; one that it has already is found, not made twice."""
        ...

    async def read(self, ids: Sequence[str]) -> list[PullState]:
        """Pull requests with all their pages, in as few requests as can be; those that are gone are left out."""
        ...

    async def changed(self, known: Sequence[Known]) -> Hint:
        """What may have changed since the last call, by conditional requests that cost nothing while nothing has."""
        ...

    async def ready(self, pull: PullState) -> None:
        """No draft any more."""
        ...

    async def close(self, pull: PullState) -> None:
        """Close without landing."""
        ...

    async def merge(self, pull: PullState, how: Merging) -> Merged | Waiting | Unmergeable:
        """Land, or give it to the forge's own queue."""
        ...

    async def call_off(self, pull: PullState) -> None:
        """Take it out of the forge's own queue: it lands by itself no more. What does not wait stays as it is."""
        ...

    async def comment(self, pull: PullState, text: str, key: str) -> str:
        """Say something about the whole, once for a key; returns the comment's id."""
        ...

    async def reply(self, pull: PullState, thread: str, text: str, key: str) -> str:
        """Answer in a discussion, once for a key; returns the comment's id."""
        ...

    async def resolve(self, thread: str) -> None:
        """A discussion is settled."""
        ...

    async def request_review(self, pull: PullState, people: Sequence[str]) -> None:
        """Ask people to look at it."""
        ...

    async def rerun(self, pull: PullState) -> int:
        """Run the failed checks of its head again; returns how many."""
        ...

    async def log(self, job: str, most: int) -> bytes:
        """What a check printed: at most so many bytes from its end."""
        ...


@record
class BaseChecks:
    """How a branch is that changes land on, by its newest commit that was checked there."""

    head: str
    state: Literal["green", "red", "running"]
    failing: tuple[str, ...] = ()
    """The checks that fail."""


@runtime_checkable
class KnowsBases(Protocol):
    """An SCM whose polls tell how the bases are."""

    def bases(self) -> Mapping[str, BaseChecks]:
        """Branch → how it was at the last poll. Asks nobody."""
        ...


@runtime_checkable
class Metered(Protocol):
    """An SCM or tracker whose host grants only so many requests."""

    def pause(self) -> float:
        """Seconds that reading which nobody waits for should wait just now."""
        ...

    def budget(self) -> Sequence[str]:
        """What is left, a line for each kind of request, for people."""
        ...


@record
class Lack:
    """Something that a token may not do."""

    what: str
    """`the token from GITHUB_TOKEN lacks the scope workflow`."""
    purpose: str = ""
    """What we need it for: `to push changes of .github/workflows`."""
    remedy: str = ""
    vital: bool = False
    """Nothing goes without it."""

    def __str__(self) -> str:
        return f"{self.what}, needed {self.purpose}" if self.purpose else self.what


@record
class Access:
    """Who we are at a forge or tracker, and what the token lets us do there."""

    author: Author
    told: str = ""
    """The token's scopes, or how else it was found out what it may do."""
    lacks: tuple[Lack, ...] = ()
    until: float | None = None
    """When the token ends, where that is known."""


@runtime_checkable
class SignedIn(Protocol):
    """An SCM or tracker that can tell what its token lets us do."""

    async def access(self) -> Access:
        """Ask. Raises `Denied` where the token is not accepted at all."""
        ...


@record
class TrackerComment:
    """Something said about an issue."""

    id: str
    author: Author
    body: str
    at: float

    def __post_init__(self) -> None:
        _as_text(self, texts="body")


@record
class Issue:
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
    """Addresses."""
    branch: str | None = None
    """The branch that the tracker suggests."""
    updated_at: float = 0.0

    def __post_init__(self) -> None:
        _as_text(self, lines="title url assignee", texts="body")


@record
class IssueChange:
    """What is to be changed of an issue; none: stays."""

    state: str | None = None
    """`open`, `in_progress`, `in_review` or `closed`, in the tracker's own words for them."""
    assignee: str | None = None
    add_labels: tuple[str, ...] = ()
    remove_labels: tuple[str, ...] = ()
    title: str | None = None
    body: str | None = None


@runtime_checkable
class Tracker(Protocol):
    """Where issues live."""

    async def get(self, issue: str) -> Issue:
        """Read one issue with its comments. Raises `NotFound`."""
        ...

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[Issue]:
        """Issues without their comments, the newest first; `assignee`: `none`, or a name."""
        ...

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> Issue:
        """Make an issue."""
        ...

    async def change(self, issue: str, change: IssueChange) -> None:
        """Change an issue; what is so already stays."""
        ...

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Say something, once for a key; returns the comment's id."""
        ...


@record
class WebhookDelivery:
    """A webhook's request that was found genuine."""

    id: str
    """The sender's own name for it: the same one again is a repetition."""
    kind: str
    """`pull_request`, `Merge Request Hook`, `Issue` …"""
    payload: Mapping[str, object] = field(default_factory=dict)
    at: float | None = None
    """When it was sent, where it says so."""


@runtime_checkable
class Hooks(Protocol):
    """A forge or tracker that tells by webhook."""

    def genuine(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """The delivery, if one of the secrets signed it. Raises `UsageError` for what is no delivery at all."""
        ...

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """What is worth reading because of it; none: nothing."""
        ...
