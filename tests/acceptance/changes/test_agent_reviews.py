"""Another agent judges a change: its comments reach the author, it looks again, and its approval is nobody's but its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

PATIENCE = 90.0
CONFIG = """\
defaults: {agent: demo, runtime: process}
ci: {command: "true"}
review: {maxRounds: 2}
agents:
  critic:
    tool: demo
    role: reviewer
    script: "[[review: changes_requested|not yet|a.txt:1:say more]] [[wait]] [[review: approved|good now]] [[wait]]"
  grumbler:
    tool: demo
    script: "[[review: changes_requested|no]] [[wait]] [[review: changes_requested|still no]] [[wait]] [[review: approved|x]] [[wait]]"
  flood:
    tool: demo
    script: >-
      [[sh: i=0; while [ $i -lt 40 ]; do echo '{"event": "review", "verdict": "commented", "body": "and"}'; i=$((i+1)); done
      > lines.txt; cat lines.txt >> $AO_SPOOL]] [[wait]]
  shy: {tool: demo, script: "[[sh: {python} -m agent_orchestrator review app-told --approve -m fine]] [[wait]]"}
  forward:
    tool: demo
    script: >-
      [[edit: f.txt|x]] [[commit: f]] [[done: f]] [[sleep: 2]]
      [[sh: {python} -m agent_orchestrator review app-self --approve > out.txt 2>&1]] [[wait]]
  watched: {tool: demo, reactions: {pr-ready: {action: spawn, agent: critic}}}
"""
WORK = (
    "[[write: a.txt|x]] [[commit: a]] [[done: a]] [[wait]] "
    "[[edit: a.txt|more]] [[commit: b]] [[done: b]] [[wait]] [[edit: a.txt|y]] [[commit: c]] [[done: c]] [[wait]]"
)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    import sys

    with Sandbox(tmp_path_factory.mktemp("box"), "process") as sandbox:
        sandbox.repository(config=CONFIG.replace("{python}", sys.executable))
        sandbox.start()
        yield sandbox


def start(box: Sandbox, name: str, script: str = WORK, agent: str = "demo") -> None:
    box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": script, "agent": agent})


def reviewable(box: Sandbox, name: str) -> bool:
    return bool(box.session(name)["status"] == "review_pending")


def reviews(box: Sandbox, name: str) -> list[dict[str, Any]]:
    if box.session(name)["pr"] is None:
        return []
    found: list[dict[str, Any]] = box.request("GET", f"/api/sessions/app-{name}/review")["reviews"]
    return found


def sent(box: Sandbox, name: str) -> list[str]:
    messages = box.request("GET", f"/api/sessions/app-{name}/messages")["messages"]
    return [message["content"] for message in messages if message["sender"].startswith("rule ")]


def events(box: Sandbox, name: str, kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in box.events(f"app-{name}") if event["type"] == kind]


def test_a_reviewing_agent_asks_for_changes_looks_again_and_approves_for_itself_alone(box: Sandbox) -> None:
    start(box, "one")
    box.until(lambda: reviewable(box, "one"), "the pull request", PATIENCE)
    answer = box.json("review", "app-one", "--agent", "critic", "--wait")
    assert answer["review"]["verdict"] == "changes_requested" and answer["reviewer"]["kind"] == "reviewer"
    box.until(lambda: sent(box, "one"), "the review to reach the author", PATIENCE)
    assert "critic (agent):\n> not yet" in sent(box, "one")[0]
    assert "a.txt:1 critic (agent)" in sent(box, "one")[0] and "| →" in sent(box, "one")[0]
    box.until(lambda: [one["verdict"] for one in reviews(box, "one")][-1:] == ["approved"], "the second look", PATIENCE)
    approval = reviews(box, "one")[-1]
    assert (approval["kind"], approval["author"], approval["counts"]) == ("agent", "critic", False)
    assert approval["head"] == box.session("one")["head"]
    box.until(lambda: box.session("review-one")["status"] == "stopped", "the reviewer to be gone", PATIENCE)
    box.until(lambda: events(box, "review-one", "session-stopped"), "all of it to be gone", PATIENCE)
    over = box.ao("restore", "app-review-one", check=False)
    assert over.returncode == 1 and "ao review app-one --agent" in over.stderr
    one = box.session("one")
    assert one["status"] == "review_pending" and one["pr"]["review"] == "pending"
    assert events(box, "review-one", "pr-opened") == []
    box.request("POST", "/api/sessions/app-one/review", {"verdict": "approved"})
    box.until(lambda: box.session("one")["status"] == "mergeable", "a person's word to count", PATIENCE)


def test_rounds_are_bounded_and_then_a_person_is_called(box: Sandbox) -> None:
    start(box, "two")
    box.until(lambda: reviewable(box, "two"), "the pull request", PATIENCE)
    box.ao("review", "app-two", "--agent", "grumbler", "-m", "look closely")
    box.until(lambda: len(reviews(box, "two")) == 2, "two rounds", PATIENCE)
    box.until(lambda: box.session("two")["column"] == "Needs you", "a person to be called", PATIENCE)
    told = [one for one in events(box, "two", "notified") if "rounds" in one["title"]]
    assert [one["level"] for one in told] == ["urgent"] and "2 rounds" in told[0]["message"]
    box.until(lambda: box.session("review-two")["status"] == "stopped", "the reviewer to be gone", PATIENCE)
    assert len(reviews(box, "two")) == 2
    assert "look closely" in box.request("GET", "/api/sessions/app-review-two/prompt")["prompt"]


def test_a_rule_spawns_a_reviewer(box: Sandbox) -> None:
    start(box, "three", agent="watched")
    box.until(lambda: reviews(box, "three"), "the review", PATIENCE)
    assert reviews(box, "three")[0]["author"] == "critic"
    made = [event["data"] for event in box.events() if event["type"] == "session-created"]
    assert [one["spawned"] for one in made if one.get("reviews") == "app-three"] == [["pr-ready"]]


def test_what_an_agent_says_by_the_command_line_is_an_agents_word(box: Sandbox) -> None:
    start(box, "told")
    box.until(lambda: reviewable(box, "told"), "the pull request", PATIENCE)
    box.ao("review", "app-told", "--agent", "shy")
    box.until(lambda: reviews(box, "told"), "the review", PATIENCE)
    assert [(one["kind"], one["verdict"], one["counts"]) for one in reviews(box, "told")] == [
        ("agent", "approved", False)
    ]
    assert box.session("told")["pr"]["review"] == "pending"


def test_whose_review_is_over_has_judged(box: Sandbox) -> None:
    start(box, "heard", WORK.partition(" [[wait]]")[0] + " [[wait]]" * 3)
    box.until(lambda: reviewable(box, "heard"), timeout=PATIENCE)
    reviewer = "app-review-heard"
    box.ao("review", "heard", "--agent", "flood")
    box.until(lambda: box.session(reviewer)["status"] == "stopped", timeout=PATIENCE)
    said = len([one for one in box.events(reviewer) if one["type"] == "agent-review"])
    assert said == 40 and len(reviews(box, "heard")) == 1
    box.until(lambda: sent(box, "heard"), timeout=PATIENCE)
    assert len(sent(box, "heard")) == 1


def test_an_agent_does_not_judge_its_own_change(box: Sandbox) -> None:
    start(box, "self", "", "forward")
    place = box.until(lambda: box.session("self")["workspacePath"], "its workspace", PATIENCE)
    box.until(
        lambda: (Path(place) / "out.txt").exists() and (Path(place) / "out.txt").read_text(), "its attempt", PATIENCE
    )
    assert "was not asked to judge its own change" in (Path(place) / "out.txt").read_text()
    assert reviews(box, "self") == []


HOOKED = """\
defaults: {agent: demo, runtime: process}
ci: {command: "true"}
review: {approval: agent}
agents:
  hooked: {tool: command, prompt: file, command: [sh, -c, "sh ./.claude/hook; exec sleep 600"]}
  calm: {tool: demo, script: "[[review: approved|good]] [[wait]]"}
  thorough: {tool: demo, script: "[[review: approved|good]] [[wait]] [[review: approved|good again]] [[wait]]"}
  asking:
    tool: demo
    script: >-
      [[review: changes_requested|more]] [[wait]] [[block: Run it?]] [[review: approved|good]] [[wait]]
      [[review: approved|good again]] [[wait]]
"""


def test_a_change_of_what_agents_are_started_by_is_approved_by_no_agent(tmp_path: Path) -> None:
    """Its reviewer is started in its folder, by what it has put there."""
    import sys

    own = f"{sys.executable} -m agent_orchestrator review app-sly --approve -m fine"
    with Sandbox(tmp_path, "process") as box:
        box.repository(config=HOOKED)
        box.start()
        start(box, "plain", "[[write: a.txt|x]] [[commit: a]] [[done: a]] [[wait]]")
        start(box, "sly", f"[[write: .claude/hook|{own}]] [[commit: a]] [[done: a]] [[wait]]")
        for name, agent in (("plain", "calm"), ("sly", "hooked")):
            box.until(lambda name=name: reviewable(box, name), "the pull request", PATIENCE)  # type: ignore[misc]
            box.ao("review", f"app-{name}", "--agent", agent)
            box.until(lambda name=name: reviews(box, name), "its judgement", PATIENCE)  # type: ignore[misc]
        assert [(one["verdict"], one["counts"]) for one in reviews(box, "plain")] == [("approved", True)]
        (judged,) = reviews(box, "sly")
        assert (judged["verdict"], judged["counts"], judged["kind"]) == ("approved", False, "agent")
        assert ".claude/hook" in judged["body"]
        assert box.session("sly")["pr"]["review"] == "pending"


def test_an_agents_approval_is_for_the_commit_that_it_had_before_it(tmp_path: Path) -> None:
    """Neither for what is committed later, unseen, nor where its reviewer, started by what the change put there, turned to the base."""
    import sys

    away = f"git checkout -q --detach main; {sys.executable} -m agent_orchestrator review app-sly --approve -m fine"
    with Sandbox(tmp_path, "process") as box:
        box.repository(config=HOOKED)
        box.start()
        start(
            box, "later", "[[write: a|x]] [[commit: a]] [[done: a]] [[wait]] [[write: b|x]] [[commit: b]] [[done: b]]"
        )
        start(box, "sly", f"[[write: .claude/hook|{away}]] [[commit: a]] [[done: a]] [[wait]]")
        for name, agent in (("later", "calm"), ("sly", "hooked")):
            box.until(lambda name=name: reviewable(box, name), "the pull request", PATIENCE)  # type: ignore[misc]
            box.ao("review", f"app-{name}", "--agent", agent)
            box.until(lambda name=name: reviews(box, name), "its judgement", PATIENCE)  # type: ignore[misc]
        assert box.session("sly")["pr"]["review"] == "pending"
        assert box.session("later")["pr"]["review"] == "approved"
        box.ao("send", "app-later", "go on")
        box.until(lambda: box.session("later")["pr"]["review"] == "pending", "a commit that nobody judged", PATIENCE)
        box.ao("review", "app-later", "--approve")
        assert box.session("later")["pr"]["review"] == "approved"


@contextmanager
def reviewed(folder: Path, agent: str) -> Iterator[Sandbox]:
    """A change that an agent is asked to judge, whose word is enough."""
    with Sandbox(folder, "process") as box:
        box.repository(config=HOOKED)
        box.start()
        start(box, "one", WORK)
        box.until(lambda: reviewable(box, "one"), "the pull request", PATIENCE)
        box.ao("review", "app-one", "--agent", agent)
        yield box


def test_who_approved_a_change_looks_again_at_what_is_committed_later(tmp_path: Path) -> None:
    with reviewed(tmp_path, "thorough") as box:
        box.until(lambda: reviews(box, "one"), "its judgement", PATIENCE)
        box.ao("send", "app-one", "go on")
        box.until(lambda: len(reviews(box, "one")) == 2, "another look", PATIENCE)
        assert reviews(box, "one")[1]["head"] == box.session("one")["head"] != reviews(box, "one")[0]["head"]
        assert box.session("one")["pr"]["review"] == "approved"
        box.ao("merge", "app-one")
        box.until(lambda: box.session("review-one")["status"] in ("stopped", "done"), "the reviewer's end", PATIENCE)


def test_who_waits_for_an_answer_while_it_judges_keeps_what_it_has_before_it(tmp_path: Path) -> None:
    """What is committed meanwhile is judged afterwards: no approval is for a commit that was put there unseen."""
    with reviewed(tmp_path, "asking") as box:
        box.until(lambda: box.session("review-one")["status"] == "blocked", "the question in its midst", PATIENCE)
        judged = box.session("one")["head"]
        box.ao("send", "app-one", "go on")
        box.until(lambda: events(box, "one", "agent-done")[2:], "more work", PATIENCE)
        box.until(lambda: box.session("one")["head"] != judged, "a later commit", PATIENCE)
        later = box.session("one")["head"]
        box.until(
            lambda: later in [one["head"] for one in events(box, "one", "checks-settled")], "its checks", PATIENCE
        )
        box.ao("answer", "app-review-one", "--allow")
        box.until(lambda: len(reviews(box, "one")) == 3, "all of its judgements", PATIENCE)
        assert [one["head"] for one in reviews(box, "one")][1:] == [judged, later]
        assert box.session("one")["pr"]["review"] == "approved"
