"""What happened, as handlers get it, and the triggers that an event is.

A trigger is the type of an event (`agent-done`), the name that an agent gave a report of its own, or one of the triggers of reaction
rules (`ci-failed`): some of those are a kind of event, the others a status that a session came into.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent_orchestrator.client.api.link import Json
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
"""Triggers that a session's coming into a status is."""


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that fails, with the relevant part of its output."""

    name: str
    state: str
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something that happened. `trigger` is what a handler was registered for, `type` the kind of event it was seen by."""

    type: str
    trigger: str
    project: str | None
    source: str
    time: datetime
    data: Mapping[str, Any]
    seq: int
    checks: tuple[FailedCheck, ...] = ()
    """For `ci-failed`: the checks that fail."""

    @property
    def logs(self) -> str:
        """For `ci-failed`: the failing checks with the relevant part of their output."""
        return "\n\n".join(f"{check.name}: {check.state}\n{check.output}".rstrip() for check in self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Happened):
    """Something that happened, to a session or, without one, to the project."""

    session: Session | None

    @classmethod
    def of(
        cls, item: Json, session: Session | None, trigger: str | None = None, checks: tuple[FailedCheck, ...] = ()
    ) -> Event:
        """An event of the daemon's log."""
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
    """The triggers that an event is by itself."""
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
            names.add(CI_FAILED)  # if one of them fails, which only the pull request tells
        case "agent-exited":
            names.discard("agent-exited")  # as a trigger it is a status: one that ended well has not exited
    return names
