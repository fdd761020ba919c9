"""The process that speaks Ray: `python -m agent_orchestrator.cluster.ray.bridge`, a child of the daemon, in JSON lines on its pipes.

It is told once `{address, key, version}`, then requests `{id, do, …}`, each of which may be repeated:

    place    {session, generation, cpus, memory, labels, node} → {id, node}, when there is one
    release  {session} → {id}
    drain    {nodes} → {id}; these take nobody any more, all others do
    setup    {node, setup} → {id}; what the worker on that node is started with

and says by itself `{event: nodes, nodes: […]}` whenever they change, `{event: waits, session, why}`, and, before it
ends, `{event: lost, why}`.

A session that is placed is a detached placement group of one bundle, named after us, the session and its generation:
Ray chooses the node, counts what is taken, and shows those that wait to its autoscaler. On each node lives a detached
actor, named after us, our version and the node.
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
NODE_ID = "ray.io/node-id"
RESOURCE = "resource/"
"""A label of this beginning asks for so much of one of Ray's resources: `resource/GPU: 1`."""
LOOK_EVERY = 0.5
ANSWERS_WITHIN = 8.0
STARTS_WITHIN = 60.0
_OWN_RESOURCES = ("CPU", "memory", "object_store_memory")


class Lost(Exception):
    """Ray cannot be spoken to any more; the text says why."""


@dataclass(slots=True)
class Node:
    """A node that is alive."""

    id: str
    name: str
    address: str
    cpus: float
    memory: int
    labels: dict[str, str]
    ready: bool = False
    fit: bool = True
    why: str = "is starting"
    keeper: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Placing:
    """A session that waits for its node; nothing of it is under way any more when `over` is set."""

    unwanted: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class Bridge:
    """One connection to Ray."""

    key: str
    version: str
    nodes: dict[str, Node] = field(default_factory=dict)
    drained: frozenset[str] = frozenset()
    setups: dict[str, dict[str, Any]] = field(default_factory=dict)
    placing: dict[str, Placing] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    told: str = ""

    # -- nodes ---------------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Keep up with which nodes there are, until Ray does not answer."""
        await self.tidy()
        while True:
            alive = {node.id: node for node in map(node_of, await asked(ray().nodes)) if node}
            for lost in self.nodes.keys() - alive.keys():
                node = self.nodes.pop(lost)
                if node.keeper:
                    node.keeper.cancel()
            for new in alive.keys() - self.nodes.keys():
                self.nodes[new] = node = alive[new]
                node.keeper = asyncio.create_task(self.keep(node))
            self.tell_nodes()
            await asyncio.sleep(LOOK_EVERY)

    def tell_nodes(self) -> None:
        """Say which nodes there are, if that is news."""
        nodes = [
            {
                "name": node.name,
                "address": node.address,
                "cpus": node.cpus,
                "memory": node.memory,
                "labels": node.labels,
                "ready": node.ready and node.name not in self.drained,
                "why": "is drained" if node.name in self.drained else node.why,
            }
            for node in sorted(self.nodes.values(), key=lambda one: one.name)
        ]
        if (told := json.dumps(nodes)) != self.told:
            self.told = told
            say({"event": "nodes", "nodes": nodes})
            self.news()

    def news(self) -> None:
        """Something changed: those that place look again."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def keep(self, node: Node) -> None:
        """Keep our worker on a node, through its actor."""
        from ray.exceptions import RayError

        while True:
            setup = self.setups.get(node.name)
            if setup is None:
                await self.changed.wait()
                continue
            try:
                await self._attend(node, setup)
            except TimeoutError:
                node.ready, node.why = False, f"its Ray worker does not answer within {STARTS_WITHIN:g} s"
            except RayError:
                node.ready, node.why = False, "its actor is away"
            self.tell_nodes()
            await asyncio.sleep(0.3)

    async def _attend(self, node: Node, setup: dict[str, Any]) -> None:
        """Start or find the actor, and follow it until it is gone or is to run something else."""
        actor = await asked(self.actor, node)
        more = {**setup["more"], "labels": node.labels, "resources": {"cpus": node.cpus, "memory": node.memory}}
        told = {**setup, "more": more, "version": self.version, "name": node.name}
        state = await asyncio.wait_for(actor.work.remote(told), STARTS_WITHIN)
        while self.setups.get(node.name) == setup:
            node.ready, node.fit, node.why = state["ready"], state.get("fit", True), state["why"]
            self.tell_nodes()
            state = await asyncio.wait_for(actor.watch.remote(state["serial"], 5.0), STARTS_WITHIN)

    def actor(self, node: Node) -> Any:
        """The node's actor; Ray restarts it there, and nowhere else."""
        from ray import cloudpickle
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from agent_orchestrator.cluster.ray import actor

        cloudpickle.register_pickle_by_value(actor)
        made = (
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
        return made.remote()

    async def tidy(self) -> None:
        """End the actors of another version of ours."""
        for name in await asked(ray().util.list_named_actors):
            key, _, rest = name.partition("/")
            if key == self.key and not rest.startswith(f"{self.version}/"):
                with contextlib.suppress(ValueError):
                    ray().kill(ray().get_actor(name))

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def place(self, session: str, generation: int, wish: dict[str, Any]) -> str:
        """The name of the node that takes it; nothing, if it is not wanted any more."""
        await self.leave(session)
        self.placing[session] = placing = Placing()
        try:
            return await self._place(placing, session, f"{self.key}/{session}/{generation}", wish)
        finally:
            placing.over.set()
            if self.placing.get(session) is placing:
                del self.placing[session]

    async def leave(self, session: str) -> None:
        """Place it no more; returns when that is so."""
        while placing := self.placing.get(session):
            placing.unwanted = True
            self.news()
            await placing.over.wait()

    async def _place(self, placing: Placing, session: str, name: str, wish: dict[str, Any]) -> str:
        await self.remove(session, but=name)
        selector: dict[str, str] | None = None
        pause, said = 0.002, ""
        while not placing.unwanted:
            group = await asked(found, name)
            wanted = self.selector(wish)
            if group is None and wanted is not None:
                group, selector, pause = await asked(reserve, name, bundle(wish), wanted), wanted, 0.002
            state, where = await asked(state_of, group) if group else ("PENDING", "")
            if state == "CREATED" and (node := self.nodes.get(where)) and self.takes(node, wish):
                if node.ready:
                    return node.name
                why = f"the node {node.name}, which {node.why}"
            else:
                why = self.lack(wish)
                if group and ((state == "CREATED" and where in self.nodes) or selector not in (None, wanted)):
                    await asked(remove, group)
                    continue
            if why != said and pause > 0.1:
                said = why
                say({"event": "waits", "session": session, "why": why})
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), pause)
            pause = min(pause * 2, 1.0)
        return ""

    def takes(self, node: Node, wish: dict[str, Any]) -> bool:
        """May a session be placed there?"""
        return node.fit and node.name not in self.drained and wish["node"] in (None, node.name)

    def selector(self, wish: dict[str, Any]) -> dict[str, str] | None:
        """What the node's labels must be, in Ray's words; none: nothing that Ray could wait for."""
        labels = {key: value for key, value in wish["labels"].items() if not key.startswith(RESOURCE)}
        if wish["node"] is not None:
            named = [node.id for node in self.nodes.values() if self.takes(node, wish)]
            return {**labels, NODE_ID: named[0]} if named else None
        barred = sorted(node.id for node in self.nodes.values() if not self.takes(node, wish))
        return {**labels, NODE_ID: f"!in({','.join(barred)})"} if barred else labels

    def lack(self, wish: dict[str, Any]) -> str:
        """What a session waits for, in words."""
        nodes = [node for node in self.nodes.values() if wish["node"] in (None, node.name)]
        if not nodes:
            return (
                f"the node {wish['node']}, which is not in the cluster"
                if wish["node"]
                else "a node: the cluster has none"
            )
        labelled = [node for node in nodes if wish["labels"].items() <= node.labels.items() or not wish["labels"]]
        if not labelled:
            return f"a node with the labels {', '.join(f'{key}={value}' for key, value in wish['labels'].items())}"
        open_ones = [node for node in labelled if self.takes(node, wish)]
        if not open_ones:
            node = labelled[0]
            return f"a node: {node.name} {'is drained' if node.name in self.drained else node.why}"
        return f"a node with {wish['cpus']:g} cpus and {wish['memory'] >> 20} MB free"

    async def remove(self, session: str, but: str = "") -> None:
        """Give back what a session has reserved."""
        for name in await asked(names):
            key, _, rest = name.partition("/")
            if (
                key == self.key
                and rest.rpartition("/")[0] == session
                and name != but
                and (group := await asked(found, name))
            ):
                await asked(remove, group)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def serve(self, lines: asyncio.StreamReader) -> None:
        """Take requests until the daemon is gone."""
        running: set[asyncio.Task[None]] = set()
        while line := await lines.readline():
            request = json.loads(line)
            task = asyncio.create_task(self.answer(request))
            running.add(task)
            task.add_done_callback(running.discard)

    async def answer(self, request: dict[str, Any]) -> None:
        """Do one."""
        from ray.exceptions import RayError

        answer: dict[str, Any] = {"id": request["id"]}
        try:
            match request["do"]:
                case "place":
                    wish = {name: request[name] for name in ("cpus", "memory", "labels", "node")}
                    answer["node"] = await self.place(request["session"], request["generation"], wish)
                case "release":
                    await self.leave(request["session"])
                    await self.remove(request["session"])
                case "drain":
                    self.drained = frozenset(request["nodes"])
                    self.tell_nodes()
                case "setup":
                    self.setups[request["node"]] = request["setup"]
                    self.news()
        except (RayError, ValueError) as error:
            answer["error"] = first_line(error)
        except Lost as error:
            end(str(error))
        say(answer)


# -- Ray ---------------------------------------------------------------------------------------------------------------


def ray() -> Any:
    """The package; it takes long to import, and may not be there."""
    import ray as package

    return package


async def asked(call: Any, *arguments: Any) -> Any:
    """Ask Ray's head, which may not answer."""
    try:
        return await asyncio.wait_for(asyncio.to_thread(call, *arguments), ANSWERS_WITHIN)
    except TimeoutError:
        raise Lost(f"Ray's head does not answer within {ANSWERS_WITHIN:g} s") from None


def node_of(told: dict[str, Any]) -> Node | None:
    """A node of Ray's that could take a session."""
    resources = told["Resources"]
    if not told["Alive"] or not resources.get("CPU"):
        return None
    labels = {key: value for key, value in told["Labels"].items() if key != NODE_ID}
    for name, amount in resources.items():
        if name not in _OWN_RESOURCES and not name.startswith(("node:", "bundle_group")) and "_group_" not in name:
            labels[f"{RESOURCE}{name}"] = f"{amount:g}"
    return Node(
        id=told["NodeID"],
        name=told["NodeName"] or told["NodeManagerAddress"],
        address=told["NodeManagerAddress"],
        cpus=resources["CPU"],
        memory=int(resources.get("memory", 0)),
        labels=labels,
    )


def bundle(wish: dict[str, Any]) -> dict[str, float]:
    """What a session takes of its node."""
    amounts = {"CPU": float(wish["cpus"]), "memory": float(wish["memory"])}
    for key, value in wish["labels"].items():
        if key.startswith(RESOURCE):
            amounts[key.removeprefix(RESOURCE)] = float(value)
    return {name: amount for name, amount in amounts.items() if amount} or {"CPU": 0.001}


def reserve(name: str, amounts: dict[str, float], selector: dict[str, str]) -> Any:
    """A placement group of one bundle, which stays when we end."""
    return ray().util.placement_group([amounts], name=name, lifetime="detached", bundle_label_selector=[selector])


def found(name: str) -> Any:
    """The placement group of this name."""
    try:
        return ray().util.get_placement_group(name)
    except ValueError:
        return None


def names() -> list[str]:
    """Of all placement groups that are there or waited for."""
    return [one["name"] for one in ray().util.placement_group_table().values() if one["state"] != "REMOVED"]


def state_of(group: Any) -> tuple[str, str]:
    """Its state, and the node it is on."""
    told = ray().util.placement_group_table(group)
    return told.get("state", "REMOVED"), told.get("bundles_to_node_id", {}).get(0) or ""


def remove(group: Any) -> None:
    """Give it back."""
    ray().util.remove_placement_group(group)


def connect(address: str) -> None:
    """Become a driver, on a machine that is a node of the cluster."""
    if address.startswith("ray://"):
        raise Lost(f"{address} is an address for Ray's client: give the head's own, host:6379, or auto")
    try:
        package = ray()
    except ImportError:
        raise Lost("Ray is not installed: pip install 'agent-orchestrator[ray]'") from None
    try:
        package.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except Exception as error:
        where = "on this machine" if address == "auto" else f"at {address}"
        raise Lost(
            f"no Ray cluster can be reached {where} ({first_line(error)}): this machine must be a node of it, "
            "ray start --address HEAD:6379 --num-cpus 0"
        ) from None


def first_line(error: BaseException) -> str:
    """What an error of Ray's says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0][:300]


# -- the daemon --------------------------------------------------------------------------------------------------------

_OUT: list[int] = []


def say(record: dict[str, Any]) -> None:
    """One line to the daemon."""
    left = json.dumps(record).encode() + b"\n"
    try:
        while left:
            left = left[os.write(_OUT[0], left) :]
    except OSError:
        os._exit(0)


def end(why: str) -> None:
    """Say why, and end without asking Ray."""
    say({"event": "lost", "why": why})
    os._exit(1)


async def run() -> None:
    """Until the daemon or Ray is gone."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=1 << 22)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    begin = json.loads(await lines.readline() or b"null")
    if begin is None:
        return
    bridge = Bridge(begin["key"], begin["version"])
    try:
        await asyncio.to_thread(connect, begin["address"])
        say({"event": "connected"})
        serving, looking = asyncio.create_task(bridge.serve(lines)), asyncio.create_task(bridge.look())
        done, _ = await asyncio.wait((serving, looking), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except Lost as error:
        end(str(error))
    except Exception as error:
        end(f"{type(error).__name__}: {first_line(error)}")
    os._exit(0)


def main() -> None:
    """What others print must not reach the daemon: it gets a pipe of our own."""
    _OUT.append(os.dup(1))
    os.dup2(2, 1)
    asyncio.run(run())


if __name__ == "__main__":
    main()
