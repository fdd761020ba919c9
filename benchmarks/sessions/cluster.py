"""Sessions on the nodes of a Ray cluster: `python -m benchmarks cluster`. Needs root and Ray, as `make test-cluster` does.

Three nodes in network namespaces of one machine: the network costs only the kernel's time, and the nodes share the cores.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure, Result, SkippedResult, cpu_seconds, resident_megabytes
from tests.cluster.engine import have_ray
from tests.cluster.fleet import LabFleet, boot_time
from tests.cluster.lab import ClusterLab, missing_requirement

SPAWNS = 10
KEYS = 200
KEY_INTERVAL_SECONDS = 0.05
SESSIONS = 10
SAMPLE_SECONDS = 15.0


def measure_cluster(_folder: Path) -> Iterator[Result]:
    """Yield all figures."""
    if missing := missing_requirement() or (None if have_ray() else "needs Ray: pip install 'agent-orchestrator[ray]'"):
        yield SkippedResult("cluster", missing)
        return
    with ClusterLab(3) as lab, LabFleet(lab, ray=True, lease=10.0, checkpoint=120.0, pace=2.0) as fleet:
        fleet.begin()
        yield _measure_spawn(fleet)
        yield from _measure_echo(fleet)
        yield from _measure_cost(fleet)


def _measure_spawn(fleet: LabFleet) -> Figure:
    """Measure from the request until the agent runs, on a node that has the repository."""
    fleet.create_session("spawn0", "--node", "n1", "--agent", "rests")
    times = []
    for number in range(1, SPAWNS + 1):
        requested_at = boot_time()
        fleet.create_session(f"spawn{number}", "--node", "n1", "--agent", "rests")
        fleet.wait_until(lambda name=f"spawn{number}": bool(fleet.launches(name)), "its agent")  # type: ignore[misc]
        times.append(fleet.launches(f"spawn{number}")[0].begin - requested_at)
    note = f"median of {SPAWNS} {statistics.median(times):.2f} s"
    return Figure("`ao new` → agent runs on a warm node (worst)", max(times), 2.0, "s", note=note)


def _measure_echo(fleet: LabFleet) -> Iterator[Figure]:
    """Measure the echo of a key in the terminal's WebSocket."""
    times = sorted(asyncio.run(_echoes(fleet, "app-spawn0")))
    p50, p95 = times[len(times) // 2] * 1000, times[int(len(times) * 0.95)] * 1000
    yield Figure("key → echo from a node (p95)", p95, 15.0, "ms", note=f"p50 {p50:.1f} ms, {len(times)} keys")


async def _echoes(fleet: LabFleet, session: str) -> list[float]:
    import websockets

    info = json.loads(fleet.box.home.daemon_info.read_text())
    url = info["url"].replace("http", "ws", 1) + f"/api/sessions/{session}/terminal"
    token = fleet.box.home.token.read_text().strip()
    times = []
    async with websockets.connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None) as socket:
        await asyncio.sleep(1.0)
        for _ in range(KEYS):
            with_pending = asyncio.create_task(socket.recv())
            await asyncio.sleep(KEY_INTERVAL_SECONDS)
            while with_pending.done():  # output of the agent
                with_pending = asyncio.create_task(socket.recv())
                await asyncio.sleep(KEY_INTERVAL_SECONDS)
            began = time.perf_counter()
            await socket.send(b"z")
            await asyncio.wait_for(with_pending, 5)
            times.append(time.perf_counter() - began)
        await socket.send(b"\x15")
    return times


def _measure_cost(fleet: LabFleet) -> Iterator[Figure]:
    """Measure the daemon's CPU and memory for local sessions and for as many on nodes; each prints every 2 s and commits every 10 s."""
    cost = {}
    for where, argv in (("here", ("--runtime", "process")), ("there", ())):
        names = [f"{where}{number}" for number in range(SESSIONS)]
        pid = fleet.box.daemon_pid()
        assert pid is not None
        memory = resident_megabytes(pid)
        idle = _cpu(pid)
        for name in names:
            fleet.create_session(name, *argv)
        fleet.wait_until(lambda names=names: all(fleet.is_working(name) for name in names), "all agents", 120)  # type: ignore[misc]
        time.sleep(5)
        cost[where] = (_cpu(pid) - idle, resident_megabytes(pid) - memory)
    here, there = cost["here"], cost["there"]
    note = f"{there[0] * 100 / SESSIONS:.2f} % ÷ {here[0] * 100 / SESSIONS:.2f} % of a core a session"
    yield Figure("the daemon's CPU for a remote session ÷ a local one", there[0] / max(here[0], 1e-6), 2.0, note=note)
    note = f"{there[1] / SESSIONS:.2f} MB a session; local {here[1] / SESSIONS:.2f} MB"
    yield Figure("the daemon's memory for a remote session", there[1] / SESSIONS, 2.0, "MB", note=note)


def _cpu(pid: int) -> float:
    began, used = time.monotonic(), cpu_seconds(pid)
    time.sleep(SAMPLE_SECONDS)
    return (cpu_seconds(pid) - used) / (time.monotonic() - began)
