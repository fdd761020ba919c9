"""The state of the test forge as plain records: people, projects, issues, merge requests, discussions, pipelines, hooks."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Log = str | bytes | Path | Callable[[], Iterator[bytes]]
DRAFT = re.compile(r"\s*(?:\[draft\]|\(draft\)|draft:)\s*", re.IGNORECASE)
LEVELS = {
    "guest": 10,
    "reporter": 20,
    "read": 20,
    "developer": 30,
    "write": 30,
    "maintainer": 40,
    "admin": 40,
    "owner": 50,
}


@dataclass(eq=False)
class GitLabRecord:
    id: int
    created_at: str
    updated_at: str


@dataclass(eq=False)
class GitLabUser(GitLabRecord):
    login: str
    name: str = ""
    bot: bool = False
    used: int = 0
    reset: float = 0.0
    limit: int = 2000
    """Requests per minute, as on gitlab.com."""
    frozen: bool = False


@dataclass
class GitLabToken:
    value: str
    user: GitLabUser
    scopes: tuple[str, ...]
    expired: bool = False
    ends: str | None = None


@dataclass(eq=False)
class GitLabLabel(GitLabRecord):
    name: str
    color: str = "#ededed"


@dataclass(eq=False)
class Note(GitLabRecord):
    author: GitLabUser
    body: str
    system: bool = False
    position: dict[str, Any] | None = None
    resolvable: bool = False
    resolved: bool = False
    resolved_by: GitLabUser | None = None
    resolved_at: str | None = None


@dataclass(eq=False)
class Discussion:
    id: str
    on: GitLabIssue
    comments: list[Note] = field(default_factory=list)
    individual: bool = True
    """Whether it is a single note without replies."""

    @property
    def resolved(self) -> bool:
        resolvable_notes = [note for note in self.comments if note.resolvable]
        return bool(resolvable_notes) and all(note.resolved for note in resolvable_notes)


@dataclass(eq=False)
class GitLabIssue(GitLabRecord):
    project: GitLabProject
    iid: int
    author: GitLabUser
    title: str
    body: str | None = None
    state: str = "opened"
    labels: list[str] = field(default_factory=list)
    assignees: list[GitLabUser] = field(default_factory=list)
    discussions: list[Discussion] = field(default_factory=list)
    closed_at: str | None = None
    closed_by: GitLabUser | None = None
    confidential: bool = False

    @property
    def number(self) -> int:
        return self.iid

    @property
    def notes(self) -> list[Note]:
        notes = [note for discussion in self.discussions for note in discussion.comments]
        return sorted(notes, key=lambda note: note.id)


@dataclass(eq=False)
class GitLabMergeRequest(GitLabIssue):
    source: GitLabProject | None = None
    branch: str = ""
    base: str = ""
    head_sha: str = ""
    base_sha: str = ""
    """The merge base of the branch and its base."""
    reviewers: dict[str, str] = field(default_factory=dict)
    """Login → unreviewed, reviewed, requested_changes, approved or unapproved."""
    approvals: dict[str, str] = field(default_factory=dict)
    """Login → time of the approval."""
    head_pipeline: GitLabPipeline | None = None
    auto_merge: dict[str, Any] | None = None
    auto_merge_by: GitLabUser | None = None
    train: Train | None = None
    merged_at: str | None = None
    merged_by: GitLabUser | None = None
    merge_commit: str | None = None
    squash_commit: str | None = None
    squash: bool = False
    remove_branch: bool = False
    unknown_left: int = 0
    merge_error: str | None = None

    @property
    def draft(self) -> bool:
        return bool(DRAFT.match(self.title))

    @property
    def merged(self) -> bool:
        return self.state == "merged"

    @property
    def threads(self) -> list[Discussion]:
        return [discussion for discussion in self.discussions if not discussion.individual]


@dataclass(eq=False)
class Train(GitLabRecord):
    merge_request: GitLabMergeRequest
    user: GitLabUser
    sha: str = ""
    """The merge commit on the base and all earlier entries of the train."""
    base_sha: str = ""
    squash: bool = False
    pipeline: GitLabPipeline | None = None
    status: str = "fresh"


@dataclass(eq=False)
class GitLabJob(GitLabRecord):
    pipeline: GitLabPipeline
    name: str
    status: str
    stage: str = "test"
    allow_failure: bool = False
    log: Log | None = None
    failure_reason: str | None = None
    external: bool = False
    """Whether it is an external commit status instead of a job."""
    target_url: str | None = None
    description: str | None = None
    retried: bool = False
    started_at: str | None = None
    finished_at: str | None = None


@dataclass(eq=False)
class GitLabPipeline(GitLabRecord):
    project: GitLabProject
    iid: int
    sha: str
    ref: str
    user: GitLabUser
    source: str = "push"
    jobs: list[GitLabJob] = field(default_factory=list)
    status: str = "created"
    yaml_errors: str | None = None
    merge_request: GitLabMergeRequest | None = None
    finished_at: str | None = None


@dataclass(eq=False)
class GitLabWebhook(GitLabRecord):
    project: GitLabProject
    url: str
    secret: str
    events: tuple[str, ...]
    """`*`, or names as in `merge_requests_events`."""
    uuid: str


@dataclass(eq=False)
class GitLabDelivery:
    guid: str
    key: str
    hook: GitLabWebhook
    event: str
    payload: dict[str, Any]
    status_code: int = 0
    delivered_at: str = ""


@dataclass(eq=False)
class GitLabProject(GitLabRecord):
    full_name: str
    path: Path
    creator: GitLabUser
    private: bool = False
    default_branch: str = "main"
    parent: GitLabProject | None = None
    people: dict[str, int] = field(default_factory=dict)
    issues: dict[int, GitLabIssue] = field(default_factory=dict)
    merge_requests: dict[int, GitLabMergeRequest] = field(default_factory=dict)
    pipelines: dict[int, GitLabPipeline] = field(default_factory=dict)
    labels: dict[str, GitLabLabel] = field(default_factory=dict)
    hooks: dict[int, GitLabWebhook] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    protected: list[str] = field(default_factory=list)
    merge_method: str = "merge"
    squash_option: str = "default_off"
    pipeline_must_succeed: bool = False
    discussions_must_be_resolved: bool = False
    approvals_required: int = 0
    reset_approvals_on_push: bool = False
    merge_trains: bool = False
    jobs_enabled: bool = True
    ci: Callable[[GitLabProject, str], None] | None = None

    @property
    def name(self) -> str:
        return self.full_name.rpartition("/")[2]

    @property
    def namespace(self) -> str:
        return self.full_name.rpartition("/")[0]

    def head(self, branch: str) -> str | None:
        return self.refs.get(f"refs/heads/{branch}")


class GitLabRefused(Exception):
    """The forge refuses a request, with an HTTP status and a body."""

    def __init__(self, status: int, message: Any, **fields: Any) -> None:
        super().__init__(str(message))
        self.status = status
        self.body = {"message": message, **fields} if message is not None else fields


class GitLabState:
    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        self.root = root
        self.clock = clock
        self.lock = threading.RLock()
        self.url = ""
        self.users: dict[str, GitLabUser] = {}
        self.tokens: dict[str, GitLabToken] = {}
        self.projects: dict[str, GitLabProject] = {}
        self.renamed_projects: dict[str, GitLabProject] = {}
        self.errors: list[Exception] = []
        """Exceptions inside the test server."""
        self.unknown_first = 0
        """How many reads of mergeability return unknown after each change."""
        self._last_id = 1000

    def now(self) -> str:
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def record_fields(self) -> dict[str, Any]:
        now = self.now()
        return {"id": self.next_id(), "created_at": now, "updated_at": now}

    def touch(self, record: GitLabRecord) -> None:
        record.updated_at = self.now()

    def project(self, name: str) -> GitLabProject:
        return self.projects[name.lower()]
