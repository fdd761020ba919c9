"""An engine of containers of our own, for tests and benchmarks: everything below one folder, ended by process id.

Docker's daemon gets its own socket, data and containerd; no bridge, no firewall rule and no kernel setting is touched, for nothing here
needs them (what it changes all the same is put back). The image is Debian with Python and Git, made once by debootstrap.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

IMAGE = "ao-test:bookworm"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agent-orchestrator" / "docker"
TAR = CACHE / "bookworm-python3-git.tar"
SETTINGS = ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class Unavailable(Exception):
    """Why there is no engine here."""


@dataclass(slots=True)
class Engine:
    """One that runs."""

    name: str
    folder: Path
    env: dict[str, str]
    """What leads its command line to it."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, *arguments: str, check: bool = True) -> str:
        """A command of the engine."""
        done = subprocess.run(
            [self.name, *arguments], env={**os.environ, **self.env}, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"{self.name} {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def containers(self) -> list[str]:
        """The names of all there are."""
        return self.run("ps", "--all", "--format", "{{.Names}}").split()

    def clear(self) -> None:
        """Remove them all."""
        if names := self.containers():
            self.run("rm", "--force", *names, check=False)

    def start(self) -> None:
        """Start Docker's daemon, or start it again."""
        at, log = self.folder, (self.folder / "dockerd.log").open("ab")
        options = ["--data-root", at / "data", "--exec-root", at / "exec", "--pidfile", at / "docker.pid"]
        options += ["--host", f"unix://{at / 'docker.sock'}", "--live-restore", "--bridge", "none"]
        options += ["--iptables=false", "--ip-forward=false", "--ip-masq=false", "--userland-proxy=false"]
        daemon = subprocess.Popen(
            ["dockerd", *map(str, options)],
            env={**os.environ, "PATH": PATH},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        log.close()
        self.processes = [daemon]
        until = time.monotonic() + 60
        while self.run("info", "--format", "{{.ServerVersion}}", check=False).strip() == "":
            if daemon.poll() is not None or time.monotonic() > until:
                said = (self.folder / "dockerd.log").read_text(errors="replace").strip().splitlines()
                raise Unavailable(f"dockerd does not start: {said[-1] if said else 'it does not say why'}")
            time.sleep(0.1)

    def halt(self, number: int = signal.SIGTERM) -> None:
        """End the daemon, and wait for it."""
        for process in self.processes:
            process.send_signal(number)
            process.wait(30)
        self.processes = []


@contextlib.contextmanager
def docker() -> Iterator[Engine]:
    """A daemon of our own, with the image."""
    _needs("dockerd", "docker")
    folder = Path(tempfile.mkdtemp(prefix="ao-dockerd-"))
    engine = Engine("docker", folder, {"DOCKER_HOST": f"unix://{folder / 'docker.sock'}"})
    before = {name: _setting(name) for name in SETTINGS}
    try:
        engine.start()
        engine.run("import", str(image()), IMAGE)
        yield engine
    finally:
        with contextlib.suppress(Exception):
            engine.clear()
        engine.halt()
        _end_containerd(folder)
        for name, value in before.items():
            if value is not None and _setting(name) != value:
                Path("/proc/sys", name).write_text(value)
        _unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def podman() -> Iterator[Engine]:
    """podman with storage of its own; it has no daemon."""
    _needs("podman", "runc")
    folder = Path(tempfile.mkdtemp(prefix="ao-podman-"))
    (folder / "containers.conf").write_text(
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\ninit_path = "/usr/bin/tini"\n'
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/data"\nrunroot = "{folder}/run"\n'
    )
    (folder / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    env = {"CONTAINERS_CONF": f"{folder}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{folder}/storage.conf"}
    engine = Engine("podman", folder, {**env, "PATH": PATH})
    try:
        engine.run("import", str(image()), IMAGE)
        yield engine
    finally:
        engine.run("rm", "--force", "--all", "--time", "0", check=False)
        _unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


def image() -> Path:
    """The image as a tar; made once."""
    if TAR.exists():
        return TAR
    _needs("debootstrap")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ao-image-") as root:
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=python3,git,ca-certificates", "bookworm", root],
            env={**os.environ, "PATH": PATH},
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise Unavailable(f"the image could not be made: {(made.stdout.splitlines() or [''])[-1]}")
        for rest in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(Path(root, rest), ignore_errors=True)
        fresh = TAR.with_suffix(f".{os.getpid()}")
        subprocess.run(["tar", "-C", root, "-cf", str(fresh), "."], check=True)
        fresh.replace(TAR)
    return TAR


def _needs(*programs: str) -> None:
    if os.geteuid() != 0:
        raise Unavailable("an engine of our own needs root")
    for program in programs:
        if shutil.which(program, path=PATH) is None:
            raise Unavailable(f"{program} is not installed (scripts/install-docker)")


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def _end_containerd(folder: Path) -> None:
    """Docker's daemon ends its containerd itself, unless it was killed."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "exec" / "containerd" / "containerd.pid").read_text())
        if b"containerd" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGTERM)


def _unmount(folder: Path) -> None:
    places = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((place for place in places if place.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False, capture_output=True)
