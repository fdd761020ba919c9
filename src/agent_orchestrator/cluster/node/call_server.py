"""The calls that a node answers with the plugins, the rescue and the repositories of this machine, in the node's own home.

The classes are the same as on the daemon's machine. What is added here is order: what a session has written is mirrored before the
daemon gets the result; a call in progress is finished although the link is lost, because a killed Git leaves its locks behind; and when
the call is repeated in the meantime, it waits for the first one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.files.watch import FileWatcher, LaunchFileChanges
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.daemon.mirror import Mirror
from agent_orchestrator.cluster.link.calls import (
    CALLS,
    RESCUE_FUNCTIONS,
    HeldLaunch,
    LinkCall,
    SentLaunch,
    from_json,
    to_json,
)
from agent_orchestrator.cluster.link.connection import (
    CallHandler,
    Channel,
    ChannelHandler,
    LinkReply,
    LinkRequest,
    NodeLink,
    error_to_json,
)
from agent_orchestrator.cluster.link.tunnel import relay
from agent_orchestrator.cluster.node.lease import LeaseAnswer, LeaseRequest, Leases
from agent_orchestrator.cluster.node.machine_calls import MachineCalls, require_inside_home, write_file
from agent_orchestrator.cluster.node.repository import Repositories, RepositoryAccess
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import Temporary, UsageError
from agent_orchestrator.plugins.runtimes.process import ProcessRuntime
from agent_orchestrator.protocols import (
    Alive,
    Gone,
    Handle,
    LaunchSpec,
    ReportBatch,
    RunningLaunch,
    Workspace,
    WorkspaceSpec,
)
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.agents import headless

CANCELLED_ON_LOSS = ("runtime.ended", "host.stream")
"""Calls that are cancelled when the link is lost: they only wait, or stream output to a viewer."""

log = structlog.get_logger()


class CallServer:
    """Answers the daemon's calls; `handlers` and `channels` may be added to."""

    def __init__(self, home: Home, host: Host, watch: FileWatcher, mirror: Mirror) -> None:
        self.home = home
        self.host = host
        self.watch = watch
        self.mirror = mirror
        self.runtime = ProcessRuntime({"home": str(home.path)}, host)
        self._handles: dict[tuple[str, int], Handle] = {}
        self._registries: dict[tuple[tuple[str, ...], str, str], PluginRegistry] = {}
        self.leases = Leases()
        self.repositories = Repositories(home, host)
        self.ca: Path | None = None
        self.pin = ""
        """What the daemon is verified with if not with the system's authorities (`RepositoryAccess`)."""
        self._in_progress: set[asyncio.Task[LinkReply]] = set()
        self._locks: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()
        slots: dict[str, Callable[[LinkCall, LinkRequest], Awaitable[Any]]] = {
            "workspace": self._run_workspace_call,
            "runtime": self._run_runtime_call,
            "agent": self._run_agent_call,
            "headless": self._plan_headless,
            "repository": self._run_repository_call,
        }
        self.handlers: dict[str, CallHandler] = {
            **MachineCalls(home, host, mirror.forget).handlers(),
            "plugins.put": self._put_plugin,
        }
        for name, call in CALLS.items():
            serve = self._run_function if name in RESCUE_FUNCTIONS else slots[name.partition(".")[0]]
            self.handlers[name] = partial(self._run_call, call, serve)
        self.handlers |= {
            name: partial(self._run_to_end, handler)
            for name, handler in self.handlers.items()
            if name not in CANCELLED_ON_LOSS
        }
        self.channels: dict[str, ChannelHandler] = {"terminal": self._terminal, "agent.listen": self._listen}

    async def held_launches(self) -> tuple[HeldLaunch, ...]:
        """Return every launch whose terminal is here, alive or not."""
        handles = await self.runtime.orphaned_terminals([])
        states = await self.runtime.probe(handles)
        pairs = zip(handles, states, strict=True)
        return tuple(HeldLaunch(handle.session, handle.generation, isinstance(state, Alive)) for handle, state in pairs)

    async def wait_for_calls(self, within: float) -> None:
        """Wait for calls in progress, at most `within` seconds."""
        if self._in_progress:
            await asyncio.wait(self._in_progress, timeout=within)

    async def _run_to_end(self, handler: CallHandler, request: LinkRequest) -> LinkReply:
        """Run a handler to its end, even if the link is lost; cancel it only if the daemon cancels the call."""
        task = asyncio.ensure_future(handler(request))
        self._in_progress.add(task)
        task.add_done_callback(self._in_progress.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not request.link.closed.is_set():
                task.cancel()
            task.add_done_callback(_retrieve_exception)
            raise

    def _lock_for(self, call: LinkCall, arguments: Mapping[str, Any]) -> asyncio.Lock:
        """Return the lock for a call: one call at a time for a session's work, and one for starting or messaging its agent."""
        slot = call.name.partition(".")[0]
        subject: Any = next(arguments[name] for name in ("session", "spec", "context", "run") if name in arguments)
        key = (
            "work" if slot in ("workspace", "rescue") else slot,
            subject if isinstance(subject, str) else subject.session,
        )
        return self._locks.setdefault(key, asyncio.Lock())

    # -- leases --------------------------------------------------------------------------------------------------------

    async def adopt_leases(self) -> None:
        """Continue the leases of the agents that an earlier Worker left running."""
        handles = await self.runtime.orphaned_terminals([])
        for handle, state in zip(handles, await self.runtime.probe(handles), strict=True):
            path = self._lease_path(handle.session, handle.generation)
            if isinstance(state, Alive) and path.exists():
                self.leases.hold(handle.session, handle.generation, path)

    async def keep_leases(self, link: NodeLink) -> None:
        """Renew the leases of the agents here while this link exists."""
        await self.leases.keep_renewing(partial(_renew_leases, link), self._end_stale)

    async def _end_stale(self, session: str, generation: int) -> None:
        """Stop a launch whose lease the daemon has refused, because the session has another launch or none."""
        self.leases.drop(session, generation)
        for handle in await self.runtime.orphaned_terminals([]):
            if (handle.session, handle.generation) == (session, generation):
                log.warning("a stale agent is ended", session=session, generation=generation)
                await self.runtime.stop(handle, grace=0.0)

    def _lease_path(self, session: str, generation: int) -> Path:
        """Return the path of a launch's lease."""
        return self.home.session(session) / f"lease.{generation}"

    # -- the slots -----------------------------------------------------------------------------------------------------

    async def _run_call(
        self, call: LinkCall, serve: Callable[[LinkCall, LinkRequest], Awaitable[Any]], request: LinkRequest
    ) -> LinkReply:
        """Run a call and return its result as JSON data."""
        return LinkReply(to_json(call.returns, await serve(call, request)))

    async def _run_function(self, call: LinkCall, request: LinkRequest) -> Any:
        """Run a function of `RESCUE_FUNCTIONS`, one at a time for each session."""
        arguments = call.arguments_from_json(request.body["args"])
        if "session" not in arguments:
            return await RESCUE_FUNCTIONS[call.name](self.host, **arguments)
        async with self._lock_for(call, arguments):
            return await RESCUE_FUNCTIONS[call.name](self.host, **arguments)

    async def _run_workspace_call(self, call: LinkCall, request: LinkRequest) -> Any:
        """Run a call to a workspace plugin, one at a time for each session."""
        arguments = call.arguments_from_json(request.body["args"])
        async with self._lock_for(call, arguments):
            return await self._call_workspace(call, request, arguments["spec"])

    async def _call_workspace(self, call: LinkCall, request: LinkRequest, spec: WorkspaceSpec) -> Any:
        """Run a call to a workspace plugin; a created workspace's HEAD is mirrored before this returns."""
        self._check_paths(spec.path, spec.private)
        plugin: Workspace = self._plugin("workspace", request.body["of"])
        if call.name == "workspace.publish":
            return await plugin.publish(spec)
        if call.name == "workspace.remove":
            return await plugin.remove(spec)
        if call.name == "workspace.abandon":
            return await plugin.abandon(spec)
        spec.private.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        workspace = await plugin.create(spec, request.note)
        await self.mirror.begin_workspace(request.link, spec.session, workspace.path)
        await self.mirror.flush(request.link, spec.session)
        return workspace

    async def _run_runtime_call(self, call: LinkCall, request: LinkRequest) -> Any:
        """Run a call to the runtime; when an agent has ended, its output is mirrored before this returns."""
        arguments = call.arguments_from_json(request.body["args"])
        if call.name == "runtime.launch":
            async with self._lock_for(call, arguments):
                return await self._launch(request.link, arguments["spec"])
        result = await getattr(self.runtime, call.method)(**arguments)
        if isinstance(result, Gone):
            ended = arguments["handle"]
            self.leases.drop(ended.session, ended.generation)
            await self.mirror.flush(request.link, ended.session)
        if call.name == "runtime.discard":
            handle = arguments["handle"]
            self._handles.pop((handle.session, handle.generation), None)
        return result

    async def _launch(self, link: NodeLink, spec: LaunchSpec) -> Handle:
        """Launch an agent after its mirror is set up and its first lease is granted."""
        self._check_paths(spec.private, spec.log)
        await self.mirror.begin_launch(link, spec.session, spec.generation, spec.cwd)
        lease = self._lease_path(spec.session, spec.generation)
        await self.leases.begin(spec.session, spec.generation, lease, partial(_renew_leases, link))
        handle = await self.runtime.launch(replace(spec, lease=lease, env=self._with_origin(spec.env)))
        self._handles[spec.session, spec.generation] = handle
        return handle

    async def _run_agent_call(self, call: LinkCall, request: LinkRequest) -> Any:
        """Run a call to an agent plugin, one at a time for each session."""
        arguments = call.arguments_from_json(request.body["args"])
        method = getattr(self._plugin("agent", request.body["of"]), call.method)
        if not arguments:
            return await method()
        async with self._lock_for(call, arguments):
            if "context" in arguments:
                self._check_paths(arguments["context"].private)
                return await method(**arguments)
            run, changes = await self._running_launch(arguments.pop("run"))
            try:
                return await method(run, **arguments)
            finally:
                changes.close()

    async def _run_repository_call(self, call: LinkCall, request: LinkRequest) -> Any:
        """Run a call to the node's copy of a project's repository."""
        arguments = call.arguments_from_json(request.body["args"])
        if "access" in arguments:
            arguments["access"] = self._verified_access(arguments["access"])
        return await getattr(self.repositories, call.method)(**arguments)

    def _verified_access(self, access: RepositoryAccess) -> RepositoryAccess:
        """Return the access with what the daemon is verified with."""
        return replace(access, ca=self.ca, pin=self.pin)

    def _with_origin(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """Return an agent's environment in which Git reaches the daemon's repository."""
        if not all(env.get(name) for name in ("AO_URL", "AO_TOKEN", "AO_PROJECT")):
            return env
        return self._verified_access(RepositoryAccess(env["AO_URL"], env["AO_TOKEN"])).agent_environment(
            env["AO_PROJECT"], env
        )

    async def _plan_headless(self, call: LinkCall, request: LinkRequest) -> Any:
        """Return how to start an agent without a terminal."""
        arguments = call.arguments_from_json(request.body["args"])
        self._check_paths(arguments["context"].private)
        files = tuple(Path(path) for path in self._plugin_paths(request.body["of"]))
        return headless.plan_launch(**{**arguments, "plugins": files})

    async def _running_launch(self, run: SentLaunch) -> tuple[RunningLaunch, LaunchFileChanges]:
        """Return the run as the agent plugin needs it, and the file watcher to close afterwards."""
        ended = asyncio.Event()
        changes = LaunchFileChanges(self.watch, ended)
        values = {attribute.name: getattr(run, attribute.name) for attribute in fields(run)}
        agent_run = RunningLaunch(
            **values,
            private=self.home.session(run.session),
            log=self.home.terminal_log(run.session),
            changes=changes,
            screen=partial(self._screen, run.session, run.generation),
            ended=ended,
        )
        return agent_run, changes

    async def _screen(self, session: str, generation: int) -> str:
        """Return the visible text of a launch's terminal; raise `Temporary` if it is not here."""
        key = (session, generation)
        if key not in self._handles:
            handles = await self.runtime.orphaned_terminals([])
            self._handles |= {(handle.session, handle.generation): handle for handle in handles}
        if key not in self._handles:
            raise Temporary(f"the terminal of session {session} is not here")
        return await self.runtime.screen(self._handles[key])

    def _plugin(self, slot: str, plugin: Mapping[str, Any]) -> Any:
        """Return an instance of the plugin that a call names."""
        files = tuple(self._plugin_paths(plugin))
        key = (files, slot, str(plugin["name"]))
        if key not in self._registries:
            # The daemon has already decided that the session's project may use this plugin.
            self._registries[key] = PluginRegistry([{"path": path} for path in files], installed=[key[1:]])
        return self._registries[key].create(slot, plugin["name"], plugin["options"], self.host)

    # -- streams -------------------------------------------------------------------------------------------------------

    async def _terminal(self, body: Any, channel: Channel) -> None:
        """Relay a channel to the socket of a terminal's holder."""
        handle: Handle = from_json(Handle, body)
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_unix_connection(handle.address["socket"], limit=1 << 16)
            await relay(reader, writer, channel)

    async def _listen(self, body: Any, channel: Channel) -> None:
        """Send the reports of an agent's plugin until the agent has ended or the channel is closed."""
        run, changes = await self._running_launch(from_json(SentLaunch, body["run"]))
        sender = asyncio.create_task(self._send_reports(body["of"], run, channel))
        incoming = asyncio.create_task(channel.read())
        try:
            while not sender.done():
                await asyncio.wait({sender, incoming}, return_when=asyncio.FIRST_COMPLETED)
                if incoming.done() and not sender.done():
                    if not incoming.result():
                        return
                    run.ended.set()
                    changes.wake()
                    incoming = asyncio.create_task(channel.read())
        finally:
            sender.cancel()
            incoming.cancel()
            await asyncio.gather(sender, incoming, return_exceptions=True)
            changes.close()

    async def _send_reports(self, plugin: Mapping[str, Any], run: RunningLaunch, channel: Channel) -> None:
        """Send each report of the agent plugin, then that it is over, or the error that ended it."""
        try:
            async for report in self._plugin("agent", plugin).listen(run):
                # Commits that a report mentions must be mirrored first.
                await self.mirror.flush(channel.link, run.session)
                await channel.send(_line({"heard": to_json(ReportBatch, report)}))
            await channel.send(_line({"over": True}))
        except Exception as error:  # the daemon logs it and tries again
            await channel.send(_line({"failed": error_to_json(error)}))

    def _check_paths(self, *paths: Path) -> None:
        """Raise `UsageError` for a path outside the node's home."""
        for path in paths:
            require_inside_home(self.home, path)

    # -- plugin files --------------------------------------------------------------------------------------------------

    async def _put_plugin(self, request: LinkRequest) -> LinkReply:
        """Store a plugin file; raise `UsageError` if its digest is wrong."""
        [path] = self._plugin_paths({"plugins": [request.body]})
        if hashlib.sha256(request.data).hexdigest() != request.body["sha256"]:
            raise UsageError(f"the plugin file {request.body['name']} came damaged")
        if not Path(path).exists():
            await asyncio.to_thread(write_file, Path(path), request.data, 0o600, append=False)
        return LinkReply()

    def _plugin_paths(self, plugin: Mapping[str, Any]) -> list[str]:
        """Return the paths of the plugin files that a call names; they are stored by content, so a changed file has another path."""
        folder = self.home.path / "plugins"
        return [str(folder / Path(file["sha256"]).name / Path(file["name"]).name) for file in plugin["plugins"]]


def _retrieve_exception(task: asyncio.Task[LinkReply]) -> None:
    """Retrieve a task's exception so that asyncio does not report it: it was logged where it was raised, or the call is repeated."""
    if not task.cancelled():
        task.exception()


async def _renew_leases(link: NodeLink, request: LeaseRequest) -> LeaseAnswer:
    """Ask the daemon to renew leases, and return its answer."""
    answer = (await link.call("lease.renew", {"launches": dict(request.launches)}, timeout=10.0)).body
    return LeaseAnswer(float(answer["length"]), tuple(answer["refused"]))


def _line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line of JSON."""
    return json.dumps(record).encode() + b"\n"
