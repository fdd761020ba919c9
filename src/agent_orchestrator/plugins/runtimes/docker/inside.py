"""The machine as an agent's plugin may use it when the agent lives in a container: its program is in the image, not here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agent_orchestrator.errors import Missing
from agent_orchestrator.protocols.host import Completed

if TYPE_CHECKING:
    from agent_orchestrator.protocols.host import Host

_HERE_TOO = ("git",)


class _Inside:
    """Everything is as on the machine itself, but for programs."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def which(self, program: str, path: str | None = None) -> str:  # noqa: ARG002 - the image's PATH counts
        """By its name: the image is asked when it is started."""
        return program

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = 60.0,
    ) -> Completed:
        """What is not in the image alone."""
        if Path(argv[0]).name not in _HERE_TOO:
            raise Missing(f"{argv[0]} runs in its container alone")
        return await self._host.run(argv, cwd=cwd, env=env, input=input, timeout=timeout)


def inside(host: Host) -> Host:
    """For making an agent's plugin."""
    return cast("Host", _Inside(host))
