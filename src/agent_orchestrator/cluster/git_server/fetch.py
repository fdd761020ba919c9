"""A fetch: Git itself answers it, and shows the session nothing of other sessions."""

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
from agent_orchestrator.cluster.git_server.pktline import Source
from agent_orchestrator.errors import AoError

_PIECE = 1 << 16
_VERSION = re.compile(r"(?:^|:)version=([12])(?::|$)")


def offer_reading(git: Git, rights: Rights, protocol: str) -> AsyncGenerator[bytes, None]:
    """What there is to fetch, or, since version 2 of the protocol, what may be asked."""
    return _upload_pack(git, rights, protocol, None)


def read(git: Git, rights: Rights, protocol: str, asked: Source) -> AsyncGenerator[bytes, None]:
    """The answer to one request of a fetch, as it is made."""
    return _upload_pack(git, rights, protocol, asked)


async def _upload_pack(git: Git, rights: Rights, protocol: str, asked: Source | None) -> AsyncGenerator[bytes, None]:
    hidden = ("transfer.hideRefs=refs", *(f"transfer.hideRefs=!{ref}" for ref in rights.visible))
    version = _version(protocol)
    env = {"GIT_PROTOCOL": f"version={version}"} if version else {}
    with tempfile.TemporaryDirectory(prefix="ao-fetch-") as folder:
        options = ("--stateless-rpc", *(["--advertise-refs"] if asked is None else []))
        log, argv = Path(folder, "err"), ("upload-pack", *options, str(git.repo))
        async with git.talk(*argv, log=log, config=hidden, env=env) as process:
            assert process.stdin is not None and process.stdout is not None
            feeding = asyncio.create_task(_feed(process.stdin, asked))
            try:
                said = False
                while piece := await process.stdout.read(_PIECE):
                    if not said and asked is None and version != "2":
                        yield pktline.line(b"# service=git-upload-pack\n") + pktline.FLUSH
                    said = True
                    yield piece
                code = await process.wait()
                if feeding.done():
                    feeding.result()  # what is wrong with what was asked comes first
                if code and not said:
                    lines = log.read_text(errors="replace").strip().splitlines() or [f"git ended with {code}"]
                    raise AoError(f"the repository could not be read: {lines[-1]}")
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)


async def _feed(stdin: asyncio.StreamWriter, asked: Source | None) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            while asked is not None and (piece := await asked.read()):
                stdin.write(piece)
                await stdin.drain()
    finally:
        stdin.close()


def _version(protocol: str) -> str:
    found = _VERSION.search(protocol)
    return found[1] if found else ""
