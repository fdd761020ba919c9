"""The Ray bridge's requests and the actor's reports about its node, without Ray."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import agent_orchestrator
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.cluster.ray import actor, bridge


def wish(**more: Any) -> dict[str, Any]:
    return {"cpus": 1.0, "memory": 0, "labels": {}, "node": None, **more}


def cluster() -> bridge.RayBridge:
    descriptions = [
        {
            "NodeID": f"id-{name}",
            "NodeName": name,
            "NodeManagerAddress": f"10.0.0.{number}",
            "Alive": True,
            "Labels": {"ray.io/node-id": f"id-{name}", "region": region},
            "Resources": {
                "CPU": cpus,
                "memory": 1e9,
                "object_store_memory": 1e8,
                f"node:10.0.0.{number}": 1.0,
                "GPU": 2.0,
            },
        }
        for number, (name, region, cpus) in enumerate([("head", "eu", 0.0), ("n1", "eu", 4.0), ("n2", "us", 4.0)])
    ]
    nodes = {node.id: node for node in map(bridge.node_of, descriptions) if node}
    return bridge.RayBridge("ao-x", "1.0", nodes)


def test_ray_nodes_that_can_run_sessions_are_listed() -> None:
    nodes = cluster().nodes
    assert list(nodes) == ["id-n1", "id-n2"], "the head has no CPU to lend"
    assert nodes["id-n1"].labels == {"region": "eu", "resource/GPU": "2"}


def test_labels_names_and_drained_nodes_become_a_ray_selector() -> None:
    ray = cluster()
    assert ray.selector(wish()) == {}
    assert ray.selector(wish(labels={"region": "eu", "resource/GPU": "1"})) == {"region": "eu"}
    assert ray.selector(wish(node="n2")) == {"ray.io/node-id": "id-n2"}
    assert ray.selector(wish(node="n9")) is None
    ray.drained = frozenset({"n1"})
    ray.nodes["id-n2"].is_usable = False
    assert ray.selector(wish()) == {"ray.io/node-id": "!in(id-n1,id-n2)"}


def test_a_bundle_has_the_resources_of_a_session() -> None:
    assert bridge.requested_resources(wish(memory=5)) == {"CPU": 1.0, "memory": 5.0}
    assert bridge.requested_resources(wish(cpus=0, labels={"region": "eu", "resource/GPU": "1"})) == {"GPU": 1.0}
    assert bridge.requested_resources(wish(cpus=0)) == {"CPU": 0.001}, "Ray takes no empty one"


def test_the_missing_resource_of_a_waiting_session_is_named() -> None:
    ray = cluster()
    assert ray.waiting_reason(wish(node="n9")) == "the node n9, which is not in the cluster"
    assert ray.waiting_reason(wish(labels={"region": "mars"})) == "a node with the labels region=mars"
    assert ray.waiting_reason(wish(cpus=9, memory=2 << 30)) == "a node with 9 cpus and 2048 MB free"
    ray.drained = frozenset({"n1"})
    assert ray.waiting_reason(wish(node="n1")) == "a node: n1 is drained"


def test_a_node_without_a_matching_package_is_refused_with_a_remedy() -> None:
    assert actor.missing_requirement(agent_orchestrator.__version__) is None
    lack = actor.missing_requirement("99.1")
    assert lack is not None and "the daemon 99.1" in lack and "pip install 'agent-orchestrator[ray]==99.1'" in lack


def test_a_worker_is_recognized_by_pid_and_start_time(tmp_path: Path) -> None:
    me = LocalHost().process(os.getpid())
    assert me is not None
    state = {"pid": me.pid, "started": me.started, "setup": "digest"}
    assert actor.read_running_state(str(tmp_path)) is None
    (tmp_path / actor.STATE_FILE).write_text(json.dumps(state))
    assert actor.read_running_state(str(tmp_path)) == state
    (tmp_path / actor.STATE_FILE).write_text(json.dumps({**state, "started": "1"}))
    assert actor.read_running_state(str(tmp_path)) is None, "another process has that pid now"


def test_addresses_of_the_ray_client_are_refused() -> None:
    try:
        bridge.connect("ray://head:10001")
    except bridge.RayUnreachable as error:
        assert "host:6379" in str(error)
    else:
        raise AssertionError("it was taken")
