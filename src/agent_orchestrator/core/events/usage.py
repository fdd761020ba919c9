"""Events of usage, of the vendors' usage limits and of budgets."""

from __future__ import annotations

from agent_orchestrator.core.events.event import Body
from agent_orchestrator.protocols.records import record


@record
class AgentUsage(Body):
    """What a turn took; adds up."""

    model: str = ""
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    usd: float | None = None
    by_list: bool = False
    """The dollars are by list prices, not the agent's own figure."""
    forge: int = 0
    """Calls of a forge's own command line, which spend the forge's budget."""


@record
class AgentLimit(Body):
    """The account's usage limit is reached; `model`: only for that one, by the agent's word."""

    resets_at: float | None = None
    model: str = ""


@record
class AccountHeld(Body):
    """No session of this account (and model, if one is named) starts or goes on before that time."""

    account: str
    until: float
    reason: str = ""
    model: str = ""
    named: bool = True
    """The agent named that time; otherwise it is a guess."""
    times: int = 1
    """How often in a row the account refused after the time had come."""
    waits: float | None = None
    """Until when the session itself waits, where its own word holds the account for less."""


@record
class AccountReleased(Body):
    """An account is held no more: it works again, or a person released it. Of a session: it may continue."""

    account: str
    model: str = ""
    reason: str = ""


@record
class BudgetExceeded(Body):
    """More was spent than the budget allows: of a `session`, a `day`, or a `project`."""

    scope: str
    budget: str
    spent: str
    day: str = ""
    """The UTC day whose budget it was."""


@record
class BudgetRaised(Body):
    """A person lets a session use as much again; a day's budget is raised for that day alone."""

    scope: str
    budget: str
    day: str = ""
