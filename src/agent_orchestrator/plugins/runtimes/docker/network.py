"""The network `allowlist`: a container without any network, and one way out of it that we hold.

The container's only interface is its own loopback. A relay in it (`relay.py`, or whatever the image has for it) leads two ports of that
loopback to two sockets, which are shown to it and to no other; behind them, on this machine, is our proxy (`proxy.py`), which connects to
the hosts that are allowed, and to the daemon. So there is nothing to get around: no bridge, no gateway, no name server, nothing of this
machine's that listens on all its addresses.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agent_orchestrator.errors import Missing
from agent_orchestrator.plugins.runtimes.docker.engine import Engine
from agent_orchestrator.protocols import Container, Mount

INSIDE = Path("/run/ao")
"""Where the sockets are in the container."""
PROXY_PORT = 3128
RELAYS = ("socat", "python3", "node")
"""What can be the relay, the first that an image has."""
_HERE = Path(__file__).parent
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Way:
    """How a container reaches what it may."""

    options: tuple[str, ...]
    """For the engine."""
    mounts: tuple[Mount, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    before: tuple[str, ...] = ()
    """Lines of its script."""
    rules: tuple[str, ...] = ()
    """What our proxy on this machine is told; nothing: there is none."""


def way(container: Container, engine: Engine, sockets: Path, log: Path, relay: str) -> Way:
    """The options of a network; `Missing` where it cannot be held to what was asked for."""
    if container.network != "allowlist":
        return Way(("--network", container.network))
    if engine.desktop:
        raise Missing(
            "network allowlist cannot be enforced on this engine, which runs in a virtual machine of its own",
            "set docker.network to none or host",
        )
    if not relay:
        raise Missing(
            f"network allowlist needs one of {', '.join(RELAYS)} in the image {container.image}",
            "add one to it, or set docker.network to none or host",
        )
    ports = {PROXY_PORT: INSIDE / "proxy.sock"}
    address = urlsplit(container.daemon)
    direct = ""
    if address.port and address.hostname in _LOOPBACK:
        ports[address.port] = INSIDE / "daemon.sock"
        direct = f"{address.hostname}:{address.port}"
    allow = [
        *container.allow,
        *([f"{address.hostname}:{address.port or 443}"] if address.hostname and not direct else []),
    ]
    files, lines = _relay(relay, ports)
    at = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return Way(
        ("--network", "none"),
        (Mount(sockets, INSIDE), *(Mount(file, file) for file in files)),
        (
            *((name, at) for name in names),
            *((name, ",".join(_LOOPBACK)) for name in ("NO_PROXY", "no_proxy")),
            ("NODE_USE_ENV_PROXY", "1"),
        ),
        tuple(lines),
        (str(sockets), str(log), direct or "-", *allow),
    )


def _relay(program: str, ports: dict[int, Path]) -> tuple[list[Path], list[str]]:
    """The files it needs, and the lines that start it."""
    pairs = [f"{port}:{socket}" for port, socket in ports.items()]
    if program == "socat":
        listen = "TCP-LISTEN:{},bind=127.0.0.1,fork,reuseaddr"
        return [], [
            f"socat {listen.format(port)} UNIX-CONNECT:{socket} </dev/null >/dev/null 2>&1 &"
            for port, socket in ports.items()
        ]
    file = _HERE / ("relay.py" if program == "python3" else "relay.js")
    command = ["python3", "-I", "-S", str(file)] if program == "python3" else ["node", str(file)]
    wait = "" if program == "python3" else " &"
    return [file], [f"{shlex.join([*command, *pairs])} </dev/null >/dev/null 2>&1{wait}"]
