"""The seven slots and what they exchange. Read this file first, then `flow/` from the top.

A session is one agent working on one task in one workspace on one branch. Four slots make one run:

    Workspace  makes the folder and the branch          plugins/workspaces/
    Agent      knows one CLI: how to start, read and talk to it   plugins/agents/
    Runtime    keeps the agent's terminal alive         plugins/runtimes/
    Terminal   opens a session for a person             plugins/terminals/

and three connect it to the world: `Tracker` (issues), `SCM` (pull requests, checks, reviews), both in `forge.py`; `Notifier` (people).

How an agent is heard: it appends lines to its spool (`spool.py` reads them), its plugin listens to its records, transcript, hooks or
protocol (`Listens`), its process ends, its branch moves, its screen changes; `services/observer.py` turns each into an event and
appends it to the flow. What the flow decides comes back as effects
(`services/lifecycle.py`), which call the plugins below.

A plugin is one class in one file. It is made as `Plugin(config, host)`: `config` is its own part of the
configuration, `host` the machine it acts on (`host.py`; the only way to start a process). It keeps no state that a
restart of the daemon would miss: whatever must be remembered goes into what its methods return, which the daemon
stores as events (`flow/events.py`).

Methods that touch the outside are called by effects (`flow/effects.py`), which may be repeated after a crash. So each of
them is safe to call again with the same arguments: it finds what it did and finishes it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from agent_orchestrator.forge import SCM as SCM
from agent_orchestrator.forge import Tracker as Tracker
from agent_orchestrator.records import record

if TYPE_CHECKING:
    import asyncio

    from agent_orchestrator import reports
    from agent_orchestrator.host import Host

Report = Callable[[str], None]
"""Takes one line of live output (of `postCreate`, of a fetch) to be shown to the person who waits."""


class Activity(StrEnum):
    """What the agent is doing, as far as evidence goes."""

    STARTING = "starting"
    ACTIVE = "active"
    IDLE = "idle"
    WAITING_INPUT = "waiting_input"
    BLOCKED = "blocked"
    RETRYING = "retrying"
    LIMITED = "limited"
    INTERRUPTED = "interrupted"
    EXITED = "exited"
    UNKNOWN = "unknown"


# -- Workspace ---------------------------------------------------------------------------------------------------------


@record
class WorkspaceSpec:
    """What a session's folder is to be."""

    session: str
    repo: Path
    """The user's checkout, or the bare repository, that the workspace is made from."""
    path: Path
    """Where the workspace is to be: a folder that does not exist yet, or the unfinished one of an earlier try."""
    link: Path | None
    """Where a symlink to it is to be (`<repo>/.worktrees/<name>`), kept out of `git status`; none: no symlink."""
    private: Path
    """The session's private folder (`$AO_HOME/sessions/<id>`): hooks and the like go here, never into the workspace."""
    branch: str
    base: str
    """Branch, tag or commit to start from. For a branch with a remote the freshest of both is taken."""
    existing: bool = False
    """Continue `branch`, which exists; otherwise it is made and must not exist."""
    last: str = ""
    """Commit at which a branch to be continued was last seen: if it is gone, it is made anew there."""
    copy: tuple[str, ...] = ()
    """Glob patterns relative to `repo`: copied into the workspace (`.env`)."""
    symlinks: tuple[str, ...] = ()
    """Paths relative to `repo`: shared with the main checkout (`node_modules`)."""
    sparse: tuple[str, ...] = ()
    """The only folders to check out, beside the files on the way to them (Git's cone mode); nothing: all."""
    post_create: tuple[str, ...] = ()
    """Shell commands run in the new workspace, in order, with `env`."""
    env: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    """Address that a clone of its own has as `origin`; nothing: what the repository itself has, or is."""
    fetch_timeout: float = 10.0


@record
class WorkspaceInfo:
    """The workspace that was made."""

    path: Path
    branch: str
    base: str
    """Name of the base branch as the project knows it (`main`)."""
    base_commit: str
    head: str
    git_dir: Path
    """Where this workspace's own HEAD lives: its `logs/HEAD` is watched for commits."""
    notes: tuple[str, ...] = ()
    """What the person should know: offline base, signing switched off …"""
    git_env: Mapping[str, str] = field(default_factory=dict)
    """`GIT_CONFIG_*` variables that isolate this workspace's Git configuration and hooks."""
    shared: bool = True
    """Commits made in it are in the main repository at once; otherwise `publish` brings them there."""


@runtime_checkable
class Workspace(Protocol):
    """Makes and removes the folder a session works in."""

    async def create(self, spec: WorkspaceSpec, report: Report) -> WorkspaceInfo:
        """Make the workspace, or finish what an earlier try began; leave nothing behind on failure."""
        ...

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Bring the branch's commits into the main repository; nothing to do where they are there already."""
        ...

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove folder and symlink; the branch stays. The caller has made sure that nothing in it is lost."""
        ...

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Take away what a try that was cut short left, its new branch included; a finished workspace stays, and is told."""
        ...


# -- Runtime -----------------------------------------------------------------------------------------------------------


@record
class Mount:
    """A file or folder of this machine that a container shows."""

    source: Path
    target: Path
    writable: bool = False


@record
class Container:
    """What a session's container is, for a runtime that puts agents into such."""

    image: str = ""
    """The image; none: it is built from `dockerfile`, or from the shipped one."""
    dockerfile: Path | None = None
    agent: str = ""
    """Whose program the shipped image gets."""
    engine: str = "auto"
    network: str = "none"
    """`none`, `allowlist` or `host`."""
    allow: tuple[str, ...] = ()
    """What it may reach with `allowlist`: `host`, `host:port`, `*.domain`."""
    daemon: str = ""
    """Our own address (`http://127.0.0.1:8700`), which it may reach unless its network is `none`."""
    cpus: float | None = None
    memory: int | None = None
    """Bytes."""
    mounts: tuple[Mount, ...] = ()
    """What it shows beside the workspace, its repository's Git folder and the session's private folder."""


@record
class LaunchSpec:
    """A process to start in a terminal of its own."""

    session: str
    generation: int
    """Counts a session's launches from 1; the same session and generation is never started twice."""
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """The whole environment, not an addition to ours."""
    private: Path
    """The session's private folder; the runtime keeps its own files here."""
    log: Path
    """What the terminal shows is appended here, raw."""
    stdin: Path | None = None
    """Read standard input from this file instead of from the terminal."""
    lease: Path | None = None
    """It may run only until the deadline in this file (`nodes/lease.py`), which is put off from time to time; none: for good."""
    columns: int = 120
    rows: int = 40
    container: Container | None = None
    """The container it is to run in, where the runtime has such."""


@record
class Handle:
    """How to find a launched process again, also after a restart of the daemon. Stored as is."""

    runtime: str
    session: str
    generation: int
    pid: int
    """The agent's own process."""
    started: str
    """Its start time as the kernel tells it: pid and start time together name a process for good."""
    boot_id: str
    """The boot it belongs to: another boot id means dead for certain."""
    address: Mapping[str, str]
    """The runtime's own: socket, pane id, holder's pid …"""


@record
class Exit:
    """How a process ended. Unknown on both counts when nobody was there to see it."""

    code: int | None = None
    signal: int | None = None
    reason: str = ""
    """Why, where it was ended from outside: `lease` (it ran out)."""


@record
class Alive:
    """It runs."""


@record
class Gone:
    """It ended for certain; `exit` says how, as far as known. `lost`: its terminal is gone too (tmux or holder killed)."""

    exit: Exit = Exit()
    lost: bool = False


@record
class Unseen:
    """The probe itself failed: says nothing about the process."""

    reason: str


Liveness = Alive | Gone | Unseen


@record
class Delivered:
    """The text was written to the terminal, now or by an earlier call with the same message id."""


@record
class Held:
    """Not written, and nothing was: somebody types there, copy mode … May be tried again."""

    reason: str


@record
class Undeliverable:
    """The terminal is gone. `ambiguous`: it cannot be told whether an earlier call wrote the text before that."""

    reason: str
    ambiguous: bool = False


Delivery = Delivered | Held | Undeliverable


@record
class Typable:
    """It can be typed into the terminal just now; where its turn was to be interrupted, that has been done."""

    first: tuple[str, ...] = ()
    """Keys to be pressed before, to remove what the agent itself left in its prompt."""


@runtime_checkable
class Runtime(Protocol):
    """Keeps an agent's terminal alive, whatever happens to the daemon."""

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Start the process, or find the one that an earlier call with this session and generation started."""
        ...

    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """Look at all of them in one go, in order; constant cost, no process a handle."""
        ...

    async def ended(self, handle: Handle) -> Gone:
        """Return as soon as the process has ended, and say how; costs nothing while it runs."""
        ...

    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Write a message to the terminal, once for each message id, and press Enter. `text` has no control characters."""
        ...

    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Press keys by tmux's names: `Escape`, `C-c`, `Enter`, `y`; with `once` not again if that was the last one pressed."""
        ...

    async def screen(self, handle: Handle) -> str:
        """The visible text, without attributes."""
        ...

    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Set the terminal's size."""
        ...

    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """A command that shows the terminal to a person; any number may run at once.

        `watch`: nothing that is typed reaches the agent, and the size counts only while nobody else is attached.
        """
        ...

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the process and everything it started: asked first, killed after `grace`. Its terminal's log stays."""
        ...

    async def discard(self, handle: Handle) -> None:
        """Forget an ended process's terminal."""
        ...

    async def leftovers(self, known: Sequence[Handle]) -> list[Handle]:
        """Terminals of ours that no known handle names; read from the runtime itself."""
        ...


@runtime_checkable
class Watchable(Protocol):
    """A runtime that knows whether a person looks at a terminal."""

    async def watched(self, handle: Handle) -> bool:
        """Is a person attached to it?"""
        ...


@runtime_checkable
class Furnishes(Protocol):
    """A runtime that must have something ready before it can launch: an image."""

    async def furnish(self, container: Container, report: Report) -> None:
        """Get or build it, unless it is there; shows what takes long."""
        ...


# -- Agent -------------------------------------------------------------------------------------------------------------


@record
class AgentContext:
    """What an agent plugin may use to say how its CLI is started."""

    session: str
    project: str
    workspace: Path
    branch: str
    base: str
    prompt: str
    """The whole first prompt, the project's rules behind the task; also in `task_file`."""
    task_file: Path
    private: Path
    repo: Path = Path()
    """The user's checkout that the workspace was made from."""
    task: str = ""
    """What is to be done, without rules: for agents that take rules as a system prompt."""
    system: str = ""
    """How to work here, how to report, and the project's rules: an agent's system prompt, given at every launch."""
    commands: tuple[str, ...] = ()
    """The project's own test, lint and build commands: `auto-edit` allows them."""
    allowed: tuple[Permission, ...] = ()
    """What a person allowed for good in this project."""
    model: str | None = None
    permissions: str = "auto-edit"
    mode: str = "tui"
    resume: str | None = None
    """Continue this conversation (an id that the plugin gave before, or "" for the last one); none: start anew."""
    message: str = ""
    """The message it is started again for, if it is; `prompt` is the same then."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment it will get; for looking a program up in its PATH."""
    schema: str = ""
    """JSON Schema that a headless turn's last words must follow; an agent that cannot be held to it is asked for it in words."""
    mcp: str = ""
    """Address of our MCP server (`http://…/mcp`), opened by the token in `$AO_TOKEN`; nothing: it gets none. An `https` one may have a
    certificate that nobody knows: it is reached by `ao mcp`, which speaks by standard input and output.
    """
    edits: bool = True
    """It may change files; false: it must not, whatever `permissions` says."""


@record
class AgentLaunch:
    """How to start the CLI."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the session's environment."""
    stdin: Path | None = None
    paste: str | None = None
    """The first prompt is to be delivered to the terminal once the agent is ready; none: the command carries it."""
    waits: bool = False
    """It will wait for a message instead of beginning to work."""
    conversation: str | None = None
    """The conversation's id, if known ahead: given back as `resume` when the session is restored."""
    inbox: bool = False
    """It takes its messages from `$AO_INBOX`: nothing is typed into its terminal."""
    memo: Mapping[str, str] = field(default_factory=dict)
    """What the plugin wants to know of this launch later (a port, a folder): stored, and given back in `AgentRun`."""


@record
class Permission:
    """Something that an agent asks to do: use `tool`, for `command` (a shell command, a file, an address)."""

    tool: str
    command: str = ""
    reason: str = ""
    request: str = ""
    """The agent's own id of the request, where it has one."""


@record
class ScreenRules:
    """What the visible text tells, for agents with nothing better. The first that matches holds: blocked, busy, ready."""

    ready: re.Pattern[str] | None = None
    busy: re.Pattern[str] | None = None
    blocked: re.Pattern[str] | None = None


@record
class Found:
    """An agent's CLI on this machine."""

    path: str
    version: str = ""


@runtime_checkable
class Agent(Protocol):
    """Knows one coding agent's CLI."""

    screen: ScreenRules
    interrupt_keys: tuple[str, ...]
    """Keys that stop its turn without ending it."""
    permission_keys: Mapping[str, tuple[str, ...]]
    """Keys that answer its permission dialog: `allow`, `always`, `deny`, as far as it has them."""

    async def detect(self) -> Found | None:
        """Is the CLI here, and which version?"""
        ...

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Say how to start it. Raises `Missing` when the CLI is not there."""
        ...


@runtime_checkable
class NeedsWorkspace(Protocol):
    """An agent that cannot do its work in a worktree; a workspace that the user names is taken all the same."""

    workspace: str


@record
class Kept:
    """What an agent's CLI has outside the workspace. What is not there yet when it is started is made as a folder."""

    writable: tuple[Path, ...] = ()
    """Its logins, its conversations: files and folders."""
    fixed: tuple[Path, ...] = ()
    """What of that it only reads: settings that the user's own runs of it would take commands from."""
    own: tuple[Mount, ...] = ()
    """What it finds the session's own instead: files named by process ids, which are the same in every sandbox."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that it needs for that."""


@runtime_checkable
class Keeps(Protocol):
    """An agent that writes outside the workspace; in a sandbox all others cannot."""

    def keeps(self, env: Mapping[str, str], private: Path) -> Kept:
        """Asked after `launch`, with the environment it gets and the session's private folder, where it may write nothing else; beside
        the event loop, so it may wait.
        """
        ...


@runtime_checkable
class Portable(Protocol):
    """An agent that goes on with a conversation on another machine, given the files that it is kept in. All others begin anew there."""

    def conversation_files(self, env: Mapping[str, str], workspace: Path, conversation: str) -> tuple[Path, ...]:
        """Where they are on a machine with this environment, in an order of their own; nothing: it needs none."""
        ...


@runtime_checkable
class Types(Protocol):
    """An agent whose input line takes some texts for commands of its own (`/new`, `!ls`), or Enter for something else."""

    def typed(self, text: str) -> str:
        """What to type so that it takes this text as a message."""
        ...


@runtime_checkable
class Submits(Protocol):
    """An agent that takes Enter for a line break when it comes too soon after a text, as on a busy machine it may."""

    def unsent(self, screen: str, text: str) -> bool:
        """Is this text, which was typed, still in its input line? Then Enter is pressed once more."""
        ...


class Changes(Protocol):
    """Told of changes to files, at no cost while there are none."""

    def watch(self, path: Path) -> None:
        """Look at a file that grows or is replaced, or at a folder's entries; it need not exist yet. Twice is once."""
        ...

    async def next(self, within: float | None = None) -> bool:
        """Return when something changed, or after `within` seconds; False: the agent has ended, read what is left and return."""
        ...


@record
class AgentRun:
    """A launch that lives, as its plugin may look at it."""

    session: str
    generation: int
    pid: int
    started: str
    """The process's start time as `Handle` has it."""
    workspace: Path
    private: Path
    log: Path
    """What its terminal shows, raw; changes whenever it prints."""
    conversation: str | None
    memo: Mapping[str, str]
    """What `AgentLaunch.memo` said."""
    cursors: Mapping[str, int]
    """How far each `place` was read before, also by an earlier launch."""
    changes: Changes
    screen: Callable[[], Awaitable[str]]
    """The visible text of its terminal."""
    ended: asyncio.Event
    """Set when its process has ended."""
    inside: int = 0
    """The pid that the agent itself sees, where that is another one: in a container."""


@record
class Heard:
    """What was learnt in one moment, recorded together. With a `place` it comes from there (a transcript), `start` to `end`, and is
    told once, however often that is read; without one it is what is so just now (a status record).
    """

    reports: tuple[reports.Report, ...]
    source: str
    """`record`, `transcript`, `http`, `hooks`, `title` or `screen`."""
    place: str = ""
    start: int = 0
    end: int = 0


@runtime_checkable
class Listens(Protocol):
    """An agent that is heard better than by its screen. Nothing is typed to it, or shown of it, by guessing."""

    def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """Tell what is heard until the agent has ended; called again after a restart of the daemon."""
        ...


@runtime_checkable
class Delivers(Protocol):
    """An agent that takes messages by a protocol of its own."""

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | Typable | None:
        """Hand a message over, once for each message id; none: type it into the terminal, after `interrupt_keys` if asked for."""
        ...


@runtime_checkable
class Answers(Protocol):
    """An agent whose permission requests are answered otherwise than by `permission_keys`."""

    async def answer(self, run: AgentRun, permission: Permission, decision: str, text: str) -> Sequence[str] | None:
        """Answer `allow`, `always` or `deny`; returns keys that are still to be pressed, none: it cannot be answered so."""
        ...


@record
class Turn:
    """One turn of a CLI without a terminal: a command that takes a prompt, prints what it does line by line, and ends."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the session's environment."""
    stdin: str | None = None
    """The prompt, where it is read from standard input; none: standard input is empty."""


@record
class TurnLine:
    """What one line of a turn's output says."""

    show: str = ""
    """Text for the session's terminal; may have several lines."""
    reports: tuple[reports.Report, ...] = ()


@runtime_checkable
class Headless(Protocol):
    """An agent with `mode: headless`: each message is a turn of its own (`headless.py` runs them, one after the other)."""

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> Turn:
        """The command of one turn: `prompt` begins a conversation, or goes on with `conversation`."""
        ...

    def read_turn(self, line: str) -> TurnLine:
        """Read one line of its standard output. A `TurnReport` with the agent's last words is due before the command ends."""
        ...


# -- The world: issues, pull requests, people --------------------------------------------------------------------------


@record
class NotificationAction:
    """What a person may do about it, at an address that changes nothing by being opened."""

    name: str
    """`open`, `allow`, `deny` or `merge`."""
    label: str
    url: str
    token: str = ""
    """What the action is known by, for receivers that answer themselves; nothing: the address alone."""


@record
class Notification:
    """Something a person should know. Its text is plain: whoever sends it writes it as the receiver's markup wants it."""

    title: str
    message: str
    level: str = "info"
    """`urgent`, `action`, `warning` or `info`."""
    session_id: str | None = None
    project: str | None = None
    trigger: str = ""
    """What it is about: `agent-needs-input`, `ci-failed` …"""
    id: str = ""
    """The same however often it is sent."""
    time: float = 0.0
    """When it happened."""
    url: str = ""
    """Where it is seen in the dashboard."""
    actions: tuple[NotificationAction, ...] = ()


@runtime_checkable
class Notifier(Protocol):
    """Tells people. One whose receiver knows an id that it has seen before says `keyed = True`: it may be repeated at will."""

    async def notify(self, notification: Notification) -> None:
        """Send it; raises `Temporary` when it may be tried again, `Doubtful` when it may have arrived, `Missing` when this machine has
        nothing to send it by.
        """
        ...


@record
class Window:
    """A session that a person wants to see."""

    session: str
    """Its id, which is a good title."""
    command: tuple[str, ...]
    """Shows its terminal, in whatever terminal it is run; it needs no environment and no folder of its own."""
    cwd: Path
    """Its workspace, or another folder that is there."""
    url: str = ""
    """Its page of the dashboard."""


@runtime_checkable
class Checked(Protocol):
    """A notifier that can tell, without sending anything, whether this machine has what it needs."""

    async def check(self) -> None:
        """Raises `Missing` where it has not."""
        ...


@runtime_checkable
class Terminal(Protocol):
    """Opens a session's terminal for a person, on his own screen.

    It is made and called by the person's own `ao open`: the environment of its process is that of the terminal he sits at.
    """

    async def open(self, window: Window) -> None:
        """Show it, and return once it is shown, not once it is closed; `Missing` where this screen has nothing to show it by."""
        ...


Plugin = Workspace | Runtime | Agent | Tracker | SCM | Notifier | Terminal

PluginFactory = Callable[[Mapping[str, Any], "Host"], Plugin]

Clock = Callable[[], float]
"""Seconds since the epoch. Injected everywhere, so that tests need no sleeping."""

Sleep = Callable[[float], Awaitable[None]]
