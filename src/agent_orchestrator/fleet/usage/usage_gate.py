"""`SessionUsageGate`: whether a session may use its account now, by budgets and usage limits together."""

from __future__ import annotations

from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.fleet.usage.account_limits import AccountLimits
from agent_orchestrator.fleet.usage.budgets import Budgets
from agent_orchestrator.sessions.lifecycle.usage_wait import SessionWait


class SessionUsageGate:
    """Implements `UsageGate` of `sessions/lifecycle/usage_wait.py`."""

    def __init__(self, budgets: Budgets, limits: AccountLimits) -> None:
        self._budgets = budgets
        self._limits = limits

    def claim_turn_or_wait(self, facts: SessionFacts) -> SessionWait | None:
        """Return why a session may not be started or sent a message yet, or None; then it has taken its account's next turn."""
        return self._budgets.wait(facts) or self._limits.claim_turn_or_wait(facts)
