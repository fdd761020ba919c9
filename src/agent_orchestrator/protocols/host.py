"""A machine as plugins use it: run programs, identify processes, notice when they end. `LocalHost` in `base/host.py` is this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    import contextlib

LineCallback = Callable[[str], None]
"""Takes one line of live output (of `postCreate`, of a fetch), to be shown to the person who waits."""


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """The result of a finished program."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """Return standard output as text."""
        return self.out.decode(errors="replace")

    @property
    def error(self) -> str:
        """Return the last line of standard error."""
        lines = self.err.decode(errors="replace").strip().splitlines() or [""]
        return lines[-1]


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identifies a process uniquely: a pid is reused, a pid with its start time is not."""

    pid: int
    started: str


class Host(Protocol):
    """What runtimes, workspaces and agents may use of a machine."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 - subprocess's own name
        timeout: float | None = 60.0,
    ) -> ProgramResult:
        """Run a program to its end and return its result. Raises `Missing` if it is not installed, and `Temporary` if it times out."""
        ...

    async def stream(
        self,
        argv: Sequence[str],
        report: LineCallback,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = None,
        grace: float = 0.0,
    ) -> int:
        """Run a program, report its output line by line, and return its exit code.

        On a timeout or cancellation its whole process group is killed, after `grace` seconds in which it may end by
        itself.
        """
        ...

    def pipe(
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> contextlib.AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Run a program that communicates through its standard input and output; its standard error goes to the file
        `log`.

        The program ends at the end of the block.
        """
        ...

    async def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> int:
        """Start a program that outlives this process, in a new process session; return its pid."""
        ...

    def which(self, program: str, path: str | None = None) -> str | None:
        """Return the path of a program, or None if it is not found."""
        ...

    def boot_id(self) -> str:
        """Return an identifier of the machine's current boot."""
        ...

    def process(self, pid: int) -> ProcessId | None:
        """Return the live process with this pid, or None if there is none or it has ended without being reaped. Raises
        if its state cannot be read.
        """
        ...

    async def exited(self, process: ProcessId) -> None:
        """Return as soon as the process has ended; costs nothing while it runs."""
        ...

    def kill(self, process: ProcessId, signal_number: int, *, group: bool = False) -> bool:
        """Send a signal to exactly this process (or its group); return False if it has ended."""
        ...

    def family(self, process: ProcessId) -> list[ProcessId]:
        """Return the live processes that it started, directly or indirectly, and itself: its terminal session and its descendants."""
        ...

    def processes_with_variable(self, variable: str, value: str) -> list[ProcessId]:
        """Return the live processes that were started with this variable, also those outside of any family; empty if
        the system cannot list them.
        """
        ...

    def users_of(self, folder: Path) -> list[tuple[int, str]]:
        """Return the processes (pid, name) whose working directory or open files are in the folder."""
        ...
