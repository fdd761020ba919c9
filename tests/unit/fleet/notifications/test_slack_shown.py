"""What stands above a button in Slack is what is allowed by it: all of it, letter by letter."""

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
    (found,) = (block for block in body["blocks"] if block["type"] == "section")
    return dict(found)


def test_shown_a_request_is_no_markup_and_nothing_of_it_waits_behind_see_more() -> None:
    shown = section(ASKS)
    assert shown["text"] == {"type": "plain_text", "text": f"Bash: {COMMAND}".strip(), "emoji": False}
    assert shown["expand"] is True


def test_shown_what_asks_nothing_may_have_markup() -> None:
    shown = section(NOTED)
    assert shown["text"]["type"] == "mrkdwn"
    assert "expand" not in shown
