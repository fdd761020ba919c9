"""Events made of an agent's reports."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.core import events as e
from agent_orchestrator.core.pull_request import MAX_REPLIES, Comment, PullRequest
from agent_orchestrator.protocols.reports import ConversationReport, ReplyReport, TurnReport, UsageReport
from agent_orchestrator.sessions.agents import listener
from agent_orchestrator.sessions.agents.listener import done_event_if_committed, event_body_of, throttle_screen_reads


def test_an_invalid_conversation_id_is_rejected(tmp_path: Path) -> None:
    def event_for(conversation: str) -> e.Body | None:
        return event_body_of(ConversationReport(conversation), cast(Any, None), "key", Prices(tmp_path / "prices"))

    assert event_for("0d3c-1") == e.AgentConversation("0d3c-1")
    assert isinstance(event_for("--dangerously-skip-permissions"), e.AgentReportInvalid)


def test_invalid_characters_and_numbers_do_not_block_later_reports(tmp_path: Path) -> None:
    """An event that cannot be written would be retried forever."""

    def encoded(report: TurnReport | UsageReport) -> str:
        body = event_body_of(report, cast(Any, None), "key", Prices(tmp_path / "prices"))
        assert body is not None
        return json.dumps(e.encode(body), ensure_ascii=False, allow_nan=False).encode().decode()

    assert json.loads(encoded(TurnReport("so \ud83d"))) == {"text": "so \ufffd"}
    assert "usd" not in encoded(UsageReport("of-no-list", 1, 1, usd=float("nan")))


@pytest.mark.anyio
async def test_a_done_report_with_an_invalid_character_is_recorded(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    facts = SimpleNamespace(
        activity=SimpleNamespace(state="idle"), has_commits=True, done_summary=None, generation=1, project="app",
        spec=SimpleNamespace(path=str(tmp_path)),
    )  # fmt: skip
    flow = SimpleNamespace(sessions={"app-x": facts}, clock=lambda: 1.0)
    sites = SimpleNamespace(for_session=lambda _: SimpleNamespace(host=LocalHost()))
    core = cast(Any, SimpleNamespace(flow=flow, sites=sites))
    done = await done_event_if_committed(core, "app-x", "x", "k", "so \ud83d")
    assert done is not None and done.body == e.AgentDone("so \ufffd")


def test_replies_of_an_agent_are_limited(tmp_path: Path) -> None:
    def reply_after(count: int) -> e.Body | None:
        replies = tuple(Comment(f"c{number}", "so", "demo", 1.0, by_agent=True) for number in range(count))
        question = Comment("why", "why?", "ann", 1.0, "a.py", 3)
        facts = SimpleNamespace(
            pr=PullRequest(1, "t", "main", comments=(question, *replies)), spec=SimpleNamespace(agent="demo"), head="c1"
        )
        return event_body_of(ReplyReport("because", "why"), cast(Any, facts), "key", Prices(tmp_path / "prices"))

    answer = reply_after(MAX_REPLIES - 1)
    assert isinstance(answer, e.CommentAdded) and (answer.path, answer.thread) == ("a.py", "why")
    assert isinstance(reply_after(MAX_REPLIES), e.AgentReportInvalid)


@pytest.mark.anyio
async def test_reads_of_a_screen_are_paused_while_its_agent_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SCREEN_PAUSE_FACTOR", 1e9)
    monkeypatch.setattr(listener, "MAX_SCREEN_PAUSE_SECONDS", 3600.0)
    reads, ended = 0, asyncio.Event()

    async def read_screen() -> str:
        nonlocal reads
        reads += 1
        await asyncio.sleep(0)
        return "shown"

    screen = throttle_screen_reads(read_screen, ended)
    assert await screen() == "shown"
    second = asyncio.ensure_future(screen())
    for _ in range(20):
        await asyncio.sleep(0)
    assert reads == 1, "a screen that keeps changing is not read continuously"
    ended.set()
    assert await asyncio.wait_for(second, 30) == "shown", "the last screen of an ended agent is read at once"
