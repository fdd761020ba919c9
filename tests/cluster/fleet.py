"""A daemon and its machines, with workers started by Ray or by hand; and the evidence of the agents' logs."""

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
from tests.cluster.engine import FAST_FAILURE_SETTINGS, RayEngine
from tests.cluster.lab import ClusterLab, LabMachine

T = TypeVar("T")

AGENT = Path(__file__).with_name("agent.py")


class LabFleet:
    """The daemon and the machines of a lab; `ray` selects how workers are started."""

    def __init__(
        self, lab: ClusterLab, *, ray: bool, lease: float = 4.0, checkpoint: float = 3.0, pace: float = 0.4
    ) -> None:
        self.lab = lab
        self.lease, self.checkpoint, self.pace = lease, checkpoint, pace
        self.engine = RayEngine(lab) if ray else None
        self.witness = lab.folder / "witness"
        self.witness.mkdir(mode=0o700)
        self.box = Sandbox(lab.daemon, "ray", env=FAST_FAILURE_SETTINGS if ray else None)
        self.labels: dict[str, str] = {}
        self._commands: dict[str, str] = {}

    def __enter__(self) -> LabFleet:
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

    # -- set-up --------------------------------------------------------------------------------------------------------

    def begin(self, labels: dict[str, str] | None = None) -> None:
        """Create the repository, start daemon and machines, and wait until all are ready. `labels` are by machine, in Ray's form."""
        self.prepare(labels)
        self.box.repository("app", config=self.project())
        self.start_daemon()
        if self.engine is None:
            for machine in self.lab.machines:
                self.join(machine, self.labels.get(machine.name, ""))
        self.ready(*(machine.name for machine in self.lab.machines))

    def prepare(self, labels: dict[str, str] | None = None, cpus: int = 8, each: dict[str, Any] | None = None) -> None:
        """Start Ray with this number of CPUs per machine, and write the daemon's configuration; `each` are a session's resources."""
        self.labels = labels or {}
        if self.engine:
            self.engine.cpus = cpus
            self.engine.start(self.labels)
        self.box.home.create_folders()
        self.box.home.config.write_text(self.configuration(each or {}))

    def configuration(self, each: dict[str, Any]) -> str:
        """Return the daemon's configuration."""
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
        """Return the repository's configuration, with agents that log what they do."""
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
        """Start the daemon at a fixed address that the machines can reach."""
        self.box.start(port=None)

    def join(self, machine: LabMachine, labels: str = "") -> None:
        """Start a worker by hand, with the command that `ao nodes add` prints."""
        if machine.name not in self._commands:
            self._commands[machine.name] = self.box.json("nodes", "add", machine.name)["command"]
        label_options = [f"--label {pair}" for pair in labels.split(",") if pair]
        machine.start(["sh", "-c", f"exec env {self._commands[machine.name]} {' '.join(label_options)}"], "worker")

    def recover(self, machine: LabMachine) -> None:
        """Bring a machine back that was off or cut off, and start its worker, as its administrator would."""
        machine.power_on()
        labels = self.labels.get(machine.name, "")
        if self.engine:
            if not self.engine.runs(machine):
                self.engine.start_node(machine, labels)
        elif not machine.processes("nodes.worker"):
            self.join(machine, labels)

    def wait_until_ready(self) -> None:
        """Wait until all nodes are ready; a raylet that was declared dead while it was cut off ends soon and is started again."""
        if self.engine:
            for machine in self.lab.machines:
                self.wait_until(lambda settling=machine: self._is_ready(settling), f"Ray on {machine.name}", 60)  # type: ignore[misc]

    def _is_ready(self, machine: LabMachine) -> bool:
        self.recover(machine)
        return self.nodes().get(machine.name, {}).get("state") == "ready"

    # -- state --------------------------------------------------------------------------------------------------------

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the nodes by name."""
        return {node["name"]: node for node in self.box.request("GET", "/api/nodes")["nodes"]}

    def ready(self, *names: str, timeout: float = 60.0) -> None:
        """Wait until these nodes are ready."""

        def are_ready() -> bool:
            nodes = self.nodes()
            return all(nodes.get(name, {}).get("state") == "ready" for name in names)

        self.wait_until(are_ready, f"{', '.join(names)} to be ready", timeout)

    def wait_until(self, condition: Callable[[], T], what: str, timeout: float = 30.0) -> T:
        """Poll until the condition is true and return its value; raise `TimeoutError`."""
        return self.box.wait_until(condition, what, timeout)

    def create_session(self, name: str, *argv: str) -> None:
        """Create a session and wait until its agent's log shows that it works, unless `--no-wait` is passed."""
        completed = self.box.ao("new", f"count {name}", "--name", name, *argv, check=False)
        assert completed.returncode == 0, completed.stderr
        if "--no-wait" not in argv:
            self.wait_until(lambda: self.is_working(name), f"the agent of {name}")

    def last_commit_title(self, name: str) -> str:
        """Return the title of the last commit of its local branch, or "" if there is none."""
        return self.box.git("for-each-ref", "--format=%(subject)", f"refs/heads/feature/{name}")

    def node_of(self, name: str) -> str:
        """Return the node of a session, or ""."""
        return str(self.box.session(f"app-{name}").get("node") or "")

    def log(self, session: str) -> list[dict[str, Any]]:
        """Return the records of a session's agents."""
        path = self.witness / f"app-{session}.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def is_working(self, session: str, after: float = 0.0) -> bool:
        """Return whether an agent of a session is working now, after a time."""
        return any(line["at"] > max(after, boot_time() - 0.5) for line in self.log(session)[-3:])

    def launches(self, session: str) -> list[LoggedLaunch]:
        """Return the launches of a session's agent in order, as their logs show them."""
        lines_by_launch: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
        for line in self.log(session):
            lines_by_launch[line["generation"], line["pid"]].append(line)
        lives = [LoggedLaunch.of(lines) for lines in lines_by_launch.values()]
        return sorted(lives, key=lambda life: life.begin)


@dataclass(frozen=True, slots=True)
class LoggedLaunch:
    """A launch of an agent, by its own log."""

    generation: int
    machine: str
    begin: float
    last: float
    initial_number: int
    """The last number in the workspace when it started."""
    initial_commit: int
    wrote: tuple[tuple[float, int], ...]
    committed: tuple[tuple[float, int], ...]
    messages: tuple[str, ...]
    trouble: tuple[str, ...]

    @classmethod
    def of(cls, lines: list[dict[str, Any]]) -> LoggedLaunch:
        """Return the launch with these log records."""
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


def overlaps(lives: list[LoggedLaunch]) -> list[str]:
    """Return the cases in which two agents of one session were active at once."""
    return [
        f"{first.machine} (launch {first.generation}) until {first.last:.2f}, "
        f"{second.machine} (launch {second.generation}) from {second.begin:.2f}"
        for first, second in itertools.pairwise(lives)
        if second.begin <= first.last
    ]


def boot_time() -> float:
    """Return the time by the clock of the agents' logs."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
