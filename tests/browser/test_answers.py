"""The page behind a link in a notification, and its button, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_orchestrator.testing.chat import ChatServer
from agent_orchestrator.testing.sandbox import Sandbox
from tests.browser.person import new_context

CONFIG = """\
defaults: {{agent: probe, runtime: process, notifiers: [hook]}}
agents:
  probe: {{tool: command, command: [sh, -c, '. "$AO_TASK_FILE"'], prompt: file, permissions: default}}
projects: {{app: {{path: .}}}}
reactions: {{agent-blocked: {{delay: 0s}}}}
notifiers: {{hook: {{plugin: webhook, url: "{hook}", actions: true}}}}
"""
ASKS = """\
printf '{"event": "permission", "tool": "Bash", "command": "rm -r build"}\\n' >> "$AO_SPOOL"
read answer; echo "answered: $answer"; sleep 600
"""


def test_a_permission_is_answered_by_the_button_behind_a_link(tmp_path: Path, browser: Any) -> None:
    with ChatServer() as chat, Sandbox(tmp_path, "process") as box:
        box.repository(config=CONFIG.format(hook=chat.webhook))
        box.start()
        box.ao("new", "--name", "s", "-", stdin=ASKS)
        chat.wait(1)
        allow = chat.received[0].body["actions"][0]["url"]
        page = new_context(browser, phone=True).new_page()
        page.goto(allow)
        assert "rm -r build" in page.text_content("body")
        page.get_by_role("button").click()
        page.get_by_role("heading", name="Done").wait_for()
        box.wait_until(lambda: "answered: y" in box.home.terminal_log("app-s").read_text(), "the answer to arrive")
