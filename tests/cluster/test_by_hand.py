"""Workers that were started by hand on two machines: work goes there, and comes back."""

from __future__ import annotations

from tests.cluster.fleet import Fleet, boot_time, overlaps


def test_a_session_lives_on_a_machine_and_its_work_comes_back(by_hand: Fleet) -> None:
    fleet = by_hand
    fleet.new("one")
    node = fleet.node_of("one")
    assert node in ("n1", "n2")
    fleet.until(lambda: any(life.committed for life in fleet.lives("one")), "a commit")
    assert fleet.lives("one")[0].machine == node
    fleet.until(lambda: "step" in fleet.landed("one"), "the commit here")
    fleet.box.ao("send", "one", "hello there")
    fleet.until(lambda: fleet.lives("one")[0].messages == ("hello there",), "the message")


def test_a_machine_that_loses_its_power_loses_no_work(by_hand: Fleet) -> None:
    fleet = by_hand
    fleet.new("one")
    fleet.until(lambda: len(fleet.lives("one")[0].wrote) > 12, "some work")
    was = fleet.lab.machine(fleet.node_of("one"))
    was.power_off()
    off = boot_time()
    fleet.until(lambda: len(fleet.lives("one")) == 2, "another agent elsewhere", 30)
    first, second = fleet.lives("one")
    assert second.machine != first.machine
    assert not overlaps([first, second])
    assert second.begin - off < fleet.lease + 1 + 15
    lost = [number for at, number in first.wrote if number > second.found]
    assert all(at > off - fleet.checkpoint - 2 for at, number in first.wrote if number in lost)
