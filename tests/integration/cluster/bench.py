"""A daemon's end and a real Worker for tests: each with a home of its own, joined by a real WebSocket on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import websockets

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster.link.calls import TOKEN, Hello
from agent_orchestrator.cluster.link.connection import Link, Reply, Request
from agent_orchestrator.cluster.link.transports import SocketTransport
from agent_orchestrator.cluster.nodes.remote import RemoteNode, accept
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Handle, LaunchSpec, WorkspaceInfo, WorkspaceSpec

SECRET = "the-node's-own"
IDENTITY = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}


class Bench:
    """The daemon's end, which knows one node, and that node's Worker as a process of its own."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ao-n-"))
        self.local = Home(self.root / "daemon")
        self.there = Home(self.root / "node")
        self.local.make()
        self.node: RemoteNode | None = None
        self.links: list[Link] = []
        self.connections: list[Any] = []
        self._kept = socket.socket()
        """Keeps the port while nobody listens: neither is it given to another, nor does who dials it reach himself."""
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind(("127.0.0.1", 0))
        self.port: int = self._kept.getsockname()[1]
        self.lease = 10.0
        """Seconds that agents may work on without word from the daemon."""
        self.stale: set[tuple[str, int]] = set()
        """Launches (session, generation) that may not."""
        self.worker: subprocess.Popen[bytes] | None = None
        self._server: Any = None

    # -- the daemon's end

    async def open(self) -> None:
        """Listen where it listened before."""
        self._server = await websockets.serve(
            self._connected, "127.0.0.1", self.port, compression=None, ping_interval=None, close_timeout=0.2
        )

    async def close_daemon(self) -> None:
        """The daemon goes: nobody listens, and every connection is cut."""
        self._server.close(close_connections=False)
        await self.cut()
        await self._server.wait_closed()
        if self.node is not None:
            await self.node.close()

    async def restart_daemon(self, home: Home | None = None) -> None:
        """Another daemon, which remembers nothing but its files; with another home not even these."""
        await self.close_daemon()
        self.node = None
        self.local = home or self.local
        self.local.make()
        await self.open()

    async def _connected(self, connection: Any) -> None:
        if connection.request.headers.get("Authorization") != f"Bearer {SECRET}":
            await connection.close(1008)
            return
        self.connections.append(connection)
        with contextlib.suppress(AoError):
            node = await accept(SocketTransport(connection), self._node_for)
            link = node.link
            self.links.append(link)
            await link.closed.wait()

    async def _node_for(self, hello: Hello) -> RemoteNode:
        if self.node is None:
            self.node = RemoteNode(hello, self.local, handlers={"lease.renew": self._renew})
        return self.node

    async def _renew(self, request: Request) -> Reply:
        launches = request.body["launches"]
        stale = [name for name, generation in launches.items() if (name, generation) in self.stale]
        return Reply({"length": self.lease, "refused": stale})

    async def cut(self) -> None:
        """Lose the link, without a word to either side."""
        for connection in self.connections:
            connection.transport.abort()
        self.connections.clear()
        for link in self.links:
            await link.closed.wait()

    async def linked(self) -> RemoteNode:
        """The node, once it is connected."""
        async with asyncio.timeout(60):
            while self.node is None:
                await asyncio.sleep(0.01)
            await self.node.until_connected()
        return self.node

    # -- the node

    def start_worker(self, *arguments: str) -> None:
        """Start the Worker of this node."""
        argv = [
            sys.executable,
            "-m",
            "agent_orchestrator.cluster.node.worker",
            "--url",
            f"http://127.0.0.1:{self.port}",
        ]
        environment = {**os.environ, **IDENTITY, TOKEN: SECRET, "AO_HOME": str(self.root / "nowhere")}
        with (self.root / "worker.log").open("ab") as log:
            self.worker = subprocess.Popen(
                [*argv, "--name", "n1", "--home", str(self.there.path), *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                cwd="/",
            )

    def kill_worker(self) -> None:
        """Without a word."""
        assert self.worker is not None
        self.worker.kill()
        self.worker.wait()

    async def close(self) -> None:
        """Leave nothing running and nothing behind."""
        if self.worker is not None and self.worker.poll() is None:
            self.worker.terminate()
            await asyncio.to_thread(self.worker.wait, 60)
        await self.close_daemon()
        self._kept.close()
        host = LocalHost()
        for mark in sorted(self.there.sessions.glob("*/holder.*.json")):
            for process in host.marked("AO_SPOOL_FOLDER", str(mark.parent)):
                host.kill(process, 9)
        shutil.rmtree(self.root, ignore_errors=True)

    # -- a session there

    def repository(self) -> Path:
        """A repository with one commit, on the node."""
        repo = self.there.path / "repos" / "app"
        repo.mkdir(parents=True)
        for argv in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "start"]):
            subprocess.run(["git", "-C", str(repo), *argv], check=True, env={**os.environ, **IDENTITY})
        return repo

    def workspace_spec(self, session: str = "app-fix") -> WorkspaceSpec:
        """What a session's workspace is to be."""
        path = self.there.worktrees / "app" / session
        return WorkspaceSpec(
            session=session,
            repo=self.there.path / "repos" / "app",
            path=path,
            link=None,
            private=self.there.session(session),
            branch=f"ao/{session}",
            base="main",
        )

    async def workspace(self, session: str = "app-fix") -> WorkspaceInfo:
        """Make a session's workspace on the node."""
        node = await self.linked()
        return await node.workspace("clone").create(self.workspace_spec(session), lambda _line: None)

    async def launch(
        self, argv: Sequence[str], session: str = "app-fix", generation: int = 1, cwd: Path | None = None
    ) -> Handle:
        """Start a program in a session's terminal on the node."""
        node, private = await self.linked(), self.there.session(session)
        env = {
            "PATH": os.environ["PATH"],
            "AO_SPOOL": str(self.there.spool(session, generation)),
            "AO_SPOOL_FOLDER": str(private),
            "AO_TASK_FILE": str(private / "task.md"),
            **IDENTITY,
        }
        spec = LaunchSpec(
            session=session,
            generation=generation,
            argv=tuple(argv),
            cwd=cwd or self.there.path,
            env=env,
            private=private,
            log=self.there.terminal_log(session),
        )
        return await node.runtime().launch(spec)

    def spool(self, session: str = "app-fix", generation: int = 1) -> bytes:
        """What has arrived of a session's reports."""
        with contextlib.suppress(FileNotFoundError):
            return self.local.spool(session, generation).read_bytes()
        return b""

    def log(self, session: str = "app-fix") -> bytes:
        """What has arrived of a session's output."""
        with contextlib.suppress(FileNotFoundError):
            return self.local.terminal_log(session).read_bytes()
        return b""


@contextlib.asynccontextmanager
async def bench(*arguments: str) -> AsyncIterator[Bench]:
    """A daemon's end with a Worker that has dialled it."""
    made = Bench()
    try:
        await made.open()
        made.start_worker(*arguments)
        yield made
    finally:
        await made.close()


def shell(script: str) -> tuple[str, ...]:
    """A command that runs this script."""
    return ("/bin/sh", "-c", script)


class Pipe:
    """One end of a connection in memory that takes so many frames before it makes the sender wait."""

    def __init__(self, out: asyncio.Queue[bytes | None], into: asyncio.Queue[bytes | None]) -> None:
        self._out, self._into = out, into
        self.sent: list[int] = []
        self.reason = ""

    async def send(self, frame: bytes) -> None:
        self.sent.append(len(frame))
        await self._out.put(frame)

    async def receive(self) -> bytes:
        frame = await self._into.get()
        if frame is None:
            raise ConnectionError("cut")
        return frame

    async def close(self, reason: str = "") -> None:
        self.reason = reason
        for queue in (self._out, self._into):
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(None)
