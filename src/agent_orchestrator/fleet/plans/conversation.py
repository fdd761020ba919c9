"""A conversation with a planning agent that has no terminal: each prompt is one run of its command, to its end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from agent_orchestrator.base.malformed_records import parse_turn_line
from agent_orchestrator.base.text.redaction import REDACTOR
from agent_orchestrator.base.threads import run_in_own_thread
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.core.plans import PlanUsage
from agent_orchestrator.errors import AoError, Conflict, Temporary
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols import Agent, AgentContext
from agent_orchestrator.protocols import reports as r
from agent_orchestrator.protocols.host import Host

STOP_TIMEOUT = 3.0
"""Seconds that a cancelled run gets to end before it is killed."""
PLAN_VARIABLE = "AO_PLANNING"
"""The environment variable by which the processes of a planning are found, even after its daemon has died."""
MAX_ERROR_LENGTH = 500


class UsageLimitReached(Conflict):
    """The agent's account has reached a usage limit; `limit` says until when, if known."""

    def __init__(self, name: str, limit: r.LimitReport) -> None:
        until = limit.resets_at
        when = f"; it resets at {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if isinstance(until, datetime) else ""
        super().__init__(f"the usage limit of {name} is reached{when}", "plan again then")
        self.limit = limit


class Conversation:
    """A conversation with an agent, and what it has used so far."""

    def __init__(
        self,
        agent: Agent,
        name: str,
        context: AgentContext,
        host: Host,
        prices: Prices,
        progress: Callable[[str], None],
    ) -> None:
        self.agent = agent
        self.name = name
        self.context = context
        self.host = host
        self.prices = prices
        self.progress = progress
        self.spent = PlanUsage()
        self.id: str | None = None
        """The id under which the agent continues the conversation; None: each run starts a new one."""

    def kill_leftovers(self) -> None:
        """Kill all remaining processes of this plan's conversations: an earlier daemon or the agent may have left some."""
        for process in self.host.processes_with_variable(PLAN_VARIABLE, self.context.env[PLAN_VARIABLE]):
            self.host.kill(process, signal.SIGKILL)

    async def send(self, prompt: str, seconds: float) -> str:
        """Send a prompt and return the agent's last text.

        Raises `Temporary` if it does not answer in time, `UsageLimitReached` at a usage limit, and `AoError` with its last line if it
        fails.
        """
        output = _RunOutput(self)
        turn = await run_in_own_thread(self.agent.turn, self.context, REDACTOR.redact_text(prompt), self.id)
        try:
            async with asyncio.timeout(seconds):
                code = await self.host.stream(
                    turn.argv,
                    output.read_line,
                    cwd=self.context.workspace,
                    env={**self.context.env, **turn.env},
                    input=None if turn.stdin is None else turn.stdin.encode(errors="replace"),
                    grace=STOP_TIMEOUT,
                )
        except TimeoutError:
            raise Temporary(
                f"{self.name} did not finish in time", "raise orchestrator.planner.timeout, or ask for less"
            ) from None
        if output.limit_report:
            raise UsageLimitReached(self.name, output.limit_report)
        if code:
            raise AoError(
                f"{self.name} ended with exit code {code}: {output.last_output() or 'it said nothing'}",
                "run it once by hand: it may have to be logged in",
            )
        return output.text


class _RunOutput:
    """The output of one run."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.text = ""
        self.limit_report: r.LimitReport | None = None
        self._last_lines: list[str] = []

    def read_line(self, text: str) -> None:
        """Read a line that the agent's command printed."""
        record = parse_turn_line(self.conversation.agent, text)
        if visible_text := clean_text(record.show).strip():
            self._last_lines = [*self._last_lines[-20:], visible_text]
            self.conversation.progress(visible_text.splitlines()[-1])
        for report in record.reports:
            self._apply_report(report)

    def _apply_report(self, report: r.Report) -> None:
        """Apply what the agent's plugin read from a line."""
        conversation = self.conversation
        match report:
            case r.ConversationReport():
                conversation.id = report.conversation or conversation.id
            case r.TurnReport():
                self.text = report.text or self.text
            case r.LimitReport():
                self.limit_report = report
            case r.ProgressReport() if report.step:
                conversation.progress(report.step)
            case r.UsageReport():
                conversation.spent = _add_usage(conversation.spent, report, conversation.prices)

    def last_output(self) -> str:
        """Return the end of the last output, on one line."""
        return " ".join(self._last_lines[-1].split())[-MAX_ERROR_LENGTH:] if self._last_lines else ""


def _add_usage(spent: PlanUsage, report: r.UsageReport, prices: Prices) -> PlanUsage:
    """Return the usage with that of one report added; its price is computed if the report has none."""
    tokens = (report.input, report.output, report.cache_read, report.cache_write)
    usd = report.usd if report.usd is not None else prices.cost_usd(report.model, *tokens)
    total_usd = spent.usd if usd is None else (spent.usd or 0.0) + usd
    input_tokens = report.input + report.cache_read + report.cache_write
    return PlanUsage(spent.input + input_tokens, spent.output + report.output, total_usd)


def environment_with_plan(base: Mapping[str, str], home: Path, plan: str) -> dict[str, str]:
    """Return the agent's environment with the variable that identifies the plan."""
    return {**base, PLAN_VARIABLE: f"{home}#{plan}"}
