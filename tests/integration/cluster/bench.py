"""A daemon's end and a real Worker with separate homes, connected by a real WebSocket on loopback."""

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
from agent_orchestrator.cluster.daemon.remote_node import RemoteNode, accept_node
from agent_orchestrator.cluster.link.calls import TOKEN_VARIABLE, Hello
from agent_orchestrator.cluster.link.connection import LinkReply, LinkRequest, NodeLink
from agent_orchestrator.cluster.link.transports import SocketTransport
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Handle, LaunchSpec, WorkspaceInfo, WorkspaceSpec

SECRET = "the-node's-own"
IDENTITY = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}


class NodeBench:
    """The daemon's end, which knows one node, and that node's Worker in its own process."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="ao-n-"))
        self.daemon_home = Home(self.root / "daemon")
        self.node_home = Home(self.root / "node")
        self.daemon_home.create_folders()
        self.node: RemoteNode | None = None
        self.links: list[NodeLink] = []
        self.connections: list[Any] = []
        self._reserved_port = socket.socket()
        """Reserves the port while nothing listens, so that no other program gets it and no caller connects to itself."""
        self._reserved_port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved_port.bind(("127.0.0.1", 0))
        self.port: int = self._reserved_port.getsockname()[1]
        self.lease = 10.0
        """Seconds that agents may work without contact to the daemon."""
        self.stale_launches: set[tuple[str, int]] = set()
        """Launches (session, generation) that may not work."""
        self.worker: subprocess.Popen[bytes] | None = None
        self._server: Any = None

    # -- the daemon's end

    async def open(self) -> None:
        """Listen on the same port as before."""
        self._server = await websockets.serve(
            self._connected, "127.0.0.1", self.port, compression=None, ping_interval=None, close_timeout=0.2
        )

    async def close_daemon(self) -> None:
        """Stop the daemon's end: stop listening and cut every connection."""
        self._server.close(close_connections=False)
        await self.cut()
        await self._server.wait_closed()
        if self.node is not None:
            await self.node.close()

    async def restart_daemon(self, home: Home | None = None) -> None:
        """Start another daemon with the same home, or with another one."""
        await self.close_daemon()
        self.node = None
        self.daemon_home = home or self.daemon_home
        self.daemon_home.create_folders()
        await self.open()

    async def _connected(self, connection: Any) -> None:
        if connection.request.headers.get("Authorization") != f"Bearer {SECRET}":
            await connection.close(1008)
            return
        self.connections.append(connection)
        with contextlib.suppress(AoError):
            node = await accept_node(SocketTransport(connection), self._node_for)
            link = node.link
            self.links.append(link)
            await link.closed.wait()

    async def _node_for(self, hello: Hello) -> RemoteNode:
        if self.node is None:
            self.node = RemoteNode(hello, self.daemon_home, handlers={"lease.renew": self._renew})
        return self.node

    async def _renew(self, request: LinkRequest) -> LinkReply:
        launches = request.body["launches"]
        stale = [name for name, generation in launches.items() if (name, generation) in self.stale_launches]
        return LinkReply({"length": self.lease, "refused": stale})

    async def cut(self) -> None:
        """Abort the connections without closing them on either side."""
        for connection in self.connections:
            connection.transport.abort()
        self.connections.clear()
        for link in self.links:
            await link.closed.wait()

    async def connected_node(self) -> RemoteNode:
        """Wait until the node is connected, and return it."""
        async with asyncio.timeout(60):
            while self.node is None:
                await asyncio.sleep(0.01)
            await self.node.wait_connected()
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
        environment = {**os.environ, **IDENTITY, TOKEN_VARIABLE: SECRET, "AO_HOME": str(self.root / "nowhere")}
        with (self.root / "worker.log").open("ab") as log:
            self.worker = subprocess.Popen(
                [*argv, "--name", "n1", "--home", str(self.node_home.path), *arguments],
                env=environment,
                stdout=log,
                stderr=log,
                cwd="/",
            )

    def kill_worker(self) -> None:
        """Kill the Worker with SIGKILL."""
        assert self.worker is not None
        self.worker.kill()
        self.worker.wait()

    async def close(self) -> None:
        """Stop everything and remove all files."""
        if self.worker is not None and self.worker.poll() is None:
            self.worker.terminate()
            await asyncio.to_thread(self.worker.wait, 60)
        await self.close_daemon()
        self._reserved_port.close()
        host = LocalHost()
        for mark in sorted(self.node_home.sessions.glob("*/holder.*.json")):
            for process in host.processes_with_variable("AO_SPOOL_FOLDER", str(mark.parent)):
                host.kill(process, 9)
        shutil.rmtree(self.root, ignore_errors=True)

    # -- a session there

    def repository(self) -> Path:
        """Create a repository with one commit on the node."""
        repo = self.node_home.path / "repos" / "app"
        repo.mkdir(parents=True)
        for argv in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "start"]):
            subprocess.run(["git", "-C", str(repo), *argv], check=True, env={**os.environ, **IDENTITY})
        return repo

    def workspace_spec(self, session: str = "app-fix") -> WorkspaceSpec:
        """Return the specification of a session's workspace on the node."""
        path = self.node_home.worktrees / "app" / session
        return WorkspaceSpec(
            session=session,
            repo=self.node_home.path / "repos" / "app",
            path=path,
            link=None,
            private=self.node_home.session(session),
            branch=f"ao/{session}",
            base="main",
        )

    async def workspace(self, session: str = "app-fix") -> WorkspaceInfo:
        """Create a session's workspace on the node."""
        node = await self.connected_node()
        return await node.workspace("clone").create(self.workspace_spec(session), lambda _line: None)

    async def launch(
        self, argv: Sequence[str], session: str = "app-fix", generation: int = 1, cwd: Path | None = None
    ) -> Handle:
        """Start a program in a session's terminal on the node."""
        node, private = await self.connected_node(), self.node_home.session(session)
        env = {
            "PATH": os.environ["PATH"],
            "AO_SPOOL": str(self.node_home.spool(session, generation)),
            "AO_SPOOL_FOLDER": str(private),
            "AO_TASK_FILE": str(private / "task.md"),
            **IDENTITY,
        }
        spec = LaunchSpec(
            session=session,
            generation=generation,
            argv=tuple(argv),
            cwd=cwd or self.node_home.path,
            env=env,
            private=private,
            log=self.node_home.terminal_log(session),
        )
        return await node.runtime().launch(spec)

    def spool(self, session: str = "app-fix", generation: int = 1) -> bytes:
        """Return the mirrored spool of a session, or b"" if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return self.daemon_home.spool(session, generation).read_bytes()
        return b""

    def log(self, session: str = "app-fix") -> bytes:
        """Return the mirrored terminal log of a session, or b"" if there is none."""
        with contextlib.suppress(FileNotFoundError):
            return self.daemon_home.terminal_log(session).read_bytes()
        return b""


@contextlib.asynccontextmanager
async def bench(*arguments: str) -> AsyncIterator[NodeBench]:
    """Yield a daemon's end and a Worker that has connected to it."""
    running_bench = NodeBench()
    try:
        await running_bench.open()
        running_bench.start_worker(*arguments)
        yield running_bench
    finally:
        await running_bench.close()


def shell(script: str) -> tuple[str, ...]:
    """Return a command that runs this script."""
    return ("/bin/sh", "-c", script)


class Pipe:
    """One end of a connection in memory; a full queue makes the sender wait."""

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
