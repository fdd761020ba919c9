"""A daemon, and machines that work for it: by Ray, or by workers that are started by hand. And what its agents' own logs prove."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from agent_orchestrator.testing.sandbox import Sandbox
from tests.cluster.engine import TUNED, Engine
from tests.cluster.lab import Lab, Machine

T = TypeVar("T")

AGENT = Path(__file__).with_name("agent.py")


class Fleet:
    """Everything below one lab; `ray` chooses who starts the workers."""

    def __init__(self, lab: Lab, *, ray: bool, lease: float = 4.0, checkpoint: float = 3.0, pace: float = 0.4) -> None:
        self.lab = lab
        self.lease, self.checkpoint, self.pace = lease, checkpoint, pace
        self.engine = Engine(lab) if ray else None
        self.witness = lab.folder / "witness"
        self.witness.mkdir(mode=0o700)
        self.box = Sandbox(lab.daemon, "ray", env=TUNED if ray else None)
        self.labels: dict[str, str] = {}
        self._commands: dict[str, str] = {}

    def __enter__(self) -> Fleet:
        self.box.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.box.clean_up()
        finally:
            if self.engine:
                self.engine.stop()

    # -- beginning -----------------------------------------------------------------------------------------------------

    def begin(self, labels: dict[str, str] | None = None) -> None:
        """Repository, daemon and machines, until all machines are ready. `labels`: of machines, as Ray writes them."""
        self.prepare(labels)
        self.box.repository("app", config=self.project())
        self.start_daemon()
        if self.engine is None:
            for machine in self.lab.machines:
                self.join(machine, self.labels.get(machine.name, ""))
        self.ready(*(machine.name for machine in self.lab.machines))

    def prepare(self, labels: dict[str, str] | None = None, cpus: int = 8, each: dict[str, Any] | None = None) -> None:
        """Ray, with so many CPUs on each machine, and the daemon's configuration; `each`: what a session takes."""
        self.labels = labels or {}
        if self.engine:
            self.engine.cpus = cpus
            self.engine.start(self.labels)
        self.box.home.make()
        self.box.home.config.write_text(self.configuration(each or {}))

    def configuration(self, each: dict[str, Any]) -> str:
        """Of the daemon."""
        cluster: dict[str, Any] = {
            "home": str(self.lab.node_home),
            "lease": f"{self.lease:g}s",
            "checkpoint": f"{self.checkpoint:g}s",
            "resources": {"cpus": 0.4, "memory": "64m", **each},
        }
        if self.engine:
            cluster["address"] = self.engine.address
        listens = {"host": self.lab.address, "port": 3000, "tls": {"insecure": True}}
        return json.dumps({**listens, "cluster": cluster, "orchestrator": {"maxParallelAgents": 100}})

    def project(self) -> str:
        """Of the repository: agents that leave witness."""
        agents = {
            name: {
                "tool": "command",
                "command": [sys.executable, "-I", str(AGENT)],
                "env": {"LAB_LOG": str(self.witness), "LAB_PACE": str(pace)},
            }
            for name, pace in (("counts", self.pace), ("rests", 3600))
        }
        return json.dumps({"defaults": {"agent": "counts", "runtime": "ray"}, "agents": agents})

    def start_daemon(self) -> None:
        """At an address that the machines reach, and always the same."""
        self.box.start(port=None)

    def join(self, machine: Machine, labels: str = "") -> None:
        """By hand: with the command that `ao nodes add` gives."""
        if machine.name not in self._commands:
            self._commands[machine.name] = self.box.json("nodes", "add", machine.name)["command"]
        given = [f"--label {pair}" for pair in labels.split(",") if pair]
        machine.start(["sh", "-c", f"exec env {self._commands[machine.name]} {' '.join(given)}"], "worker")

    def back(self, machine: Machine) -> None:
        """A machine that was off or cut off works again, and whoever looks after it has started what belongs there."""
        machine.power_on()
        labels = self.labels.get(machine.name, "")
        if self.engine:
            if not self.engine.runs(machine):
                self.engine.start_node(machine, labels)
        elif not machine.processes("nodes.worker"):
            self.join(machine, labels)

    def settle(self) -> None:
        """A raylet that was declared dead while it was cut off ends by itself soon after; then whoever looks after it starts it again."""
        if self.engine:
            for machine in self.lab.machines:
                self.until(lambda one=machine: self._in_order(one), f"Ray on {machine.name}", 60)  # type: ignore[misc]

    def _in_order(self, machine: Machine) -> bool:
        self.back(machine)
        return self.nodes().get(machine.name, {}).get("state") == "ready"

    # -- looking -------------------------------------------------------------------------------------------------------

    def nodes(self) -> dict[str, dict[str, Any]]:
        """By name."""
        return {one["name"]: one for one in self.box.request("GET", "/api/nodes")["nodes"]}

    def ready(self, *names: str, timeout: float = 60.0) -> None:
        """Wait until these are."""

        def are() -> bool:
            nodes = self.nodes()
            return all(nodes.get(name, {}).get("state") == "ready" for name in names)

        self.until(are, f"{', '.join(names)} to be ready", timeout)

    def until(self, holds: Callable[[], T], what: str, timeout: float = 30.0) -> T:
        """Look until something is so."""
        return self.box.until(holds, what, timeout)

    def new(self, name: str, *argv: str) -> None:
        """A session; returns when its agent says so itself, unless it is not to be waited for."""
        done = self.box.ao("new", f"count {name}", "--name", name, *argv, check=False)
        assert done.returncode == 0, done.stderr
        if "--no-wait" not in argv:
            self.until(lambda: self.beats(name), f"the agent of {name}")

    def landed(self, name: str) -> str:
        """The title of the last commit of its branch here; nothing, while there is none."""
        return self.box.git("for-each-ref", "--format=%(subject)", f"refs/heads/feature/{name}")

    def node_of(self, name: str) -> str:
        """Where a session lives."""
        return str(self.box.session(f"app-{name}").get("node") or "")

    def log(self, session: str) -> list[dict[str, Any]]:
        """What its agents wrote down."""
        path = self.witness / f"app-{session}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def beats(self, session: str, after: float = 0.0) -> bool:
        """Does an agent of it work now?"""
        return any(line["at"] > max(after, boot_time() - 0.5) for line in self.log(session)[-3:])

    def lives(self, session: str) -> list[Life]:
        """One a launch, in order."""
        found: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        for line in self.log(session):
            found[line["generation"], line["pid"]].append(line)
        lives = [Life.of(lines) for lines in found.values()]
        return sorted(lives, key=lambda life: life.begin)


@dataclass(frozen=True, slots=True)
class Life:
    """One launch of an agent, as it saw itself."""

    generation: int
    machine: str
    begin: float
    last: float
    found: int
    """The number in the workspace when it began."""
    found_committed: int
    wrote: tuple[tuple[float, int], ...]
    committed: tuple[tuple[float, int], ...]
    messages: tuple[str, ...]
    trouble: tuple[str, ...]

    @classmethod
    def of(cls, lines: list[dict[str, Any]]) -> Life:
        """Of its lines."""
        first = next((line for line in lines if line["kind"] == "begin"), {"found": 0, "committed": 0})
        return cls(
            lines[0]["generation"],
            lines[0]["machine"],
            lines[0]["at"],
            lines[-1]["at"],
            first["found"],
            first["committed"],
            tuple((line["at"], line["number"]) for line in lines if line["kind"] == "wrote"),
            tuple((line["at"], line["number"]) for line in lines if line["kind"] == "committed"),
            tuple(line["text"] for line in lines if line["kind"] == "message"),
            tuple(str(line) for line in lines if line["kind"] == "trouble"),
        )


def overlaps(lives: list[Life]) -> list[str]:
    """Where two agents of one session were active at once: there must be none."""
    return [
        f"{one.machine} (launch {one.generation}) until {one.last:.2f}, {two.machine} (launch {two.generation}) from {two.begin:.2f}"
        for one, two in itertools.pairwise(lives)
        if two.begin <= one.last
    ]


def boot_time() -> float:
    """The clock of agents' logs."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
