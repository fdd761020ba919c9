"""The slot Agent: how one coding agent is started, how its reports are read, and how it gets messages and answers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agent_orchestrator.protocols.members import overridden
from agent_orchestrator.protocols.records import record
from agent_orchestrator.protocols.runtime import Delivery, Mount, ReadyToType

if TYPE_CHECKING:
    import asyncio

    from agent_orchestrator.protocols import reports


class Activity(StrEnum):
    """What the agent is doing, according to the available evidence."""

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
    """What an agent plugin may use to decide how its CLI is started."""

    session: str
    project: str
    workspace: Path
    branch: str
    base: str
    prompt: str
    """The whole first prompt, the task followed by the project's rules; also in `task_file`."""
    task_file: Path
    private: Path
    repo: Path = Path()
    """The user's checkout that the workspace was created from."""
    task: str = ""
    """The task, without rules: for agents that take rules as a system prompt."""
    system: str = ""
    """How to work here, how to report, and the project's rules: an agent's system prompt, passed at every launch."""
    commands: tuple[str, ...] = ()
    """The project's own test, lint and build commands: `auto-edit` allows them."""
    allowed: tuple[Permission, ...] = ()
    """What a person always allows in this project."""
    model: str | None = None
    permissions: str = "auto-edit"
    mode: str = "tui"
    resume: str | None = None
    """Continue this conversation (an id that the plugin returned before, or "" for the last one); None: start a new one."""
    message: str = ""
    """The message for which it is restarted, if it is; `prompt` is the same then."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment it will get; used to find a program in its PATH."""
    schema: str = ""
    """JSON Schema for the last message of a headless turn; an agent that cannot enforce it gets it as part of the prompt."""
    mcp: str = ""
    """Address of our MCP server (`http://…/mcp`), which accepts the token in `$AO_TOKEN`; empty: it gets none. The certificate of an
    `https` one may not be trusted by clients: it is then reached by `ao mcp`, which uses standard input and output."""
    edits: bool = True
    """Whether it may change files; if False, it must not, whatever `permissions` says."""


@record
class AgentLaunch:
    """How to start the CLI."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the session's environment."""
    stdin: Path | None = None
    paste: str | None = None
    """The first prompt, to be pasted into the terminal once the agent is ready; None: it is part of the command."""
    waits: bool = False
    """Whether it waits for a message instead of beginning to work."""
    conversation: str | None = None
    """The conversation's id, if known ahead: passed as `resume` when the session is restored."""
    inbox: bool = False
    """Whether it takes its messages from `$AO_INBOX`: nothing is typed into its terminal."""
    plugin_data: Mapping[str, str] = field(default_factory=dict)
    """What the plugin needs to know of this launch later (a port, a folder): stored, and passed back in `RunningLaunch`."""


@record
class Permission:
    """Something that an agent asks permission for: to use `tool`, for `command` (a shell command, a file, a URL)."""

    tool: str
    command: str = ""
    reason: str = ""
    request: str = ""
    """The agent's own id of the request, if it has one."""


@record
class ScreenRules:
    """What the visible text means, for agents with no better source. The first match counts, in the order blocked, busy, ready."""

    ready: re.Pattern[str] | None = None
    busy: re.Pattern[str] | None = None
    blocked: re.Pattern[str] | None = None


@record
class InstalledAgent:
    """An agent's CLI on this machine."""

    path: str
    version: str = ""


@record
class AgentState:
    """What an agent's CLI has outside the workspace. What does not exist when it is started is created as a folder."""

    writable: tuple[Path, ...] = ()
    """Its logins and conversations: files and folders."""
    fixed: tuple[Path, ...] = ()
    """Files and folders among them that it only reads: settings from which the user's own runs of it would take commands."""
    own: tuple[Mount, ...] = ()
    """Files that are replaced by the session's own: those named by process ids, which are the same in every sandbox."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables that it needs for that."""


class FileChanges(Protocol):
    """Notification of changes to files, at no cost while there are none."""

    def watch(self, path: Path) -> None:
        """Watch a file that grows or is replaced, or a folder's entries; it need not exist yet. Watching it twice has no effect."""
        ...

    async def next(self, within: float | None = None) -> bool:
        """Wait until something changed, or for `within` seconds. Return False if the agent has ended: read what is left, then return."""
        ...


@record
class RunningLaunch:
    """A running launch, as its plugin may observe it."""

    session: str
    generation: int
    pid: int
    started: str
    """The process's start time as `Handle` has it."""
    workspace: Path
    private: Path
    log: Path
    """The raw output of its terminal; changes whenever it prints."""
    conversation: str | None
    plugin_data: Mapping[str, str]
    """The `AgentLaunch.plugin_data` of this launch."""
    cursors: Mapping[str, int]
    """How far each `source_id` was read before, also by an earlier launch."""
    changes: FileChanges
    screen: Callable[[], Awaitable[str]]
    """Returns the visible text of its terminal."""
    ended: asyncio.Event
    """Set when its process has ended."""
    container_pid: int = 0
    """The pid that the agent itself sees, if that is another one: in a container."""


@record
class ReportBatch:
    """Reports that were read at one moment and are recorded together.

    With a `source_id`, they come from there (a transcript), `start` to `end`, and are recorded once, however often it
    is read; without one, they are the current state (a status record).
    """

    reports: tuple[reports.Report, ...]
    source: str
    """`record`, `transcript`, `http`, `hooks`, `title` or `screen`."""
    source_id: str = ""
    start: int = 0
    end: int = 0


@record
class TurnCommand:
    """One turn of a CLI without a terminal: a command that takes a prompt, prints what it does line by line, and ends."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the session's environment."""
    stdin: str | None = None
    """The prompt, if it is read from standard input; None: standard input is empty."""


@record
class TurnLine:
    """The content of one line of a turn's output."""

    show: str = ""
    """Text for the session's terminal; may have several lines."""
    reports: tuple[reports.Report, ...] = ()


class Agent(ABC):
    """Knows one coding agent's CLI. Only `detect`, `launch` and the three attributes without a value are required; a plugin overrides
    the other methods as far as its CLI has what they need.

    The attributes `listens` to `has_headless_mode` say what a class overrides.
    """

    screen: ScreenRules
    interrupt_keys: tuple[str, ...]
    """Keys that interrupt its turn without ending the agent."""
    permission_keys: Mapping[str, tuple[str, ...]]
    """Keys that answer its permission dialog: `allow`, `always`, `deny`, as far as it has them."""
    workspace: str = ""
    """The kind of workspace it needs, if it cannot work in a worktree. A workspace that the user chooses is used nevertheless."""

    listens: bool = overridden("listen")
    """Whether it has a better source of reports than its screen, which is `listen`. Nothing is then typed or shown by guessing."""
    delivers_messages: bool = overridden("deliver")
    """Whether it gets messages by its own protocol, which is `deliver`."""
    answers_requests: bool = overridden("answer")
    """Whether its permission requests are answered by other means than `permission_keys`, which is `answer`."""
    detects_unsent_text: bool = overridden("has_unsent_text")
    """Whether `has_unsent_text` can detect that Enter was taken as a line break."""
    has_headless_mode: bool = overridden("turn", "read_turn")
    """Whether it supports `mode: headless`, by `turn` and `read_turn`."""

    @abstractmethod
    async def detect(self) -> InstalledAgent | None:
        """Return where the CLI is and its version, or None if it is not installed."""

    @abstractmethod
    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return how to start it. Raises `Missing` when the CLI is not installed."""

    def keeps(self, env: Mapping[str, str], private: Path) -> AgentState:
        """Return what it has outside the workspace; in a sandbox it can write nothing else there. By default nothing.

        Called after `launch`, with the environment it gets and the session's private folder, where it may write
        nothing else. Runs outside the event loop, so it may block.
        """
        return AgentState()

    def conversation_files(
        self,
        env: Mapping[str, str],
        workspace: Path,
        conversation: str,
    ) -> tuple[Path, ...] | None:
        """Return the files with which it continues a conversation on another machine, in a fixed order; empty if it needs none.

        They are where they are on a machine with this environment. By default None: it begins a new conversation there.
        """
        return None

    def escape_input(self, text: str) -> str:
        """Return what to type so that it takes this text as a message, if its input line takes some texts as its own
        commands (`/new`, `!ls`), or Enter as something else. By default the text itself.
        """
        return text

    def has_unsent_text(self, screen: str, text: str) -> bool:
        """Return whether this text, which was typed, is still in its input line. Then Enter is pressed once more.

        For an agent that takes Enter as a line break if it comes too soon after a text, which may happen on a busy machine.
        """
        return False

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield reports until the agent has ended; called again after a restart of the daemon. By default there are none."""
        return
        yield

    async def deliver(
        self,
        run: RunningLaunch,
        message: str,
        text: str,
        *,
        interrupt: bool,
    ) -> Delivery | ReadyToType | None:
        """Deliver a message, once per message id. Return None, as by default, to have it typed into the terminal, after
        `interrupt_keys` if requested.
        """
        return None

    async def answer(
        self,
        run: RunningLaunch,
        permission: Permission,
        decision: str,
        text: str,
    ) -> Sequence[str] | None:
        """Answer `allow`, `always` or `deny`. Return the keys that are still to be pressed, or None if it cannot be answered this way."""
        return None

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> TurnCommand:
        """Return the command of one turn: `prompt` begins a conversation, or continues `conversation`.

        For `mode: headless`: each message is its own turn. `sessions/agents/headless.py` runs the turns one after the other.
        """
        raise NotImplementedError

    def read_turn(self, line: str) -> TurnLine:
        """Parse one line of its standard output. A `TurnReport` with the agent's last message must come before the command ends."""
        raise NotImplementedError
