"""The slot Agent: how one coding agent is started, heard and answered."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from agent_orchestrator.protocols.records import record
from agent_orchestrator.protocols.runtime import Delivery, Mount, Typable

if TYPE_CHECKING:
    import asyncio

    from agent_orchestrator.protocols import reports


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
    """An agent with `mode: headless`: each message is a turn of its own (`sessions/agents/headless.py` runs them, one after the other)."""

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> Turn:
        """The command of one turn: `prompt` begins a conversation, or goes on with `conversation`."""
        ...

    def read_turn(self, line: str) -> TurnLine:
        """Read one line of its standard output. A `TurnReport` with the agent's last words is due before the command ends."""
        ...
