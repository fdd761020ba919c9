"""What is known: the fold of the events, as frozen records. `core/fold/` folds; nothing else writes them.

Three counters distinguish a session's attempts. `run` counts how often it was begun, by a person or by a restart of the
machine. `generation` counts launches of its agent: a run may need none (the agent still runs) or several (messages to
an agent that exited). `launched_run` is the run that the last launch belongs to; if it is not the current run, a launch
is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agent_orchestrator.core import events as e
from agent_orchestrator.core.fixes import Fix
from agent_orchestrator.core.issues import Issue
from agent_orchestrator.core.plans import Plan
from agent_orchestrator.core.pull_request import PullRequest, is_hosted
from agent_orchestrator.protocols.records import record

CLUSTER_RUNTIME = "ray"
"""The runtime whose sessions run on the nodes of a cluster."""
WORKER_KIND = "worker"
"""The kind of session that makes a change."""
REVIEWER_KIND = "reviewer"
"""The kind of session that reviews another session's change and makes none."""
COORDINATOR_KIND = "coordinator"
"""The kind of session that plans, delegates and watches for a project: it makes no change, and is idle between messages."""

STEADY_SECONDS = 600.0
"""Seconds after which a launch is not considered the cause of its node's loss."""
FACTS_VERSION = 15
"""Increased when the meaning of a fold changes: stored facts are then rebuilt from the log."""


@record
class Message:
    """A message to the agent."""

    id: str
    text: str
    sender: str
    at: float
    state: str = "queued"
    reason: str = ""
    interrupt: bool = False
    is_task: bool = False
    needs_approval: bool = False
    """It waits for a person's approval, and does not delay other messages."""
    delivered_at: float | None = None
    acknowledged_at: float | None = None
    launch: int = 0
    """The launch whose agent it was delivered to."""

    @property
    def pending(self) -> bool:
        """Whether it is still to be delivered."""
        return self.state in ("queued", "held")


@record
class ActivityFact:
    """What the agent is doing, who reported it, and since when."""

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
    """The daemon ended it."""
    loss_reason: str = ""
    """Why the process is gone although it did not end normally."""
    lost_in_turn: bool = False
    """It was in a turn when it was lost."""
    code: int | None = None
    signal: int | None = None
    ended_at: float | None = None
    output: str = ""
    reason: str = ""
    """Why it ended, if that is known."""
    has_inbox: bool = False
    """The agent reads its messages from its inbox file."""
    plugin_data: Mapping[str, str] = field(default_factory=dict)
    """Notes of the agent's plugin about this launch."""


@record
class SessionWorkspace:
    """The session's workspace."""

    path: str
    base_commit: str
    git_dir: str
    git_env: Mapping[str, str] = field(default_factory=dict)
    present: bool = True
    shared: bool = True
    """Commits are in the main repository as soon as they are made."""
    copied_patterns: tuple[str, ...] = ()
    """Patterns of the files that were copied into it and that Git does not show."""


@record
class Failure:
    """A step that failed."""

    step: str
    error: str
    remedy: str
    at: float


@record
class Progress:
    """The progress that the agent reports."""

    done: int | None = None
    total: int | None = None
    step: str | None = None
    tests_passed: int | None = None


@record
class Usage:
    """Tokens, dollars and forge requests used so far."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    usd: float | None = None
    forge: int = 0

    def plus(self, more: Usage) -> Usage:
        """Return the sum of both; unknown dollars count as none."""
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
class PermissionRequest:
    """The permission request that the agent waits for."""

    tool: str
    command: str = ""
    reason: str = ""
    request: str = ""
    at: float = 0.0


@record
class Episode:
    """An unbroken time in which a trigger's state holds."""

    since: float
    attempts: int = 0
    last_occurrence: str = ""
    """The last occurrence that was reacted to; another one within the episode is the next attempt."""
    escalated: bool = False
    first_occurrence: str = ""
    """The first occurrence that was reacted to; it identifies the episode."""


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
    needs_person: bool = False
    """A person must act; the problem does not pass by waiting."""


@record
class HeldNotice:
    """A notification that is sent when the quiet hours are over."""

    session: str
    title: str
    message: str
    level: str
    until: float


@record
class AccountHold:
    """An account that reached its usage limit, for one model or for all."""

    account: str
    model: str
    """Empty for all models."""
    until: float
    since: float
    is_reset_time_reported: bool = True
    """The agent reported the reset time."""
    consecutive_holds: int = 1
    reason: str = ""
    session: str = ""
    """The session that reached the limit last."""
    released_at: float | None = None
    """When the hold ended; the waiting sessions continue one after the other."""

    @property
    def key(self) -> str:
        """The name that is unique among all holds, also shown to people: `work`, or `work opus` if only that model is held."""
        return hold_key(self.account, self.model)


def hold_key(account: str, model: str = "") -> str:
    """Return the name of an account's hold."""
    return f"{account} {model}".strip()


@record
class PredictedConflict:
    """A predicted conflict with an older session."""

    files: tuple[str, ...]
    kind: str
    at: float


@record
class Digest:
    """How much of the log a coordinating agent has been sent: up to event `upto` in `message`, up to event `since` before it."""

    upto: int = 0
    message: str = ""
    since: int = 0
    at: float = 0.0


@record
class SessionFacts:
    """Everything known about one session."""

    id: str
    project: str
    spec: e.SessionCreated
    created_at: float
    updated_at: float
    seq: int = 0

    requested_state: str = "run"
    """`run` or `stop`: what a person requested last."""
    keep_workspace: bool = False
    run: int = 1
    """Counts how often it was begun: at first, and at each restore."""
    admitted: bool = False
    waiting_for: str = ""
    slot_wait_since: float | None = None
    """Since when it waits only for a free slot."""
    waived_dependencies: tuple[str, ...] = ()
    """Sessions that it depends on and, by a person's decision, does not wait for."""
    node: str | None = None
    """The node it runs on, or None for this machine."""
    move_reason: str = ""
    """Why it is to leave its node."""
    moves: int = 0
    """How often it left a node."""
    losses: int = 0
    """How many of its nodes were lost since it last ended a turn or a person began it."""
    displaced_at: float = 0.0
    unreachable_reason: str = ""
    """Why its node is unreachable."""
    unseen_since: float | None = None
    checkpoint: Checkpoint | None = None
    """Its work on its node, as last saved here."""
    conversation_lost: bool = False
    """The agent's conversation is lost: the next launch starts a new one."""
    workspace: SessionWorkspace | None = None
    branch: str = ""
    base: str = ""
    head: str | None = None
    published_head: str | None = None
    """The last commit that was brought into the main repository."""
    pushed_head: str | None = None
    """The commit that was last pushed to the branch at the forge."""
    launch: Launch | None = None
    launched_run: int = 0
    """The run that the last launch belongs to."""
    conversation: str | None = None
    activity: ActivityFact = ActivityFact()
    has_reported: bool = False
    """The agent reports its own state in this launch, so its screen is no longer read."""
    last_sign_at: float = 0.0
    """The last sign of life: a report, or output of its terminal that was read."""
    spool_position: int = 0
    """How far the launch's spool has been read."""
    cursors: Mapping[str, int] = field(default_factory=dict)
    """How far the agent's own records were read, by file."""
    has_acknowledged: bool = False
    """The agent has acknowledged a message before."""
    question: str = ""
    unanswered_question: str = ""
    """The question that it asked during a turn and that no message has answered yet."""
    permission: PermissionRequest | None = None
    last_turn_text: str = ""
    """The text of its last finished turn."""
    done_summary: str | None = None
    """The agent's summary, once it reported that it is done."""
    failure: Failure | None = None
    limited_at: float | None = None
    """When it reached the usage limit; see `limited` for whether it still waits."""
    limit_until: float | None = None
    limit_model: str = ""
    """The model that the limit applies to, if not to all."""
    progress: Progress = Progress()
    usage: Usage = Usage()
    daily_usage: Mapping[str, Usage] = field(default_factory=dict)
    """Usage by UTC day and model: `2026-11-15 claude-sonnet-4-6`."""
    budget_raises: Mapping[str, int] = field(default_factory=dict)
    """How often a person allowed the budget's amount again, by budget: `session`, `day 2026-11-15`, `project`."""
    messages: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()
    rescues: tuple[str, ...] = ()
    saved_work: tuple[str, ...] = ()
    stopped: bool = False
    stopped_by: str = "person"
    """Who requested the stop."""
    tracker_state: str = ""
    """The state of its issue that was last reported to the tracker."""
    base_head: str | None = None
    """Head of the base branch, as last read."""
    old_base_commit: str | None = None
    """The commit after which its own commits begin, while they are still to be moved to the new base."""
    rebase_refused_head: str | None = None
    """The head at which they could not be moved there."""
    pr: PullRequest | None = None
    episodes: Mapping[str, Episode] = field(default_factory=dict)
    """What rules currently react to, by trigger."""
    predicted_conflicts: Mapping[str, PredictedConflict] = field(default_factory=dict)
    """Older session → the predicted conflict with its branch."""
    offers: tuple[Offer, ...] = ()
    """Actions that wait for a person's decision, oldest first."""
    digest: Digest = Digest()
    """What a coordinating agent has been sent."""

    @property
    def has_remote_forge(self) -> bool:
        """Whether its pull request is at a forge elsewhere, and not only in the facts."""
        return is_hosted(self.spec.scm, self.spec.forge_hosted)

    @property
    def has_remote_tracker(self) -> bool:
        """Whether its issue is at a tracker elsewhere, and not only in the facts."""
        return is_hosted(self.spec.tracker, self.spec.tracker_hosted)

    @property
    def remote(self) -> bool:
        """Whether it runs, or is to run, on a node of the cluster."""
        return self.spec.runtime == CLUSTER_RUNTIME

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
        """Whether it waits for the end of its account's usage limit; its agent may have exited because of the limit."""
        return self.limited_at is not None and self.activity.state in ("limited", "exited")

    def losses_after_another(self, now: float) -> int:
        """Return the number of nodes lost in a row if another is lost now; a launch longer than `STEADY_SECONDS` starts a new count."""
        is_steady = self.launch is not None and now - self.launch.at >= STEADY_SECONDS
        return 1 if is_steady else self.losses + 1

    @property
    def live(self) -> bool:
        """Whether its agent's process runs, as far as known."""
        return self.launch is not None and not self.launch.ended

    @property
    def next_message(self) -> Message | None:
        """The message to deliver next."""
        return next((message for message in self.messages if message.pending and not message.needs_approval), None)

    @property
    def held_messages(self) -> tuple[Message, ...]:
        """Messages that wait for a person's approval, oldest first."""
        return tuple(message for message in self.messages if message.pending and message.needs_approval)

    @property
    def head_after_merge(self) -> str:
        """The head of its branch if commits were added after the merge; otherwise an empty string."""
        pr = self.pr
        has_later_commits = (
            pr and pr.state == "merged" and not self.has_remote_forge and pr.merged_head not in ("", self.head)
        )
        return (self.head or "") if has_later_commits else ""

    @property
    def stacked(self) -> bool:
        """Whether it is based on the branch of another session that must be merged first."""
        return self.spec.stack is not None and self.base == self.spec.base

    @property
    def has_commits(self) -> bool:
        """Whether the branch has commits that its base does not have."""
        return self.workspace is not None and self.head is not None and self.head != self.workspace.base_commit


@record
class TaskFacts:
    """A task, and the sessions that attempt it."""

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
    """A registered project."""

    id: str
    path: str
    config: str | None = None
    removed: bool = False
    is_setup_check_announced: bool = False
    """The user knows that set-ups are checked by `ao init --check`."""


@record
class Checkpoint:
    """A session's work as last saved from its node: the files as one commit, and the head that this commit is based on."""

    commit: str
    head: str
    at: float


@record
class NodeFacts:
    """A node of the cluster."""

    name: str
    address: str = ""
    cpus: float = 0.0
    memory: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    since: float = 0.0
    """When it entered its state."""
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
    trusted_commands: Mapping[str, str] = field(default_factory=dict)
    """Digest of commands → the file they were trusted for."""
    proposed_commands: Mapping[str, str] = field(default_factory=dict)
    """Digest of commands that were detected → the file they were written into."""
    allowed_permissions: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """Project → what a person allowed permanently: tool and command."""
    unreadable_configs: Mapping[str, str] = field(default_factory=dict)
    """Configuration file → why it cannot be read."""
    issues: Mapping[str, Issue] = field(default_factory=dict)
    """Issues of the trackers, by project and number."""
    account_holds: Mapping[str, AccountHold] = field(default_factory=dict)
    """Accounts that reached their usage limit, by `hold_key`."""
    completed_sessions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Project → its sessions that were included when the completion of all was reported."""
    held_notices: Mapping[str, tuple[HeldNotice, ...]] = field(default_factory=dict)
    """Project → notifications to send when the quiet hours are over."""
    outages: Mapping[str, Outage] = field(default_factory=dict)
    """Forges and trackers that cannot be read, by project and name."""
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """Plans, by id."""
    fixes: Mapping[str, Fix] = field(default_factory=dict)
    """Fixing runs, by id."""
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    """Nodes of the cluster, by name."""


class Facts:
    """All facts as they are now. Only `Flow` changes them; everything else may read them at any time."""

    def __init__(self) -> None:
        self.home = HomeFacts()
        self.sessions: dict[str, SessionFacts] = {}
