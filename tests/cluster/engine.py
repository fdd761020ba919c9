"""Ray in a lab: a head beside the daemon, which runs no session, and a node on each machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster.lab import ClusterLab, LabMachine, wait_until

FAST_FAILURE_SETTINGS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    "RAY_DISABLE_IMPORT_WARNING": "1",
}
"""A lost node counts as dead after about 4 s, instead of 15 (killed) or 65 (cut off)."""

RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]


def have_ray() -> bool:
    """Return whether Ray is installed."""
    import importlib.util

    return importlib.util.find_spec("ray") is not None


class RayEngine:
    """A Ray cluster."""

    def __init__(self, lab: ClusterLab) -> None:
        self.lab = lab
        self.port = 20000 + int(lab.name[2:]) % 5000
        self.address = f"{lab.address}:{self.port}"
        self.cpus = 8
        """The number of CPUs of each machine that Ray is configured with."""
        self._head: subprocess.Popen[bytes] | None = None
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        lab.env.update(FAST_FAILURE_SETTINGS)

    def start(self, labels: dict[str, str]) -> None:
        """Start the head and the nodes, with labels by machine: `gpu=a,region=b`."""
        self.start_head()
        for machine in self.lab.machines:
            self.start_node(machine, labels.get(machine.name, ""))
        for machine in self.lab.machines:
            wait_until(lambda joining=machine: self._joined(joining), f"Ray on {machine.name}", 60)  # type: ignore[misc]

    def start_head(self) -> None:
        """Start the head in its own process group, so that it can be killed as a whole."""
        argv = [*RAY, "start", "--head", "--block", "--disable-usage-stats", "--include-dashboard=false"]
        argv += [f"--node-ip-address={self.lab.address}", f"--port={self.port}", f"--temp-dir={self.lab.ray_folder}"]
        argv += ["--num-cpus=0", "--num-gpus=0", "--node-name=head", "--object-store-memory=80000000"]
        log = self.lab.logs / "head.ray.log"

        def started() -> bool:
            # Ray checks for processes of other clusters, also on the lab's machines: those of a killed head take a while to end.
            if self._head is None or self._head.poll() is not None:
                with log.open("wb") as out:
                    self._head = subprocess.Popen(
                        argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self.lab.env, start_new_session=True
                    )
                self.lab.started.append(self._head)
            return "Ray runtime started" in log.read_text()

        wait_until(started, "Ray's head", 60)

    def kill_head(self) -> None:
        """Kill the head and the driver's node."""
        for pid in self.head_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.lab.reap()

    def head_processes(self) -> list[int]:
        """Return the pids of Ray's processes beside the daemon: those that name this lab's folder."""
        own_network, pids = Path("/proc/self/ns/net").stat().st_ino, []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if (entry / "ns/net").stat().st_ino == own_network and str(self.lab.ray_folder).encode() in (
                        entry / "cmdline"
                    ).read_bytes() + (entry / "environ").read_bytes().partition(b"RAY_SESSION")[2]:
                        pids.append(int(entry.name))
        return pids

    def start_node(self, machine: LabMachine, labels: str = "", memory: int = 32 << 30) -> None:
        """Start Ray on a machine, as its administrator would after each boot."""
        argv = [
            *RAY,
            "start",
            f"--address={self.address}",
            "--block",
            "--disable-usage-stats",
            f"--num-cpus={self.cpus}",
        ]
        argv += [f"--node-ip-address={machine.address}", f"--node-name={machine.name}", "--num-gpus=0"]
        argv += ["--object-store-memory=80000000", f"--memory={memory}", *([f"--labels={labels}"] if labels else [])]
        self._nodes[machine.name] = machine.start(argv, "ray")

    def runs(self, machine: LabMachine) -> bool:
        """Return whether Ray runs or is starting on a machine."""
        return self._nodes[machine.name].poll() is None

    def _joined(self, machine: LabMachine) -> bool:
        log = self.lab.logs / f"{machine.name}.ray.log"
        if (code := self._nodes[machine.name].poll()) is not None:
            raise RuntimeError(f"Ray on {machine.name} ended with {code}: {log.read_text()[-2000:]}")
        return "Ray runtime started" in log.read_text()

    def stop(self) -> None:
        """Stop the head; the lab stops its machines."""
        end = time.monotonic() + 10
        while self.head_processes() and time.monotonic() < end:
            self.kill_head()
            time.sleep(0.05)
