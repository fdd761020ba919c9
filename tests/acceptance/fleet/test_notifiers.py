"""People are told, by a real daemon: routed, retried, shown when it fails, and answered from where it is read."""

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

from agent_orchestrator.testing.chat import ChatServer, Fault, Received
from agent_orchestrator.testing.chat.server import SECRET
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
ASKS = """\
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
        given = {"hook": chat.webhook, "slack": chat.slack, "discord": chat.discord, "apprise": chat.apprise}
        sandbox.repository(config=CONFIG.format(secret=SECRET, **given))
        sandbox.start()
        yield sandbox


def of(chat: ChatServer, kind: str) -> list[Received]:
    return [one for one in chat.received if one.kind == kind]


def ask(box: Sandbox, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
    """One request over TCP, by nobody."""
    url = urlsplit(json.loads(box.home.info.read_text())["url"])
    link = http.client.HTTPConnection(str(url.hostname), url.port, timeout=60)
    try:
        link.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = link.getresponse()
        return answer.status, answer.read().decode()
    finally:
        link.close()


def origin_of_a_form(box: Sandbox, path: str) -> str:
    """What a browser says where the form of a page comes from: one that wants no referrer is nobody's. The last policy counts."""
    url = str(json.loads(box.home.info.read_text())["url"])
    with urllib.request.urlopen(url + path) as answer:
        return "null" if answer.headers.get_all("Referrer-Policy")[-1] == "no-referrer" else url


def test_every_notifier_can_be_tried(box: Sandbox, chat: ChatServer) -> None:
    done = box.ao("notify", "test")
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["sent", "hook"],
        ["sent", "team"],
        ["sent", "room"],
        ["sent", "phone"],
    ]
    assert sorted(one.kind for one in chat.received) == ["discord", "other", "slack", "webhook"]
    assert chat.refused == []
    chat.fail(Fault(404))
    failed = box.ao("notify", "test", "team", "--json", check=False)
    (tried,) = json.loads(failed.stdout)["notifiers"]
    assert failed.returncode == 1
    assert tried["problem"].startswith("slack: 127.0.0.1 answered 404") and "webhookUrl" in tried["remedy"]
    nobody = box.ao("notify", "test", "teem", check=False)
    assert (nobody.returncode, nobody.stderr.count("\n")) == (3, 1) and "hook, team" in nobody.stderr


def test_a_permission_is_answered_by_the_link_once_and_for_what_was_shown(box: Sandbox, chat: ChatServer) -> None:
    task = box.folder / "task.sh"
    task.write_text(ASKS)
    box.ao("new", "--name", "s", "--file", str(task))
    chat.wait(2, 60)
    (hook,) = of(chat, "webhook")
    assert hook.violations == [] and hook.body["level"] == "urgent" and "rm -r build" in hook.body["message"]
    allow, deny = (urlsplit(action["url"]).path for action in hook.body["actions"])
    assert hook.body["url"].endswith("/sessions/app-s")

    status, page = ask(box, "GET", allow, Sec_Fetch_Site="cross-site", Accept="text/html")
    assert status == 200 and "Allow: app-s" in page and "rm -r build" in page and "<script" not in page
    assert [one for one in box.events("s") if one["type"] == "permission-answered"] == []
    assert ask(box, "POST", allow[:-3] + "AAA")[0] == 403
    assert ask(box, "POST", allow, Origin="https://evil.example")[0] == 403

    form = {"Accept": "text/html", "Content_Type": "application/x-www-form-urlencoded", "Sec_Fetch_Site": "same-origin"}
    assert ask(box, "POST", allow, b"", Origin="null", **form)[0] == 403
    assert ask(box, "POST", allow, b"", Origin=origin_of_a_form(box, allow), **form)[0] == 200
    box.until(lambda: "rm -r build: y" in box.home.terminal_log("app-s").read_text(), "the answer to arrive")
    box.until(lambda: len(of(chat, "webhook")) == 2, "the next request to be told")
    assert ask(box, "POST", allow)[0] == 409 and ask(box, "POST", deny)[0] == 409
    (answered,) = [one for one in box.events("s") if one["type"] == "permission-answered"]
    assert answered["data"]["command"] == "rm -r build"
    (used,) = [one for one in box.events("s") if one["type"] == "answer-link-used"]
    assert used["data"]["by"] == "link hook"
    (entry,) = map(json.loads, box.ao("audit", "--json", "--kind", "permission-answered").stdout.splitlines())
    assert entry["actor"] == "link hook"
    assert not re.search(r"aoa_\w+\.\w{30}", box.ao("events", "s", "--json").stdout)
    assert not re.search(r"aoa_\w{20,}\.[\w-]{40}", box.home.log.read_text())


def test_a_button_in_slack_counts_if_slack_signed_it_and_for_those_who_may(box: Sandbox, chat: ChatServer) -> None:
    task = box.folder / "task.sh"
    task.write_text(ASKS)
    box.ao("new", "--name", "s", "--file", str(task))
    chat.wait(2, 60)
    (team,) = of(chat, "slack")
    buttons = team.body["blocks"][-1]["elements"]
    assert [one["text"]["text"] for one in buttons] == ["Open", "Allow", "Deny"]
    assert press(box, buttons[2]["value"], "U1", secret="another")[0] == 401
    assert press(box, buttons[2]["value"], "U1", at=time.time() - 600)[0] == 401
    assert press(box, buttons[2]["value"], "U2")[0] == 200  # a stranger in the channel: nothing is done
    assert [one for one in box.events("s") if one["type"] == "permission-answered"] == []
    assert press(box, buttons[2]["value"], "U1") == (200, '{"taken":true}')
    box.until(lambda: "rm -r build: n" in box.home.terminal_log("app-s").read_text(), "the answer to arrive")
    (used,) = box.until(lambda: [one for one in box.events("s") if one["type"] == "answer-link-used"], "it to be told")
    assert used["data"]["by"] == "slack U1" and used["data"]["verb"] == "deny"


def press(
    box: Sandbox, value: str, user: str, secret: str = "slack-signing-secret", at: float = 0.0
) -> tuple[int, str]:
    told: dict[str, Any] = {"type": "block_actions", "user": {"id": user}, "actions": [{"value": value}]}
    body = f"payload={quote(json.dumps(told))}".encode()
    stamp = str(int(at or time.time()))
    signed = hmac.new(secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
    return ask(
        box,
        "POST",
        "/api/webhooks/slack",
        body,
        X_Slack_Request_Timestamp=stamp,
        X_Slack_Signature=f"v0={signed}",
        Content_Type="application/x-www-form-urlencoded",
    )


def test_failure_blocks_nothing_and_is_shown_once(box: Sandbox, chat: ChatServer) -> None:
    chat.fail(*[Fault(404)] * 2)
    box.ao("new", "--name", "a", "--no-wait", "exit 3")
    box.ao("new", "--name", "b", "--no-wait", "exit 3")
    for name in ("a", "b"):
        box.until(lambda name=name: box.session(name)["status"] == "failed", "its failure")  # type: ignore[misc]
    box.until(lambda: "hook tells nobody" in box.ao("status").stdout, "the failure to be shown")
    box.until(lambda: len(chat.refused) == 2, "both to be tried")
    told = [one for one in box.events() if one["type"] == "notifier-failing"]
    assert len(told) == 1 and told[0]["data"]["error"].startswith("webhook: 127.0.0.1 answered 404")
    doctor = {one["name"]: one for one in json.loads(box.ao("doctor", "--json", check=False).stdout)["checks"]}
    assert doctor["notifier hook"]["state"] == "warning" and "answered 404" in doctor["notifier hook"]["detail"]
    assert doctor["notifier room"]["state"] == "ok"
    box.ao("new", "--name", "c", "--no-wait", "exit 3")
    box.until(lambda: of(chat, "webhook"), "the next one to arrive")
    box.until(lambda: "tells nobody" not in box.ao("status").stdout, "the trouble to be over")


def test_what_a_daemon_died_over_is_sent_by_the_next_one_with_the_same_id(box: Sandbox, chat: ChatServer) -> None:
    chat.fail(Fault("hang"))
    box.ao("new", "--name", "a", "--no-wait", "exit 3")
    box.until(lambda: chat.received, "it to be sent")
    box.stop(signal.SIGKILL)
    box.start()
    box.until(lambda: len(chat.received) == 2, "it to be sent again")
    first, second = chat.received
    assert first.headers["x-ao-id"] == second.headers["x-ao-id"]
    ended = "notification-settled"
    box.until(lambda: any(one["type"] == ended for one in box.events()), "its end to be recorded")
    (settled,) = [one["data"] for one in box.events() if one["type"] == ended]
    assert (settled["outcome"], settled["notices"]) == ("sent", [first.headers["x-ao-id"]])


def test_no_address_of_a_notifier_is_shown_anywhere(box: Sandbox, chat: ChatServer) -> None:
    secret = chat.slack.rpartition("/")[2]
    chat.fail(*[Fault(404)] * 4)
    shown = box.ao("notify", "test", check=False)
    config = box.ao("config", "get", "notifiers", check=False)
    log = box.home.log.read_text() + box.ao("events", "--json").stdout
    for text in (shown.stdout, shown.stderr, log):
        assert secret not in text and "discord-webhook-token" not in text
    assert config.returncode in (0, 3)


def test_a_change_that_is_ready_lands_by_its_link(box: Sandbox, chat: ChatServer) -> None:
    box.ao("new", "--name", "m", "--agent", "demo", "[[write: new.txt|x]] [[commit: add]] [[done: ready]]")
    box.until(lambda: box.session("m")["status"] == "review_pending", "it to be ready")
    box.ao("review", "m", "--approve")
    box.until(lambda: [one for one in of(chat, "webhook") if one.body["trigger"] == "approved-and-green"], "the offer")
    (ready,) = [one.body for one in of(chat, "webhook") if one.body["trigger"] == "approved-and-green"]
    assert [one["label"] for one in ready["actions"]] == ["Merge", "Deny"] and ready["level"] == "action"
    status, said = ask(box, "POST", urlsplit(ready["actions"][0]["url"]).path)
    assert (status, json.loads(said)) == (200, {"session": "app-m", "verb": "allow", "by": "link hook"})
    box.until(lambda: box.session("m")["status"] == "merged", "it to land")
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


def test_a_notifier_of_ones_own_is_told_like_ours(tmp_path: Path) -> None:
    with Sandbox(tmp_path, "process") as box:
        told = tmp_path / "told.jsonl"
        repo = box.repository(
            config="defaults: {agent: demo, runtime: process, notifiers: [telegram]}\n"
            "plugins: [{path: ./telegram.py}]\n"
            f"notifiers: {{telegram: {{plugin: telegram, chatId: {told}}}}}\n"
            "reactions: {agent-needs-input: {delay: 0s}}\n"
        )
        (repo / "telegram.py").write_text(TELEGRAM)
        box.start()
        box.ao("notify", "test")
        box.ao("new", "--name", "q", "[[ask: Which database?]]")
        box.until(lambda: len(told.read_text().splitlines()) == 2, "the question to be told")
        question = json.loads(told.read_text().splitlines()[1])
        assert question["session_id"] == "app-q" and question["level"] == "urgent"
        assert "Which database?" in question["message"]
