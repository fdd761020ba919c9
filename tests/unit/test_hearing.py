"""What an agent reports, as events."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.pull import MOST_REPLIES, Comment, PullRequest
from agent_orchestrator.reports import ConversationReport, ReplyReport
from agent_orchestrator.services.hearing import body_of
from agent_orchestrator.services.prices import Prices


def test_a_conversation_is_never_an_option_of_the_next_launch(tmp_path: Path) -> None:
    def told(conversation: str) -> e.Body | None:
        return body_of(ConversationReport(conversation), cast(Any, None), "key", Prices(tmp_path / "prices"))

    assert told("0d3c-1") == e.AgentConversation("0d3c-1")
    assert isinstance(told("--dangerously-skip-permissions"), e.AgentReportInvalid)


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
