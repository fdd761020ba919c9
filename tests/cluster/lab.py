"""A simulated data centre: a switch, machines in separate namespaces, and a daemon beside them. Needs root.

Each machine has a network namespace with one cable to the switch, and a mount namespace in which the node's home is
a separate disk and the daemon's folder with its repositories is hidden, so that no test passes because of the shared disk.
A cable can be unplugged, and a machine loses its power when everything in its network namespace is killed. Everything is
cleaned up by process id and by name, also after failures.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

T = TypeVar("T")

_SERIALS = itertools.count(os.getpid() % 5000)


def missing_requirement() -> str | None:
    """Return what this machine lacks for a lab, or None if it can be built."""
    if os.geteuid() != 0:
        return "needs root: network and mount namespaces are made (sudo make test-cluster)"
    missing = [program for program in ("ip", "nsenter", "unshare", "mount") if not shutil.which(program)]
    if missing:
        return f"needs {', '.join(missing)} (Debian: iproute2, util-linux)"
    if subprocess.run(["unshare", "-m", "-n", "true"], capture_output=True, check=False).returncode:
        return "needs network and mount namespaces, which this kernel or container does not give"
    return None


def run(*argv: str, check: bool = True) -> str:
    """Run a program and return its output; raise `RuntimeError` if it fails."""
    completed = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and completed.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {completed.stderr.strip()}")
    return completed.stdout


def wait_until(condition: Callable[[], T], what: str, timeout: float = 30.0) -> T:
    """Poll until the condition is true and return its value; raise `TimeoutError`."""
    end = time.monotonic() + timeout
    while True:
        if value := condition():
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout:g} s in vain for {what}")
        time.sleep(0.05)


class LabMachine:
    """A simulated machine."""

    def __init__(self, lab: ClusterLab, number: int) -> None:
        self.lab, self.name, self.number = lab, f"n{number}", number
        self.address = lab.address_of(number + 1)
        self._namespace, self._cable = f"{lab.name}{self.name}", f"{lab.name}v{number}"
        self.is_cut = False
        run("ip", "netns", "add", self._namespace)
        run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._namespace)
        run("ip", "link", "set", self._cable, "master", lab.name, "up")
        net = ["nsenter", f"--net=/run/netns/{self._namespace}"]
        run(*net, "ip", "link", "set", "lo", "up")
        run(*net, "ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        run(*net, "ip", "link", "set", "eth0", "up")
        # Keeps the mount namespace, and with it the machine's disks, until the end.
        disks = [
            f"mount -t tmpfs -o mode=0755 disk {folder}"
            for folder in (lab.node_home, lab.ray_folder, lab.daemon, "/var/tmp")
        ]
        script = f"{' && '.join(disks)} && hostname {self.name} && echo up && exec sleep infinity"
        self._anchor = subprocess.Popen(
            [*net, "unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._anchor.stdout is not None
        if self._anchor.stdout.readline() != b"up\n":
            raise RuntimeError(f"the disks of {self.name} could not be mounted")

    @property
    def inside(self) -> list[str]:
        """The command prefix that runs a program on this machine."""
        return ["nsenter", "-t", str(self._anchor.pid), "--net", "--mount", "--uts", "--"]

    def start(self, argv: Sequence[str], log: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a program on this machine; its output goes to a file of the lab."""
        with (self.lab.logs / f"{self.name}.{log}.log").open("ab") as out:
            process = subprocess.Popen(
                [*self.inside, *argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**self.lab.env, **(env or {})},
                cwd="/",
                start_new_session=True,
            )
        self.lab.started.append(process)
        return process

    def run(self, *argv: str, check: bool = True) -> str:
        """Run a program on this machine and return its output."""
        return run(*self.inside, *argv, check=check)

    def processes(self, command_part: str = "") -> list[int]:
        """Return the pids of the machine's processes whose command line contains a text."""
        pids = []
        own_network = Path(f"/run/netns/{self._namespace}").stat().st_ino
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in (self._anchor.pid, os.getpid()):
                with contextlib.suppress(OSError):
                    if (entry / "ns/net").stat().st_ino == own_network and command_part in _command(entry):
                        pids.append(int(entry.name))
        return pids

    def unplug(self) -> None:
        """Cut the machine off from the network, without closing connections."""
        run("ip", "link", "set", self._cable, "down")
        self.is_cut = True

    def plug(self) -> None:
        """Reconnect the machine to the network."""
        run("ip", "link", "set", self._cable, "up")
        self.is_cut = False

    def power_off(self) -> None:
        """Kill everything on the machine; its disks stay."""
        self.unplug()
        while pids := self.processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.lab.reap()
            time.sleep(0.02)

    def power_on(self) -> None:
        """Reconnect the machine; its programs must be started again."""
        self.plug()

    def dismantle(self) -> None:
        """Remove the machine."""
        with contextlib.suppress(OSError):
            self.power_off()
        self._anchor.kill()
        self._anchor.communicate()
        run("ip", "link", "del", self._cable, check=False)
        run("ip", "netns", "del", self._namespace, check=False)


class ClusterLab:
    """The switch and the machines; the daemon uses the switch's address."""

    def __init__(self, machines: int = 3) -> None:
        serial = next(_SERIALS)
        self.name = f"ao{serial}"
        self._net = f"10.{200 + serial // 250 % 50}.{serial % 250}"
        self.address = self.address_of(1)
        self.folder = Path(tempfile.mkdtemp(prefix="aol"))
        self.daemon, self.logs = self.folder / "d", self.folder / "logs"
        self.node_home, self.ray_folder = self.folder / "node", self.folder / "ray"
        for folder in (self.daemon, self.logs, self.node_home, self.ray_folder):
            folder.mkdir()
        self.env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AO_", "RAY_", "GIT_", "TMUX", "PYTEST_"))
        }
        self.env["PATH"] = f"{Path(sys.executable).parent}:{self.env.get('PATH', '')}"
        self.started: list[subprocess.Popen[bytes]] = []
        self.machines: list[LabMachine] = []
        self._machine_count = machines

    def address_of(self, number: int) -> str:
        """Return an address of the switch's network."""
        return f"{self._net}.{number}"

    def __enter__(self) -> ClusterLab:
        try:
            run("ip", "link", "add", self.name, "type", "bridge")
            run("ip", "addr", "add", f"{self.address}/24", "dev", self.name)
            run("ip", "link", "set", self.name, "up")
            for number in range(1, self._machine_count + 1):
                self.machines.append(LabMachine(self, number))
        except BaseException:
            self.dismantle()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismantle()

    def machine(self, name: str) -> LabMachine:
        """Return a machine by name."""
        return next(machine for machine in self.machines if machine.name == name)

    def reap(self) -> None:
        """Collect ended child processes."""
        for process in self.started:
            process.poll()

    def dismantle(self) -> None:
        """Remove everything, also after failures."""
        for machine in self.machines:
            machine.dismantle()
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(10)
        run("ip", "link", "del", self.name, check=False)
        for name in (path.name for path in Path("/run/netns").glob(f"{self.name}n*")):
            run("ip", "netns", "del", name, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def _command(entry: Path) -> str:
    return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
