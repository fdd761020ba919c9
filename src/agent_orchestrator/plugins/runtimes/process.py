"""The `process` runtime: one small PTY holder per launch, without tmux. The holder itself is described in `pty_holder/__init__.py`.

Guarantees:

- *Started once.* The holder locks its generation and writes the agent's pid to a file before the agent's program starts.
- *Delivered once.* The holder stores the ids of delivered messages, also in a file, so they can be read after the agent has ended; only
  a killed holder leaves a delivery uncertain.
- *Exit is reported at once.* The kernel reports the agent's exit; the holder leaves the exit status in a file. A killed holder hangs up
  on its agent; an agent that survives that counts as alive until its process has ended, but nothing can be delivered to it any more.
- *A person is typing*: an attached person pressed a key within the last 30 s and neither Enter nor Ctrl-C after it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files import lock as locking
from agent_orchestrator.base.home import Home
from agent_orchestrator.errors import AoError, NotFound, Temporary, resource_shortage
from agent_orchestrator.plugins.runtimes import keys as keyboard
from agent_orchestrator.plugins.runtimes import launch_checks, single_use_files
from agent_orchestrator.plugins.runtimes.holder_client import HolderClient, system_holders
from agent_orchestrator.plugins.runtimes.process_tree import stop_process_tree
from agent_orchestrator.plugins.runtimes.screen_text import text_of_log, visible_text
from agent_orchestrator.protocols import (
    Alive,
    Delivered,
    Delivery,
    Exit,
    Gone,
    Handle,
    LaunchSpec,
    Liveness,
    NotReady,
    Runtime,
    Undeliverable,
)
from agent_orchestrator.protocols.host import Host, ProcessId

TERM = "xterm-256color"
_HERE = Path(__file__).parent
_START_TIMEOUT = 15.0
_EXIT_FILE_TIMEOUT = 10.0
_ENTER_TIMEOUT = 10.0


class HolderGone(Exception):
    """Raised when no holder listens on the socket."""


class ProcessRuntime(Runtime):
    """Agents in terminals (PTYs) of Agent Orchestrator's own, without tmux."""

    name = "process"
    socket_prefix = "pty"
    """The prefix of the holders' socket names."""

    def __init__(self, config: Mapping[str, Any], host: Host, holders: HolderClient | None = None) -> None:
        self._holders = holders or system_holders()
        self._home = Home(Path(config["home"])) if config.get("home") else Home.from_environment()
        self._host = host

    # -- start ---------------------------------------------------------------------------------------------------------

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Start a holder with the agent's process, or return the handle of the one that was started before.

        Raises `Temporary` if the holder ends, or is not ready in time.
        """
        launch_checks.check(spec)
        launch = self._launch(spec)
        holder, errors = launch_file(launch, "holder", ".json"), launch_file(launch, "holder", ".err")
        if not holder.exists():
            pid = await self._start_holder(spec, launch, errors)
            pause, deadline = 0.002, time.monotonic() + _START_TIMEOUT
            while not holder.exists():
                # A holder that ends at once lost the generation's lock to another one, or could not start.
                if (
                    self._host.process(pid) is None and not _is_generation_locked(launch)
                ) or time.monotonic() > deadline:
                    if holder.exists():
                        break
                    error_lines = (await asyncio.to_thread(read_text, errors)).strip().splitlines() or [
                        "it does not say why"
                    ]
                    raise Temporary(f"the terminal of session {spec.session} could not be started: {error_lines[-1]}")
                await asyncio.sleep(pause)
        errors.unlink(missing_ok=True)
        return self._handle(launch)

    def _launch(self, spec: LaunchSpec) -> dict[str, str]:
        """Return the launch's description as stored in files: session, generation, private folder, log and socket."""
        name = launch_checks.safe_name(spec.session, spec.generation)
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return {
            "session": spec.session,
            "generation": str(spec.generation),
            "private": str(spec.private),
            "log": str(spec.log),
            "socket": str(self._home.socket(f"{self.socket_prefix}-{digest}.sock")),
        }

    async def _start_holder(self, spec: LaunchSpec, launch: Mapping[str, str], errors: Path) -> int:
        """Write the specification file and start a holder that reads it; return the holder's pid."""
        socket = Path(launch["socket"])
        for folder in (spec.private, spec.log.parent, socket.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        single_use_files.remove_stale_files(spec.private, "spec")
        # Read by `leftovers`, so that the launch is found even if the daemon is killed now.
        write_private(socket.with_suffix(".json"), json.dumps(launch).encode())
        spec_file = Path(launch["private"], f"spec.{os.getpid()}.{time.monotonic_ns()}")
        write_private(spec_file, _spec_content(spec, launch))
        argv, env = self._holders.command(spec_file), self._holders.environment()
        try:
            return await self._host.spawn(argv, cwd=Path(_HERE.anchor), env=env, log=errors)
        except (AoError, OSError):
            single_use_files.remove_with_retry([spec_file])
            raise

    def _handle(self, launch: Mapping[str, str]) -> Handle:
        """Return the handle of a launch, from the file that its holder has written."""
        holder_record = json.loads(read_text(launch_file(launch, "holder", ".json")))
        pid, started = int(holder_record["agent"]), holder_record["agentStarted"]
        if not started and (process := self._host.process(pid)):
            started = process.started
        address = {key: launch[key] for key in ("socket", "private", "log")}
        return Handle(
            runtime=self.name,
            session=launch["session"],
            generation=int(launch["generation"]),
            pid=pid,
            started=started,
            boot_id=self._host.boot_id(),
            address={**address, "holder": holder_record["holder"], "holderStarted": holder_record["holderStarted"]},
        )

    # -- read ----------------------------------------------------------------------------------------------------------

    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """Return whether each agent is alive, from the process table and the holders' files; starts no process."""
        return [await self._liveness(handle) for handle in handles]

    async def _liveness(self, handle: Handle) -> Liveness:
        """Return whether the agent is alive, or how it ended."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        if self._host.process(handle.pid) == _agent_process(handle):
            return Alive()
        return await self._wait_for_exit(handle)

    async def ended(self, handle: Handle) -> Gone:
        """Wait for the kernel to report the end of the process, then return the exit that its holder has written."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        await self._host.exited(_agent_process(handle))
        return await self._wait_for_exit(handle)

    async def _wait_for_exit(self, handle: Handle) -> Gone:
        """Return the exit of an ended agent; `lost` if its holder is gone without having written one."""
        pause, deadline = 0.002, time.monotonic() + _EXIT_FILE_TIMEOUT
        while True:
            holder_lives = self._holder_lives(handle)
            if (exit_status := self._exit(handle)) is not None:
                return Gone(exit_status)
            if not holder_lives or time.monotonic() > deadline:
                return Gone(lost=not holder_lives)
            await asyncio.sleep(pause)
            pause *= 2

    def _exit(self, handle: Handle) -> Exit | None:
        """Return the exit status that the holder has written, or None."""
        exit_record = read_text(launch_file(launch_from_handle(handle), "exit", ".json"))
        return Exit(**json.loads(exit_record)) if exit_record else None

    def _holder_lives(self, handle: Handle) -> bool:
        """Return whether the holder's process is running."""
        process = self._host.process(int(handle.address["holder"]))
        return process is not None and process.started == (handle.address["holderStarted"] or process.started)

    async def screen(self, handle: Handle) -> str:
        """Return the visible text; if the terminal is gone, that of the end of its log."""
        try:
            columns, rows, output = await self._request(handle, b"screen")
        except HolderGone:
            return await text_of_log(Path(handle.address["log"]))
        return await visible_text(output, int(columns), int(rows))

    async def watched(self, handle: Handle) -> bool:
        """Return whether a person is attached to the terminal."""
        try:
            return (await self._request(handle, b"watched"))[0] == b"1"
        except HolderGone:
            return False

    # -- input ---------------------------------------------------------------------------------------------------------

    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Write a message and press Enter, once per message id, unless something holds it back."""
        if handle.boot_id != self._host.boot_id():
            return Undeliverable("the machine was started anew", ambiguous=True)
        key = _key(message)
        request = (b"deliver", key.encode(), b"1" if enter else b"0", text.encode(errors="replace"))
        deadline = time.monotonic() + _ENTER_TIMEOUT
        while True:
            try:
                state, *details = await self._request(handle, *request)
            except HolderGone:
                return await self._delivery_from_file(handle, key)
            if state == b"delivered":
                return Delivered()
            if state == b"held":
                return NotReady(details[0].decode())
            if state == b"ended":
                return Undeliverable("the agent has ended")
            if time.monotonic() > deadline:
                return NotReady("the message before it is still being entered")
            await asyncio.sleep(0.02)

    async def _delivery_from_file(self, handle: Handle, key: str) -> Delivery:
        """Return the state of a delivery without a holder, from the file of delivered ids."""
        if key in read_text(launch_file(launch_from_handle(handle), "delivered")).split():
            return Delivered()
        if (await self._liveness(handle)) == Alive():
            return Undeliverable("its terminal is gone", ambiguous=True)
        return Undeliverable("the agent has ended", ambiguous=self._exit(handle) is None)

    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Press keys; with `once`, the holder stores that id as it stores message ids and presses the keys only once."""
        typed = b"".join(map(keyboard.encode, keys)).hex().encode()
        await self._request_or_not_found(handle, b"press", typed, *([_key(f"press {once}").encode()] if once else []))

    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Set the terminal's size; a person who attaches changes it again."""
        await self._request_or_not_found(handle, b"resize", str(columns).encode(), str(rows).encode())

    async def _request_or_not_found(self, handle: Handle, *request: bytes) -> None:
        """Send a request to the holder. Raises `NotFound` if it is gone."""
        try:
            await self._request(handle, *request)
        except HolderGone:
            raise NotFound(f"the terminal of session {handle.session} is gone", "restore the session") from None

    async def _request(self, handle: Handle, *fields: bytes) -> list[bytes]:
        """Send a request to the holder and return the fields of its reply.

        Raises `HolderGone` if no holder listens, `Temporary` if it does not reply within 10 s.
        """
        if handle.boot_id != self._host.boot_id():
            raise HolderGone
        body = b"\0".join(fields)
        try:
            async with asyncio.timeout(10):
                reader, writer = await self._holders.connect(handle.address["socket"])
                try:
                    writer.write(b"Q" + len(body).to_bytes(4, "big") + body)
                    header = await reader.readexactly(5)
                    reply = await reader.readexactly(int.from_bytes(header[1:], "big"))
                finally:
                    writer.close()
        except TimeoutError:
            raise Temporary(f"the terminal of session {handle.session} does not answer", "try again") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise resource_shortage(error) or HolderGone() from None
        return reply.split(b"\0", 2)

    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """Return the command that attaches to the terminal; Ctrl-] detaches."""
        return attach_command(Path(handle.address["socket"]), handle.session, watch=watch)

    # -- end -----------------------------------------------------------------------------------------------------------

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the process and everything it started, and return its exit; the holder then ends without being stopped."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        await stop_process_tree(self._host, _agent_process(handle), grace)
        return await self.ended(handle)

    async def discard(self, handle: Handle) -> None:
        """Remove the terminal's socket; a holder that still runs is stopped, which hangs up on its agent."""
        holder = ProcessId(int(handle.address["holder"]), handle.address["holderStarted"])
        if handle.boot_id == self._host.boot_id() and self._host.kill(holder, 15):
            await self._host.exited(holder)
        socket = Path(handle.address["socket"])
        for path in (socket, socket.with_suffix(".json")):
            path.unlink(missing_ok=True)

    async def orphaned_terminals(self, expected: Sequence[Handle]) -> list[Handle]:
        """Return the handles of launches for which a holder was started and that are not expected; both may have ended."""
        sockets = {handle.address["socket"] for handle in expected if handle.runtime == self.name}
        leftover_handles = []
        for path in sorted(self._home.socket("x").parent.glob(f"{self.socket_prefix}-*.json")):
            launch = json.loads(read_text(path) or "{}")
            if launch and launch["socket"] not in sockets and launch_file(launch, "holder", ".json").exists():
                leftover_handles.append(self._handle(launch))
        return leftover_handles


def attach_command(socket: Path, session: str, *, watch: bool = False) -> tuple[str, ...]:
    """Return the command that attaches to the holder on this socket."""
    client = (sys.executable, "-I", str(_HERE / "pty_holder" / "attach.py"))
    return (*client, str(socket), session, *(["watch"] if watch else []))


def _key(name: str) -> str:
    """Return the short hash under which a message id is stored."""
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def _agent_process(handle: Handle) -> ProcessId:
    """Return the identity of the agent's process."""
    return ProcessId(handle.pid, handle.started)


def launch_from_handle(handle: Handle) -> dict[str, str]:
    """Return a launch's description from its handle."""
    return {**handle.address, "generation": str(handle.generation)}


def launch_file(launch: Mapping[str, str], name: str, suffix: str = "") -> Path:
    """Return the path of a file of this launch in its private folder."""
    return Path(launch["private"], f"{name}.{launch['generation']}{suffix}")


def read_text(path: Path) -> str:
    """Return the file's content, or "" if it does not exist. Raises if the machine is short of a resource."""
    try:
        return path.read_text()
    except OSError as error:
        if short := resource_shortage(error):
            raise short from None
        return ""


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only the owner can read, atomically."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(content)
    temporary.replace(path)


def _is_generation_locked(launch: Mapping[str, str]) -> bool:
    """Return whether a holder of this generation is running."""
    try:
        with launch_file(launch, "holder", ".lock").open("rb") as lock:
            return not locking.is_free(lock)
    except FileNotFoundError:
        return False


def _spec_content(spec: LaunchSpec, launch: Mapping[str, str]) -> bytes:
    """Return the specification that a holder reads; the format is described in `pty_holder/__init__.py`."""
    entries = [("a", argument) for argument in spec.argv]
    entries += [("e", f"{name}={value}") for name, value in launch_checks.environment(spec, TERM).items()]
    entries += [("d", str(spec.cwd)), ("l", launch["log"]), ("s", launch["socket"]), ("p", launch["private"])]
    entries += [("g", launch["generation"]), ("c", str(spec.columns)), ("r", str(spec.rows))]
    if spec.stdin is not None:
        entries.append(("i", str(spec.stdin)))
    if spec.lease is not None:
        entries.append(("t", str(spec.lease)))
    return b"\0".join(os.fsencode(kind + value) for kind, value in entries)
