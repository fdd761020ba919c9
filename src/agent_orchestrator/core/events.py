"""What happened: typed events, appended to the log and never changed.

An `Event` records who saw it (`source`), on whose behalf it was recorded (`actor`), which event caused it (`cause`),
when it happened (`time`), what it is about (`project`, `session`, and the launch `generation`), and an idempotency
`key`: an event recorded twice is stored once. Its `body` is one of the classes below; the body's name in the log is its
class name in kebab-case (`AgentExited` → `agent-exited`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, field, fields
from datetime import UTC, datetime
from functools import cache
from typing import Any

from agent_orchestrator.protocols.records import record
from agent_orchestrator.protocols.text import clean_text


def _to_camel_case(name: str) -> str:
    """Return a snake_case name in camelCase."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


@cache
def _to_kebab_case(name: str) -> str:
    """Return a class name in kebab-case."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()


KINDS: dict[str, type[Body]] = {}
"""Every kind of event by its name in the log."""


@record
class Body:
    """The content of an event; each kind is a subclass."""

    def __init_subclass__(cls) -> None:
        KINDS[_to_kebab_case(cls.__name__)] = cls

    @property
    def type(self) -> str:
        """The kind's name in the log."""
        return _to_kebab_case(type(self).__name__)


@record
class Event:
    """One thing that happened."""

    body: Body
    time: float
    source: str
    key: str
    project: str | None = None
    session: str | None = None
    generation: int = 0
    """The launch it refers to; 0 if that does not matter."""
    seq: int = 0
    """Its number in the log, assigned by the store."""
    actor: str = ""
    """Who acted: `local anna`, `token ci`, `agent app-1`, `rule ci-failed`, `daemon` …; set when it is recorded (`core/actor.py`)."""
    cause: int | None = None
    """The number of the event that caused it."""

    @property
    def type(self) -> str:
        """The kind's name in the log."""
        return self.body.type


# -- Projects ----------------------------------------------------------------------------------------------------------


@record
class ProjectRegistered(Body):
    """A repository is ours to work in; `config` is the file that describes it, if any."""

    path: str
    config: str | None = None
    announced: bool = False
    """The user knows that set-ups are proven by `ao init --check`; false if an earlier version registered it."""


@record
class ProjectRemoved(Body):
    """A person took a project out; it does not come back by itself."""


@record
class CommandsTrusted(Body):
    """The commands with this digest may run."""

    digest: str
    file: str
    by: str = "person"


@record
class CommandsProposed(Body):
    """The commands with this digest were detected and written into a new file; they do not run before a person confirms them."""

    digest: str
    file: str


@record
class ConfigurationChanged(Body):
    """A configuration file took effect anew."""

    file: str
    changes: tuple[str, ...] = ()


@record
class ConfigurationBroken(Body):
    """A configuration file cannot be read any more; the last good one stays in force."""

    file: str
    error: str


# -- Tasks and sessions ------------------------------------------------------------------------------------------------


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
    """The session whose change it is to judge."""
    spawned: tuple[str, ...] = ()
    """The rules that led to it, the first one first; nothing: a person's wish."""
    parent: str | None = None
    """The session that a rule made it for."""
    stack: str | None = None
    """The session whose branch it starts on, and which is to land before it."""
    scm: str = "local"
    """Where its pull request is to be."""
    tracker: str = "local"
    """Where its issue is."""
    home: str = ""
    """The home it lives in, where several have one database."""
    files: tuple[str, ...] = ()
    """Files that it is expected to change, by whoever planned it; glob patterns too."""
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
class WorkspaceCreated(Body):
    """The session's folder is there."""

    path: str
    branch: str
    base: str
    base_commit: str
    head: str
    git_dir: str
    notes: tuple[str, ...] = ()
    git_env: Mapping[str, str] = field(default_factory=dict)
    shared: bool = True
    forgot: bool = False
    """The agent's conversation could not be brought along: it begins anew."""
    copied: tuple[str, ...] = ()
    """What the project's `copy` named, by which it is saved with the workspace, whatever is named later."""


@record
class WorkPublished(Body):
    """The workspace's commits up to this one are in the main repository."""

    head: str


@record
class WorkPushed(Body):
    """The branch is at this commit at the forge, by our doing."""

    head: str


@record
class HeadMoved(Body):
    """The workspace's HEAD is at another commit."""

    head: str


@record
class BaseChanged(Body):
    """The change is for another branch, or its base was rewritten: what it stood on has landed, was rebased or was given up."""

    base: str
    reason: str
    below: str = ""
    """Its own commits are those after this one, and are to be put onto the base; empty: they stay where they are."""


@record
class BranchRebased(Body):
    """Its own commits stand on this commit of its base now."""

    onto: str


@record
class RebaseRefused(Body):
    """Its own commits, up to this one, cannot be put onto its base by themselves."""

    head: str
    reason: str


@record
class StopRequested(Body):
    """A person wants the session to end; `keep` leaves its workspace."""

    keep: bool = False


@record
class WorkRescued(Body):
    """What was unsaved in the workspace is under a rescue ref."""

    ref: str
    commit: str
    what: tuple[str, ...] = ()


@record
class SessionStopped(Body):
    """Its agent has ended, its work is safe. `saved` tells where everything went; `kept`: the workspace is still there."""

    saved: tuple[str, ...] = ()
    kept: bool = False


@record
class RestoreRequested(Body):
    """The session is to be brought back: same branch, same work, same conversation."""


# -- Nodes -------------------------------------------------------------------------------------------------------------


@record
class NodeJoined(Body):
    """A machine of the cluster is there, and takes sessions."""

    node: str
    address: str = ""
    cpus: float = 0.0
    memory: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)


@record
class NodeUnreachable(Body):
    """Nothing is heard of a node; its agents may work on until their leases end."""

    node: str
    reason: str = ""


@record
class NodeLost(Body):
    """A node is gone for certain: the leases of its agents are over."""

    node: str
    reason: str = ""


@record
class DrainRequested(Body):
    """A node gets no new sessions, and those that it has are to go elsewhere; `now`: in the midst of their turns."""

    node: str
    now: bool = False


@record
class DrainEnded(Body):
    """A node may get sessions again."""

    node: str


@record
class SessionPlaced(Body):
    """The node that the session lives on."""

    node: str


@record
class SessionUnseen(Body):
    """The session's node cannot be reached: what is known of it is as old as this."""

    node: str
    reason: str = ""


@record
class SessionSeen(Body):
    """The session's node is there again."""

    node: str


@record
class WorkCheckpointed(Body):
    """The session's work on its node is saved here: all its files as `commit`, which stands on `head`."""

    commit: str
    head: str


@record
class MoveRequested(Body):
    """The session is to leave its node: its agent ends, its work is saved, and it goes on elsewhere."""

    node: str
    reason: str


@record
class SessionDisplaced(Body):
    """The session lives on that node no more; what it had there is saved, or lost with it."""

    node: str
    reason: str
    lost: bool = False
    """The node went with it: what was done since the last checkpoint is gone."""
    restart: bool = True
    """Its agent is started again elsewhere; otherwise at its next message."""


# -- The agent ---------------------------------------------------------------------------------------------------------


@record
class AgentLaunched(Body):
    """The agent's process runs."""

    handle: Mapping[str, Any]
    resumed: bool = False
    conversation: str | None = None
    env_notes: tuple[str, ...] = ()
    inbox: bool = False
    """It takes its messages from its inbox file: nothing is typed."""
    memo: Mapping[str, str] = field(default_factory=dict)
    """The plugin's own notes on this launch."""


@record
class AgentConversation(Body):
    """The id by which the agent continues this conversation."""

    conversation: str


@record
class AgentTurnEnded(Body):
    """The agent has finished a turn; `text` is the last thing it said."""

    text: str = ""


@record
class PermissionAsked(Body):
    """The agent waits for a permission."""

    tool: str
    command: str = ""
    reason: str = ""
    request: str = ""


@record
class AgentActivity(Body):
    """What the agent is doing."""

    state: str
    detail: str = ""


@record
class AgentAck(Body):
    """The agent took a message up; it may not say which: then the oldest that was delivered."""

    message: str = ""


@record
class AgentProgress(Body):
    """How far it is."""

    done: int | None = None
    total: int | None = None
    step: str | None = None
    tests_passed: int | None = None


@record
class AgentOutput(Body):
    """Its terminal printed something at that time: a sign of life, no more."""


@record
class AgentUsage(Body):
    """What a turn took; adds up."""

    model: str = ""
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    usd: float | None = None
    by_list: bool = False
    """The dollars are by list prices, not the agent's own figure."""
    forge: int = 0
    """Calls of a forge's own command line, which spend the forge's budget."""


@record
class AgentLimit(Body):
    """The account's usage limit is reached; `model`: only for that one, by the agent's word."""

    resets_at: float | None = None
    model: str = ""


@record
class AgentAsk(Body):
    """The agent asks a person."""

    question: str
    stands: bool = False
    """It was put in the midst of a turn: the turn's end does not settle it, a message does."""


@record
class AgentDone(Body):
    """The agent says its work is ready."""

    summary: str = ""


@record
class AgentReview(Body):
    """A reviewing agent judged the change that it was asked about."""

    verdict: str
    body: str = ""
    comments: tuple[Mapping[str, Any], ...] = ()
    """Each with `path`, `line` and `body`."""


@record
class AgentReport(Body):
    """The agent reported something of its own; kept as it came."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)


@record
class AgentReportInvalid(Body):
    """A line in the spool could not be read."""

    reason: str
    excerpt: str = ""


@record
class AgentExited(Body):
    """The agent's process has ended by itself."""

    code: int | None = None
    signal: int | None = None
    output: str = ""
    """The last lines that it showed."""
    reason: str = ""
    """Why, where that is known: it ran out of memory …"""


@record
class AgentLost(Body):
    """The agent is gone with its terminal: a reboot, a killed tmux or holder. Not its own doing."""

    reason: str


@record
class AgentStopped(Body):
    """We ended the agent's process, as asked."""

    code: int | None = None
    signal: int | None = None


# -- Messages ----------------------------------------------------------------------------------------------------------


@record
class MessageQueued(Body):
    """A message was accepted for the agent."""

    message: str
    text: str
    sender: str = "person"
    interrupt: bool = False
    task: bool = False
    """It is the session's first prompt."""
    hold: str = ""
    """Why it waits for a person's word."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", clean_text(self.text))


@record
class MessageHeld(Body):
    """It cannot be delivered just now."""

    message: str
    reason: str


@record
class MessageReleased(Body):
    """A person's word that a message may reach the agent."""

    message: str


@record
class MessageDelivered(Body):
    """It was written to the agent's terminal, once."""

    message: str


@record
class MessageFailed(Body):
    """It was not, or cannot be shown to have been, delivered; it is not tried again."""

    message: str
    reason: str


@record
class DigestSent(Body):
    """The coordinating agent is told, by this message, what happened in its project up to this place in the log."""

    message: str
    upto: int
    events: int = 0
    """How many it tells of."""
    left_out: int = 0
    """How many more there were than it has room for."""


@record
class PermissionAnswered(Body):
    """It was decided on what the agent asked to do: `allow`, `always` or `deny`; `by` a person, or a rule by its words."""

    decision: str
    detail: str = ""
    tool: str = ""
    command: str = ""
    by: str = "person"


@record
class PermissionAllowed(Body):
    """A person allowed something for good in this project."""

    tool: str
    command: str


@record
class PermissionWithdrawn(Body):
    """What was allowed for good is asked again."""

    tool: str
    command: str


# -- Pull requests, checks, reviews, landing ------------------------------------------------------------------------------


@record
class PrOpened(Body):
    """The session's branch has a pull request."""

    number: int
    title: str
    base: str
    draft: bool = True
    url: str | None = None
    node: str = ""
    """Its name at the forge for good."""


@record
class PrReady(Body):
    """It is no draft any more: the agent is done, or a person said so."""


@record
class PrChanged(Body):
    """Somebody changed what it is called, made it a draft again, or opened it again; or the forge demands something else."""

    title: str
    draft: bool
    state: str = "open"
    blocked: str = ""
    """What the forge demands before it may land."""


@record
class PrClosed(Body):
    """It was closed without landing."""

    reason: str = ""


@record
class PrMerged(Body):
    """It landed: the base branch went from `base_before` to `commit`."""

    commit: str
    base_before: str
    head: str
    strategy: str = "squash"
    keep_branch: bool = False
    left: tuple[str, ...] = ()
    """Files in its workspace that were not committed, and so did not land."""
    remove_there: bool = False
    """Its branch at the forge is to go too."""


@record
class BaseMoved(Body):
    """The branch that it is to land on is at another commit."""

    head: str


@record
class ConflictsSeen(Body):
    """Whether head and base go together, looked at these two commits; no files: they do."""

    head: str
    base_head: str
    files: tuple[str, ...] = ()


@record
class ChecksRequested(Body):
    """A person or a rule wants the checks to run again at this commit."""

    head: str


@record
class CheckStarted(Body):
    """A check waits for its place or, once there is a log, runs."""

    name: str
    head: str
    log: str = ""
    url: str = ""
    """Where people see it."""
    running: bool = False
    """It runs, somewhere else."""


@record
class CheckFinished(Body):
    """A check has a result at this commit."""

    name: str
    head: str
    state: str
    summary: str = ""
    log: str = ""
    tree: str = ""
    passed: int | None = None
    failed: int | None = None
    skipped: int | None = None
    on_base: bool = False
    """Everything that fails also fails on the base branch, or at the commit where the branch left it."""
    compared: bool = False
    """The result was compared with the base branch, test by test."""
    new: Mapping[str, str] = field(default_factory=dict)
    """The failures that the base branch does not have: name and message."""
    known: tuple[str, ...] = ()
    """The failures that the base branch has too."""
    owned: tuple[str, ...] = ()
    """Those of them that the session's task is about."""
    vanished: tuple[str, ...] = ()
    """Tests that pass on the base branch and do not exist any more."""
    newly_skipped: tuple[str, ...] = ()
    """Tests that pass on the base branch and are skipped."""
    fewer: int = 0
    """How many tests fewer are run than on the base branch, where they cannot be named."""
    fixed_since: bool = False
    """The known failures are those of the commit where the branch left the base branch, which does not have them any more."""
    forbidden: bool = False
    """Known failures hold a merge as well (`redBase: forbid`)."""
    reason: str = ""
    """What the environment lacks, for a check that is `not_set_up`."""
    remedy: str = ""
    """How to set the environment up."""
    command: str = ""
    """The command that runs the check by hand."""
    url: str = ""


@record
class CheckGone(Body):
    """A check that was told of is no check of this commit any more."""

    name: str
    head: str


@record
class ChecksSettled(Body):
    """Every check that is to run at this commit has a result; `none`: no check is configured."""

    head: str
    none: bool = False


@record
class ChecksByHand(Body):
    """No check runs at this commit until somebody asks for it."""

    head: str


@record
class ReviewSubmitted(Body):
    """Somebody judged the change: `approved`, `changes_requested` or `commented`."""

    review: str
    verdict: str
    head: str
    author: str = "person"
    body: str = ""
    write_access: str = "yes"
    """May the author write to the repository: `yes`, `no` or `unknown`."""
    kind: str = "person"
    """Who judges: a `person`, a `bot` or an `agent`."""
    reviewer: str = ""
    """The session of the agent that judges."""
    counts: bool = True
    """It is approval enough; that of a bot or an agent is so only where the project says it."""


@record
class ReviewChanged(Body):
    """A judgement counts otherwise than before: it was dismissed, or given anew."""

    review: str
    verdict: str


@record
class ThreadSettled(Body):
    """A discussion was resolved, or taken up again."""

    thread: str
    resolved: bool


@record
class ResolveRequested(Body):
    """A person says that a discussion is settled; it is to be resolved at the forge."""

    thread: str


@record
class PeopleRequested(Body):
    """These people are to be asked at the forge to look at the change."""

    people: tuple[str, ...]


@record
class PeopleAsked(Body):
    """The forge has asked these people to look at the change."""

    people: tuple[str, ...]


@record
class CommentAdded(Body):
    """Somebody said something about the change, or about a line of it."""

    comment: str
    body: str
    author: str = "person"
    path: str | None = None
    line: int | None = None
    thread: str | None = None
    """The comment that it answers."""
    review: str | None = None
    by_agent: bool = False
    head: str = ""
    """The commit that was looked at."""
    write_access: str = "yes"
    """May the author write to the repository: `yes`, `no` or `unknown`."""
    kind: str = "person"
    """Who speaks: a `person`, a `bot` or an `agent`."""


@record
class MergeRequested(Body):
    """It may land: a person's word, or a rule's."""

    strategy: str = "squash"
    force: bool = False
    delete_after: bool = True


@record
class LandingWaits(Body):
    """It cannot land just now."""

    reason: str


@record
class LandingFailed(Body):
    """It was refused: a conflict, a failing check, a branch that moved."""

    reason: str
    cause: str = ""
    """`conflict`, `checks`, `moved`, `called-off` or `error`."""


@record
class ConflictPredicted(Body):
    """Its branch and that of an `other`, elder session will collide: `text`, they cannot be merged, or `overlap`, both change one place."""

    other: str
    files: tuple[str, ...]
    kind: str


@record
class ConflictCleared(Body):
    """A predicted conflict is over, or less than it was: these files are left."""

    other: str
    files: tuple[str, ...] = ()
    kind: str = "text"


# -- Rules ----------------------------------------------------------------------------------------------------------------


@record
class Reacted(Body):
    """A rule was followed."""

    rule: str
    trigger: str
    occurrence: str
    action: str
    attempt: int = 1
    detail: str = ""


OFFERED = "the rule asks you"


@record
class Escalated(Body):
    """A rule could not settle it: a person is called. With the reason `OFFERED` it was not to: an action is offered."""

    rule: str
    trigger: str
    reason: str


@record
class ActionOffered(Body):
    """A rule does not act by itself: a person may take the action, or refuse it."""

    offer: str
    rule: str
    trigger: str
    occurrence: str
    action: str
    text: str = ""
    """What would be sent or told."""
    attempt: int = 1
    event: Mapping[str, Any] = field(default_factory=dict)
    """The event that it is about, for a trigger that is one."""


@record
class OfferAnswered(Body):
    """A person's word on an action that was offered: `allow` or `deny`."""

    offer: str
    decision: str


@record
class OfferWithdrawn(Body):
    """What a person was asked for has settled itself."""

    offer: str


@record
class CommandRequested(Body):
    """A rule wants its command to be run."""

    rule: str
    trigger: str
    attempt: int = 1
    variables: Mapping[str, Any] = field(default_factory=dict)
    """What the command may read of what happened."""


@record
class CommandFinished(Body):
    """A rule's command has ended; `code` is none where it was ended by its time limit."""

    rule: str
    code: int | None
    output: str = ""
    """The end of what it printed."""
    log: str = ""
    seconds: float = 0.0
    repeated: bool = False
    """The daemon died while it ran before: it may have been run twice."""


@record
class SpawnRequested(Body):
    """A rule wants another session."""

    rule: str
    trigger: str
    agent: str = ""
    prompt: str = ""


@record
class ReviewRequested(Body):
    """An agent is asked to judge the change, for the how-many-eth time."""

    reviewer: str
    head: str
    round: int = 1


@record
class AccountHeld(Body):
    """No session of this account (and model, if one is named) starts or goes on before that time."""

    account: str
    until: float
    reason: str = ""
    model: str = ""
    named: bool = True
    """The agent named that time; otherwise it is a guess."""
    times: int = 1
    """How often in a row the account refused after the time had come."""
    waits: float | None = None
    """Until when the session itself waits, where its own word holds the account for less."""


@record
class AccountReleased(Body):
    """An account is held no more: somebody works with it again, or a person says so. Of a session: it may go on."""

    account: str
    model: str = ""
    reason: str = ""


@record
class StartPutOff(Body):
    """What was let start may not start yet after all; it waits for its place again."""

    reason: str


@record
class BudgetExceeded(Body):
    """More was spent than the budget allows: of a `session`, a `day`, or a `project`."""

    scope: str
    budget: str
    spent: str
    day: str = ""
    """The UTC day whose budget it was."""


@record
class BudgetRaised(Body):
    """A person lets a session use as much again; a day's budget is raised for that day alone."""

    scope: str
    budget: str
    day: str = ""


@record
class AllComplete(Body):
    """Every session of the project is done."""

    sessions: tuple[str, ...] = ()
    """Those that were not told of before."""
    summary: str = ""


# -- Issues of the local tracker --------------------------------------------------------------------------------------------


@record
class IssueOpened(Body):
    """Somebody wants something."""

    number: int
    title: str
    body: str = ""
    labels: tuple[str, ...] = ()
    author: str = "person"
    after: tuple[int, ...] = ()
    """Issues that must be closed before."""
    write_access: str = "yes"
    """May the author write to the repository: `yes`, `no` or `unknown`."""
    key: str = ""
    """How the tracker calls it, where that is not its number: `LIN-3`."""
    url: str | None = None
    tracker: str = "local"
    branch: str | None = None
    """The branch that the tracker suggests."""
    assignee: str | None = None


@record
class IssueTracked(Body):
    """The tracker was told how far the work on the session's issue is: `in_progress`, `in_review` or `closed`."""

    state: str


@record
class IssueChanged(Body):
    """An issue's title, text, state or assignee is another; what is not given stays."""

    number: int
    title: str | None = None
    body: str | None = None
    state: str | None = None
    assignee: str | None = None
    after: tuple[int, ...] | None = None
    author: str = "person"
    """Who may have changed title, text or state, if nobody else did: whoever opened it."""
    write_access: str = "yes"
    """May he write to the repository: `yes`, `no` or `unknown`."""


@record
class IssuePlanned(Body):
    """An issue is a task of a plan: what the plan says of it beyond its text."""

    number: int
    plan: str
    task: str
    """The task's id in the plan."""
    profile: str | None = None
    """Who is suggested to take it."""
    priority: int = 0
    files: tuple[str, ...] = ()
    """Files that it is expected to change."""
    after: tuple[int, ...] = ()
    """Issues that must be closed before."""
    start: bool = True
    """It is taken as soon as there is room, whether issues are taken by themselves or not."""


@record
class LabelAdded(Body):
    """An issue got a label."""

    number: int
    label: str


@record
class LabelRemoved(Body):
    """An issue lost a label."""

    number: int
    label: str


@record
class IssueComment(Body):
    """Somebody said something about an issue."""

    number: int
    comment: str
    body: str
    author: str = "person"
    write_access: str = "yes"
    """May the author write to the repository: `yes`, `no` or `unknown`."""


# -- Plans ---------------------------------------------------------------------------------------------------------------------


@record
class PlanRequested(Body):
    """Somebody wants a goal, or the tracker's open issues, to be made into tasks."""

    plan: str
    goal: str = ""
    agent: str = ""
    """The profile or agent that is to plan; nothing: nobody is asked, the tasks are given."""
    model: str | None = None
    from_issues: bool = False
    """The tracker's open issues are the tasks."""


@record
class PlanDrafted(Body):
    """There are tasks, checked; a person may look at them."""

    plan: str
    tasks: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    input: int = 0
    """Tokens that the planning took."""
    output: int = 0
    usd: float | None = None


@record
class PlanFailed(Body):
    """No plan came of it."""

    plan: str
    error: str
    input: int = 0
    output: int = 0
    usd: float | None = None


@record
class PlanChanged(Body):
    """A person made other tasks of it."""

    plan: str
    tasks: tuple[Mapping[str, Any], ...] = ()
    notes: tuple[str, ...] = ()
    goal: str | None = None
    """None: it stays."""


@record
class PlanApplyRequested(Body):
    """Its tasks are to become issues."""

    plan: str
    start: bool = True
    """They are taken as soon as there is room."""
    group_limit: int = 0
    """How many of its sessions may work at once; 0: as many as there is room for."""


@record
class PlanApplied(Body):
    """All its tasks are issues."""

    plan: str
    issues: Mapping[str, int] = field(default_factory=dict)
    """Task → number of its issue."""


@record
class PlanRefused(Body):
    """Its tasks cannot become issues as they are; it is a draft again."""

    plan: str
    error: str


@record
class PlanDiscarded(Body):
    """A person does not want it."""

    plan: str


# -- Fixing ------------------------------------------------------------------------------------------------------------


@record
class FixStarted(Body):
    """Somebody wants a project's failing tests and lint errors to be fixed."""

    fix: str
    """The run's id: `F1`."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """How: branch, commands, rounds, agents, and whether what is verified lands."""


@record
class FixMeasured(Body):
    """The base was measured at a commit; what fails there was grouped by likely cause."""

    fix: str
    round: int
    commit: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    """Failures by tool."""
    problems: Mapping[str, Any] = field(default_factory=dict)
    """Tools that could not be run, and why."""
    groups: tuple[Mapping[str, Any], ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()
    """What was run, and how."""
    lacks: str = ""
    """What the environment lacks, and what to do: nothing is fixed then."""


@record
class FixAgentStarted(Body):
    """A session works on one cause."""

    fix: str
    round: int
    group: int
    session: str


@record
class FixGroupSettled(Body):
    """Nothing more comes of one cause in this round."""

    fix: str
    round: int
    group: int
    outcome: str
    """`landed`, `ready` (verified, and left to be landed), `failed` or `stopped`."""
    commit: str | None = None
    reason: str = ""


@record
class FixEnded(Body):
    """A fixing run is over."""

    fix: str
    outcome: str
    """`green`, `left` (something still fails), `review`, `measured`, `not_set_up`, `stopped` or `failed`."""
    reason: str = ""


# -- The engine itself -------------------------------------------------------------------------------------------------


@record
class TimerDue(Body):
    """A time that was waited for has come."""

    name: str


@record
class ClockSetBack(Body):
    """The machine's clock had been wrong by so much: what was dated and due by it is so no longer."""

    seconds: float


@record
class MachineWoke(Body):
    """The machine slept for so long, and the agent with it: its silence in that time says nothing about it."""

    seconds: float


@record
class Notified(Body):
    """A person was told."""

    trigger: str
    title: str
    message: str
    level: str = "info"


@record
class NotificationHeld(Body):
    """A person will be told when the quiet hours are over."""

    trigger: str
    title: str
    message: str
    level: str
    until: float


@record
class QuietHoursEnded(Body):
    """What was held until then is told, together."""

    until: float


@record
class NotificationSettled(Body):
    """What became of notifications that were to be sent by a notifier, as one message."""

    notifier: str
    notices: tuple[str, ...]
    """Their ids."""
    outcome: str
    """`sent`, `repeated` (the same was said a moment ago), `doubtful` (it may have arrived), `late` or `failed`."""
    receiver: str = ""
    """Names whoever got it, and tells nothing of him."""
    urgent: bool = False
    marks: tuple[str, ...] = ()
    """What they said, in a form that only serves to know it again."""
    reason: str = ""


@record
class NotifierFailing(Body):
    """A notifier does not work; what it is to send waits, or is given up. Told once."""

    notifier: str
    receiver: str
    error: str
    remedy: str = ""


@record
class NotifierRecovered(Body):
    """A notifier works again."""

    notifier: str
    receiver: str


@record
class AnswerLinkUsed(Body):
    """Somebody answered by a notification's link or button; it is good for nothing more."""

    verb: str
    by: str
    notice: str = ""


@record
class EffectFailed(Body):
    """An effect was given up."""

    intent: str
    error: str
    remedy: str = ""
    attempts: int = 1


@record
class EffectDelayed(Body):
    """An effect cannot be carried out for now, for this reason; it is tried again by itself as long as it is wanted."""

    intent: str
    error: str
    remedy: str = ""
    attempts: int = 1


@record
class ReadingFailed(Body):
    """A project's forge or tracker cannot be read: for long already, or until somebody mends it."""

    name: str
    reason: str
    remedy: str
    since: float
    called: bool = False
    """Waiting does not mend it."""


@record
class ReadingResumed(Body):
    """It can be read again, or need not be any more."""

    name: str


# -- Access ------------------------------------------------------------------------------------------------------------


@record
class SignedIn(Body):
    """A browser signed in, by a one-time link or by a token."""

    id: str
    name: str
    role: str
    how: str
    peer: str = ""


@record
class SignedOut(Body):
    """A browser signed out."""

    id: str
    name: str


@record
class SignInRefused(Body):
    """Somebody tried to sign in, and was not let in; `more` were refused since the last one that is written down."""

    reason: str
    peer: str = ""
    more: int = 0


@record
class LoginLinkMade(Body):
    """A link was made that signs in the browser which opens it first."""

    role: str


@record
class TokenMade(Body):
    """A token was made; `kind` is `token`, or `node` for a machine of the cluster."""

    name: str
    role: str = ""
    id: str = ""
    kind: str = "token"


@record
class TokenRevoked(Body):
    """A token or a sign-in is worthless from now on."""

    id: str
    name: str
    role: str


@record
class AccessRefused(Body):
    """Somebody asked for what he may not; `more` were refused since the last one that is written down."""

    method: str
    path: str
    reason: str
    peer: str = ""
    more: int = 0


@record
class EnvironmentRead(Body):
    """Somebody was given a session's environment, secrets included."""


@record
class CommandRun(Body):
    """Somebody ran a command in a session's workspace."""

    command: tuple[str, ...]


@record
class TerminalTaken(Body):
    """Somebody got hold of an agent's terminal: by the first key `typed` in a browser, or `attached` on this machine."""

    how: str


@record
class SettingChanged(Body):
    """A value of a configuration file was changed through the daemon."""

    name: str
    file: str


@record
class PluginLoaded(Body):
    """Code of somebody else was loaded, as the configuration says: its file or package, the SHA-256 of its file, what it declares."""

    plugin: str
    origin: str
    version: str = ""
    digest: str = ""
    permissions: tuple[str, ...] | None = None


@record
class ShutdownRequested(Body):
    """Somebody ended the daemon; `sessions`: and stopped all sessions."""

    sessions: bool = False


@record
class ActionTaken(Body):
    """Somebody asked for a change, and it was made; for changes that no other event tells of."""

    action: str
    detail: str = ""


# -- The daemon --------------------------------------------------------------------------------------------------------


@record
class DaemonStarted(Body):
    """The daemon took up its work; what it found."""

    version: str
    adopted: int = 0
    ended: int = 0
    lost: int = 0
    pending: int = 0


@record
class DaemonStopped(Body):
    """The daemon ended in good order; its sessions run on."""

    reason: str = ""


@record
class Unknown(Body):
    """An event of a kind that this version does not know, kept unchanged."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def type(self) -> str:
        """The name it came with."""
        return self.name


# -- As JSON -----------------------------------------------------------------------------------------------------------


def encode(body: Body) -> dict[str, Any]:
    """Return a body as JSON data with keys in camelCase, without fields that have their default."""
    if isinstance(body, Unknown):
        return dict(body.data)
    data = {}
    for name, camel, default in _shape(type(body)):
        value = getattr(body, name)
        if value != default:
            data[camel] = (
                list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
            )
    return data


def decode(kind: str, data: Mapping[str, Any]) -> Body:
    """Return the body from data that `encode` wrote; an unknown kind becomes `Unknown`, and unknown keys are ignored."""
    cls = KINDS.get(kind)
    if cls is None or cls is Unknown:
        return Unknown(kind, data)
    values = {}
    for name, camel, _ in _shape(cls):
        if camel in data:
            value = data[camel]
            values[name] = tuple(value) if isinstance(value, list) else value
    try:
        return cls(**values)
    except TypeError:
        return Unknown(kind, data)


def event_json(event: Event) -> dict[str, Any]:
    """Return an event as JSON data for users."""
    return {
        "seq": event.seq,
        "type": event.type,
        "session": event.session,
        "project": event.project,
        "source": event.source,
        "time": rfc3339(event.time),
        "generation": event.generation,
        "key": event.key,
        "data": encode(event.body),
    }


def event_from_json(data: Mapping[str, Any]) -> Event:
    """Return an event from JSON data; `key` and `generation` may be missing in a log written by hand."""
    seq = int(data.get("seq") or 0)
    return Event(
        body=decode(str(data["type"]), data.get("data") or {}),
        time=epoch(data["time"]),
        source=str(data.get("source") or "log"),
        key=str(data.get("key") or f"log:{seq}:{data['type']}:{data['time']}"),
        project=data.get("project"),
        session=data.get("session"),
        generation=int(data.get("generation") or 0),
        seq=seq,
    )


def rfc3339(time: float) -> str:
    """Return seconds since the epoch as RFC 3339 in UTC."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def epoch(time: str | float) -> float:
    """Return RFC 3339 as seconds since the epoch; a time without zone is UTC, and a number is returned as it is."""
    if isinstance(time, int | float):
        return float(time)
    parsed = datetime.fromisoformat(time)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


_shapes: dict[type[Body], tuple[tuple[str, str, Any], ...]] = {}
"""Fields of each kind of event, computed once."""


def _shape(cls: type[Body]) -> tuple[tuple[str, str, Any], ...]:
    """Return name, JSON name and default of each field."""
    if cls not in _shapes:
        _shapes[cls] = tuple(
            (
                item.name,
                _to_camel_case(item.name),
                item.default if item.default_factory is MISSING else item.default_factory(),
            )
            for item in fields(cls)
        )
    return _shapes[cls]
