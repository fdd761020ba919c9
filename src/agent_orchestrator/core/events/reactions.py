"""Events of reaction rules: what they did, offered to a person, or ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class Reacted(Body):
    """A rule was followed."""

    rule: str
    trigger: str
    occurrence: str
    action: str
    attempt: int = 1
    detail: str = ""


OFFER_REASON = "the rule asks you"


@record
class Escalated(Body):
    """A rule could not settle it: a person is called. With the reason `OFFER_REASON` it was not to: an action is offered."""

    rule: str
    trigger: str
    reason: str


@record
class ActionOffered(Body):
    """A rule does not act automatically: a person may accept the action, or refuse it."""

    offer: str
    rule: str
    trigger: str
    occurrence: str
    action: str
    text: str = ""
    """What would be sent."""
    attempt: int = 1
    event: Mapping[str, Any] = field(default_factory=dict)
    """The event that it is about, for a trigger that is one."""


@record
class OfferAnswered(Body):
    """A person's word on an action that was offered: `allow` or `deny`."""

    offer: str
    decision: str


@record
class OfferWithdrawn(Body):
    """What a person was asked for has settled itself."""

    offer: str


@record
class CommandRequested(Body):
    """A rule wants its command to be run."""

    rule: str
    trigger: str
    attempt: int = 1
    variables: Mapping[str, Any] = field(default_factory=dict)
    """What the command may read of what happened."""


@record
class CommandFinished(Body):
    """A rule's command has ended; `code` is none where it was ended by its time limit."""

    rule: str
    code: int | None
    output: str = ""
    """The end of what it printed."""
    log: str = ""
    seconds: float = 0.0
    repeated: bool = False
    """The daemon died while it ran before: it may have been run twice."""


@record
class SpawnRequested(Body):
    """A rule wants another session."""

    rule: str
    trigger: str
    agent: str = ""
    prompt: str = ""


@record
class AllComplete(Body):
    """Every session of the project is done."""

    sessions: tuple[str, ...] = ()
    """Those that were not reported before."""
    summary: str = ""
