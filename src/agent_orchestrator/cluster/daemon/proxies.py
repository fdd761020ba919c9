"""Proxies for plugins that run on a node: `Workspace`, `Runtime` and `Agent` as `protocols/` defines them.

What an agent plugin answers without reading anything (its screen rules, its keys, how a text is typed) is answered here by an instance
of the same class; all other calls go to the node.
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
from agent_orchestrator.base.http_client import error_from_problem
from agent_orchestrator.cluster.link.calls import SentLaunch, from_json, parsing_peer_data, to_json
from agent_orchestrator.cluster.link.connection import Channel, LinkLost
from agent_orchestrator.cluster.link.tunnel import Tunnel
from agent_orchestrator.config.projects.plugin_registry import PluginRegistry
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.plugins.runtimes.process import attach_command
from agent_orchestrator.protocols import (
    Agent,
    AgentContext,
    AgentLaunch,
    Delivery,
    Gone,
    Handle,
    InstalledAgent,
    LaunchSpec,
    LineCallback,
    Liveness,
    Permission,
    ProbeFailed,
    ReadyToType,
    ReportBatch,
    RunningLaunch,
    Runtime,
    TurnCommand,
    TurnLine,
    Workspace,
    WorkspaceInfo,
    WorkspaceSpec,
)

if TYPE_CHECKING:
    from agent_orchestrator.cluster.daemon.remote_node import RemoteNode

RUNTIME_NAME = "ray"
"""The runtime's name as recorded in sessions."""
HEAD_FOLDER = "git"
"""The folder in a session's private folder here that mirrors its workspace's HEAD."""
_MAX_LINE_BYTES = 16 << 20
"""Bytes of one line that a node sends on a channel, at most."""


class RemoteWorkspace(Workspace):
    """A workspace plugin on a node. `spec.repo`, `path` and `private` are the node's."""

    def __init__(self, node: RemoteNode, kind: str, plugins: tuple[Path, ...]) -> None:
        self._node = node
        self._kind = kind
        self._plugins = plugins

    async def create(self, spec: WorkspaceSpec, report: LineCallback) -> WorkspaceInfo:
        """Create the workspace on the node; when this returns, the mirror of its HEAD is here."""
        plugin = await self._plugin_call()
        workspace: WorkspaceInfo = await self._node.call(
            "workspace.create", of=plugin, timeout=None, report=report, spec=spec
        )
        return self._with_mirror(spec, workspace)

    async def publish(self, spec: WorkspaceSpec) -> None:
        """Bring the branch's commits into the node's copy of the repository."""
        await self._node.call("workspace.publish", of=await self._plugin_call(), timeout=None, spec=spec)

    async def remove(self, spec: WorkspaceSpec) -> None:
        """Remove the folder on the node; the branch stays."""
        await self._node.call("workspace.remove", of=await self._plugin_call(), timeout=None, spec=spec)

    async def abandon(self, spec: WorkspaceSpec) -> WorkspaceInfo | None:
        """Remove what an interrupted creation left on the node."""
        workspace = await self._node.call("workspace.abandon", of=await self._plugin_call(), timeout=None, spec=spec)
        return self._with_mirror(spec, workspace) if workspace else None

    def _with_mirror(self, spec: WorkspaceSpec, workspace: WorkspaceInfo) -> WorkspaceInfo:
        """Return the workspace with the mirrored HEAD here as its `git_dir`."""
        mirror = self._node.daemon_home.session(spec.session) / HEAD_FOLDER
        (mirror / "logs").mkdir(mode=0o700, parents=True, exist_ok=True)
        return replace(workspace, git_dir=mirror, shared=False)

    async def _plugin_call(self) -> dict[str, Any]:
        """Return the plugin's description for a call."""
        return await self._node.plugin(self._kind, {}, self._plugins)


class RemoteRuntime(Runtime):
    """The `process` runtime on a node."""

    def __init__(self, node: RemoteNode) -> None:
        self._node = node
        self._tunnels: dict[tuple[str, int], Tunnel] = {}

    async def launch(self, spec: LaunchSpec) -> Handle:
        """Start the process on the node, or return the one that an earlier call started.

        All paths of `spec` are the node's.
        """
        handle: Handle = await self._node.call("runtime.launch", spec=spec)
        return self._daemon_handle(handle)

    async def probe(self, handles: Sequence[Handle]) -> list[Liveness]:
        """Return the state of each process; `ProbeFailed` for all of them if the node does not answer."""
        if not handles:
            return []
        try:
            states: list[Liveness] = await self._node.call("runtime.probe", handles=[*map(_node_handle, handles)])
        except Temporary as error:
            return [ProbeFailed(str(error))] * len(handles)
        return states

    async def ended(self, handle: Handle) -> Gone:
        """Wait until the process has ended, also over lost links.

        What the agent had written is mirrored when this returns.
        """
        while True:
            await self._node.wait_connected()
            with contextlib.suppress(LinkLost):
                gone: Gone = await self._node.call("runtime.ended", timeout=None, handle=_node_handle(handle))
                return gone

    async def deliver(self, handle: Handle, message: str, text: str, *, enter: bool = True) -> Delivery:
        """Type a message in the terminal, once for each message id, even if a lost link makes the call be repeated."""
        arguments: dict[str, Any] = {"message": message, "text": text, "enter": enter}
        delivery: Delivery = await self._node.call("runtime.deliver", handle=_node_handle(handle), **arguments)
        return delivery

    async def press(self, handle: Handle, keys: Sequence[str], *, once: str = "") -> None:
        """Press keys in the terminal."""
        await self._node.call("runtime.press", handle=_node_handle(handle), keys=tuple(keys), once=once)

    async def screen(self, handle: Handle) -> str:
        """Return the visible text of the terminal."""
        return str(await self._node.call("runtime.screen", handle=_node_handle(handle)))

    async def resize(self, handle: Handle, columns: int, rows: int) -> None:
        """Set the terminal's size."""
        await self._node.call("runtime.resize", handle=_node_handle(handle), columns=columns, rows=rows)

    async def watched(self, handle: Handle) -> bool:
        """Return whether a person is attached to the terminal."""
        return bool(await self._node.call("runtime.watched", handle=_node_handle(handle)))

    def attach_command(self, handle: Handle, *, watch: bool = False) -> tuple[str, ...]:
        """Return a command for this machine: the holder's own client, through a tunnel that listens on a socket here."""
        key = (handle.session, handle.generation)
        if key not in self._tunnels:
            name = f"{self._node.name}/{handle.session}.{handle.generation}"
            digest = hashlib.sha256(name.encode()).hexdigest()[:16]

            async def dial() -> Channel:
                """Open a channel to the terminal on the node."""
                return await self._node.link.open_channel("terminal", to_json(Handle, _node_handle(handle)))

            self._tunnels[key] = Tunnel(self._node.daemon_home.socket(f"node-{digest}.sock"), dial)
        return attach_command(self._tunnels[key].path, handle.session, watch=watch)

    async def stop(self, handle: Handle, grace: float = 5.0) -> Gone:
        """End the process and everything it started."""
        gone: Gone = await self._node.call(
            "runtime.stop", timeout=grace + 60.0, handle=_node_handle(handle), grace=grace
        )
        return gone

    async def discard(self, handle: Handle) -> None:
        """Remove an ended process's terminal, and close its tunnel."""
        await self._node.call("runtime.discard", handle=_node_handle(handle))
        if (tunnel := self._tunnels.pop((handle.session, handle.generation), None)) is not None:
            tunnel.close()

    async def orphaned_terminals(self, expected: Sequence[Handle]) -> list[Handle]:
        """Return the terminals on the node that none of the known handles names."""
        leftover_handles: list[Handle] = await self._node.call(
            "runtime.leftovers", expected=[*map(_node_handle, expected)]
        )
        return [*map(self._daemon_handle, leftover_handles)]

    def close(self) -> None:
        """Close all tunnels."""
        for tunnel in self._tunnels.values():
            tunnel.close()
        self._tunnels.clear()

    def _daemon_handle(self, handle: Handle) -> Handle:
        """Return a handle of the node's runtime as the daemon stores it."""
        return replace(handle, runtime=RUNTIME_NAME, address={**handle.address, "node": self._node.name})


def _node_handle(handle: Handle) -> Handle:
    """Return a handle as the node's own runtime knows it."""
    address = {name: value for name, value in handle.address.items() if name != "node"}
    return replace(handle, runtime="process", address=address)


# -- agents ------------------------------------------------------------------------------------------------------------


class RemoteAgent(Agent):
    """An agent plugin on a node; `local` is an instance of the same class here, which answers what needs nothing from the node."""

    def __init__(
        self, node: RemoteNode, tool: str, options: Mapping[str, Any], plugins: tuple[Path, ...], local: Agent
    ) -> None:
        self._node = node
        self._tool = tool
        self._options = options
        self._plugins = plugins
        self._local = local
        self.screen = local.screen
        self.interrupt_keys = local.interrupt_keys
        self.permission_keys = local.permission_keys
        self.workspace = local.workspace
        self.listens = local.listens
        self.delivers_messages = local.delivers_messages
        self.answers_requests = local.answers_requests
        self.detects_unsent_text = local.detects_unsent_text
        self.has_headless_mode = local.has_headless_mode

    def conversation_files(self, env: Mapping[str, str], workspace: Path, conversation: str) -> tuple[Path, ...] | None:
        """Return the files with which the agent continues a conversation on another machine, or None if it cannot."""
        return self._local.conversation_files(env, workspace, conversation)

    def escape_input(self, text: str) -> str:
        """Return what to type so that the agent takes this text as a message."""
        return self._local.escape_input(text)

    def has_unsent_text(self, screen: str, text: str) -> bool:
        """Return whether this text, which was typed, is still in the agent's input line."""
        return self._local.has_unsent_text(screen, text)

    def turn(self, context: AgentContext, prompt: str, conversation: str | None) -> TurnCommand:
        """Return the command of one turn."""
        return self._local.turn(context, prompt, conversation)

    def read_turn(self, line: str) -> TurnLine:
        """Parse one line of a turn's output."""
        return self._local.read_turn(line)

    async def detect(self) -> InstalledAgent | None:
        """Return the CLI on the node with its version, or None if it is not installed."""
        installation: InstalledAgent | None = await self._node.call("agent.detect", of=await self._plugin_call())
        return installation

    async def launch(self, context: AgentContext) -> AgentLaunch:
        """Return how to start the agent on the node. All paths of `context` are the node's."""
        agent_launch: AgentLaunch = await self._node.call("agent.launch", of=await self._plugin_call(), context=context)
        return agent_launch

    async def deliver(
        self, run: RunningLaunch, message: str, text: str, *, interrupt: bool
    ) -> Delivery | ReadyToType | None:
        """Deliver a message on the node, once for each message id."""
        arguments: dict[str, Any] = {
            "run": SentLaunch.from_running_launch(run),
            "message": message,
            "text": text,
            "interrupt": interrupt,
        }
        delivery: Delivery | ReadyToType | None = await self._node.call(
            "agent.deliver", of=await self._plugin_call(), **arguments
        )
        return delivery

    async def answer(
        self, run: RunningLaunch, permission: Permission, decision: str, text: str
    ) -> Sequence[str] | None:
        """Answer a permission request on the node; return the keys still to be pressed, or None if it cannot be answered this way."""
        arguments: dict[str, Any] = {
            "run": SentLaunch.from_running_launch(run),
            "permission": permission,
            "decision": decision,
            "text": text,
        }
        keys: Sequence[str] | None = await self._node.call("agent.answer", of=await self._plugin_call(), **arguments)
        return keys

    async def listen(self, run: RunningLaunch) -> AsyncIterator[ReportBatch]:
        """Yield the agent's reports until it has ended; a lost link is waited out, and no report is missed."""
        cursors = dict(run.cursors)
        is_over = False
        while not is_over:
            channel = await self._dial(run, cursors)
            if channel is None:
                return
            end_notice = asyncio.get_running_loop().create_task(_send_end(run, channel))
            try:
                async for record in _read_records(channel):
                    if "failed" in record:
                        raise error_from_problem(record["failed"])
                    is_over = is_over or "over" in record
                    if "heard" in record:
                        with parsing_peer_data(f"what the node {self._node.name} heard"):
                            report: ReportBatch = from_json(ReportBatch, record["heard"])
                        yield report
                        if report.source_id:
                            cursors[report.source_id] = max(report.end, cursors.get(report.source_id, 0))
            finally:
                end_notice.cancel()
                await channel.close()

    async def _dial(self, run: RunningLaunch, cursors: Mapping[str, int]) -> Channel | None:
        """Open a channel to the plugin; return None if the agent has ended and the node cannot be reached."""
        while True:
            if run.ended.is_set() and not self._node.connected:
                return None
            ended = asyncio.ensure_future(run.ended.wait())
            connected = asyncio.ensure_future(self._node.wait_connected())
            try:
                await asyncio.wait({ended, connected}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ended.cancel()
                connected.cancel()
            with contextlib.suppress(LinkLost):
                body = {
                    "of": await self._plugin_call(),
                    "run": to_json(SentLaunch, replace(SentLaunch.from_running_launch(run), cursors=cursors)),
                }
                return await self._node.link.open_channel("agent.listen", body)

    async def _plugin_call(self) -> dict[str, Any]:
        """Return the plugin's description for a call."""
        return await self._node.plugin(self._tool, self._options, self._plugins)


def remote_agent(node: RemoteNode, tool: str, options: Mapping[str, Any], plugins: tuple[Path, ...]) -> Agent:
    """Return a proxy with the abilities of the plugin's own class."""
    registry = PluginRegistry([{"path": str(path)} for path in plugins], installed=[("agent", tool)])
    return RemoteAgent(node, tool, options, plugins, registry.create("agent", tool, options, LocalHost()))


async def _send_end(run: RunningLaunch, channel: Channel) -> None:
    """Report to the node's plugin that the agent has ended."""
    await run.ended.wait()
    with contextlib.suppress(AoError):
        await channel.send(b"ended\n")


async def _read_records(channel: Channel) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON objects that a node sends on a channel, one per line."""
    partial_line = b""
    while data := await channel.read():
        *complete_lines, partial_line = (partial_line + data).split(b"\n")
        if len(partial_line) > _MAX_LINE_BYTES:
            raise AoError(f"a node says a line of over {_MAX_LINE_BYTES} bytes")
        for line in complete_lines:
            with parsing_peer_data("what a node says"):
                record = json.loads(line)
            if isinstance(record, dict):
                yield record
