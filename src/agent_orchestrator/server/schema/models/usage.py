"""The models of answers about usage, accounts and budgets."""

from __future__ import annotations

from typing import Literal

from agent_orchestrator.server.schema.models.answer import Answer


class Usage(Answer):
    """What it took."""

    input: int
    output: int
    usd: float | None


class Used(Answer):
    """Tokens, dollars, and calls of a forge's own command line (`gh`, `glab`)."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    usd: float | None
    forge_calls: int


class UsageRow(Used):
    """Tokens and dollars of one session, project, agent, model or day."""

    key: str


class AccountInUse(Answer):
    """An account that sessions use, and its usage limit if it met one."""

    account: str
    model: str | None
    """Only this model is held; none: all are."""
    state: Literal["free", "held", "trying"]
    """`trying`: its time is up, and one session sees whether the limit is over."""
    until: str | None
    reset_known: bool | None
    """False: the time of the reset is a guess."""
    reason: str | None
    agents: list[str]
    working: int
    waiting: int


class BudgetInForce(Answer):
    """A budget, and what is spent and set aside of it."""

    scope: Literal["session", "day", "project"]
    name: str
    projects: list[str]
    profile: str | None
    unit: Literal["usd", "tokens"]
    budget: float
    spent: float | None
    """None: it is each session's own."""
    reserved: float | None
    unknown: list[str]
    """Sessions whose usage in this unit is unknown: for them it cannot be enforced."""


class UsageTable(Answer):
    """What was used."""

    rows: list[UsageRow]
    total: Used
    accounts: list[AccountInUse]
    budgets: list[BudgetInForce]


class ReleasedAccounts(Answer):
    """Holds that were lifted."""

    released: list[str]
    at: str
