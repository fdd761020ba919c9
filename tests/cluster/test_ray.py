"""Three nodes of a Ray cluster: sessions run on the requested nodes and survive failures of Ray, nodes and the daemon."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter

from tests.cluster.fleet import LabFleet, boot_time, overlaps


def test_sessions_run_on_the_requested_node(fleet: LabFleet) -> None:
    nodes = fleet.nodes()
    assert nodes["n1"]["labels"] == {"gpu": "a100", "region": "eu"} and nodes["n1"]["cpus"] == 8
    fleet.create_session("named", "--node", "n3")
    assert fleet.node_of("named") == "n3" and fleet.launches("named")[0].machine == "n3"
    refused = fleet.box.ao("new", "count", "--node", "n9", check=False)
    assert refused.returncode == 3 and "no node n9" in refused.stderr and "n1, n2, n3" in refused.stderr


def test_commits_messages_logs_and_diffs_work_as_on_the_local_machine(fleet: LabFleet) -> None:
    fleet.create_session("plain")
    fleet.wait_until(lambda: any(life.committed for life in fleet.launches("plain")), "a commit")
    fleet.wait_until(lambda: "step" in fleet.last_commit_title("plain"), "the commit here")
    fleet.box.ao("send", "plain", "hello there")
    fleet.wait_until(lambda: fleet.launches("plain")[0].messages == ("hello there",), "the message")
    assert "ready" in fleet.box.ao("logs", "plain").stdout
    assert "work.txt" in fleet.box.ao("diff", "plain").stdout


def test_sessions_of_a_powered_off_node_continue_elsewhere(fleet: LabFleet) -> None:
    fleet.create_session("power", "--node", "n2")
    fleet.wait_until(lambda: len(fleet.launches("power")[0].wrote) > 12, "some work")
    fleet.lab.machine("n2").power_off()
    back_elsewhere(fleet, "power", boot_time())


def test_a_cut_off_node_ends_its_agents_before_others_start(fleet: LabFleet) -> None:
    fleet.create_session("cut", "--node", "n2")
    fleet.wait_until(lambda: len(fleet.launches("cut")[0].wrote) > 12, "some work")
    machine = fleet.lab.machine("n2")
    machine.unplug()
    back_elsewhere(fleet, "cut", boot_time())
    assert machine.processes(str(fleet.witness)) == [] and not machine.processes("tests/cluster/agent.py")
    was = len(fleet.launches("cut"))
    machine.plug()
    fleet.wait_until_ready()
    assert len(fleet.launches("cut")) == was, "a node that returns too late starts nothing"


def back_elsewhere(fleet: LabFleet, name: str, gone: float) -> None:
    """Assert that a session works on another machine within the lease plus 15 s, with its saved work."""
    fleet.wait_until(lambda: len(fleet.launches(name)) == 2, "another agent elsewhere", fleet.lease + 20)
    first, second = fleet.launches(name)
    assert second.machine != first.machine
    assert not overlaps([first, second])
    assert first.last - gone < fleet.lease + 0.5
    assert second.begin - gone < fleet.lease + 1 + 15
    assert all(at > gone - fleet.checkpoint - 3 for at, number in first.wrote if number > second.initial_number)
    assert all(at > gone - 3 for at, number in first.committed if number > second.initial_commit)


def test_drain_moves_sessions_to_other_nodes_with_their_work(fleet: LabFleet) -> None:
    fleet.create_session("drained", "--node", "n1")
    fleet.wait_until(lambda: len(fleet.launches("drained")[0].wrote) > 6, "some work")
    done = json.loads(fleet.box.ao("drain", "n1", "--now", "--json").stdout)
    assert done["left"] == []
    try:
        fleet.wait_until(lambda: len(fleet.launches("drained")) == 2, "it to go on elsewhere")
        first, second = fleet.launches("drained")
        assert second.machine != "n1" and not overlaps([first, second])
        assert second.initial_number == first.wrote[-1][1], "nothing is lost where there was time to save it"
        fleet.create_session("other")
        assert fleet.node_of("other") != "n1"
    finally:
        fleet.box.ao("drain", "n1", "--undo")


def test_agents_survive_a_killed_actor(fleet: LabFleet) -> None:
    fleet.create_session("actor", "--node", "n3")
    machine = fleet.lab.machine("n3")
    [worker], [actor] = machine.processes("cluster.node"), machine.processes("ray::NodeActor")
    os.kill(actor, signal.SIGKILL)
    fleet.wait_until(lambda: machine.processes("ray::NodeActor") not in ([], [actor]), "Ray to start another actor")
    killed = boot_time()
    fleet.wait_until(lambda: fleet.is_working("actor", killed + 3), "its agent to go on")
    assert machine.processes("cluster.node") == [worker] and len(fleet.launches("actor")) == 1


def test_agents_of_a_killed_worker_are_adopted_by_the_next(fleet: LabFleet) -> None:
    fleet.create_session("worker", "--node", "n3")
    machine = fleet.lab.machine("n3")
    [worker] = machine.processes("cluster.node")
    os.kill(worker, signal.SIGKILL)
    killed = boot_time()
    fleet.wait_until(lambda: machine.processes("cluster.node") not in ([], [worker]), "another worker")
    fleet.box.ao("send", "worker", "are you there")
    fleet.wait_until(lambda: fleet.launches("worker")[0].messages == ("are you there",), "the message")
    fleet.wait_until(lambda: fleet.is_working("worker", killed + fleet.lease + 2), "its agent to go on")
    assert len(fleet.launches("worker")) == 1


def test_fifty_sessions_run_on_three_nodes(fleet: LabFleet) -> None:
    names = [f"many{number}" for number in range(50)]
    requested = {name: ("n1", "n2", "n3")[number % 3] for number, name in enumerate(names) if number < 15}
    for name in names:
        fleet.create_session(
            name, "--no-wait", "--agent", "rests", *(["--node", requested[name]] if name in requested else [])
        )
    fleet.wait_until(lambda: all(fleet.launches(name) for name in names), "all fifty agents", 240)
    actual = {name: fleet.launches(name)[0].machine for name in names}
    assert {name: actual[name] for name in requested} == requested
    assert max(Counter(actual.values()).values()) <= 20, "0.4 CPUs each, of eight"


def test_sessions_continue_while_ray_is_down(fleet: LabFleet) -> None:
    """The head is killed; Ray's processes on the nodes end after a while."""
    engine = fleet.engine
    assert engine is not None
    fleet.create_session("alone", "--node", "n1")
    engine.kill_head()
    killed = boot_time()
    machine = fleet.lab.machine("n1")
    fleet.wait_until(lambda: not machine.processes("raylet/raylet"), "Ray on n1 to give up", 60)
    fleet.wait_until(lambda: fleet.is_working("alone", killed + fleet.lease * 3), "its agent to go on", 60)
    fleet.box.ao("send", "alone", "still there")
    fleet.wait_until(lambda: "still there" in fleet.launches("alone")[0].messages, "the message")
    waiting = fleet.box.ao("new", "count", "--name", "waits", "--no-wait")
    assert waiting.returncode == 0
    fleet.wait_until(lambda: "Ray" in fleet.box.ao("status").stdout, "it to say what it waits for", 20)
    engine.start_head()
    fleet.wait_until_ready()
    fleet.wait_until(lambda: fleet.is_working("waits"), "who waited to start", 60)
    assert len(fleet.launches("alone")) == 1
