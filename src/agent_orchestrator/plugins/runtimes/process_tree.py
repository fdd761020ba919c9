"""Ends a process and everything it started; the same for every runtime on a host with processes."""

from __future__ import annotations

import asyncio
import signal

from agent_orchestrator.errors import Temporary
from agent_orchestrator.protocols.host import Host, ProcessId

KILL_TIMEOUT = 5.0
"""Seconds that the kernel gets to end killed processes."""


async def stop_process_tree(host: Host, process: ProcessId, grace: float) -> None:
    """Ask the process, its terminal session and its descendants to end, and kill those that live after `grace` seconds.

    Raises `Temporary` if some cannot be killed.
    """
    members = set(host.family(process))
    for member in members:
        host.kill(member, signal.SIGTERM)
        # A stopped process cannot obey.
        host.kill(member, signal.SIGCONT)
    await _have_all_ended(host, members, grace)
    # Processes that they started meanwhile belong to them too: repeat until none is left.
    while members := {member for member in members | set(host.family(process)) if host.process(member.pid) == member}:
        for member in members:
            host.kill(member, signal.SIGKILL)
        if not await _have_all_ended(host, members, KILL_TIMEOUT):
            pids = ", ".join(str(member.pid) for member in sorted(members, key=lambda member: member.pid))
            raise Temporary(f"could not be killed: process {pids}", "it hangs in the kernel or belongs to another user")


async def _have_all_ended(host: Host, members: set[ProcessId], timeout: float) -> bool:
    """Return whether all processes have ended within `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            await asyncio.gather(*(host.exited(member) for member in members))
    except TimeoutError:
        return False
    return True
