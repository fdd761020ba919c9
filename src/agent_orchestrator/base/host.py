"""`LocalHost`, the machine that the daemon runs on: starts programs, identifies processes, notices when they end.

This is the only place that starts processes. A container or a cluster node is another `Host` (`protocols/host.py`),
so runtimes, workspaces and rescue are written once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from agent_orchestrator.errors import AoError, Missing, Temporary, UsageError, resource_shortage
from agent_orchestrator.protocols.host import LineCallback, ProcessId, ProgramResult

T = TypeVar("T")


class LocalHost:
    """The machine that this process runs on. `AO_TEST_BOOT_ID` in the environment simulates another boot."""

    def __init__(self) -> None:
        self._boot_id = os.environ.get("AO_TEST_BOOT_ID") or _read_boot_id()

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = 60.0,
    ) -> ProgramResult:
        stdin = asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE
        process = await self._start(argv, cwd=cwd, env=env, stdin=stdin, stderr=asyncio.subprocess.PIPE)
        async with _kill_group_on_error(process):
            try:
                async with asyncio.timeout(timeout):
                    out, err = await process.communicate(input)
            except TimeoutError:
                raise Temporary(
                    f"{argv[0]} did not finish within {timeout:g} s", "try again, or look what blocks it"
                ) from None
        return ProgramResult(process.returncode or 0, out, err)

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
        stdin = asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE
        process = await self._start(argv, cwd=cwd, env=env, stdin=stdin, stderr=asyncio.subprocess.STDOUT)
        assert process.stdout is not None
        async with _kill_group_on_error(process, grace):
            try:
                async with asyncio.timeout(timeout):
                    if process.stdin is not None:
                        process.stdin.write(input or b"")
                        process.stdin.close()
                    while line := await _read_line(process.stdout):
                        report(line.decode(errors="replace").rstrip("\r\n"))
                    return await process.wait()
            except TimeoutError:
                raise Temporary(
                    f"{' '.join(argv)} did not finish within {timeout:g} s", "raise the time limit"
                ) from None

    @contextlib.asynccontextmanager
    async def pipe(
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a program that communicates through its standard input and output; its standard error goes to the file
        `log`.

        At the end of the block the program is killed.
        """
        with log.open("wb") as error_file:
            process = await self._start(
                argv, cwd=None, env=env, stdin=asyncio.subprocess.PIPE, stderr=error_file.fileno()
            )
        async with _kill_group_on_error(process):
            yield process
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            _close_output(process)
            await process.wait()

    async def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> int:
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(log.open("ab")) if log else subprocess.DEVNULL
            try:
                child = _DetachedProcess(
                    list(argv),
                    cwd=cwd,
                    env=None if env is None else dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise _start_error(argv, cwd, error) from None
        child.reap_when_ended()
        return child.pid

    async def _start(
        self, argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str] | None, stdin: int, stderr: int
    ) -> asyncio.subprocess.Process:
        """Start a program in a new process session, with its output piped. Raises `Missing`, `UsageError` or `Temporary`."""
        _watch_children_by_pidfd()
        try:
            return await asyncio.create_subprocess_exec(
                *argv,
                cwd=cwd,
                env=None if env is None else dict(env),
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
                limit=1 << 20,
            )
        except (OSError, ValueError) as error:
            raise _start_error(argv, cwd, error) from None

    def which(self, program: str, path: str | None = None) -> str | None:
        return shutil.which(program, path=path)

    def boot_id(self) -> str:
        return self._boot_id

    def process(self, pid: int) -> ProcessId | None:
        started = _read_start_time(pid)
        return None if started is None else ProcessId(pid, started)

    async def exited(self, process: ProcessId) -> None:
        loop = asyncio.get_running_loop()
        while self._may_be_alive(process):
            descriptor = _open_pidfd(process.pid)
            if descriptor is None:  # pidfds do not exist here, or there is no free descriptor at the moment
                await asyncio.sleep(0.25)
                continue
            ended = asyncio.Event()
            try:
                if self._may_be_alive(process):
                    loop.add_reader(descriptor, ended.set)
                    await ended.wait()
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)

    def _may_be_alive(self, process: ProcessId) -> bool:
        """Return whether the process is alive or its state cannot be read."""
        try:
            return self.process(process.pid) == process
        except Temporary:
            return True

    def kill(self, process: ProcessId, signal_number: int, *, group: bool = False) -> bool:
        descriptor = _open_pidfd(process.pid)
        try:
            # The open descriptor keeps the pid from being reused: the process compared next is the one that gets the signal.
            if self.process(process.pid) != process:
                return False
            if group and os.getpgid(process.pid) != os.getpgrp():
                os.killpg(os.getpgid(process.pid), signal_number)
            elif descriptor is not None:
                signal.pidfd_send_signal(descriptor, signal_number)
            else:
                os.kill(process.pid, signal_number)
        except (ProcessLookupError, PermissionError):
            return False
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return True

    def family(self, process: ProcessId) -> list[ProcessId]:
        current = self.process(process.pid)
        if current is not None and current != process:
            return []
        table = _read_process_table()
        own_pid = {os.getpid()}  # if it started this process, this process's own children do not count
        members = ({pid for pid, (_, leader) in table.items() if leader == process.pid} | {process.pid}) - own_pid
        while descendants := {pid for pid, (parent, _) in table.items() if parent in members} - members - own_pid:
            members |= descendants
        processes = (self.process(pid) for pid in sorted(members))
        return [member for member in processes if member is not None]

    def processes_with_variable(self, variable: str, value: str) -> list[ProcessId]:
        if sys.platform != "linux":
            return []
        entry = os.fsencode(f"{variable}={value}")
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        processes = (self.process(pid) for pid in pids if pid != os.getpid() and entry in _read_environment(pid))
        return [process for process in processes if process is not None]

    def users_of(self, folder: Path) -> list[tuple[int, str]]:
        if sys.platform != "linux":
            return []
        folder_path = str(folder.resolve())
        users = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid() and _uses_folder(entry, folder_path):
                name = _read_first_line(entry / "comm")
                users.append((int(entry.name), name))
        return users


def _watch_children_by_pidfd() -> None:
    """Make asyncio watch child processes by pidfd: Python 3.11 uses a thread per child by default, newer versions use pidfds."""
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        watcher = asyncio.get_child_watcher()
        if not isinstance(watcher, asyncio.PidfdChildWatcher) or not watcher.is_active():
            watcher = asyncio.PidfdChildWatcher()
            watcher.attach_loop(asyncio.get_running_loop())
            asyncio.set_child_watcher(watcher)


class _DetachedProcess(subprocess.Popen[bytes]):
    """A child process that may outlive this process: reaped if it ends first, and without a warning if it does not."""

    def reap_when_ended(self) -> None:
        """Reap the process when it ends, so that no zombie stays; costs nothing while it runs."""
        descriptor = _open_pidfd(self.pid)
        loop = asyncio.get_running_loop()
        if descriptor is None:
            loop.run_in_executor(None, self.wait)
            return

        def reap() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self.poll()

        loop.add_reader(descriptor, reap)

    def __del__(self) -> None:
        """Do not warn that the process still runs, as `Popen` would: that is intended."""


@contextlib.asynccontextmanager
async def _kill_group_on_error(process: asyncio.subprocess.Process, grace: float = 0.0) -> AsyncIterator[None]:
    """On a timeout, cancellation or other exception, end the program's whole process group, also what outlived the
    program itself.

    With `grace`, it is interrupted first and killed after that many seconds.
    """
    try:
        yield
    except BaseException:
        if grace:
            with contextlib.suppress(ProcessLookupError, PermissionError, TimeoutError):
                os.killpg(process.pid, signal.SIGINT)
                await asyncio.wait_for(asyncio.shield(process.wait()), grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        _close_output(process)
        with contextlib.suppress(ProcessLookupError):
            await asyncio.shield(process.wait())
        process._transport.close()  # type: ignore[attr-defined]
        raise


def _close_output(process: asyncio.subprocess.Process) -> None:
    """Close the pipes of a program's output: asyncio waits for their end, which does not come if too much was left unread."""
    for descriptor in (1, 2):
        if (pipe := process._transport.get_pipe_transport(descriptor)) is not None:  # type: ignore[attr-defined]
            pipe.close()


def _start_error(argv: Sequence[str], cwd: Path | None, error: OSError | ValueError) -> AoError:
    """Return the error for a program that could not be started."""
    name = Path(argv[0]).name
    if isinstance(error, ValueError):
        return UsageError(f"{name} cannot be given an argument with a NUL character", "remove it from the text")
    if cwd is not None and not cwd.is_dir():
        return Missing(f"the folder {cwd} is not there")
    if error.errno == errno.E2BIG:
        return UsageError(f"the arguments for {name} are too long for this system", "pass the text in a file")
    if error.errno == errno.ENOENT:
        return Missing(f"{argv[0]} is not installed", f"install {name} and try again")
    if error.errno in (errno.EACCES, errno.ENOEXEC, errno.ENOTDIR):
        return Missing(f"{argv[0]} cannot be run ({error.strerror})", "check its permissions and its first line")
    return Temporary(f"{argv[0]} could not be started: {error.strerror}")


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that keeps the process's pid from being reused and becomes readable when the process ends;
    None if there is none.
    """
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


async def run_and_end_tasks(work: Coroutine[None, None, T], patience: float = 30.0) -> T:
    """Run a program's main coroutine and return its result; then end the tasks it leaves running, in an order in which
    they can end.

    `asyncio.run` cancels everything at once, also the half of a process start that connects its pipes, without
    which the other half waits for ever. Tasks that start others as they end are waited for too, for at most
    `patience` seconds.
    """
    try:
        return await work
    finally:
        cancelled: set[asyncio.Task[Any]] = set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while others := asyncio.all_tasks() - {asyncio.current_task()}:
                    for task in others - cancelled:
                        if getattr(task.get_coro(), "__name__", "") != "_connect_pipes":
                            task.cancel()
                    cancelled |= others
                    await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)


def _read_boot_id() -> str:
    """Return an identifier of the machine's current boot."""
    if sys.platform == "linux":
        return _read_first_line(Path("/proc/sys/kernel/random/boot_id"))
    return _read_output("sysctl", "-n", "kern.bootsessionuuid")


def _read_start_time(pid: int) -> str | None:
    """Return when a live process started, as the kernel writes it; None if it has ended, even if it has not been reaped yet."""
    if sys.platform == "linux":
        fields = _read_stat(pid)
        return None if fields is None or fields[0] in "ZX" else fields[19]
    state, _, started = _read_output("ps", "-o", "state=,lstart=", "-p", str(pid)).partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def _read_stat(pid: int) -> list[str] | None:
    """Return the fields of `/proc/<pid>/stat` from the state on, or None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - read for every process there is
            return stat.read().rpartition(b")")[2].decode().split()
    except OSError as error:
        if shortage := resource_shortage(error):
            raise shortage from None
        return None


def _read_environment(pid: int) -> list[bytes]:
    """Return the environment that a process was started with, as `NAME=value` items; [] for processes of other users."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:  # noqa: PTH123 - read for every process there is
            return environment.read().split(b"\0")
    except OSError:
        return []


def _read_process_table() -> dict[int, tuple[int, int]]:
    """Return pid → (parent, session leader) of every process."""
    if sys.platform == "linux":
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        return {pid: (int(fields[1]), int(fields[3])) for pid in pids if (fields := _read_stat(pid)) is not None}
    # Group leader instead of session leader: `ps` does not print the session here.
    rows = (line.split() for line in _read_output("ps", "-axo", "pid=,ppid=,pgid=").splitlines())
    return {int(pid): (int(parent), int(group)) for pid, parent, group in rows}


def _read_output(*argv: str) -> str:
    """Return what a program prints."""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def _uses_folder(process: Path, folder: str) -> bool:
    """Return whether the working directory or an open file of a process (its folder in `/proc`) is in a folder."""

    def is_in_folder(link: Path) -> bool:
        try:
            target = str(link.readlink())
        except OSError:
            return False
        return target == folder or target.startswith(folder + "/")

    if is_in_folder(process / "cwd"):
        return True
    try:
        return any(is_in_folder(descriptor) for descriptor in (process / "fd").iterdir())
    except OSError:
        return False


def _read_first_line(path: Path) -> str:
    """Return the first line of a file, or "" if it cannot be read."""
    try:
        return path.read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """Return one line, or as much of an endless one as fits the buffer."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.readexactly(error.consumed)
