"""The daemon's side of a node: `RemoteNode`, which gives what a session needs there as if it were here.

    node = RemoteNode(hello, home)             kept by the daemon for as long as it knows the node
    await accept(transport, node_for)          a node has dialled: `node_for(hello)` gives its `RemoteNode`, which is bound to the new link
    node.workspace("clone"), node.runtime(), node.agent("codex", options)     the slots of `protocols/`
    node.git(path)                             Git in a folder there
    node.rescue(…), node.bring_back(…) …       `services/rescue`, run there
    node.write(…), node.present(…) …           files there

While a node is not connected everything here raises `LinkLost` (`Temporary`): not seen is not dead. What waits for something that may take
long (`ended`, `listen`) waits for the node to come back, and asks again.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.home import Home
from agent_orchestrator.cluster.link.calls import CALLS, PROTOCOL, Hello, load, understanding
from agent_orchestrator.cluster.link.connection import LARGEST, Handler, Link, LinkLost, Reply, Request, Transport
from agent_orchestrator.cluster.nodes.machine import RemoteHost
from agent_orchestrator.cluster.nodes.mirror import Receiver
from agent_orchestrator.cluster.nodes.proxies import RemoteRuntime, RemoteWorkspace, remote_agent
from agent_orchestrator.errors import AoError, Denied
from agent_orchestrator.protocols import Agent, AgentContext, AgentLaunch, Report, Workspace
from agent_orchestrator.protocols.host import Completed, Host
from agent_orchestrator.sessions.rescue import BroughtBack, Checkpoint, Rescue

HELLO_WITHIN = 15.0
"""Seconds that a node has to say who it is."""
_ANSWERS_WITHIN = 15.0
"""Seconds that an answer may take beyond what was given to the program itself."""
_FILE_PIECE = 8 << 20


class RemoteNode:
    """One node, as long as the daemon knows it; the link to it comes and goes (`rebind`)."""

    def __init__(self, hello: Hello, local: Home, receiver: Receiver | None = None) -> None:
        self.hello = hello
        """What it said of itself when it came last: labels, cpus, memory, the sessions it held then."""
        self.local = local
        """The daemon's own home."""
        self.receiver = receiver or Receiver(local)
        """Takes what the node's sessions write; its `accepts` says whose."""
        self.handlers: dict[str, Handler] = dict(self.receiver.handlers())
        """What the node may ask of the daemon; may be added to."""
        self.host: Host = RemoteHost(self)
        """The machine, for what takes a `Host` and uses its asynchronous half."""
        self._link: Link | None = None
        self._bound = asyncio.Event()
        self._provided: set[str] = set()
        self._runtime = RemoteRuntime(self)

    @property
    def name(self) -> str:
        """Its name."""
        return self.hello.name

    @property
    def home(self) -> Home:
        """Where its files are: names only."""
        return Home(self.hello.home)

    @property
    def boot_id(self) -> str:
        """The node's own boot."""
        return self.hello.boot_id

    # -- the link ------------------------------------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Is there a link just now?"""
        return self._link is not None and not self._link.closed.is_set()

    @property
    def link(self) -> Link:
        """The link; raises `LinkLost` when there is none."""
        if self._link is None or self._link.closed.is_set():
            raise LinkLost(f"the node {self.name} is not connected", "it comes back by itself; ao nodes shows it")
        return self._link

    def rebind(self, link: Link, hello: Hello | None = None) -> None:
        """The node has come (back) by this link; an earlier one is hung up."""
        old, self._link = self._link, link
        self.hello = hello or self.hello
        link.handlers, link.peer = self.handlers, f"the node {self.name}"
        self._provided.clear()
        if old is not None and old is not link and not old.closed.is_set():
            task = asyncio.get_running_loop().create_task(old.close())
            self._closing = task
        self._bound.set()

    async def until_connected(self) -> Link:
        """Wait for the node, for as long as that takes."""
        while not self.connected:
            self._bound.clear()
            await self._bound.wait()
        return self.link

    async def close(self) -> None:
        """Hang up, and serve no terminals any more."""
        self._runtime.close()
        if self._link is not None:
            await self._link.close()

    async def ask(
        self,
        name: str,
        /,
        *,
        of: Mapping[str, Any] | None = None,
        timeout: float | None = 60.0,
        report: Report = lambda _line: None,
        **arguments: Any,
    ) -> Any:
        """Call one of `calls.CALLS` there; `of` says on which plugin, `report` takes its live output."""
        call = CALLS[name]
        body = {"of": dict(of or {}), "args": call.dump(arguments)}
        reply = await self.link.call(name, body, timeout=timeout, note=report)
        with understanding(f"what the node {self.name} answers to {name}"):
            return load(call.returns, reply.body)

    # -- the slots -----------------------------------------------------------------------------------------------------

    def workspace(self, kind: str, plugins: Sequence[Path] = ()) -> Workspace:
        """A workspace plugin there. What it makes has a mirror of its HEAD here as `git_dir`, and is not `shared`."""
        return RemoteWorkspace(self, kind, tuple(plugins))

    def runtime(self) -> RemoteRuntime:
        """The `process` runtime there, by the name of `ray`; one for all. It is `Watchable`, too."""
        return self._runtime

    def agent(self, tool: str, options: Mapping[str, Any], plugins: Sequence[Path] = ()) -> Agent:
        """An agent plugin there; it can what the plugin's own class can (`Listens`, `Delivers`, `Answers` …)."""
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
        """`headless.plan`, written on the node."""
        of = await self.plugin(agent, options, tuple(plugins))
        what: dict[str, Any] = {
            "context": context,
            "agent": agent,
            "options": options,
            "message": message,
            "scratch": scratch,
        }
        planned: AgentLaunch = await self.ask("headless.plan", of=of, **what, plugins=())
        return planned

    async def plugin(self, name: str, options: Mapping[str, Any], plugins: tuple[Path, ...]) -> dict[str, Any]:
        """Which plugin is meant, as the node knows it; plugin files that it does not have yet are brought there."""
        files = []
        for path in plugins:
            try:
                content = await asyncio.to_thread(read_plain, path.resolve())
            except OSError as error:
                raise AoError(f"the plugin file {path} cannot be read: {error.strerror or error}") from None
            digest = hashlib.sha256(content).hexdigest()
            if digest not in self._provided:
                await self.link.call("plugins.put", {"name": path.name, "sha256": digest}, content)
                self._provided.add(digest)
            files.append({"name": path.name, "sha256": digest})
        return {"name": name, "options": dict(options), "plugins": files}

    # -- programs ------------------------------------------------------------------------------------------------------

    def git(self, path: Path, env: Mapping[str, str] | None = None) -> Git:
        """Git in a folder there."""
        return Git(self.host, path, env)

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002 - subprocess's own name
        timeout: float | None = 60.0,
    ) -> Completed:
        """Run a program there to its end, in the node's own environment with what `env` changes of ours."""
        body = {**_program(argv, cwd, env), "input": input is not None, "timeout": timeout}
        limit = None if timeout is None else timeout + _ANSWERS_WITHIN
        reply = await self.link.call("host.run", body, input or b"", timeout=limit)
        with understanding(f"what the node {self.name} answers to host.run"):
            out = int(reply.body["out"])
            return Completed(int(reply.body["code"]), reply.data[:out], reply.data[out:])

    async def stream(
        self,
        argv: Sequence[str],
        report: Report,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,  # noqa: A002
        timeout: float | None = None,
        grace: float = 0.0,
    ) -> int:
        """Run a program there and report its output line by line; returns its exit code."""
        body = {**_program(argv, cwd, env), "input": input is not None, "timeout": timeout, "grace": grace}
        limit = None if timeout is None else timeout + grace + _ANSWERS_WITHIN
        reply = await self.link.call("host.stream", body, input or b"", timeout=limit, note=report)
        with understanding(f"what the node {self.name} answers to host.stream"):
            return int(reply.body)

    async def environment(self) -> Mapping[str, str]:
        """What the login shell there sets up: the beginning of every environment on the node."""
        reply = await self.link.call("host.environment")
        with understanding(f"the environment of the node {self.name}"):
            return {str(name): str(value) for name, value in reply.body.items()}

    async def users_of(self, folder: Path) -> list[tuple[int, str]]:
        """Processes (pid, name) whose working directory or open files are below the folder."""
        reply = await self.link.call("host.users_of", str(folder))
        with understanding(f"what the node {self.name} answers to host.users_of"):
            return [(int(pid), str(name)) for pid, name in reply.body]

    # -- files ---------------------------------------------------------------------------------------------------------

    async def present(self, path: Path) -> bool:
        """Is there something at this path?"""
        return bool((await self.link.call("files.present", str(path))).body)

    async def read(self, path: Path, longest: int = LARGEST) -> bytes | None:
        """A file's content, if it is not too long; none: there is no such file."""
        content = bytearray()
        while True:
            asked = {"path": str(path), "offset": len(content), "limit": _FILE_PIECE}
            reply = await self.link.call("files.read", asked)
            if not reply.body:
                return None
            content += reply.data
            if len(content) > longest:
                raise AoError(f"{path} of the node {self.name} has over {longest} bytes")
            if len(reply.data) < _FILE_PIECE:
                return bytes(content)

    async def write(self, path: Path, data: bytes, *, append: bool = False, mode: int = 0o600) -> None:
        """Write a file, whole or not at all, or append to it; makes its folders. Appending the same again appends it twice."""
        body = {"path": str(path), "append": append, "mode": mode}
        await self.link.call("files.write", body, data)

    async def remove(self, path: Path) -> None:
        """Remove a file or a folder with everything in it; nothing there is fine. Only below the node's home."""
        await self.link.call("files.remove", str(path))

    # -- work that must not be lost ------------------------------------------------------------------------------------

    async def rescue(
        self, repo: Path, workspace: Path, session: str, named: Sequence[str] = (), branch: str = ""
    ) -> Rescue:
        """`services.rescue.rescue`, there: `repo` is the node's own repository that the workspace was made from."""
        where: dict[str, Any] = {"repo": repo, "workspace": workspace, "session": session}
        saved: Rescue = await self.ask("rescue.rescue", timeout=None, **where, named=tuple(named), branch=branch)
        return saved

    async def is_safe(self, repo: Path, workspace: Path, session: str, named: Sequence[str] = ()) -> tuple[str, ...]:
        """`services.rescue.is_safe`, there."""
        where: dict[str, Any] = {"repo": repo, "workspace": workspace, "session": session}
        reasons: tuple[str, ...] = await self.ask("rescue.is_safe", timeout=None, **where, named=tuple(named))
        return reasons

    async def bring_back(self, repo: Path, workspace: Path, session: str) -> BroughtBack:
        """`services.rescue.bring_back`, there."""
        back: BroughtBack = await self.ask(
            "rescue.bring_back", timeout=None, repo=repo, workspace=workspace, session=session
        )
        return back

    async def saved_before(self, repo: Path, session: str) -> Rescue:
        """`services.rescue.saved_before`, there."""
        saved: Rescue = await self.ask("rescue.saved_before", repo=repo, session=session)
        return saved

    async def checkpoint(self, repo: Path, workspace: Path, session: str, named: Sequence[str] = ()) -> Checkpoint:
        """`services.rescue.checkpoint`, there."""
        where: dict[str, Any] = {"repo": repo, "workspace": workspace, "session": session}
        saved: Checkpoint = await self.ask("rescue.checkpoint", timeout=None, **where, named=tuple(named))
        return saved

    async def from_checkpoint(self, repo: Path, workspace: Path, session: str) -> BroughtBack:
        """`services.rescue.from_checkpoint`, there."""
        where: dict[str, Any] = {"repo": repo, "workspace": workspace, "session": session}
        back: BroughtBack = await self.ask("rescue.from_checkpoint", timeout=None, **where)
        return back

    async def settle(self, repo: Path, session: str) -> None:
        """`services.rescue.settle`, there."""
        await self.ask("rescue.settle", repo=repo, session=session)

    async def unsaved(self, workspace: Path) -> str:
        """`services.rescue.unsaved`, there."""
        return str(await self.ask("rescue.unsaved", workspace=workspace))


def _program(argv: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None) -> dict[str, Any]:
    """What to run, as the node is told: of the environment only what is not simply ours. The rest is the node's own."""
    changed = {name: value for name, value in (env or {}).items() if os.environ.get(name) != value}
    return {"argv": list(argv), "cwd": str(cwd) if cwd else None, "env": changed}


NodeFor = Callable[[Hello], Awaitable[RemoteNode]]
"""The node that says hello, known or new; raises `Denied` or another error, which the node is told."""


async def accept(transport: Transport, node_for: NodeFor) -> RemoteNode:
    """A node has dialled: hear who it is and bind it to this connection. `node.link.closed` is set when the connection is gone.

    Raises what `node_for` raised, and `Denied` when it does not say hello in time; the connection is closed then.
    """
    told: asyncio.Future[RemoteNode] = asyncio.get_running_loop().create_future()

    async def hello(request: Request) -> Reply:
        try:
            with understanding("what a node says of itself"):
                who: Hello = load(Hello, request.body)
            if who.protocol != PROTOCOL:
                raise Denied(f"{who.name} has version {who.version}, which speaks otherwise", "install the same there")
            node = await node_for(who)
        except Exception as error:
            if not told.done():
                told.set_exception(error)
            raise
        node.rebind(request.link, who)
        if not told.done():
            told.set_result(node)
        return Reply({"host": socket.gethostname()})

    link = Link(transport, {"hello": hello}, dialled=False, peer="a node")
    link.start()
    ended = asyncio.create_task(link.closed.wait())
    either: list[asyncio.Future[Any]] = [told, ended]
    try:
        await asyncio.wait(either, timeout=HELLO_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        if told.done():
            if (refused := told.exception()) is not None:
                await asyncio.wait({ended}, timeout=1.0)  # it hangs up once it has read why
                raise refused
            return told.result()
        raise Denied("a node dialled and did not say who it is")
    except BaseException as error:
        await link.close(str(error) if isinstance(error, AoError) else "")
        raise
    finally:
        ended.cancel()
