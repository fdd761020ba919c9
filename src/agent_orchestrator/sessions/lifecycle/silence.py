"""`Silence`: the effect that notices when an agent in a turn has reported nothing for too long.

How long that is: `STUCK_AFTER_SECONDS` in `core/rules/stuck_threshold.py`, unless a rule for `agent-stuck` sets a threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import RetryLater
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.stuck_threshold import stuck_after_seconds
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.sessions.part import Part


class Silence(Part):
    """Compares the last report and the last output of an agent with the time."""

    async def check(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Record once that an agent in a turn has reported nothing for too long, then check again later."""
        facts, now = self.flow.sessions[intent.session], self.flow.clock()
        threshold = stuck_after_seconds(self.flow.rules(facts.project, facts.spec.profile))
        if facts.activity.state not in IN_TURN_ACTIVITIES:
            raise RetryLater(threshold)
        last_report_at = max(facts.activity.at, facts.last_sign_at)
        try:
            last_output_at = self.home.terminal_log(facts.id).stat().st_mtime
        except OSError:
            last_output_at = last_report_at
        if last_output_at > last_report_at + 1.0:
            output_event = replace(
                self.event(facts, e.AgentOutput(), f"output:{facts.id}:{last_output_at:.3f}", facts.generation),
                time=last_output_at,
            )
            raise RetryLater(max(1.0, last_output_at + threshold - now), output_event)
        if now < last_report_at + threshold:
            raise RetryLater(last_report_at + threshold - now)
        silence_event = self.event(
            facts, e.TimerDue("silence"), f"silent:{facts.id}:{facts.generation}:{last_report_at:.3f}", facts.generation
        )
        raise RetryLater(threshold, silence_event)
