"""Messages are delivered in order, as text, once, and held while a dialog is open."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from agent_orchestrator.errors import Conflict
from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused, send_and_wait


def _received_texts(box: Sandbox) -> list[str]:
    log = box.folder / "demo.jsonl"
    written = log.read_text() if log.exists() else ""
    lines = [json.loads(line) for line in written[: written.rfind("\n") + 1].splitlines()]
    return [line["text"] for line in lines if line["event"] == "message"]


def _message_states(box: Sandbox, session: str) -> list[str]:
    return [message["state"] for message in box.request("GET", f"/api/sessions/{session}/messages")["messages"]]


def test_hostile_text_arrives_as_text(box: Sandbox) -> None:
    box.stop()
    box.env["AO_DEMO_LOG"] = str(box.folder / "demo.jsonl")
    box.start()
    box.ao("new", "[[say: ready]]", "--name", "h")
    box.wait_until(lambda: box.session("h")["activity"] == "idle")
    hostile = [
        "paste end \x1b[201~ then ; rm -rf x",
        "bell \a and \x1b]0;title\a",
        "return \r here",
        "two\nlines\tand a tab",
        "ünïcödé 日本 🙂",
        "-- leading dashes",
        "$HOME `x` $(y) 'q' \"d\" \\n #{pane_id} %1",
        "; kill-server",
    ]
    for text in hostile:
        box.request("POST", "/api/sessions/h/message", {"content": text})
    box.request("POST", "/api/sessions/h/message", {"content": "nul \0 end"})
    box.wait_until(lambda: len(_received_texts(box)) == len(hostile) + 1, "all messages")
    texts = _received_texts(box)
    assert not any(character in text for text in texts for character in "\x1b\a\0\r")
    assert [text.split()[0] for text in texts] == [text.split()[0] for text in [*hostile, "nul"]]
    assert texts[3] == hostile[3] and texts[4:8] == hostile[4:8]
    assert "rm -rf x" in texts[0] and box.session("h")["activity"] in ("idle", "active")


def test_messages_keep_their_order_and_are_delivered_once(box: Sandbox) -> None:
    box.stop()
    box.env["AO_DEMO_LOG"] = str(box.folder / "demo.jsonl")
    box.start()
    box.ao("new", "[[say: ready]]", "--name", "o")
    texts = [f"message {number} [[say: {number}]]" for number in range(8)]
    for text in texts[:4]:
        box.request("POST", "/api/sessions/o/message", {"content": text})
    box.stop(signal.SIGKILL)
    box.start()
    for text in texts[4:]:
        box.request("POST", "/api/sessions/o/message", {"content": text})
    box.wait_until(lambda: len(_received_texts(box)) >= 8, "all messages")
    box.wait_until(lambda: _message_states(box, "o") == ["acknowledged"] * 8, "all acknowledgements")
    assert _received_texts(box) == texts


def test_a_message_is_held_while_the_agent_waits_for_a_permission(box: Sandbox) -> None:
    box.ao("new", "[[block: Allow rm?]] [[edit: allowed.txt|yes]] [[wait]]", "--name", "b")
    box.wait_until(lambda: box.session("b")["status"] == "blocked")
    assert "Allow rm?" in box.ao("status").stdout
    sent = box.json("send", "b", "[[edit: later.txt|x]]")
    path = f"/api/sessions/b/messages/{sent['messageId']}"
    held_message = box.wait_until(
        lambda: (now := box.request("GET", path))["state"] == "held" and now, "the message to be held"
    )
    assert held_message["reason"]
    assert_refused(box.ao("answer", "b", "some text", check=False), 2, "--allow")
    box.ao("answer", "b", "--allow")
    workspace = Path(box.session("b")["workspacePath"])
    box.wait_until(lambda: (workspace / "allowed.txt").exists(), "the permission")
    box.wait_until(lambda: box.request("GET", path)["state"] == "acknowledged", "the message")
    assert_refused(box.ao("answer", "b", "--allow", check=False), 1, "waits for no permission")


def test_an_answer_applies_only_to_the_request_that_was_shown(box: Sandbox) -> None:
    box.ao("new", "[[block: Allow ls?]] [[block: Allow rm?]] [[edit: allowed.txt|yes]] [[ask: Well?]]", "--name", "b")
    box.wait_until(lambda: box.session("b")["waitingFor"] == "Allow ls?")
    (first,) = box.json("answer", "b")["questions"]
    box.ao("answer", "b", "--allow", "--request", first["request"])
    box.wait_until(lambda: box.session("b")["waitingFor"] == "Allow rm?")
    assert_refused(
        box.ao("answer", "b", "--allow", "--request", first["request"], check=False), 1, "asks something else by now"
    )
    with pytest.raises(Conflict, match="asks something else by now"):
        box.request("POST", "/api/sessions/b/answer", {"decision": "always", "request": first["request"]})
    (second,) = box.json("answer", "b")["questions"]
    assert second["text"] == "Allow rm?" and second["request"] != first["request"]
    assert not (Path(box.session("b")["workspacePath"]) / "allowed.txt").exists()
    box.request("POST", "/api/sessions/b/answer", {"decision": "allow", "request": second["request"]})
    box.wait_until(lambda: any(event["type"] == "agent-ask" for event in box.events("b")), "what was allowed")
    assert_refused(
        box.ao("answer", "b", "ls", "--request", second["request"], check=False), 1, "asks something else by now"
    )
    (third,) = box.json("answer", "b")["questions"]
    box.ao("answer", "b", "fine", "--request", third["request"])
    box.wait_until(lambda: box.session("b")["status"] != "needs_input", "the answer")
    assert_refused(
        box.ao("answer", "b", "fine", "--request", third["request"], check=False), 1, "does not ask this any more"
    )


def test_messages_can_interrupt_and_come_from_files(box: Sandbox) -> None:
    box.ao("new", "[[stuck]]", "--name", "i")
    box.wait_until(lambda: box.session("i")["activity"] == "active")
    file = box.folder / "text"
    file.write_text("[[edit: i.txt|by file]]\n")
    send_and_wait(box, "i", "--file", str(file), "--interrupt")
    workspace = Path(box.session("i")["workspacePath"])
    box.wait_until(lambda: (workspace / "i.txt").exists(), "the message to be acted on")
    box.ao("send", "i", "-", "--wait", stdin="[[edit: j.txt|by stdin]]")
    box.wait_until(lambda: (workspace / "j.txt").exists(), "the message to be acted on")


def test_empty_and_undeliverable_messages_are_refused(shared: Sandbox) -> None:
    shared.ao("new", "[[wait]]", "--name", "e")
    assert_refused(shared.ao("send", "e", "", check=False), 2, "empty")
    assert_refused(shared.ao("send", "e", "\x1b\x07", check=False), 2, "empty")
    shared.ao("stop", "e")
    assert_refused(shared.ao("send", "e", "hello", check=False), 1, "stopped", "ao restore")
