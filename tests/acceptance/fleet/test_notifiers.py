"""Notifiers: routing, retries, shown failures, and answers from links and buttons."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from agent_orchestrator.testing.chat import ChatFault, ChatServer, ReceivedMessage
from agent_orchestrator.testing.chat.server import SIGNING_SECRET
from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {{agent: probe, runtime: process, notifiers: [hook]}}
agents:
  probe: {{tool: command, command: [sh, -c, '. "$AO_TASK_FILE"'], prompt: file, permissions: default}}
projects: {{app: {{path: .}}}}
reactions: {{agent-blocked: {{delay: 0s}}, agent-needs-input: {{delay: 0s}}}}
notifiers:
  hook: {{plugin: webhook, url: "{hook}", secret: {secret}, actions: true}}
  team: {{plugin: slack, webhook: "{slack}", actions: true, signingSecret: slack-signing-secret, users: [U1]}}
  room: {{plugin: discord, webhookUrl: "{discord}"}}
  phone: "{apprise}"
notificationRouting: {{urgent: [hook, team], info: []}}
"""
TASK = """\
ask() { printf '{"event": "permission", "tool": "Bash", "command": "%s"}\\n' "$1" >> "$AO_SPOOL"; read answer; echo "$1: $answer"; }
ask 'rm -r build'
ask 'rm -r dist'
sleep 600
"""


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with ChatServer() as chat:
        yield chat


@pytest.fixture
def box(tmp_path: Path, chat: ChatServer) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        urls = {"hook": chat.webhook, "slack": chat.slack, "discord": chat.discord, "apprise": chat.apprise}
        sandbox.repository(config=CONFIG.format(secret=SIGNING_SECRET, **urls))
        sandbox.start()
        yield sandbox


def received_of_kind(chat: ChatServer, kind: str) -> list[ReceivedMessage]:
    return [item for item in chat.received if item.kind == kind]


def request(box: Sandbox, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
    """Send one unauthenticated request over TCP and return its status and body."""
    url = urlsplit(json.loads(box.home.daemon_info.read_text())["url"])
    link = http.client.HTTPConnection(str(url.hostname), url.port, timeout=60)
    try:
        link.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = link.getresponse()
        return answer.status, answer.read().decode()
    finally:
        link.close()


def origin_of_a_form(box: Sandbox, path: str) -> str:
    """Return the Origin that a browser sends with a form of this page: "null" if its last referrer policy forbids one."""
    url = str(json.loads(box.home.daemon_info.read_text())["url"])
    with urllib.request.urlopen(url + path) as answer:
        return "null" if answer.headers.get_all("Referrer-Policy")[-1] == "no-referrer" else url


def test_every_notifier_can_be_tested(box: Sandbox, chat: ChatServer) -> None:
    done = box.ao("notify", "test")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["sent", "hook"],
        ["sent", "team"],
        ["sent", "room"],
        ["sent", "phone"],
    ]
    assert sorted(item.kind for item in chat.received) == ["discord", "other", "slack", "webhook"]
    assert chat.refused == []
    chat.fail(ChatFault(404))
    failed = box.ao("notify", "test", "team", "--json", check=False)
    (attempt,) = json.loads(failed.stdout)["notifiers"]
    assert failed.returncode == 1
    assert attempt["problem"].startswith("slack: 127.0.0.1 answered 404") and "webhookUrl" in attempt["remedy"]
    unknown = box.ao("notify", "test", "teem", check=False)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (3, 1) and "hook, team" in unknown.stderr


def test_an_answer_link_works_once_and_only_for_the_request_that_was_shown(box: Sandbox, chat: ChatServer) -> None:
    task = box.folder / "task.sh"
    task.write_text(TASK)
    box.ao("new", "--name", "s", "--file", str(task))
    chat.wait(2, 60)
    (hook,) = received_of_kind(chat, "webhook")
    assert hook.violations == [] and hook.body["level"] == "urgent" and "rm -r build" in hook.body["message"]
    allow, deny = (urlsplit(action["url"]).path for action in hook.body["actions"])
    assert hook.body["url"].endswith("/sessions/app-s")

    status, page = request(box, "GET", allow, Sec_Fetch_Site="cross-site", Accept="text/html")
    assert status == 200 and "Allow: app-s" in page and "rm -r build" in page and "<script" not in page
    assert [event for event in box.events("s") if event["type"] == "permission-answered"] == []
    assert request(box, "POST", allow[:-3] + "AAA")[0] == 403
    assert request(box, "POST", allow, Origin="https://evil.example")[0] == 403

    form = {"Accept": "text/html", "Content_Type": "application/x-www-form-urlencoded", "Sec_Fetch_Site": "same-origin"}
    assert request(box, "POST", allow, b"", Origin="null", **form)[0] == 403
    assert request(box, "POST", allow, b"", Origin=origin_of_a_form(box, allow), **form)[0] == 200
    box.wait_until(lambda: "rm -r build: y" in box.home.terminal_log("app-s").read_text(), "the answer to arrive")
    box.wait_until(lambda: len(received_of_kind(chat, "webhook")) == 2, "the next request to be sent")
    assert request(box, "POST", allow)[0] == 409 and request(box, "POST", deny)[0] == 409
    (permission,) = [event for event in box.events("s") if event["type"] == "permission-answered"]
    assert permission["data"]["command"] == "rm -r build"
    (link_used,) = [event for event in box.events("s") if event["type"] == "answer-link-used"]
    assert link_used["data"]["by"] == "link hook"
    (entry,) = map(json.loads, box.ao("audit", "--json", "--kind", "permission-answered").stdout.splitlines())
    assert entry["actor"] == "link hook"
    assert not re.search(r"aoa_\w+\.\w{30}", box.ao("events", "s", "--json").stdout)
    assert not re.search(r"aoa_\w{20,}\.[\w-]{40}", box.home.log.read_text())


def test_a_slack_button_counts_if_signed_and_pressed_by_a_configured_user(box: Sandbox, chat: ChatServer) -> None:
    task = box.folder / "task.sh"
    task.write_text(TASK)
    box.ao("new", "--name", "s", "--file", str(task))
    chat.wait(2, 60)
    (team,) = received_of_kind(chat, "slack")
    buttons = team.body["blocks"][-1]["elements"]
    assert [event["text"]["text"] for event in buttons] == ["Open", "Allow", "Deny"]
    assert press_button(box, buttons[2]["value"], "U1", secret="another")[0] == 401
    assert press_button(box, buttons[2]["value"], "U1", at=time.time() - 600)[0] == 401
    assert press_button(box, buttons[2]["value"], "U2")[0] == 200  # a user who is not configured: nothing is done
    assert [event for event in box.events("s") if event["type"] == "permission-answered"] == []
    assert press_button(box, buttons[2]["value"], "U1") == (200, '{"taken":true}')
    box.wait_until(lambda: "rm -r build: n" in box.home.terminal_log("app-s").read_text(), "the answer to arrive")
    (link_used,) = box.wait_until(
        lambda: [event for event in box.events("s") if event["type"] == "answer-link-used"],
        "the event",
    )
    assert link_used["data"]["by"] == "slack U1" and link_used["data"]["verb"] == "deny"


def press_button(
    box: Sandbox, value: str, user: str, secret: str = "slack-signing-secret", at: float = 0.0
) -> tuple[int, str]:
    payload: dict[str, Any] = {"type": "block_actions", "user": {"id": user}, "actions": [{"value": value}]}
    body = f"payload={quote(json.dumps(payload))}".encode()
    stamp = str(int(at or time.time()))
    signed = hmac.new(secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return request(
        box,
        "POST",
        "/api/webhooks/slack",
        body,
        X_Slack_Request_Timestamp=stamp,
        X_Slack_Signature=f"v0={signed}",
        Content_Type="application/x-www-form-urlencoded",
    )


def test_a_failing_notifier_blocks_nothing_and_is_shown_once(box: Sandbox, chat: ChatServer) -> None:
    chat.fail(*[ChatFault(404)] * 2)
    box.ao("new", "--name", "a", "--no-wait", "exit 3")
    box.ao("new", "--name", "b", "--no-wait", "exit 3")
    for name in ("a", "b"):
        box.wait_until(lambda name=name: box.session(name)["status"] == "failed", "its failure")  # type: ignore[misc]
    box.wait_until(lambda: "hook tells nobody" in box.ao("status").stdout, "the failure to be shown")
    box.wait_until(lambda: len(chat.refused) == 2, "both to be tried")
    failures = [event for event in box.events() if event["type"] == "notifier-failing"]
    assert len(failures) == 1 and failures[0]["data"]["error"].startswith("webhook: 127.0.0.1 answered 404")
    doctor = {event["name"]: event for event in json.loads(box.ao("doctor", "--json", check=False).stdout)["checks"]}
    assert doctor["notifier hook"]["state"] == "warning" and "answered 404" in doctor["notifier hook"]["detail"]
    assert doctor["notifier room"]["state"] == "ok"
    box.ao("new", "--name", "c", "--no-wait", "exit 3")
    box.wait_until(lambda: received_of_kind(chat, "webhook"), "the next one to arrive")
    box.wait_until(lambda: "tells nobody" not in box.ao("status").stdout, "the failure to be over")


def test_a_notification_interrupted_by_a_crash_is_sent_again_with_the_same_id(box: Sandbox, chat: ChatServer) -> None:
    chat.fail(ChatFault("hang"))
    box.ao("new", "--name", "a", "--no-wait", "exit 3")
    box.wait_until(lambda: chat.received, "it to be sent")
    box.stop(signal.SIGKILL)
    box.start()
    box.wait_until(lambda: len(chat.received) == 2, "it to be sent again")
    first, second = chat.received
    assert first.headers["x-ao-id"] == second.headers["x-ao-id"]
    settled_type = "notification-settled"
    box.wait_until(lambda: any(event["type"] == settled_type for event in box.events()), "its end to be recorded")
    (settled,) = [event["data"] for event in box.events() if event["type"] == settled_type]
    assert (settled["outcome"], settled["notices"]) == ("sent", [first.headers["x-ao-id"]])


def test_addresses_of_notifiers_are_not_shown(box: Sandbox, chat: ChatServer) -> None:
    secret = chat.slack.rpartition("/")[2]
    chat.fail(*[ChatFault(404)] * 4)
    result = box.ao("notify", "test", check=False)
    config = box.ao("config", "get", "notifiers", check=False)
    log = box.home.log.read_text() + box.ao("events", "--json").stdout
    for text in (result.stdout, result.stderr, log):
        assert secret not in text and "discord-webhook-token" not in text
    assert config.returncode in (0, 3)


def test_a_link_in_a_notification_merges_a_ready_change(box: Sandbox, chat: ChatServer) -> None:
    box.ao("new", "--name", "m", "--agent", "demo", "[[write: new.txt|x]] [[commit: add]] [[done: ready]]")
    box.wait_until(lambda: box.session("m")["status"] == "review_pending", "it to be ready")
    box.ao("review", "m", "--approve")
    box.wait_until(
        lambda: [item for item in received_of_kind(chat, "webhook") if item.body["trigger"] == "approved-and-green"],
        "the offer",
    )
    (ready,) = [item.body for item in received_of_kind(chat, "webhook") if item.body["trigger"] == "approved-and-green"]
    assert [item["label"] for item in ready["actions"]] == ["Merge", "Deny"] and ready["level"] == "action"
    status, answer = request(box, "POST", urlsplit(ready["actions"][0]["url"]).path)
    assert (status, json.loads(answer)) == (200, {"session": "app-m", "verb": "allow", "by": "link hook"})
    box.wait_until(lambda: box.session("m")["status"] == "merged", "the merge")
    assert (box.repo / "new.txt").exists()


TELEGRAM = """\
import json
from pathlib import Path

from agent_orchestrator import Notification, NotifierPlugin


class TelegramNotifierPlugin(NotifierPlugin):
    name = "telegram"

    async def notify(self, notification: Notification) -> None:
        told = {name: getattr(notification, name) for name in ("title", "message", "level", "session_id")}
        with Path(self.config["chatId"]).open("a") as file:
            file.write(json.dumps(told) + "\\n")


plugin = TelegramNotifierPlugin
"""


def test_a_plugin_notifier_gets_notifications_like_built_in_ones(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        log = tmp_path / "told.jsonl"
        repo = box.repository(
            config="defaults: {agent: demo, runtime: process, notifiers: [telegram]}\n"
            "plugins: [{path: ./telegram.py}]\n"
            f"notifiers: {{telegram: {{plugin: telegram, chatId: {log}}}}}\n"
            "reactions: {agent-needs-input: {delay: 0s}}\n"
        )
        (repo / "telegram.py").write_text(TELEGRAM)
        box.start()
        box.ao("notify", "test")
        box.ao("new", "--name", "q", "[[ask: Which database?]]")
        box.wait_until(lambda: len(log.read_text().splitlines()) == 2, "the notification of the question")
        question = json.loads(log.read_text().splitlines()[1])
        assert question["session_id"] == "app-q" and question["level"] == "urgent"
        assert "Which database?" in question["message"]
