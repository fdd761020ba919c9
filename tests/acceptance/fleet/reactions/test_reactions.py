"""Every first reaction, through the public surface: what happens, what the agent is sent, when a person is called."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import Conflict
from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {agent: demo, runtime: process}
ci: {command: "test ! -e broken.txt"}
reactions:
  ci-failed: {message: "MEND {{errors}} ATTEMPT {{attempt}}", retries: 2, escalateAfter: 2, backoff: 1s..1s}
  changes-requested: {escalateAfter: 1s}
  agent-needs-input: {delay: 0s}
  agent-blocked: {delay: 0s}
  agent-stuck: {threshold: 2s}
"""


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=CONFIG)
        sandbox.start()
        yield sandbox


def start(box: Sandbox, name: str, script: str) -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": script})


def told(box: Sandbox, name: str, trigger: str) -> list[dict[str, Any]]:
    found = [event["data"] for event in box.events(f"app-{name}") if event["type"] == "notified"]
    return [data for data in found if data["trigger"] == trigger]


def sent(box: Sandbox, name: str) -> list[str]:
    messages = box.request("GET", f"/api/sessions/app-{name}/messages")["messages"]
    return [message["content"] for message in messages if message["sender"].startswith("rule ")]


def is_status(box: Sandbox, name: str, status: str) -> bool:
    return bool(box.session(name)["status"] == status)


def test_ci_failures_go_back_until_the_attempts_are_used_up_then_a_person_is_called(box: Sandbox) -> None:
    again = "[[wait]] [[edit: more.txt|x]] [[commit: try]] [[done: tried]]"
    start(box, "bad", f"[[write: broken.txt|x]] [[commit: break]] [[done: broke]] {again} {again} [[wait]]")
    box.until(lambda: told(box, "bad", "ci-failed"), "a person to be called", 60)
    assert [text.partition(" ")[0] for text in sent(box, "bad")] == ["MEND", "MEND"]
    assert "broken.txt" in sent(box, "bad")[0] and sent(box, "bad")[1].endswith("ATTEMPT 2")
    now = box.session("bad")
    assert (now["status"], now["column"], now["attempts"]["ci-failed"]) == ("ci_failed", "Needs you", 2)
    assert told(box, "bad", "ci-failed")[0]["level"] == "urgent"


def test_an_agent_that_says_it_has_mended_and_committed_nothing_is_told_again_then_a_person_is_called(
    box: Sandbox,
) -> None:
    idle = "[[wait]] [[done: it passes now]]"
    start(box, "words", f"[[write: broken.txt|x]] [[commit: break]] [[done: broke]] {idle} {idle} [[wait]]")
    box.until(lambda: told(box, "words", "ci-failed"), "a person to be called", 60)
    assert sent(box, "words")[1].endswith("ATTEMPT 2") and len(sent(box, "words")) == 2
    now = box.session("words")
    assert (now["status"], now["column"], now["waitingFor"]) == ("ci_failed", "Needs you", "you")


def test_a_mended_check_ends_the_episode(box: Sandbox) -> None:
    start(
        box,
        "mend",
        "[[write: broken.txt|x]] [[commit: break]] [[done: a]] [[wait]] [[sh: rm broken.txt]] [[commit: mend]] [[done: b]]",
    )
    box.until(lambda: sent(box, "mend"), "word of the check that fails")
    box.until(lambda: is_status(box, "mend", "review_pending"), "the check to be mended", 60)
    assert len(sent(box, "mend")) == 1
    box.until(lambda: box.session("mend")["attempts"] == {}, "the episode to end")


def test_a_review_comment_is_sent_and_changes_asked_for_too_long_call_a_person(box: Sandbox) -> None:
    start(box, "rev", "[[edit: a.txt|x]] [[commit: a]] [[done: a]] [[wait]] [[wait]]")
    box.until(lambda: is_status(box, "rev", "review_pending"), "the pull request")
    said = {"verdict": "commented", "comments": [{"path": "a.txt", "line": 1, "body": "why x?"}]}
    box.request("POST", "/api/sessions/app-rev/review", said)
    box.until(
        lambda: any("a.txt:1" in text and "why x?" in text for text in sent(box, "rev")), "the comment to be sent"
    )
    box.request("POST", "/api/sessions/app-rev/review", {"verdict": "changes_requested", "body": "make it y"})
    box.until(lambda: any("make it y" in text for text in sent(box, "rev")), "the review to be sent")
    box.until(lambda: told(box, "rev", "changes-requested"), "a person to be called by the clock")


def test_what_an_agent_runs_into_is_told(box: Sandbox) -> None:
    start(box, "asks", "[[ask: Which one?]]")
    start(box, "blocked", "[[block: Allow rm?]]")
    start(box, "stuck", "[[stuck]]")
    start(box, "dies", "[[exit: 3]]")
    for name, trigger in (("asks", "needs-input"), ("blocked", "blocked"), ("stuck", "stuck"), ("dies", "exited")):
        box.until(lambda name=name, trigger=trigger: told(box, name, f"agent-{trigger}"), f"{trigger} to be told")  # type: ignore[misc]
    levels = {
        name: told(box, name, f"agent-{trigger}")[0]["level"]
        for name, trigger in (("asks", "needs-input"), ("dies", "exited"))
    }
    assert levels == {"asks": "urgent", "dies": "warning"}
    assert is_status(box, "stuck", "stuck")


def test_what_is_approved_and_green_is_offered_and_by_a_rule_lands_by_itself(box: Sandbox) -> None:
    start(box, "one", "[[edit: one.txt|x]] [[commit: one]] [[done: one]]")
    box.until(lambda: is_status(box, "one", "review_pending"))
    box.request("POST", "/api/sessions/app-one/review", {"verdict": "approved"})
    box.until(lambda: is_status(box, "one", "mergeable"), "it to be mergeable")
    box.until(lambda: told(box, "one", "approved-and-green"), "the offer")
    box.ao("config", "set", "reactions.approved-and-green.auto", "true")
    start(box, "two", "[[edit: two.txt|x]] [[commit: two]] [[done: two]]")
    box.until(lambda: is_status(box, "two", "review_pending"))
    box.request("POST", "/api/sessions/app-two/review", {"verdict": "approved"})
    box.until(lambda: is_status(box, "two", "merged"), "it to land by itself")
    assert (box.repo / "two.txt").exists() and not (box.repo / "one.txt").exists()


def test_of_two_people_who_answer_at_once_one_is_told_so(box: Sandbox) -> None:
    start(box, "q", "[[ask: Which one?]] [[write: answer.txt|{answer}]]")
    box.until(lambda: is_status(box, "q", "needs_input"))

    def answer(text: str) -> str:
        try:
            box.request("POST", "/api/sessions/app-q/answer", {"text": text})
        except Conflict:
            return "refused"
        return text

    with ThreadPoolExecutor(2) as pool:
        results = sorted(pool.map(answer, ("first", "second")))
    assert "refused" in results and results != ["refused", "refused"]
    file = Path(box.session("q")["workspacePath"]) / "answer.txt"
    box.until(lambda: file.exists() and file.read_text().endswith("\n"), "the answer to be taken up")
    assert file.read_text().strip() in results


def test_a_label_on_its_issue_sends_what_the_rule_says_if_its_condition_holds(box: Sandbox) -> None:
    file = box.repo / "agent-orchestrator.yaml"
    rule = "  label-added: {condition: \"label == 'needs-tests'\", action: send-to-agent, message: Please add tests for this change}\n"
    file.write_text(CONFIG + rule)
    number = box.json("issue", "new", "Greet people")["number"]
    box.request("POST", "/api/sessions", {"issue": str(number), "name": "labelled", "prompt": "[[say: ready]]"})
    box.until(lambda: box.session("labelled")["activity"] == "idle")
    box.ao("issue", "label", str(number), "later")
    box.ao("issue", "label", str(number), "needs-tests")
    box.until(lambda: sent(box, "labelled"), "the rule's message")
    assert sent(box, "labelled") == ["Please add tests for this change"]
