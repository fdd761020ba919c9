"""Every key there is, with its type, its default and one line on what it does.

The models are what `old_spellings.py` makes of a file: one spelling each, values with a unit parsed. Which fields a file set is
kept (`model_fields_set`), so that files and projects merge field by field (`merge.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from agent_orchestrator.config import units
from agent_orchestrator.config.field_types import (
    Action,
    Approval,
    Argument,
    BranchPattern,
    CheckOn,
    Condition,
    Conversation,
    Count,
    Cpus,
    Database,
    Duration,
    Engine,
    Environment,
    Escalation,
    Extras,
    Folders,
    Insides,
    Message,
    Mode,
    Money,
    Name,
    Network,
    Pattern,
    Pause,
    Permissions,
    PlainPath,
    Port,
    Positive,
    Priority,
    PromptBy,
    QuietHours,
    Rate,
    RedBase,
    Role,
    Sandbox,
    Size,
    Strategy,
    Text,
    Texts,
    Trigger,
)


class Model(BaseModel):
    """What all parts share: unchangeable, camelCase outside, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class PluginSection(Model):
    """A plugin by name, with its options."""

    model_config = ConfigDict(extra="allow")

    plugin: Name = Field(default="auto", description="the plugin's name")

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the name: what the plugin receives."""
        return dict(self.model_extra or {})


class CheckSection(Model):
    """A local check: a command that must succeed at the exact commit, in a clean checkout."""

    command: Text = Field(description="shell command")
    timeout: Duration = Field(default=1800.0, description="time limit")
    parallel: Positive = Field(default=1, description="how many of them may run at once")
    on: CheckOn = Field(
        default="done", description="when it runs: the agent is done, at each commit, or only when asked"
    )


class Ports(Model):
    """Each session's own block of ports."""

    base: Annotated[int, Field(ge=1, le=65535)] = Field(default=4000, description="first port of the first block")
    count: Annotated[int, Field(ge=1, le=1000)] = Field(default=5, description="ports a session: $AO_PORT_0 …, $PORT")


class AgentConfigSection(Model):
    """How the agent is run; other keys go to the agent plugin as they are."""

    model_config = ConfigDict(extra="allow")

    model: Text | None = Field(default=None, description="model; absent: the agent's own default")
    permissions: Permissions = Field(default="auto-edit", description="what it may do without asking")
    mode: Mode = Field(default="tui", description="in its terminal interface, or a structured turn a message")
    mcp: bool = Field(
        default=True, description="give it our MCP tools: report, ask a person, see who touches its files"
    )

    @property
    def options(self) -> dict[str, Any]:
        """Everything that only the agent plugin knows."""
        return dict(self.model_extra or {})


class Budget(Model):
    """What may be spent before a session is paused with its work saved; of a profile: by its sessions."""

    per_session: Money | None = Field(default=None, description="a session")
    per_day: Money | None = Field(default=None, description="all sessions of the project in a day (UTC)")
    per_project: Money | None = Field(default=None, description="all sessions of the project, ever")


class FleetBudget(Model):
    """What all projects of the file may spend together."""

    per_day: Money | None = Field(default=None, description="all sessions of these projects in a day (UTC)")


class DockerSection(Model):
    """The container of runtime docker."""

    image: Text | None = Field(default=None, description="image; absent: built from dockerfile, or the shipped one")
    dockerfile: Text | None = Field(default=None, description="Dockerfile, relative to the repository")
    network: Network = Field(default="allowlist", description="what it may reach")
    allow: Texts = Field(default=(), description="hosts it may reach beyond the agent's own, for network allowlist")
    cpus: Annotated[Cpus, Field(gt=0)] | None = Field(default=None, description="CPU limit")
    memory: Size | None = Field(default=None, description="memory limit")
    mounts: Texts = Field(
        default=(), description="your files and folders that it sees too: ~/.npmrc (to read), ~/.claude:rw"
    )
    engine: Engine = Field(default="auto", description="docker or podman; auto: the first that answers")


class Coordinator(Model):
    """The coordinating agent of a project."""

    agent: Text | None = Field(default=None, description="agent or profile; absent: the project's")
    auto: bool = Field(default=False, description="start it with the daemon")
    model: Text | None = Field(default=None, description="model; absent: the agent's own default")
    permissions: Permissions = Field(default="default", description="what it may do without asking")
    rules: Text = Field(default="", description="text added to its prompt")
    may: Extras = Field(
        default=(), description="what it may do beyond planning, starting and steering: merge, review, answer, edit"
    )
    max_sessions: Positive = Field(
        default=20, description="unfinished sessions of its making that there may be at once"
    )
    digest: Duration = Field(default=30.0, description="how long news are gathered before it is told of them together")
    conversation: Conversation = Field(
        default="continue", description="started again after a stop: go on with its conversation, or begin a new one"
    )


class Reaction(Model):
    """One rule, as far as the user says; the rest is the default of its name."""

    trigger: Trigger | None = Field(default=None, description="what sets it off; absent: the rule's name")
    auto: bool | None = Field(default=None, description="false: notify, and offer the action to a person")
    action: Action | None = Field(default=None, description="what is done")
    message: Message | None = Field(default=None, description="template of what is sent or told")
    retries: Count | None = Field(default=None, description="attempts in one unbroken episode")
    backoff: Pause | None = Field(default=None, description="pause before the second attempt, and its most")
    escalate_after: Escalation | None = Field(
        default=None, description="call a person after so many attempts, or so much time"
    )
    escalate: bool | None = Field(default=None, description="after the last retry, notify with priority urgent")
    threshold: Duration | None = Field(default=None, description="how long the state must have lasted")
    delay: Duration | None = Field(default=None, description="wait, and act only if the state still holds")
    unless_watched: bool | None = Field(default=None, description="not while a person looks at the session")
    condition: Condition | None = Field(default=None, description="expression that must hold")
    priority: Priority | None = Field(default=None, description="priority of the notifications it makes")
    strategy: Strategy | None = Field(default=None, description="how a merge is made")
    delete_after: bool | None = Field(default=None, description="remove the branch once it has landed")
    include_summary: bool | None = Field(default=None, description="add a summary to the notification")
    approval_after: Count | None = Field(
        default=None, description="from the time after this many, a person must say yes"
    )
    command: Text | None = Field(default=None, description="for action command: what is run in the workspace")
    timeout: Duration | None = Field(default=None, description="for action command: time limit; absent: 10m")
    agent: Text | None = Field(default=None, description="for action spawn: profile or agent")


Reactions = dict[Name, Reaction]


class ReviewSection(Model):
    """Reviews by agents."""

    max_rounds: Positive = Field(default=3, description="how often one agent judges a change before a person is called")
    approval: Approval = Field(
        default="person", description="whose approval is enough: a person's alone, or that of a reviewing agent too"
    )


class FixSection(Model):
    """How `ao fix` finds what fails."""

    commands: Texts = Field(default=(), description="test and lint commands; absent: found by the project's files")
    timeout: Duration = Field(default=1800.0, description="time limit of each of them")
    parallel: Positive = Field(default=2, description="how many fixes are verified at once")


class Filters(Model):
    """Which work a profile takes."""

    labels: Texts = Field(default=(), description="any of these labels")
    exclude_labels: Texts = Field(default=(), description="none of these labels")
    languages: Texts = Field(default=(), description="languages it is good at")
    paths: Texts = Field(default=(), description="glob patterns of files it is good at")


class Screen(Model):
    """Regular expressions for an agent's screen; its spool wins over the screen."""

    ready: Pattern | None = Field(default=None, description="it waits for input")
    busy: Pattern | None = Field(default=None, description="it works")
    blocked: Pattern | None = Field(default=None, description="it asks for permission")


class Profile(Model):
    """An agent with a purpose: who takes which work, and how it is run."""

    tool: Name | None = Field(default=None, description="agent plugin; absent: the project's agent")
    role: Role = Field(
        default="worker", description="what action spawn makes of it: a worker, or a reviewer of the change"
    )
    runtime: Name | None = Field(default=None, description="runtime; absent: the project's")
    workspace: Name | None = Field(default=None, description="workspace; absent: the project's")
    skills: Texts = Field(default=(), description="what it is good at; part of its prompt")
    filters: Filters = Field(default=Filters(), description="which work it takes")
    model: Text | None = Field(default=None, description="model")
    permissions: Permissions | None = Field(
        default=None, description="what it may do without asking; absent: the project's"
    )
    mode: Mode | None = Field(default=None, description="tui or headless; absent: the project's")
    rules: Text = Field(default="", description="text added to its prompt")
    env: Environment = Field(default={}, description="environment of its agents")
    account: Name | None = Field(
        default=None, description="whose usage limits it shares; absent: all profiles of its tool share one account"
    )
    max_parallel_agents: Positive | None = Field(default=None, description="how many of it may work at once")
    budget: Budget = Field(default=Budget(), description="what it may spend")
    reactions: Reactions = Field(default={}, description="reactions of its sessions")
    command: tuple[Argument, ...] = Field(default=(), description="tool command: program and arguments")
    prompt: PromptBy | None = Field(
        default=None, description="tool command: how the first prompt reaches it; absent: as it names"
    )
    resume: tuple[Argument, ...] = Field(
        default=(), description="tool command: how it continues; absent: the command again"
    )
    screen: Screen = Field(default=Screen(), description="tool command: what its screen tells")
    script: Text | None = Field(default=None, description="tool demo: what it plays")
    options: dict[str, Any] = Field(default={}, description="anything else the agent plugin knows")

    @model_validator(mode="after")
    def _fits_its_tool(self) -> Self:
        if self.tool == "command" and not self.command:
            raise ValueError("tool command needs a command; write command: [program, argument, …]")
        if self.command and self.tool not in (None, "command"):
            raise ValueError(f'command belongs to tool command, not to "{self.tool}"')
        return self


class Routing(Model):
    """The notifiers to use, by priority; absent: `defaults.notifiers`."""

    urgent: Texts | None = Field(default=None, description="somebody must act now")
    action: Texts | None = Field(default=None, description="somebody may act")
    warning: Texts | None = Field(default=None, description="something is odd")
    info: Texts | None = Field(default=None, description="good to know")


class Defaults(Model):
    """What holds for all projects of the file."""

    runtime: Name = Field(
        default="auto", description="tmux, process, docker or ray; auto: tmux where it is, else process"
    )
    agent: Text = Field(default="claude-code", description="agent or profile")
    workspace: Name = Field(
        default="worktree",
        description="worktree or clone; absent: what the agent needs, and a clone in a sandbox",
    )
    tracker: PluginSection = Field(
        default=PluginSection(), description="where issues are: local, github, gitlab, linear or jira"
    )
    scm: PluginSection = Field(default=PluginSection(), description="where pull requests are: local, github or gitlab")
    notifiers: Texts = Field(default=("desktop",), description="who is told")
    terminal: PluginSection = Field(
        default=PluginSection(),
        description="what `ao open` shows sessions in: web, tmux, iterm2, windows-terminal, kitty, wezterm, gnome-terminal or command;"
        " auto: what you sit at",
    )
    agent_config: AgentConfigSection = Field(default=AgentConfigSection(), description="how agents are run")


class Project(Defaults):
    """A repository. What it leaves out comes from `defaults`."""

    name: Text | None = Field(default=None, description="name shown; absent: its id")
    repo: Text | None = Field(default=None, description="owner/name at the forge; absent: the local forge serves")
    path: Text | None = Field(
        default=None, description="folder, relative to the file; may be left out by a file's only project"
    )
    default_branch: Text | None = Field(
        default=None, description="branch that work starts from and lands on; absent: found"
    )
    session_prefix: Name | None = Field(default=None, description="first part of its sessions' ids; absent: its id")
    ci: dict[Name, CheckSection] = Field(default={}, description="local checks: one, or a map of named ones")
    commands: Texts = Field(
        default=(),
        description="lint, build and other commands that its agents may run without asking, beside those of ci",
    )
    symlinks: Insides = Field(default=(), description="paths shared with the main checkout")
    copy_: Insides = Field(default=(), alias="copy", description="files copied into each workspace")
    sparse: Folders = Field(
        default=(), description="the only folders that a workspace gets (Git's sparse checkout); absent: all"
    )
    post_create: Texts = Field(default=(), description="shell commands run in a new workspace")
    red_base: RedBase = Field(
        default="allow-known",
        description="whether failures that the base branch has too hold a merge: allow-known, forbid",
    )
    ports: Ports | None = Field(default=None, description="each session its own block of ports")
    env: Environment = Field(default={}, description="environment of its agents")
    worktree_dir: PlainPath | None = Field(
        default=None,
        description="where its workspaces are, without quotes, `$`, `;` and the like; absent: below $AO_HOME",
    )
    branch_pattern: BranchPattern | None = Field(
        default=None, description="template of branch names; absent: feature/…"
    )
    agent_rules: Text = Field(default="", description="text added to each prompt")
    agent_rules_file: Text | None = Field(
        default=None, description="file with such text, relative to the repository; 256 KB at most"
    )
    trusted_authors: Texts = Field(
        default=(), description="authors whose words need no person's, though they may not write to the repository"
    )
    review: ReviewSection = Field(default=ReviewSection(), description="reviews by agents")
    fix: FixSection = Field(default=FixSection(), description="how failing tests and lint errors are found")
    budget: Budget = Field(default=Budget(), description="what may be spent")
    docker: DockerSection = Field(default=DockerSection(), description="container of runtime docker")
    sandbox: Sandbox = Field(default="none", description="bwrap: a sandbox for tmux and process on Linux")
    max_parallel_agents: Positive | None = Field(
        default=None, description="how many agents may work at once; absent: no limit"
    )
    coordinator: Coordinator = Field(default=Coordinator(), description="its coordinating agent")
    notification_routing: Routing = Field(
        default=Routing(), description="who is told of it, by priority, over the file's"
    )
    reactions: Reactions = Field(default={}, description="reactions of its sessions, over the file's")


class PlannerSection(Model):
    """Who makes tasks of a goal (`ao plan`), and how much he may take for it."""

    agent: Text | None = Field(
        default=None, description="agent or profile, with a headless mode; absent: the project's"
    )
    model: Text | None = Field(default=None, description="model; absent: the agent's own default")
    max_tasks: Positive = Field(default=20, description="tasks that a plan may have")
    attempts: Positive = Field(
        default=3, description="how often it is asked before a plan that cannot be used has failed"
    )
    timeout: Duration = Field(default=900.0, description="time limit of a planning, all attempts together")


class OrchestratorSection(Model):
    """Who works when."""

    max_parallel_agents: Positive | None = Field(
        default=None, description="how many agents may work at once; absent: no limit"
    )
    auto_assign: bool = Field(
        default=False, description="take open issues without being asked, by the profiles' filters"
    )
    budget: FleetBudget = Field(default=FleetBudget(), description="what all projects of the file may spend")
    coordinator: Coordinator = Field(default=Coordinator(), description="the coordinating agent of each project")
    planner: PlannerSection = Field(default=PlannerSection(), description="who makes tasks of a goal")


class PowerSection(Model):
    """The machine's sleep."""

    prevent_idle_sleep: bool = Field(default=True, description="stay awake while agents work")


class Tls(Model):
    """How TCP is protected; where `host` is reached from other machines, one of these must be said."""

    own: bool = Field(default=False, description="a certificate of the daemon's own, made once in $AO_HOME/tls")
    cert: Text | None = Field(default=None, description="instead: a certificate's file (PEM), by its whole path")
    key: Text | None = Field(default=None, description="and its key's file")
    insecure: bool = Field(default=False, description="go without it all the same; counts only in $AO_HOME/config.yaml")


class ResourcesSection(Model):
    """What a session takes of a node."""

    cpus: Cpus = Field(default=1.0, description="CPUs")
    memory: Size = Field(default=2 << 30, description="memory")


class ClusterSection(Model):
    """The machines: the cluster of runtime ray, and what each may bear."""

    address: Text = Field(default="auto", description="address of its head")
    labels: dict[str, Text] = Field(default={}, description="labels that a node must have")
    resources: ResourcesSection = Field(default=ResourcesSection(), description="what a session takes")
    home: Text | None = Field(
        default=None, description="folder of ours on every node, the same path on each; absent: one in /var/tmp"
    )
    url: Text | None = Field(
        default=None, description="address at which nodes reach the daemon; absent: the one it listens on"
    )
    lease: Annotated[Duration, Field(ge=2)] = Field(
        default=10.0, description="how long an agent on a node works on without word from the daemon"
    )
    checkpoint: Duration = Field(default=120.0, description="how often work on a node is saved to the daemon")
    max_parallel_agents: Positive | None = Field(
        default=None, description="how many agents may work at once on one machine, this one too; absent: no limit"
    )


class PluginFile(Model):
    """A plugin in a separate file."""

    path: Text = Field(description="the file, relative to this one")
    name: Name | None = Field(default=None, description="name; absent: the plugin's own")


class NotifierSection(PluginSection):
    """A notifier and its rules; other keys go to the notifier plugin as they are."""

    digest: Duration | None = Field(default=None, description="as in notifications, for this one")
    rate_limit: Rate | None = Field(default=None, description="as in notifications, for this one")
    repeat_after: Duration | None = Field(default=None, description="as in notifications, for this one")
    actions: bool = Field(
        default=False,
        description="add links or buttons by which whoever gets it may answer: allow, deny, merge; absent: only open",
    )


class Notifications(Model):
    """How often people are notified, and where links lead."""

    digest: Duration = Field(
        default=0.0, description="collect what is no more than a warning for so long, and send it as one; 0: at once"
    )
    rate_limit: Rate = Field(
        default=units.Rate(20, 600.0),
        description="messages that one notifier sends, urgent ones counted apart; the last one takes along what waits",
    )
    repeat_after: Duration = Field(default=600.0, description="the same of the same session is not said again before")
    url: Text | None = Field(
        default=None,
        description="address at which people reach the dashboard, for links; absent: the one that the daemon listens on",
    )


class Config(Model):
    """One file."""

    port: Port | None = Field(default=None, description="port of the daemon; absent: 3000, or the next free one")
    host: Text = Field(default="127.0.0.1", description="address it listens on")
    tls: Tls = Field(default=Tls(), description="how TCP is protected")
    database: Database = Field(default="sqlite", description="sqlite, or a postgresql:// URL")
    cluster: ClusterSection | None = Field(default=None, description="for runtime ray, and what one machine bears")
    power: PowerSection = Field(default=PowerSection(), description="the machine's sleep")
    defaults: Defaults = Field(default=Defaults(), description="what holds for all projects of the file")
    projects: dict[Name, Project] = Field(default={}, description="the projects, by id")
    project: Project | None = Field(
        default=None, description="instead of projects: the repository in which the file lies"
    )
    agents: dict[Name, Profile] = Field(default={}, description="profiles: who takes which work")
    orchestrator: OrchestratorSection = Field(default=OrchestratorSection(), description="who works when")
    reactions: Reactions = Field(default={}, description="what is done by itself, by trigger")
    notifiers: dict[Name, NotifierSection] = Field(default={}, description="who is told, and how, by name")
    notification_routing: Routing = Field(default=Routing(), description="who is told, by priority")
    notifications: Notifications = Field(default=Notifications(), description="how often people are told")
    quiet_hours: QuietHours | None = Field(
        default=None,
        description="time in which only what is urgent is told; the rest is told together at its end. Local, or of a named zone;"
        " with urgent: false everything waits",
    )
    plugins: tuple[PluginFile, ...] = Field(default=(), description="plugins in files")


DAEMON_KEYS = ("port", "host", "tls", "database", "cluster", "power")
"""Keys that concern the daemon as a whole, and count in one file only."""


def keys_of(model: type[BaseModel]) -> frozenset[str]:
    """Return a model's keys as they are spelled in a file."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())
