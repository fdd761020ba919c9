"""Ends a process and everything it started; the same for every runtime on a host with processes."""

from __future__ import annotations

import asyncio
import signal

from agent_orchestrator.errors import Temporary
from agent_orchestrator.protocols.host import Host, ProcessId

KILLED_WITHIN = 5.0
"""Seconds that the kernel gets to end what was killed."""


async def stop_family(host: Host, process: ProcessId, grace: float) -> None:
    """Ask the process, its terminal session and its descendants to end, and kill after `grace` what still lives."""
    members = set(host.family(process))
    for member in members:
        host.kill(member, signal.SIGTERM)
        # A stopped process cannot obey.
        host.kill(member, signal.SIGCONT)
    await _all_ended(host, members, grace)
    # What they started meanwhile belongs to them too: again until nothing is left.
    while members := {member for member in members | set(host.family(process)) if host.process(member.pid) == member}:
        for member in members:
            host.kill(member, signal.SIGKILL)
        if not await _all_ended(host, members, KILLED_WITHIN):
            pids = ", ".join(str(member.pid) for member in sorted(members, key=lambda member: member.pid))
            raise Temporary(f"could not be killed: process {pids}", "it hangs in the kernel or belongs to another user")


async def _all_ended(host: Host, members: set[ProcessId], timeout: float) -> bool:
    try:
        async with asyncio.timeout(timeout):
            await asyncio.gather(*(host.exited(member) for member in members))
    except TimeoutError:
        return False
    return True
