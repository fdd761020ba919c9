"""The default reactions: their effects, the messages to agents and the notifications to people."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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


def create_session(box: Sandbox, name: str, script: str) -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": script})


def notices(box: Sandbox, name: str, trigger: str) -> list[dict[str, Any]]:
    all_notices = [event["data"] for event in box.events(f"app-{name}") if event["type"] == "notified"]
    return [data for data in all_notices if data["trigger"] == trigger]


def rule_messages(box: Sandbox, name: str) -> list[str]:
    messages = box.request("GET", f"/api/sessions/app-{name}/messages")["messages"]
    return [message["content"] for message in messages if message["sender"].startswith("rule ")]


def has_status(box: Sandbox, name: str, status: str) -> bool:
    return bool(box.session(name)["status"] == status)


def test_ci_failures_are_sent_to_the_agent_until_the_retries_are_used_up(box: Sandbox) -> None:
    again = "[[wait]] [[edit: more.txt|x]] [[commit: try]] [[done: tried]]"
    create_session(box, "bad", f"[[write: broken.txt|x]] [[commit: break]] [[done: broke]] {again} {again} [[wait]]")
    box.wait_until(lambda: notices(box, "bad", "ci-failed"), "a person to be notified", 60)
    assert [text.partition(" ")[0] for text in rule_messages(box, "bad")] == ["MEND", "MEND"]
    assert "broken.txt" in rule_messages(box, "bad")[0] and rule_messages(box, "bad")[1].endswith("ATTEMPT 2")
    now = box.session("bad")
    assert (now["status"], now["column"], now["attempts"]["ci-failed"]) == ("ci_failed", "Needs you", 2)
    assert notices(box, "bad", "ci-failed")[0]["level"] == "urgent"


def test_an_agent_that_reports_a_fix_without_a_commit_is_sent_the_failure_again(
    box: Sandbox,
) -> None:
    idle = "[[wait]] [[done: it passes now]]"
    create_session(box, "words", f"[[write: broken.txt|x]] [[commit: break]] [[done: broke]] {idle} {idle} [[wait]]")
    box.wait_until(lambda: notices(box, "words", "ci-failed"), "a person to be notified", 60)
    assert rule_messages(box, "words")[1].endswith("ATTEMPT 2") and len(rule_messages(box, "words")) == 2
    now = box.session("words")
    assert (now["status"], now["column"], now["waitingFor"]) == ("ci_failed", "Needs you", "you")


def test_a_fixed_check_ends_the_episode(box: Sandbox) -> None:
    create_session(
        box,
        "mend",
        "[[write: broken.txt|x]] [[commit: break]] [[done: a]] [[wait]] [[sh: rm broken.txt]] [[commit: mend]] [[done: b]]",
    )
    box.wait_until(lambda: rule_messages(box, "mend"), "the message about the failing check")
    box.wait_until(lambda: has_status(box, "mend", "review_pending"), "the check to be fixed", 60)
    assert len(rule_messages(box, "mend")) == 1
    box.wait_until(lambda: box.session("mend")["attempts"] == {}, "the episode to end")


def test_reviews_are_sent_to_the_agent_and_a_late_response_notifies_a_person(box: Sandbox) -> None:
    create_session(box, "rev", "[[edit: a.txt|x]] [[commit: a]] [[done: a]] [[wait]] [[wait]]")
    box.wait_until(lambda: has_status(box, "rev", "review_pending"), "the pull request")
    review = {"verdict": "commented", "comments": [{"path": "a.txt", "line": 1, "body": "why x?"}]}
    box.request("POST", "/api/sessions/app-rev/review", review)
    box.wait_until(
        lambda: any("a.txt:1" in text and "why x?" in text for text in rule_messages(box, "rev")),
        "the comment to be sent",
    )
    box.request("POST", "/api/sessions/app-rev/review", {"verdict": "changes_requested", "body": "make it y"})
    box.wait_until(lambda: any("make it y" in text for text in rule_messages(box, "rev")), "the review to be sent")
    box.wait_until(lambda: notices(box, "rev", "changes-requested"), "the notification after the timeout")


def test_questions_blocks_stuck_agents_and_exits_are_notified(box: Sandbox) -> None:
    create_session(box, "asks", "[[ask: Which one?]]")
    create_session(box, "blocked", "[[block: Allow rm?]]")
    create_session(box, "stuck", "[[stuck]]")
    create_session(box, "dies", "[[exit: 3]]")
    for name, trigger in (("asks", "needs-input"), ("blocked", "blocked"), ("stuck", "stuck"), ("dies", "exited")):
        box.wait_until(partial(notices, box, name, f"agent-{trigger}"), f"{trigger} to be sent")
    levels = {
        name: notices(box, name, f"agent-{trigger}")[0]["level"]
        for name, trigger in (("asks", "needs-input"), ("dies", "exited"))
    }
    assert levels == {"asks": "urgent", "dies": "warning"}
    assert has_status(box, "stuck", "stuck")


def test_an_approved_change_is_offered_for_merge_or_merged_by_a_rule(box: Sandbox) -> None:
    create_session(box, "one", "[[edit: one.txt|x]] [[commit: one]] [[done: one]]")
    box.wait_until(lambda: has_status(box, "one", "review_pending"))
    box.request("POST", "/api/sessions/app-one/review", {"verdict": "approved"})
    box.wait_until(lambda: has_status(box, "one", "mergeable"), "it to be mergeable")
    box.wait_until(lambda: notices(box, "one", "approved-and-green"), "the offer")
    box.ao("config", "set", "reactions.approved-and-green.auto", "true")
    create_session(box, "two", "[[edit: two.txt|x]] [[commit: two]] [[done: two]]")
    box.wait_until(lambda: has_status(box, "two", "review_pending"))
    box.request("POST", "/api/sessions/app-two/review", {"verdict": "approved"})
    box.wait_until(lambda: has_status(box, "two", "merged"), "the automatic merge")
    assert (box.repo / "two.txt").exists() and not (box.repo / "one.txt").exists()


def test_of_two_simultaneous_answers_to_a_question_one_is_refused(box: Sandbox) -> None:
    create_session(box, "q", "[[ask: Which one?]] [[write: answer.txt|{answer}]]")
    box.wait_until(lambda: has_status(box, "q", "needs_input"))

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
    box.wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "the answer to be used")
    assert file.read_text().strip() in results


def test_a_label_on_the_issue_sends_the_rules_message_if_its_condition_holds(box: Sandbox) -> None:
    file = box.repo / "agent-orchestrator.yaml"
    rule = "  label-added: {condition: \"label == 'needs-tests'\", action: send-to-agent, message: Please add tests for this change}\n"
    file.write_text(CONFIG + rule)
    number = box.json("issue", "new", "Greet people")["number"]
    box.request("POST", "/api/sessions", {"issue": str(number), "name": "labelled", "prompt": "[[say: ready]]"})
    box.wait_until(lambda: box.session("labelled")["activity"] == "idle")
    box.ao("issue", "label", str(number), "later")
    box.ao("issue", "label", str(number), "needs-tests")
    box.wait_until(lambda: rule_messages(box, "labelled"), "the rule's message")
    assert rule_messages(box, "labelled") == ["Please add tests for this change"]
