"""The demo, both acts: every trigger comes about by what agents and the person do, and what its rule does has its effect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from agent_orchestrator.core.rules import TRIGGERS
from agent_orchestrator.testing import demo
from agent_orchestrator.testing.demo_triggers import FIRST, SECOND
from agent_orchestrator.testing.sandbox import Sandbox, have_tmux


@dataclass
class Played:
    box: Sandbox
    stage: demo.Stage
    lines: list[str]
    heard: Path

    def messages(self, session: str) -> list[str]:
        """What a session's agents really read, by their own log."""
        records = [json.loads(line) for line in self.heard.read_text().splitlines()]
        mine = {one["pid"] for one in records if one["event"] == "start" and one["session"] == session}
        return [one["text"] for one in records if one["event"] == "message" and one["pid"] in mine]


def test_the_demo_shows_every_trigger_at_work(tmp_path: Path) -> None:
    heard = tmp_path / "heard.jsonl"
    with Sandbox(tmp_path, "tmux" if have_tmux() else "process", {"AO_DEMO_LOG": str(heard)}) as box:
        lines: list[str] = []
        stage = demo.Stage(box, lines.append)
        demo.prepare(box, port=0)
        demo.play(stage)
        assert [one for one in FIRST if not one.happened(stage.events)] == []
        demo.play_on(stage)
        demo.farewell(stage, everything=True)
        played = Played(box, stage, lines, heard)
        no_trigger_is_left_out(played)
        what_was_sent_reached_the_agents_and_they_did_it(played)
        it_ends_with_what_happened_by_itself_and_the_dashboards_address(played)


def no_trigger_is_left_out(played: Played) -> None:
    assert [one for one in SECOND if not one.happened(played.stage.events)] == []
    reacted = {event["data"]["trigger"] for event in played.stage.events if event["type"] == "reacted"}
    assert set(TRIGGERS) <= reacted and {"deploy-ready", "pr-ready"} <= reacted
    assert not [event for event in played.stage.events if event["type"] in ("escalated", "effect-failed")]


def what_was_sent_reached_the_agents_and_they_did_it(played: Played) -> None:
    box = played.box
    assert "tests.test_cart" in played.messages("shop-cart")[0] or "AssertionError" in played.messages("shop-cart")[0]
    assert "Please write the month as a word." in played.messages("shop-report")[0]
    assert "Why x?" in played.messages("garden-commented")[0]
    assert "Please be brief." in played.messages("garden-discussed")[0]
    assert played.messages("garden-crashes")[0].startswith("You ended with 1.")
    assert "usage limit is over" in played.messages("garden-limited")[0]
    sessions = {one["id"]: one for one in box.sessions()}
    assert {sessions[f"shop-{name}"]["status"] for name in demo.ISSUES} == {"merged"}
    states = {name: sessions[f"garden-{name}"]["status"] for name in ("asks", "blocked", "spends", "given-up")}
    assert states == {"asks": "needs_input", "blocked": "blocked", "spends": "stopped", "given-up": "closed"}
    assert "def headline(month='November'):" in (box.repo / "shop" / "report.py").read_text()
    saved = box.git("show", "refs/ao/rescue/garden-spends:dear.txt", cwd=box.folder / "garden")
    assert saved == "x"


def it_ends_with_what_happened_by_itself_and_the_dashboards_address(played: Played) -> None:
    table = played.lines[played.lines.index("What happened by itself:") + 1 :]
    rows = table[: table.index("")]
    assert rows[0].split() == ["TRIGGER", "WHAT", "WAS", "DONE", "SESSION"]
    assert {row.split()[0] for row in rows[1:]} >= set(TRIGGERS)
    assert played.lines[-1].startswith("Dashboard: http://127.0.0.1:")
