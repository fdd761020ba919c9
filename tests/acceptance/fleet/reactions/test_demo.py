"""The demo, both acts: every trigger occurs and every rule has its effect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent_orchestrator.core.rules.default_rules import TRIGGERS
from agent_orchestrator.testing import demo
from agent_orchestrator.testing.demo_triggers import FIRST_ACT_REACTIONS, SECOND_ACT_REACTIONS
from agent_orchestrator.testing.sandbox import Sandbox, have_tmux


@dataclass
class PlayedDemo:
    box: Sandbox
    stage: demo.DemoStage
    lines: list[str]
    agent_log: Path

    def messages(self, session: str) -> list[str]:
        """Return the messages that a session's agents received, from their own log."""
        records = [json.loads(line) for line in self.agent_log.read_text().splitlines()]
        pids = {record["pid"] for record in records if record["event"] == "start" and record["session"] == session}
        return [record["text"] for record in records if record["event"] == "message" and record["pid"] in pids]


@pytest.mark.long
def test_the_demo_shows_every_trigger_at_work(tmp_path: Path) -> None:
    agent_log = tmp_path / "heard.jsonl"
    with Sandbox(tmp_path, "tmux" if have_tmux() else "process", {"AO_DEMO_LOG": str(agent_log)}) as box:
        lines: list[str] = []
        stage = demo.DemoStage(box, lines.append)
        demo.prepare(box, port=0)
        demo.play_first_act(stage)
        assert [step for step in FIRST_ACT_REACTIONS if not step.has_happened(stage.events)] == []
        demo.play_second_act(stage)
        demo.print_summary(stage, everything=True)
        demo_run = PlayedDemo(box, stage, lines, agent_log)
        check_every_trigger(demo_run)
        check_messages_and_results(demo_run)
        check_closing_summary(demo_run)


def check_every_trigger(demo_run: PlayedDemo) -> None:
    assert [step for step in SECOND_ACT_REACTIONS if not step.has_happened(demo_run.stage.events)] == []
    reacted = {event["data"]["trigger"] for event in demo_run.stage.events if event["type"] == "reacted"}
    assert set(TRIGGERS) <= reacted and {"deploy-ready", "pr-ready"} <= reacted
    assert not [event for event in demo_run.stage.events if event["type"] in ("escalated", "effect-failed")]


def check_messages_and_results(demo_run: PlayedDemo) -> None:
    box = demo_run.box
    assert (
        "tests.test_cart" in demo_run.messages("shop-cart")[0] or "AssertionError" in demo_run.messages("shop-cart")[0]
    )
    assert "Please write the month as a word." in demo_run.messages("shop-report")[0]
    assert "Why x?" in demo_run.messages("garden-commented")[0]
    assert "Please be brief." in demo_run.messages("garden-discussed")[0]
    assert demo_run.messages("garden-crashes")[0].startswith("You ended with 1.")
    assert "usage limit is over" in demo_run.messages("garden-limited")[0]
    sessions = {session["id"]: session for session in box.sessions()}
    assert {sessions[f"shop-{name}"]["status"] for name in demo.ISSUES} == {"merged"}
    states = {name: sessions[f"garden-{name}"]["status"] for name in ("asks", "blocked", "spends", "given-up")}
    assert states == {"asks": "needs_input", "blocked": "blocked", "spends": "stopped", "given-up": "closed"}
    assert "def headline(month='November'):" in (box.repo / "shop" / "report.py").read_text()
    saved = box.git("show", "refs/ao/rescue/garden-spends:dear.txt", cwd=box.folder / "garden")
    assert saved == "x"


def check_closing_summary(demo_run: PlayedDemo) -> None:
    table = demo_run.lines[demo_run.lines.index("What happened by itself:") + 1 :]
    rows = table[: table.index("")]
    assert rows[0].split() == ["TRIGGER", "WHAT", "WAS", "DONE", "SESSION"]
    assert {row.split()[0] for row in rows[1:]} >= set(TRIGGERS)
    assert demo_run.lines[-1].startswith("Dashboard: http://127.0.0.1:")
