"""What is known: the fold of the events, as frozen rows. `core/fold/sessions.py` folds; nothing else writes.

Three counters tell a session's attempts apart. `run` counts how often a person (or a restart of the machine) began it.
`generation` counts launches of its agent: a run may need none (it lives on) or several (messages to an agent that exited).
`launched_run` is the run that the last launch belongs to: another run than the current one means that a launch is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.fixes import Fix
from agent_orchestrator.core.plans import Plan
from agent_orchestrator.core.pull_request import Episode, Issue, PullRequest
from agent_orchestrator.protocols.records import record

CLUSTER = "ray"
"""The runtime whose sessions live on the nodes of a cluster."""

STEADY = 600.0
"""Seconds after which a launch is not to blame for the end of its machine."""
VERSION = 12
"""Raised when the meaning of a fold changes: stored facts are then folded anew from the log."""


@record
class Message:
    """One message to the agent."""

    id: str
    text: str
    sender: str
    at: float
    state: str = "queued"
    reason: str = ""
    interrupt: bool = False
    task: bool = False
    needs_word: bool = False
    """It waits for a person's word, and holds nobody else's message up."""
    delivered_at: float | None = None
    acknowledged_at: float | None = None
    launch: int = 0
    """The launch whose agent it was delivered to."""

    @property
    def pending(self) -> bool:
        """Still to be delivered."""
        return self.state in ("queued", "held")


@record
class ActivityFact:
    """What the agent does, who says so, since when."""

    state: str = "unknown"
    source: str = "daemon"
    at: float = 0.0
    detail: str = ""


@record
class Launch:
    """One run of the agent's process."""

    generation: int
    handle: Mapping[str, Any]
    at: float
    resumed: bool = False
    ended: bool = False
    stopped: bool = False
    """We ended it."""
    lost: str = ""
    """Why it is gone without its own doing."""
    cut_short: bool = False
    """It was in a turn then."""
    code: int | None = None
    signal: int | None = None
    ended_at: float | None = None
    output: str = ""
    reason: str = ""
    """Why it ended, where that is known."""
    inbox: bool = False
    """It takes its messages from its inbox file."""
    memo: Mapping[str, str] = field(default_factory=dict)
    """The agent plugin's notes on it."""


@record
class Place:
    """The session's workspace."""

    path: str
    base_commit: str
    git_dir: str
    git_env: Mapping[str, str] = field(default_factory=dict)
    present: bool = True
    shared: bool = True
    """Its commits are in the main repository as soon as they are made."""
    copied: tuple[str, ...] = ()
    """Patterns of what was copied into it, which Git does not show."""


@record
class Failure:
    """A step that could not be done."""

    step: str
    error: str
    remedy: str
    at: float


@record
class Progress:
    """How far it is, by the agent's own word."""

    done: int | None = None
    total: int | None = None
    step: str | None = None
    tests_passed: int | None = None


@record
class Usage:
    """What it took so far."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    usd: float | None = None
    forge: int = 0

    def plus(self, more: Usage) -> Usage:
        """Both together; dollars that are not known count as none."""
        usd = self.usd if more.usd is None else (self.usd or 0.0) + more.usd
        return Usage(
            self.input + more.input,
            self.output + more.output,
            self.cache_read + more.cache_read,
            self.cache_write + more.cache_write,
            usd,
            self.forge + more.forge,
        )


@record
class Asked:
    """What the agent waits for a permission to do."""

    tool: str
    command: str = ""
    reason: str = ""
    request: str = ""
    at: float = 0.0


@record
class Offer:
    """An action that a rule offers to a person."""

    id: str
    rule: str
    trigger: str
    occurrence: str
    action: str
    text: str
    attempt: int
    at: float
    event: Mapping[str, Any] = field(default_factory=dict)


@record
class Outage:
    """A forge or tracker that cannot be read."""

    project: str
    name: str
    reason: str
    remedy: str
    since: float
    called: bool = False
    """Waiting does not mend it."""


@record
class HeldNotice:
    """Something that a person is told when the quiet hours are over."""

    session: str
    title: str
    message: str
    level: str
    until: float


@record
class AccountHold:
    """An account that met its usage limit, for one model or for all."""

    account: str
    model: str
    """Empty: all models."""
    until: float
    since: float
    named: bool = True
    """The agent named the time."""
    times: int = 1
    reason: str = ""
    session: str = ""
    """Who met it last."""
    released: float | None = None
    """When it was over; who waited goes on one after the other."""

    @property
    def key(self) -> str:
        """Its name among all holds, and for people: `work`, or `work opus` where only that model is held."""
        return hold_key(self.account, self.model)


def hold_key(account: str, model: str = "") -> str:
    """The name of an account's hold."""
    return f"{account} {model}".strip()


@record
class Collision:
    """A predicted conflict with an elder session."""

    files: tuple[str, ...]
    kind: str
    at: float


@record
class Digest:
    """How far in the log a coordinating agent was told what happened: `upto`, by `message`; `before` it, up to `since`."""

    upto: int = 0
    message: str = ""
    since: int = 0
    at: float = 0.0


@record
class SessionFacts:
    """Everything known of one session."""

    id: str
    project: str
    spec: e.SessionCreated
    created_at: float
    updated_at: float
    seq: int = 0

    wanted: str = "run"
    """`run` or `stop`: the person's last word."""
    keep: bool = False
    run: int = 1
    """Counts how often it was begun: at first, and at each restore."""
    admitted: bool = False
    waiting_for: str = ""
    turn_since: float | None = None
    """Since when all that it waits for is its turn."""
    waived: tuple[str, ...] = ()
    """Sessions that it comes after and need not wait for, by a person's word."""
    node: str | None = None
    """Where it lives, if not on this machine."""
    moving: str = ""
    """Why it is to leave its node."""
    moves: int = 0
    """How often it left a node."""
    losses: int = 0
    """How many nodes were lost with it since it last ended a turn, or a person began it."""
    displaced_at: float = 0.0
    unseen: str = ""
    """Why its node cannot be reached."""
    unseen_since: float | None = None
    checkpoint: Checkpoint | None = None
    """Its work on its node, as last saved here."""
    forgot: bool = False
    """The agent's conversation is lost: the next launch begins anew."""
    place: Place | None = None
    branch: str = ""
    base: str = ""
    head: str | None = None
    published: str | None = None
    """The last commit that was brought into the main repository."""
    pushed: str | None = None
    """The commit that the branch is at, at the forge, as far as we pushed it."""
    launch: Launch | None = None
    launched_run: int = 0
    """The run that the last launch belongs to."""
    conversation: str | None = None
    activity: ActivityFact = ActivityFact()
    spoke: bool = False
    """The agent reports its own state in this launch: the screen is not asked any more."""
    heard_at: float = 0.0
    """The last sign of life: a report of its own, or its terminal's output as far as anybody looked."""
    spool: int = 0
    """How far the launch's spool has been read."""
    cursors: Mapping[str, int] = field(default_factory=dict)
    """How far the agent's own records were read, by place."""
    acknowledges: bool = False
    """The agent has acknowledged a message before."""
    question: str = ""
    asked: str = ""
    """The question that it put in the midst of a turn and that no message has come for yet."""
    permission: Asked | None = None
    said: str = ""
    """The last thing it said in a finished turn."""
    done: str | None = None
    """The agent's summary, once it said that it is done."""
    failure: Failure | None = None
    limited_at: float | None = None
    """When it met the usage limit; see `limited` whether it still waits for its end."""
    limit_until: float | None = None
    limit_model: str = ""
    """The model that the limit is for, where it is not for all."""
    progress: Progress = Progress()
    usage: Usage = Usage()
    spent: Mapping[str, Usage] = field(default_factory=dict)
    """The same by UTC day and model: `2026-11-15 claude-sonnet-4-6`."""
    raised: Mapping[str, int] = field(default_factory=dict)
    """How often a person let it use as much again, by budget: `session`, `day 2026-11-15`, `project`."""
    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()
    rescues: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()
    stopped: bool = False
    stopped_by: str = "person"
    """Who wanted it to end."""
    tracked: str = ""
    """How far the tracker was told that the work on its issue is."""
    base_head: str | None = None
    """Where the base branch is, as far as seen."""
    below: str | None = None
    """The commit after which its own begin, while they are still to be put onto its base."""
    unmoved: str | None = None
    """The commit at which they could not be put there."""
    pr: PullRequest | None = None
    episodes: Mapping[str, Episode] = field(default_factory=dict)
    """What rules react to just now, by trigger."""
    collisions: Mapping[str, Collision] = field(default_factory=dict)
    """Elder session → what its branch will collide with this one's on."""
    offers: tuple[Offer, ...] = ()
    """Actions that wait for a person's word, oldest first."""
    digest: Digest = Digest()
    """What a coordinating agent was told of."""

    @property
    def remote(self) -> bool:
        """It lives on a node of the cluster, or is to."""
        return self.spec.runtime == CLUSTER

    @property
    def name(self) -> str:
        """The short name, without the project's prefix."""
        return self.spec.name

    @property
    def generation(self) -> int:
        """The last launch's number; 0 before the first."""
        return self.launch.generation if self.launch else 0

    @property
    def limited(self) -> bool:
        """It met its account's usage limit and waits for the end of that; its agent may have ended with it."""
        return self.limited_at is not None and self.activity.state in ("limited", "exited")

    def losses_with(self, now: float) -> int:
        """Nodes lost with it one after the other, if another is lost now; one that it worked on for long begins a new row."""
        steady = self.launch is not None and now - self.launch.at >= STEADY
        return 1 if steady else self.losses + 1

    @property
    def live(self) -> bool:
        """Its agent's process runs, as far as known."""
        return self.launch is not None and not self.launch.ended

    @property
    def next_message(self) -> Message | None:
        """The message whose turn it is."""
        return next((message for message in self.messages if message.pending and not message.needs_word), None)

    @property
    def held_messages(self) -> tuple[Message, ...]:
        """Messages that wait for a person's word, oldest first."""
        return tuple(message for message in self.messages if message.pending and message.needs_word)

    @property
    def unlanded(self) -> str:
        """The commit that its branch went on to after it had landed; nothing: it did not."""
        pr = self.pr
        late = pr and pr.state == "merged" and self.spec.scm == "local" and pr.landed_head not in ("", self.head)
        return (self.head or "") if late else ""

    @property
    def stacked(self) -> bool:
        """It stands on the branch of another session, which is to land first."""
        return self.spec.stack is not None and self.base == self.spec.base

    @property
    def committed(self) -> bool:
        """There are commits of its own on the branch."""
        return self.place is not None and self.head is not None and self.head != self.place.base_commit


@record
class TaskFacts:
    """What is wanted, and the sessions that attempt it."""

    id: str
    project: str
    title: str
    description: str
    created_at: float
    issue: str | None = None
    labels: tuple[str, ...] = ()
    priority: int = 0
    after: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()


@record
class ProjectFacts:
    """A repository of ours."""

    id: str
    path: str
    config: str | None = None
    removed: bool = False
    announced: bool = False
    """The user knows that set-ups are proven by `ao init --check`."""


@record
class Checkpoint:
    """A session's work as it was last saved from its node: the files as one commit, and the commit that they stand on."""

    commit: str
    head: str
    at: float


@record
class NodeFacts:
    """A machine of the cluster."""

    name: str
    address: str = ""
    cpus: float = 0.0
    memory: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    since: float = 0.0
    """When it came to be in its state."""
    state: str = "ready"
    """`ready`, `unreachable` or `gone`."""
    reason: str = ""
    drained: bool = False
    """It gets no new sessions."""


@record
class HomeFacts:
    """What belongs to no session: projects, tasks, trust."""

    projects: Mapping[str, ProjectFacts] = field(default_factory=dict)
    tasks: Mapping[str, TaskFacts] = field(default_factory=dict)
    trusted: Mapping[str, str] = field(default_factory=dict)
    """Digest of commands → the file they were trusted for."""
    proposed: Mapping[str, str] = field(default_factory=dict)
    """Digest of commands that were detected → the file they were written into."""
    allowed: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Project → what a person allowed for good: tool and command."""
    broken: Mapping[str, str] = field(default_factory=dict)
    """Configuration file → why it cannot be read."""
    issues: Mapping[str, Issue] = field(default_factory=dict)
    """Those of the trackers, by project and number."""
    accounts: Mapping[str, AccountHold] = field(default_factory=dict)
    """Accounts that met their usage limit, by `hold_key`."""
    completed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Project → its sessions that were told of when all were done."""
    quiet: Mapping[str, tuple[HeldNotice, ...]] = field(default_factory=dict)
    """Project → what is told when the quiet hours are over."""
    outages: Mapping[str, Outage] = field(default_factory=dict)
    """Forges and trackers that cannot be read, by project and name."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """Goals made into tasks, by id."""
    fixes: Mapping[str, Fix] = field(default_factory=dict)
    """Fixing runs, by id."""
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    """Machines of the cluster, by name."""
