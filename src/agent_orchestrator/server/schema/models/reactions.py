"""The models of answers about reaction rules."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Answer


class Rule(Answer):
    """A reaction rule in force; of a session also how far it is."""

    name: str
    trigger: str
    auto: bool
    action: str
    message: str | None
    retries: int | None
    backoff: list[float] | None
    escalate_after: int | str | None
    escalate: bool
    threshold: float | None
    delay: float | None
    unless_watched: bool
    condition: str | None
    priority: str | None
    strategy: str | None
    delete_after: bool
    include_summary: bool
    approval_after: int | None
    command: list[str] | None
    timeout: float | None
    agent: str | None
    source: Literal["default", "changed", "configured"]
    holds: bool | None
    attempts: int
    escalated: bool
    since: str | None


class Rules(Answer):
    """The reaction rules in force."""

    rules: list[Rule]


class TestedRule(Answer):
    """What a rule would do."""

    rule: str
    action: str
    holds: bool | None
    sample: list[str]
    condition: str | None
    applies: bool
    offered: bool
    attempt: int
    exhausted: bool
    after: float
    text: str | None
    held_for: str | None
    to: str
    command: list[str] | None
    problem: str | None


class TestedRules(Answer):
    """What the rules of a trigger would do for a session."""

    session: str
    trigger: str
    rules: list[TestedRule]
