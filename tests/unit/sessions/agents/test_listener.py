"""What an agent reports, as events."""

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
from agent_orchestrator.core.pull_request import MOST_REPLIES, Comment, PullRequest
from agent_orchestrator.protocols.reports import ConversationReport, ReplyReport, TurnReport, UsageReport
from agent_orchestrator.sessions.agents import listener
from agent_orchestrator.sessions.agents.listener import body_of, done_if_all_is_committed, with_pauses


def test_a_conversation_is_never_an_option_of_the_next_launch(tmp_path: Path) -> None:
    def told(conversation: str) -> e.Body | None:
        return body_of(ConversationReport(conversation), cast(Any, None), "key", Prices(tmp_path / "prices"))

    assert told("0d3c-1") == e.AgentConversation("0d3c-1")
    assert isinstance(told("--dangerously-skip-permissions"), e.AgentReportInvalid)


def test_half_a_character_and_no_number_are_no_reason_to_hear_no_more(tmp_path: Path) -> None:
    """What cannot be written would be tried again for ever."""

    def told(report: TurnReport | UsageReport) -> str:
        body = body_of(report, cast(Any, None), "key", Prices(tmp_path / "prices"))
        assert body is not None
        return json.dumps(e.encode(body), ensure_ascii=False, allow_nan=False).encode().decode()

    assert json.loads(told(TurnReport("so \ud83d"))) == {"text": "so \ufffd"}
    assert "usd" not in told(UsageReport("of-no-list", 1, 1, usd=float("nan")))


@pytest.mark.anyio
async def test_work_that_ends_with_half_a_character_is_done(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    facts = SimpleNamespace(
        activity=SimpleNamespace(state="idle"), committed=True, done=None, generation=1, project="app",
        spec=SimpleNamespace(path=str(tmp_path)),
    )  # fmt: skip
    flow = SimpleNamespace(sessions={"app-x": facts}, clock=lambda: 1.0)
    sites = SimpleNamespace(of=lambda _: SimpleNamespace(host=LocalHost()))
    core = cast(Any, SimpleNamespace(flow=flow, sites=sites))
    done = await done_if_all_is_committed(core, "app-x", "x", "k", "so \ud83d")
    assert done is not None and done.body == e.AgentDone("so \ufffd")


def test_nobody_replies_without_end(tmp_path: Path) -> None:
    def told(count: int) -> e.Body | None:
        said = tuple(Comment(f"c{number}", "so", "demo", 1.0, by_agent=True) for number in range(count))
        asked = Comment("why", "why?", "ann", 1.0, "a.py", 3)
        facts = SimpleNamespace(
            pr=PullRequest(1, "t", "main", comments=(asked, *said)), spec=SimpleNamespace(agent="demo"), head="c1"
        )
        return body_of(ReplyReport("because", "why"), cast(Any, facts), "key", Prices(tmp_path / "prices"))

    answer = told(MOST_REPLIES - 1)
    assert isinstance(answer, e.CommentAdded) and (answer.path, answer.thread) == ("a.py", "why")
    assert isinstance(told(MOST_REPLIES), e.AgentReportInvalid)


@pytest.mark.anyio
async def test_looks_of_a_plugin_at_a_screen_rest_while_its_agent_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SCREEN_REST", 1e9)
    monkeypatch.setattr(listener, "LONGEST_REST", 3600.0)
    looks, ended = 0, asyncio.Event()

    async def look() -> str:
        nonlocal looks
        looks += 1
        await asyncio.sleep(0)
        return "shown"

    screen = with_pauses(look, ended)
    assert await screen() == "shown"
    second = asyncio.ensure_future(screen())
    for _ in range(20):
        await asyncio.sleep(0)
    assert looks == 1, "whoever prints without end is not looked at without end"
    ended.set()
    assert await asyncio.wait_for(second, 30) == "shown", "what an ended agent left is seen at once"
