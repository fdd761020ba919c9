"""The daemon's side of a node: `RemoteNode`, which offers what a session needs on the node as if it were on this machine.

    node = RemoteNode(hello, home)             kept by the daemon for as long as it works with the node
    await accept(transport, node_for)          a node has connected: `node_for(hello)` returns its `RemoteNode`, which gets the new link
    node.workspace("clone"), node.runtime(), node.agent("codex", options)     the slots of `protocols/`
    node.git(path)                             Git in a folder on the node
    node.rescue(…), node.bring_back(…) …       `sessions/rescue`, run on the node
    node.write(…), node.path_exists(…) …       files on the node

While a node is not connected everything here raises `LinkLost` (`Temporary`): a node that cannot be reached may still be running. Calls
that may take long (`ended`, `listen`) wait for the node to reconnect, and ask again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.daemon.mirror import MirrorReceiver
from agent_orchestrator.cluster.daemon.proxies import RemoteRuntime, RemoteWorkspace, remote_agent
from agent_orchestrator.cluster.daemon.remote_host import RemoteHost
from agent_orchestrator.cluster.link.calls import CALLS, PROTOCOL_VERSION, Hello, from_json, parsing_peer_data
from agent_orchestrator.cluster.link.connection import (
    MAX_MESSAGE_BYTES,
    CallHandler,
    LinkLost,
    LinkReply,
    LinkRequest,
    NodeLink,
    Transport,
)
from agent_orchestrator.errors import AoError, Denied
from agent_orchestrator.protocols import Agent, AgentContext, AgentLaunch, LineCallback, Workspace
from agent_orchestrator.protocols.host import Host, ProgramResult
from agent_orchestrator.sessions.rescue import CheckpointResult, Rescue, RestoreResult

HELLO_TIMEOUT = 15.0
"""Seconds that a node that has connected has to say hello."""
_EXTRA_ANSWER_SECONDS = 15.0
"""Seconds that an answer may take in addition to the time that the program itself has."""
_FILE_PIECE_BYTES = 8 << 20
"""Bytes of a file that one call reads."""


class RemoteNode:
    """One node, for as long as the daemon works with it; its links come and go (`rebind`)."""

    def __init__(
        self,
        hello: Hello,
        local: Home,
        receiver: MirrorReceiver | None = None,
        handlers: Mapping[str, CallHandler] | None = None,
    ) -> None:
        """`handlers` are calls that the node may make to the daemon, in addition to sending what its sessions write."""
        self.hello = hello
        """What it reported when it last connected: labels, cpus, memory, the sessions it held then."""
        self.daemon_home = local
        """The daemon's own home."""
        self.receiver = receiver or MirrorReceiver(local)
        """Receives what the node's sessions write; its `accepts` decides of which launches."""
        self.handlers: Mapping[str, CallHandler] = {**self.receiver.handlers(), **(handlers or {})}
        """The calls that the node may make to the daemon."""
        self.host: Host = RemoteHost(self)
        """The machine as a `Host`, for code that uses only its asynchronous methods."""
        self._link: NodeLink | None = None
        self._link_bound = asyncio.Event()
        self._sent_plugins: set[str] = set()
        self._runtime = RemoteRuntime(self)

    @property
    def name(self) -> str:
        """The node's name."""
        return self.hello.name

    @property
    def home(self) -> Home:
        """The node's own home; only for making paths."""
        return Home(self.hello.home)

    @property
    def boot_id(self) -> str:
        """The node's own boot id."""
        return self.hello.boot_id

    # -- the link ------------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether there is a link."""
        return self._link is not None and not self._link.closed.is_set()

    @property
    def link(self) -> NodeLink:
        """The link to the node; raises `LinkLost` if there is none."""
        if self._link is None or self._link.closed.is_set():
            raise LinkLost(f"the node {self.name} is not connected", "it comes back by itself; ao nodes shows it")
        return self._link

    def rebind(self, link: NodeLink, hello: Hello | None = None) -> None:
        """Use this new link to the node, and close an earlier one."""
        old, self._link = self._link, link
        self.hello = hello or self.hello
        link.handlers, link.peer = self.handlers, f"the node {self.name}"
        self._sent_plugins.clear()
        if old is not None and old is not link and not old.closed.is_set():
            task = asyncio.get_running_loop().create_task(old.close())
            self._close_task = task
        self._link_bound.set()

    async def wait_connected(self) -> NodeLink:
        """Return the link; wait without limit until there is one."""
        while not self.connected:
            self._link_bound.clear()
            await self._link_bound.wait()
        return self.link

    async def close(self) -> None:
        """Close the link and all terminal tunnels."""
        self._runtime.close()
        if self._link is not None:
            await self._link.close()

    async def call(
        self,
        name: str,
        /,
        *,
        of: Mapping[str, Any] | None = None,
        timeout: float | None = 60.0,
        report: LineCallback = lambda _line: None,
        **arguments: Any,
    ) -> Any:
        """Make one of `calls.CALLS` on the node and return its result; `of` names the plugin, `report` gets its live output."""
        call = CALLS[name]
        body = {"of": dict(of or {}), "args": call.arguments_to_json(arguments)}
        reply = await self.link.call(name, body, timeout=timeout, note=report)
        with parsing_peer_data(f"what the node {self.name} answers to {name}"):
            return from_json(call.returns, reply.body)

    # -- the slots -----------------------------------------------------------------------------------------------------

    def workspace(self, kind: str, plugins: Sequence[Path] = ()) -> Workspace:
        """Return a workspace plugin on the node.

        Its workspaces have a mirror of HEAD here as `git_dir`, and are not `shared`.
        """
        return RemoteWorkspace(self, kind, tuple(plugins))

    def runtime(self) -> RemoteRuntime:
        """Return the `process` runtime on the node, which sessions record as `ray`; one for all."""
        return self._runtime

    def agent(self, tool: str, options: Mapping[str, Any], plugins: Sequence[Path] = ()) -> Agent:
        """Return an agent plugin on the node, with the abilities of the plugin's own class (`Agent.listens` …)."""
        return remote_agent(self, tool, options, tuple(plugins))

    async def headless_plan(
        self,
        context: AgentContext,
        agent: str,
        options: Mapping[str, Any],
        plugins: Sequence[Path] = (),
        message: str | None = None,
        scratch: Path | None = None,
    ) -> AgentLaunch:
        """Return what `headless.plan` returns on the node, which writes the files there."""
        plugin = await self.plugin(agent, options, tuple(plugins))
        parameters: dict[str, Any] = {
            "context": context,
            "agent": agent,
            "options": options,
            "message": message,
            "scratch": scratch,
        }
        agent_launch: AgentLaunch = await self.call("headless.plan", of=plugin, **parameters, plugins=())
        return agent_launch

    async def plugin(self, name: str, options: Mapping[str, Any], plugins: tuple[Path, ...]) -> dict[str, Any]:
        """Return the description of a plugin for a call; plugin files that the node does not have are copied to it first."""
        files = []
        for path in plugins:
            try:
                content = await asyncio.to_thread(read_regular_file, path.resolve())
            except OSError as error:
                raise AoError(f"the plugin file {path} cannot be read: {error.strerror or error}") from None
            digest = hashlib.sha256(content).hexdigest()
            if digest not in self._sent_plugins:
                await self.link.call("plugins.put", {"name": path.name, "sha256": digest}, content)
                self._sent_plugins.add(digest)
            files.append({"name": path.name, "sha256": digest})
        return {"name": name, "options": dict(options), "plugins": files}

    # -- programs ------------------------------------------------------------------------------------------------------

    def git(self, path: Path, env: Mapping[str, str] | None = None) -> Git:
        """Return Git for a folder on the node."""
        return Git(self.host, path, env)

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 - subprocess's own name
        timeout: float | None = 60.0,
    ) -> ProgramResult:
        """Run a program on the node to its end, in the node's own environment plus the variables of `env` that differ from ours."""
        body = {**_program_call(argv, cwd, env), "input": input is not None, "timeout": timeout}
        limit = None if timeout is None else timeout + _EXTRA_ANSWER_SECONDS
        reply = await self.link.call("host.run", body, input or b"", timeout=limit)
        with parsing_peer_data(f"what the node {self.name} answers to host.run"):
            out = int(reply.body["out"])
            return ProgramResult(int(reply.body["code"]), reply.data[:out], reply.data[out:])

    async def stream(
        self,
        argv: Sequence[str],
        report: LineCallback,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = None,
        grace: float = 0.0,
    ) -> int:
        """Run a program on the node and report its output line by line; return its exit code."""
        body = {**_program_call(argv, cwd, env), "input": input is not None, "timeout": timeout, "grace": grace}
        limit = None if timeout is None else timeout + grace + _EXTRA_ANSWER_SECONDS
        reply = await self.link.call("host.stream", body, input or b"", timeout=limit, note=report)
        with parsing_peer_data(f"what the node {self.name} answers to host.stream"):
            return int(reply.body)

    async def environment(self) -> Mapping[str, str]:
        """Return what the node's login shell sets up; every environment on the node is based on it."""
        reply = await self.link.call("host.environment")
        with parsing_peer_data(f"the environment of the node {self.name}"):
            return {str(name): str(value) for name, value in reply.body.items()}

    async def users_of(self, folder: Path) -> list[tuple[int, str]]:
        """Return processes (pid, name) whose working directory or open files are below the folder."""
        reply = await self.link.call("host.users_of", str(folder))
        with parsing_peer_data(f"what the node {self.name} answers to host.users_of"):
            return [(int(pid), str(name)) for pid, name in reply.body]

    # -- files ---------------------------------------------------------------------------------------------------------

    async def path_exists(self, path: Path) -> bool:
        """Return whether something exists at this path."""
        return bool((await self.link.call("files.present", str(path))).body)

    async def read(self, path: Path, longest: int = MAX_MESSAGE_BYTES) -> bytes | None:
        """Return a file's content, or None if there is no such file; raise `AoError` if it is longer than `longest` bytes."""
        content = bytearray()
        while True:
            request = {"path": str(path), "offset": len(content), "limit": _FILE_PIECE_BYTES}
            reply = await self.link.call("files.read", request)
            if not reply.body:
                return None
            content += reply.data
            if len(content) > longest:
                raise AoError(f"{path} of the node {self.name} has over {longest} bytes")
            if len(reply.data) < _FILE_PIECE_BYTES:
                return bytes(content)

    async def write(self, path: Path, data: bytes, *, append: bool = False, mode: int = 0o600) -> None:
        """Write a file, whole or not at all, or append to it; create its folders. A repeated append appends twice."""
        body = {"path": str(path), "append": append, "mode": mode}
        await self.link.call("files.write", body, data)

    async def remove(self, path: Path) -> None:
        """Remove a file, or a folder with its contents, below the node's home; do nothing if it does not exist."""
        await self.link.call("files.remove", str(path))

    # -- work that must not be lost ------------------------------------------------------------------------------------

    async def rescue(
        self, repo: Path, workspace: Path, session: str, named: Sequence[str] = (), branch: str = ""
    ) -> Rescue:
        """Run `sessions.rescue.rescue` on the node; `repo` is the node's own repository that the workspace was made from."""
        parameters: dict[str, Any] = {"repo": repo, "workspace": workspace, "session": session}
        rescue: Rescue = await self.call("rescue.rescue", timeout=None, **parameters, named=tuple(named), branch=branch)
        return rescue

    async def removal_obstacles(
        self, repo: Path, workspace: Path, session: str, named: Sequence[str] = ()
    ) -> tuple[str, ...]:
        """Run `sessions.rescue.is_safe` on the node."""
        parameters: dict[str, Any] = {"repo": repo, "workspace": workspace, "session": session}
        reasons: tuple[str, ...] = await self.call("rescue.is_safe", timeout=None, **parameters, named=tuple(named))
        return reasons

    async def restore_work(self, repo: Path, workspace: Path, session: str) -> RestoreResult:
        """Run `sessions.rescue.bring_back` on the node."""
        outcome: RestoreResult = await self.call(
            "rescue.bring_back", timeout=None, repo=repo, workspace=workspace, session=session
        )
        return outcome

    async def stored_rescue(self, repo: Path, session: str) -> Rescue:
        """Run `sessions.rescue.saved_before` on the node."""
        rescue: Rescue = await self.call("rescue.saved_before", repo=repo, session=session)
        return rescue

    async def checkpoint(
        self, repo: Path, workspace: Path, session: str, named: Sequence[str] = ()
    ) -> CheckpointResult:
        """Run `sessions.rescue.checkpoint` on the node."""
        parameters: dict[str, Any] = {"repo": repo, "workspace": workspace, "session": session}
        checkpoint: CheckpointResult = await self.call(
            "rescue.checkpoint", timeout=None, **parameters, named=tuple(named)
        )
        return checkpoint

    async def restore_checkpoint(self, repo: Path, workspace: Path, session: str) -> RestoreResult:
        """Run `sessions.rescue.from_checkpoint` on the node."""
        parameters: dict[str, Any] = {"repo": repo, "workspace": workspace, "session": session}
        outcome: RestoreResult = await self.call("rescue.from_checkpoint", timeout=None, **parameters)
        return outcome

    async def mark_restored(self, repo: Path, session: str) -> None:
        """Run `sessions.rescue.settle` on the node."""
        await self.call("rescue.settle", repo=repo, session=session)

    async def unsaved(self, workspace: Path) -> str:
        """Run `sessions.rescue.unsaved` on the node."""
        return str(await self.call("rescue.unsaved", workspace=workspace))


def _program_call(argv: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None) -> dict[str, Any]:
    """Return a program for a call; of the environment only the variables that differ from the daemon's own."""
    changed = {name: value for name, value in (env or {}).items() if os.environ.get(name) != value}
    return {"argv": list(argv), "cwd": str(cwd) if cwd else None, "env": changed}


FindNode = Callable[[Hello], Awaitable[RemoteNode]]
"""Returns the node that says hello, a known or a new one; raises `Denied` or another error, which the node receives."""


async def accept_node(transport: Transport, node_for: FindNode) -> RemoteNode:
    """Read who a node that has connected is, and bind it to this link. `node.link.closed` is set when the link is lost.

    Raises what `node_for` raised, and `Denied` if it does not say hello in time; the link is closed then.
    """
    accepted: asyncio.Future[RemoteNode] = asyncio.get_running_loop().create_future()

    async def hello(request: LinkRequest) -> LinkReply:
        """Answer the node's hello: bind the node to this link, or raise why it is refused."""
        try:
            with parsing_peer_data("what a node says of itself"):
                greeting: Hello = from_json(Hello, request.body)
            if greeting.protocol != PROTOCOL_VERSION:
                raise Denied(
                    f"{greeting.name} has version {greeting.version}, which speaks otherwise", "install the same there"
                )
            node = await node_for(greeting)
        except Exception as error:
            if not accepted.done():
                accepted.set_exception(error)
            raise
        node.rebind(request.link, greeting)
        if not accepted.done():
            accepted.set_result(node)
        return LinkReply({"host": socket.gethostname()})

    link = NodeLink(transport, {"hello": hello}, dialled=False, peer="a node")
    link.start()
    ended = asyncio.create_task(link.closed.wait())
    events: list[asyncio.Future[Any]] = [accepted, ended]
    try:
        await asyncio.wait(events, timeout=HELLO_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
        if accepted.done():
            if (refusal := accepted.exception()) is not None:
                await asyncio.wait({ended}, timeout=1.0)  # the node closes the link once it has read why
                raise refusal
            return accepted.result()
        raise Denied("a node dialled and did not say who it is")
    except BaseException as error:
        await link.close(str(error) if isinstance(error, AoError) else "")
        raise
    finally:
        ended.cancel()
