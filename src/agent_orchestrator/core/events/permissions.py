"""Events of permission requests, and of permissions that hold for a whole project."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class PermissionAsked(Body):
    """The agent waits for a permission."""

    tool: str
    command: str = ""
    reason: str = ""
    request: str = ""


@record
class PermissionAnswered(Body):
    """It was decided on what the agent asked to do: `allow`, `always` or `deny`; `by` a person, or a rule by its words."""

    decision: str
    detail: str = ""
    tool: str = ""
    command: str = ""
    by: str = "person"


@record
class PermissionAllowed(Body):
    """A person allowed something for good in this project."""

    tool: str
    command: str


@record
class PermissionWithdrawn(Body):
    """What was allowed for good is asked again."""

    tool: str
    command: str
