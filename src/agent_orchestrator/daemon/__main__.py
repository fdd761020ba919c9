"""The daemon, one for each `$AO_HOME`: assembles all parts, continues what an earlier run left, serves requests, and shuts down cleanly.

    python -m agent_orchestrator.daemon [--port N] [--host H] [--tls] [--config FILE] [--foreground]

Agents outlive it: they run in tmux or in their holders, accepted requests are in the store, and the next start adopts both. The start
has this order: lock, store, facts, live sessions adopted, pending effects continued, and only then the first request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from agent_orchestrator import __version__
from agent_orchestrator.base import log_setup
from agent_orchestrator.base.background_tasks import Tasks
from agent_orchestrator.base.files import lock
from agent_orchestrator.base.finding import finding
from agent_orchestrator.base.home import Home, restrict_umask
from agent_orchestrator.base.host import LocalHost, run_and_end_tasks
from agent_orchestrator.base.interpreter import clean_process_environment, make_launchers
from agent_orchestrator.base.loop_watchdog import Watchdog
from agent_orchestrator.base.processes import is_process_running, raise_open_file_limit
from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.changes.merge import repair_checkouts
from agent_orchestrator.config.config_set import DaemonConfig
from agent_orchestrator.config.learned_secrets import learn_environment
from agent_orchestrator.config.projects.trusted_files import is_untrusted_foreign_file
from agent_orchestrator.config.schema import update_schema_file
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.outbox import OutboxRow
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.daemon.foundation import Foundation
from agent_orchestrator.daemon.wiring import DaemonParts
from agent_orchestrator.errors import AoError, Conflict, resource_shortage
from agent_orchestrator.plugins.runtimes.single_use_files import remove_one_time_files
from agent_orchestrator.protocols import Gone, Handle, Liveness, ProbeFailed
from agent_orchestrator.server.access import tls
from agent_orchestrator.server.app import create_app, preload_common_routes
from agent_orchestrator.server.http_servers import Servers
from agent_orchestrator.server.standby import Standby, SwitchableApp
from agent_orchestrator.sessions.lifecycle.environment import login_environment
from agent_orchestrator.sessions.session_plugins import SessionPlugins, handle_of
from agent_orchestrator.views.recap import RESTART_REASON

if TYPE_CHECKING:
    from agent_orchestrator.core.store.postgres import Postgres
    from agent_orchestrator.views.tracing import Tracing

EXIT_TIMEOUT = 15.0
"""Seconds that the process has to exit after it has released everything."""
FREEZE_DELAY_SECONDS = 30.0
"""Seconds after which everything that is commonly used has been loaded."""
CLOCK_EVENT_COUNT = 50
"""How many of the last run's newest events are read to find its latest time."""
FOLLOW_INTERVAL_SECONDS = 0.2
"""Seconds between two reads of what the active daemon has written."""
EFFECT_DRAIN_SECONDS = 10.0
"""Seconds that effects in progress have to finish when the daemon ends."""
TRACE_RECEIVER_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""The environment variables that name the receiver of traces, as OpenTelemetry defines them."""
OTEL_REMEDY = "pip install 'agent-orchestrator[otel]', then ao shutdown and ao start"
REPEATED_LOG_SECONDS = 60.0
"""Seconds in which the same resource shortage is logged once."""
KILLED_LOCK_TIMEOUT = 10.0
"""Seconds that a killed daemon's process has to disappear."""

log = log_setup.get_logger()


class Daemon:
    """One run of the daemon."""

    def __init__(
        self, home: Home, watchdog: Watchdog, config_file: Path | None = None, *, foreign: bool = False
    ) -> None:
        """`foreign`: the configuration file came with a repository."""
        self.foundation = Foundation(home, config_file, foreign=foreign)
        self.home = home
        self.config_file = config_file
        self.flow = self.foundation.flow
        self.host = self.foundation.host
        self.watchdog = watchdog
        self.end_requested = asyncio.Event()
        self.end_reason: AoError | None = None
        self._background = Tasks()

    async def run(self, host: str | None, port: int | None, tls_settings: tls.TlsSettings | None = None) -> None:
        """Serve until asked to end; raise `end_reason` if another daemon has become active on the same database."""
        asyncio.get_running_loop().set_exception_handler(_UnhandledErrors())
        base, listeners = self.foundation, None
        if base.shared_store is not None and base.preloaded_settings is not None:
            listeners = await self._bind_listeners(base.preloaded_settings, host, port, tls_settings)
            if not await self._acquire_leadership(base.shared_store, listeners):
                return
        self._background.spawn(self._read_login())
        pending = await self._resume_clock(await self.flow.start())
        if self.config_file:
            await base.projects.load_startup_file(self.config_file)
        await base.projects.start()
        listeners = listeners or await self._bind_listeners(base.config.daemon, host, port, tls_settings)
        base.local_site.url = listeners.url
        tracing, finding = _start_tracing(self.flow)
        address = (listeners.url, listeners.note)
        parts = DaemonParts(base, self.watchdog.stalls, address, listeners.fingerprint, finding)
        await parts.notifications.recall()
        await self._recover(parts)
        counts = await self._adopt_agents(parts)
        self._start(parts, pending)

        async def shut_down(sessions: bool) -> None:
            """End the daemon after the answer has been sent; with `sessions`, save and stop all sessions first."""
            await self._shut_down(parts if sessions else None)

        services = parts.services(shut_down)
        base.tokens.cli_token()
        listeners.unix.app = create_app(services, trusted=True, url=listeners.url)
        listeners.tcp.app = create_app(services, trusted=False, hosts=[listeners.address])
        self._install_signal_handlers()
        await base.projects.announce_proof(parts.quiet.gate)
        serving = await listeners.serve()
        self._write_info(listeners)
        started = e.DaemonStarted(__version__, counts["adopted"], counts["ended"], counts["lost"], len(pending))
        await self._record(started)
        log.info("serving", url=listeners.url, note=listeners.note, **counts, pending=len(pending))
        self.watchdog.is_logging = True
        self._background.spawn(preload_common_routes())
        gc.freeze()
        asyncio.get_running_loop().call_later(FREEZE_DELAY_SECONDS, _freeze_objects)
        ended = asyncio.create_task(self.end_requested.wait())
        await asyncio.wait([ended, serving], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        await self._close(parts, listeners.servers, serving, tracing)
        if self.end_reason is not None:
            raise self.end_reason

    def _install_signal_handlers(self) -> None:
        """Shut down on SIGTERM and SIGINT; installed before clients can know of this daemon."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.end_requested.set)

    # -- beginning -----------------------------------------------------------------------------------------------------

    async def _resume_clock(self, pending: list[OutboxRow]) -> list[OutboxRow]:
        """Continue from the last event's time, or from the machine's if the last event is dated far ahead of it.

        Return the pending rows, with their due times moved back in the second case.
        """
        events = self.flow.store.events
        start = max((event.seq for event in await events(kind="daemon-started", limit=1, newest=True)), default=1)
        # Not just the last event: reports of agents carry their own, earlier times.
        newest = await events(after=start - 1, limit=CLOCK_EVENT_COUNT, newest=True)
        ahead = self.foundation.clock.resume(max((event.time for event in newest), default=0.0))
        if not ahead:
            return pending
        now = self.flow.clock()
        log.warning("the last event is dated far ahead of the machine's clock, which was wrong then", seconds=ahead)
        own_sessions = [facts for facts in self.flow.sessions.values() if not self.flow.owner_home(facts.id)]
        corrections = [
            Event(e.ClockSetBack(ahead), now, "daemon", f"clock:{facts.id}:{facts.seq}", facts.project, facts.id)
            for facts in own_sessions
            if facts.updated_at > now
        ]
        rows = {
            row.intent.key: replace(row, due=max(now, row.due - ahead), updated_at=now)
            for row in pending
            if row.due > now
        }
        await self.flow.append(*corrections, rows=list(rows.values()))
        return [rows.get(row.intent.key, row) for row in pending]

    async def _bind_listeners(
        self, settings: DaemonConfig, host: str | None, port: int | None, tls_options: tls.TlsSettings | None
    ) -> _BoundSockets:
        """Bind the Unix socket and the TCP port; until their `app` is replaced, they answer as a standby does."""
        explicit = port is not None or settings.is_port_set
        address, tls_settings = host or settings.host, settings.tls
        tls_options = tls_options or tls.TlsSettings(
            tls_settings.own, tls_settings.cert, tls_settings.key, tls_settings.insecure
        )
        certificate = await tls.choose_certificate(tls_options, address, self.home.path / "tls", self.host)
        servers, url, note = Servers.bind(
            self.home.socket("daemon.sock"), address, settings.port if port is None else port, explicit, certificate
        )
        unix = SwitchableApp(Standby(self._active_daemon, self._shut_down_standby))
        tcp = SwitchableApp(Standby(self._active_daemon, None, [address]))
        return _BoundSockets(servers, address, url, note, certificate, unix, tcp)

    async def _acquire_leadership(self, store: Postgres, listeners: _BoundSockets) -> bool:
        """Wait while another daemon is active on the same database, and follow what it writes.

        Return True once this daemon is the active one, False if it was asked to end before.
        """
        news = asyncio.Event()
        news.set()
        store.set_url(listeners.url)
        if await store.request_leadership(news.set, self._depose):
            return True
        self._install_signal_handlers()
        serving = await listeners.serve()
        self._write_info(listeners, standby=True)
        log.info("standing by", active=store.active_daemon.description if store.active_daemon else "another daemon")
        following = asyncio.create_task(self._follow_active(news))
        leadership, ended = (
            asyncio.create_task(store.wait_for_leadership()),
            asyncio.create_task(self.end_requested.wait()),
        )
        await asyncio.wait([leadership, ended, serving], return_when=asyncio.FIRST_COMPLETED)
        following.cancel()
        ended.cancel()
        await asyncio.gather(following, ended, return_exceptions=True)
        if leadership.done():
            await leadership
            log.info("taking over")
            return True
        leadership.cancel()
        listeners.servers.close()
        await asyncio.gather(serving, return_exceptions=True)
        await store.close()
        self.home.daemon_info.unlink(missing_ok=True)
        return False

    async def _follow_active(self, news: asyncio.Event) -> None:
        """Read what the active daemon has written whenever there is news, until cancelled."""
        while True:
            await news.wait()
            news.clear()
            try:
                await self.flow.catch_up_from_store()
            except AoError as error:  # the active daemon may not have created the tables yet
                log.warning("the active daemon could not be followed", error=error.text)
            await asyncio.sleep(FOLLOW_INTERVAL_SECONDS)

    def _active_daemon(self) -> dict[str, Any] | None:
        """Return the active daemon as JSON data, or None if it is this one or unknown."""
        shared = self.foundation.shared_store
        active = shared.active_daemon if shared else None
        if active is None or shared is None or active.application == shared.own_daemon.application:
            return None
        return {"host": active.host, "pid": active.pid, "since": rfc3339(active.since), "url": active.url}

    def _depose(self, error: AoError) -> None:
        """End this daemon because another one is active, or because that cannot be determined; no new effects are begun."""
        log.error("this daemon ends", reason=str(error))
        self.end_reason = error
        self.end_requested.set()

    async def _read_login(self) -> None:
        """Read the user's login environment for agents; the shell may take a while, so only launches wait for it."""

        def note(line: str) -> None:
            """Log a problem of the login shell, and show it in `ao doctor`."""
            here.shell_problem = line
            log.warning(line)

        here = self.foundation.local_site
        try:
            login = await login_environment(
                self.host, None, os.environ, note, self.home.programs, here.own_folders.append
            )
            learn_environment(login)
            here.login = login
        finally:
            here.login_ready.set()

    async def _recover(self, parts: DaemonParts) -> None:
        """Finish or undo what the last run was in the middle of: checks, drafts, and checkouts that follow a merge."""
        await parts.checks.recover()
        await parts.drafting.scratch_copies.remove_leftovers()
        for repo in {facts.spec.repo for facts in self.flow.sessions.values() if facts.pr}:
            try:
                for checkout in await repair_checkouts(self.host, Path(repo)):
                    log.info("a checkout was put in order after a landing", checkout=str(checkout))
            except AoError as error:
                log.warning("a repository could not be looked at", repo=repo, error=str(error))

    async def _adopt_agents(self, parts: DaemonParts) -> Counter[str]:
        """Adopt the agents of the last run that are still alive, and record the end of the others; return the counts."""
        own_sessions = (facts for facts in self.flow.sessions.values() if not self.flow.owner_home(facts.id))
        live: list[tuple[SessionFacts, Handle]] = []
        for facts in own_sessions:
            if not facts.live:
                remove_one_time_files(self.home.session(facts.id))
            elif handle := handle_of(facts):
                live.append((facts, handle))
        counts: Counter[str] = Counter(adopted=0, ended=0, lost=0)
        interrupted = []
        for facts, handle, liveness in await self._probe_agents(parts.core.plugins, live):
            if not facts.remote and handle.boot_id != self.host.boot_id():
                counts["lost"] += 1
                interrupted += [facts.id] if facts.activity.state in IN_TURN_ACTIVITIES else []
                await parts.observer.record_end(facts.id, handle, Gone().exit, lost=RESTART_REASON)
            elif isinstance(liveness, Gone):
                counts["lost" if liveness.lost else "ended"] += 1
                lost_reason = "its terminal is gone" if liveness.lost else ""
                await parts.observer.record_end(facts.id, handle, liveness.exit, lost=lost_reason)
            else:
                counts["adopted"] += 1
                if isinstance(liveness, ProbeFailed):
                    log.warning(
                        "a session could not be looked at; it counts as alive", session=facts.id, reason=liveness.reason
                    )
        if interrupted:
            self._background.spawn(self._restore_in_turn(parts, interrupted))
        return counts

    async def _probe_agents(
        self, plugins: SessionPlugins, live: list[tuple[SessionFacts, Handle]]
    ) -> list[tuple[SessionFacts, Handle, Liveness]]:
        """Return the state of each agent, with one probe per runtime and node. A failed probe counts as `ProbeFailed`."""
        states: list[tuple[SessionFacts, Handle, Liveness]] = []
        for runtime_and_node in {(facts.spec.runtime, facts.node) for facts, _ in live}:
            group = [(facts, handle) for facts, handle in live if (facts.spec.runtime, facts.node) == runtime_and_node]
            try:
                group_states = await plugins.runtime_of(group[0][0]).probe([handle for _, handle in group])
            except AoError as error:
                group_states = [ProbeFailed(error.text)] * len(group)
            states += [(facts, handle, state) for (facts, handle), state in zip(group, group_states, strict=True)]
        return states

    async def _restore_in_turn(self, parts: DaemonParts, sessions: list[str]) -> None:
        """Restore, one after the other, the sessions that a restart of the machine interrupted in a turn."""
        for session in sessions:
            with contextlib.suppress(AoError):
                await parts.sessions.restore(session, key=f"boot:{self.host.boot_id()}")
                await parts.followers.wait_until(session, lambda facts: facts.live or facts.failure is not None, 60.0)

    def _start(self, parts: DaemonParts, pending: list[OutboxRow]) -> None:
        """Start all parts, and the pending effects."""
        for part in parts.observing_parts:
            part.start()
        parts.cluster.start()
        parts.sleep_detector.start()
        parts.runner.start(pending)
        for part in parts.deciding_parts:
            part.start()
        parts.completion_files.start()
        if self.home.schema.exists():
            update_schema_file(self.home.schema)

    def _write_info(self, listeners: _BoundSockets, *, standby: bool = False) -> None:
        """Write the file by which clients find this daemon."""
        info = {
            **({"note": listeners.note} if listeners.note else {}),
            **({"fingerprint": listeners.fingerprint} if listeners.fingerprint else {}),
            **({"standby": True} if standby else {}),
            "pid": os.getpid(),
            "startedAt": rfc3339(time.time()),
            "socket": str(self.home.socket("daemon.sock")),
            "url": listeners.url,
            "version": __version__,
        }
        draft = self.home.daemon_info.with_suffix(".new")
        draft.write_text(json.dumps(info) + "\n")
        draft.chmod(0o600)
        draft.replace(self.home.daemon_info)

    # -- ending --------------------------------------------------------------------------------------------------------

    async def _shut_down(self, parts: DaemonParts | None) -> None:
        """End the daemon after the answer has been sent; if its parts are given, save and stop all sessions first."""
        if parts is not None:
            for part in (parts.auto_assigner, parts.fixes, parts.coordinators):
                await part.close()  # so that they start no sessions in the freed slots
            await self.flow.append()  # waits until what they have just begun is recorded
            await parts.sessions.stop_all(None)
        asyncio.get_running_loop().call_later(0.05, self.end_requested.set)

    async def _shut_down_standby(self, _sessions: bool) -> None:
        """End a daemon that stands by; it has no sessions."""
        await self._shut_down(None)

    async def _close(
        self, parts: DaemonParts, servers: Servers, serving: asyncio.Task[None], tracing: Tracing | None
    ) -> None:
        """Close all parts in order, wait for effects in progress, and record the stop."""
        log.info("ending")
        await self._background.close()
        for part in reversed(parts.deciding_parts):
            await part.close()
        await parts.feed.close()
        await parts.live.close()
        servers.close()
        await parts.cluster.close()
        await asyncio.gather(serving, return_exceptions=True)
        patience = 0.0 if self.end_reason else EFFECT_DRAIN_SECONDS
        await asyncio.gather(parts.runner.drain(patience), parts.queue.close())
        for part in reversed(parts.observing_parts):
            await part.close()
        await parts.sleep_detector.close()
        self.foundation.watch.close()
        await self._record(e.DaemonStopped())
        await self.flow.stop()
        await parts.completion_files.close()
        await self.flow.store.close()
        if tracing is not None:
            await tracing.close()
        self.home.daemon_info.unlink(missing_ok=True)

    async def _record(self, body: e.Body) -> None:
        """Record an event of the daemon; ignore an error."""
        with contextlib.suppress(AoError):
            await self.flow.append(Event(body, self.flow.clock(), "daemon", uuid.uuid4().hex))


def _start_tracing(flow: Flow) -> tuple[Tracing | None, dict[str, Any] | None]:
    """Send traces if a receiver is configured; return what sends them, and the doctor's finding about it.

    The tracing package is loaded only if it is needed.
    """
    if not any(os.environ.get(variable) for variable in TRACE_RECEIVER_VARIABLES):
        return None, None
    try:
        from agent_orchestrator.views import tracing
    except ImportError as error:
        log.warning("traces are not sent", error=str(error), remedy=OTEL_REMEDY)
        return None, finding("traces", "warning", f"not sent: {error}", OTEL_REMEDY)
    receiver = next(filter(None, map(os.environ.get, TRACE_RECEIVER_VARIABLES)))
    return tracing.Tracing(flow, tracing.create_provider()), finding("traces", "ok", f"sent to {receiver}")


class _UnhandledErrors:
    """Asyncio exception handler: a known error or resource shortage is one log line, at most every `REPEATED_LOG_SECONDS`.

    Other errors go to the loop's default handler.
    """

    def __init__(self) -> None:
        self._logged: dict[str, float] = {}

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception that no task retrieved."""
        error = context.get("exception")
        known_error = error if isinstance(error, AoError) else resource_shortage(error) if error else None
        if known_error is None:
            loop.default_exception_handler(context)
        elif self._logged.get(known_error.text, 0.0) < loop.time() - REPEATED_LOG_SECONDS:
            self._logged[known_error.text] = loop.time()
            log.warning(str(context.get("message") or "something could not be done"), error=str(known_error))


def _freeze_objects() -> None:
    """Freeze the objects that exist by now, because each full garbage collection would stop everything for a tenth of a second."""
    gc.collect()
    gc.freeze()


@dataclass(slots=True)
class _BoundSockets:
    """The sockets of the daemon, and the apps behind them."""

    servers: Servers
    address: str
    url: str
    note: str | None
    certificate: tls.Certificate | None
    unix: SwitchableApp
    tcp: SwitchableApp
    serving: asyncio.Task[None] | None = None

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of our own certificate, or "" if there is none of our own."""
        return (self.certificate.fingerprint if self.certificate else None) or ""

    async def serve(self) -> asyncio.Task[None]:
        """Start serving, once; return the task that serves."""
        if self.serving is None:
            self.serving = asyncio.create_task(self.servers.serve(self.unix, self.tcp))
            started = asyncio.create_task(self.servers.started.wait())
            await asyncio.wait([started, self.serving], return_when=asyncio.FIRST_COMPLETED)
            if self.serving.done():
                started.cancel()
                await self.serving
        return self.serving


@contextlib.contextmanager
def hold_home_lock(home: Home) -> Iterator[None]:
    """Hold the home's lock while the daemon lives. The kernel releases it with the process, so it is never stale."""
    owner = home.path.stat().st_uid
    if owner != os.getuid():
        raise Conflict(f"{home.path} belongs to another user (uid {owner})", "set AO_HOME to a folder of your own")
    with home.lock.open("a+") as file:
        home.lock.chmod(0o600)  # a user who can read it could hold it, and keep the daemon from starting
        deadline = time.monotonic() + KILLED_LOCK_TIMEOUT
        while (holder := _try_lock(file)) is not None:
            # A daemon that was just killed holds the lock until its process has disappeared.
            if (holder.isdigit() and is_process_running(int(holder))) or time.monotonic() > deadline:
                raise Conflict(
                    f"a daemon runs already for {home.path} (pid {holder})", "use it, or end it: ao shutdown"
                )
            time.sleep(0.02)
        file.seek(0)
        file.truncate()
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _try_lock(file: TextIO) -> str | None:
    """Take the lock and return None, or return the pid of the process that has it."""
    if lock.try_lock(file):
        return None
    file.seek(0)
    return file.read().strip()


def set_up_log(home: Home, foreground: bool) -> log_setup.RotatingLog:
    """Log to the terminal or to the log file; return the log's stream."""
    stream = sys.stderr if foreground else home.log.open("a", buffering=1)
    if not foreground:
        home.log.chmod(0o600)
        os.dup2(stream.fileno(), 2)
    return log_setup.set_up(stream)


def main() -> int:
    """Run the daemon; return its exit code."""
    parser = argparse.ArgumentParser(prog="agent_orchestrator.daemon", description="The daemon of Agent Orchestrator.")
    parser.add_argument("--port", type=int, help="TCP port; taken: an error")
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--tls", action="store_true", help="serve TCP by TLS, with a certificate of its own")
    parser.add_argument("--tls-cert", metavar="FILE", help="serve TCP by TLS, with this certificate")
    parser.add_argument("--tls-key", metavar="FILE", help="and this key")
    parser.add_argument("--insecure", action="store_true", help="let other machines reach it without TLS")
    parser.add_argument("--config", type=Path, help="configuration file whose port, host and database count")
    parser.add_argument("--foreground", action="store_true", help="log to this terminal")
    options = parser.parse_args()
    home = Home.from_environment()
    restrict_umask()
    try:
        home.create_folders()
        log_stream = set_up_log(home, options.foreground)
        raise_open_file_limit()
        watchdog = Watchdog()
        with hold_home_lock(home), asyncio.Runner(loop_factory=watchdog.create_loop) as runner:
            make_launchers(str(home.programs))
            clean_process_environment(os.environ, str(home.programs))
            if not options.foreground:
                log_stream.enable_rotation(home.log)
            try:
                runner.run(run_and_end_tasks(_run(home, options, watchdog)))
            finally:
                _kill_after(EXIT_TIMEOUT)
    except AoError as error:
        sys.stderr.write(REDACTOR.redact_text(f"ao: {error}\n"))
        return error.exit_code
    except OSError as error:
        sys.stderr.write(f"ao: {home.path} cannot be used: {resource_shortage(error) or error}\n")
        return 1
    return 0


def _kill_after(seconds: float) -> None:
    """Kill this process after some seconds: a process that hangs would keep the next daemon from starting, and a kill loses nothing."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


async def _run(home: Home, options: argparse.Namespace, watchdog: Watchdog) -> None:
    """Run a daemon with the options of the command line."""
    tls_options = tls.TlsSettings(options.tls, options.tls_cert, options.tls_key, options.insecure)
    is_foreign = bool(options.config) and await is_untrusted_foreign_file(LocalHost(), home, options.config)
    daemon = Daemon(home, watchdog, options.config, foreign=is_foreign)
    await daemon.run(options.host, options.port, tls_options if tls_options != tls.TlsSettings() else None)


if __name__ == "__main__":
    sys.exit(main())
