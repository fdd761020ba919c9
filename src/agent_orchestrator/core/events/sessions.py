"""Events of tasks and sessions: their creation, start, stop and restoration."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record
from agent_orchestrator.protocols.text import clean_text


@record
class TaskCreated(Body):
    """Something is wanted."""

    task: str
    title: str
    description: str = ""
    issue: str | None = None
    labels: tuple[str, ...] = ()
    priority: int = 0
    after: tuple[str, ...] = ()
    """Tasks that must be done before."""


@record
class SessionCreated(Body):
    """One attempt at a task is to be made."""

    task: str
    name: str
    title: str
    prompt: str
    agent: str
    runtime: str
    workspace: str
    branch: str
    base: str
    repo: str
    """The checkout that the workspace is made from."""
    path: str
    """Where the workspace is to be."""
    link: str | None = None
    kind: str = "worker"
    profile: str | None = None
    issue: str | None = None
    node: str | None = None
    model: str | None = None
    rules: str = ""
    """The project's and the profile's standing rules, for the prompt or the system prompt."""
    conversation: str | None = None
    """A conversation of the agent's, begun by hand, that the first launch continues."""
    existing: bool = False
    defer: bool = False
    """The agent starts at its first message."""
    after: tuple[str, ...] = ()
    """Sessions that must be done before."""
    priority: int = 0
    ports: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    reviews: str | None = None
    """The session whose change it is to review."""
    spawned: tuple[str, ...] = ()
    """The rules that led to it, the first one first; nothing: a person's wish."""
    parent: str | None = None
    """The session that a rule made it for."""
    stack: str | None = None
    """The session whose branch it starts on, and which is to be merged before it."""
    scm: str = "local"
    """Where its pull request is to be."""
    tracker: str = "local"
    """Where its issue is."""
    forge_hosted: bool | None = None
    """Its pull request is at a service; if not, it is kept here. None: recorded before this was (`core.pull_request.is_hosted`)."""
    tracker_hosted: bool | None = None
    """Its issue is at a service; if not, it is kept here."""
    home: str = ""
    """The home it lives in, where several have one database."""
    files: tuple[str, ...] = ()
    """Files that the planner expects it to change; glob patterns too."""
    group: str = ""
    """Sessions that belong together (a plan, a fix, one program's); at most `group_limit` of them work at once."""
    group_limit: int = 0
    account: str = ""
    """Whose usage limits it shares; nothing: the agent's own login."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", clean_text(self.prompt))
        object.__setattr__(self, "title", " ".join(clean_text(self.title).split()))


@record
class SessionReassigned(Body):
    """Another agent is to do it, before the one that it was made with was started."""

    agent: str
    runtime: str
    title: str
    profile: str | None = None
    model: str | None = None
    rules: str = ""
    account: str = ""


@record
class SessionAdmitted(Body):
    """There is room: it may start."""


@record
class SessionWaiting(Body):
    """It may not start yet; `reason` says what for."""

    reason: str
    turn: bool = False
    """All that it waits for is its turn."""


@record
class SessionFailed(Body):
    """A step could not be done; a person must look."""

    step: str
    error: str
    remedy: str = ""


@record
class StopRequested(Body):
    """A person wants the session to end; `keep` leaves its workspace."""

    keep: bool = False


@record
class SessionStopped(Body):
    """Its agent has ended, its work is safe. `saved` names where everything is; `kept`: the workspace is still there."""

    saved: tuple[str, ...] = ()
    kept: bool = False


@record
class RestoreRequested(Body):
    """The session is to be brought back: same branch, same work, same conversation."""


@record
class StartPutOff(Body):
    """What was let start may not start yet after all; it waits for its place again."""

    reason: str
