"""The Worker: the program on a node; it connects to the daemon, reports what the node is, and serves calls until it is stopped.

    AO_NODE_TOKEN=… python -P -m agent_orchestrator.cluster.node.worker --url https://daemon:4570 --name gpu-1 --home /var/tmp/ao-node

A Worker may die at any moment: the agents live on in their holders, and the next Worker with the same home continues with them. One
home has one Worker at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import websockets
from websockets.exceptions import InvalidStatus, WebSocketException

from agent_orchestrator import __version__
from agent_orchestrator.base import log_setup
from agent_orchestrator.base.files import lock as locking
from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.base.home import Home, restrict_umask
from agent_orchestrator.base.host import LocalHost, run_and_end_tasks
from agent_orchestrator.base.interpreter import clean_process_environment, make_launchers
from agent_orchestrator.cluster.daemon.mirror import Mirror
from agent_orchestrator.cluster.link.calls import PROTOCOL_VERSION, TOKEN_VARIABLE, Hello, to_json
from agent_orchestrator.cluster.link.channel import MAX_CHUNK_BYTES
from agent_orchestrator.cluster.link.connection import LinkLost, NodeLink
from agent_orchestrator.cluster.link.transports import SocketTransport
from agent_orchestrator.cluster.node.call_server import CallServer
from agent_orchestrator.cluster.node.repository import pin_of
from agent_orchestrator.errors import AoError, Conflict, Denied, UsageError

LINK_PATH = "/api/nodes/link"
"""The path of the link's WebSocket at the daemon."""
PING_INTERVAL, PING_TIMEOUT = 2.0, 4.0
"""Seconds between two pings, and seconds without an answer after which the connection counts as lost."""
FINISH_TIMEOUT = 10.0
"""Seconds that calls in progress have to end when the Worker is stopped."""
MIN_RECONNECT_PAUSE, MAX_RECONNECT_PAUSE = 0.1, 2.0
"""The shortest and the longest pause in seconds before the daemon is dialled again."""
REPORTED_PROGRAMS = ("git", "git-lfs", "tmux", "ao")
"""Programs whose paths are reported to the daemon."""

log = log_setup.get_logger()

LinkTask = Callable[[NodeLink], Awaitable[None]]
"""A task that runs while there is a link."""


class Worker:
    """One node's Worker. `run` it; the calls that it answers are in `serving.handlers`."""

    def __init__(
        self,
        home: Home,
        url: str,
        token: str,
        name: str,
        labels: Mapping[str, str] | None = None,
        resources: Mapping[str, float] | None = None,
        *,
        ca: str = "",
        fingerprint: str = "",
    ) -> None:
        self.home = home
        self.url = link_url(url)
        self.name = name
        self.labels = dict(labels or {})
        self.resources = dict(resources or {})
        self.host = LocalHost()
        self.watch = FileWatcher()
        self.mirror = Mirror(home, self.watch)
        self.call_server = CallServer(home, self.host, self.watch, self.mirror)
        self.link_tasks: list[LinkTask] = [self.mirror.serve, self.call_server.keep_leases]
        """Run with each link, from the daemon's answer to the hello until the link is lost."""
        self.linked = asyncio.Event()
        self._token = token
        self._ca = ca
        self._fingerprint = fingerprint.replace(":", "").lower()

    async def run(self) -> None:
        """Serve until cancelled. Raises `Conflict` when another Worker uses the home."""
        self.home.create_folders()
        with self._locked_home():
            make_launchers(str(self.home.programs))
            self.mirror.adopt()
            await self.call_server.adopt_leases()
            try:
                await self._dial_forever()
            finally:
                await self.call_server.wait_for_calls(FINISH_TIMEOUT)
                self.watch.close()

    @contextlib.contextmanager
    def _locked_home(self) -> Any:
        """Hold the home's lock; raise `Conflict` if another Worker has it."""
        with (self.home.path / "worker.lock").open("a+") as lock:
            if not locking.try_lock(lock):
                lock.seek(0)
                raise Conflict(
                    f"another Worker (pid {lock.read().strip() or 'unknown'}) has {self.home.path} already",
                    "stop it, or give this one another --home",
                )
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            yield

    async def _dial_forever(self) -> None:
        """Connect to the daemon again and again; log each different error once."""
        pause, last_problem = MIN_RECONNECT_PAUSE, ""
        while True:
            try:
                await self._dial()
                pause, last_problem = MIN_RECONNECT_PAUSE, ""
            except (AoError, OSError, WebSocketException, TimeoutError) as error:
                problem = _describe_error(error)
                if problem != last_problem:
                    log.warning("the daemon cannot be reached; trying again", url=self.url, error=problem)
                    last_problem = problem
            except Exception as error:  # whatever failed, the agents here still need a Worker
                log.error("a link failed; dialling anew", exc_info=error)
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, MAX_RECONNECT_PAUSE)

    async def _dial(self) -> None:
        """Open one connection, and serve it until it ends."""
        tls_context = await self._tls()
        async with websockets.connect(
            self.url,
            ssl=tls_context,
            additional_headers={"Authorization": f"Bearer {self._token}"},
            compression=None,
            max_size=4 * MAX_CHUNK_BYTES,
            ping_interval=PING_INTERVAL,
            ping_timeout=PING_TIMEOUT,
            close_timeout=1.0,
            open_timeout=4.0,
            proxy=None,
        ) as connection:
            link = NodeLink(
                SocketTransport(connection),
                self.call_server.handlers,
                self.call_server.channels,
                dialled=True,
                peer="the daemon",
            )
            link.start()
            tasks: list[asyncio.Task[None]] = []
            try:
                await link.call("hello", to_json(Hello, await self.hello()), timeout=15.0)
                tasks = [asyncio.ensure_future(start_task(link)) for start_task in self.link_tasks]
                self.linked.set()
                log.info("linked", url=self.url, node=self.name)
                await self._wait_until_ended(link, tasks)
            finally:
                self.linked.clear()
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await link.close()

    async def _wait_until_ended(self, link: NodeLink, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait until the link or one of its tasks fails: without leases and mirror a link is useless, and a new one is dialled."""
        closed = asyncio.create_task(link.closed.wait())
        waited: list[asyncio.Task[Any]] = [closed, *tasks]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done() and not link.closed.is_set() and (error := task.exception()) is not None:
                    log.error("a part of the Worker failed; dialling anew", exc_info=error)
        finally:
            closed.cancel()

    async def hello(self) -> Hello:
        """Return what this node reports about itself."""
        return Hello(
            name=self.name,
            boot_id=self.host.boot_id(),
            version=__version__,
            protocol=PROTOCOL_VERSION,
            home=self.home.path,
            cpus=int(self.resources.get("cpus") or _cpus()),
            memory=int(self.resources.get("memory") or _memory()),
            labels=self.labels,
            resources=self.resources,
            sessions=await self.call_server.held_launches(),
            programs={name: path for name in REPORTED_PROGRAMS if (path := shutil.which(name))},
            pid=os.getpid(),
        )

    async def _tls(self) -> ssl.SSLContext | None:
        """Return how the daemon is verified: by an authority's certificate or by its fingerprint; None without TLS."""
        if not self.url.startswith("wss:"):
            return None
        if not self._fingerprint:
            if self._ca:
                self.call_server.ca = self.home.path / "daemon-ca.pem"
                self.call_server.ca.write_text(self._ca)
            return ssl.create_default_context(cadata=self._ca or None)
        parts = urlsplit(self.url)
        address = (parts.hostname or "", parts.port or 443)
        pem = await asyncio.to_thread(ssl.get_server_certificate, address, timeout=10.0)
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
        if digest != self._fingerprint:
            raise Denied(f"what answers at {address[0]}:{address[1]} has another certificate (SHA-256 {digest})")
        # From here on only this certificate is accepted, so that the token is sent to no other server.
        self.call_server.pin = pin_of(pem)
        context = ssl.create_default_context(cadata=pem)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        return context


def link_url(url: str) -> str:
    """Return the WebSocket's address for the daemon's own address (`http://…`, `https://…`)."""
    scheme, separator, rest = url.rstrip("/").partition("://")
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if not separator or scheme not in schemes:
        raise UsageError(f"{url!r} is not the daemon's address", "give it as http://host:port or https://host:port")
    return f"{schemes[scheme]}://{rest}" + ("" if urlsplit(url).path.strip("/") else LINK_PATH)


def _describe_error(error: BaseException) -> str:
    """Return an error of a connection in one line."""
    if isinstance(error, InvalidStatus) and error.response.status_code in (401, 403):
        return "it does not take our token"
    if isinstance(error, LinkLost):
        return error.text
    return " ".join(str(error).split()) or type(error).__name__


def _cpus() -> int:
    """Return how many cpus this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int:
    """Return this machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _pairs(arguments: Sequence[str], kind: str) -> dict[str, str]:
    """Return NAME=VALUE arguments as a dict; raise `UsageError` if one is malformed."""
    pairs = dict(argument.partition("=")[::2] for argument in arguments)
    if "" in pairs or any("=" not in argument for argument in arguments):
        raise UsageError(f"a {kind} is given as NAME=VALUE")
    return pairs


def create_worker(argv: Sequence[str], environment: Mapping[str, str]) -> Worker:
    """Return the Worker for a command line."""
    parser = argparse.ArgumentParser(
        prog="agent_orchestrator.cluster.node.worker", description="Lends this machine to a daemon."
    )
    parser.add_argument("--url", required=True, help="the daemon's address")
    parser.add_argument("--name", required=True, help="this node's name")
    parser.add_argument("--home", required=True, type=Path, help="folder for everything of ours on this node")
    parser.add_argument("--label", action="append", default=[], metavar="NAME=VALUE", help="may be given several times")
    parser.add_argument(
        "--resource", action="append", default=[], metavar="NAME=NUMBER", help="may be given several times"
    )
    parser.add_argument("--ca", type=Path, help="file with the certificate of the daemon's authority")
    parser.add_argument("--fingerprint", default="", help="SHA-256 of the daemon's own certificate")
    options = parser.parse_args(argv)
    token = environment.get(TOKEN_VARIABLE, "")
    if not token:
        raise UsageError(
            f"there is no token in ${TOKEN_VARIABLE}",
            f"make one on the daemon's machine: ao token new {options.name} --role node",
        )
    try:
        resources = {name: float(value) for name, value in _pairs(options.resource, "resource").items()}
        ca = options.ca.read_text() if options.ca else ""
    except ValueError:
        raise UsageError("a resource is given as NAME=NUMBER") from None
    except OSError as error:
        raise UsageError(f"{options.ca} cannot be read: {error.strerror}") from None
    labels = _pairs(options.label, "label")
    home = Home(options.home.expanduser().absolute())
    return Worker(home, options.url, token, options.name, labels, resources, ca=ca, fingerprint=options.fingerprint)


async def _run_until_stopped() -> None:
    """Run the Worker of this process's command line until it is stopped by a signal."""
    worker = create_worker(sys.argv[1:], os.environ)
    log_setup.set_up(sys.stderr)
    os.environ.pop(TOKEN_VARIABLE, None)  # programs that are started from here must not inherit it
    clean_process_environment(os.environ, str(worker.home.programs))
    task = asyncio.ensure_future(worker.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main() -> int:
    """Run the program until it is stopped; return its exit code."""
    restrict_umask()
    try:
        asyncio.run(run_and_end_tasks(_run_until_stopped()))
    except AoError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except OSError as error:  # the home cannot be created, or belongs to another user
        sys.stderr.write(f"{error.filename or 'the Worker'}: {error.strerror or error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
