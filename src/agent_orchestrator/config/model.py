"""Every key there is, with its type, its default and one line on what it does.

The models are what `compat.py` makes of a file: one spelling each, values with a unit parsed. Which fields a file set is
kept (`model_fields_set`), so that files and projects merge field by field (`merge.py`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from agent_orchestrator.config import values
from agent_orchestrator.config.problems import nearest
from agent_orchestrator.config.templates import AGENT_VARIABLES, BRANCH_VARIABLES, check_condition, check_template
from agent_orchestrator.flow.rules import ACTIONS, PRIORITIES, STRATEGIES, TEMPLATE_VARIABLES, TRIGGERS

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _text(value: Any) -> Any:
    """Numbers where text is meant count as they were written."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(getattr(value, "written", value))
    if isinstance(value, str) and "\x00" in value:
        raise ValueError("contains a NUL character")
    return value


def _texts(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _inside(value: str) -> str:
    parts = value.replace("\\", "/").split("/")
    if value.startswith(("/", "~", "\\")) or ".." in parts or not value.strip():
        raise ValueError(f"{values.shown(value)} is not a path inside the repository; write it relative to its root")
    return value


def _name(value: str) -> str:
    if not NAME.fullmatch(value) or value.endswith((".", ".lock")) or ".." in value:
        raise ValueError(f"{values.shown(value)} is no name; accepted: letters, digits, '.', '_' and '-', no leading '-'")
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{values.shown(value)} is no regular expression: {error}") from None
    return value


def _one_of(known: tuple[str, ...]) -> BeforeValidator:
    def check(value: Any) -> Any:
        if isinstance(value, str) and value in known:
            return value
        near = nearest(value, known) if isinstance(value, str) else None
        hint = f'did you mean "{near}"? ' if near else ""
        raise ValueError(f"{values.shown(value)} is not accepted; {hint}accepted: {', '.join(known)}")

    return BeforeValidator(check)


def _trigger(value: str) -> str:
    if value in TRIGGERS:
        return value
    if not re.fullmatch(r"[a-z][a-z0-9._-]*", value):
        raise ValueError(f"{values.shown(value)} is no trigger; accepted: {', '.join(TRIGGERS)}, or an event's type")
    if "." not in value and (near := nearest(value, TRIGGERS, 0.85)):
        raise ValueError(f'{values.shown(value)} is no trigger; did you mean "{near}"?')
    return value


def _template(variables: tuple[str, ...]) -> AfterValidator:
    def check(value: str) -> str:
        check_template(value, variables)
        return value

    return AfterValidator(check)


def _variable(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise ValueError(f"{values.shown(value)} is no name of an environment variable")
    return value


def _condition(value: str) -> str:
    if value.strip():
        check_condition(value, TEMPLATE_VARIABLES)
    return value.strip()


def _unit(parse: Any, example: str) -> tuple[Any, ...]:
    schema = {"anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}], "examples": [example]}
    return BeforeValidator(parse), WithJsonSchema(schema)


Text = Annotated[str, BeforeValidator(_text)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_texts)]
Inside = Annotated[Text, AfterValidator(_inside)]
Insides = Annotated[tuple[Inside, ...], BeforeValidator(_texts)]
Name = Annotated[Text, AfterValidator(_name)]
Pattern = Annotated[Text, AfterValidator(_pattern)]
Duration = Annotated[float, *_unit(values.duration, "30m")]
Size = Annotated[int, *_unit(values.size, "4g")]
Money = Annotated[values.Amount, *_unit(values.money, "5 USD"), PlainSerializer(str)]
Pause = Annotated[values.Backoff, *_unit(values.backoff, "30s..10m"), PlainSerializer(str)]
Escalation = Annotated[values.EscalateAfter, *_unit(values.escalate_after, "30m"), PlainSerializer(str)]
Environment = dict[Annotated[str, AfterValidator(_variable)], Text]
Message = Annotated[Text, _template(tuple(TEMPLATE_VARIABLES))]
Argument = Annotated[Text, _template(AGENT_VARIABLES)]
BranchPattern = Annotated[Text, _template(BRANCH_VARIABLES)]
Condition = Annotated[Text, AfterValidator(_condition)]
Trigger = Annotated[Text, AfterValidator(_trigger)]
Permissions = Annotated[Literal["default", "plan", "auto-edit", "full"], _one_of(("default", "plan", "auto-edit", "full"))]
Mode = Annotated[Literal["tui", "headless"], _one_of(("tui", "headless"))]
Sandbox = Annotated[Literal["none", "bwrap"], _one_of(("none", "bwrap"))]
Network = Annotated[Literal["none", "allowlist", "host"], _one_of(("none", "allowlist", "host"))]
CheckOn = Annotated[Literal["done", "commit", "manual"], _one_of(("done", "commit", "manual"))]
PromptBy = Annotated[
    Literal["argument", "file", "stdin", "paste"], _one_of(("argument", "file", "stdin", "paste"))
]
Action = Annotated[str, _one_of(ACTIONS), WithJsonSchema({"enum": [*ACTIONS, "auto-merge"]})]
Priority = Annotated[str, _one_of(PRIORITIES), WithJsonSchema({"enum": list(PRIORITIES)})]
Strategy = Annotated[str, _one_of(STRATEGIES), WithJsonSchema({"enum": list(STRATEGIES)})]
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(ge=1)]


class Model(BaseModel):
    """What all parts share: unchangeable, camelCase outside, unknown keys refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class Plugin(Model):
    """A plugin by name, with options of its own."""

    model_config = ConfigDict(extra="allow")

    plugin: Name = Field("auto", description="the plugin's name")

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the name: what the plugin receives."""
        return dict(self.model_extra or {})


class Check(Model):
    """A local check: a command that must succeed at the exact commit, in a clean checkout."""

    command: Text = Field(description="shell command")
    timeout: Duration = Field(1800.0, description="time limit")
    parallel: Positive = Field(1, description="how many of them may run at once")
    on: CheckOn = Field("done", description="when it runs: the agent is done, at each commit, or only when asked")


class Ports(Model):
    """Each session's own block of ports."""

    base: Annotated[int, Field(ge=1, le=65535)] = Field(4000, description="first port of the first block")
    count: Annotated[int, Field(ge=1, le=1000)] = Field(5, description="ports a session: $AO_PORT_0 …, $PORT")


class AgentConfig(Model):
    """How the agent is run; other keys go to the agent plugin as they are."""

    model_config = ConfigDict(extra="allow")

    model: Text | None = Field(None, description="model; absent: the agent's own default")
    permissions: Permissions = Field("auto-edit", description="what it may do without asking")
    mode: Mode = Field("tui", description="in its terminal interface, or a structured turn a message")

    @property
    def options(self) -> dict[str, Any]:
        """Everything that only the agent plugin knows."""
        return dict(self.model_extra or {})


class Budget(Model):
    """What may be spent before a session is paused with its work saved."""

    per_session: Money | None = Field(None, description="a session")
    per_day: Money | None = Field(None, description="all sessions of the project in a day")


class Docker(Model):
    """The container of runtime docker."""

    image: Text | None = Field(None, description="image; absent: built from dockerfile, or the shipped one")
    dockerfile: Text | None = Field(None, description="Dockerfile, relative to the repository")
    network: Network = Field("allowlist", description="what it may reach")
    allow: Texts = Field((), description="hosts it may reach beyond the agent's own, for network allowlist")
    cpus: Annotated[float, Field(gt=0)] | None = Field(None, description="CPU limit")
    memory: Size | None = Field(None, description="memory limit")


class Coordinator(Model):
    """The coordinating agent of a project."""

    agent: Text | None = Field(None, description="agent or profile; absent: the project's")
    auto: bool = Field(False, description="start it with the daemon")
    model: Text | None = Field(None, description="model; absent: the agent's own default")
    permissions: Permissions = Field("default", description="what it may do without asking")
    rules: Text = Field("", description="text added to its prompt")


class Reaction(Model):
    """One rule, as far as the user says; the rest is the default of its name."""

    trigger: Trigger | None = Field(None, description="what sets it off; absent: the rule's name")
    auto: bool | None = Field(None, description="false: notify, and offer the action to a person")
    action: Action | None = Field(None, description="what is done")
    message: Message | None = Field(None, description="template of what is sent or told")
    retries: Count | None = Field(None, description="attempts in one unbroken episode")
    backoff: Pause | None = Field(None, description="pause before the second attempt, and its most")
    escalate_after: Escalation | None = Field(None, description="call a person after so many attempts, or so much time")
    escalate: bool | None = Field(None, description="after the last retry, notify with priority urgent")
    threshold: Duration | None = Field(None, description="how long the state must have lasted")
    delay: Duration | None = Field(None, description="wait, and act only if the state still holds")
    unless_watched: bool | None = Field(None, description="not while a person looks at the session")
    condition: Condition | None = Field(None, description="expression that must hold")
    priority: Priority | None = Field(None, description="priority of the notifications it makes")
    strategy: Strategy | None = Field(None, description="how a merge is made")
    delete_after: bool | None = Field(None, description="remove the branch once it has landed")
    include_summary: bool | None = Field(None, description="add a summary to the notification")
    approval_after: Count | None = Field(None, description="from the time after this many, a person must say yes")
    command: Text | None = Field(None, description="for action command: what is run in the workspace")
    agent: Text | None = Field(None, description="for action spawn: profile or agent")


Reactions = dict[Name, Reaction]


class Filters(Model):
    """Which work a profile takes."""

    labels: Texts = Field((), description="any of these labels")
    exclude_labels: Texts = Field((), description="none of these labels")
    languages: Texts = Field((), description="languages it is good at")
    paths: Texts = Field((), description="glob patterns of files it is good at")


class Screen(Model):
    """What an agent's screen tells, as regular expressions; its spool wins where both speak."""

    ready: Pattern | None = Field(None, description="it waits for input")
    busy: Pattern | None = Field(None, description="it works")
    blocked: Pattern | None = Field(None, description="it asks for permission")


class Profile(Model):
    """An agent with a purpose: who takes which work, and how it is run."""

    tool: Name | None = Field(None, description="agent plugin; absent: the project's agent")
    runtime: Name | None = Field(None, description="runtime; absent: the project's")
    workspace: Name | None = Field(None, description="workspace; absent: the project's")
    skills: Texts = Field((), description="what it is good at; part of its prompt")
    filters: Filters = Field(Filters(), description="which work it takes")
    model: Text | None = Field(None, description="model")
    permissions: Permissions | None = Field(None, description="what it may do without asking; absent: the project's")
    mode: Mode | None = Field(None, description="tui or headless; absent: the project's")
    rules: Text = Field("", description="text added to its prompt")
    env: Environment = Field({}, description="environment of its agents")
    max_parallel_agents: Positive | None = Field(None, description="how many of it may work at once")
    budget: Budget = Field(Budget(), description="what it may spend")
    reactions: Reactions = Field({}, description="reactions of its sessions")
    command: tuple[Argument, ...] = Field((), description="tool command: program and arguments")
    prompt: PromptBy = Field("argument", description="tool command: how the first prompt reaches it")
    resume: tuple[Argument, ...] = Field((), description="tool command: how it continues; absent: the command again")
    screen: Screen = Field(Screen(), description="tool command: what its screen tells")
    script: Any = Field(None, description="tool demo: what it plays")
    options: dict[str, Any] = Field({}, description="anything else the agent plugin knows")

    @model_validator(mode="after")
    def _fits_its_tool(self) -> Self:
        if self.tool == "command" and not self.command:
            raise ValueError("tool command needs a command; write command: [program, argument, …]")
        if self.command and self.tool not in (None, "command"):
            raise ValueError(f'command belongs to tool command, not to "{self.tool}"')
        return self


class Defaults(Model):
    """What holds for all projects of the file."""

    runtime: Name = Field("auto", description="tmux, process, docker or ray; auto: tmux where it is, else process")
    agent: Text = Field("claude-code", description="agent or profile")
    workspace: Name = Field("worktree", description="worktree or clone")
    tracker: Plugin = Field(Plugin(), description="where issues are: local, github, gitlab, linear or jira")
    scm: Plugin = Field(Plugin(), description="where pull requests are: local, github or gitlab")
    notifiers: Texts = Field(("desktop",), description="who is told")
    terminal: Name = Field("auto", description="what opens a session's terminal")
    agent_config: AgentConfig = Field(AgentConfig(), description="how agents are run")


class Project(Defaults):
    """A repository. What it leaves out comes from `defaults`."""

    name: Text | None = Field(None, description="name shown; absent: its id")
    repo: Text | None = Field(None, description="owner/name at the forge; absent: the local forge serves")
    path: Text | None = Field(None, description="folder, relative to the file; may be left out by a file's only project")
    default_branch: Text | None = Field(None, description="branch that work starts from and lands on; absent: found")
    session_prefix: Name | None = Field(None, description="first part of its sessions' ids; absent: its id")
    ci: dict[Name, Check] = Field({}, description="local checks: one, or a map of named ones")
    symlinks: Insides = Field((), description="paths shared with the main checkout")
    copy_: Insides = Field((), alias="copy", description="files copied into each workspace")
    post_create: Texts = Field((), description="shell commands run in a new workspace")
    ports: Ports | None = Field(None, description="each session its own block of ports")
    env: Environment = Field({}, description="environment of its agents")
    worktree_dir: Text | None = Field(None, description="where its workspaces are; absent: below $AO_HOME")
    branch_pattern: BranchPattern | None = Field(None, description="template of branch names; absent: feature/…")
    agent_rules: Text = Field("", description="text added to each prompt")
    agent_rules_file: Text | None = Field(None, description="file with such text, relative to the repository")
    budget: Budget = Field(Budget(), description="what may be spent")
    docker: Docker = Field(Docker(), description="container of runtime docker")
    sandbox: Sandbox = Field("none", description="bwrap: a sandbox for tmux and process on Linux")
    max_parallel_agents: Positive | None = Field(None, description="how many agents may work at once; absent: no limit")
    coordinator: Coordinator = Field(Coordinator(), description="its coordinating agent")
    reactions: Reactions = Field({}, description="reactions of its sessions, over the file's")


class Orchestrator(Model):
    """Who works when."""

    max_parallel_agents: Positive | None = Field(None, description="how many agents may work at once; absent: no limit")
    auto_assign: bool = Field(False, description="take open issues without being asked, by the profiles' filters")
    coordinator: Coordinator = Field(Coordinator(), description="the coordinating agent of each project")


class Power(Model):
    """The machine's sleep."""

    prevent_idle_sleep: bool = Field(True, description="stay awake while agents work")


class Resources(Model):
    """What a session takes of a node."""

    cpus: Annotated[float, Field(ge=0)] = Field(1.0, description="CPUs")
    memory: Size = Field(2 << 30, description="memory")


class Cluster(Model):
    """The cluster of runtime ray."""

    address: Text = Field("auto", description="address of its head")
    labels: dict[str, Text] = Field({}, description="labels that a node must have")
    resources: Resources = Field(Resources(), description="what a session takes")


class PluginFile(Model):
    """A plugin in a file of its own."""

    path: Text = Field(description="the file, relative to this one")
    name: Name | None = Field(None, description="name; absent: the plugin's own")


class Routing(Model):
    """Who is told, by priority; absent: `defaults.notifiers`."""

    urgent: Texts | None = Field(None, description="somebody must act now")
    action: Texts | None = Field(None, description="somebody may act")
    warning: Texts | None = Field(None, description="something is odd")
    info: Texts | None = Field(None, description="good to know")


class Config(Model):
    """One file."""

    port: Port | None = Field(None, description="port of the daemon; absent: 3000, or the next free one")
    host: Text = Field("127.0.0.1", description="address it listens on")
    database: Text = Field("sqlite", description="sqlite, or a postgresql:// URL")
    cluster: Cluster | None = Field(None, description="for runtime ray")
    power: Power = Field(Power(), description="the machine's sleep")
    defaults: Defaults = Field(Defaults(), description="what holds for all projects of the file")
    projects: dict[Name, Project] = Field({}, description="the projects, by id")
    project: Project | None = Field(None, description="instead of projects: the repository in which the file lies")
    agents: dict[Name, Profile] = Field({}, description="profiles: who takes which work")
    orchestrator: Orchestrator = Field(Orchestrator(), description="who works when")
    reactions: Reactions = Field({}, description="what is done by itself, by trigger")
    notifiers: dict[Name, Plugin] = Field({}, description="who is told, and how, by name")
    notification_routing: Routing = Field(Routing(), description="who is told, by priority")
    plugins: tuple[PluginFile, ...] = Field((), description="plugins in files")


DAEMON_KEYS = ("port", "host", "database", "cluster", "power")
"""Keys that concern the daemon as a whole, and count in one file only."""
