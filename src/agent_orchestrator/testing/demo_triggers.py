"""The demo's second act: every trigger that the first one does not use. Each is caused by what an agent or the person does;
only the delays of rules are shorter than usual."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent_orchestrator.testing.demo_report import Event
from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {{agent: demo, runtime: {runtime}}}
orchestrator: {{maxParallelAgents: 20}}
agents:
  asks:
    tool: demo
    script: "[[ask: Which colour shall it have?]] [[write: colour.txt|{{answer}}]] [[commit: Choose a colour]] [[done: coloured]]"
    reactions: {{agent-needs-input: {{delay: 1s}}}}
  blocked:
    tool: demo
    script: "[[block: Allow rm -r build?]] [[say: done]]"
    reactions: {{agent-blocked: {{delay: 1s}}}}
  stuck:
    tool: demo
    script: "[[progress: 1/2 thinking]] [[stuck]]"
    reactions:
      agent-stuck:
        action: restart
        threshold: 2s
        retries: 1
        message: "Nothing was heard of you. Go on. [[edit: stuck.txt|x]] [[commit: Go on]] [[done: it went on]]"
  crashes:
    tool: demo
    script: "[[sleep: 0.3]] [[fail: out of memory]]"
    reactions:
      agent-exited:
        action: restart
        retries: 1
        message: "You ended with {{{{exit_code}}}}. Go on. [[edit: crashed.txt|x]] [[commit: Use less memory]] [[done: now it fits]]"
  idles:
    tool: demo
    script: "[[say: I have thought about it]]"
    reactions:
      agent-idle:
        action: send-to-agent
        retries: 1
        message: "There is nothing to see yet. [[edit: idle.txt|x]] [[commit: Do it]] [[done: done after all]]"
  limited:
    tool: demo
    script: "[[limit: +4s]] [[edit: limited.txt|x]] [[commit: Go on]] [[done: went on after the limit]]"
  spends:
    tool: demo
    budget: {{perSession: 0.50 USD}}
    script: "[[edit: dear.txt|x]] [[usage: usd=0.70 input=90000 model=m]] [[sleep: 60]]"
  commented:
    tool: demo
    script: "[[edit: code.txt|x]] [[commit: Write code]] [[done: written]] [[wait]] [[reply: {{comment}}|Because y was taken.]]"
  given-up:
    tool: demo
    script: "[[edit: vain.txt|x]] [[commit: Try something]] [[done: tried]]"
  discussed:
    tool: demo
    script: "[[say: ready]]"
  deploys:
    tool: demo
    script: "[[report: deploy-ready|to=staging]] [[say: reported]]"
  reviewed:
    tool: demo
    script: "[[edit: reviewed.txt|x]] [[commit: Write more code]] [[done: written]]"
    reactions: {{pr-ready: {{action: spawn, agent: critic}}}}
  critic:
    tool: demo
    role: reviewer
    script: "[[review: approved|Looks good.]]"
  helper:
    tool: demo
    script: "[[edit: helped.txt|x]] [[commit: Help]] [[done: helped]]"
reactions:
  label-added: {{condition: "label == 'agent'", action: spawn, agent: helper}}
  issue-assigned: {{action: notify, message: "{{{{event.assignee}}}} has it now"}}
  issue-comment:
    action: send-to-agent
    message: "{{{{author}}}} says: {{{{comment}}}} [[edit: greeting.txt|Hello]] [[commit: Be brief]] [[done: it is brief]]"
  deploy-ready: {{action: command, command: "echo deployed to $(cat $AO_REACTION_FILE | grep -o staging)"}}
"""

CONFIG_WITHOUT_RUNNER = """\
defaults: {{agent: demo, runtime: {runtime}}}
ci: {{command: python3 -m no_such_runner}}
"""
"""The configuration of a repository whose check cannot run because its runner is not installed."""

TASK_TITLES = {
    "asks": "Paint the shed",
    "blocked": "Clear the build folder",
    "stuck": "Think about the roof",
    "crashes": "Measure everything",
    "idles": "Sort the tools",
    "spends": "Buy the best there is",
    "commented": "Build a bench",
    "given-up": "Build a tower",
    "deploys": "Show it to the neighbours",
    "reviewed": "Build a fence",
    "limited": "Saw all night",
}


@dataclass(frozen=True, slots=True)
class ExpectedReaction:
    """A trigger, the action of its rule on a session, and the event that shows its effect."""

    trigger: str
    action: str
    session: str
    effect_event: str

    def has_happened(self, events: Iterable[Event]) -> bool:
        """Return whether the rule acted and its effect followed."""
        session_events = [event for event in events if event["session"] == self.session]
        reaction_seqs = [
            event["seq"]
            for event in session_events
            if event["type"] == "reacted"
            and (event["data"]["trigger"], event["data"]["action"]) == (self.trigger, self.action)
        ]
        if self.effect_event == "notified":
            notices = [event for event in session_events if event["type"] == "notified"]
            return bool(reaction_seqs) and any(event["data"]["trigger"] == self.trigger for event in notices)
        return any(
            event["type"] == self.effect_event and event["seq"] > reaction_seqs[0]
            for event in session_events
            if reaction_seqs
        )


FIRST_ACT_REACTIONS = (
    ExpectedReaction("ci-failed", "send-to-agent", "shop-cart", "pr-merged"),
    ExpectedReaction("changes-requested", "send-to-agent", "shop-report", "comment-added"),
    ExpectedReaction("merge-conflicts", "send-to-agent", "shop-currency", "pr-merged"),
    ExpectedReaction("approved-and-green", "merge", "shop-price", "pr-merged"),
    ExpectedReaction("pr-merged", "clean-up", "shop-price", "session-stopped"),
    ExpectedReaction("agent-needs-input", "notify", "shop-storage", "notified"),
)
"""What rules do in the first act; `conflict-predicted` is left out, because it may go to either of two sessions."""

SECOND_ACT_REACTIONS = (
    ExpectedReaction("agent-needs-input", "notify", "garden-asks", "notified"),
    ExpectedReaction("agent-blocked", "notify", "garden-blocked", "notified"),
    ExpectedReaction("agent-stuck", "restart", "garden-stuck", "agent-done"),
    ExpectedReaction("agent-exited", "restart", "garden-crashes", "agent-done"),
    ExpectedReaction("agent-idle", "send-to-agent", "garden-idles", "agent-done"),
    ExpectedReaction("usage-limit", "hold", "garden-limited", "agent-done"),
    ExpectedReaction("budget-exceeded", "stop", "garden-spends", "session-stopped"),
    ExpectedReaction("review-comment", "send-to-agent", "garden-commented", "comment-added"),
    ExpectedReaction("pr-closed", "notify", "garden-given-up", "notified"),
    ExpectedReaction("issue-comment", "send-to-agent", "garden-discussed", "agent-done"),
    ExpectedReaction("issue-assigned", "notify", "garden-discussed", "notified"),
    ExpectedReaction("label-added", "spawn", "garden-mow-the-lawn", "agent-done"),
    ExpectedReaction("deploy-ready", "command", "garden-deploys", "command-finished"),
    ExpectedReaction("pr-ready", "spawn", "garden-reviewed", "review-submitted"),
    ExpectedReaction("check-not-set-up", "notify", "orchard-untested", "notified"),
    ExpectedReaction("all-complete", "notify", "shop-storage", "notified"),
)
"""What rules do in the second act. `deploy-ready` is an event that the agent defines, `pr-ready` an event type."""


@dataclass(slots=True)
class SecondAct:
    """Acts as the person: opens issues, labels, assigns, comments, closes, and answers the open question of the first act."""

    box: Sandbox
    done_actions: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Create two more repositories, a session per trigger, and an issue without a session."""
        box, shop = self.box, self.box.repo
        box.request("POST", "/api/sessions/shop-storage/answer", {"text": "PostgreSQL"})
        box.repository("orchard", config=CONFIG_WITHOUT_RUNNER.format(runtime=box.runtime))
        plant = "[[edit: apples.txt|x]] [[commit: Plant a tree]] [[done: planted]]"
        box.request("POST", "/api/sessions", {"name": "untested", "title": "Plant a tree", "prompt": plant})
        box.repository("garden", config=CONFIG.format(runtime=box.runtime))
        greeting_issue = box.request("POST", "/api/issues", {"title": "Greet the visitors"})["number"]
        session_request = {"name": "discussed", "issue": str(greeting_issue), "agent": "discussed"}
        box.request("POST", "/api/sessions", session_request)
        lawn_issue = box.request("POST", "/api/issues", {"title": "Mow the lawn"})["number"]
        box.request("POST", f"/api/issues/{lawn_issue}/labels", {"labels": ["agent"]})
        for name, title in TASK_TITLES.items():  # the one with the usage limit last: it holds back all later sessions
            box.request("POST", "/api/sessions", {"name": name, "title": title, "prompt": title, "agent": name})
        box.request("PATCH", f"/api/issues/{greeting_issue}", {"assignee": "Ann"})
        box.request("POST", f"/api/issues/{greeting_issue}/comments", {"body": "Please be brief."})
        box.repo = shop

    def respond(self) -> None:
        """Review, close or approve the sessions that wait for it now."""
        ready = {
            session["id"] for session in self.box.sessions() if session["status"] == "review_pending"
        } - self.done_actions
        review_comment = {"path": "code.txt", "line": 1, "body": "Why x?"}
        if "garden-commented" in ready:
            self._post("garden-commented", "review", {"verdict": "commented", "comments": [review_comment]})
        if "garden-given-up" in ready:
            self._post("garden-given-up", "close", None)
        if "shop-storage" in ready:
            self._post("shop-storage", "review", {"verdict": "approved"})

    def _post(self, session: str, what: str, body: object) -> None:
        self.done_actions.add(session)
        self.box.request("POST", f"/api/sessions/{session}/{what}", body)

    def is_finished(self, events: Iterable[Event]) -> bool:
        """Return whether every rule of the act acted and its effect followed."""
        all_events = list(events)
        return all(reaction.has_happened(all_events) for reaction in SECOND_ACT_REACTIONS)
