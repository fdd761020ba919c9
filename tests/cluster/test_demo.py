"""The demo with runtime ray, on three nodes, one of which loses its power on the way."""

from __future__ import annotations

import pytest

from agent_orchestrator.testing import demo
from tests.cluster.engine import have_ray
from tests.cluster.fleet import Fleet
from tests.cluster.lab import Lab

FINISHED = {"price": 1, "cart": 2, "report": 2, "currency": 2}
"""How many times each has said that it is done when its script is at its end: from then on it only waits."""


class Misfortune:
    """Takes a machine away as soon as one has nothing but agents that wait for a person, and work that has not landed."""

    def __init__(self, fleet: Fleet, stage: demo.Stage) -> None:
        self.fleet, self.stage = fleet, stage
        self.lost: tuple[str, list[str]] | None = None

    def respond(self) -> None:
        if self.lost:
            return
        said = [one["session"].removeprefix("shop-") for one in self.stage.events if one["type"] == "agent-done"]
        sessions = [one for one in self.fleet.box.sessions() if one["status"] != "merged" and one.get("node")]
        for node in {one["node"] for one in sessions}:
            there = [one for one in sessions if one["node"] == node]
            waits = [
                one["status"] == "review_pending" and said.count(one["name"]) >= FINISHED.get(one["name"], 99)
                for one in there
            ]
            if all(waits):
                self.fleet.lab.machine(node).power_off()
                self.lost = (node, [one["name"] for one in there])
                return


@pytest.mark.skipif(not have_ray(), reason="needs Ray: pip install 'agent-orchestrator[ray]'")
def test_the_demo_on_three_nodes_one_of_which_is_lost() -> None:
    with Lab(3) as lab, Fleet(lab, ray=True) as fleet:
        fleet.prepare(cpus=2, each={"cpus": 1})
        demo.prepare(fleet.box)
        fleet.ready("n1", "n2", "n3")
        told: list[str] = []
        stage = demo.Stage(fleet.box, told.append, patience=240)
        misfortune, director = Misfortune(fleet, stage), demo.Director(fleet.box)
        for name, (title, body) in demo.ISSUES.items():
            issue = fleet.box.request("POST", "/api/issues", {"title": title, "body": body})["number"]
            fleet.box.request("POST", "/api/sessions", {"name": name, "issue": str(issue), "agent": name})

        def look() -> None:
            misfortune.respond()
            director.respond()

        stage.until(look, director.over)
        assert misfortune.lost is not None, "no machine was lost on the way"
        assert fleet.nodes()[misfortune.lost[0]]["state"] in ("gone", "unreachable")
        landed = fleet.box.git("log", "--format=%s", "main")
        assert [landed.count(demo.ISSUES[name][0]) for name in FINISHED] == [1, 1, 1, 1], "each has landed once"
        merged = [one["session"] for one in stage.events if one["type"] == "pr-merged"]
        assert sorted(merged) == sorted(set(merged)) and len(merged) == 4
