"""A node as a `Host`, for what is written for any machine: Git above all."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from agent_orchestrator.errors import UsageError
from agent_orchestrator.protocols.host import ProcessId

if TYPE_CHECKING:
    from agent_orchestrator.cluster.nodes.remote import RemoteNode


class RemoteHost:
    """A node as a `Host`: what can be waited for works; what must be answered at once cannot be asked over a link."""

    def __init__(self, node: RemoteNode) -> None:
        self._node = node
        self.run, self.stream = node.run, node.stream

    def talk(
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Not over a link: its pipes are the node's."""
        del log, env
        raise self._here(f"{argv[0]} cannot be spoken to")

    async def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> int:
        """Not over a link: the node's own runtime starts what outlives us."""
        del cwd, env, log
        raise self._here(f"{argv[0]} cannot be left running")

    def which(self, program: str, path: str | None = None) -> str | None:
        """Where a program is, of those that a node tells of."""
        del path
        return self._node.hello.programs.get(program)

    def boot_id(self) -> str:
        """The node's own boot."""
        return self._node.boot_id

    def process(self, pid: int) -> ProcessId | None:
        raise self._here(f"process {pid} cannot be looked at")

    async def exited(self, process: ProcessId) -> None:
        raise self._here(f"process {process.pid} cannot be waited for")

    def kill(self, process: ProcessId, signal_number: int, *, group: bool = False) -> bool:
        del signal_number, group
        raise self._here(f"process {process.pid} cannot be signalled")

    def family(self, process: ProcessId) -> list[ProcessId]:
        raise self._here(f"the family of process {process.pid} cannot be looked at")

    def marked(self, variable: str, value: str) -> list[ProcessId]:
        raise self._here(f"processes with {variable}={value} cannot be looked for")

    def users_of(self, folder: Path) -> list[tuple[int, str]]:
        raise self._here(f"the users of {folder} cannot be looked for at once")

    def _here(self, what: str) -> UsageError:
        return UsageError(f"{what} on the node {self._node.name} from here", "ask the node's runtime, or RemoteNode")
