"""The demo with runtime ray on three nodes, one of which is powered off meanwhile."""

from __future__ import annotations

import pytest

from agent_orchestrator.testing import demo
from tests.cluster.engine import have_ray
from tests.cluster.fleet import LabFleet
from tests.cluster.lab import ClusterLab

FINISHED = {"price": 1, "cart": 2, "report": 2, "currency": 2}
"""How many times each agent reports that it is done; after the last one it only waits."""


class Misfortune:
    """Powers off the first machine whose agents all wait for a person and have unmerged work."""

    def __init__(self, fleet: LabFleet, stage: demo.DemoStage) -> None:
        self.fleet, self.stage = fleet, stage
        self.lost: tuple[str, list[str]] | None = None

    def respond(self) -> None:
        if self.lost:
            return
        done_sessions = [
            session["session"].removeprefix("shop-") for session in self.stage.events if session["type"] == "agent-done"
        ]
        sessions = [
            session for session in self.fleet.box.sessions() if session["status"] != "merged" and session.get("node")
        ]
        for node in {session["node"] for session in sessions}:
            node_sessions = [session for session in sessions if session["node"] == node]
            finished = [
                session["status"] == "review_pending"
                and done_sessions.count(session["name"]) >= FINISHED.get(session["name"], 99)
                for session in node_sessions
            ]
            if all(finished):
                self.fleet.lab.machine(node).power_off()
                self.lost = (node, [session["name"] for session in node_sessions])
                return


@pytest.mark.skipif(not have_ray(), reason="needs Ray: pip install 'agent-orchestrator[ray]'")
def test_the_demo_finishes_on_three_nodes_although_one_is_lost() -> None:
    with ClusterLab(3) as lab, LabFleet(lab, ray=True) as fleet:
        fleet.prepare(cpus=2, each={"cpus": 1})
        demo.prepare(fleet.box)
        fleet.ready("n1", "n2", "n3")
        lines: list[str] = []
        stage = demo.DemoStage(fleet.box, lines.append, patience=240)
        misfortune, director = Misfortune(fleet, stage), demo.Director(fleet.box)
        for name, (title, body) in demo.ISSUES.items():
            issue = fleet.box.request("POST", "/api/issues", {"title": title, "body": body})["number"]
            fleet.box.request("POST", "/api/sessions", {"name": name, "issue": str(issue), "agent": name})

        def respond() -> None:
            misfortune.respond()
            director.respond()

        stage.run_until(respond, director.is_finished)
        assert misfortune.lost is not None, "no machine was lost on the way"
        assert fleet.nodes()[misfortune.lost[0]]["state"] in ("gone", "unreachable")
        titles = fleet.box.git("log", "--format=%s", "main")
        assert [titles.count(demo.ISSUES[name][0]) for name in FINISHED] == [1, 1, 1, 1], "each is merged once"
        merged = [event["session"] for event in stage.events if event["type"] == "pr-merged"]
        assert sorted(merged) == sorted(set(merged)) and len(merged) == 4
