"""A small data centre on one machine: a switch, machines in namespaces of their own, a daemon beside them. Needs root.

Each machine has a network namespace with one cable to the switch, and a mount namespace in which the node's home is
its own disk and the daemon's folder, repositories and all, is hidden: nothing passes because of the shared disk. A
cable can be unplugged, and a machine loses its power when everything that runs in its network namespace is killed.
All is cleaned up by process id and by name, whatever happened.
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


def lacking() -> str | None:
    """What this machine lacks for a lab; none: it can be built."""
    if os.geteuid() != 0:
        return "needs root: network and mount namespaces are made (sudo make test-cluster)"
    missing = [program for program in ("ip", "nsenter", "unshare", "mount") if not shutil.which(program)]
    if missing:
        return f"needs {', '.join(missing)} (Debian: iproute2, util-linux)"
    if subprocess.run(["unshare", "-m", "-n", "true"], capture_output=True, check=False).returncode:
        return "needs network and mount namespaces, which this kernel or container does not give"
    return None


def run(*argv: str, check: bool = True) -> str:
    """Run a program of the system's."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def until(holds: Callable[[], T], what: str, timeout: float = 30.0) -> T:
    """Look until something is so."""
    end = time.monotonic() + timeout
    while True:
        if value := holds():
            return value
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout:g} s in vain for {what}")
        time.sleep(0.05)


class Machine:
    """One of them."""

    def __init__(self, lab: Lab, number: int) -> None:
        self.lab, self.name, self.number = lab, f"n{number}", number
        self.address = lab.address_of(number + 1)
        self._space, self._cable = f"{lab.name}{self.name}", f"{lab.name}v{number}"
        self.cut = False
        run("ip", "netns", "add", self._space)
        run("ip", "link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", self._space)
        run("ip", "link", "set", self._cable, "master", lab.name, "up")
        net = ["nsenter", f"--net=/run/netns/{self._space}"]
        run(*net, "ip", "link", "set", "lo", "up")
        run(*net, "ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        run(*net, "ip", "link", "set", "eth0", "up")
        # Holds the mount namespace, whatever else ends: the machine's disks.
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
        """Before a command: runs it on this machine."""
        return ["nsenter", "-t", str(self._anchor.pid), "--net", "--mount", "--uts", "--"]

    def start(self, argv: Sequence[str], log: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """Start a program there; its output goes to a file of the lab's."""
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
        """Run a program there to its end."""
        return run(*self.inside, *argv, check=check)

    def processes(self, of: str = "") -> list[int]:
        """Everything that runs there, or what has this in its command line."""
        found = []
        mine = Path(f"/run/netns/{self._space}").stat().st_ino
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) not in (self._anchor.pid, os.getpid()):
                with contextlib.suppress(OSError):
                    if (entry / "ns/net").stat().st_ino == mine and of in _command(entry):
                        found.append(int(entry.name))
        return found

    def unplug(self) -> None:
        """Cut it off: nothing comes, nothing goes, and nobody is told."""
        run("ip", "link", "set", self._cable, "down")
        self.cut = True

    def plug(self) -> None:
        """And back."""
        run("ip", "link", "set", self._cable, "up")
        self.cut = False

    def power_off(self) -> None:
        """Everything there ends at once; its disks stay."""
        self.unplug()
        while pids := self.processes():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.lab.reap()
            time.sleep(0.02)

    def power_on(self) -> None:
        """The cable works again; what is to run there must be started."""
        self.plug()

    def dismantle(self) -> None:
        """Leave nothing."""
        with contextlib.suppress(OSError):
            self.power_off()
        self._anchor.kill()
        self._anchor.communicate()
        run("ip", "link", "del", self._cable, check=False)
        run("ip", "netns", "del", self._space, check=False)


class Lab:
    """The switch and the machines; the daemon lives at the switch's own address."""

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
        self.machines: list[Machine] = []
        self._wanted = machines

    def address_of(self, number: int) -> str:
        """On the switch's network."""
        return f"{self._net}.{number}"

    def __enter__(self) -> Lab:
        try:
            run("ip", "link", "add", self.name, "type", "bridge")
            run("ip", "addr", "add", f"{self.address}/24", "dev", self.name)
            run("ip", "link", "set", self.name, "up")
            for number in range(1, self._wanted + 1):
                self.machines.append(Machine(self, number))
        except BaseException:
            self.dismantle()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.dismantle()

    def machine(self, name: str) -> Machine:
        """By its name."""
        return next(machine for machine in self.machines if machine.name == name)

    def reap(self) -> None:
        """Leave no zombies of ours."""
        for process in self.started:
            process.poll()

    def dismantle(self) -> None:
        """Leave nothing, whatever happened."""
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
