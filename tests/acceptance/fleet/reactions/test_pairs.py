"""Every trigger with every action that makes sense for it: one daemon, and one session for each trigger, whose profile has a rule for
each action; actions that end the session or its agent have separate sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.core.rules.default_rules import TRIGGERS
from agent_orchestrator.testing.sandbox import Sandbox

TIMEOUT = 120.0
HARMLESS_ACTIONS = ("notify", "command", "escalate", "spawn", "send-to-agent")
"""Actions that do not change the session: all of them follow one occurrence, one after the other."""

CHANGE = "[[write: {name}.txt|x]] [[commit: work]] [[done: worked]]"
BREAK = "[[write: broken.txt|x]] [[commit: break]] [[done: broke]]"
CONFLICT = "[[write: clash.txt|{name}]] [[commit: clash]] [[done: clashed]]"
OVERLAP = "[[write: {name}.both|x]] [[say: ready]]"


@dataclass(frozen=True)
class Trigger:
    """How a trigger occurs: the agent's script, what a person then does, and fields of its rules."""

    script: str = "[[say: ready]]"
    person: str = ""
    fields: str = ""
    ends: tuple[str, ...] = ("stop",)
    """Actions that end the session or its agent, or need a change; each has a separate session."""


TRIGGERED: dict[str, Trigger] = {
    "ci-failed": Trigger(BREAK, ends=("restart",)),
    "changes-requested": Trigger(CHANGE, "request changes", ends=()),
    "review-comment": Trigger(CHANGE, "comment", ends=()),
    "merge-conflicts": Trigger(CONFLICT),
    "conflict-predicted": Trigger(OVERLAP),
    "approved-and-green": Trigger(CHANGE, "approve", ends=()),
    "agent-needs-input": Trigger("[[ask: Which one?]]", fields="delay: 0s", ends=("stop", "restart")),
    "agent-blocked": Trigger("[[block: Allow rm?]]", fields="delay: 0s", ends=("stop", "restart")),
    "agent-stuck": Trigger("[[stuck]]", fields="threshold: 2s"),
    "agent-exited": Trigger("[[exit: 3]]"),
    "agent-idle": Trigger(ends=("restart",)),
    "usage-limit": Trigger("[[limit: +600s]]", ends=("stop", "restart")),
    "budget-exceeded": Trigger("[[usage: usd=0.7 model=m]] [[sleep: 120]]", ends=("restart",)),
    "pr-merged": Trigger(CHANGE, "merge", ends=()),
    "pr-closed": Trigger(CHANGE, "close"),
    "label-added": Trigger(person="label", ends=("stop", "restart", "merge", "rerun-ci")),
    "issue-assigned": Trigger(person="assign"),
    "issue-comment": Trigger(person="say", ends=("stop", "rerun-ci")),
    "agent-progress": Trigger("[[progress: 1/1 all]] [[sleep: 120]]"),
    "deploy-ready": Trigger("[[report: deploy-ready|to=staging]] [[sleep: 120]]"),
}
"""`all-complete` needs a separate project, see below, and so does `check-not-set-up`, see test_red_base.py; the last two stand for
events by their type and by an agent's own name."""

TESTED_ELSEWHERE = {"all-complete", "check-not-set-up"}
ISSUES = ("label", "assign", "say")
PAIRS = [(trigger, action) for trigger, spec in TRIGGERED.items() for action in (*HARMLESS_ACTIONS, *spec.ends)]


def session_name(trigger: str, action: str) -> str:
    return trigger if action in HARMLESS_ACTIONS else f"{trigger}-{action}"


def script_for(name: str, trigger: str) -> str:
    return CHANGE if name.endswith(("-merge", "-rerun-ci")) else TRIGGERED[trigger].script


def rule_text(trigger: str, action: str, fields: str) -> str:
    options = {
        "command": "command: 'echo ran $AO_TRIGGER'",
        "spawn": "agent: helper, message: '[[say: {{trigger}}]]'",
        "notify": "priority: info, message: 'told of {{trigger}}'",
        "escalate": "message: 'called for {{trigger}}'",
        "merge": "strategy: rebase",
        "rerun-ci": "priority: info",
        "stop": "message: stopped",
    }.get(action, "message: 'sent for {{trigger}} [[say: noted]]'")
    more = f", {fields}" if fields else ""
    return f"{action}-it: {{trigger: {trigger}, action: {action}, retries: 1, {options}{more}}}"


def profile_text(trigger: str, actions: tuple[str, ...]) -> str:
    spec = TRIGGERED[trigger]
    rules = ", ".join(rule_text(trigger, action, spec.fields) for action in actions)
    own_rule = ", ".join(filter(None, ("condition: 'false'", spec.fields)))
    disabled_rule = f"{trigger}: {{{own_rule}}}, " if trigger in TRIGGERS else ""
    budget = "budget: {perSession: 0.5 USD}, " if trigger == "budget-exceeded" else ""
    return f"{{tool: demo, {budget}reactions: {{{disabled_rule}{rules}}}}}"


def configuration() -> str:
    profiles = "".join(
        f"  {session_name(trigger, actions[0])}: {profile_text(trigger, actions)}\n"
        for trigger, spec in TRIGGERED.items()
        for actions in (HARMLESS_ACTIONS, *((action,) for action in spec.ends))
    )
    return f"""\
defaults: {{agent: demo, runtime: process}}
orchestrator: {{maxParallelAgents: 200}}
ci: {{command: "test ! -e broken.txt", parallel: 4}}
agents:
{profiles}  helper: {{tool: demo}}
  other: {{tool: demo}}
"""


class World:
    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.issues: dict[str, int] = {}

    def begin(self) -> None:
        """Create every session, and then do everything that a person does to them."""
        names = {session_name(trigger, action): trigger for trigger, action in PAIRS}
        scripts = {name: script_for(name, trigger) for name, trigger in names.items()}
        overlapping = [name for name, script in scripts.items() if script == OVERLAP]
        self._start("other", " ".join(f"[[write: {name}.both|y]]" for name in overlapping), "")
        for name, trigger in names.items():
            self._start(name, scripts[name].replace("{name}", name), TRIGGERED[trigger].person)
        self._all_are([name for name, script in scripts.items() if script in (CHANGE, CONFLICT)], "unknown", "yes")
        (self.box.repo / "clash.txt").write_text("main\n")
        self.box.git("add", "clash.txt")
        self.box.git("commit", "-q", "-m", "clash")
        self._all_are([name for name, script in scripts.items() if script == CHANGE], "yes")
        for name, trigger in names.items():
            self._act(name, TRIGGERED[trigger].person)

    def _start(self, name: str, script: str, person: str) -> None:
        body = {"name": name, "title": name, "prompt": script, "agent": name}
        if person in ISSUES:
            self.issues[name] = self.box.request("POST", "/api/issues", {"title": name})["number"]
            body["issue"] = str(self.issues[name])
        self.box.request("POST", "/api/sessions", body)

    def _all_are(self, names: list[str], *mergeable: str) -> None:
        """Wait until all of these have a pull request that is checked and compared with its base."""

        def are_ready() -> bool:
            now = {session["name"]: session for session in self.box.sessions()}
            ready = [now[name] for name in names if now[name]["status"] == "review_pending"]
            return len(ready) == len(names) and all(session["pr"]["mergeable"] in mergeable for session in ready)

        self.box.wait_until(are_ready, f"{len(names)} pull requests", TIMEOUT)

    def _act(self, name: str, person: str) -> None:
        session, issue = f"/api/sessions/app-{name}", f"/api/issues/{self.issues.get(name)}"
        requests: dict[str, tuple[str, str, Any]] = {
            "request changes": ("POST", f"{session}/review", {"verdict": "changes_requested", "body": "no"}),
            "comment": ("POST", f"{session}/review", {"verdict": "commented", "body": "why?"}),
            "approve": ("POST", f"{session}/review", {"verdict": "approved"}),
            "merge": ("POST", f"{session}/merge", {}),
            "close": ("POST", f"{session}/close", None),
            "label": ("POST", f"{issue}/labels", {"labels": ["agent"]}),
            "assign": ("PATCH", issue, {"assignee": "ann"}),
            "say": ("POST", f"{issue}/comments", {"body": "be brief"}),
        }
        if person:
            self.box.request(*requests[person])


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path, "process") as sandbox:
        sandbox.repository(config=configuration())
        sandbox.start()
        World(sandbox).begin()
        yield sandbox


class SessionView:
    """Events, messages and children of one session, for one trigger."""

    def __init__(self, box: Sandbox, session: str, trigger: str) -> None:
        self.box, self.id, self.trigger = box, session, trigger
        self.all = box.events(session)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.all if event["type"] == kind]

    def notices(self, message: str) -> list[dict[str, Any]]:
        return [entry for entry in self.events("notified") if entry["message"] == f"{message} {self.trigger}"]

    def children(self) -> list[dict[str, Any]]:
        created = [
            self.box.events(entry["id"])[0]["data"]
            for entry in self.box.sessions()
            if entry["title"] == f"[[say: {self.trigger}]]"
        ]
        return [entry for entry in created if entry.get("parent") == self.id]

    def message_states(self) -> list[str]:
        messages = self.box.request("GET", f"/api/sessions/{self.id}/messages")["messages"]
        return [
            message["state"] for message in messages if message["content"] == f"sent for {self.trigger} [[say: noted]]"
        ]


def _is_sent(view: SessionView) -> bool:
    """Return whether the message was delivered, or is held because a permission dialog is open."""
    return view.message_states() == ["held"] if view.trigger == "agent-blocked" else _has_arrived(view)


def _has_arrived(view: SessionView) -> bool:
    return view.message_states() in (["delivered"], ["acknowledged"])


EFFECTS: dict[str, Callable[[SessionView], object]] = {
    "notify": lambda view: [entry.get("level", "info") for entry in view.notices("told of")] == ["info"],
    "command": lambda view: (
        [(entry["code"], entry["output"]) for entry in view.events("command-finished")] == [(0, f"ran {view.trigger}")]
    ),
    "escalate": lambda view: [entry["level"] for entry in view.notices("called for")] == ["urgent"],
    "spawn": lambda view: (
        [(entry["profile"], entry["prompt"]) for entry in view.children()] == [("helper", f"[[say: {view.trigger}]]")]
    ),
    "send-to-agent": _is_sent,
    "stop": lambda view: len(view.events("session-stopped")) == 1,
    "restart": lambda view: len(view.events("agent-launched")) == 2 and _has_arrived(view),
    "merge": lambda view: [entry["strategy"] for entry in view.events("merge-requested")] == ["rebase"],
    "rerun-ci": lambda view: len(view.events("checks-requested")) == 1,
}


def test_every_trigger_and_every_action_is_covered() -> None:
    assert set(TRIGGERS) <= {*TRIGGERED, *TESTED_ELSEWHERE}
    assert set(EFFECTS) == {action for _, action in PAIRS}


@pytest.mark.long
def test_every_action_follows_every_trigger_once(box: Sandbox) -> None:
    def missing() -> list[str]:
        return [f"{trigger} → {action}" for trigger, action in PAIRS if not has_happened(trigger, action)]

    def has_happened(trigger: str, action: str) -> bool:
        session = f"app-{session_name(trigger, action)}"
        if (session, action) not in confirmed and EFFECTS[action](SessionView(box, session, trigger)):
            reactions = [
                reaction
                for reaction in SessionView(box, session, trigger).events("reacted")
                if reaction["action"] == action
            ]
            assert [(reaction["trigger"], reaction["rule"]) for reaction in reactions] == [(trigger, f"{action}-it")]
            confirmed.add((session, action))
        return (session, action) in confirmed

    confirmed: set[tuple[str, str]] = set()
    try:
        box.wait_until(lambda: not missing(), "every action", TIMEOUT)
    except TimeoutError:
        assert missing() == []
    check_all_complete(box)


ALL_COMPLETE = """\
defaults: {agent: demo, runtime: process}
agents: {helper: {tool: demo}}
reactions:
  all-complete: {condition: 'false'}
""" + "".join(f"  {rule_text('all-complete', action, '')}\n" for action in HARMLESS_ACTIONS)


def check_all_complete(box: Sandbox) -> None:
    box.repository("small", config=ALL_COMPLETE)
    box.request("POST", "/api/sessions", {"name": "one", "title": "one", "prompt": "[[done: done]]"})

    def have_happened() -> bool:
        view = SessionView(box, "small-one", "all-complete")
        return all(EFFECTS[action](view) for action in HARMLESS_ACTIONS)

    box.wait_until(have_happened, "every action at the end of all work", TIMEOUT)
