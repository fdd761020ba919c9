"""A machine as plugins use it: run programs, know processes, see their end. `LocalHost` of `base/host.py` is this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    import contextlib

Report = Callable[[str], None]
"""Takes one line of live output (of `postCreate`, of a fetch) to be shown to the person who waits."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A finished program."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode(errors="replace")

    @property
    def error(self) -> str:
        """The last line that standard error has to say."""
        lines = self.err.decode(errors="replace").strip().splitlines() or [""]
        return lines[-1]


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process for good: a pid is used again, a pid with its start time is not."""

    pid: int
    started: str


class Host(Protocol):
    """What runtimes, workspaces and agents may ask of a machine."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 - subprocess's own name
        timeout: float | None = 60.0,
    ) -> Completed:
        """Run a program to its end. Raises `Missing` when it is not there and `Temporary` when time runs out."""
        ...

    async def stream(
        self,
        argv: Sequence[str],
        report: Report,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = None,
        grace: float = 0.0,
    ) -> int:
        """Run a program and report its output line by line; returns its exit code. Time out or cancelled: its whole group is
        killed, asked to end `grace` seconds before.
        """
        ...

    def talk(
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> contextlib.AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Run a program that is spoken to by its pipes; its complaints go to a file. It ends with the block, all of it."""
        ...

    async def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> int:
        """Start a program that outlives us, in a session of its own; returns its pid."""
        ...

    def which(self, program: str, path: str | None = None) -> str | None:
        """Where a program is."""
        ...

    def boot_id(self) -> str:
        """Names this run of the machine's kernel."""
        ...

    def process(self, pid: int) -> ProcessId | None:
        """The live process with this pid; none if there is none or it is only waiting to be reaped. Raises where it cannot be looked at."""
        ...

    async def exited(self, process: ProcessId) -> None:
        """Return as soon as the process has ended; costs nothing while it runs."""
        ...

    def kill(self, process: ProcessId, signal_number: int, *, group: bool = False) -> bool:
        """Signal exactly this process (or its group); false if it has ended."""
        ...

    def family(self, process: ProcessId) -> list[ProcessId]:
        """The live processes that it started, directly or not, and itself: its terminal session and its descendants."""
        ...

    def marked(self, variable: str, value: str) -> list[ProcessId]:
        """The live processes that were started with this variable: also those that left their family. Empty where none can tell."""
        ...

    def users_of(self, folder: Path) -> list[tuple[int, str]]:
        """Processes (pid, name) whose working directory or open files are below the folder."""
        ...
