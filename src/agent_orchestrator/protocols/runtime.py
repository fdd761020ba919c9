"""The slot Runtime: keeps an agent's terminal alive, types into it and sees its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from agent_orchestrator.protocols.host import Report
from agent_orchestrator.protocols.records import record


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
    """It may run only until the deadline in this file (`cluster/node/lease.py`), which is put off from time to time; none: for good."""
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
