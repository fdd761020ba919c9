"""The demo with every agent in a container."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.testing import demo
from agent_orchestrator.testing.sandbox import Sandbox
from tests.docker.engine import IMAGE, ContainerEngine


def test_the_demo_runs_in_containers(docker: ContainerEngine, tmp_path: Path) -> None:
    with Sandbox(tmp_path, "docker", docker.env) as box:
        demo.prepare(box, port=0, image=IMAGE)
        lines: list[str] = []
        demo.play_first_act(demo.DemoStage(box, lines.append))
        states = {session["name"]: session["status"] for session in box.sessions()}
        assert states == {
            **dict.fromkeys(("price", "cart", "report", "currency"), "merged"),
            "storage": "needs_input",
        }
        assert len(docker.containers()) == 1
        box.ao("shutdown", "--sessions")
        assert docker.containers() == []
