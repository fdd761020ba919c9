"""`RemoteHost`: a node as a `Host`, for code that is written for any machine, above all Git."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from agent_orchestrator.errors import UsageError
from agent_orchestrator.protocols.host import ProcessId

if TYPE_CHECKING:
    from agent_orchestrator.cluster.daemon.remote_node import RemoteNode


class RemoteHost:
    """A node as a `Host`: its asynchronous methods work; those that must answer at once raise `UsageError`."""

    def __init__(self, node: RemoteNode) -> None:
        self._node = node
        self.run, self.stream = node.run, node.stream

    def pipe(
        self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
        """Raise `UsageError`: a process's pipes do not cross a link."""
        del log, env
        raise self._not_from_here(f"{argv[0]} cannot be spoken to")

    async def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, log: Path | None = None
    ) -> int:
        """Raise `UsageError`: processes that outlive the caller are started by the node's own runtime."""
        del cwd, env, log
        raise self._not_from_here(f"{argv[0]} cannot be left running")

    def which(self, program: str, path: str | None = None) -> str | None:
        """Return the path of one of the programs that the node reported, or None."""
        del path
        return self._node.hello.programs.get(program)

    def boot_id(self) -> str:
        """Return the node's own boot id."""
        return self._node.boot_id

    def process(self, pid: int) -> ProcessId | None:
        """Raise `UsageError`: a process on a node cannot be inspected at once."""
        raise self._not_from_here(f"process {pid} cannot be looked at")

    async def exited(self, process: ProcessId) -> None:
        """Raise `UsageError`: a process on a node cannot be awaited."""
        raise self._not_from_here(f"process {process.pid} cannot be waited for")

    def kill(self, process: ProcessId, signal_number: int, *, group: bool = False) -> bool:
        """Raise `UsageError`: a process on a node cannot be signalled."""
        del signal_number, group
        raise self._not_from_here(f"process {process.pid} cannot be signalled")

    def family(self, process: ProcessId) -> list[ProcessId]:
        """Raise `UsageError`: the processes of a node cannot be listed at once."""
        raise self._not_from_here(f"the family of process {process.pid} cannot be looked at")

    def processes_with_variable(self, variable: str, value: str) -> list[ProcessId]:
        """Raise `UsageError`: the processes of a node cannot be listed at once."""
        raise self._not_from_here(f"processes with {variable}={value} cannot be looked for")

    def users_of(self, folder: Path) -> list[tuple[int, str]]:
        """Raise `UsageError`: ask `RemoteNode.users_of` instead, which is asynchronous."""
        raise self._not_from_here(f"the users of {folder} cannot be looked for at once")

    def _not_from_here(self, operation: str) -> UsageError:
        """Return the error for an operation that is not possible from the daemon's machine."""
        return UsageError(
            f"{operation} on the node {self._node.name} from here", "ask the node's runtime, or RemoteNode"
        )
