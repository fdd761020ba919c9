"""Each action of a rule, on the triggers where it makes sense, through the public surface: one daemon, a profile for each case."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import Conflict
from agent_orchestrator.testing.sandbox import Sandbox

BREAK = "[[write: broken.txt|x]] [[commit: break]] [[done: broke]] [[wait]] [[wait]]"
GOOD = "[[edit: {name}.txt|x]] [[commit: work]] [[done: worked]] [[wait]] [[wait]]"
PATIENCE = 90.0


class Seen:
    """What is known of one session."""

    def __init__(self, box: Sandbox, name: str) -> None:
        self.box = box
        self.id = f"app-{name}"

    @property
    def session(self) -> dict[str, Any]:
        return self.box.session(self.id)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.box.events(self.id) if event["type"] == kind]

    def told(self, trigger: str) -> list[dict[str, Any]]:
        return [data for data in self.events("notified") if data["trigger"] == trigger]

    def sent(self) -> list[str]:
        return [data["text"] for data in self.events("message-queued") if str(data.get("sender")).startswith("rule ")]

    def children(self) -> list[dict[str, Any]]:
        made = [event for event in self.box.events() if event["type"] == "session-created"]
        return [event["data"] for event in made if event["data"].get("parent") == self.id]


@dataclass(frozen=True)
class Case:
    """A rule, what the agent plays, and what must come of it."""

    rule: str
    script: str
    comes: Callable[[Seen], object]


CASES: dict[str, Case] = {
    "ci-rerun": Case(
        "ci-failed: {action: rerun-ci, retries: 1, escalateAfter: 5, escalate: true}",
        BREAK,
        lambda seen: seen.events("checks-requested") and seen.told("ci-failed"),
    ),
    "ci-command": Case(
        'ci-failed: {action: command, command: "echo $AO_TRIGGER $AO_SESSION; pwd; cat $AO_REACTION_FILE; exit 3"}',
        BREAK,
        lambda seen: (
            [
                one
                for one in seen.events("command-finished")
                if one["code"] == 3
                and f"ci-failed {seen.id}" in one["output"]
                and seen.session["workspacePath"] in one["output"]
            ]
            and seen.told("ci-failed")
        ),
    ),
    "ci-slow-command": Case(
        "ci-failed: {action: command, command: sleep 60, timeout: 1s}",
        BREAK,
        lambda seen: [one for one in seen.events("command-finished") if one.get("code") is None],
    ),
    "ci-stop": Case(
        "ci-failed: {action: stop, priority: urgent}",
        BREAK,
        lambda seen: seen.session["status"] == "stopped" and seen.told("ci-failed")[0]["level"] == "urgent",
    ),
    "ci-escalate": Case(
        "ci-failed: {action: escalate, message: 'look at {{session.id}}'}",
        BREAK,
        lambda seen: (
            [(one["message"], one["level"]) for one in seen.told("ci-failed")] == [(f"look at {seen.id}", "urgent")]
            and seen.session["column"] == "Needs you"
        ),
    ),
    "ci-spawn": Case(
        "ci-failed: {action: spawn, agent: helper, message: 'Help {{session.id}}'}",
        BREAK,
        lambda seen: (
            [one["base"] for one in seen.children()] == ["feature/ci-spawn"]
            and seen.children()[0]["profile"] == "helper"
            and seen.children()[0]["prompt"] == "Help app-ci-spawn"
        ),
    ),
    "ci-merge": Case(
        "ci-failed: {action: merge}",
        BREAK,
        lambda seen: (
            [one for one in seen.told("ci-failed") if "checks fail" in one["message"]]
            and not seen.events("merge-requested")
        ),
    ),
    "ci-condition": Case(
        "ci-failed: {action: notify, condition: \"agent == 'another'\", retries: 5}",
        BREAK,
        lambda seen: seen.session["status"] == "ci_failed" and not seen.told("ci-failed"),
    ),
    "exited-restart": Case(
        "agent-exited: {action: restart, retries: 1}",
        "[[exit: 3]]",
        lambda seen: len(seen.events("agent-launched")) == 2 and "Your process ended" in seen.sent()[0],
    ),
    "stuck-restart": Case(
        "agent-stuck: {action: restart, threshold: 2s, retries: 1, message: 'go on, {{session.name}}'}",
        "[[stuck]]",
        lambda seen: len(seen.events("agent-launched")) == 2 and seen.sent() == ["go on, stuck-restart"],
    ),
    "idle-send": Case(
        "agent-idle: {action: send-to-agent, retries: 1, message: '[[edit: more.txt|x]] [[commit: more]]'}",
        "[[say: nothing]]",
        lambda seen: seen.session["pr"] is not None and len(seen.sent()) == 1,
    ),
    "idle-stop": Case(
        "agent-idle: {action: stop, threshold: 1s}",
        "[[say: nothing]]",
        lambda seen: seen.session["status"] == "stopped",
    ),
    "needs-input-send": Case(
        "agent-needs-input: {action: send-to-agent, delay: 0s, message: blue}",
        "[[ask: Which colour?]] [[write: colour.txt|{answer}]] [[commit: colour]]",
        lambda seen: seen.session["pr"] is not None and seen.sent() == ["blue"],
    ),
    "blocked-command": Case(
        "agent-blocked: {action: command, delay: 0s, command: 'echo blocked'}",
        "[[block: Allow rm?]]",
        lambda seen: [one for one in seen.events("command-finished") if one["output"] == "blocked"],
    ),
    "own-report": Case(
        "deploy-ready: {action: notify, priority: action, message: 'to {{event.data.to}}'}",
        "[[report: deploy-ready|to=staging]]",
        lambda seen: [one for one in seen.told("deploy-ready") if one["message"] == "to staging"],
    ),
    "by-event": Case(
        "agent-progress: {action: notify, condition: 'event.done == 2', message: '{{event.step}}'}",
        "[[progress: 1/2 begin]] [[progress: 2/2 end]]",
        lambda seen: [one["message"] for one in seen.told("agent-progress")] == ["end"],
    ),
    "budget": Case(
        "budget-exceeded: {}",
        "[[usage: usd=0.4 model=m]] [[write: kept.txt|x]] [[usage: usd=0.4 model=m]] [[wait]]",
        lambda seen: seen.session["status"] == "stopped" and seen.told("budget-exceeded")[0]["level"] == "urgent",
    ),
    "limit": Case(
        "usage-limit: {}",
        "[[limit: +10s]] [[edit: after.txt|x]] [[commit: after]]",
        lambda seen: (
            seen.session["pr"] is not None and "usage limit is over" in seen.sent()[0] and seen.events("account-held")
        ),
    ),
}


def configuration() -> str:
    budget = {"budget": ", budget: {perSession: 0.5 USD}"}
    profiles = "".join(
        f"  {name}: {{tool: demo{budget.get(name, '')}, reactions: {{{case.rule}}}}}\n" for name, case in CASES.items()
    )
    more = """\
  helper: {tool: demo}
  offered: {tool: demo, reactions: {ci-failed: {auto: false, message: "MEND {{errors}}"}}}
  refused: {tool: demo, reactions: {ci-failed: {auto: false}}}
  thrice: {tool: demo, reactions: {ci-failed: {approvalAfter: 1, retries: 9, escalateAfter: 9, backoff: 0s}}}
  closed: {tool: demo, reactions: {pr-closed: {action: command, command: echo closed}}}
reactions:
  issue-comment: {action: send-to-agent, condition: "by == 'person'", message: "{{author}} says {{comment}}"}
  issue-assigned: {action: notify, message: "now {{event.assignee}}"}
  label-added: {condition: "label == 'agent'", action: spawn, agent: helper, message: "[[say: {{issue.title}}]]"}
"""
    return f'defaults: {{agent: demo, runtime: process}}\nci: {{command: "test ! -e broken.txt"}}\nagents:\n{profiles}{more}'


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("box"), "process") as sandbox:
        sandbox.repository(config=configuration())
        sandbox.start()
        for name, case in CASES.items():
            start(sandbox, name, case.script.replace("{name}", name))
        yield sandbox


def start(box: Sandbox, name: str, script: str, agent: str | None = None) -> Seen:
    box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": script, "agent": agent or name})
    return Seen(box, name)


@pytest.mark.parametrize("name", CASES)
def test_what_a_rule_says_is_done(box: Sandbox, name: str) -> None:
    seen = Seen(box, name)

    def comes() -> object:
        try:
            return CASES[name].comes(seen)
        except IndexError:
            return None

    box.until(comes, f"{name} ({seen.session['status']})", PATIENCE)
    reacted = [one for one in seen.events("reacted") if one["rule"] in CASES[name].rule]
    assert reacted or name == "ci-condition"


def test_what_was_stopped_by_its_budget_is_not_lost(box: Sandbox) -> None:
    box.until(lambda: box.session("app-budget")["status"] == "stopped", "the stop", PATIENCE)
    box.ao("restore", "app-budget")
    box.until(lambda: box.session("app-budget")["workspacePath"], "it to be back", PATIENCE)
    assert (Path(box.session("app-budget")["workspacePath"]) / "kept.txt").exists()


def test_what_is_offered_is_taken_by_a_word(box: Sandbox) -> None:
    seen = start(box, "offer", BREAK, "offered")
    box.until(lambda: seen.events("action-offered"), "the offer", PATIENCE)
    assert seen.sent() == [] and seen.session["column"] == "Needs you"
    question = next(one for one in box.json("answer", "app-offer")["questions"] if one["kind"] == "offer")
    assert question["text"] == "ci-failed: send-to-agent?" and question["context"][0].startswith("MEND default")
    box.ao("answer", "app-offer", "--allow")
    box.until(lambda: seen.sent(), "the message")
    assert seen.sent()[0].startswith("MEND default") and box.json("answer", "app-offer")["questions"] == []
    whole_log = Path(seen.sent()[0].rpartition("whole log: ")[2].strip())
    assert whole_log.is_file() and whole_log.is_relative_to(box.home.session("app-offer"))


def test_what_is_refused_is_not_done(box: Sandbox) -> None:
    seen = start(box, "refuse", BREAK, "refused")
    box.until(lambda: seen.events("action-offered"), "the offer", PATIENCE)
    offer = seen.events("action-offered")[0]["offer"]
    box.request("POST", "/api/sessions/app-refuse/answer", {"decision": "deny", "offer": offer})
    with pytest.raises(Conflict):
        box.request("POST", "/api/sessions/app-refuse/answer", {"decision": "allow", "offer": offer})
    assert seen.sent() == []


def test_from_the_time_after_so_many_a_person_must_say_yes(box: Sandbox) -> None:
    again = "[[wait]] [[edit: more.txt|x]] [[commit: try]] [[done: tried]]"
    seen = start(box, "second", f"[[write: broken.txt|x]] [[commit: b]] [[done: b]] {again} [[wait]]", "thrice")
    box.until(lambda: seen.events("action-offered"), "the second attempt to be offered", PATIENCE)
    assert len(seen.sent()) == 1 and seen.events("action-offered")[0]["attempt"] == 2


def test_a_pull_request_that_is_closed_is_told_and_rules_may_do_more(box: Sandbox) -> None:
    seen = start(box, "shut", GOOD.replace("{name}", "shut"), "closed")
    box.until(lambda: seen.session["status"] == "review_pending", "the pull request", PATIENCE)
    box.request("POST", "/api/sessions/app-shut/close")
    box.until(lambda: seen.events("command-finished"), "the command", PATIENCE)
    assert seen.events("command-finished")[0]["output"] == "closed"


def happened(box: Sandbox, session: str) -> list[str]:
    """What was recorded of a session, but that its agent printed something."""
    return [one["type"] for one in box.events(session) if one["type"] != "agent-output"]


def test_rules_are_listed_and_tried_without_doing_anything(box: Sandbox) -> None:
    rules = {one["name"]: one for one in box.json("reactions", "list")["rules"]}
    assert rules["ci-failed"]["retries"] == 2 and rules["ci-failed"]["source"] == "default"
    mine = {one["name"]: one for one in box.json("reactions", "list", "app-ci-escalate")["rules"]}
    assert (mine["ci-failed"]["action"], mine["ci-failed"]["source"]) == ("escalate", "changed")
    listed = box.ao("reactions", "list", "-p", "app").stdout
    assert "ci-failed" in listed and "escalateAfter 30m" in listed and "after 10m" in listed and "after 20s" in listed
    assert rules["changes-requested"]["escalateAfter"] == "30m"
    seen = start(box, "tried", "[[say: ready]]", "offered")
    box.until(lambda: seen.session["activity"] == "idle", "it to be idle", PATIENCE)
    before = happened(box, "app-tried")
    tested = box.json("reactions", "test", "ci-failed", "app-tried")["rules"]
    assert [(one["holds"], one["sample"], one["offered"]) for one in tested] == [(False, ["errors", "checks"], True)]
    assert tested[0]["text"].startswith("MEND sample-check")
    label = box.json("reactions", "test", "conflict-predicted", "app-tried")["rules"][0]
    assert "another-session" in label["text"] and label["sample"] == ["event"]
    assert "No rule follows agent-idle" in box.ao("reactions", "test", "agent-idle", "app-tried").stdout
    assert box.ao("reactions", "test", "no-such-thing", "app-tried", check=False).returncode == 3
    assert happened(box, "app-tried") == before


def test_an_event_of_an_issue_reaches_who_works_on_it(box: Sandbox) -> None:
    number = box.json("issue", "new", "Greet people")["number"]
    box.request(
        "POST", "/api/sessions", {"issue": str(number), "name": "greet", "prompt": "[[say: ready]]", "agent": "helper"}
    )
    seen = Seen(box, "greet")
    box.until(lambda: seen.session["activity"] == "idle", "it to be idle", PATIENCE)
    said = {"body": "beep", "author": "lint[bot]", "writeAccess": "yes"}
    box.request("POST", f"/api/issues/{number}/comments", said)
    box.ao("issue", "comment", str(number), "-m", "be brief")
    box.until(seen.sent, "the comment", PATIENCE)
    assert seen.sent() == ["person says > be brief"]
    box.request("PATCH", f"/api/issues/{number}", {"assignee": "somebody"})
    box.until(lambda: seen.told("issue-assigned"), "the notice", PATIENCE)
    assert [one["message"] for one in seen.told("issue-assigned")] == ["now somebody"]


def test_a_label_makes_somebody_take_up_an_issue_that_nobody_works_on(box: Sandbox) -> None:
    number = box.json("issue", "new", "Say goodbye")["number"]
    box.ao("issue", "label", str(number), "later")
    box.ao("issue", "label", str(number), "agent")
    made = box.until(
        lambda: [one for one in box.sessions() if one["issue"] == str(number)], "somebody to take it up", PATIENCE
    )
    assert [(one["profile"], one["title"]) for one in made] == [("helper", "Say goodbye")]


def test_the_end_of_all_work_is_told_once_with_what_came_of_it(box: Sandbox) -> None:
    box.repository("small", config="defaults: {agent: demo, runtime: process}\n")
    both = box.folder / "both-are-there"
    for name in ("a", "b"):
        script = f"[[sh: until test -e {both}; do sleep 0.1; done]] [[done: {name} is done]]"
        box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": script})
    both.touch()

    def told() -> list[dict[str, Any]]:
        events = [event for event in box.events() if event["project"] == "small" and event["type"] == "notified"]
        return [event["data"] for event in events if event["data"]["trigger"] == "all-complete"]

    box.until(told, "the end to be told", PATIENCE)
    assert len(told()) == 1 and "level" not in told()[0], "info is the default"
    assert "small-a: done, a is done" in told()[0]["message"] and "small-b: done" in told()[0]["message"]
