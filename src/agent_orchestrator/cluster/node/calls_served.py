"""What a node answers: the plugins, the rescue and the files of this machine, with the node's own home.

The same classes as on the daemon's machine; nothing of them is written again. What is done here beside calling them is order: what
a session has written is mirrored before the daemon is told what came of it; what was begun is finished although the link is lost, for a
killed Git leaves its locks behind; and when it is asked for again meanwhile, the one waits for the other.
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

from agent_orchestrator.base.files.watch import FileChanges, Watch
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.link.calls import CALLS, FUNCTIONS, Call, Holds, Run, dump, load
from agent_orchestrator.cluster.link.connection import (
    Channel,
    ChannelHandler,
    Handler,
    Link,
    Reply,
    Request,
    problem_of,
)
from agent_orchestrator.cluster.link.tunnel import relay
from agent_orchestrator.cluster.node.lease import Asked, Granted, Leases
from agent_orchestrator.cluster.node.machine_calls import Machine, must_be_in, write_file
from agent_orchestrator.cluster.node.repository import Access, Repositories
from agent_orchestrator.cluster.nodes.mirror import Mirror
from agent_orchestrator.config.projects.plugin_registry import Registry
from agent_orchestrator.errors import Temporary, UsageError
from agent_orchestrator.plugins.runtimes.process import Process
from agent_orchestrator.protocols import AgentRun, Alive, Gone, Handle, Heard, LaunchSpec, Workspace, WorkspaceSpec
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.agents import headless

GIVEN_UP = ("runtime.ended", "host.stream")
"""What is not gone on with when the link is lost: it waits, or is for somebody who looks on."""

log = structlog.get_logger()


class Serving:
    """Answers the daemon's calls; `handlers` and `channels` may be added to."""

    def __init__(self, home: Home, host: Host, watch: Watch, mirror: Mirror) -> None:
        self.home = home
        self.host = host
        self.watch = watch
        self.mirror = mirror
        self.runtime = Process({"home": str(home.path)}, host)
        self._handles: dict[tuple[str, int], Handle] = {}
        self._registries: dict[tuple[tuple[str, ...], str, str], Registry] = {}
        self.leases = Leases()
        self.repositories = Repositories(home, host)
        self.ca: Path | None = None
        self.pin = ""
        """What the daemon is known by, where it is not the system's authorities (`Access`)."""
        self._begun: set[asyncio.Task[Reply]] = set()
        self._turns: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()
        slots: dict[str, Callable[[Call, Request], Awaitable[Any]]] = {
            "workspace": self._workspace,
            "runtime": self._runtime,
            "agent": self._agent,
            "headless": self._headless,
            "repository": self._repository,
        }
        self.handlers: dict[str, Handler] = {
            **Machine(home, host, mirror.forget).handlers(),
            "plugins.put": self._put_plugin,
        }
        for name, call in CALLS.items():
            serve = self._function if name in FUNCTIONS else slots[name.partition(".")[0]]
            self.handlers[name] = partial(self._answer, call, serve)
        self.handlers |= {
            name: partial(self._finished, handler) for name, handler in self.handlers.items() if name not in GIVEN_UP
        }
        self.channels: dict[str, ChannelHandler] = {"terminal": self._terminal, "agent.listen": self._listen}

    async def holds(self) -> tuple[Holds, ...]:
        """Every launch whose terminal is here, alive or not."""
        handles = await self.runtime.leftovers([])
        found = await self.runtime.probe(handles)
        pairs = zip(handles, found, strict=True)
        return tuple(Holds(one.session, one.generation, isinstance(state, Alive)) for one, state in pairs)

    async def finish(self, within: float) -> None:
        """Let what was begun come to its end."""
        if self._begun:
            await asyncio.wait(self._begun, timeout=within)

    async def _finished(self, handler: Handler, request: Request) -> Reply:
        """Carry it out to its end, unless the daemon itself calls it off."""
        task = asyncio.ensure_future(handler(request))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not request.link.closed.is_set():
                task.cancel()
            task.add_done_callback(_looked_at)
            raise

    def _turn(self, call: Call, arguments: Mapping[str, Any]) -> asyncio.Lock:
        """One at a time of what makes, saves and removes a session's work, and of what starts or speaks to its agent."""
        slot = call.name.partition(".")[0]
        about: Any = next(arguments[name] for name in ("session", "spec", "context", "run") if name in arguments)
        key = ("work" if slot in ("workspace", "rescue") else slot, about if isinstance(about, str) else about.session)
        return self._turns.setdefault(key, asyncio.Lock())

    # -- leases --------------------------------------------------------------------------------------------------------

    async def adopt(self) -> None:
        """Keep up the leases of the agents that an earlier Worker left."""
        handles = await self.runtime.leftovers([])
        for handle, state in zip(handles, await self.runtime.probe(handles), strict=True):
            path = self._lease(handle.session, handle.generation)
            if isinstance(state, Alive) and path.exists():
                self.leases.hold(handle.session, handle.generation, path)

    async def keep_leases(self, link: Link) -> None:
        """Ask the daemon, while this link is there, that the agents here may work on."""
        await self.leases.keep(partial(_renew, link), self._end_stale)

    async def _end_stale(self, session: str, generation: int) -> None:
        """The daemon has another launch of the session, or none: this one must not work on."""
        self.leases.drop(session, generation)
        for handle in await self.runtime.leftovers([]):
            if (handle.session, handle.generation) == (session, generation):
                log.warning("a stale agent is ended", session=session, generation=generation)
                await self.runtime.stop(handle, grace=0.0)

    def _lease(self, session: str, generation: int) -> Path:
        return self.home.session(session) / f"lease.{generation}"

    # -- the slots -----------------------------------------------------------------------------------------------------

    async def _answer(self, call: Call, serve: Callable[[Call, Request], Awaitable[Any]], request: Request) -> Reply:
        return Reply(dump(call.returns, await serve(call, request)))

    async def _function(self, call: Call, request: Request) -> Any:
        arguments = call.load(request.body["args"])
        if "session" not in arguments:
            return await FUNCTIONS[call.name](self.host, **arguments)
        async with self._turn(call, arguments):
            return await FUNCTIONS[call.name](self.host, **arguments)

    async def _workspace(self, call: Call, request: Request) -> Any:
        arguments = call.load(request.body["args"])
        async with self._turn(call, arguments):
            return await self._work(call, request, arguments["spec"])

    async def _work(self, call: Call, request: Request, spec: WorkspaceSpec) -> Any:
        self._must_be_ours(spec.path, spec.private)
        plugin: Workspace = self._plugin("workspace", request.body["of"])
        if call.name == "workspace.publish":
            return await plugin.publish(spec)
        if call.name == "workspace.remove":
            return await plugin.remove(spec)
        if call.name == "workspace.abandon":
            return await plugin.abandon(spec)
        spec.private.mkdir(mode=0o700, parents=True, exist_ok=True)
        spec.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = await plugin.create(spec, request.note)
        await self.mirror.begin_workspace(request.link, spec.session, made.path)
        await self.mirror.flush(request.link, spec.session)
        return made

    async def _runtime(self, call: Call, request: Request) -> Any:
        arguments = call.load(request.body["args"])
        if call.name == "runtime.launch":
            async with self._turn(call, arguments):
                return await self._launch(request.link, arguments["spec"])
        result = await getattr(self.runtime, call.name.partition(".")[2])(**arguments)
        if isinstance(result, Gone):
            ended = arguments["handle"]
            self.leases.drop(ended.session, ended.generation)
            await self.mirror.flush(request.link, ended.session)
        if call.name == "runtime.discard":
            handle = arguments["handle"]
            self._handles.pop((handle.session, handle.generation), None)
        return result

    async def _launch(self, link: Link, spec: LaunchSpec) -> Handle:
        self._must_be_ours(spec.private, spec.log)
        await self.mirror.begin_launch(link, spec.session, spec.generation, spec.cwd)
        lease = self._lease(spec.session, spec.generation)
        await self.leases.begin(spec.session, spec.generation, lease, partial(_renew, link))
        handle = await self.runtime.launch(replace(spec, lease=lease, env=self._with_origin(spec.env)))
        self._handles[spec.session, spec.generation] = handle
        return handle

    async def _agent(self, call: Call, request: Request) -> Any:
        arguments = call.load(request.body["args"])
        method = getattr(self._plugin("agent", request.body["of"]), call.name.partition(".")[2])
        if not arguments:
            return await method()
        async with self._turn(call, arguments):
            if "context" in arguments:
                self._must_be_ours(arguments["context"].private)
                return await method(**arguments)
            run, changes = await self._agent_run(arguments.pop("run"))
            try:
                return await method(run, **arguments)
            finally:
                changes.close()

    async def _repository(self, call: Call, request: Request) -> Any:
        """The node's copies of the projects' repositories."""
        arguments = call.load(request.body["args"])
        if "access" in arguments:
            arguments["access"] = self._known(arguments["access"])
        return await getattr(self.repositories, call.name.partition(".")[2])(**arguments)

    def _known(self, access: Access) -> Access:
        return replace(access, ca=self.ca, pin=self.pin)

    def _with_origin(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """An agent's environment, in which its Git reaches the daemon's repository."""
        if not all(env.get(name) for name in ("AO_URL", "AO_TOKEN", "AO_PROJECT")):
            return env
        return self._known(Access(env["AO_URL"], env["AO_TOKEN"])).environment(env["AO_PROJECT"], env)

    async def _headless(self, call: Call, request: Request) -> Any:
        arguments = call.load(request.body["args"])
        self._must_be_ours(arguments["context"].private)
        files = tuple(Path(path) for path in self._files(request.body["of"]))
        return headless.plan(**{**arguments, "plugins": files})

    async def _agent_run(self, run: Run) -> tuple[AgentRun, FileChanges]:
        ended = asyncio.Event()
        changes = FileChanges(self.watch, ended)
        told = {one.name: getattr(run, one.name) for one in fields(run)}
        made = AgentRun(
            **told,
            private=self.home.session(run.session),
            log=self.home.terminal_log(run.session),
            changes=changes,
            screen=partial(self._screen, run.session, run.generation),
            ended=ended,
        )
        return made, changes

    async def _screen(self, session: str, generation: int) -> str:
        key = (session, generation)
        if key not in self._handles:
            found = await self.runtime.leftovers([])
            self._handles |= {(handle.session, handle.generation): handle for handle in found}
        if key not in self._handles:
            raise Temporary(f"the terminal of session {session} is not here")
        return await self.runtime.screen(self._handles[key])

    def _plugin(self, slot: str, of: Mapping[str, Any]) -> Any:
        files = tuple(self._files(of))
        wanted = (files, slot, str(of["name"]))
        if wanted not in self._registries:
            # The daemon has decided that its project may use it.
            self._registries[wanted] = Registry([{"path": path} for path in files], installed=[wanted[1:]])
        return self._registries[wanted].make(slot, of["name"], of["options"], self.host)

    # -- streams -------------------------------------------------------------------------------------------------------

    async def _terminal(self, body: Any, channel: Channel) -> None:
        """Whatever attaches to the holder's socket."""
        handle: Handle = load(Handle, body)
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_unix_connection(handle.address["socket"], limit=1 << 16)
            await relay(reader, writer, channel)

    async def _listen(self, body: Any, channel: Channel) -> None:
        """Listen to an agent by its plugin, and tell each thing that is heard, until it has ended or nobody listens any more."""
        run, changes = await self._agent_run(load(Run, body["run"]))
        told = asyncio.create_task(self._hear(body["of"], run, channel))
        asked = asyncio.create_task(channel.read())
        try:
            while not told.done():
                await asyncio.wait({told, asked}, return_when=asyncio.FIRST_COMPLETED)
                if asked.done() and not told.done():
                    if not asked.result():
                        return
                    run.ended.set()
                    changes.wake()
                    asked = asyncio.create_task(channel.read())
        finally:
            told.cancel()
            asked.cancel()
            await asyncio.gather(told, asked, return_exceptions=True)
            changes.close()

    async def _hear(self, of: Mapping[str, Any], run: AgentRun, channel: Channel) -> None:
        try:
            async for heard in self._plugin("agent", of).listen(run):
                await self.mirror.flush(
                    channel.link, run.session
                )  # what a turn is said to have done is what it committed before
                await channel.send(_line({"heard": dump(Heard, heard)}))
            await channel.send(_line({"over": True}))
        except Exception as error:  # the daemon tries again, and says so
            await channel.send(_line({"failed": problem_of(error)}))

    def _must_be_ours(self, *paths: Path) -> None:
        for path in paths:
            must_be_in(self.home, path)

    # -- plugin files --------------------------------------------------------------------------------------------------

    async def _put_plugin(self, request: Request) -> Reply:
        [path] = self._files({"plugins": [request.body]})
        if hashlib.sha256(request.data).hexdigest() != request.body["sha256"]:
            raise UsageError(f"the plugin file {request.body['name']} came damaged")
        if not Path(path).exists():
            await asyncio.to_thread(write_file, Path(path), request.data, 0o600, append=False)
        return Reply()

    def _files(self, of: Mapping[str, Any]) -> list[str]:
        """Where the plugin files that a call names are kept: by content, so that a changed one is another one."""
        kept = self.home.path / "plugins"
        return [str(kept / Path(one["sha256"]).name / Path(one["name"]).name) for one in of["plugins"]]


def _looked_at(task: asyncio.Task[Reply]) -> None:
    """Nobody waits for it any more: what it failed with is logged where it was raised, or asked for again."""
    if not task.cancelled():
        task.exception()


async def _renew(link: Link, asked: Asked) -> Granted:
    told = (await link.call("lease.renew", {"launches": dict(asked.launches)}, timeout=10.0)).body
    return Granted(float(told["length"]), tuple(told["refused"]))


def _line(said: Mapping[str, Any]) -> bytes:
    return json.dumps(said).encode() + b"\n"
