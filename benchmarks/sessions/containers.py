"""Sessions in containers: `python -m benchmarks containers`. Needs root and Docker's daemon, as `make test-docker` does.

The engine is one of its own; beside each figure is what the engine's own command line takes for the same, in the same run.
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
from benchmarks.measure import Figure, LeftOut, Result, interleaved
from tests.docker.engine import IMAGE, Engine, Unavailable, docker

SPAWNS = 12
KEYS = 150
PAUSE = 0.03
CONFIG = f"""\
defaults: {{agent: demo, runtime: docker}}
projects:
  app:
    path: .
    docker: {{image: {IMAGE}, network: NETWORK}}
agents:
  cat: {{tool: command, command: cat}}
"""


def containers(folder: Path) -> Iterator[Result]:
    """All of them, on an engine of its own."""
    try:
        with docker() as engine:
            yield from figures(engine, folder)
    except Unavailable as why:
        yield LeftOut("containers", str(why))


def figures(engine: Engine, folder: Path) -> Iterator[Figure]:
    """All of them, on that engine."""
    for network in ("none", "allowlist"):
        with Sandbox(folder / network, "docker", engine.env) as box:
            (folder / network).mkdir(exist_ok=True)
            box.repository(config=CONFIG.replace("NETWORK", network))
            box.start()
            yield spawning(box, engine, network)
            if network == "none":
                yield asyncio.run(echoing(box, engine))
        engine.clear()


def spawning(box: Sandbox, engine: Engine, network: str) -> Figure:
    """From the request to the agent's running process, beside Git and the engine alone."""
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
    took, limit = interleaved(SPAWNS, ours, bare)
    note = f"{took * 1e3:.0f} ms ÷ {limit * 1e3:.0f} ms"
    return Figure(f"spawn, network {network} ÷ bare worktree and `docker run`", took / limit, 1.3, note=note)


async def echoing(box: Sandbox, engine: Engine) -> Figure:
    """A key typed into the attached terminal → its echo, beside `docker exec`."""
    box.request("POST", "/api/sessions", {"prompt": "type", "name": "cat", "agent": "cat"})
    found = f"label={'agent-orchestrator.session'}=app-cat"
    box.until(lambda: engine.run("ps", "--quiet", "--filter", found).strip(), "its container", 30)
    container = engine.run("ps", "--quiet", "--filter", found).strip()
    socket = next(iter(Home(box.home.path).socket("x").parent.glob("box-*.sock")))
    for candidate in Home(box.home.path).socket("x").parent.glob("box-*.json"):
        if '"app-cat"' in candidate.read_text():
            socket = candidate.with_suffix(".sock")
    environment = [f"{name}={value}" for name, value in engine.env.items()]
    ours = PersonsTerminal(attach_command(socket, "app-cat"))
    bare = PersonsTerminal(["env", *environment, "docker", "exec", "--interactive", "--tty", container, "cat"])
    took: dict[str, list[float]] = {"ours": [], "bare": []}
    await asyncio.sleep(1.5)
    for _ in range(KEYS):
        for name, terminal in (("ours", ours), ("bare", bare)):
            before = len(terminal.output)
            began = time.perf_counter()
            terminal.type(b"z")
            while len(terminal.output) == before:  # noqa: ASYNC110 - no later than it is there
                await asyncio.sleep(0)
            took[name].append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE)
    for terminal in (ours, bare):
        await terminal.close()
    late, least = (sorted(times)[int(len(times) * 0.95)] for times in took.values())
    middle = [statistics.median(times) * 1e3 for times in took.values()]
    note = f"p95 {late * 1e3:.1f} ms, of `docker exec` {least * 1e3:.1f} ms; p50 {middle[0]:.1f} and {middle[1]:.1f} ms"
    return Figure("key → echo, over `docker exec` (p95)", (late - least) * 1e3, 5, "ms", note=note)
