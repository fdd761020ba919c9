"""A machine as we use it: run programs, know processes, see their end. The only place that starts processes.

`LocalHost` is this machine. A container or a cluster node is another `Host`, so runtimes, workspaces and rescue are
written once.
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

from agent_orchestrator.errors import AoError, Missing, Temporary, UsageError, machine_short
from agent_orchestrator.protocols.host import Completed, ProcessId, Report

T = TypeVar("T")


class LocalHost:
    """This machine. `AO_TEST_BOOT_ID` in the environment simulates another boot."""

    def __init__(self) -> None:
        self._boot_id = os.environ.get("AO_TEST_BOOT_ID") or _boot_id()

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = 60.0,
    ) -> Completed:
        stdin = asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE
        process = await self._start(argv, cwd=cwd, env=env, stdin=stdin, stderr=asyncio.subprocess.PIPE)
        async with _whole(process):
            try:
                async with asyncio.timeout(timeout):
                    out, err = await process.communicate(input)
            except TimeoutError:
                raise Temporary(
                    f"{argv[0]} did not finish within {timeout:g} s", "try again, or look what blocks it"
                ) from None
        return Completed(process.returncode or 0, out, err)

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
        stdin = asyncio.subprocess.DEVNULL if input is None else asyncio.subprocess.PIPE
        process = await self._start(argv, cwd=cwd, env=env, stdin=stdin, stderr=asyncio.subprocess.STDOUT)
        assert process.stdout is not None
        async with _whole(process, grace):
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
    async def talk(
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a program that is spoken to by its pipes; its complaints go to a file. It ends with the block, all of it."""
        with log.open("wb") as complaints:
            process = await self._start(
                argv, cwd=None, env=env, stdin=asyncio.subprocess.PIPE, stderr=complaints.fileno()
            )
        async with _whole(process):
            yield process
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            _unheard(process)
            await process.wait()

    async def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> int:
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(log.open("ab")) if log else subprocess.DEVNULL
            try:
                child = _Detached(
                    list(argv),
                    cwd=cwd,
                    env=None if env is None else dict(env),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise _not_started(argv, cwd, error) from None
        child.reap_when_ended()
        return child.pid

    async def _start(
        self, argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str] | None, stdin: int, stderr: int
    ) -> asyncio.subprocess.Process:
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
            raise _not_started(argv, cwd, error) from None

    def which(self, program: str, path: str | None = None) -> str | None:
        return shutil.which(program, path=path)

    def boot_id(self) -> str:
        return self._boot_id

    def process(self, pid: int) -> ProcessId | None:
        started = _start_time(pid)
        return None if started is None else ProcessId(pid, started)

    async def exited(self, process: ProcessId) -> None:
        loop = asyncio.get_running_loop()
        while self._may_live(process):
            descriptor = _pidfd(process.pid)
            if descriptor is None:  # there is no such thing, or no room for one this moment
                await asyncio.sleep(0.25)
                continue
            ended = asyncio.Event()
            try:
                if self._may_live(process):
                    loop.add_reader(descriptor, ended.set)
                    await ended.wait()
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)

    def _may_live(self, process: ProcessId) -> bool:
        """Not seen is not dead."""
        try:
            return self.process(process.pid) == process
        except Temporary:
            return True

    def kill(self, process: ProcessId, signal_number: int, *, group: bool = False) -> bool:
        descriptor = _pidfd(process.pid)
        try:
            # The open descriptor holds on to the process: what is compared next is what gets the signal.
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
        now = self.process(process.pid)
        if now is not None and now != process:
            return []
        table = _process_table()
        ourselves = {os.getpid()}  # where it started us, what we started is ours
        members = ({pid for pid, (_, leader) in table.items() if leader == process.pid} | {process.pid}) - ourselves
        while more := {pid for pid, (parent, _) in table.items() if parent in members} - members - ourselves:
            members |= more
        found = (self.process(pid) for pid in sorted(members))
        return [member for member in found if member is not None]

    def marked(self, variable: str, value: str) -> list[ProcessId]:
        if sys.platform != "linux":
            return []
        wanted = os.fsencode(f"{variable}={value}")
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        found = (self.process(pid) for pid in pids if pid != os.getpid() and wanted in _environment(pid))
        return [process for process in found if process is not None]

    def users_of(self, folder: Path) -> list[tuple[int, str]]:
        if sys.platform != "linux":
            return []
        inside = str(folder.resolve())
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid() and _uses(entry, inside):
                name = _first_line(entry / "comm")
                found.append((int(entry.name), name))
        return found


def _watch_children_by_pidfd() -> None:
    """The default of Python 3.11 is a thread for each child; newer versions do this by themselves."""
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        watcher = asyncio.get_child_watcher()
        if not isinstance(watcher, asyncio.PidfdChildWatcher) or not watcher.is_active():
            watcher = asyncio.PidfdChildWatcher()
            watcher.attach_loop(asyncio.get_running_loop())
            asyncio.set_child_watcher(watcher)


class _Detached(subprocess.Popen[bytes]):
    """A child meant to outlive us: reaped if it ends first, and no complaint if it does not."""

    def reap_when_ended(self) -> None:
        """Leave no zombie; costs nothing while it runs."""
        descriptor = _pidfd(self.pid)
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
        """Popen would warn that it still runs; it shall."""


@contextlib.asynccontextmanager
async def _whole(process: asyncio.subprocess.Process, grace: float = 0.0) -> AsyncIterator[None]:
    """On a time-out or a cancellation end what was started, all of it, also what outlived the program itself."""
    try:
        yield
    except BaseException:
        if grace:
            with contextlib.suppress(ProcessLookupError, PermissionError, TimeoutError):
                os.killpg(process.pid, signal.SIGINT)
                await asyncio.wait_for(asyncio.shield(process.wait()), grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        _unheard(process)
        with contextlib.suppress(ProcessLookupError):
            await asyncio.shield(process.wait())
        process._transport.close()  # type: ignore[attr-defined]
        raise


def _unheard(process: asyncio.subprocess.Process) -> None:
    """Listen to it no more: asyncio waits for the end of what a program said, which never comes where too much of it was not read."""
    for descriptor in (1, 2):
        if (pipe := process._transport.get_pipe_transport(descriptor)) is not None:  # type: ignore[attr-defined]
            pipe.close()


def _not_started(argv: Sequence[str], cwd: Path | None, error: OSError | ValueError) -> AoError:
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


def _pidfd(pid: int) -> int | None:
    """A descriptor that holds on to a process and becomes readable at its end; none where there is no such thing."""
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


async def to_its_end(work: Coroutine[None, None, T], patience: float = 30.0) -> T:
    """Run a program's main part, and end what it leaves running, in an order in which that can end.

    `asyncio.run` cancels everything at once: also the half of a program's start that connects its pipes, without which the other half
    waits for ever. What begins something else as it ends is waited for too.
    """
    try:
        return await work
    finally:
        told: set[asyncio.Task[Any]] = set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while others := asyncio.all_tasks() - {asyncio.current_task()}:
                    for task in others - told:
                        if getattr(task.get_coro(), "__name__", "") != "_connect_pipes":
                            task.cancel()
                    told |= others
                    await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)


def _boot_id() -> str:
    if sys.platform == "linux":
        return _first_line(Path("/proc/sys/kernel/random/boot_id"))
    return _output("sysctl", "-n", "kern.bootsessionuuid")


def _start_time(pid: int) -> str | None:
    """When a live process started, in the kernel's own words; none if it has ended, also if nobody has noticed yet."""
    if sys.platform == "linux":
        fields = _stat(pid)
        return None if fields is None or fields[0] in "ZX" else fields[19]
    state, _, started = _output("ps", "-o", "state=,lstart=", "-p", str(pid)).partition(" ")
    return None if not state or state.startswith("Z") else started.strip()


def _stat(pid: int) -> list[str] | None:
    """The fields of `/proc/<pid>/stat` from the state on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123 - read for every process there is
            return stat.read().rpartition(b")")[2].decode().split()
    except OSError as error:
        if short := machine_short(error):
            raise short from None
        return None


def _environment(pid: int) -> list[bytes]:
    """What a process was started with; nothing for those of others."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:  # noqa: PTH123 - read for every process there is
            return environment.read().split(b"\0")
    except OSError:
        return []


def _process_table() -> dict[int, tuple[int, int]]:
    """Parent and session leader of every process."""
    if sys.platform == "linux":
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
        return {pid: (int(fields[1]), int(fields[3])) for pid in pids if (fields := _stat(pid)) is not None}
    # Group leader instead of session leader: `ps` tells no session here.
    rows = (line.split() for line in _output("ps", "-axo", "pid=,ppid=,pgid=").splitlines())
    return {int(pid): (int(parent), int(group)) for pid, parent, group in rows}


def _output(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def _uses(process: Path, inside: str) -> bool:
    def below(link: Path) -> bool:
        try:
            target = str(link.readlink())
        except OSError:
            return False
        return target == inside or target.startswith(inside + "/")

    if below(process / "cwd"):
        return True
    try:
        return any(below(descriptor) for descriptor in (process / "fd").iterdir())
    except OSError:
        return False


def _first_line(path: Path) -> str:
    try:
        return path.read_text().splitlines()[0]
    except (OSError, IndexError):
        return ""


async def _read_line(stream: asyncio.StreamReader) -> bytes:
    """One line, or as much of an endless one as fits the buffer."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.readexactly(error.consumed)
