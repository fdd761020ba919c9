"""Fetches: Git itself answers them, and shows a session no refs of other sessions."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.cluster.git_server import pktline
from agent_orchestrator.cluster.git_server.access import Rights
from agent_orchestrator.cluster.git_server.pktline import RequestStream
from agent_orchestrator.errors import AoError

_PIECE = 1 << 16
_VERSION = re.compile(r"(?:^|:)version=([12])(?::|$)")
"""The protocol version in a `Git-Protocol` header."""


def advertise_fetch(git: Git, rights: Rights, protocol: str) -> AsyncGenerator[bytes, None]:
    """Yield the refs that can be fetched, or, since version 2 of the protocol, the server's capabilities."""
    return _upload_pack(git, rights, protocol, None)


def answer_fetch(git: Git, rights: Rights, protocol: str, request: RequestStream) -> AsyncGenerator[bytes, None]:
    """Yield the answer to one request of a fetch as Git produces it."""
    return _upload_pack(git, rights, protocol, request)


async def _upload_pack(
    git: Git, rights: Rights, protocol: str, request: RequestStream | None
) -> AsyncGenerator[bytes, None]:
    """Yield the output of `git upload-pack` for a request, or for the advertisement of refs if there is no request."""
    hidden = ("transfer.hideRefs=refs", *(f"transfer.hideRefs=!{ref}" for ref in rights.visible))
    version = _version(protocol)
    env = {"GIT_PROTOCOL": f"version={version}"} if version else {}
    with tempfile.TemporaryDirectory(prefix="ao-fetch-") as folder:
        options = ("--stateless-rpc", *(["--advertise-refs"] if request is None else []))
        log, argv = Path(folder, "err"), ("upload-pack", *options, str(git.repo))
        async with git.pipe(*argv, log=log, config=hidden, env=env) as process:
            assert process.stdin is not None and process.stdout is not None
            feeding = asyncio.create_task(_feed(process.stdin, request))
            try:
                has_output = False
                while piece := await process.stdout.read(_PIECE):
                    if not has_output and request is None and version != "2":
                        yield pktline.encode_line(b"# service=git-upload-pack\n") + pktline.FLUSH
                    has_output = True
                    yield piece
                code = await process.wait()
                if feeding.done():
                    feeding.result()  # raise an error of the request before Git's own, which follows from it
                if code and not has_output:
                    lines = log.read_text(errors="replace").strip().splitlines() or [f"git ended with {code}"]
                    raise AoError(f"the repository could not be read: {lines[-1]}")
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)


async def _feed(stdin: asyncio.StreamWriter, request: RequestStream | None) -> None:
    """Write the request to Git's standard input, and close it."""
    try:
        with contextlib.suppress(ConnectionError):
            while request is not None and (piece := await request.read()):
                stdin.write(piece)
                await stdin.drain()
    finally:
        stdin.close()


def _version(protocol: str) -> str:
    """Return the protocol version that a client asks for, or ""."""
    match = _VERSION.search(protocol)
    return match[1] if match else ""
