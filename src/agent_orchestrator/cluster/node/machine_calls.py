"""What a node answers about its machine: programs run there, files there."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent_orchestrator.base.git.commands import clean_environment
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.link.connection import Handler, Reply, Request
from agent_orchestrator.errors import AoError, UsageError
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.environment import login_environment


class Machine:
    """Programs and files of this machine."""

    def __init__(self, home: Home, host: Host, forget: Callable[[str], None]) -> None:
        self._home = home
        self._host = host
        self._forget = forget
        """Told of a session whose private folder is removed."""
        self._login: asyncio.Task[Mapping[str, str]] | None = None

    def handlers(self) -> dict[str, Handler]:
        """What may be asked."""
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

    async def _run(self, request: Request) -> Reply:
        asked = request.body
        done = await self._host.run(
            asked["argv"],
            cwd=_folder(asked),
            env={**clean_environment(), **asked["env"]},
            input=request.data if asked["input"] else None,
            timeout=asked["timeout"],
        )
        return Reply({"code": done.code, "out": len(done.out)}, done.out + done.err)

    async def _stream(self, request: Request) -> Reply:
        asked = request.body
        code = await self._host.stream(
            asked["argv"],
            request.note,
            cwd=_folder(asked),
            env={**clean_environment(), **asked["env"]},
            input=request.data if asked["input"] else None,
            timeout=asked["timeout"],
            grace=asked["grace"],
        )
        return Reply(code)

    async def _users_of(self, request: Request) -> Reply:
        return Reply(await asyncio.to_thread(self._host.users_of, Path(request.body)))

    async def _environment(self, _request: Request) -> Reply:
        """What the login shell here sets up; asked once."""
        if self._login is None:
            asked = login_environment(self._host, None, dict(os.environ), programs=self._home.programs)
            self._login = asyncio.create_task(asked)
        return Reply(dict(await asyncio.shield(self._login)))

    # -- files ---------------------------------------------------------------------------------------------------------

    async def _present(self, request: Request) -> Reply:
        return Reply(os.path.lexists(request.body))

    async def _read(self, request: Request) -> Reply:
        path, offset, limit = Path(request.body["path"]), int(request.body["offset"]), int(request.body["limit"])
        try:
            return Reply(True, await asyncio.to_thread(_read_piece, path, offset, limit))
        except (FileNotFoundError, NotADirectoryError):
            return Reply(False)
        except OSError as error:
            raise AoError(f"{path} cannot be read: {error.strerror}") from None

    async def _write(self, request: Request) -> Reply:
        path, mode = Path(request.body["path"]), int(request.body["mode"])
        try:
            await asyncio.to_thread(write_file, path, request.data, mode, append=bool(request.body["append"]))
        except OSError as error:
            raise AoError(f"{path} cannot be written: {error.strerror}") from None
        return Reply()

    async def _remove(self, request: Request) -> Reply:
        path = Path(request.body)
        must_be_in(self._home, path)
        if path.parent == self._home.sessions:
            self._forget(path.name)
        try:
            await asyncio.to_thread(_remove_path, path)
        except OSError as error:
            raise AoError(f"{path} cannot be removed: {error.strerror}") from None
        return Reply()


def must_be_in(home: Home, path: Path) -> None:
    """Refuse what is not below the node's home: paths of the daemon's machine mean nothing here."""
    if home.path not in Path(os.path.normpath(path)).parents:
        raise UsageError(f"{path} is not in the node's home {home.path}")


def _folder(asked: Mapping[str, Any]) -> Path | None:
    return Path(asked["cwd"]) if asked["cwd"] else None


def _read_piece(path: Path, offset: int, limit: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(limit)


def write_file(path: Path, data: bytes, mode: int, *, append: bool) -> None:
    """Write a file whole or not at all, or append to it; makes its folders."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if append:
        with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, mode), "ab") as file:  # noqa: PTH123
            file.write(data)
        return
    fresh = path.with_name(f".{path.name}.ao-new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:  # noqa: PTH123
        file.write(data)
    fresh.chmod(mode)
    fresh.replace(path)


def _remove_path(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
