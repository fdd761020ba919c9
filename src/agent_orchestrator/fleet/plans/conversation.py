"""One conversation with an agent without a terminal: each thing that is said to it is a run of its command, to its end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from agent_orchestrator.base.text.redaction import KNOWN
from agent_orchestrator.base.threads import aside
from agent_orchestrator.base.tolerant import read_line
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.core.plans import Spent
from agent_orchestrator.errors import AoError, Conflict, Temporary
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.protocols import AgentContext, Headless
from agent_orchestrator.protocols import reports as r
from agent_orchestrator.protocols.host import Host

GRACE = 3.0
"""Seconds that a run which is ended gets to end by itself."""
MARK = "AO_PLANNING"
"""The variable by which a run that outlived its daemon is found."""
LONGEST_WORDS = 500


class Limited(Conflict):
    """The agent's account refused; `limit` says until when, as far as known."""

    def __init__(self, name: str, limit: r.LimitReport) -> None:
        until = limit.resets_at
        when = f"; it resets at {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if isinstance(until, datetime) else ""
        super().__init__(f"the usage limit of {name} is reached{when}", "plan again then")
        self.limit = limit


class Conversation:
    """What was said so far, and what it took."""

    def __init__(
        self,
        agent: Headless,
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
        self.spent = Spent()
        self.id: str | None = None
        """By which the agent goes on with it; none: each run begins anew."""

    def end_leftovers(self) -> None:
        """End what an earlier daemon had started for the same plan, and did not live to end."""
        for process in self.host.marked(MARK, self.context.env[MARK]):
            self.host.kill(process, signal.SIGKILL)

    async def say(self, prompt: str, seconds: float) -> str:
        """Its last words in answer. Raises what is wrong, in its own words."""
        heard = _Heard(self)
        turn = await aside(self.agent.turn, self.context, KNOWN.text(prompt), self.id)
        try:
            async with asyncio.timeout(seconds):
                code = await self.host.stream(
                    turn.argv,
                    heard.line,
                    cwd=self.context.workspace,
                    env={**self.context.env, **turn.env},
                    input=None if turn.stdin is None else turn.stdin.encode(errors="replace"),
                    grace=GRACE,
                )
        except TimeoutError:
            raise Temporary(
                f"{self.name} did not finish in time", "raise orchestrator.planner.timeout, or ask for less"
            ) from None
        if heard.limited:
            raise Limited(self.name, heard.limited)
        if code:
            raise AoError(
                f"{self.name} ended with exit code {code}: {heard.words() or 'it said nothing'}",
                "run it once by hand: it may have to be logged in",
            )
        return heard.said


class _Heard:
    """What one run printed."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.said = ""
        self.limited: r.LimitReport | None = None
        self._shown: list[str] = []

    def line(self, text: str) -> None:
        read = read_line(self.conversation.agent, text)
        if shown := clean_text(read.show).strip():
            self._shown = [*self._shown[-20:], shown]
            self.conversation.progress(shown.splitlines()[-1])
        for report in read.reports:
            self._take(report)

    def _take(self, report: r.Report) -> None:
        talk = self.conversation
        match report:
            case r.ConversationReport():
                talk.id = report.conversation or talk.id
            case r.TurnReport():
                self.said = report.text or self.said
            case r.LimitReport():
                self.limited = report
            case r.ProgressReport() if report.step:
                talk.progress(report.step)
            case r.UsageReport():
                talk.spent = _plus(talk.spent, report, talk.prices)

    def words(self) -> str:
        """The last thing that it showed, in one line."""
        return " ".join(self._shown[-1].split())[-LONGEST_WORDS:] if self._shown else ""


def _plus(spent: Spent, used: r.UsageReport, prices: Prices) -> Spent:
    tokens = (used.input, used.output, used.cache_read, used.cache_write)
    usd = used.usd if used.usd is not None else prices.usd(used.model, *tokens)
    whole = spent.usd if usd is None else (spent.usd or 0.0) + usd
    read = used.input + used.cache_read + used.cache_write
    return Spent(spent.input + read, spent.output + used.output, whole)


def environment(base: Mapping[str, str], home: Path, plan: str) -> dict[str, str]:
    """The agent's environment with the mark of its plan."""
    return {**base, MARK: f"{home}#{plan}"}
