"""The contract suite on the runtime of a node, over a link in memory on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path

from agent_orchestrator.base.files.watch import FileWatcher
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster.daemon.mirror import Mirror
from agent_orchestrator.cluster.daemon.remote_node import RemoteNode
from agent_orchestrator.cluster.link.calls import PROTOCOL_VERSION, Hello
from agent_orchestrator.cluster.link.connection import LinkReply, LinkRequest, NodeLink
from agent_orchestrator.cluster.node.call_server import CallServer
from agent_orchestrator.protocols import Runtime
from agent_orchestrator.testing.contracts.runtime import RuntimeContract
from tests.integration.cluster.bench import Pipe


async def renew(_request: LinkRequest) -> LinkReply:
    """Renew every lease."""
    return LinkReply({"length": 30, "refused": []})


def linked(home: Path) -> tuple[RemoteNode, asyncio.Task[None]]:
    """Return a node with this home, and the task that serves it."""
    host, watch, there, local = LocalHost(), FileWatcher(), Home(home), Home(home.parent / "daemon")
    there.create_folders()
    local.create_folders()
    mirror = Mirror(there, watch)
    serving = CallServer(there, host, watch, mirror)
    out: asyncio.Queue[bytes | None] = asyncio.Queue(4)
    back: asyncio.Queue[bytes | None] = asyncio.Queue(4)
    end = NodeLink(Pipe(out, back), serving.handlers, serving.channels, dialled=True, peer="the daemon")
    node = RemoteNode(
        Hello("n1", host.boot_id(), "0", PROTOCOL_VERSION, home, 1, 1), local, handlers={"lease.renew": renew}
    )
    daemon = NodeLink(Pipe(back, out), {}, dialled=False, peer="n1")
    node.rebind(daemon)
    end.start()
    daemon.start()
    return node, asyncio.get_running_loop().create_task(mirror.serve(end))


class TestRemote(RuntimeContract):
    def new_runtime(self, home: Path) -> Runtime:
        self._nodes: list[tuple[RemoteNode, asyncio.Task[None]]] = [*getattr(self, "_nodes", []), linked(home)]
        return self._nodes[-1][0].runtime()

    async def close_runtime(self, runtime: Runtime, home: Path) -> None:  # noqa: ARG002 - the contract's
        for node, serving in self._nodes:
            await node.close()
            await serving
