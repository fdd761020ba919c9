"""The models of answers, for OpenAPI. Services produce answers in this form; they are not validated again."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Shown(BaseModel):
    """An answer: every key is always present, null where unknown."""

    model_config = ConfigDict(alias_generator=to_camel)


class Problem(Shown):
    """What went wrong, and what to do (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    remedy: str
    category: str
    exit_code: int


class Evidence(Shown):
    """What a status rests on."""

    source: str | None
    at: str | None


class Check(Shown):
    """One check."""

    name: str
    state: Literal[
        "queued", "running", "success", "failure", "flaky", "cancelled", "timed_out", "skipped", "not_set_up"
    ]
    url: str | None


class ChangeCheck(Check):
    """One check of a pull request."""

    on_base: bool
    """Everything that fails also fails on the base branch, or at the commit where the branch left it."""
    passed: int | None
    failed: int | None
    skipped: int | None
    new: int
    """How many failures the base branch does not have."""
    known: int
    """How many failures the base branch has too."""
    reason: str | None
    """What the environment lacks, or which tests are not run any more."""


class PullRequest(Shown):
    """A session's pull request."""

    number: int
    url: str | None
    state: Literal["draft", "open", "merged", "closed"]
    head: str | None
    checks: list[ChangeCheck]
    review: Literal["none", "pending", "approved", "changes_requested"]
    mergeable: Literal["yes", "no", "unknown"]


class Progress(Shown):
    """How far the agent is."""

    done: int | None
    total: int | None
    step: str | None
    tests_passed: int | None


class Usage(Shown):
    """What it took."""

    input: int
    output: int
    usd: float | None


class Session(Shown):
    """One agent working on one task in one workspace on one branch."""

    id: str
    name: str
    project: str
    task: str
    kind: str
    title: str
    status: str
    activity: str
    evidence: Evidence
    column: str
    branch: str
    base: str
    head: str | None
    workspace_path: str | None
    agent: str
    profile: str | None
    runtime: str
    node: str | None
    pid: int | None
    exit_code: int | None
    issue: str | None
    pr: PullRequest | None
    progress: Progress
    usage: Usage
    attempts: dict[str, int]
    waiting_for: str | None
    created_at: str
    updated_at: str


class SessionStatus(Shown):
    """A session in short."""

    state: Literal["idle", "working", "waiting", "error"]
    status: str
    activity: str
    current_task: str | None
    last_activity: str | None
    branch: str
    workspace_path: str | None
    agent: str
    progress: Progress


class Taken(Shown):
    """A webhook was taken; false: it had been before."""

    taken: bool


class UnreadPlace(Shown):
    """A forge or tracker that cannot be read, since when and why: what is told of its pull requests and issues may be old."""

    project: str
    name: str
    why: str
    since: str


class Answered(Shown):
    """An answer that was given by a notification's link."""

    session: str
    verb: Literal["allow", "deny"]
    by: str


class UntoldBy(Shown):
    """A notifier that does not work, since when and why: what it was to send waits, or was given up."""

    notifier: str
    project: str | None
    since: str
    why: str


class Sessions(Shown):
    """Sessions, merged and stopped ones included; `unread` only where something cannot be read, `untold` only where a notifier fails."""

    sessions: list[Session]
    unread: list[UnreadPlace] = []
    untold: list[UntoldBy] = []


class Stopped(Shown):
    """A stopped session: where everything went, and how to undo it."""

    session: Session
    saved: list[str]
    undo: str


class AllStopped(Shown):
    """All that were stopped."""

    stopped: list[Stopped]


class MessageState(Shown):
    """A message was accepted."""

    message_id: str | None
    state: str


class Message(Shown):
    """A message and what became of it."""

    message_id: str
    state: Literal["queued", "held", "delivered", "acknowledged", "failed"]
    content: str
    sender: str
    created_at: str
    delivered_at: str | None
    acknowledged_at: str | None
    reason: str | None


class Messages(Shown):
    """A session's messages in order."""

    messages: list[Message]


class DigestState(Shown):
    """How far a coordinating agent was told what happens."""

    last_at: str | None
    pending: bool
    """There is something that it may have to be told of."""


class CoordinatorState(Shown):
    """A project's coordinating agent."""

    project: str
    session: Session | None
    """Null: there was none yet."""
    goal: str | None
    """The last message that was no digest."""
    said: str | None
    """The end of its last turn."""
    digest: DigestState
    message: MessageState | None
    """What became of the goal that was given just now."""


class Prompt(Shown):
    """What an agent is told."""

    system: str
    prompt: str


class Used(Shown):
    """Tokens, dollars, and calls of a forge's own command line (`gh`, `glab`)."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    usd: float | None
    forge_calls: int


class UsageRow(Used):
    """Tokens and dollars of one session, project, agent, model or day."""

    key: str


class AccountInUse(Shown):
    """An account that sessions use, and its usage limit if it met one."""

    account: str
    model: str | None
    """Only this model is held; none: all are."""
    state: Literal["free", "held", "trying"]
    """`trying`: its time is up, and one session sees whether the limit is over."""
    until: str | None
    reset_known: bool | None
    """False: nobody said until when; it is a guess."""
    reason: str | None
    agents: list[str]
    working: int
    waiting: int


class BudgetInForce(Shown):
    """A budget, and what is spent and set aside of it."""

    scope: Literal["session", "day", "project"]
    name: str
    projects: list[str]
    profile: str | None
    unit: Literal["usd", "tokens"]
    budget: float
    spent: float | None
    """None: it is each session's own."""
    reserved: float | None
    unknown: list[str]
    """Sessions whose use nobody knows in this unit: for them it cannot be enforced."""


class UsageTable(Shown):
    """What was used."""

    rows: list[UsageRow]
    total: Used
    accounts: list[AccountInUse]
    budgets: list[BudgetInForce]


class ReleasedAccounts(Shown):
    """Holds that were lifted."""

    released: list[str]
    at: str


class Permission(Shown):
    """What an agent asks to do, or may do without asking."""

    tool: str
    command: str | None
    reason: str | None


class AllowedForGood(Shown):
    """What a person allowed for good in a project."""

    project: str
    tool: str
    command: str


class Permissions(Shown):
    """What was allowed for good."""

    permissions: list[AllowedForGood]


class Question(Shown):
    """Something that waits for a person."""

    session: str
    kind: Literal["question", "permission", "message", "offer"]
    text: str
    request: str | None
    permission: Permission | None
    message: str | None
    offer: str | None
    since: str
    context: list[str]


class Questions(Shown):
    """What waits for a person, oldest first."""

    questions: list[Question]


class Diff(Shown):
    """A session's change."""

    diff: str
    stat: str
    base: str
    head: str
    files: list[Any]
    omitted: list[str]
    uncommitted: list[str]


class Why(Shown):
    """The facts, evidence and rules behind a status."""

    session: str
    status: str
    column: str
    evidence: Evidence
    lines: list[str]
    facts: dict[str, Any]
    effects: list[Any]
    reactions: list[Any]


class Environment(Shown):
    """Where a session works, and with which variables."""

    cwd: str
    env: dict[str, str]
    node: str | None
    """The machine of the cluster that it is on; none: this one."""


class Attach(Shown):
    """The command that shows a session's terminal."""

    argv: list[str]
    env: dict[str, str]


class PluginFile(Shown):
    """A file of code that may be run, with this content."""

    path: str
    sha256: str


class WindowTerminal(Shown):
    """The terminal plugin that a project's configuration names."""

    plugin: str
    options: dict[str, Any]
    files: list[PluginFile]


class Window(Shown):
    """What a session is shown by on a person's screen."""

    session: str
    live: bool
    workspace_path: str | None
    node: str | None
    cwd: str
    url: str
    terminal: WindowTerminal


class Event(Shown):
    """One thing that happened."""

    seq: int
    type: str
    session: str | None
    project: str | None
    source: str
    time: str
    data: dict[str, Any]


class NamedFailure(Shown):
    """One failing test, or one error."""

    name: str
    message: str


class FailingCheck(ChangeCheck):
    """A check that is not simply green, with what explains it."""

    summary: str
    """The relevant part of its output."""
    log: str
    new_failures: list[NamedFailure]
    """Those that the base branch does not have."""
    known_failures: list[str]
    """Those that the base branch has too."""
    owned_failures: list[str]
    """Those of them that the session's task is to fix."""
    vanished: list[str]
    """Tests that pass on the base branch and are gone."""
    newly_skipped: list[str]
    """Tests that pass on the base branch and are skipped."""
    fewer: int
    """How many tests fewer are run than on the base branch, where they cannot be named."""
    remedy: str | None
    """How to set the environment up."""
    command: str | None
    """The command that runs it by hand, in the workspace."""


class Review(Shown):
    """Somebody's judgement."""

    id: str
    verdict: Literal["approved", "changes_requested", "commented"]
    author: str
    write_access: Literal["yes", "no", "unknown"]
    kind: Literal["person", "bot", "agent"]
    reviewer: str | None
    counts: bool
    body: str
    head: str
    at: str


class ThreadComment(Shown):
    """One comment of a thread."""

    id: str
    author: str
    write_access: Literal["yes", "no", "unknown"]
    body: str
    by_agent: bool
    kind: Literal["person", "bot", "agent"]
    at: str


class Thread(Shown):
    """A comment and the answers to it."""

    id: str
    path: str | None
    line: int | None
    resolved: bool
    comments: list[ThreadComment]


class PullRequestView(PullRequest):
    """A pull request with what was said about it."""

    session: str
    title: str
    base: str
    refused: str | None
    conflicts: list[str]
    failing: list[FailingCheck]
    reviews: list[Review]
    requested: list[str]
    threads: list[Thread]


class Rule(Shown):
    """A reaction rule in force; of a session also how far it is."""

    name: str
    trigger: str
    auto: bool
    action: str
    message: str | None
    retries: int | None
    backoff: list[float] | None
    escalate_after: int | str | None
    escalate: bool
    threshold: float | None
    delay: float | None
    unless_watched: bool
    condition: str | None
    priority: str | None
    strategy: str | None
    delete_after: bool
    include_summary: bool
    approval_after: int | None
    command: list[str] | None
    timeout: float | None
    agent: str | None
    source: Literal["default", "changed", "configured"]
    holds: bool | None
    attempts: int
    escalated: bool
    since: str | None


class Rules(Shown):
    """The reaction rules in force."""

    rules: list[Rule]


class TestedRule(Shown):
    """What a rule would do."""

    rule: str
    action: str
    holds: bool | None
    sample: list[str]
    condition: str | None
    applies: bool
    offered: bool
    attempt: int
    exhausted: bool
    after: float
    text: str | None
    held_for: str | None
    to: str
    command: list[str] | None
    problem: str | None


class TestedRules(Shown):
    """What the rules of a trigger would do for a session."""

    session: str
    trigger: str
    rules: list[TestedRule]


class Undone(Shown):
    """The change that takes a landing back; it lands like any other."""

    session: str
    branch: str
    commit: str
    change: Session


class QueueEntry(Shown):
    """A change that is to land."""

    session: str
    position: int
    """In the queue of its base branch, from 1."""
    state: Literal["queued", "checking", "green", "landing", "waiting"]
    reason: str | None
    """What it waits for."""
    base: str
    ahead: list[str]
    """The sessions that it is built on top of."""
    tree: str | None
    """What is checked, and what the base will be."""
    checks: list[Check]
    passed_by: list[str]
    """The sessions that go before it although they asked later: they collide with fewer others, or were under way already."""
    collides: list[str]
    """The sessions in its queue that it is predicted to conflict with."""


class Queue(Shown):
    """What is to land, in order."""

    entries: list[QueueEntry]


class Pair(Shown):
    """Two sessions that will collide; `a` is the elder."""

    a: str
    b: str
    files: list[str]
    kind: Literal["text", "overlap"]


class Pairs(Shown):
    """Which sessions will collide, and on what."""

    pairs: list[Pair]


class IssueComment(Shown):
    """Something said about an issue."""

    id: str
    author: str
    write_access: Literal["yes", "no", "unknown"]
    body: str
    at: str


class Issue(Shown):
    """Something that is wanted."""

    number: int
    key: str
    id: str
    project: str
    title: str
    body: str
    state: Literal["open", "closed"]
    labels: list[str]
    author: str
    write_access: Literal["yes", "no", "unknown"]
    assignee: str | None
    after: list[int]
    comments: list[IssueComment]
    sessions: list[str]
    waiting_for: str | None
    created_at: str
    updated_at: str
    url: str | None


class Unread(Shown):
    """A project whose tracker could not be read: what is told of its issues may be old."""

    project: str
    why: str


class Issues(Shown):
    """Issues of the tracker."""

    issues: list[Issue]
    unread: list[Unread]


class BacklogEntry(Shown):
    """An open issue, who would take it, and why that has not come yet."""

    position: int
    issue: int
    key: str
    id: str
    project: str
    title: str
    labels: list[str]
    profile: str | None
    agent: str | None
    matched_by: str | None
    priority: int
    plan: str | None
    session: str | None
    """Who is at it."""
    auto: bool
    """It is taken by itself, once nothing stands in its way."""
    needs_you: bool
    """Something stands in its way that only a person can clear."""
    ready: bool
    reasons: list[str]


class Backlog(Shown):
    """Open issues in the order that they would be taken."""

    entries: list[BacklogEntry]
    unread: list[Unread]


class FixTool(Shown):
    """Something that finds failures, and how many it finds."""

    name: str
    command: str
    folder: str | None
    before: int | None
    after: int | None
    problem: str | None
    """Why it could not be run."""


class FixGroup(Shown):
    """Failures that likely have one cause."""

    number: int
    title: str
    count: int
    tools: dict[str, int]
    files: list[str]
    session: str | None
    status: str | None
    """The session's."""
    why: str | None
    outcome: Literal["landed", "ready", "failed", "stopped", "later"] | None
    commit: str | None
    reason: str | None


class FixRound(Shown):
    """What was measured at one commit of the base, and what was done about it."""

    number: int
    commit: str
    at: str
    total: int
    counts: dict[str, int]
    problems: dict[str, str]
    groups: list[FixGroup]


class Fix(Shown):
    """A fixing run."""

    id: str
    project: str
    state: Literal["measuring", "working", "green", "left", "review", "measured", "not_set_up", "stopped", "failed"]
    ended: bool
    reason: str | None
    base: str
    commands: list[str]
    """What is run beside the configured checks, instead of tools that are found."""
    agent: str | None
    """Absent: the project's."""
    model: str | None
    max_rounds: int
    max_agents: int | None
    merge: bool
    dry_run: bool
    progress: str | None
    before: int | None
    after: int | None
    tools: list[FixTool]
    rounds: list[FixRound]
    created_at: str
    updated_at: str


class Fixes(Shown):
    """Fixing runs."""

    fixes: list[Fix]


class Failing(Shown):
    """One thing that is wrong."""

    tool: str
    id: str
    file: str
    line: int
    message: str
    detail: str


class Cause(Shown):
    """Failures that likely have one cause."""

    key: str
    title: str
    failures: list[Failing]


class FixFailures(Shown):
    """What one measurement found."""

    id: str
    round: int
    groups: list[Cause]


class PlannedTask(Shown):
    """One task of a plan; `sessions` and `status` are known once it is applied."""

    id: str
    title: str
    description: str
    acceptance: list[str]
    dependencies: list[str]
    effort: Literal["small", "medium", "large"]
    labels: list[str]
    files: list[str]
    profile: str | None
    priority: int
    issue: int | None
    issue_key: str | None
    sessions: list[str]
    status: str | None


class Plan(Shown):
    """A goal made into tasks."""

    id: str
    project: str
    goal: str
    state: Literal["planning", "draft", "failed", "applying", "applied", "discarded"]
    tasks: list[PlannedTask]
    notes: list[str]
    error: str | None
    progress: str | None
    agent: str | None
    usage: Usage
    created_at: str
    updated_at: str


class Plans(Shown):
    """Plans, the newest first."""

    plans: list[Plan]


class Notification(Shown):
    """Something that a person was told."""

    id: int
    session: str | None
    project: str | None
    title: str
    message: str
    level: Literal["urgent", "action", "warning", "info"]
    trigger: str
    at: str


class Notifications(Shown):
    """What people were told, newest first."""

    notifications: list[Notification]


class TriedNotifier(Shown):
    """What came of a test by one notifier."""

    name: str
    plugin: str
    project: str | None
    levels: list[Literal["urgent", "action", "warning", "info"]]
    """Of which notifications go to it."""
    sent: bool
    problem: str | None
    remedy: str | None


class TriedNotifiers(Shown):
    """What came of a test by each notifier."""

    notifiers: list[TriedNotifier]


class Events(Shown):
    """Events in order."""

    events: list[Event]


class Step(Shown):
    """What an event of a recorded log would lead to today."""

    seq: int
    type: str
    session: str | None
    status: str | None
    intents: list[dict[str, Any]]


class Steps(Shown):
    """A recorded log, run through today's rules."""

    steps: list[Step]


class Project(Shown):
    """A repository that we work in."""

    id: str
    name: str
    path: str
    repo: str | None
    default_branch: str | None
    config: str | None
    trusted: bool | None
    sessions: int


class Candidate(Shown):
    """One way to set a repository up and to test it, and the files that say so."""

    ecosystem: str
    set_up: list[str]
    test: str | None
    lint: str | None
    evidence: list[str]


class Proposal(Shown):
    """What was detected for a project: commands that do not run before somebody confirms them."""

    keys: list[str]
    """What it would set: `postCreate`, `ci`."""
    commands: list[str]
    """What agents may run without asking once it is confirmed."""
    candidates: list[Candidate]
    """The most likely first; the others are tried where it does not work."""
    digest: str


class AddedProject(Project):
    """A repository that was just registered."""

    created: str | None
    """The configuration that was written."""
    agent: str
    proposal: Proposal | None


class ProvenSetUp(Shown):
    """The set-up commands, and how long they took."""

    commands: list[str]
    seconds: float


class ProvenFailure(Shown):
    """A test that fails on the base branch."""

    name: str
    message: str


class ProvenCheck(Shown):
    """What a check came to on the base branch."""

    name: str
    command: str
    state: Literal["success", "failure", "flaky", "not_set_up", "unknown"]
    """`unknown`: it was not run."""
    seconds: float
    passed: int | None
    failed: int | None
    skipped: int | None
    failures: list[ProvenFailure]


class Tried(Shown):
    """One way to set up and test that was tried, and why it does not work, if it does not."""

    ecosystem: str
    set_up: list[str]
    test: str | None
    proven: bool
    reason: str


class Proof(Shown):
    """What came of running a project's set-up and checks in a clean checkout of its base branch."""

    project: str
    base: str
    commit: str
    proven: bool
    """Set-up and checks work; tests may fail all the same."""
    reason: str
    summary: str
    """The relevant lines of what does not work."""
    set_up: ProvenSetUp
    checks: list[ProvenCheck]
    tried: list[Tried]
    left_out: list[str]
    """What was detected and is not written, and why."""
    drift: list[str]
    """Where configuration and files differ."""
    written: str | None
    """The file that was written."""


class ProofRunning(Shown):
    """The command that is being run."""

    command: str
    seconds: float
    attempt: int
    of: int


class ProofLine(Shown):
    """A line of a proof: what is `running`, at last the `proof`, or the `problem` that ended it."""

    running: ProofRunning | None = None
    proof: Proof | None = None
    problem: Problem | None = None


class Projects(Shown):
    """All projects."""

    projects: list[Project]
    here: str | None
    """The one that the caller's folder belongs to."""


class Trust(Shown):
    """Commands that came with a repository, and whether they may run."""

    project: str
    commands: list[Any]
    digest: str
    trusted: bool


class Value(Shown):
    """A value of the configuration, and the file it stands in."""

    key: str
    value: Any
    file: str | None


class Validity(Shown):
    """What a check of a configuration found."""

    valid: bool
    errors: list[Any]
    warnings: list[Any]


class ImportedKey(Shown):
    """What became of one key of another orchestrator's configuration."""

    key: str
    outcome: Literal["taken", "changed", "dropped", "kept"]
    to: str
    note: str


class Imported(Shown):
    """A configuration that was taken over, and the file as it is with it."""

    kind: str
    source: str
    file: str
    written: bool
    itself: bool
    """It is the configuration here already, and loads as it is."""
    text: str
    entries: list[ImportedKey]
    warnings: list[str]
    commands: list[str]
    """What the file would run or open that it does not yet, as `ao trust` shows it."""
    digest: str
    """Of what is shown here: whoever has it written gives it, once a person has read `commands`. Empty: nobody needs to."""


class Agent(Shown):
    """A coding agent's CLI on this machine, or a profile of a project: a name that a task may be given to."""

    name: str
    project: str | None
    """The project whose profile it is; none: an agent, which every project may use."""
    tool: str
    """The agent that works under this name."""
    role: str | None
    """Of a profile: `worker` or `reviewer`."""
    found: bool
    path: str | None
    version: str | None
    problem: str | None
    """Why it cannot be used."""


class Agents(Shown):
    """All agents that we know of, and the profiles of all projects."""

    agents: list[Agent]


class Plugin(Shown):
    """A plugin, and whether it may be used."""

    slot: str | None
    """None: it is known once its file is run."""
    name: str
    origin: str
    """`built in`, an installed package, or a file."""
    version: str | None
    permissions: list[str] | None
    """What it declares that it needs: `network`, `files`, `processes`, `secrets`; null: it declares nothing."""
    digest: str | None
    """SHA-256 of its file."""
    in_force: bool
    problem: str | None
    """Why it is not in force."""


class Plugins(Shown):
    """All plugins."""

    plugins: list[Plugin]


class Task(Shown):
    """Something that is wanted, and the sessions that attempt it."""

    id: str
    project: str
    title: str
    description: str
    issue: str | None
    labels: list[str]
    priority: int
    after: list[str]
    sessions: list[str]
    created_at: str


class Tasks(Shown):
    """What is wanted."""

    tasks: list[Task]


class Finding(Shown):
    """One prerequisite or integration."""

    name: str
    state: Literal["ok", "warning", "failed"]
    detail: str
    remedy: str | None


class Findings(Shown):
    """What a look at this machine found."""

    checks: list[Finding]


class Pruned(Shown):
    """What a clean-up removed, and what it kept."""

    removed: list[dict[str, Any]]
    kept: list[dict[str, Any]]
    dry_run: bool


class Token(Shown):
    """A named token, or a browser that signed in, without what would open anything."""

    id: str
    name: str
    role: str
    created_at: str
    kind: Literal["token", "login", "node"]
    expires_at: str | None


class Tokens(Shown):
    """All named tokens, and all browsers that are signed in."""

    tokens: list[Token]


class MadeToken(Token):
    """A new token; it is shown this once."""

    token: str


class ActiveDaemon(Shown):
    """The daemon that is active."""

    host: str
    pid: int
    since: str
    url: str


class Node(Shown):
    """A machine of the cluster."""

    name: str
    state: Literal["ready", "draining", "unreachable", "gone"]
    reason: str
    address: str
    labels: dict[str, str]
    cpus: float
    memory: int
    """In bytes, as all sizes here."""
    free_cpus: float
    """Not reserved by sessions."""
    free_memory: int
    load: float | None
    """Its load average of the last minute, as it tells just now."""
    available_memory: int | None
    """What it has left, as it tells just now."""
    sessions: list[str]
    since: str | None
    draining: bool


class Nodes(Shown):
    """All machines of the cluster."""

    nodes: list[Node]


class Staying(Shown):
    """A session that has not left yet."""

    session: str
    waits: str


class Draining(Shown):
    """How far a node is drained."""

    node: Node
    left: list[Staying]


class MadeNode(Shown):
    """What a machine needs to join; the token is shown this once."""

    name: str
    token: str
    url: str
    home: str
    command: str


class Health(Shown):
    """The daemon runs. `standby`: another one is active on the same database, and everything else is to be asked of that one."""

    status: Literal["ok", "standby"]
    version: str
    pid: int
    active: ActiveDaemon | None = None
