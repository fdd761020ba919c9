"""The network `allowlist`: a container without any network, and one way out of it that this machine controls.

The container's only interface is its own loopback. A relay in it (`relay.py`, or another program of the image) forwards two ports of
that loopback to two sockets, which are mounted only into this container; behind them, on this machine, is the proxy (`proxy.py`), which
connects to allowed hosts and to the daemon. So there is nothing to bypass: no bridge, no gateway, no name server, none of this
machine's services that listen on all addresses.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agent_orchestrator.errors import Missing
from agent_orchestrator.plugins.runtimes.docker.engine import Engine
from agent_orchestrator.protocols import Container, Mount

SOCKETS_FOLDER = Path("/run/ao")
"""The folder of the sockets in the container."""
PROXY_PORT = 3128
RELAYS = ("socat", "python3", "node")
"""The programs that can be the relay; the first that an image has is used."""
_HERE = Path(__file__).parent
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class NetworkSetup:
    """How a container reaches its network."""

    options: tuple[str, ...]
    """Options for the engine."""
    mounts: tuple[Mount, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    script_lines: tuple[str, ...] = ()
    """Lines of its script."""
    rules: tuple[str, ...] = ()
    """The lines of the proxy's rules file; empty if there is no proxy."""


def network_setup(container: Container, engine: Engine, sockets: Path, log: Path, relay: str) -> NetworkSetup:
    """Return the options of a container's network. Raises `Missing` if the engine or the image cannot enforce the allowlist."""
    if container.network != "allowlist":
        return NetworkSetup(("--network", container.network))
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
    ports = {PROXY_PORT: SOCKETS_FOLDER / "proxy.sock"}
    address = urlsplit(container.daemon)
    daemon_address = ""
    if address.port and address.hostname in _LOOPBACK:
        ports[address.port] = SOCKETS_FOLDER / "daemon.sock"
        daemon_address = f"{address.hostname}:{address.port}"
    allow = [
        *container.allow,
        *([f"{address.hostname}:{address.port or 443}"] if address.hostname and not daemon_address else []),
    ]
    files, lines = _relay_setup(relay, ports)
    proxy_url = f"http://127.0.0.1:{PROXY_PORT}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
    return NetworkSetup(
        ("--network", "none"),
        (Mount(sockets, SOCKETS_FOLDER), *(Mount(file, file) for file in files)),
        (
            *((name, proxy_url) for name in names),
            *((name, ",".join(_LOOPBACK)) for name in ("NO_PROXY", "no_proxy")),
            ("NODE_USE_ENV_PROXY", "1"),
        ),
        tuple(lines),
        (str(sockets), str(log), daemon_address or "-", *allow),
    )


def _relay_setup(program: str, ports: dict[int, Path]) -> tuple[list[Path], list[str]]:
    """Return the files that the relay needs, and the script lines that start it."""
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
