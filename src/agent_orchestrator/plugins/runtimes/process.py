"""The `process` runtime: a small PTY holder for each launch, without tmux. What the holder does is told in `pty_holder/`.

How it keeps its promises:

- *Started once.* The holder locks its generation and writes down the agent's pid before the agent's program starts.
- *Delivered once.* The holder remembers message ids, also in a file: it can be told after the agent has ended, and for certain
  unless the holder was killed.
- *Ended, pushed.* The kernel tells the end of the agent; the holder leaves its exit status in a file. A killed holder hangs up on
  its agent; one that survives that counts as alive until its process has ended, but nothing can be delivered to it any more.
- *Somebody is typing*: an attached person pressed a key within the last 30 s and neither Enter nor Ctrl-C after it.
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
from agent_orchestrator.errors import AoError, NotFound, Temporary, machine_short
from agent_orchestrator.plugins.runtimes import keys as keyboard
from agent_orchestrator.plugins.runtimes import launch_checks
from agent_orchestrator.plugins.runtimes.holder_client import Holders, here
from agent_orchestrator.plugins.runtimes.process_tree import stop_family
from agent_orchestrator.plugins.runtimes.screen_text import text_of_log, visible_text
from agent_orchestrator.protocols import (
    Alive,
    Delivered,
    Delivery,
    Exit,
    Gone,
    Handle,
    Held,
    LaunchSpec,
    Liveness,
    Undeliverable,
)
from agent_orchestrator.protocols.host import Host, ProcessId

TERM = "xterm-256color"
_HERE = Path(__file__).parent
_STARTS_WITHIN = 15.0
_SETTLES_WITHIN = 10.0
_ENTER_WITHIN = 10.0


class HolderGone(Exception):
    """No holder listens on the socket."""


class Process:
    """Agents in PTYs of our own."""

    name = "process"
    sockets = "pty"
    """How the names of its holders' sockets begin."""

    def __init__(self, config: Mapping[str, Any], host: Host, holders: Holders | None = None) -> None:
        self._holders = holders or here()
        self._home = Home(Path(config["home"])) if config.get("home") else Home.here()
        self._host = host

    # -- start ---------------------------------------------------------------------------------------------------------

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Start a holder with the process, or find the one that was started before."""
        launch_checks.check(spec)
        launch = self._launch(spec)
        holder, errors = launch_file(launch, "holder", ".json"), launch_file(launch, "holder", ".err")
        if not holder.exists():
            pid = await self._start_holder(spec, launch, errors)
            pause, until = 0.002, time.monotonic() + _STARTS_WITHIN
            while not holder.exists():
                # A holder that ends at once leaves the generation to another one, or could not start.
                if (self._host.process(pid) is None and not _locked(launch)) or time.monotonic() > until:
                    if holder.exists():
                        break
                    said = (await asyncio.to_thread(text_of, errors)).strip().splitlines() or ["it does not say why"]
                    raise Temporary(f"the terminal of session {spec.session} could not be started: {said[-1]}")
                await asyncio.sleep(pause)
        errors.unlink(missing_ok=True)
        return self._handle(launch)

    def _launch(self, spec: LaunchSpec) -> dict[str, str]:
        name = launch_checks.safe_name(spec.session, spec.generation)
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return {
            "session": spec.session,
            "generation": str(spec.generation),
            "private": str(spec.private),
            "log": str(spec.log),
            "socket": str(self._home.socket(f"{self.sockets}-{digest}.sock")),
        }

    async def _start_holder(self, spec: LaunchSpec, launch: Mapping[str, str], errors: Path) -> int:
        socket = Path(launch["socket"])
        for folder in (spec.private, spec.log.parent, socket.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        launch_checks.forget_others(spec.private, "spec")
        # Read by `leftovers`: what there is, also if the daemon forgets it right now.
        write_private(socket.with_suffix(".json"), json.dumps(launch).encode())
        told = Path(launch["private"], f"spec.{os.getpid()}.{time.monotonic_ns()}")
        write_private(told, _entries(spec, launch))
        argv, env = self._holders.command(told), self._holders.environment()
        try:
            return await self._host.spawn(argv, cwd=Path(_HERE.anchor), env=env, log=errors)
        except (AoError, OSError):
            launch_checks.remove_surely([told])
            raise

    def _handle(self, launch: Mapping[str, str]) -> Handle:
        told = json.loads(text_of(launch_file(launch, "holder", ".json")))
        pid, started = int(told["agent"]), told["agentStarted"]
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
            address={**address, "holder": told["holder"], "holderStarted": told["holderStarted"]},
        )

    # -- look ----------------------------------------------------------------------------------------------------------

    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """Look at the processes, and at what the holders wrote down; starts none."""
        return [await self._liveness(handle) for handle in handles]

    async def _liveness(self, handle: Handle) -> Liveness:
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        if self._host.process(handle.pid) == _agent(handle):
            return Alive()
        return await self._how_it_ended(handle)

    async def ended(self, handle: Handle) -> Gone:
        """Wait for the kernel to tell the end of the process, then read what its holder wrote down."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        await self._host.exited(_agent(handle))
        return await self._how_it_ended(handle)

    async def _how_it_ended(self, handle: Handle) -> Gone:
        pause, until = 0.002, time.monotonic() + _SETTLES_WITHIN
        while True:
            held = self._holder_lives(handle)
            if (exit_status := self._exit(handle)) is not None:
                return Gone(exit_status)
            if not held or time.monotonic() > until:
                return Gone(lost=not held)
            await asyncio.sleep(pause)
            pause *= 2

    def _exit(self, handle: Handle) -> Exit | None:
        """How it ended, as its holder wrote it down."""
        written = text_of(launch_file(launch_of(handle), "exit", ".json"))
        return Exit(**json.loads(written)) if written else None

    def _holder_lives(self, handle: Handle) -> bool:
        process = self._host.process(int(handle.address["holder"]))
        return process is not None and process.started == (handle.address["holderStarted"] or process.started)

    async def screen(self, handle: Handle) -> str:
        """The visible text; of a terminal that is gone, the end of its log."""
        try:
            columns, rows, output = await self._ask(handle, b"screen")
        except HolderGone:
            return await text_of_log(Path(handle.address["log"]))
        return await visible_text(output, int(columns), int(rows))

    async def watched(self, handle: Handle) -> bool:
        """Is a person attached to it?"""
        try:
            return (await self._ask(handle, b"watched"))[0] == b"1"
        except HolderGone:
            return False

    # -- talk ----------------------------------------------------------------------------------------------------------

    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Write a message and press Enter, once for each message id, unless something holds it."""
        if handle.boot_id != self._host.boot_id():
            return Undeliverable("the machine was started anew", ambiguous=True)
        key = _key(message)
        request = (b"deliver", key.encode(), b"1" if enter else b"0", text.encode(errors="replace"))
        until = time.monotonic() + _ENTER_WITHIN
        while True:
            try:
                state, *details = await self._ask(handle, *request)
            except HolderGone:
                return await self._delivered_before(handle, key)
            if state == b"delivered":
                return Delivered()
            if state == b"held":
                return Held(details[0].decode())
            if state == b"ended":
                return Undeliverable("the agent has ended")
            if time.monotonic() > until:
                return Held("the message before it is still being entered")
            await asyncio.sleep(0.02)

    async def _delivered_before(self, handle: Handle, key: str) -> Delivery:
        """Without a holder: what it wrote down."""
        if key in text_of(launch_file(launch_of(handle), "delivered")).split():
            return Delivered()
        if (await self._liveness(handle)) == Alive():
            return Undeliverable("its terminal is gone", ambiguous=True)
        return Undeliverable("the agent has ended", ambiguous=self._exit(handle) is None)

    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Press keys; the holder remembers what was pressed once as it remembers messages."""
        typed = b"".join(map(keyboard.encoded, keys)).hex().encode()
        await self._act(handle, b"press", typed, *([_key(f"press {once}").encode()] if once else []))

    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Set the terminal's size; a person who attaches changes it again."""
        await self._act(handle, b"resize", str(columns).encode(), str(rows).encode())

    async def _act(self, handle: Handle, *request: bytes) -> None:
        try:
            await self._ask(handle, *request)
        except HolderGone:
            raise NotFound(f"the terminal of session {handle.session} is gone", "restore the session") from None

    async def _ask(self, handle: Handle, *fields: bytes) -> list[bytes]:
        if handle.boot_id != self._host.boot_id():
            raise HolderGone
        body = b"\0".join(fields)
        try:
            async with asyncio.timeout(10):
                reader, writer = await self._holders.connect(handle.address["socket"])
                try:
                    writer.write(b"Q" + len(body).to_bytes(4, "big") + body)
                    head = await reader.readexactly(5)
                    answer = await reader.readexactly(int.from_bytes(head[1:], "big"))
                finally:
                    writer.close()
        except TimeoutError:
            raise Temporary(f"the terminal of session {handle.session} does not answer", "try again") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise machine_short(error) or HolderGone() from None
        return answer.split(b"\0", 2)

    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """A client of the holder; Ctrl-] detaches."""
        return attach_command(Path(handle.address["socket"]), handle.session, watch=watch)

    # -- end -----------------------------------------------------------------------------------------------------------

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the process and everything it started; its holder ends by itself."""
        if handle.boot_id != self._host.boot_id():
            return Gone(lost=True)
        await stop_family(self._host, _agent(handle), grace)
        return await self.ended(handle)

    async def discard(self, handle: Handle) -> None:
        """Forget the terminal; a holder that still runs is told to hang up."""
        holder = ProcessId(int(handle.address["holder"]), handle.address["holderStarted"])
        if handle.boot_id == self._host.boot_id() and self._host.kill(holder, 15):
            await self._host.exited(holder)
        socket = Path(handle.address["socket"])
        for path in (socket, socket.with_suffix(".json")):
            path.unlink(missing_ok=True)

    async def leftovers(self, known: Sequence[Handle]) -> list[Handle]:
        """Agents with a holder of ours that no known handle names."""
        sockets = {handle.address["socket"] for handle in known if handle.runtime == self.name}
        found = []
        for path in sorted(self._home.socket("x").parent.glob(f"{self.sockets}-*.json")):
            launch = json.loads(text_of(path) or "{}")
            if launch and launch["socket"] not in sockets and launch_file(launch, "holder", ".json").exists():
                found.append(self._handle(launch))
        return found


def attach_command(socket: Path, session: str, *, watch: bool = False) -> tuple[str, ...]:
    """A client of the holder that this socket leads to."""
    client = (sys.executable, "-I", str(_HERE / "pty_holder" / "attach.py"))
    return (*client, str(socket), session, *(["watch"] if watch else []))


def _key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:24]


def _agent(handle: Handle) -> ProcessId:
    return ProcessId(handle.pid, handle.started)


def launch_of(handle: Handle) -> dict[str, str]:
    return {**handle.address, "generation": str(handle.generation)}


def launch_file(launch: Mapping[str, str], name: str, suffix: str = "") -> Path:
    return Path(launch["private"], f"{name}.{launch['generation']}{suffix}")


def text_of(path: Path) -> str:
    """What is in it; nothing if it is not there. Raises where that cannot be looked up."""
    try:
        return path.read_text()
    except OSError as error:
        if short := machine_short(error):
            raise short from None
        return ""


def write_private(path: Path, content: bytes) -> None:
    """A file for the owner only, there whole or not at all."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(content)
    fresh.replace(path)


def _locked(launch: Mapping[str, str]) -> bool:
    """Does a holder of this generation live?"""
    try:
        with launch_file(launch, "holder", ".lock").open("rb") as lock:
            return not locking.is_free(lock)
    except FileNotFoundError:
        return False


def _entries(spec: LaunchSpec, launch: Mapping[str, str]) -> bytes:
    entries = [("a", argument) for argument in spec.argv]
    entries += [("e", f"{name}={value}") for name, value in launch_checks.environment(spec, TERM).items()]
    entries += [("d", str(spec.cwd)), ("l", launch["log"]), ("s", launch["socket"]), ("p", launch["private"])]
    entries += [("g", launch["generation"]), ("c", str(spec.columns)), ("r", str(spec.rows))]
    if spec.stdin is not None:
        entries.append(("i", str(spec.stdin)))
    if spec.lease is not None:
        entries.append(("t", str(spec.lease)))
    return b"\0".join(os.fsencode(kind + value) for kind, value in entries)
