"""Each action of a rule on its triggers: one daemon, and a profile for each case."""

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
TIMEOUT = 90.0


class SessionView:
    """Events, messages and children of one session."""

    def __init__(self, box: Sandbox, name: str) -> None:
        self.box = box
        self.id = f"app-{name}"

    @property
    def session(self) -> dict[str, Any]:
        return self.box.session(self.id)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.box.events(self.id) if event["type"] == kind]

    def notices(self, trigger: str) -> list[dict[str, Any]]:
        return [data for data in self.events("notified") if data["trigger"] == trigger]

    def rule_messages(self) -> list[str]:
        return [data["text"] for data in self.events("message-queued") if str(data.get("sender")).startswith("rule ")]

    def children(self) -> list[dict[str, Any]]:
        created = [event for event in self.box.events() if event["type"] == "session-created"]
        return [event["data"] for event in created if event["data"].get("parent") == self.id]


@dataclass(frozen=True)
class Case:
    """A rule, the agent's script, and a function that returns whether the expected effects have happened."""

    rule: str
    script: str
    has_happened: Callable[[SessionView], object]


CASES: dict[str, Case] = {
    "ci-rerun": Case(
        "ci-failed: {action: rerun-ci, retries: 1, escalateAfter: 5, escalate: true}",
        BREAK,
        lambda view: view.events("checks-requested") and view.notices("ci-failed"),
    ),
    "ci-command": Case(
        'ci-failed: {action: command, command: "echo $AO_TRIGGER $AO_SESSION; pwd; cat $AO_REACTION_FILE; exit 3"}',
        BREAK,
        lambda view: (
            [
                entry
                for entry in view.events("command-finished")
                if entry["code"] == 3
                and f"ci-failed {view.id}" in entry["output"]
                and view.session["workspacePath"] in entry["output"]
            ]
            and view.notices("ci-failed")
        ),
    ),
    "ci-slow-command": Case(
        "ci-failed: {action: command, command: sleep 60, timeout: 1s}",
        BREAK,
        lambda view: [entry for entry in view.events("command-finished") if entry.get("code") is None],
    ),
    "ci-stop": Case(
        "ci-failed: {action: stop, priority: urgent}",
        BREAK,
        lambda view: view.session["status"] == "stopped" and view.notices("ci-failed")[0]["level"] == "urgent",
    ),
    "ci-escalate": Case(
        "ci-failed: {action: escalate, message: 'look at {{session.id}}'}",
        BREAK,
        lambda view: (
            [(entry["message"], entry["level"]) for entry in view.notices("ci-failed")]
            == [(f"look at {view.id}", "urgent")]
            and view.session["column"] == "Needs you"
        ),
    ),
    "ci-spawn": Case(
        "ci-failed: {action: spawn, agent: helper, message: 'Help {{session.id}}'}",
        BREAK,
        lambda view: (
            [entry["base"] for entry in view.children()] == ["feature/ci-spawn"]
            and view.children()[0]["profile"] == "helper"
            and view.children()[0]["prompt"] == "Help app-ci-spawn"
        ),
    ),
    "ci-merge": Case(
        "ci-failed: {action: merge}",
        BREAK,
        lambda view: (
            [entry for entry in view.notices("ci-failed") if "checks fail" in entry["message"]]
            and not view.events("merge-requested")
        ),
    ),
    "ci-condition": Case(
        "ci-failed: {action: notify, condition: \"agent == 'another'\", retries: 5}",
        BREAK,
        lambda view: view.session["status"] == "ci_failed" and not view.notices("ci-failed"),
    ),
    "exited-restart": Case(
        "agent-exited: {action: restart, retries: 1}",
        "[[exit: 3]]",
        lambda view: len(view.events("agent-launched")) == 2 and "Your process ended" in view.rule_messages()[0],
    ),
    "stuck-restart": Case(
        "agent-stuck: {action: restart, threshold: 2s, retries: 1, message: 'go on, {{session.name}}'}",
        "[[stuck]]",
        lambda view: len(view.events("agent-launched")) == 2 and view.rule_messages() == ["go on, stuck-restart"],
    ),
    "idle-send": Case(
        "agent-idle: {action: send-to-agent, retries: 1, message: '[[edit: more.txt|x]] [[commit: more]]'}",
        "[[say: nothing]]",
        lambda view: view.session["pr"] is not None and len(view.rule_messages()) == 1,
    ),
    "idle-stop": Case(
        "agent-idle: {action: stop, threshold: 1s}",
        "[[say: nothing]]",
        lambda view: view.session["status"] == "stopped",
    ),
    "needs-input-send": Case(
        "agent-needs-input: {action: send-to-agent, delay: 0s, message: blue}",
        "[[ask: Which colour?]] [[write: colour.txt|{answer}]] [[commit: colour]]",
        lambda view: view.session["pr"] is not None and view.rule_messages() == ["blue"],
    ),
    "blocked-command": Case(
        "agent-blocked: {action: command, delay: 0s, command: 'echo blocked'}",
        "[[block: Allow rm?]]",
        lambda view: [entry for entry in view.events("command-finished") if entry["output"] == "blocked"],
    ),
    "own-report": Case(
        "deploy-ready: {action: notify, priority: action, message: 'to {{event.data.to}}'}",
        "[[report: deploy-ready|to=staging]]",
        lambda view: [entry for entry in view.notices("deploy-ready") if entry["message"] == "to staging"],
    ),
    "by-event": Case(
        "agent-progress: {action: notify, condition: 'event.done == 2', message: '{{event.step}}'}",
        "[[progress: 1/2 begin]] [[progress: 2/2 end]]",
        lambda view: [entry["message"] for entry in view.notices("agent-progress")] == ["end"],
    ),
    "budget": Case(
        "budget-exceeded: {}",
        "[[usage: usd=0.4 model=m]] [[write: kept.txt|x]] [[usage: usd=0.4 model=m]] [[wait]]",
        lambda view: view.session["status"] == "stopped" and view.notices("budget-exceeded")[0]["level"] == "urgent",
    ),
    "limit": Case(
        "usage-limit: {}",
        "[[limit: +10s]] [[edit: after.txt|x]] [[commit: after]]",
        lambda view: (
            view.session["pr"] is not None
            and "usage limit is over" in view.rule_messages()[0]
            and view.events("account-held")
        ),
    ),
}


def configuration() -> str:
    budget = {"budget": ", budget: {perSession: 0.5 USD}"}
    profiles = "".join(
        f"  {name}: {{tool: demo{budget.get(name, '')}, reactions: {{{case.rule}}}}}\n" for name, case in CASES.items()
    )
    extra = """\
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
    return f'defaults: {{agent: demo, runtime: process}}\nci: {{command: "test ! -e broken.txt"}}\nagents:\n{profiles}{extra}'


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("box"), "process") as sandbox:
        sandbox.repository(config=configuration())
        sandbox.start()
        for name, case in CASES.items():
            create_session(sandbox, name, case.script.replace("{name}", name))
        yield sandbox


def create_session(box: Sandbox, name: str, script: str, agent: str | None = None) -> SessionView:
    box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": script, "agent": agent or name})
    return SessionView(box, name)


@pytest.mark.parametrize("name", CASES)
def test_each_rule_has_its_effect(box: Sandbox, name: str) -> None:
    view = SessionView(box, name)

    def has_happened() -> object:
        try:
            return CASES[name].has_happened(view)
        except IndexError:
            return None

    box.wait_until(has_happened, f"{name} ({view.session['status']})", TIMEOUT)
    reacted = [entry for entry in view.events("reacted") if entry["rule"] in CASES[name].rule]
    assert reacted or name == "ci-condition"


@pytest.mark.long
def test_the_work_of_a_session_stopped_by_its_budget_is_restored(box: Sandbox) -> None:
    box.wait_until(lambda: box.session("app-budget")["status"] == "stopped", "the stop", TIMEOUT)
    box.ao("restore", "app-budget")
    box.wait_until(lambda: box.session("app-budget")["workspacePath"], "it to be back", TIMEOUT)
    assert (Path(box.session("app-budget")["workspacePath"]) / "kept.txt").exists()


def test_an_offered_action_runs_when_it_is_allowed(box: Sandbox) -> None:
    view = create_session(box, "offer", BREAK, "offered")
    box.wait_until(lambda: view.events("action-offered"), "the offer", TIMEOUT)
    assert view.rule_messages() == [] and view.session["column"] == "Needs you"
    question = next(item for item in box.json("answer", "app-offer")["questions"] if item["kind"] == "offer")
    assert question["text"] == "ci-failed: send-to-agent?" and question["context"][0].startswith("MEND default")
    box.ao("answer", "app-offer", "--allow")
    box.wait_until(lambda: view.rule_messages(), "the message")
    assert view.rule_messages()[0].startswith("MEND default") and box.json("answer", "app-offer")["questions"] == []
    whole_log = Path(view.rule_messages()[0].rpartition("whole log: ")[2].strip())
    assert whole_log.is_file() and whole_log.is_relative_to(box.home.session("app-offer"))


def test_a_denied_action_does_not_run(box: Sandbox) -> None:
    view = create_session(box, "refuse", BREAK, "refused")
    box.wait_until(lambda: view.events("action-offered"), "the offer", TIMEOUT)
    offer = view.events("action-offered")[0]["offer"]
    box.request("POST", "/api/sessions/app-refuse/answer", {"decision": "deny", "offer": offer})
    with pytest.raises(Conflict):
        box.request("POST", "/api/sessions/app-refuse/answer", {"decision": "allow", "offer": offer})
    assert view.rule_messages() == []


def test_attempts_after_approval_after_are_offered_first(box: Sandbox) -> None:
    again = "[[wait]] [[edit: more.txt|x]] [[commit: try]] [[done: tried]]"
    view = create_session(
        box, "second", f"[[write: broken.txt|x]] [[commit: b]] [[done: b]] {again} [[wait]]", "thrice"
    )
    box.wait_until(lambda: view.events("action-offered"), "the second attempt to be offered", TIMEOUT)
    assert len(view.rule_messages()) == 1 and view.events("action-offered")[0]["attempt"] == 2


def test_a_closed_pull_request_triggers_its_rule(box: Sandbox) -> None:
    view = create_session(box, "shut", GOOD.replace("{name}", "shut"), "closed")
    box.wait_until(lambda: view.session["status"] == "review_pending", "the pull request", TIMEOUT)
    box.request("POST", "/api/sessions/app-shut/close")
    box.wait_until(lambda: view.events("command-finished"), "the command", TIMEOUT)
    assert view.events("command-finished")[0]["output"] == "closed"


def recorded_types(box: Sandbox, session: str) -> list[str]:
    """Return the types of a session's events, without those about terminal output."""
    return [entry["type"] for entry in box.events(session) if entry["type"] != "agent-output"]


def test_rules_can_be_listed_and_tested_without_effects(box: Sandbox) -> None:
    rules = {rule["name"]: rule for rule in box.json("reactions", "list")["rules"]}
    assert rules["ci-failed"]["retries"] == 2 and rules["ci-failed"]["source"] == "default"
    session_rules = {rule["name"]: rule for rule in box.json("reactions", "list", "app-ci-escalate")["rules"]}
    assert (session_rules["ci-failed"]["action"], session_rules["ci-failed"]["source"]) == ("escalate", "changed")
    listed = box.ao("reactions", "list", "-p", "app").stdout
    assert "ci-failed" in listed and "escalateAfter 30m" in listed and "after 10m" in listed and "after 20s" in listed
    assert rules["changes-requested"]["escalateAfter"] == "30m"
    view = create_session(box, "tried", "[[say: ready]]", "offered")
    box.wait_until(lambda: view.session["activity"] == "idle", "it to be idle", TIMEOUT)
    before = recorded_types(box, "app-tried")
    results = box.json("reactions", "test", "ci-failed", "app-tried")["rules"]
    assert [(rule["holds"], rule["sample"], rule["offered"]) for rule in results] == [
        (False, ["errors", "checks"], True)
    ]
    assert results[0]["text"].startswith("MEND sample-check")
    label = box.json("reactions", "test", "conflict-predicted", "app-tried")["rules"][0]
    assert "another-session" in label["text"] and label["sample"] == ["event"]
    assert "No rule follows agent-idle" in box.ao("reactions", "test", "agent-idle", "app-tried").stdout
    assert box.ao("reactions", "test", "no-such-thing", "app-tried", check=False).returncode == 3
    assert recorded_types(box, "app-tried") == before


def test_events_of_an_issue_reach_its_session(box: Sandbox) -> None:
    number = box.json("issue", "new", "Greet people")["number"]
    box.request(
        "POST", "/api/sessions", {"issue": str(number), "name": "greet", "prompt": "[[say: ready]]", "agent": "helper"}
    )
    view = SessionView(box, "greet")
    box.wait_until(lambda: view.session["activity"] == "idle", "it to be idle", TIMEOUT)
    comment = {"body": "beep", "author": "lint[bot]", "writeAccess": "yes"}
    box.request("POST", f"/api/issues/{number}/comments", comment)
    box.ao("issue", "comment", str(number), "-m", "be brief")
    box.wait_until(view.rule_messages, "the comment", TIMEOUT)
    assert view.rule_messages() == ["person says > be brief"]
    box.request("PATCH", f"/api/issues/{number}", {"assignee": "somebody"})
    box.wait_until(lambda: view.notices("issue-assigned"), "the notice", TIMEOUT)
    assert [notice["message"] for notice in view.notices("issue-assigned")] == ["now somebody"]


def test_a_label_spawns_a_session_for_an_unassigned_issue(box: Sandbox) -> None:
    number = box.json("issue", "new", "Say goodbye")["number"]
    box.ao("issue", "label", str(number), "later")
    box.ao("issue", "label", str(number), "agent")
    created = box.wait_until(
        lambda: [session for session in box.sessions() if session["issue"] == str(number)],
        "the session for the issue",
        TIMEOUT,
    )
    assert [(session["profile"], session["title"]) for session in created] == [("helper", "Say goodbye")]


def test_the_end_of_all_work_is_notified_once_with_the_results(box: Sandbox) -> None:
    box.repository("small", config="defaults: {agent: demo, runtime: process}\n")
    go_file = box.folder / "both-are-there"
    for name in ("a", "b"):
        script = f"[[sh: until test -e {go_file}; do sleep 0.1; done]] [[done: {name} is done]]"
        box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": script})
    go_file.touch()

    def notices() -> list[dict[str, Any]]:
        events = [event for event in box.events() if event["project"] == "small" and event["type"] == "notified"]
        return [event["data"] for event in events if event["data"]["trigger"] == "all-complete"]

    box.wait_until(notices, "the notification of the end", TIMEOUT)
    assert len(notices()) == 1 and "level" not in notices()[0], "info is the default"
    assert "small-a: done, a is done" in notices()[0]["message"] and "small-b: done" in notices()[0]["message"]
