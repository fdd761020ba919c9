"""The slots of a session, of a plugin that runs on a node: `Workspace`, `Runtime` and `Agent` as `protocols/` defines them.

What an agent plugin answers at once and without looking anywhere (its screen rules, its keys, how a text is typed) is answered here by an
object of the same class; everything else is asked of the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.http_client import error_of
from agent_orchestrator.cluster.link.calls import Run, dump, load, understanding
from agent_orchestrator.cluster.link.connection import Channel, LinkLost
from agent_orchestrator.cluster.link.tunnel import Tunnel
from agent_orchestrator.config.projects.plugin_registry import Registry
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.plugins.runtimes.process import attach_command
from agent_orchestrator.protocols import (
    Agent,
    AgentContext,
    AgentLaunch,
    AgentRun,
    Answers,
    Delivers,
    Delivery,
    Found,
    Gone,
    Handle,
    Heard,
    LaunchSpec,
    Listens,
    Liveness,
    Permission,
    Report,
    ScreenRules,
    Typable,
    Unseen,
    WorkspaceInfo,
    WorkspaceSpec,
)

if TYPE_CHECKING:
    from agent_orchestrator.cluster.nodes.remote import RemoteNode

RUNTIME = "ray"
"""The runtime's name, as sessions know it."""
MIRROR = "git"
"""The folder in a session's private one here that mirrors its workspace's HEAD."""
_LONGEST_LINE = 16 << 20


class RemoteWorkspace:
    """A workspace plugin on a node. `spec.repo`, `path` and `private` are the node's."""

    def __init__(self, node: RemoteNode, kind: str, plugins: tuple[Path, ...]) -> None:
        self._node = node
        self._kind = kind
        self._plugins = plugins

    async def create(self, spec: WorkspaceSpec, report: Report) -> WorkspaceInfo:
        """Make the workspace there; when this returns, the mirror of its HEAD is here."""
        of = await self._of()
        made: WorkspaceInfo = await self._node.ask("workspace.create", of=of, timeout=None, report=report, spec=spec)
        return self._mirrored(spec, made)

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Bring the branch's commits into the node's repository."""
        await self._node.ask("workspace.publish", of=await self._of(), timeout=None, spec=spec)

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove the folder there; the branch stays."""
        await self._node.ask("workspace.remove", of=await self._of(), timeout=None, spec=spec)

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Take away what a try that was cut short left there."""
        found = await self._node.ask("workspace.abandon", of=await self._of(), timeout=None, spec=spec)
        return self._mirrored(spec, found) if found else None

    def _mirrored(self, spec: WorkspaceSpec, made: WorkspaceInfo) -> WorkspaceInfo:
        mirror = self._node.local.session(spec.session) / MIRROR
        (mirror / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        return replace(made, git_dir=mirror, shared=False)

    async def _of(self) -> dict[str, Any]:
        return await self._node.plugin(self._kind, {}, self._plugins)


class RemoteRuntime:
    """The `process` runtime on a node."""

    def __init__(self, node: RemoteNode) -> None:
        self._node = node
        self._tunnels: dict[tuple[str, int], Tunnel] = {}

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Start the process there, or find the one that an earlier call started. All paths of `spec` are the node's."""
        handle: Handle = await self._node.ask("runtime.launch", spec=spec)
        return self._outside(handle)

    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """Ask the node; one that does not answer says nothing about its processes."""
        if not handles:
            return []
        try:
            found: list[Liveness] = await self._node.ask("runtime.probe", handles=[*map(_inside, handles)])
        except Temporary as error:
            return [Unseen(str(error))] * len(handles)
        return found

    async def ended(self, handle: Handle) -> Gone:
        """Wait for the node to tell the end, also over lost links. What the agent had written by then is mirrored when this returns."""
        while True:
            await self._node.until_connected()
            with contextlib.suppress(LinkLost):
                gone: Gone = await self._node.ask("runtime.ended", timeout=None, handle=_inside(handle))
                return gone

    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Write a message to the terminal, once for each message id, however often a lost link makes it be asked for."""
        arguments: dict[str, Any] = {"message": message, "text": text, "enter": enter}
        done: Delivery = await self._node.ask("runtime.deliver", handle=_inside(handle), **arguments)
        return done

    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Press keys."""
        await self._node.ask("runtime.press", handle=_inside(handle), keys=tuple(keys), once=once)

    async def screen(self, handle: Handle) -> str:
        """The visible text."""
        return str(await self._node.ask("runtime.screen", handle=_inside(handle)))

    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Set the terminal's size."""
        await self._node.ask("runtime.resize", handle=_inside(handle), columns=columns, rows=rows)

    async def watched(self, handle: Handle) -> bool:
        """Is a person attached to it?"""
        return bool(await self._node.ask("runtime.watched", handle=_inside(handle)))

    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """A command for this machine: the holder's own client, through a tunnel that waits on a socket here."""
        key = (handle.session, handle.generation)
        if key not in self._tunnels:
            name = f"{self._node.name}/{handle.session}.{handle.generation}"
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]

            async def dial() -> Channel:
                return await self._node.link.open("terminal", dump(Handle, _inside(handle)))

            self._tunnels[key] = Tunnel(self._node.local.socket(f"node-{digest}.sock"), dial)
        return attach_command(self._tunnels[key].path, handle.session, watch=watch)

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the process and everything it started."""
        gone: Gone = await self._node.ask("runtime.stop", timeout=grace + 60.0, handle=_inside(handle), grace=grace)
        return gone

    async def discard(self, handle: Handle) -> None:
        """Forget an ended process's terminal."""
        await self._node.ask("runtime.discard", handle=_inside(handle))
        if (tunnel := self._tunnels.pop((handle.session, handle.generation), None)) is not None:
            tunnel.close()

    async def leftovers(self, known: Sequence[Handle]) -> list[Handle]:
        """Terminals of ours there that no known handle names."""
        found: list[Handle] = await self._node.ask("runtime.leftovers", known=[*map(_inside, known)])
        return [*map(self._outside, found)]

    def close(self) -> None:
        """Serve no terminals any more."""
        for tunnel in self._tunnels.values():
            tunnel.close()
        self._tunnels.clear()

    def _outside(self, handle: Handle) -> Handle:
        return replace(handle, runtime=RUNTIME, address={**handle.address, "node": self._node.name})


def _inside(handle: Handle) -> Handle:
    """A handle as the node's own runtime knows it."""
    address = {name: value for name, value in handle.address.items() if name != "node"}
    return replace(handle, runtime="process", address=address)


# -- agents ------------------------------------------------------------------------------------------------------------

_AT_ONCE = (
    *("screen", "interrupt_keys", "permission_keys"),
    *("workspace", "typed", "unsent", "turn", "read_turn", "conversation_files"),
)
"""What a plugin answers without looking anywhere, as far as its class has it."""


class RemoteAgent:
    """An agent plugin on a node."""

    screen: ScreenRules
    interrupt_keys: tuple[str, ...]
    permission_keys: Mapping[str, tuple[str, ...]]

    def __init__(
        self, node: RemoteNode, tool: str, options: Mapping[str, Any], plugins: tuple[Path, ...], alike: Agent
    ) -> None:
        self._node = node
        self._tool = tool
        self._options = options
        self._plugins = plugins
        for name in _AT_ONCE:
            if hasattr(alike, name):
                setattr(self, name, getattr(alike, name))

    async def detect(self) -> Found | None:
        """Is the CLI there, and which version?"""
        found: Found | None = await self._node.ask("agent.detect", of=await self._of())
        return found

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Say how to start it there. All paths of `context` are the node's."""
        planned: AgentLaunch = await self._node.ask("agent.launch", of=await self._of(), context=context)
        return planned

    async def _of(self) -> dict[str, Any]:
        return await self._node.plugin(self._tool, self._options, self._plugins)


class _Listening(RemoteAgent):
    """`Listens`: the plugin listens there, with the node's own watch, and what it hears comes here."""

    async def listen(self, run: AgentRun) -> AsyncIterator[Heard]:
        """Tell what is heard until the agent has ended; a lost link is waited out, and nothing heard before it is missed."""
        cursors = dict(run.cursors)
        over = False
        while not over:
            channel = await self._dial(run, cursors)
            if channel is None:
                return
            ending = asyncio.get_running_loop().create_task(_tell_end(run, channel))
            try:
                async for said in _lines(channel):
                    if "failed" in said:
                        raise error_of(said["failed"])
                    over = over or "over" in said
                    if "heard" in said:
                        with understanding(f"what the node {self._node.name} heard"):
                            heard: Heard = load(Heard, said["heard"])
                        yield heard
                        if heard.place:
                            cursors[heard.place] = max(heard.end, cursors.get(heard.place, 0))
            finally:
                ending.cancel()
                await channel.close()

    async def _dial(self, run: AgentRun, cursors: Mapping[str, int]) -> Channel | None:
        """A channel to the plugin there; none: the agent has ended, and the node cannot be asked what it left."""
        while True:
            if run.ended.is_set() and not self._node.connected:
                return None
            ended = asyncio.ensure_future(run.ended.wait())
            back = asyncio.ensure_future(self._node.until_connected())
            try:
                await asyncio.wait({ended, back}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
                back.cancel()
            with contextlib.suppress(LinkLost):
                body = {"of": await self._of(), "run": dump(Run, replace(Run.of(run), cursors=cursors))}
                return await self._node.link.open("agent.listen", body)


class _Delivering(RemoteAgent):
    """`Delivers`."""

    async def deliver(self, run: AgentRun, message: str, text: str, *, interrupt: bool) -> Delivery | Typable | None:
        """Hand a message over there, once for each message id."""
        arguments: dict[str, Any] = {"run": Run.of(run), "message": message, "text": text, "interrupt": interrupt}
        done: Delivery | Typable | None = await self._node.ask("agent.deliver", of=await self._of(), **arguments)
        return done


class _Answering(RemoteAgent):
    """`Answers`."""

    async def answer(self, run: AgentRun, permission: Permission, decision: str, text: str) -> Sequence[str] | None:
        """Answer a permission request there."""
        arguments: dict[str, Any] = {"run": Run.of(run), "permission": permission, "decision": decision, "text": text}
        keys: Sequence[str] | None = await self._node.ask("agent.answer", of=await self._of(), **arguments)
        return keys


def remote_agent(node: RemoteNode, tool: str, options: Mapping[str, Any], plugins: tuple[Path, ...]) -> Agent:
    """A proxy that can what the plugin's own class can, and no more."""
    registry = Registry([{"path": str(path)} for path in plugins], installed=[("agent", tool)])
    alike = registry.make("agent", tool, options, LocalHost())
    abilities = ((Listens, _Listening), (Delivers, _Delivering), (Answers, _Answering))
    bases = tuple(part for ability, part in abilities if isinstance(alike, ability))
    made: Agent = type("RemoteAgent", bases or (RemoteAgent,), {})(node, tool, options, plugins, alike)
    return made


async def _tell_end(run: AgentRun, channel: Channel) -> None:
    await run.ended.wait()
    with contextlib.suppress(AoError):
        await channel.send(b"ended\n")


async def _lines(channel: Channel) -> AsyncIterator[dict[str, Any]]:
    rest = b""
    while data := await channel.read():
        *whole, rest = (rest + data).split(b"\n")
        if len(rest) > _LONGEST_LINE:
            raise AoError(f"a node says a line of over {_LONGEST_LINE} bytes")
        for line in whole:
            with understanding("what a node says"):
                said = json.loads(line)
            if isinstance(said, dict):
                yield said
