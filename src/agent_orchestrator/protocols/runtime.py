"""The slot Runtime: keeps an agent's terminal alive, types into it and notices its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_orchestrator.protocols.host import LineCallback
from agent_orchestrator.protocols.records import record


@record
class Mount:
    """A file or folder of this machine that is visible in a container."""

    source: Path
    target: Path
    writable: bool = False


@record
class Container:
    """What a session's container is to be, for a runtime that runs agents in containers."""

    image: str = ""
    """The image; empty: it is built from `dockerfile`, or from the shipped one."""
    dockerfile: Path | None = None
    agent: str = ""
    """The agent whose program the shipped image gets."""
    engine: str = "auto"
    network: str = "none"
    """`none`, `allowlist` or `host`."""
    allow: tuple[str, ...] = ()
    """What it may reach with `allowlist`: `host`, `host:port`, `*.domain`."""
    daemon: str = ""
    """The daemon's own address (`http://127.0.0.1:8700`), which it may reach unless its network is `none`."""
    cpus: float | None = None
    memory: int | None = None
    """Bytes."""
    mounts: tuple[Mount, ...] = ()
    """What is visible in it in addition to the workspace, its repository's Git folder and the session's private folder."""


@record
class LaunchSpec:
    """A process to start in its own terminal."""

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
    """The raw output of the terminal is appended here."""
    stdin: Path | None = None
    """Read standard input from this file instead of from the terminal."""
    lease: Path | None = None
    """It may run only until the deadline in this file (`cluster/node/lease.py`), which is extended from time to time; None: no limit."""
    columns: int = 120
    rows: int = 40
    container: Container | None = None
    """The container it is to run in, if the runtime has containers."""


@record
class Handle:
    """How to find a launched process again, also after a restart of the daemon. Stored unchanged."""

    runtime: str
    session: str
    generation: int
    pid: int
    """The agent's own process."""
    started: str
    """Its start time as the kernel reports it: pid and start time together identify a process uniquely."""
    boot_id: str
    """The boot that it was started in: if the machine's boot id is another one, the process is certainly dead."""
    address: Mapping[str, str]
    """Data of the runtime: socket, pane id, the holder's pid …"""


@record
class Exit:
    """How a process ended. `code` and `signal` are both None if no process was there to observe it."""

    code: int | None = None
    signal: int | None = None
    reason: str = ""
    """Why, if it was ended from outside: `lease` (it expired)."""


@record
class Alive:
    """The process runs."""


@record
class Gone:
    """The process has certainly ended; `exit` says how, as far as known. `lost`: its terminal is gone too (tmux or holder killed)."""

    exit: Exit = Exit()
    lost: bool = False


@record
class ProbeFailed:
    """The probe itself failed, which says nothing about the process."""

    reason: str


Liveness = Alive | Gone | ProbeFailed


@record
class Delivered:
    """The text was written to the terminal, now or by an earlier call with the same message id."""


@record
class NotReady:
    """Nothing was written, because a person is typing, or tmux is in copy mode … May be tried again."""

    reason: str


@record
class Undeliverable:
    """The terminal is gone. `ambiguous`: it is not known whether an earlier call wrote the text before that."""

    reason: str
    ambiguous: bool = False


Delivery = Delivered | NotReady | Undeliverable


@record
class ReadyToType:
    """The text can be typed into the terminal now; if the turn was to be interrupted, that has been done."""

    first: tuple[str, ...] = ()
    """Keys to be pressed first, to remove what the agent itself left in its prompt."""


class Runtime(ABC):
    """Keeps an agent's terminal alive, whatever happens to the daemon."""

    @abstractmethod
    async def launch(self, spec: LaunchSpec) -> Handle:
        """Start the process, or find the one that an earlier call with this session and generation started."""

    @abstractmethod
    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """Check all of them at once, in order; at constant cost, without a process per handle."""

    @abstractmethod
    async def ended(self, handle: Handle) -> Gone:
        """Return how the process ended, as soon as it has; costs nothing while it runs."""

    @abstractmethod
    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Write a message to the terminal, once per message id, and press Enter. `text` has no control characters."""

    @abstractmethod
    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Press keys by tmux's names: `Escape`, `C-c`, `Enter`, `y`; with `once`, not again if that was the last key pressed."""

    @abstractmethod
    async def screen(self, handle: Handle) -> str:
        """Return the visible text, without attributes."""

    @abstractmethod
    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Set the terminal's size."""

    @abstractmethod
    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """Return a command that shows the terminal to a person; any number may run at once.

        With `watch`, nothing that is typed reaches the agent, and the size counts only while no other terminal is
        attached.
        """

    @abstractmethod
    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the process and everything it started: asked to end first, killed after `grace` seconds. Its terminal's log stays."""

    @abstractmethod
    async def discard(self, handle: Handle) -> None:
        """Remove the terminal of a process that has ended."""

    @abstractmethod
    async def orphaned_terminals(self, expected: Sequence[Handle]) -> list[Handle]:
        """Return the handles of terminals that exist although they are not among the expected ones."""

    async def watched(self, handle: Handle) -> bool:
        """Return whether a person is attached to the terminal. By default False: the runtime cannot report it."""
        return False

    async def prepare_image(self, container: Container, report: LineCallback) -> None:
        """Get or build the image of a container that is to be launched, unless it is there; report progress if that takes long.

        By default nothing is prepared.
        """
        return
