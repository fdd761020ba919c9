"""Finds the container engine and runs its command line: `docker` or `podman`, the first that responds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.errors import AoError, Missing, Temporary
from agent_orchestrator.protocols.host import Host, ProgramResult

ENGINE_NAMES = ("docker", "podman")
INFO_TIMEOUT = 20.0
CALL_TIMEOUT = 120.0
REMEDY = "start Docker or podman, or use another runtime"
_CLIENT_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "SSH_AUTH_SOCK",
)
_CLIENT_PREFIXES = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "REGISTRY_", "STORAGE_")


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine that responds."""

    name: str
    version: str
    rootless: bool = False
    remapped: bool = False
    """Whether the daemon maps the containers' user ids to others by default."""
    desktop: bool = False
    """Whether it runs in its own virtual machine: this machine's sockets cannot be mounted into its containers."""

    def user_options(self) -> tuple[str, ...]:
        """Return the options that make the container's user the one who runs this process, so that files stay that user's."""
        user_and_group = f"{os.getuid()}:{os.getgid()}"
        if self.name == "podman" and self.rootless:
            return ("--userns", "keep-id", "--user", user_and_group)
        if self.rootless:
            return ("--user", "0:0")  # the root of a rootless engine is its owner
        return (*(("--userns", "host") if self.remapped else ()), "--user", user_and_group)


async def find_engine(host: Host, requested: str = "auto") -> Engine:
    """Return the wanted engine, or the first that responds. Raises `Missing` if none does."""
    problems = []
    for name in ENGINE_NAMES if requested == "auto" else (requested,):
        if host.which(name) is None:
            problems.append(f"{name} is not installed")
            continue
        try:
            result = await host.run([name, "info", "--format", "{{json .}}"], timeout=INFO_TIMEOUT)
            info = json.loads(result.out) if result.code == 0 else {}
        except (AoError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        if engine := _engine(name, info):
            return engine
        problems.append(
            f"{name}: {_first_error(info.get('ServerErrors')) or _last_line(result.error) or 'it does not answer'}"
        )
    raise Missing(f"no container engine answers ({'; '.join(problems)})", REMEDY)


def _engine(name: str, info: Mapping[str, Any]) -> Engine | None:
    """Return the engine described by the output of `info`, or None if its daemon does not respond."""
    if "host" in info:  # podman's output, also if it is installed as `docker`
        version = str((info.get("version") or {}).get("Version") or "")
        rootless = bool((info["host"].get("security") or {}).get("rootless"))
        return Engine("podman" if name == "podman" else name, version, rootless, desktop=sys.platform != "linux")
    if not info.get("ServerVersion"):
        return None
    options = " ".join(info.get("SecurityOptions") or ())
    desktop = sys.platform != "linux" or "Desktop" in str(info.get("OperatingSystem"))
    return Engine(name, str(info["ServerVersion"]), "name=rootless" in options, "name=userns" in options, desktop)


def client_environment() -> dict[str, str]:
    """Return the part of this process's environment that the engine's client needs."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _CLIENT_VARIABLES or name.startswith(_CLIENT_PREFIXES)
    }


async def run_engine(
    host: Host, argv: Sequence[str], *, ok: Sequence[str] = (), timeout: float = CALL_TIMEOUT
) -> ProgramResult:
    """Run a command of the engine. Raises `Temporary` if it fails, unless its error text contains one of `ok`."""
    result = await host.run(argv, timeout=timeout)
    if result.code and not any(text in result.error.lower() for text in ok):
        raise Temporary(
            f"{argv[0]} {argv[1]} failed: {_last_line(result.error)}", "see what the engine says: ao doctor"
        )
    return result


def _last_line(text: str) -> str:
    """Return the last line of an error, without the engine's prefix."""
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("Error response from daemon: ") if lines else ""


def _first_error(errors: object) -> str:
    """Return the first of the reported errors, or ""."""
    return str(errors[0]) if isinstance(errors, list) and errors else ""
