"""The calls that a node answers about its machine: programs and files."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent_orchestrator.base.git.settings import clean_environment
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.link.connection import CallHandler, LinkReply, LinkRequest
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.lifecycle.environment import login_environment


class MachineCalls:
    """The programs and files of this machine."""

    def __init__(self, home: Home, host: Host, forget: Callable[[str], None]) -> None:
        self._home = home
        self._host = host
        self._forget = forget
        """Called with the session whose private folder is removed."""
        self._login: asyncio.Task[Mapping[str, str]] | None = None

    def handlers(self) -> dict[str, CallHandler]:
        """Return the handlers, by name of the call."""
        return {
            "host.run": self._run,
            "host.stream": self._stream,
            "host.users_of": self._users_of,
            "host.environment": self._environment,
            "files.present": self._present,
            "files.read": self._read,
            "files.write": self._write,
            "files.remove": self._remove,
        }

    async def _run(self, request: LinkRequest) -> LinkReply:
        """Run a program, and answer its exit code and output."""
        body = request.body
        completed = await self._host.run(
            body["argv"],
            cwd=_working_directory(body),
            env={**clean_environment(), **body["env"]},
            input=request.data if body["input"] else None,
            timeout=body["timeout"],
        )
        return LinkReply({"code": completed.code, "out": len(completed.out)}, completed.out + completed.err)

    async def _stream(self, request: LinkRequest) -> LinkReply:
        """Run a program, send its output as notes, and answer its exit code."""
        body = request.body
        code = await self._host.stream(
            body["argv"],
            request.note,
            cwd=_working_directory(body),
            env={**clean_environment(), **body["env"]},
            input=request.data if body["input"] else None,
            timeout=body["timeout"],
            grace=body["grace"],
        )
        return LinkReply(code)

    async def _users_of(self, request: LinkRequest) -> LinkReply:
        """Answer which processes use a folder."""
        return LinkReply(await asyncio.to_thread(self._host.users_of, Path(request.body)))

    async def _environment(self, _request: LinkRequest) -> LinkReply:
        """Answer what the login shell here sets up; it is run once."""
        if self._login is None:
            environment = login_environment(self._host, None, dict(os.environ), programs=self._home.programs)
            self._login = asyncio.create_task(environment)
        return LinkReply(dict(await asyncio.shield(self._login)))

    # -- files ---------------------------------------------------------------------------------------------------------

    async def _present(self, request: LinkRequest) -> LinkReply:
        """Answer whether a path exists."""
        return LinkReply(os.path.lexists(request.body))

    async def _read(self, request: LinkRequest) -> LinkReply:
        """Answer a piece of a file, or False if there is no such file."""
        path, offset, limit = Path(request.body["path"]), int(request.body["offset"]), int(request.body["limit"])
        try:
            return LinkReply(True, await asyncio.to_thread(_read_piece, path, offset, limit))
        except (FileNotFoundError, NotADirectoryError):
            return LinkReply(False)
        except OSError as error:
            raise AoError(f"{path} cannot be read: {error.strerror}") from None

    async def _write(self, request: LinkRequest) -> LinkReply:
        """Write or append to a file."""
        path, mode = Path(request.body["path"]), int(request.body["mode"])
        try:
            await asyncio.to_thread(write_file, path, request.data, mode, append=bool(request.body["append"]))
        except OSError as error:
            raise AoError(f"{path} cannot be written: {error.strerror}") from None
        return LinkReply()

    async def _remove(self, request: LinkRequest) -> LinkReply:
        """Remove a file or folder below the node's home."""
        path = Path(request.body)
        require_inside_home(self._home, path)
        if path.parent == self._home.sessions:
            self._forget(path.name)
        try:
            await asyncio.to_thread(_remove_path, path)
        except OSError as error:
            raise AoError(f"{path} cannot be removed: {error.strerror}") from None
        return LinkReply()


def require_inside_home(home: Home, path: Path) -> None:
    """Raise `UsageError` for a path outside the node's home: paths of the daemon's machine mean nothing here."""
    if home.path not in Path(os.path.normpath(path)).parents:
        raise UsageError(f"{path} is not in the node's home {home.path}")


def _working_directory(body: Mapping[str, Any]) -> Path | None:
    """Return the working directory of a request, or None."""
    return Path(body["cwd"]) if body["cwd"] else None


def _read_piece(path: Path, offset: int, limit: int) -> bytes:
    """Read up to `limit` bytes of a file from an offset."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(limit)


def write_file(path: Path, data: bytes, mode: int, *, append: bool) -> None:
    """Write a file whole or not at all, or append to it; create its folders."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if append:
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode), "ab") as file:  # noqa: PTH123
            file.write(data)
        return
    draft = path.with_name(f".{path.name}.ao-new")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:  # noqa: PTH123
        file.write(data)
    draft.chmod(mode)
    draft.replace(path)


def _remove_path(path: Path) -> None:
    """Remove a file, a symlink, or a folder with its contents."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
