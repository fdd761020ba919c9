"""Every trigger with every action that makes sense for it, through the public surface: one daemon, one session for each trigger, whose
profile has a rule for each action; and a session of its own where an action ends the session or its agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.core.rules import TRIGGERS
from agent_orchestrator.testing.sandbox import Sandbox

PATIENCE = 120.0
TELLING = ("notify", "command", "escalate", "spawn", "send-to-agent")
"""Actions that leave the session as it is: all of them follow one occurrence, one after the other."""

CHANGE = "[[write: {name}.txt|x]] [[commit: work]] [[done: worked]]"
BREAK = "[[write: broken.txt|x]] [[commit: break]] [[done: broke]]"
CLASH = "[[write: clash.txt|{name}]] [[commit: clash]] [[done: clashed]]"
COLLIDE = "[[write: {name}.both|x]] [[say: ready]]"


@dataclass(frozen=True)
class Trigger:
    """How it comes about: what the agent plays, what a person then does, and the rule of that name that is not to meddle."""

    script: str = "[[say: ready]]"
    person: str = ""
    fields: str = ""
    ends: tuple[str, ...] = ("stop",)
    """Actions that end the session or its agent, or need a change to act on, each with a session of its own."""


TRIGGERED: dict[str, Trigger] = {
    "ci-failed": Trigger(BREAK, ends=("restart",)),
    "changes-requested": Trigger(CHANGE, "request changes", ends=()),
    "review-comment": Trigger(CHANGE, "comment", ends=()),
    "merge-conflicts": Trigger(CLASH),
    "conflict-predicted": Trigger(COLLIDE),
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
"""`all-complete` needs a project of its own, see below, and so does `check-not-set-up`, see test_red_base.py; the last two stand for any
event by its type, and by an agent's own name for it."""

ELSEWHERE = {"all-complete", "check-not-set-up"}
ISSUES = ("label", "assign", "say")
PAIRS = [(trigger, action) for trigger, each in TRIGGERED.items() for action in (*TELLING, *each.ends)]


def name_of(trigger: str, action: str) -> str:
    return trigger if action in TELLING else f"{trigger}-{action}"


def script_of(name: str, trigger: str) -> str:
    return CHANGE if name.endswith(("-merge", "-rerun-ci")) else TRIGGERED[trigger].script


def rule_of(trigger: str, action: str, fields: str) -> str:
    words = {
        "command": "command: 'echo ran $AO_TRIGGER'",
        "spawn": "agent: helper, message: '[[say: {{trigger}}]]'",
        "notify": "priority: info, message: 'told of {{trigger}}'",
        "escalate": "message: 'called for {{trigger}}'",
        "merge": "strategy: rebase",
        "rerun-ci": "priority: info",
        "stop": "message: stopped",
    }.get(action, "message: 'sent for {{trigger}} [[say: noted]]'")
    more = f", {fields}" if fields else ""
    return f"{action}-it: {{trigger: {trigger}, action: {action}, retries: 1, {words}{more}}}"


def profile(trigger: str, actions: tuple[str, ...]) -> str:
    each = TRIGGERED[trigger]
    rules = ", ".join(rule_of(trigger, action, each.fields) for action in actions)
    own = ", ".join(filter(None, ("condition: 'false'", each.fields)))
    away = f"{trigger}: {{{own}}}, " if trigger in TRIGGERS else ""
    budget = "budget: {perSession: 0.5 USD}, " if trigger == "budget-exceeded" else ""
    return f"{{tool: demo, {budget}reactions: {{{away}{rules}}}}}"


def configuration() -> str:
    profiles = "".join(
        f"  {name_of(trigger, actions[0])}: {profile(trigger, actions)}\n"
        for trigger, each in TRIGGERED.items()
        for actions in (TELLING, *((action,) for action in each.ends))
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
        """Every session, and then everything that a person does to them."""
        names = {name_of(trigger, action): trigger for trigger, action in PAIRS}
        scripts = {name: script_of(name, trigger) for name, trigger in names.items()}
        colliding = [name for name, script in scripts.items() if script == COLLIDE]
        self._start("other", " ".join(f"[[write: {name}.both|y]]" for name in colliding), "")
        for name, trigger in names.items():
            self._start(name, scripts[name].replace("{name}", name), TRIGGERED[trigger].person)
        self._all_are([name for name, script in scripts.items() if script in (CHANGE, CLASH)], "unknown", "yes")
        (self.box.repo / "clash.txt").write_text("main\n")
        self.box.git("add", "clash.txt")
        self.box.git("commit", "-q", "-m", "clash")
        self._all_are([name for name, script in scripts.items() if script == CHANGE], "yes")
        for name, trigger in names.items():
            self._act(name, TRIGGERED[trigger].person)

    def _start(self, name: str, script: str, person: str) -> None:
        wanted = {"name": name, "title": name, "prompt": script, "agent": name}
        if person in ISSUES:
            self.issues[name] = self.box.request("POST", "/api/issues", {"title": name})["number"]
            wanted["issue"] = str(self.issues[name])
        self.box.request("POST", "/api/sessions", wanted)

    def _all_are(self, names: list[str], *mergeable: str) -> None:
        """Wait until all of these have a pull request that is checked and compared with its base."""

        def so() -> bool:
            now = {one["name"]: one for one in self.box.sessions()}
            ready = [now[name] for name in names if now[name]["status"] == "review_pending"]
            return len(ready) == len(names) and all(one["pr"]["mergeable"] in mergeable for one in ready)

        self.box.until(so, f"{len(names)} pull requests", PATIENCE)

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


class Seen:
    """What became of one session."""

    def __init__(self, box: Sandbox, session: str, trigger: str) -> None:
        self.box, self.id, self.trigger = box, session, trigger
        self.all = box.events(session)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event["data"] for event in self.all if event["type"] == kind]

    def told(self, message: str) -> list[dict[str, Any]]:
        return [one for one in self.events("notified") if one["message"] == f"{message} {self.trigger}"]

    def children(self) -> list[dict[str, Any]]:
        made = [
            self.box.events(one["id"])[0]["data"]
            for one in self.box.sessions()
            if one["title"] == f"[[say: {self.trigger}]]"
        ]
        return [one for one in made if one.get("parent") == self.id]

    def sent(self) -> list[str]:
        found = self.box.request("GET", f"/api/sessions/{self.id}/messages")["messages"]
        return [one["state"] for one in found if one["content"] == f"sent for {self.trigger} [[say: noted]]"]


def _sent(seen: Seen) -> bool:
    """It is in the agent's terminal; or waits, because a permission dialog is open there."""
    return seen.sent() == ["held"] if seen.trigger == "agent-blocked" else _arrived(seen)


def _arrived(seen: Seen) -> bool:
    return seen.sent() in (["delivered"], ["acknowledged"])


EFFECTS: dict[str, Callable[[Seen], object]] = {
    "notify": lambda seen: [one.get("level", "info") for one in seen.told("told of")] == ["info"],
    "command": lambda seen: (
        [(one["code"], one["output"]) for one in seen.events("command-finished")] == [(0, f"ran {seen.trigger}")]
    ),
    "escalate": lambda seen: [one["level"] for one in seen.told("called for")] == ["urgent"],
    "spawn": lambda seen: (
        [(one["profile"], one["prompt"]) for one in seen.children()] == [("helper", f"[[say: {seen.trigger}]]")]
    ),
    "send-to-agent": _sent,
    "stop": lambda seen: len(seen.events("session-stopped")) == 1,
    "restart": lambda seen: len(seen.events("agent-launched")) == 2 and _arrived(seen),
    "merge": lambda seen: [one["strategy"] for one in seen.events("merge-requested")] == ["rebase"],
    "rerun-ci": lambda seen: len(seen.events("checks-requested")) == 1,
}


def test_no_trigger_and_no_action_is_left_out() -> None:
    assert set(TRIGGERS) <= {*TRIGGERED, *ELSEWHERE}
    assert set(EFFECTS) == {action for _, action in PAIRS}


def test_every_action_follows_every_trigger_once(box: Sandbox) -> None:
    def missing() -> list[str]:
        return [f"{trigger} → {action}" for trigger, action in PAIRS if not came(trigger, action)]

    def came(trigger: str, action: str) -> bool:
        session = f"app-{name_of(trigger, action)}"
        if (session, action) not in seen and EFFECTS[action](Seen(box, session, trigger)):
            done = [one for one in Seen(box, session, trigger).events("reacted") if one["action"] == action]
            assert [(one["trigger"], one["rule"]) for one in done] == [(trigger, f"{action}-it")]
            seen.add((session, action))
        return (session, action) in seen

    seen: set[tuple[str, str]] = set()
    try:
        box.until(lambda: not missing(), "every action", PATIENCE)
    except TimeoutError:
        assert missing() == []
    the_end_of_all_work(box)


ALL_COMPLETE = """\
defaults: {agent: demo, runtime: process}
agents: {helper: {tool: demo}}
reactions:
  all-complete: {condition: 'false'}
""" + "".join(f"  {rule_of('all-complete', action, '')}\n" for action in TELLING)


def the_end_of_all_work(box: Sandbox) -> None:
    box.repository("small", config=ALL_COMPLETE)
    box.request("POST", "/api/sessions", {"name": "one", "title": "one", "prompt": "[[done: done]]"})

    def came() -> bool:
        seen = Seen(box, "small-one", "all-complete")
        return all(EFFECTS[action](seen) for action in TELLING)

    box.until(came, "every action at the end of all work", PATIENCE)
