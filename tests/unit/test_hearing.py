"""What an agent reports, as events."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from agent_orchestrator.flow import events as e
from agent_orchestrator.reports import ConversationReport
from agent_orchestrator.services.hearing import body_of
from agent_orchestrator.services.prices import Prices


def test_a_conversation_is_never_an_option_of_the_next_launch(tmp_path: Path) -> None:
    def told(conversation: str) -> e.Body | None:
        return body_of(ConversationReport(conversation), cast(Any, None), "key", Prices(tmp_path / "prices"))

    assert told("0d3c-1") == e.AgentConversation("0d3c-1")
    assert isinstance(told("--dangerously-skip-permissions"), e.AgentReportInvalid)
