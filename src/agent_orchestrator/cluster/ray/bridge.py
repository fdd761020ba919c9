"""The process that uses Ray: `python -m agent_orchestrator.cluster.ray.bridge`, a child of the daemon, with JSON lines on its pipes.

Its first line is `{address, key, version}`; then come requests `{id, do, …}`, each of which may be repeated:

    place    {session, generation, cpus, memory, labels, node} → {id, node}, when there is one
    release  {session} → {id}
    drain    {nodes} → {id}; no sessions are placed on these, but on all others
    setup    {node, setup} → {id}; what the worker on that node is started with

and it sends `{event: nodes, nodes: […]}` whenever they change, `{event: waits, session, why}`, and, before it
ends, `{event: lost, why}`.

A session that is placed is a detached placement group of one bundle, named after the daemon's key, the session and its generation:
Ray chooses the node, counts what is taken, and shows waiting sessions to its autoscaler. On each node lives a detached
actor, named after the daemon's key, our version and the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Any

NAMESPACE = "agent-orchestrator"
"""The Ray namespace of our actors and placement groups."""
NODE_ID_LABEL = "ray.io/node-id"
"""Ray's label with a node's id."""
RESOURCE_PREFIX = "resource/"
"""A label with this prefix requests an amount of one of Ray's resources: `resource/GPU: 1`."""
POLL_SECONDS = 0.5
"""Seconds between two reads of Ray's list of nodes."""
HEAD_TIMEOUT = 8.0
"""Seconds that Ray's head has to answer."""
ACTOR_TIMEOUT = 60.0
"""Seconds that a node's actor has to answer, including its start."""
_BUILT_IN_RESOURCES = ("CPU", "memory", "object_store_memory")
"""Ray's built-in resources, which are not shown as labels."""


class RayUnreachable(Exception):
    """Ray cannot be reached any more; the text says why."""


@dataclass(slots=True)
class RayNode:
    """A node that is alive."""

    id: str
    name: str
    address: str
    cpus: float
    memory: int
    labels: dict[str, str]
    ready: bool = False
    is_usable: bool = True
    not_ready_reason: str = "is starting"
    keeper: asyncio.Task[None] | None = None


@dataclass(slots=True)
class PendingPlacement:
    """A session that waits for its node; `over` is set when its placing has ended."""

    is_cancelled: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class RayBridge:
    """One connection to Ray."""

    key: str
    version: str
    nodes: dict[str, RayNode] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    setups: dict[str, dict[str, Any]] = field(default_factory=dict)
    pending_placements: dict[str, PendingPlacement] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    last_listing: str = ""

    # -- nodes ---------------------------------------------------------------------------------------------------------

    async def follow_nodes(self) -> None:
        """Keep the list of nodes up to date until Ray does not answer."""
        await self.kill_outdated_actors()
        while True:
            alive = {node.id: node for node in map(node_of, await call_ray(ray().nodes)) if node}
            for lost_id in self.nodes.keys() - alive.keys():
                node = self.nodes.pop(lost_id)
                if node.keeper:
                    node.keeper.cancel()
            for new_id in alive.keys() - self.nodes.keys():
                self.nodes[new_id] = node = alive[new_id]
                node.keeper = asyncio.create_task(self.keep_worker_running(node))
            self.report_nodes()
            await asyncio.sleep(POLL_SECONDS)

    def report_nodes(self) -> None:
        """Send the list of nodes to the daemon if it has changed."""
        nodes = [
            {
                "name": node.name,
                "address": node.address,
                "cpus": node.cpus,
                "memory": node.memory,
                "labels": node.labels,
                "ready": node.ready and node.name not in self.drained,
                "why": "is drained" if node.name in self.drained else node.not_ready_reason,
            }
            for node in sorted(self.nodes.values(), key=lambda node: node.name)
        ]
        if (listing := json.dumps(nodes)) != self.last_listing:
            self.last_listing = listing
            send_to_daemon({"event": "nodes", "nodes": nodes})
            self.wake_waiting()

    def wake_waiting(self) -> None:
        """Wake everything that waits for a change of nodes or setups."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def keep_worker_running(self, node: RayNode) -> None:
        """Keep our worker running on a node, through its actor."""
        from ray.exceptions import RayError

        while True:
            setup = self.setups.get(node.name)
            if setup is None:
                await self.changed.wait()
                continue
            try:
                await self._follow_actor(node, setup)
            except TimeoutError:
                node.ready, node.not_ready_reason = False, f"its Ray worker does not answer within {ACTOR_TIMEOUT:g} s"
            except RayError:
                node.ready, node.not_ready_reason = False, "its actor is away"
            self.report_nodes()
            await asyncio.sleep(0.3)

    async def _follow_actor(self, node: RayNode, setup: dict[str, Any]) -> None:
        """Start or find the node's actor, and follow its state until it is lost or the node's setup changes."""
        actor = await call_ray(self.actor, node)
        options = {**setup["more"], "labels": node.labels, "resources": {"cpus": node.cpus, "memory": node.memory}}
        actor_setup = {**setup, "more": options, "version": self.version, "name": node.name}
        state = await asyncio.wait_for(actor.work.remote(actor_setup), ACTOR_TIMEOUT)
        while self.setups.get(node.name) == setup:
            node.ready, node.is_usable, node.not_ready_reason = state["ready"], state.get("fit", True), state["why"]
            self.report_nodes()
            state = await asyncio.wait_for(actor.watch.remote(state["serial"], 5.0), ACTOR_TIMEOUT)

    def actor(self, node: RayNode) -> Any:
        """Return the node's actor; Ray restarts it on this node only."""
        from ray import cloudpickle
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from agent_orchestrator.cluster.ray import actor

        cloudpickle.register_pickle_by_value(actor)
        actor_class = (
            ray()
            .remote(actor.NodeActor)
            .options(
                name=f"{self.key}/{self.version}/{node.id}",
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=8,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
        )
        return actor_class.remote()

    async def kill_outdated_actors(self) -> None:
        """Kill the actors that another version of our package started."""
        for name in await call_ray(ray().util.list_named_actors):
            key, _, rest = name.partition("/")
            if key == self.key and not rest.startswith(f"{self.version}/"):
                with contextlib.suppress(ValueError):
                    ray().kill(ray().get_actor(name))

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def place(self, session: str, generation: int, wish: dict[str, Any]) -> str:
        """Return the name of the session's node, or "" if it is not needed any more."""
        await self.cancel_placing(session)
        self.pending_placements[session] = placing = PendingPlacement()
        try:
            return await self._place_until_ready(placing, session, f"{self.key}/{session}/{generation}", wish)
        finally:
            placing.ended.set()
            if self.pending_placements.get(session) is placing:
                del self.pending_placements[session]

    async def cancel_placing(self, session: str) -> None:
        """Stop placing the session; return when that has ended."""
        while placing := self.pending_placements.get(session):
            placing.is_cancelled = True
            self.wake_waiting()
            await placing.ended.wait()

    async def _place_until_ready(self, placing: PendingPlacement, session: str, name: str, wish: dict[str, Any]) -> str:
        """Reserve the session's place, again where needed, until its node is ready or the place is not needed any more."""
        await self.remove_reservations(session, but=name)
        selector: dict[str, str] | None = None
        pause, last_reason = 0.002, ""
        while not placing.is_cancelled:
            group = await call_ray(placement_group, name)
            required = self.selector(wish)
            if group is None and required is not None:
                group, selector, pause = (
                    await call_ray(reserve, name, requested_resources(wish), required),
                    required,
                    0.002,
                )
            state, node_id = await call_ray(placement_group_state, group) if group else ("PENDING", "")
            if state == "CREATED" and (node := self.nodes.get(node_id)) and self.can_take(node, wish):
                if node.ready:
                    return node.name
                reason = f"the node {node.name}, which {node.not_ready_reason}"
            else:
                reason = self.waiting_reason(wish)
                if group and ((state == "CREATED" and node_id in self.nodes) or selector not in (None, required)):
                    await call_ray(remove_placement_group, group)
                    continue
            if reason != last_reason and pause > 0.1:
                last_reason = reason
                send_to_daemon({"event": "waits", "session": session, "why": reason})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), pause)
            pause = min(pause * 2, 1.0)
        return ""

    def can_take(self, node: RayNode, wish: dict[str, Any]) -> bool:
        """Return whether a session may be placed on the node."""
        return node.is_usable and node.name not in self.drained and wish["node"] in (None, node.name)

    def selector(self, wish: dict[str, Any]) -> dict[str, str] | None:
        """Return the labels that the node must have, in Ray's syntax, or None if the requested node cannot be used."""
        labels = {key: value for key, value in wish["labels"].items() if not key.startswith(RESOURCE_PREFIX)}
        if wish["node"] is not None:
            matching = [node.id for node in self.nodes.values() if self.can_take(node, wish)]
            return {**labels, NODE_ID_LABEL: matching[0]} if matching else None
        barred = sorted(node.id for node in self.nodes.values() if not self.can_take(node, wish))
        return {**labels, NODE_ID_LABEL: f"!in({','.join(barred)})"} if barred else labels

    def waiting_reason(self, wish: dict[str, Any]) -> str:
        """Return what a session waits for, in words."""
        nodes = [node for node in self.nodes.values() if wish["node"] in (None, node.name)]
        if not nodes:
            return (
                f"the node {wish['node']}, which is not in the cluster"
                if wish["node"]
                else "a node: the cluster has none"
            )
        matching = [node for node in nodes if wish["labels"].items() <= node.labels.items() or not wish["labels"]]
        if not matching:
            return f"a node with the labels {', '.join(f'{key}={value}' for key, value in wish['labels'].items())}"
        available = [node for node in matching if self.can_take(node, wish)]
        if not available:
            node = matching[0]
            return f"a node: {node.name} {'is drained' if node.name in self.drained else node.not_ready_reason}"
        return f"a node with {wish['cpus']:g} cpus and {wish['memory'] >> 20} MB free"

    async def remove_reservations(self, session: str, but: str = "") -> None:
        """Remove all reservations of a session, except the one named `but`."""
        for name in await call_ray(placement_group_names):
            key, _, rest = name.partition("/")
            if (
                key == self.key
                and rest.rpartition("/")[0] == session
                and name != but
                and (group := await call_ray(placement_group, name))
            ):
                await call_ray(remove_placement_group, group)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def serve(self, lines: asyncio.StreamReader) -> None:
        """Answer requests until the daemon is gone."""
        running: set[asyncio.Task[None]] = set()
        while line := await lines.readline():
            request = json.loads(line)
            task = asyncio.create_task(self.answer(request))
            running.add(task)
            task.add_done_callback(running.discard)

    async def answer(self, request: dict[str, Any]) -> None:
        """Carry out one request and send its answer."""
        from ray.exceptions import RayError

        answer: dict[str, Any] = {"id": request["id"]}
        try:
            match request["do"]:
                case "place":
                    wish = {name: request[name] for name in ("cpus", "memory", "labels", "node")}
                    answer["node"] = await self.place(request["session"], request["generation"], wish)
                case "release":
                    await self.cancel_placing(request["session"])
                    await self.remove_reservations(request["session"])
                case "drain":
                    self.drained = frozenset(request["nodes"])
                    self.report_nodes()
                case "setup":
                    self.setups[request["node"]] = request["setup"]
                    self.wake_waiting()
        except (RayError, ValueError) as error:
            answer["error"] = first_line(error)
        except RayUnreachable as error:
            exit_lost(str(error))
        send_to_daemon(answer)


# -- Ray ---------------------------------------------------------------------------------------------------------------


def ray() -> Any:
    """Return the Ray package; it takes long to import, and may not be installed."""
    import ray as package

    return package


async def call_ray(call: Any, *arguments: Any) -> Any:
    """Return the result of a call to Ray's head; raise `RayUnreachable` if it does not answer."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(call, *arguments), HEAD_TIMEOUT)
    except TimeoutError:
        raise RayUnreachable(f"Ray's head does not answer within {HEAD_TIMEOUT:g} s") from None


def node_of(entry: dict[str, Any]) -> RayNode | None:
    """Return a node of Ray's list, or None if it could not take a session."""
    resources = entry["Resources"]
    if not entry["Alive"] or not resources.get("CPU"):
        return None
    labels = {key: value for key, value in entry["Labels"].items() if key != NODE_ID_LABEL}
    for name, amount in resources.items():
        if name not in _BUILT_IN_RESOURCES and not name.startswith(("node:", "bundle_group")) and "_group_" not in name:
            labels[f"{RESOURCE_PREFIX}{name}"] = f"{amount:g}"
    return RayNode(
        id=entry["NodeID"],
        name=entry["NodeName"] or entry["NodeManagerAddress"],
        address=entry["NodeManagerAddress"],
        cpus=resources["CPU"],
        memory=int(resources.get("memory", 0)),
        labels=labels,
    )


def requested_resources(wish: dict[str, Any]) -> dict[str, float]:
    """Return the resources that a session takes of its node."""
    amounts = {"CPU": float(wish["cpus"]), "memory": float(wish["memory"])}
    for key, value in wish["labels"].items():
        if key.startswith(RESOURCE_PREFIX):
            amounts[key.removeprefix(RESOURCE_PREFIX)] = float(value)
    return {name: amount for name, amount in amounts.items() if amount} or {"CPU": 0.001}


def reserve(name: str, amounts: dict[str, float], selector: dict[str, str]) -> Any:
    """Create a placement group of one bundle, which stays when this process ends."""
    return ray().util.placement_group([amounts], name=name, lifetime="detached", bundle_label_selector=[selector])


def placement_group(name: str) -> Any:
    """Return the placement group of this name, or None."""
    try:
        return ray().util.get_placement_group(name)
    except ValueError:
        return None


def placement_group_names() -> list[str]:
    """Return the names of all placement groups that exist or are pending."""
    return [entry["name"] for entry in ray().util.placement_group_table().values() if entry["state"] != "REMOVED"]


def placement_group_state(group: Any) -> tuple[str, str]:
    """Return a placement group's state and the id of its node, or "" for that."""
    entry = ray().util.placement_group_table(group)
    return entry.get("state", "REMOVED"), entry.get("bundles_to_node_id", {}).get(0) or ""


def remove_placement_group(group: Any) -> None:
    """Remove a placement group."""
    ray().util.remove_placement_group(group)


def connect(address: str) -> None:
    """Become a driver, on a machine that is a node of the cluster; raise `RayUnreachable` if that fails."""
    if address.startswith("ray://"):
        raise RayUnreachable(f"{address} is an address for Ray's client: give the head's own, host:6379, or auto")
    try:
        package = ray()
    except ImportError:
        raise RayUnreachable("Ray is not installed: pip install 'agent-orchestrator[ray]'") from None
    try:
        package.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except Exception as error:
        location = "on this machine" if address == "auto" else f"at {address}"
        raise RayUnreachable(
            f"no Ray cluster can be reached {location} ({first_line(error)}): this machine must be a node of it, "
            "ray start --address HEAD:6379 --num-cpus 0"
        ) from None


def first_line(error: BaseException) -> str:
    """Return the first line of a Ray error's text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0][:300]


# -- the daemon --------------------------------------------------------------------------------------------------------

_DAEMON_PIPE: list[int] = []
"""The descriptor for lines to the daemon; set by `main`."""


def send_to_daemon(record: dict[str, Any]) -> None:
    """Write one line to the daemon; exit if the daemon is gone."""
    remaining = json.dumps(record).encode() + b"\n"
    try:
        while remaining:
            remaining = remaining[os.write(_DAEMON_PIPE[0], remaining) :]
    except OSError:
        os._exit(0)


def exit_lost(why: str) -> None:
    """Send the daemon the reason, and exit without calling Ray."""
    send_to_daemon({"event": "lost", "why": why})
    os._exit(1)


async def run() -> None:
    """Serve until the daemon is gone (exit code 0) or Ray is (a line `lost` and exit code 1)."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 22)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    begin = json.loads(await lines.readline() or b"null")
    if begin is None:
        return
    bridge = RayBridge(begin["key"], begin["version"])
    try:
        await asyncio.to_thread(connect, begin["address"])
        send_to_daemon({"event": "connected"})
        serving, looking = asyncio.create_task(bridge.serve(lines)), asyncio.create_task(bridge.follow_nodes())
        finished, _ = await asyncio.wait((serving, looking), return_when=asyncio.FIRST_COMPLETED)
        for task in finished:
            task.result()
    except RayUnreachable as error:
        exit_lost(str(error))
    except Exception as error:
        exit_lost(f"{type(error).__name__}: {first_line(error)}")
    os._exit(0)


def main() -> None:
    """Run the process.

    Its standard output is redirected to standard error, so that other output does not reach the daemon.
    """
    _DAEMON_PIPE.append(os.dup(1))
    os.dup2(2, 1)
    asyncio.run(run())


if __name__ == "__main__":
    main()
