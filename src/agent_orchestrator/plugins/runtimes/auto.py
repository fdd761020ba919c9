"""Chooses the runtime if none is configured."""

from __future__ import annotations

import re

from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.host import Host

MIN_TMUX_VERSION = (3, 2)


async def choose_runtime(host: Host) -> str:
    """Return `tmux` if a new enough one is installed, otherwise `process`."""
    return "tmux" if await tmux_version(host) >= MIN_TMUX_VERSION else "process"


async def tmux_version(host: Host) -> tuple[int, int]:
    """Return the installed tmux's version, or (0, 0) if there is none."""
    try:
        output = await host.run(["tmux", "-V"], timeout=10)
    except AoError:
        return (0, 0)
    if "master" in output.text:
        return (99, 0)
    version = re.search(r"(\d+)\.(\d+)", output.text)
    return (int(version[1]), int(version[2])) if version else (0, 0)
