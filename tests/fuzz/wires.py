"""Targets that read protocols of our programs: the PTY holder's socket, the nodes' link, the client's HTTP, Git's packet lines."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.http_client import BufferedSocket, CompleteResponse, StreamedResponse, quote, unquote
from agent_orchestrator.cluster.git_server import RequestStream, Rights, answer_fetch, receive_push
from agent_orchestrator.cluster.link.channel import Channel
from agent_orchestrator.cluster.link.connection import LinkReply, LinkRequest, NodeLink
from agent_orchestrator.errors import AoError, UsageError
from tests.fuzz.target import FuzzTarget
from tests.fuzz.texts import pieces

_HEAD = struct.Struct("!BQ")


# -- the holder --------------------------------------------------------------------------------------------------------


class HolderProcess:
    """A holder with `cat` in its terminal, for many inputs; it is restarted after an input has ended it."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Path:
        """Start the holder if needed and return its socket."""
        if self._folder is not None and self._process is not None and self._process.poll() is None:
            return self._folder / "s"
        self.close()
        folder = self._folder = Path(tempfile.mkdtemp(prefix="ao-fz-"))  # sockets have short names
        settings = {"a": "cat", "d": str(folder), "l": str(folder / "log"), "s": str(folder / "s"), "p": str(folder)}
        entries = [*settings.items(), ("g", "1"), ("c", "80"), ("r", "24"), ("e", f"PATH={os.environ['PATH']}")]
        (folder / "spec").write_bytes(b"\0".join(f"{kind}{value}".encode() for kind, value in entries))
        command = (
            "import sys; from agent_orchestrator.plugins.runtimes.pty_holder.holder import main; main(sys.argv[1])"
        )
        with (folder / "stderr").open("wb") as error_file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", command, folder / "spec"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=error_file,
            )
        end = time.monotonic() + 20
        while not (folder / "s").exists() or not (folder / "holder.1.json").exists():
            assert time.monotonic() < end and self._process.poll() is None, "the holder does not start"
            time.sleep(0.005)
        return folder / "s"

    def is_alive(self) -> bool:
        """Return whether the holder still answers."""
        try:
            with _connect(self.start_path()) as link:
                link.sendall(b"Q\0\0\0\x07watched")
                return link.recv(100)[:1] == b"Q"
        except OSError:
            return False

    def start_path(self) -> Path:
        """Return the socket's path, even if the holder has ended."""
        assert self._folder is not None
        return self._folder / "s"

    def close(self) -> str:
        """End the holder and return its standard error."""
        process, self._process = self._process, None
        if process is None:
            return ""
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
        if process.poll() is None:
            process.kill()
        process.wait()
        assert self._folder is not None
        error_text = (self._folder / "stderr").read_text(errors="replace")
        shutil.rmtree(self._folder, ignore_errors=True)
        return error_text


@contextmanager
def _connect(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(5)
        link.connect(str(path))
        yield link


HOLDER = HolderProcess()
atexit.register(HOLDER.close)


def holder(data: bytes) -> None:
    """Check that a holder survives any data in any pieces."""
    path = HOLDER.start()
    for cut in ([data], *pieces(data[:300])):
        with _connect(path) as link, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in cut:
                link.sendall(piece)
            link.shutdown(socket.SHUT_WR)
    if not HOLDER.is_alive():
        raise AssertionError(f"the holder is gone: {HOLDER.close()}")


# -- the link ----------------------------------------------------------------------------------------------------------


class ReplayTransport:
    """A transport that receives these frames and then fails."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames, self.out = list(frames), list[bytes]()
        self.closed = False

    async def send(self, frame: bytes) -> None:
        """Record a sent frame."""
        self.out.append(frame)

    async def receive(self) -> bytes:
        """Return the next frame; raise `ConnectionError` after the last one."""
        if not self.frames:
            for _ in range(5):
                await asyncio.sleep(0)
            raise ConnectionError("no more")
        return self.frames.pop(0)

    async def close(self, _reason: str = "") -> None:
        """Record the close."""
        self.closed = True


def frames_of(data: bytes) -> list[bytes]:
    """Split data into frames, each preceded by its length in two bytes."""
    frames = []
    while len(data) >= 2:
        length = int.from_bytes(data[:2], "big")
        frames.append(data[2 : 2 + length])
        data = data[2 + length :]
    return frames


def link(data: bytes) -> None:
    """Check that a link that receives any frames ends cleanly and leaves no failed task behind."""
    faults: list[BaseException] = []

    async def echo(request: LinkRequest) -> LinkReply:
        request.note(request.body)
        return LinkReply(request.body, request.data)

    async def serve(_body: Any, channel: Channel) -> None:
        while piece := await channel.read():
            await channel.send(piece[:10])

    async def use() -> None:
        began: list[asyncio.Task[Any]] = []

        def begin(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
            began.append(asyncio.Task(work, loop=loop, **more))
            return began[-1]

        asyncio.get_running_loop().set_task_factory(begin)
        transport = ReplayTransport(frames_of(data))
        connection = NodeLink(transport, {"echo": echo}, {"pipe": serve}, dialled=False)
        calling = asyncio.ensure_future(connection.call("x", timeout=5))
        await asyncio.wait_for(connection.wait_closed(), 10)
        with contextlib.suppress(AoError):
            await calling
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.closed
        unfinished = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        done = [task for task in began if task.done() and not task.cancelled()]
        faults.extend(error for task in done if (error := task.exception()) and not isinstance(error, AoError))

    asyncio.run(use())
    assert not faults, faults


# -- HTTP and Git ------------------------------------------------------------------------------------------------------


def http(data: bytes) -> None:
    """Check that the client reads any answer or raises `AoError`."""
    own_end, other_end = socket.socketpair()
    with own_end, other_end:
        own_end.settimeout(5)
        sender = threading.Thread(target=_send, args=(other_end, data), daemon=True)
        sender.start()
        try:
            stream = StreamedResponse(BufferedSocket(own_end), lambda _: None)
            if stream.headers.get("content-type", "").startswith("text/event-stream"):
                while stream.read_event():
                    pass
            else:
                answer = CompleteResponse(stream.status, stream.headers, stream.read())
                str(answer.to_error())
                answer.json()
        except AoError as error:
            str(error)
        finally:
            own_end.close()
            sender.join(5)
    text = data.decode("latin-1")
    unquote(text)
    assert unquote(quote(text)) == text


def _send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)


def packets(data: bytes) -> None:
    """Check that Git's packet lines do not depend on how the data is split."""

    async def read(cut: list[bytes]) -> list[bytes | None] | str:
        async def come() -> AsyncIterator[bytes]:
            for piece in cut:
                yield piece

        source, lines = RequestStream(come()), list[bytes | None]()
        try:
            for _ in range(1000):
                lines.append(await source.read_line())
        except UsageError as error:
            return f"{lines}{error}"
        return lines

    async def both() -> None:
        expected = await read([data])
        for cut in pieces(data):
            assert await read(cut) == expected

    asyncio.run(both())


class SharedRepository:
    """A repository for many inputs."""

    def __init__(self) -> None:
        self._folder: Path | None = None

    def repo(self) -> Path:
        """Return the repository, creating it at the first call."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="ao-fuzz-"))
            atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
            who = ("-c", "user.name=P", "-c", "user.email=p@x.invalid")
            env = {
                **os.environ,
                "GIT_AUTHOR_DATE": "@1 +0000",
                "GIT_COMMITTER_DATE": "@1 +0000",
            }  # a constant commit id
            subprocess.run(["git", "init", "-q", "-b", "main", self._folder], check=True)
            command = ["git", *who, "commit", "-q", "--allow-empty", "-m", "one"]
            subprocess.run(command, cwd=self._folder, env=env, check=True)
        return self._folder

    def refs(self) -> bytes:
        """Return all refs with their commits."""
        return subprocess.run(["git", "for-each-ref"], cwd=self.repo(), check=True, capture_output=True).stdout


REPOSITORY = SharedRepository()


def git_requests(data: bytes) -> None:
    """Check that any request of a session's Git is answered or refused by `AoError`, and moves no branch."""
    repo, before = REPOSITORY.repo(), REPOSITORY.refs()

    async def ask(saves: bool) -> None:
        async def come() -> AsyncIterator[bytes]:
            for piece in (data[:7], data[7:]):
                yield piece

        git = Git(LocalHost(), repo)
        rights = Rights("app-x", repo, lambda: None, saves)
        for answer in (
            receive_push(git, rights, RequestStream(come())),
            answer_fetch(git, rights, "version=2", RequestStream(come())),
        ):
            with contextlib.suppress(AoError):
                async for _ in answer:
                    pass

    for saves in (True, False):
        asyncio.run(asyncio.wait_for(ask(saves), 60))
    assert REPOSITORY.refs() == before


TARGETS = (
    FuzzTarget(
        "holder",
        holder,
        "bytes",
        (b"Q\0\0\0\x07watched", b"Q\0\0\0\x0cresize\x00-1\x001", b"\xff\xff\xff\xff", b"A\0\0\0\x04"),
        12,
    ),
    FuzzTarget("link", link, "bytes", (b'{"name":"echo","body":1}', b"\x00\x01", b"[]", b"\x00\x00\x00\x02{}"), 40),
    FuzzTarget(
        "http", http, "bytes", (b"Transfer-Encoding: chunked\r\n", b"Content-Length: ", b"\r\n\r\n", b"-5\r\n"), 20
    ),
    FuzzTarget("git-requests", git_requests, "bytes", (b"0000", b"0004", b"0001", b"refs/heads/main", b"PACK"), 4),
    FuzzTarget("packets", packets, "bytes", (b"0000", b"0004", b"0001", b"fff0"), 20),
)
