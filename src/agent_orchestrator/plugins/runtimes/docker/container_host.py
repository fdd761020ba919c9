"""Wraps the machine for an agent's plugin whose agent runs in a container: its program is in the image, not on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agent_orchestrator.errors import Missing
from agent_orchestrator.protocols.host import ProgramResult

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

_LOCAL_PROGRAMS = ("git",)


class _ContainerHost:
    """A host on which only programs of `_LOCAL_PROGRAMS` can be run; everything else is passed to the real host."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def which(self, program: str, path: str | None = None) -> str:  # noqa: ARG002 - the image's PATH counts
        """Return the program's name unchecked: whether the image has it shows when it is started."""
        return program

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = 60.0,
    ) -> ProgramResult:
        """Run a program that this machine also has. Raises `Missing` for others."""
        if Path(argv[0]).name not in _LOCAL_PROGRAMS:
            raise Missing(f"{argv[0]} runs in its container alone")
        return await self._host.run(argv, cwd=cwd, env=env, input=input, timeout=timeout)


def container_host(host: Host) -> Host:
    """Return the host to create an agent's plugin with."""
    return cast("Host", _ContainerHost(host))
