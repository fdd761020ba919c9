"""Budgets with a manual clock: reservations, starts, pauses, questions, and continuation on the next day."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, EffectRunner
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.plans import Plan, PlanUsage
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.status import derive_status
from agent_orchestrator.fleet.scheduling.start_decision import FreeResources, decide_starts, holds_slot
from agent_orchestrator.fleet.usage.account_limits import AccountLimits
from agent_orchestrator.fleet.usage.budgets import DEFAULT_EXPECTED_USE, Budgets, has_unmeasured_usage
from agent_orchestrator.fleet.usage.usage_gate import SessionUsageGate
from tests.parts import make_config, make_core, make_flow, never_quiet
from tests.unit.call_counts import count_calls
from tests.unit.core.world import ManualClock, created
from tests.unit.fleet.reactions.test_executor import make_executor

PLENTY = FreeResources(1 << 50, 1 << 50)
NOON = 1_800_014_400.0 - 1_800_014_400.0 % 86400.0 + 43200.0
DAY = 86400.0


class Till:
    """A daemon's budgets, with simulated sessions that spend."""

    def __init__(self, folder: Path, config: str) -> None:
        self.time = ManualClock(NOON)
        repo = folder / "app"
        repo.mkdir()
        file = repo / "agent-orchestrator.yaml"
        file.write_text(config)
        in_force = make_config(folder / "config.yaml")
        in_force.add(file)
        self.flow = make_flow(clock=self.time, rules=DEFAULT_RULES)
        core = make_core(folder, self.flow, config=in_force)
        self.budgets, limits = Budgets(core, never_quiet), AccountLimits(core)
        reacting = make_executor(core, limits, SessionUsageGate(self.budgets, limits))
        effects = {**reacting.effects(), "stop": Effect(self._stop), "clean-up": Effect(self._clean_up)}
        self.runner = EffectRunner(self.flow, effects)
        self._count = 0

    async def _stop(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        return [self._event(intent.session, e.AgentStopped(0), intent.generation)]

    async def _clean_up(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        return [self._event(intent.session, e.SessionStopped(("commits",)))]

    def _event(self, session: str, body: e.Body, generation: int = 0) -> Event:
        self._count += 1
        project = session.partition("-")[0]
        return Event(body, self.time(), "spool", f"t{self._count}", project, session, generation)

    async def start(self) -> None:
        self.runner.start(await self.flow.start())
        self.budgets.start()

    async def close(self) -> None:
        await self.budgets.close()
        await self.runner.drain()
        await self.flow.stop()

    async def settle(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0)

    async def passes(self, seconds: float) -> None:
        end = self.time() + seconds
        while self.time() < end:
            coming = min((timer.at for timer in self.time.timers if not timer.cancelled), default=end)
            self.time.advance(max(0.0, min(coming, end) - self.time()))
            await self.settle()

    async def wants(self, *names: str, **more: object) -> None:
        """Queue sessions that wait to start."""
        for name in names:
            event = created(f"app-{name}", self.time(), **more)
            await self.flow.append(replace(event, project="app"))
            self.time.now += 0.001

    async def works(self, *names: str, **more: object) -> None:
        """Create sessions whose agents are in a turn."""
        await self.wants(*names, **more)
        for name in names:
            session = f"app-{name}"
            place = e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g")
            await self.flow.append(self._event(session, e.SessionAdmitted()), self._event(session, place))
            await self.flow.append(self._event(session, e.AgentLaunched({}), 1))
            await self.flow.append(self._event(session, e.AgentActivity("active"), 1))
        await self.settle()

    async def uses(self, name: str, usd: float | None = None, tokens: int = 0) -> None:
        used = e.AgentUsage("m", tokens, 0, usd=usd)
        await self.flow.append(self._event(f"app-{name}", used, self.facts(name).generation))
        await self.settle()

    async def ends(self, name: str) -> None:
        await self.flow.append(self._event(f"app-{name}", e.AgentTurnEnded("all done."), self.facts(name).generation))

    def facts(self, name: str) -> SessionFacts:
        return self.flow.sessions[f"app-{name}"]

    def verdicts(self) -> dict[str, str]:
        sessions = list(self.flow.sessions.values())
        return {
            decision.session: decision.reason
            for decision in decide_starts(sessions, (), PLENTY, gates=[self.budgets.gate])
        }

    async def notified(self, level: str) -> list[str]:
        events = await self.flow.store.events(kind="notified")
        return [
            event.body.title for event in events if isinstance(event.body, e.Notified) and event.body.level == level
        ]


Play = Callable[[Till], Awaitable[None]]


def played(config: str) -> Callable[[Play], Callable[[Path], None]]:
    def decorate(play: Play) -> Callable[[Path], None]:
        async def run(folder: Path) -> None:
            till = Till(folder, config)
            await till.start()
            await play(till)
            await till.close()

        def test(tmp_path: Path) -> None:
            asyncio.run(run(tmp_path))

        return test

    return decorate


def budget(text: str, more: str = "") -> str:
    return f"projects: {{app: {{path: ., agent: demo, budget: {{{text}}}}}}}\n{more}"


TEN = [f"n{number}" for number in range(10)]


@played(budget("perDay: 5 USD, perSession: 1 USD"))
async def test_simultaneous_starts_stay_within_the_days_budget(till: Till) -> None:
    await till.wants(*TEN)
    reasons = till.verdicts()
    free = [name for name, reason in reasons.items() if not reason]
    assert len(free) == 5, "each may use a dollar"
    waits = [reason for reason in reasons.values() if reason]
    want = "room in the day's budget of app: 0.00 of 5.00 USD spent, 5.00 reserved, 1.00 expected"
    assert waits == [want] * 5


@played(budget("perDay: 1M tokens"))
async def test_the_expected_usage_is_the_median_of_earlier_sessions(till: Till) -> None:
    await till.wants("unknown")
    day = next(cap for cap in till.budgets.caps("app", None) if cap.scope == "day")
    assert till.budgets.expected_use(till.facts("unknown"), day) == min(DEFAULT_EXPECTED_USE["tokens"], 100_000.0)
    for name, used in (("a", 100_000), ("b", 300_000), ("c", 200_000)):
        await till.works(name)
        await till.uses(name, tokens=used)
        await till.ends(name)
    assert till.budgets.expected_use(till.facts("unknown"), day) == 200_000.0, "the median"
    await till.wants("second", "third")
    assert [not reason for reason in till.verdicts().values()] == [True, True, False]


@played(budget("perDay: 5 USD, perSession: 2 USD"))
async def test_measured_usage_replaces_the_reservation(till: Till) -> None:
    await till.works("a", "b")
    at_work = [facts for facts in till.flow.sessions.values() if holds_slot(facts)]
    day = next(cap for cap in till.budgets.caps("app", None) if cap.scope == "day")
    assert till.budgets.reserved_use(day, at_work) == 4.0
    await till.uses("a", usd=1.5)
    at_work = [facts for facts in till.flow.sessions.values() if holds_slot(facts)]
    assert (till.budgets.spent_use(day), till.budgets.reserved_use(day, at_work)) == (1.5, 2.5), "together as before"
    await till.wants("c")
    assert "room in the day's budget" in till.verdicts()["app-c"]
    await till.ends("a")
    assert till.budgets.reserved_use(day, [till.facts("b")]) <= 2.0
    assert till.verdicts()["app-c"] == "", "who is done needs no more; those before it used 1.50"


@played(budget("perDay: 0.1 USD"))
async def test_a_budget_below_the_expected_usage_lets_one_session_start(till: Till) -> None:
    await till.works("dear")
    await till.uses("dear", usd=0.05)
    await till.ends("dear")
    await till.wants("next", "after")
    assert [not reason for reason in till.verdicts().values()] == [True, False]


@pytest.mark.parametrize(("cap", "usd", "tokens"), [("1 USD", 1.01, 0), ("1k tokens", None, 1001)])
def test_a_session_over_its_budget_is_paused_and_a_person_is_asked(
    tmp_path: Path, cap: str, usd: float | None, tokens: int
) -> None:
    @played(budget(f"perSession: {cap}"))
    async def play(till: Till) -> None:
        await till.works("a", "b")
        await till.uses("a", usd=usd, tokens=tokens)
        facts, status = till.facts("a"), derive_status(till.facts("a"), till.time())
        assert facts.stopped and facts.stopped_by == "rule budget-exceeded" and not till.facts("b").stopped
        assert (status.name, status.column) == ("stopped", "Needs you") and "ao answer app-a" in str(status.waiting_for)
        assert await till.notified("urgent") == ["app-a: working"]
        [offer] = facts.offers
        await till.flow.append(till._event("app-a", e.OfferAnswered(offer.id, "allow")))
        await till.settle()
        facts = till.facts("a")
        assert (facts.requested_state, facts.stopped, facts.budget_raises, facts.offers) == (
            "run",
            False,
            {"session": 1},
            (),
        )
        assert [message.text for message in facts.messages if message.pending] == [
            "Your budget was raised. Go on where you left off."
        ]
        assert till.verdicts()["app-a"] == ""

    play(tmp_path)


@played(budget("perSession: 1 USD"))
async def test_a_raised_budget_is_doubled_and_asked_about_again(till: Till) -> None:
    await till.works("a")
    await till.flow.append(till._event("app-a", e.BudgetRaised("session", "1 USD")))
    await till.uses("a", usd=1.9)
    assert not till.facts("a").stopped
    await till.uses("a", usd=0.2)
    assert till.facts("a").stopped and till.facts("a").offers[0].event["budget"] == "2 USD"


@played(budget("perSession: 1 USD"))
async def test_a_denied_raise_leaves_the_session_stopped(till: Till) -> None:
    await till.works("a")
    await till.uses("a", usd=2.0)
    [offer] = till.facts("a").offers
    await till.flow.append(till._event("app-a", e.OfferAnswered(offer.id, "deny")))
    await till.passes(3 * DAY)
    assert till.facts("a").stopped and till.facts("a").offers == ()
    assert derive_status(till.facts("a"), till.time()).column == "Done"


@played(budget("perDay: 1 USD"))
async def test_at_the_days_limit_working_sessions_pause_until_the_next_day(till: Till) -> None:
    await till.works("a", "b", "idle")
    await till.ends("idle")
    await till.wants("new")
    await till.uses("a", usd=1.2)
    assert [till.facts(name).stopped for name in ("a", "b", "idle")] == [True, True, False]
    assert till.verdicts()["app-new"] == "tomorrow: the day's budget of app is spent: 1.20 of 1.00 USD"
    later = till.budgets.wait(till.facts("idle"))
    assert later is not None and later.until == NOON + DAY / 2, "it is not spoken to before"
    await till.passes(DAY / 2 - 10.0)
    assert till.facts("a").stopped
    await till.passes(20.0)
    for name in ("a", "b"):
        facts = till.facts(name)
        assert (facts.requested_state, facts.stopped, facts.admitted) == ("run", False, False), "it waits for its place"
        assert next(message.text for message in facts.messages if message.pending).startswith("Another day has begun")
    assert till.budgets.wait(till.facts("idle")) is None
    assert till.verdicts()["app-a"] == ""


@played(budget("perDay: 1 USD"))
async def test_a_merged_session_is_not_resumed(till: Till) -> None:
    await till.works("a")
    await till.flow.append(till._event("app-a", e.HeadMoved("c1")), till._event("app-a", e.PrOpened(1, "x", "main")))
    await till.uses("a", usd=1.2)
    assert till.facts("a").stopped and till.facts("a").offers
    await till.flow.append(till._event("app-a", e.PrMerged("c1", "squash", "c2")))
    await till.passes(2 * DAY)
    assert till.facts("a").stopped


@played(budget("perSession: 1 USD"))
async def test_a_review_over_budget_ends_without_a_question(till: Till) -> None:
    await till.works("r", reviews="app-a", kind="reviewer")
    await till.uses("r", usd=1.2)
    assert till.facts("r").stopped and till.facts("r").offers == ()


@played(budget("perDay: 1 USD"))
async def test_a_days_budget_is_raised_for_one_session_and_that_day(till: Till) -> None:
    await till.works("a", "b")
    await till.uses("a", usd=1.2)
    [offer] = till.facts("a").offers
    await till.flow.append(till._event("app-a", e.OfferAnswered(offer.id, "allow")))
    await till.settle()
    assert not till.facts("a").stopped and till.facts("b").stopped
    day = next(cap for cap in till.budgets.caps("app", None) if cap.scope == "day")
    assert till.budgets.limit(day, till.facts("a")) == 2.0
    till.time.now += DAY
    assert till.budgets.limit(day, till.facts("a")) == 1.0


@played(budget("perProject: 2k tokens"))
async def test_a_projects_budget_does_not_reset(till: Till) -> None:
    await till.works("a")
    await till.uses("a", tokens=1500)
    till.time.now += 5 * DAY
    await till.works("b")
    await till.uses("b", tokens=600)
    assert till.facts("b").stopped and till.facts("b").offers[0].event["scope"] == "project"
    await till.passes(2 * DAY)
    assert till.facts("b").stopped, "no other day changes that"
    await till.wants("c")
    assert till.verdicts()["app-c"] == "a greater budget: the budget of app is spent: 2,100 of 2,000 tokens"


@played(budget("perProject: 400 USD"))
async def test_implausible_usage_of_one_session_does_not_block_others_forever(till: Till) -> None:
    await till.works("a", "b")
    await till.uses("a", usd=2.0**53)
    assert till.facts("a").stopped and till.facts("b").stopped
    [project] = till.budgets.caps("app", None)
    assert till.budgets.spent_use(project) == 600.0
    [offer] = till.facts("b").offers
    await till.flow.append(till._event("app-b", e.OfferAnswered(offer.id, "allow")))
    await till.settle()
    assert till.budgets.gate(till.facts("b"), []) == "" and till.budgets.wait(till.facts("b")) is None


@played(budget("perProject: 400 USD, perSession: 5 USD"))
async def test_implausible_usage_is_limited_by_the_sessions_own_budget(till: Till) -> None:
    await till.works("a", "b")
    await till.uses("a", usd=2.0**53)
    await till.wants("c")
    assert till.facts("a").stopped and not till.facts("b").stopped
    assert till.budgets.gate(till.facts("c"), []) == ""


PROFILES = "agents: {dear: {tool: demo, budget: {perDay: 1 USD, perSession: 3 USD}}, cheap: {tool: demo}}\n"


@played(budget("perDay: 10 USD, perSession: 1 USD", PROFILES))
async def test_a_profiles_budget_counts_only_its_sessions(till: Till) -> None:
    await till.works("c", profile="cheap")
    await till.uses("c", usd=0.9)
    await till.works("d", profile="dear")
    await till.uses("d", usd=0.9)
    assert not till.facts("d").stopped
    await till.uses("d", usd=0.2)
    assert till.facts("d").stopped and not till.facts("c").stopped
    assert till.facts("d").offers[0].event["scope"] == "day", "not its own budget, which the profile says is 3 USD"


@played(
    "orchestrator: {budget: {perDay: 1 USD}}\nprojects: {app: {path: ., agent: demo}, lib: {path: ./lib, agent: demo}}\n"
)
async def test_a_files_budget_is_shared_by_all_its_projects(till: Till) -> None:
    await till.works("a")
    lib = replace(created("lib-x", till.time()), project="lib")
    await till.flow.append(lib)
    await till.uses("a", usd=1.1)
    assert till.facts("a").stopped
    assert till.verdicts()["lib-x"].startswith("tomorrow: the day's budget of all projects")


@played(budget("perDay: 1 USD"))
async def test_planning_counts_toward_the_days_budget(till: Till) -> None:
    plan = Plan("P1", "app", "goal", NOON, NOON, "t", usage=PlanUsage(10, 10, 0.95))
    till.flow.facts.home = replace(till.flow.home, plans={"P1": plan})
    await till.works("a")
    await till.uses("a", usd=0.1)
    assert till.facts("a").stopped


@played(budget("perDay: 10 USD, perSession: 5 USD"))
async def test_a_person_is_notified_once_at_80_percent(till: Till) -> None:
    await till.works("a", "b")
    await till.uses("a", usd=3.9)
    assert await till.notified("warning") == []
    await till.uses("a", usd=0.2)
    await till.uses("a", usd=0.2)
    assert await till.notified("warning") == ["app-a: the session's budget is nearly spent"]
    await till.uses("b", usd=3.9)
    await till.uses("b", usd=0.05)
    assert (await till.notified("warning"))[1:] == ["app-b: the day's budget of app is nearly spent"]


@played(budget("perDay: 1 USD"))
async def test_unknown_usage_is_not_counted_as_zero(till: Till) -> None:
    await till.works("silent", "priced")
    await till.uses("priced", tokens=500)
    await till.ends("silent")
    assert has_unmeasured_usage(till.facts("silent"), "USD") and has_unmeasured_usage(till.facts("silent"), "tokens")
    assert has_unmeasured_usage(till.facts("priced"), "USD") and not has_unmeasured_usage(
        till.facts("priced"), "tokens"
    )
    [row] = till.budgets.table("app")
    assert row["unknown"] == ["app-priced", "app-silent"]
    assert "its budget cannot be enforced" in till.budgets.unenforced_reason(till.facts("silent"))


@played(budget("perDay: 5 USD"))
async def test_a_decision_takes_time_proportional_to_the_waiting_sessions(till: Till) -> None:
    await till.flow.append(*(replace(created(f"app-n{n}", NOON + n), project="app") for n in range(1000)))
    sessions = list(till.flow.sessions.values())
    small, large = (
        count_calls(lambda count=count: decide_starts(sessions[:count], (), PLENTY, gates=[till.budgets.gate]))
        for count in (200, 1000)
    )
    assert large < 6 * small < 6 * 20_000
