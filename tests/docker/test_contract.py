"""The contract suite on runtime `docker`, with Docker and with podman."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.runtimes.docker.runtime import DockerRuntime
from agent_orchestrator.protocols import Container, Handle, Runtime
from agent_orchestrator.testing.contracts.runtime import RuntimeContract
from tests.docker.engine import IMAGE


class Contained(RuntimeContract):
    """The suite for containers, in which processes have other pids."""

    engine: str

    def new_runtime(self, home: Path) -> Runtime:
        return DockerRuntime({"home": str(home), "container": Container(image=IMAGE, engine=self.engine)}, LocalHost())

    def own_pid(self, handle: Handle) -> int:
        return int(handle.address["inside"])

    def runs(self, handle: Handle, pid: int) -> bool:
        """Return whether a process of the container, by its pid inside, still runs."""
        ask = [self.engine, "container", "inspect", "--format", "{{.Id}}", handle.address["container"]]
        container = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
                namespace_pids = fields["NSpid"].split()
                cgroup = status.with_name("cgroup").read_text()
            except (OSError, KeyError, ValueError):
                continue
            if len(namespace_pids) > 1 and int(namespace_pids[-1]) == pid and container in cgroup:
                return "Z" not in fields["State"]
        return False


@pytest.mark.usefixtures("docker")
class TestDocker(Contained):
    engine = "docker"


@pytest.mark.usefixtures("podman")
class TestPodman(Contained):
    engine = "podman"
