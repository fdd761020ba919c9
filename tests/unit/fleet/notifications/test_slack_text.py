"""The text above a Slack button is the complete request, without markup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.plugins.notifiers.slack import Slack
from agent_orchestrator.protocols import Notification, NotificationAction
from agent_orchestrator.testing.chat.rules import violations

COMMAND = "rm -rf *build* _old_ ~/x~ `id` :tada:\n" + "x\n" * 200
NOTED = Notification("It waits", f"Bash: {COMMAND}", "urgent", "app-one", "app", "agent-blocked", "n1", 1.0)
ASKS = replace(NOTED, actions=(NotificationAction("allow", "Allow", "http://h/answer/t", "aoa_t"),))


def section(noted: Notification) -> dict[str, Any]:
    body = Slack({"webhookUrl": "https://h.example/x", "signingSecret": "s"}, LocalHost()).payload(noted)
    assert violations("slack", body) == []
    (section_block,) = (block for block in body["blocks"] if block["type"] == "section")
    return dict(section_block)


def test_a_request_is_plain_text_and_fully_expanded() -> None:
    block = section(ASKS)
    assert block["text"] == {"type": "plain_text", "text": f"Bash: {COMMAND}".strip(), "emoji": False}
    assert block["expand"] is True


def test_a_message_without_a_request_may_have_markup() -> None:
    block = section(NOTED)
    assert block["text"]["type"] == "mrkdwn"
    assert "expand" not in block
