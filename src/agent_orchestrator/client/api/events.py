"""Events as handlers receive them, and the triggers of an event.

A trigger is the type of an event (`agent-done`), the name that an agent gave to its own report, or a trigger of reaction rules
(`ci-failed`): some of those are a kind of event, others a status that a session enters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_orchestrator.client.api.connection import Json
    from agent_orchestrator.client.api.sessions import Session

CI_FAILED = "ci-failed"

STATUS_TRIGGERS: Mapping[str, str] = {
    "needs_input": "agent-needs-input",
    "blocked": "agent-blocked",
    "stuck": "agent-stuck",
    "failed": "agent-exited",
    "exited": "agent-exited",
    "interrupted": "agent-exited",
    "idle": "agent-idle",
    "limited": "usage-limit",
    "mergeable": "approved-and-green",
}
"""The trigger that a session raises when it enters a status."""


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A failed check, with the relevant part of its output."""

    name: str
    state: str
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventData:
    """An event. `trigger` is what the handler was registered for, `type` the type of the event that raised it."""

    type: str
    trigger: str
    project: str | None
    source: str
    time: datetime
    data: Mapping[str, Any]
    seq: int
    checks: tuple[FailedCheck, ...] = ()
    """For `ci-failed`: the failed checks."""

    @property
    def logs(self) -> str:
        """For `ci-failed`: the failed checks with the relevant part of their output."""
        return "\n\n".join(f"{check.name}: {check.state}\n{check.output}".rstrip() for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(EventData):
    """An event of a session or, if `session` is None, of the project."""

    session: Session | None

    @classmethod
    def from_json(
        cls, item: Json, session: Session | None, trigger: str | None = None, checks: tuple[FailedCheck, ...] = ()
    ) -> Event:
        """Make an event from its JSON object in the daemon's log."""
        return cls(
            type=item["type"],
            trigger=trigger or item["type"],
            session=session,
            project=item.get("project"),
            source=item["source"],
            time=datetime.fromisoformat(item["time"]),
            data=item.get("data") or {},
            seq=item["seq"],
            checks=checks,
        )


def triggers_of(item: Json) -> set[str]:
    """Return the triggers that an event raises, without those of a session's status."""
    data = item.get("data") or {}
    names = {str(item["type"])}
    match item["type"]:
        case "agent-report":
            names.add(str(data.get("name")))
        case "issue-changed" if data.get("assignee"):
            names.add("issue-assigned")
        case "review-submitted" if data.get("verdict") == "changes_requested":
            names.add("changes-requested")
        case "comment-added" if not data.get("byAgent"):
            names.add("review-comment")
        case "conflicts-seen" if data.get("files"):
            names.add("merge-conflicts")
        case "checks-settled" if not data.get("none"):
            names.add(CI_FAILED)  # if one of them fails, which only the pull request shows
        case "agent-exited":
            names.discard("agent-exited")  # as a trigger it is a status: a successful end does not raise it
    return names
