"""The container engine, by its command line: `docker` or `podman`, whichever answers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agent_orchestrator.errors import AoError, Missing, Temporary
from agent_orchestrator.protocols.host import Completed, Host

NAMES = ("docker", "podman")
ANSWERS_WITHIN = 20.0
CALL_WITHIN = 120.0
REMEDY = "start Docker or podman, or use another runtime"
_FOR_THE_CLIENT = (
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
_CLIENTS_OWN = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "REGISTRY_", "STORAGE_")


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers."""

    name: str
    version: str
    rootless: bool = False
    remapped: bool = False
    """The daemon gives containers user ids of their own, unless asked not to."""
    desktop: bool = False
    """It runs in a virtual machine of its own: sockets of this machine cannot be shown to containers."""

    def owner(self) -> tuple[str, ...]:
        """Options that make the container's user the one who runs us, so that files stay his."""
        own = f"{os.getuid()}:{os.getgid()}"
        if self.name == "podman" and self.rootless:
            return ("--userns", "keep-id", "--user", own)
        if self.rootless:
            return ("--user", "0:0")  # the root of a rootless engine is its owner
        return (*(("--userns", "host") if self.remapped else ()), "--user", own)


async def find(host: Host, wanted: str = "auto") -> Engine:
    """The engine that is wanted, or the first that answers; `Missing` if none does."""
    problems = []
    for name in NAMES if wanted == "auto" else (wanted,):
        if host.which(name) is None:
            problems.append(f"{name} is not installed")
            continue
        try:
            done = await host.run([name, "info", "--format", "{{json .}}"], timeout=ANSWERS_WITHIN)
            told = json.loads(done.out) if done.code == 0 else {}
        except (AoError, ValueError) as error:
            problems.append(f"{name}: {error}")
            continue
        if engine := _engine(name, told):
            return engine
        problems.append(f"{name}: {_first(told.get('ServerErrors')) or _last_line(done.error) or 'it does not answer'}")
    raise Missing(f"no container engine answers ({'; '.join(problems)})", REMEDY)


def _engine(name: str, told: Mapping[str, Any]) -> Engine | None:
    if "host" in told:  # podman's answer, also where it calls itself docker
        version = str((told.get("version") or {}).get("Version") or "")
        rootless = bool((told["host"].get("security") or {}).get("rootless"))
        return Engine("podman" if name == "podman" else name, version, rootless, desktop=sys.platform != "linux")
    if not told.get("ServerVersion"):
        return None
    options = " ".join(told.get("SecurityOptions") or ())
    desktop = sys.platform != "linux" or "Desktop" in str(told.get("OperatingSystem"))
    return Engine(name, str(told["ServerVersion"]), "name=rootless" in options, "name=userns" in options, desktop)


def client_environment() -> dict[str, str]:
    """What a client of the engine needs of our environment."""
    return {
        name: value for name, value in os.environ.items() if name in _FOR_THE_CLIENT or name.startswith(_CLIENTS_OWN)
    }


async def call(host: Host, argv: Sequence[str], *, ok: Sequence[str] = (), timeout: float = CALL_WITHIN) -> Completed:
    """Run a command of the engine; a failure whose text has one of `ok` in it is none."""
    done = await host.run(argv, timeout=timeout)
    if done.code and not any(text in done.error.lower() for text in ok):
        raise Temporary(f"{argv[0]} {argv[1]} failed: {_last_line(done.error)}", "see what the engine says: ao doctor")
    return done


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].removeprefix("Error response from daemon: ") if lines else ""


def _first(errors: object) -> str:
    return str(errors[0]) if isinstance(errors, list) and errors else ""
