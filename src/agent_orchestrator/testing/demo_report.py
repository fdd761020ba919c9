"""The demo's output: a line per event, and a table of the automatic actions at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Event = dict[str, Any]
Describe = Callable[[dict[str, Any]], str]

DESCRIPTIONS: dict[str, Describe] = {
    "session-created": lambda data: f"takes up {_issue(data)}{data['title']}",
    "workspace-created": lambda data: f"works in a worktree of its own, on {data['branch']}",
    "agent-progress": lambda data: f"{data.get('done')}/{data.get('total')} {data.get('step', '')}",
    "agent-ask": lambda data: f"asks you: {data['question']}",
    "agent-limit": lambda _data: "has reached its usage limit",
    "agent-exited": lambda data: f"its agent ended with exit code {data.get('code')}",
    "agent-done": lambda data: f"says: {data.get('summary', '')}",
    "pr-opened": lambda data: f"has pull request #{data['number']} (draft)",
    "pr-ready": lambda _data: "its pull request is ready",
    "pr-closed": lambda data: f"its pull request is closed: {data.get('reason', '')}",
    "check-finished": lambda data: f"check {data['name']}: {_check(data)}",
    "reacted": lambda data: f"rule {data['rule']}: {data['action']}, attempt {data.get('attempt', 1)}",
    "review-submitted": lambda data: f"review: {data['verdict'].replace('_', ' ')}",
    "comment-added": lambda data: f"{'answers' if data.get('byAgent') else 'gets a comment'}: {data['body']}",
    "command-finished": lambda data: f"the rule's command says: {data.get('output', '')}",
    "landing-failed": lambda data: f"did not land: {data['reason']}",
    "pr-merged": lambda data: f"landed on main as {data['commit'][:8]}",
}
"""Event type → its description."""

ACTION_RESULTS = {
    "send-to-agent": "sent to the agent",
    "notify": "told you",
    "merge": "put into the merge queue",
    "clean-up": "removed its workspace",
    "restart": "started the agent again",
    "stop": "stopped it, its work saved",
    "hold": "held the account, then let it go on",
    "spawn": "had another agent take it up",
    "command": "ran a command",
    "rerun-ci": "ran the checks again",
    "escalate": "called you",
}
"""Action → its result, in words."""


def _issue(data: dict[str, Any]) -> str:
    return f"issue #{data['issue']}: " if data.get("issue") else ""


def _check(data: dict[str, Any]) -> str:
    if data.get("onBase"):
        return f"{len(data.get('known') or ())} known failures on main, none new"
    if data["state"] == "not_set_up":
        return f"environment not set up: {data.get('reason')}"
    tests = f" ({data['passed']} test{'s' * (data['passed'] != 1)} passing)" if data.get("passed") else ""
    return f"{data['state']}{tests}"


def event_line(event: Event) -> str | None:
    """Return an event as a line of output, or None if the demo does not show it."""
    describe = DESCRIPTIONS.get(event["type"])
    if describe is None or not event["session"]:
        return None
    return f"  {event['time'][11:19]}  {event['session']:<22} {describe(event['data'])}"


def automatic_actions(events: Iterable[Event]) -> list[str]:
    """Return the lines of a table of what rules did: trigger, action, sessions."""
    sessions_by_action: dict[tuple[str, str], list[str]] = {}
    for event in events:
        if event["type"] == "reacted":
            data = event["data"]
            sessions = sessions_by_action.setdefault(
                (data["trigger"], ACTION_RESULTS.get(data["action"], data["action"])), []
            )
            if event["session"] not in sessions:
                sessions.append(event["session"])
    rows = [("TRIGGER", "WHAT WAS DONE", "SESSION")]
    rows += [(trigger, done, ", ".join(sessions)) for (trigger, done), sessions in sessions_by_action.items()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"  {trigger:<{widths[0]}}  {done:<{widths[1]}}  {sessions}" for trigger, done, sessions in rows]
