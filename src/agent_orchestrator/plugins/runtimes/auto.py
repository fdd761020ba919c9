"""Which runtime to take when none was named."""

from __future__ import annotations

import re

from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.host import Host

OLDEST_TMUX = (3, 2)


async def pick(host: Host) -> str:
    """`tmux` where a new enough one is installed, otherwise `process`."""
    return "tmux" if await tmux_version(host) >= OLDEST_TMUX else "process"


async def tmux_version(host: Host) -> tuple[int, int]:
    """The installed tmux's version; (0, 0) if there is none."""
    try:
        answer = await host.run(["tmux", "-V"], timeout=10)
    except AoError:
        return (0, 0)
    if "master" in answer.text:
        return (99, 0)
    number = re.search(r"(\d+)\.(\d+)", answer.text)
    return (int(number[1]), int(number[2])) if number else (0, 0)
