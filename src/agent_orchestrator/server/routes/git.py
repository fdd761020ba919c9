"""`/git/<project>.git`: a project's repository for the Git of its sessions on other machines, by Git's smart HTTP protocol.

Nothing is kept in memory: fetched data is sent as Git produces it, and pushed data is passed on as it arrives. If a client
disconnects, or neither sends nor reads anything for long, its Git process is ended. The number of processes per caller is limited.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.cluster import git_server
from agent_orchestrator.cluster.git_server import RequestSlots, RequestStream, Rights
from agent_orchestrator.errors import AoError, Denied, NotFound, UsageError
from agent_orchestrator.server.schema import problems
from agent_orchestrator.server.services import Services

PATH = "/git/{project}.git/{rest:path}"
SILENCE_TIMEOUT = 60.0
"""Seconds within which something must be received or sent; a slow transfer that continues is served."""
_MAX_PIECE_BYTES = 1 << 16


class GitEndpoint:
    """The ASGI app for Git."""

    def __init__(self) -> None:
        self._slots = RequestSlots()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        body = _GitRequestBody(request, receive)
        is_started = False

        async def send_in_time(message: Message) -> None:
            nonlocal is_started
            is_started = True
            async with _silence_limit("takes nothing"):
                await send(message)

        answering = asyncio.create_task(self._answer(request, body, send_in_time))
        watching = asyncio.create_task(body.wait_for_disconnect())
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        except AoError as error:
            request.app.state.refusals.record_error(scope, error)
            if is_started:
                raise  # the gate logs it; the answer is cut off, and Git reports that
            await problems.error_text_response(error)(scope, receive, send)
        finally:
            for task in (answering, watching):
                task.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)

    async def _answer(self, request: Request, body: _GitRequestBody, send: Send) -> None:
        """Run Git for a request and send its output."""
        rights = _caller_rights(request)
        kind, content = _answer_content(request, rights, body)
        headers = [(b"content-type", kind.encode()), (b"cache-control", b"no-cache")]
        async with self._slots.hold_slot(rights), aclosing(content):
            # Get the first piece before answering: until then, an error can still be sent.
            piece = await anext(content, b"")
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await anext(content, b"")
        await send({"type": "http.response.body", "body": b""})


def _caller_rights(request: Request) -> Rights:
    """Return what the caller may do with which repository."""
    services: Services = request.app.state.services
    return git_server.rights_of(
        request.scope["state"]["identity"],
        request.path_params["project"],
        lambda project: services.core.settings.project(project).path,
        services.sessions.flow.sessions.get,
    )


def _answer_content(request: Request, rights: Rights, body: _GitRequestBody) -> tuple[str, AsyncGenerator[bytes, None]]:
    """Return the media type and the content of the answer to a request."""
    services: Services = request.app.state.services
    git = Git(services.core.host, rights.repo)
    protocol = request.headers.get("git-protocol", "")
    match request.method, request.path_params["rest"]:
        case "GET", "info/refs":
            service = request.query_params.get("service", "")
            if service == "git-upload-pack":
                return f"application/x-{service}-advertisement", git_server.advertise_fetch(git, rights, protocol)
            if service == "git-receive-pack":
                return f"application/x-{service}-advertisement", git_server.advertise_push(git, rights)
            raise Denied("this repository is served by Git's smart protocol only", "use Git 1.6.6 or newer")
        case "POST", "git-upload-pack":
            return "application/x-git-upload-pack-result", git_server.answer_fetch(
                git, rights, protocol, RequestStream(body.pieces())
            )
        case "POST", "git-receive-pack":
            return "application/x-git-receive-pack-result", git_server.receive_push(
                git, rights, RequestStream(body.pieces())
            )
    raise NotFound(f"there is nothing at {request.url.path[:200]}", "fetch from it, or push to it, by git")


class _Disconnected(AoError):
    """Raised when the client has disconnected."""


class _ClientSilent(AoError):
    """Raised when the client has stopped in the middle of a request."""

    http_status = 408


@asynccontextmanager
async def _silence_limit(action: str) -> AsyncIterator[None]:
    """Raise _ClientSilent if the block takes longer than `SILENCE_TIMEOUT` seconds; `action` is what the client does meanwhile."""
    try:
        async with asyncio.timeout(SILENCE_TIMEOUT):
            yield
    except TimeoutError:
        raise _ClientSilent(f"whoever asked {action} for {SILENCE_TIMEOUT:g} s", "try again") from None


class _GitRequestBody:
    """The body of a request, read as it arrives."""

    def __init__(self, request: Request, receive: Receive) -> None:
        self._receive = receive
        self._encoding = request.headers.get("content-encoding", "identity")
        self._is_read = asyncio.Event()
        if request.method == "GET":
            self._is_read.set()

    async def wait_for_disconnect(self) -> None:
        """Return when the client has disconnected, once its body was read."""
        await self._is_read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the uncompressed content in pieces of limited size, however well it was compressed."""
        if self._encoding not in ("identity", "gzip", "x-gzip"):
            raise UsageError(f"{self._encoding} is not a way to compress that is known here", "use gzip, or none")
        decompressor = None if self._encoding == "identity" else zlib.decompressobj(wbits=31)
        more = True
        while more:
            async with _silence_limit("sends nothing"):
                message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _Disconnected("the connection was closed")
            data, more = message.get("body", b""), message.get("more_body", False)
            if not more:
                self._is_read.set()
            if decompressor is None:
                if data:
                    yield data
                continue
            while data:
                try:
                    piece, data = decompressor.decompress(data, _MAX_PIECE_BYTES), decompressor.unconsumed_tail
                except zlib.error:
                    raise UsageError("what was sent is not compressed as it says", "try again") from None
                if piece:
                    yield piece
