"""Sessions in containers: `python -m benchmarks containers`. Needs root and Docker's daemon, as `make test-docker` does.

It uses a separate engine; each figure is compared with the engine's command line in the same run.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.base.home import Home
from agent_orchestrator.plugins.runtimes.process import attach_command
from agent_orchestrator.testing.sandbox import Sandbox
from agent_orchestrator.testing.terminals import PersonsTerminal
from benchmarks.measure import Figure, Result, SkippedResult, median_times_in_turns
from tests.docker.engine import IMAGE, ContainerEngine, EngineUnavailable, docker

SPAWNS = 12
KEYS = 150
KEY_INTERVAL_SECONDS = 0.03
CONFIG = f"""\
defaults: {{agent: demo, runtime: docker}}
projects:
  app:
    path: .
    docker: {{image: {IMAGE}, network: NETWORK}}
agents:
  cat: {{tool: command, command: cat}}
"""


def measure_containers(folder: Path) -> Iterator[Result]:
    """Yield all figures, with a separate engine."""
    try:
        with docker() as engine:
            yield from _figures(engine, folder)
    except EngineUnavailable as why:
        yield SkippedResult("containers", str(why))


def _figures(engine: ContainerEngine, folder: Path) -> Iterator[Figure]:
    """Yield all figures with this engine."""
    for network in ("none", "allowlist"):
        with Sandbox(folder / network, "docker", engine.env) as box:
            (folder / network).mkdir(exist_ok=True)
            box.repository(config=CONFIG.replace("NETWORK", network))
            box.start()
            yield _measure_spawn(box, engine, network)
            if network == "none":
                yield asyncio.run(_measure_echo(box, engine))
        engine.clear()


def _measure_spawn(box: Sandbox, engine: ContainerEngine, network: str) -> Figure:
    """Measure from the request until the agent runs, compared with Git and the engine alone."""
    counter = iter(range(10_000))

    def ours() -> None:
        name = f"s{next(counter)}"
        box.request("POST", "/api/sessions", {"prompt": "[[say: ready]]", "name": name})
        with box.client() as client, client.stream("GET", f"/api/sessions/app-{name}/wait") as stream:
            stream.read()

    def bare() -> None:
        name = f"b{next(counter)}"
        box.git("worktree", "add", "-q", "-b", name, str(box.folder / "bare" / name))
        engine.run("run", "--detach", "--init", "--network", "none", IMAGE, "sleep", "600")

    ours()
    bare()
    our_median, bare_median = median_times_in_turns(SPAWNS, ours, bare)
    note = f"{our_median * 1e3:.0f} ms ÷ {bare_median * 1e3:.0f} ms"
    return Figure(
        f"spawn, network {network} ÷ bare worktree and `docker run`", our_median / bare_median, 1.3, note=note
    )


async def _measure_echo(box: Sandbox, engine: ContainerEngine) -> Figure:
    """Measure the echo of a key in the attached terminal, compared with `docker exec`."""
    box.request("POST", "/api/sessions", {"prompt": "type", "name": "cat", "agent": "cat"})
    label = f"label={'agent-orchestrator.session'}=app-cat"
    box.wait_until(lambda: engine.run("ps", "--quiet", "--filter", label).strip(), "its container", 30)
    container = engine.run("ps", "--quiet", "--filter", label).strip()
    socket = next(iter(Home(box.home.path).socket("x").parent.glob("box-*.sock")))
    for candidate in Home(box.home.path).socket("x").parent.glob("box-*.json"):
        if '"app-cat"' in candidate.read_text():
            socket = candidate.with_suffix(".sock")
    environment = [f"{name}={value}" for name, value in engine.env.items()]
    ours = PersonsTerminal(attach_command(socket, "app-cat"))
    bare = PersonsTerminal(["env", *environment, "docker", "exec", "--interactive", "--tty", container, "cat"])
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    await asyncio.sleep(1.5)
    for _ in range(KEYS):
        for name, terminal in (("ours", ours), ("bare", bare)):
            before = len(terminal.output)
            began = time.perf_counter()
            terminal.type(b"z")
            while len(terminal.output) == before:  # noqa: ASYNC110 - no later than it is there
                await asyncio.sleep(0)
            times[name].append(time.perf_counter() - began)
            await asyncio.sleep(KEY_INTERVAL_SECONDS)
    for terminal in (ours, bare):
        await terminal.close()
    our_p95, bare_p95 = (sorted(row)[int(len(row) * 0.95)] for row in times.values())
    middle = [statistics.median(row) * 1e3 for row in times.values()]
    note = f"p95 {our_p95 * 1e3:.1f} ms, of `docker exec` {bare_p95 * 1e3:.1f} ms; p50 {middle[0]:.1f} and {middle[1]:.1f} ms"
    return Figure("key → echo, over `docker exec` (p95)", (our_p95 - bare_p95) * 1e3, 5, "ms", note=note)
