"""The state of the test forge as plain records: people, repositories, issues, pull requests, reviews, checks, hooks."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

RecordType = TypeVar("RecordType", bound="GitHubRecord")
Log = str | bytes | Path | Callable[[], Iterator[bytes]]


@dataclass(eq=False)
class GitHubRecord:
    """The common fields: a number, a permanent node id, and times."""

    id: int
    node_id: str
    created_at: str
    updated_at: str


@dataclass(eq=False)
class GitHubUser(GitHubRecord):
    login: str
    kind: str = "User"
    """User, Bot or Organization."""
    name: str = ""
    members: set[str] = field(default_factory=set)
    """The members of an organization."""
    limits: dict[str, GitHubRateLimit] = field(default_factory=dict)
    """The hourly rate limits, shared by all tokens of a person."""

    @property
    def graphql_login(self) -> str:
        return self.login.removesuffix("[bot]")


@dataclass
class GitHubToken:
    value: str
    user: GitHubUser
    scopes: tuple[str, ...]
    expired: bool = False
    permissions: frozenset[str] | None = None
    """The permissions of a fine-grained token, which has no scopes."""
    ends: str = ""
    """When it expires, as `2026-12-15 03:09:32 UTC`, or ""."""

    @property
    def limits(self) -> dict[str, GitHubRateLimit]:
        return self.user.limits


@dataclass
class GitHubRateLimit:
    """An hourly rate limit of one kind (core, graphql)."""

    limit: int = 5000
    used: int = 0
    reset: float = 0.0
    frozen: bool = False
    """Set by a test: it is never renewed."""

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)


@dataclass(eq=False)
class GitHubLabel(GitHubRecord):
    name: str
    color: str = "ededed"
    description: str | None = None


@dataclass
class Protection:
    """What a branch requires before a merge."""

    checks: tuple[str, ...] = ()
    strict: bool = False
    approvals: int = 0
    merge_queue: bool = False
    resolved: bool = False
    """Whether every conversation must be resolved."""


@dataclass(eq=False)
class GitHubComment(GitHubRecord):
    issue: GitHubIssue
    user: GitHubUser
    body: str
    association: str | None = None
    minimized: bool = False


@dataclass(eq=False)
class GitHubReview(GitHubRecord):
    pull: GitHubPullRequest
    user: GitHubUser
    body: str
    state: str
    """PENDING, COMMENTED, APPROVED, CHANGES_REQUESTED or DISMISSED."""
    commit_id: str
    submitted_at: str | None
    association: str | None = None
    minimized: bool = False


@dataclass(eq=False)
class ReviewComment(GitHubRecord):
    thread: GitHubThread
    review: GitHubReview
    user: GitHubUser
    body: str
    commit_id: str
    reply_to: ReviewComment | None = None
    association: str | None = None
    minimized: bool = False


@dataclass(eq=False)
class GitHubThread(GitHubRecord):
    pull: GitHubPullRequest
    path: str
    line: int | None
    original_line: int
    side: str
    original_commit: str
    hunk: str
    start_line: int | None = None
    whole_file: bool = False
    comments: list[ReviewComment] = field(default_factory=list)
    resolved_by: GitHubUser | None = None
    outdated: bool = False


@dataclass(eq=False)
class GitHubIssue(GitHubRecord):
    repo: Repo
    number: int
    user: GitHubUser
    title: str
    body: str | None
    state: str = "open"
    state_reason: str | None = None
    closed_at: str | None = None
    closed_by: GitHubUser | None = None
    labels: list[GitHubLabel] = field(default_factory=list)
    assignees: list[GitHubUser] = field(default_factory=list)
    comments: list[GitHubComment] = field(default_factory=list)
    association: str | None = None


@dataclass
class AutoMerge:
    by: GitHubUser
    method: str
    title: str | None
    message: str | None
    at: str


@dataclass(eq=False)
class QueueEntry(GitHubRecord):
    pull: GitHubPullRequest
    by: GitHubUser
    queued_head: str
    """The head of the pull request when it was queued."""
    head_sha: str = ""
    base_sha: str = ""
    ref: str = ""
    state: str = "QUEUED"


@dataclass(eq=False)
class GitHubPullRequest(GitHubIssue):
    head_repo: Repo | None = None
    head_ref: str = ""
    head_sha: str = ""
    base_ref: str = ""
    base_sha: str = ""
    draft: bool = False
    head_deleted: bool = False
    merged_at: str | None = None
    merged_by: GitHubUser | None = None
    merge_commit: str | None = None
    auto_merge: AutoMerge | None = None
    queue: QueueEntry | None = None
    reviews: list[GitHubReview] = field(default_factory=list)
    threads: list[GitHubThread] = field(default_factory=list)
    requested: list[GitHubUser] = field(default_factory=list)
    unknown_left: int = 0
    """How many more reads of mergeability return unknown."""

    @property
    def merged(self) -> bool:
        return self.merged_at is not None


@dataclass(eq=False)
class CheckSuite(GitHubRecord):
    repo: Repo
    head_sha: str
    branch: str | None
    app: str
    runs: list[GitHubCheckRun] = field(default_factory=list)
    workflow: WorkflowRun | None = None
    announced: str | None = None


@dataclass(eq=False)
class GitHubCheckRun(GitHubRecord):
    suite: CheckSuite
    name: str
    status: str
    conclusion: str | None
    started_at: str
    completed_at: str | None
    title: str | None = None
    summary: str | None = None
    text: str | None = None
    details_url: str | None = None
    annotations: list[dict[str, Any]] = field(default_factory=list)
    log: Log | None = None
    log_gone: bool = False
    attempt: int = 1
    replaced: bool = False


@dataclass(eq=False)
class WorkflowRun(GitHubRecord):
    suite: CheckSuite
    name: str
    run_number: int
    event: str
    actor: GitHubUser
    attempt: int = 1
    waits_for_approval: bool = False


@dataclass(eq=False)
class CommitStatus(GitHubRecord):
    repo: Repo
    sha: str
    context: str
    state: str
    description: str | None
    target_url: str | None
    creator: GitHubUser


@dataclass(eq=False)
class GitHubWebhook(GitHubRecord):
    repo: Repo
    url: str
    secret: str
    events: list[str]
    content_type: str = "json"
    active: bool = True
    deliveries: list[GitHubDelivery] = field(default_factory=list)


@dataclass(eq=False)
class GitHubDelivery:
    id: int
    guid: str
    hook: GitHubWebhook
    event: str
    payload: dict[str, Any]
    redelivery: bool = False
    status_code: int = 0
    delivered_at: str = ""


@dataclass(eq=False)
class Repo(GitHubRecord):
    owner: GitHubUser
    name: str
    path: Path
    private: bool = False
    default_branch: str = "main"
    parent: Repo | None = None
    description: str | None = None
    pushed_at: str = ""
    archived: bool = False
    allow_auto_merge: bool = True
    delete_branch_on_merge: bool = False
    methods: tuple[str, ...] = ("merge", "squash", "rebase")
    people: dict[str, str] = field(default_factory=dict)
    """Login -> permission: admin, write, triage or read."""
    protections: dict[str, Protection] = field(default_factory=dict)
    labels: dict[str, GitHubLabel] = field(default_factory=dict)
    issues: dict[int, GitHubIssue] = field(default_factory=dict)
    suites: list[CheckSuite] = field(default_factory=list)
    statuses: list[CommitStatus] = field(default_factory=list)
    hooks: dict[int, GitHubWebhook] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    """The refs at the last comparison; a difference is a push."""
    next_number: int = 1
    ci: Callable[[Repo, str], None] | None = None
    """The repository's CI: called with each commit that is pushed to a branch or run again."""

    @property
    def full_name(self) -> str:
        return f"{self.owner.login}/{self.name}"

    def head(self, branch: str) -> str | None:
        return self.refs.get(f"refs/heads/{branch}")

    def pulls(self) -> list[GitHubPullRequest]:
        return [issue for issue in self.issues.values() if isinstance(issue, GitHubPullRequest)]


class GitHubState:
    """All records with their indexes, under one lock."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self.users: dict[str, GitHubUser] = {}
        self.tokens: dict[str, GitHubToken] = {}
        self.repos: dict[str, Repo] = {}
        self.renamed_repos: dict[str, Repo] = {}
        """Old full name, in lower case -> the renamed repository."""
        self.nodes: dict[str, Any] = {}
        self.unknown_first = 0
        """How many reads of mergeability return UNKNOWN after each change."""
        self._last_id = 1_000_000

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def record_fields(self, prefix: str) -> dict[str, Any]:
        """Return number, node id and times of a new record."""
        self._last_id += 1
        tail = base64.urlsafe_b64encode(self._last_id.to_bytes(6, "big")).decode()
        now = self.now()
        return {"id": self._last_id, "node_id": f"{prefix}_kw{tail}", "created_at": now, "updated_at": now}

    def add_record(self, record: RecordType) -> RecordType:
        self.nodes[record.node_id] = record
        return record

    def touch(self, record: GitHubRecord) -> None:
        record.updated_at = self.now()

    def repo(self, full_name: str) -> Repo:
        return self.repos[full_name.lower()]
