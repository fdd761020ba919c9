"""A private container engine for tests and benchmarks: everything is below one folder and ended by process id.

Docker's daemon gets its own socket, data and containerd; it uses no bridge or firewall rule, and kernel settings that it changes are
restored. The image is Debian with Python and Git, created once by debootstrap.
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
IMAGE_TAR = CACHE / "bookworm-python3-git.tar"
KERNEL_SETTINGS = ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables", "net/bridge/bridge-nf-call-ip6tables")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class EngineUnavailable(Exception):
    """The reason why no engine can be started on this machine."""


@dataclass(slots=True)
class ContainerEngine:
    """A running engine."""

    name: str
    folder: Path
    env: dict[str, str]
    """The environment with which its command line uses it."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, *arguments: str, check: bool = True) -> str:
        """Run a command of the engine and return its output; raise `RuntimeError` if it fails."""
        completed = subprocess.run(
            [self.name, *arguments], env={**os.environ, **self.env}, capture_output=True, text=True, check=False
        )
        if check and completed.returncode:
            raise RuntimeError(f"{self.name} {' '.join(arguments)}: {completed.stderr}")
        return completed.stdout

    def containers(self) -> list[str]:
        """Return the names of all containers."""
        return self.run("ps", "--all", "--format", "{{.Names}}").split()

    def clear(self) -> None:
        """Remove all containers."""
        if names := self.containers():
            self.run("rm", "--force", *names, check=False)

    def start(self) -> None:
        """Start Docker's daemon and wait until it answers."""
        folder, log = self.folder, (self.folder / "dockerd.log").open("ab")
        options = ["--data-root", folder / "data", "--exec-root", folder / "exec", "--pidfile", folder / "docker.pid"]
        options += ["--host", f"unix://{folder / 'docker.sock'}", "--live-restore", "--bridge", "none"]
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
        deadline = time.monotonic() + 60
        while self.run("info", "--format", "{{.ServerVersion}}", check=False).strip() == "":
            if daemon.poll() is not None or time.monotonic() > deadline:
                log_lines = (self.folder / "dockerd.log").read_text(errors="replace").strip().splitlines()
                raise EngineUnavailable(
                    f"dockerd does not start: {log_lines[-1] if log_lines else 'it does not say why'}"
                )
            time.sleep(0.1)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Stop the daemon and wait for its end."""
        for process in self.processes:
            process.send_signal(number)
            process.wait(30)
        self.processes = []


@contextlib.contextmanager
def docker() -> Iterator[ContainerEngine]:
    """Yield a private Docker daemon with the test image."""
    _require_programs("dockerd", "docker")
    folder = Path(tempfile.mkdtemp(prefix="ao-dockerd-"))
    engine = ContainerEngine("docker", folder, {"DOCKER_HOST": f"unix://{folder / 'docker.sock'}"})
    before = {name: _setting(name) for name in KERNEL_SETTINGS}
    try:
        engine.start()
        engine.run("import", str(create_image()), IMAGE)
        yield engine
    finally:
        with contextlib.suppress(Exception):
            engine.clear()
        engine.stop()
        _end_containerd(folder)
        for name, value in before.items():
            if value is not None and _setting(name) != value:
                Path("/proc/sys", name).write_text(value)
        _unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def podman() -> Iterator[ContainerEngine]:
    """Yield podman with private storage and the test image; it has no daemon."""
    _require_programs("podman", "runc")
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
    engine = ContainerEngine("podman", folder, {**env, "PATH": PATH})
    try:
        engine.run("import", str(create_image()), IMAGE)
        yield engine
    finally:
        engine.run("rm", "--force", "--all", "--time", "0", check=False)
        _unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


def create_image() -> Path:
    """Return the image as a tar file, creating it once."""
    if IMAGE_TAR.exists():
        return IMAGE_TAR
    _require_programs("debootstrap")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ao-image-") as root:
        debootstrap = subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=python3,git,ca-certificates", "bookworm", root],
            env={**os.environ, "PATH": PATH},
            capture_output=True,
            text=True,
            check=False,
        )
        if debootstrap.returncode:
            raise EngineUnavailable(f"the image could not be made: {(debootstrap.stdout.splitlines() or [''])[-1]}")
        for unneeded in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(Path(root, unneeded), ignore_errors=True)
        fresh = IMAGE_TAR.with_suffix(f".{os.getpid()}")
        subprocess.run(["tar", "-C", root, "-cf", str(fresh), "."], check=True)
        fresh.replace(IMAGE_TAR)
    return IMAGE_TAR


def _require_programs(*programs: str) -> None:
    if os.geteuid() != 0:
        raise EngineUnavailable("an engine of our own needs root")
    for program in programs:
        if shutil.which(program, path=PATH) is None:
            raise EngineUnavailable(f"{program} is not installed (scripts/install-docker)")


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None


def _end_containerd(folder: Path) -> None:
    """End containerd, which is left over if Docker's daemon was killed."""
    with contextlib.suppress(OSError, ValueError):
        pid = int((folder / "exec" / "containerd" / "containerd.pid").read_text())
        if b"containerd" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGTERM)


def _unmount(folder: Path) -> None:
    mount_points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount_point in sorted(
        (mount_point for mount_point in mount_points if mount_point.startswith(f"{folder}/")), reverse=True
    ):
        subprocess.run(["umount", "--lazy", mount_point], check=False, capture_output=True)
