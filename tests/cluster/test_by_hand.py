"""Workers started by hand on two machines: sessions run there, and their work is saved locally."""

from __future__ import annotations

from tests.cluster.fleet import LabFleet, boot_time, overlaps


def test_a_session_runs_on_a_machine_and_its_commits_arrive_locally(by_hand: LabFleet) -> None:
    fleet = by_hand
    fleet.create_session("one")
    node = fleet.node_of("one")
    assert node in ("n1", "n2")
    fleet.wait_until(lambda: any(life.committed for life in fleet.launches("one")), "a commit")
    assert fleet.launches("one")[0].machine == node
    fleet.wait_until(lambda: "step" in fleet.last_commit_title("one"), "the commit here")
    fleet.box.ao("send", "one", "hello there")
    fleet.wait_until(lambda: fleet.launches("one")[0].messages == ("hello there",), "the message")


def test_a_session_of_a_powered_off_machine_continues_elsewhere_with_its_work(by_hand: LabFleet) -> None:
    fleet = by_hand
    fleet.create_session("one")
    fleet.wait_until(lambda: len(fleet.launches("one")[0].wrote) > 12, "some work")
    machine = fleet.lab.machine(fleet.node_of("one"))
    machine.power_off()
    off = boot_time()
    fleet.wait_until(lambda: len(fleet.launches("one")) == 2, "another agent elsewhere", 30)
    first, second = fleet.launches("one")
    assert second.machine != first.machine
    assert not overlaps([first, second])
    assert second.begin - off < fleet.lease + 1 + 15
    lost = [number for at, number in first.wrote if number > second.initial_number]
    assert all(at > off - fleet.checkpoint - 2 for at, number in first.wrote if number in lost)
