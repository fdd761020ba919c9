"""Usage limits with a manual clock: held sessions, the first retry, the order of the others, and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, EffectRunner
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import AccountHold, SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.errors import NotFound
from agent_orchestrator.fleet.notifications.receiver_health import Health
from agent_orchestrator.fleet.scheduling.admission import Admission
from agent_orchestrator.fleet.scheduling.profile_match import IssueTaker, TaskTraits, choose_taker
from agent_orchestrator.fleet.usage import account_limits as q
from agent_orchestrator.fleet.usage.account_limits import AccountLimits
from agent_orchestrator.fleet.usage.budgets import Budgets
from agent_orchestrator.fleet.usage.usage_gate import SessionUsageGate
from agent_orchestrator.sessions.session_view import SessionViews
from agent_orchestrator.testing.memory_store import MemoryStore
from tests.parts import make_core, never_quiet
from tests.unit.call_counts import count_calls
from tests.unit.core.world import ManualClock, created
from tests.unit.fleet.reactions.test_executor import make_executor

HOUR = 3600.0


class Provider:
    """The provider of the agents, which refuses accounts and models until a given time."""

    def __init__(self) -> None:
        self.refuses: dict[str, tuple[float, float | None, str]] = {}
        """Account → refused until, announced reset time, model."""


class Fleet:
    """A daemon with simulated agents, whose requests may be refused by the provider."""

    def __init__(self, folder: Path, rules: Sequence[Rule] = DEFAULT_RULES) -> None:
        self.time = ManualClock()
        self.folder = folder
        self.rules = rules
        self.store = MemoryStore()
        self.provider = Provider()
        self.heard = "transcript"
        """The source that reports a refusal."""
        self.began: list[tuple[str, float]] = []
        """The sessions whose agents sent a request to their model, with the time."""

    async def start(self) -> None:
        self.time.timers.clear()
        self.store = self.store.clone()
        self.flow = Flow(self.store, self.time, lambda _project, _profile: self.rules)
        core = make_core(self.folder, self.flow)
        self.views = SessionViews(core, Health())
        self.quota = AccountLimits(core)
        usage = SessionUsageGate(Budgets(core, never_quiet), self.quota)
        reacting = make_executor(core, self.quota, usage)
        effects = {
            **reacting.effects(),
            "prepare": Effect(self._prepare),
            "launch": Effect(self._launch),
            "deliver": Effect(self._deliver),
        }
        self.admission = Admission(core, self._about, [self.quota.gate])
        self.runner = EffectRunner(self.flow, effects)
        pending = await self.flow.start()
        self.quota.start()
        self.runner.start(pending)
        self.admission.start()
        await self.settle()

    async def stop(self) -> None:
        await self.admission.close()
        await self.quota.close()
        await self.runner.drain()
        await self.flow.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def _about(self, _sessions: Sequence[SessionFacts]) -> dict[str, frozenset[str]]:
        return {}

    def _event(self, intent: Intent, body: e.Body, key: str, generation: int = 0) -> Event:
        source = self.heard if isinstance(body, e.AgentLimit) else "spool"
        return Event(body, self.time(), source, f"{intent.key}:{key}", "app", intent.session, generation)

    async def _prepare(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        return [self._event(intent, e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g"), "done")]

    async def _launch(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        facts = self.flow.sessions[intent.session]
        if later := self.quota.claim_turn_or_wait(facts):
            return [self._event(intent, e.StartPutOff(later.reason), "put-off")]
        launched = self._event(intent, e.AgentLaunched({}), "done", intent.generation)
        message = facts.next_message
        delivered = [self._event(intent, e.MessageDelivered(message.id), "taken", intent.generation)] if message else []
        return [launched, *delivered, *self._turn(intent, facts, intent.generation)]

    async def _deliver(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        facts = self.flow.sessions[intent.session]
        assert self.quota.claim_turn_or_wait(facts) is None, "it may go on: it was its turn"
        delivered = self._event(intent, e.MessageDelivered(intent.args["message"]), "done")
        return [delivered, *self._turn(intent, facts, facts.generation)]

    def _turn(self, intent: Intent, facts: SessionFacts, generation: int) -> list[Event]:
        """Return the events of a turn: an answer of the model, or a refusal."""
        self.began.append((facts.name, self.time()))
        until, notified, model = self.provider.refuses.get(q.account_of(facts), (0.0, None, ""))
        active = self._event(intent, e.AgentActivity("active"), "active", generation)
        if self.time() < until and q.is_same_model(model, facts.spec.model or ""):
            return [active, self._event(intent, e.AgentLimit(notified, model), "limit", generation)]
        worked = self._event(intent, e.AgentUsage("m", 10, 10, usd=0.1), "usage", generation)
        return [active, worked, self._event(intent, e.AgentTurnEnded("done so far."), "turn", generation)]

    # -- use -----------------------------------------------------------------------------------------------------------

    async def new(self, *names: str, **more: object) -> None:
        await self.flow.append(*(created(f"app-{name}", self.time(), **more) for name in names))
        await self.settle()

    async def settle(self) -> None:
        for _ in range(120):
            await asyncio.sleep(0)

    async def passes(self, seconds: float) -> None:
        """Advance the time from timer to timer."""
        end = self.time() + seconds
        while self.time() < end:
            coming = min((timer.at for timer in self.time.timers if not timer.cancelled), default=end)
            self.time.advance(max(0.0, min(coming, end) - self.time()))
            await self.settle()

    def requesters(self) -> list[str]:
        return [name for name, _ in self.began]

    def facts(self, name: str) -> SessionFacts:
        return self.flow.sessions[f"app-{name}"]


Play = Callable[[Fleet], Awaitable[None]]


def played(*rules: Rule) -> Callable[[Play], Callable[[Path], None]]:
    def decorate(play: Play) -> Callable[[Path], None]:
        async def run(folder: Path) -> None:
            fleet = Fleet(folder, rules or DEFAULT_RULES)
            await fleet.start()
            await play(fleet)
            await fleet.stop()

        def test(tmp_path: Path) -> None:
            asyncio.run(run(tmp_path))

        return test

    return decorate


NAMES = [f"s{number:02d}" for number in range(20)]


@played()
async def test_after_the_first_refusal_no_session_of_the_account_starts(fleet: Fleet) -> None:
    fleet.provider.refuses["demo"] = (1000.0 + HOUR, 1000.0 + HOUR, "")
    await fleet.new("first")
    assert fleet.facts("first").activity.state == "limited"
    await fleet.new(*NAMES)
    await fleet.passes(600.0)
    assert fleet.requesters() == ["first"]
    for name in NAMES:
        status = fleet.views.status(fleet.facts(name))
        assert (status.name, status.waiting_for) == ("queued", "the usage limit of demo to end at 1970-01-01T01:16:40Z")


@played()
async def test_sessions_admitted_before_the_refusal_return_their_slots(fleet: Fleet) -> None:
    """All are admitted in one decision; the first request is refused, and no other is sent."""
    fleet.provider.refuses["demo"] = (1000.0 + HOUR, 1000.0 + HOUR, "")
    held = fleet.runner.effects["launch"].run

    async def late(intent: Intent, attempts: int) -> Sequence[Event]:
        while intent.session != "app-s00" and not fleet.flow.home.account_holds:
            await asyncio.sleep(0)
        return await held(intent, attempts)

    fleet.runner.effects = {**fleet.runner.effects, "launch": Effect(late)}
    await fleet.new(*NAMES)
    assert all(fleet.facts(name).run == 2 for name in NAMES[1:]), "each was let start, and is put off"
    assert fleet.requesters() == ["s00"]
    assert not any(fleet.facts(name).admitted for name in NAMES[1:])
    await fleet.passes(HOUR + 300.0)
    assert sorted(set(fleet.requesters())) == NAMES, "all of them had their turn"


@played()
async def test_after_the_reset_one_session_tries_and_the_others_follow_with_pauses(fleet: Fleet) -> None:
    reset = 1000.0 + HOUR
    fleet.provider.refuses["demo"] = (reset, reset, "")
    await fleet.new("first")
    await fleet.new(*NAMES)
    fleet.began.clear()
    await fleet.passes(HOUR - 1.0)
    assert fleet.began == []
    await fleet.passes(200.0)
    assert fleet.requesters()[0] == "first", "who met the limit tries"
    assert sorted(fleet.requesters()) == sorted(["first", *NAMES])
    times = [at for _, at in fleet.began]
    assert times[0] >= reset
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) >= q.SESSION_INTERVAL and max(gaps) <= 1.5 * q.SESSION_INTERVAL + 2.0, gaps
    assert fleet.requesters()[1:] == NAMES, "in their order"


@played()
async def test_limited_sessions_continue_in_order_before_waiting_ones(fleet: Fleet) -> None:
    met = ["d", "b", "c", "a"]
    await fleet.new(*met)
    fleet.began.clear()
    for name in met:
        fleet.time.now += 1.0
        limit = e.AgentLimit(1000.0 + HOUR)
        generation = fleet.facts(name).generation
        await fleet.flow.append(Event(limit, fleet.time(), "spool", f"l{name}", "app", f"app-{name}", generation))
        await fleet.settle()
    await fleet.new("new")
    await fleet.passes(HOUR + 60.0)
    assert fleet.requesters() == [*met, "new"]


@played()
async def test_a_refused_retry_keeps_the_others_held(fleet: Fleet) -> None:
    fleet.provider.refuses["demo"] = (1000.0 + 3 * HOUR, 1000.0 + HOUR, "")
    await fleet.new("first")
    await fleet.new(*NAMES)
    await fleet.passes(HOUR + 300.0)
    assert fleet.requesters() == ["first", "first"], "one tried, and was refused"
    await fleet.passes(3 * HOUR + 600.0)
    assert sorted(set(fleet.requesters())) == sorted(["first", *NAMES])


@played()
async def test_without_a_reset_time_the_pause_is_half_an_hour_and_grows(fleet: Fleet) -> None:
    await assert_pauses_grow(fleet)


@played()
async def test_the_pause_grows_also_for_an_unconfirmed_limit(fleet: Fleet) -> None:
    fleet.heard = "spool"
    await assert_pauses_grow(fleet)


async def assert_pauses_grow(fleet: Fleet) -> None:
    fleet.provider.refuses["demo"] = (1000.0 + 24 * HOUR, None, "")
    await fleet.new("first")
    await fleet.passes(12 * HOUR)
    times = [at for _, at in fleet.began]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert [round(pause / 60) for pause in pauses] == [30, 60, 120, 240, 240]


async def report_false_limit(fleet: Fleet, name: str, resets_at: float | None) -> None:
    """Prove that a false limit in a session's spool counts for nothing: its provider refuses nothing."""
    facts = fleet.facts(name)
    event = Event(e.AgentLimit(resets_at), fleet.time(), "spool", f"lie {fleet.time()} {name}", "app", facts.id, 1)
    await fleet.flow.append(event)
    await fleet.settle()


@pytest.mark.parametrize("notified", [6 * 86400.0, None])
def test_one_sessions_unconfirmed_limit_holds_others_for_a_short_time(tmp_path: Path, notified: float | None) -> None:
    @played()
    async def play(fleet: Fleet) -> None:
        await fleet.new("liar")
        await report_false_limit(fleet, "liar", None if notified is None else fleet.time() + notified)
        fleet.began.clear()
        await fleet.new(*NAMES[:3])
        [row] = fleet.quota.accounts()
        assert (row["state"], row["resetKnown"]) == ("held", False)
        await fleet.passes(q.CLAIM_HOLD_SECONDS - 5.0)
        assert fleet.requesters() == []
        await fleet.passes(30.0)
        assert fleet.requesters() == ["s00", "liar", *NAMES[1:3]], "one tried, and works: no session waits any more"
        assert [row["state"] for row in fleet.quota.accounts()] == ["free"]

    play(tmp_path)


@played()
async def test_a_session_with_an_unconfirmed_reset_time_continues_at_that_time(fleet: Fleet) -> None:
    fleet.heard, reset = "spool", 1000.0 + 3 * HOUR
    fleet.provider.refuses["demo"] = (reset, reset, "")
    await fleet.new("first")
    await fleet.passes(3 * HOUR - 10.0)
    assert fleet.requesters() == ["first"] and fleet.views.status(fleet.facts("first")).name == "limited"
    await fleet.passes(20.0)
    assert fleet.requesters() == ["first", "first"]


@played()
async def test_two_sessions_reports_hold_the_account_until_their_reset(fleet: Fleet) -> None:
    fleet.heard, reset = "spool", 1000.0 + 3 * HOUR
    fleet.provider.refuses["demo"] = (reset, reset, "")
    await fleet.new("first")
    await fleet.new(*NAMES)
    await fleet.passes(2 * HOUR)
    assert fleet.requesters() == ["first", "s00"], "one tried, was refused, and no other asked"
    await fleet.passes(HOUR + 300.0)
    assert sorted(set(fleet.requesters())) == sorted(["first", *NAMES])


@played()
async def test_a_second_report_extends_no_hold_beyond_the_first(fleet: Fleet) -> None:
    await fleet.new("one", "two")
    await report_false_limit(fleet, "one", fleet.time() + HOUR)
    await report_false_limit(fleet, "two", fleet.time() + 6 * 86400.0)
    held = q.active_hold(fleet.quota.holds(), "demo", "", fleet.time())
    assert held is not None and held.until == 1000.0 + HOUR
    assert fleet.facts("two").limit_until == 1000.0 + 6 * 86400.0, "it waits as it said"


@played()
async def test_repeated_reports_of_a_session_extend_no_hold(fleet: Fleet) -> None:
    """Neither during the hold, nor after it, nor after its agent seemed to work."""
    await fleet.new("liar")
    end = fleet.time() + q.CLAIM_HOLD_SECONDS
    for number in range(40):
        await report_false_limit(fleet, "liar", fleet.time() + (60.0 if number % 2 else HOUR))
        await fleet.passes(60.0)
    await fleet.new("honest")
    await fleet.passes(q.TRIAL_SECONDS + 10.0)
    assert "honest" in fleet.requesters() and fleet.time() > end
    generation = fleet.facts("liar").generation
    works = Event(e.AgentActivity("active"), fleet.time(), "spool", "a", "app", "app-liar", generation)
    await fleet.flow.append(works)
    await report_false_limit(fleet, "liar", fleet.time() + HOUR)
    await fleet.new("other")
    await fleet.passes(q.TRIAL_SECONDS + 10.0)
    assert "other" in fleet.requesters()


@played()
async def test_the_notification_of_an_ineffective_report_names_no_held_sessions(fleet: Fleet) -> None:
    await fleet.new("liar")
    await report_false_limit(fleet, "liar", fleet.time() + HOUR)
    await fleet.passes(q.CLAIM_HOLD_SECONDS + q.ONE_BY_ONE_SECONDS + 60.0)
    works = Event(e.AgentActivity("active"), fleet.time(), "spool", "works", "app", "app-liar", 1)
    await fleet.flow.append(works)
    await fleet.settle()
    await report_false_limit(fleet, "liar", (again := fleet.time() + HOUR))
    assert q.active_hold(fleet.quota.holds(), "demo", "", fleet.time()) is None
    notified = [event.body for event in await fleet.flow.store.events(kind="notified")]
    first, second = [body.message for body in notified if isinstance(body, e.Notified)]
    assert f"no other session of demo starts before {rfc3339(1000.0 + q.CLAIM_HOLD_SECONDS)}" in first
    assert "no other session" not in second and f"this session goes on at {rfc3339(again)}" in second


@played()
async def test_a_report_is_remembered_across_a_restart(fleet: Fleet) -> None:
    await fleet.new("liar")
    await report_false_limit(fleet, "liar", fleet.time() + HOUR)
    await fleet.passes(q.CLAIM_HOLD_SECONDS / 2)
    await fleet.restart()
    await report_false_limit(fleet, "liar", fleet.time() + HOUR)
    held = q.active_hold(fleet.quota.holds(), "demo", "", fleet.time())
    assert held is not None and held.until == 1000.0 + q.CLAIM_HOLD_SECONDS


@pytest.mark.parametrize(
    ("held", "mine", "same"),
    [
        ("opus", "claude-opus-4-1-20250805", True),
        ("Opus", "opus[1m]", True),
        ("claude-opus-4-1", "anthropic/claude-opus-4-1-20250805", True),
        ("gemini-2.5-pro-latest", "gemini-2.5-pro", True),
        ("", "gpt-5", True),
        ("gpt-5", "", True),
        ("gpt-5", "gpt-5-mini", False),
        ("gpt-5", "gpt-5.1", False),
        ("sonnet", "opus", False),
        ("o1", "foo1", False),
    ],
)
def test_names_of_models_are_compared(held: str, mine: str, same: bool) -> None:
    assert q.is_same_model(held, mine) is q.is_same_model(mine, held) is same


@pytest.mark.parametrize("notified", [500.0, 1000.0 + 9 * 86400.0])
def test_an_implausible_reset_time_is_ignored(notified: float) -> None:
    held = q.next_hold({}, "demo", "", notified, 1000.0)
    assert (held.until, held.named) == (1000.0 + q.UNKNOWN_RESET_HOLD, False)


@played()
async def test_other_accounts_and_models_are_not_held(fleet: Fleet) -> None:
    fleet.provider.refuses["demo"] = (1000.0 + HOUR, 1000.0 + HOUR, "opus")
    await fleet.new("first", model="claude-opus-4-6")
    await fleet.new("big", model="claude-opus-4-6")
    await fleet.new("small", model="claude-sonnet-4-6")
    await fleet.new("any")
    await fleet.new("work", account="work", model="claude-opus-4-6")
    await fleet.passes(60.0)
    assert fleet.requesters() == ["first", "small", "work"]
    assert fleet.facts("big").waiting_for.startswith("the usage limit of demo opus")
    assert fleet.facts("any").waiting_for, "its model is not known: it may be that one"


@played()
async def test_a_message_to_a_held_account_waits_for_the_reset(fleet: Fleet) -> None:
    await fleet.new("idle")
    fleet.provider.refuses["demo"] = (1000.0 + HOUR, 1000.0 + HOUR, "")
    await fleet.new("first")
    later = fleet.quota.wait(fleet.facts("idle"))
    assert later is not None and later.until == 1000.0 + HOUR


@played()
async def test_a_restart_keeps_the_hold_and_the_order(fleet: Fleet) -> None:
    reset = 1000.0 + HOUR
    fleet.provider.refuses["demo"] = (reset, reset, "")
    await fleet.new("first")
    await fleet.new(*NAMES[:5])
    await fleet.passes(HOUR / 2)
    await fleet.restart()
    fleet.began.clear()
    await fleet.passes(HOUR / 2 - 10.0)
    assert fleet.began == []
    await fleet.passes(20.0)
    assert fleet.requesters()[0] == "first"
    await fleet.restart()
    await fleet.passes(200.0)
    assert sorted(fleet.requesters()) == sorted(["first", *NAMES[:5]]), "each once"


@played()
async def test_a_clock_that_jumps_ahead_lets_one_session_try(fleet: Fleet) -> None:
    fleet.provider.refuses["demo"] = (1000.0 + 100 * HOUR, 1000.0 + HOUR, "")
    await fleet.new("first")
    await fleet.new(*NAMES[:5])
    fleet.time.now += 3 * HOUR
    await fleet.passes(60.0)
    assert fleet.requesters() == ["first", "first"]


@played()
async def test_a_clock_that_jumps_back_holds_no_session_beyond_the_pause(fleet: Fleet) -> None:
    fleet.time.now = 1e6
    fleet.provider.refuses["demo"] = (1e6 + 1.0, None, "")
    await fleet.new("first")
    await fleet.new("second")
    assert fleet.requesters() == ["first"]
    fleet.time.now = 1e6 - 86400.0
    for timer in fleet.time.timers:
        timer.at = min(timer.at, fleet.time.now + 300.0)
    fleet.provider.refuses.clear()
    await fleet.passes(400.0)
    assert sorted(fleet.requesters()) == ["first", "first", "second"]


@played()
async def test_a_person_can_lift_a_hold(fleet: Fleet) -> None:
    fleet.provider.refuses["demo"] = (1001.0, 1000.0 + HOUR, "")
    await fleet.new("first")
    await fleet.new("second")
    await fleet.passes(10.0)
    assert fleet.requesters() == ["first"]
    assert [row["state"] for row in fleet.quota.accounts()] == ["held"]
    with pytest.raises(NotFound, match="held are: demo"):
        await fleet.quota.release("claude")
    assert (await fleet.quota.release("demo"))["released"] == ["demo"]
    await fleet.settle()
    await fleet.passes(15.0)
    assert sorted(fleet.requesters()) == ["first", "first", "second"]
    assert [row["state"] for row in fleet.quota.accounts()] == ["free"]


@played(Rule("r", "usage-limit", action="notify"))
async def test_without_the_hold_action_no_session_is_held(fleet: Fleet) -> None:
    fleet.provider.refuses["demo"] = (1000.0 + HOUR, 1000.0 + HOUR, "")
    await fleet.new("first")
    await fleet.new("second")
    assert fleet.requesters() == ["first", "second"]


@played()
async def test_an_agent_that_exited_at_the_limit_is_restarted_after_it(fleet: Fleet) -> None:
    """The account is held, the session counts as limited and not as failed, and no person is notified."""
    fleet.provider.refuses["demo"] = (1000.0 + HOUR, 1000.0 + HOUR, "")
    turn = fleet._turn

    def and_exits(intent: Intent, facts: SessionFacts, generation: int) -> list[Event]:
        events = turn(intent, facts, generation)
        refused = isinstance(events[-1].body, e.AgentLimit)
        return [*events, fleet._event(intent, e.AgentExited(1), "end", generation)] if refused else events

    fleet._turn = and_exits  # type: ignore[method-assign]
    await fleet.new("first")
    await fleet.new(*NAMES[:3])
    await fleet.passes(30.0)
    assert fleet.requesters() == ["first"]
    assert fleet.views.status(fleet.facts("first")).name == "limited"
    await fleet.restart()
    await fleet.passes(HOUR + 60.0)
    assert fleet.requesters() == ["first", "first", *NAMES[:3]]
    notified = [event.body for event in await fleet.flow.store.events(kind="notified")]
    assert [body.trigger for body in notified if isinstance(body, e.Notified)] == ["usage-limit"]


@played()
async def test_the_others_wait_while_one_session_tries(fleet: Fleet) -> None:
    fleet.provider.refuses["demo"] = (1000.0 + HOUR, 1000.0 + HOUR, "")
    await fleet.new("first")
    await fleet.new(*NAMES[:3])
    turn = fleet._turn
    fleet._turn = lambda *args: turn(*args)[:1]  # type: ignore[method-assign]
    await fleet.passes(HOUR + 40.0)
    assert fleet.requesters() == ["first", "first"], "it thinks"
    assert fleet.facts("s00").waiting_for.endswith("app-first tries whether it is over")
    limit = e.AgentLimit(fleet.time() + HOUR)
    await fleet.flow.append(Event(limit, fleet.time(), "transcript", "late", "app", "app-first", 1))
    await fleet.passes(300.0)
    assert fleet.requesters() == ["first", "first"]
    fleet._turn = turn  # type: ignore[method-assign]
    fleet.provider.refuses.clear()
    await fleet.passes(HOUR)
    assert fleet.requesters()[2:] == ["first", *NAMES[:3]]


def test_each_session_has_its_own_constant_delay() -> None:
    apart = [q.delay_after(name) for name in NAMES]
    assert apart == [q.delay_after(name) for name in NAMES] and len(set(apart)) == len(NAMES)
    assert all(q.SESSION_INTERVAL <= delay <= 1.5 * q.SESSION_INTERVAL for delay in apart)


def test_a_hold_that_is_implausible_by_the_clock_is_over() -> None:
    hold = AccountHold("demo", "", 5000.0, 1000.0)
    assert q.hold_end(hold, 2000.0) == 5000.0
    assert q.hold_end(replace(hold, until=2000.0 + 9 * 86400.0), 2000.0) == 2000.0
    assert q.hold_end(replace(hold, is_reset_time_reported=False), 500.0) == 500.0


def test_of_two_matching_profiles_the_one_with_a_free_account_is_chosen() -> None:
    takers = [IssueTaker("best", labels=("ui", "css"), has_held_account=True), IssueTaker("other", labels=("ui",))]
    choice = choose_taker(takers, TaskTraits(labels=("ui", "css")), {})
    assert choice is not None and choice[0].name == "other"
    alone = choose_taker(takers[:1], TaskTraits(labels=("ui",)), {})
    assert alone is not None and alone[0].name == "best", "it waits, rather than staying unassigned"


def test_a_hold_is_looked_up_by_account_and_model() -> None:
    holds = {"work opus": AccountHold("work", "opus", 5000.0, 1000.0)}
    assert q.active_hold(holds, "work", "claude-opus-4-6", 2000.0) is not None
    assert q.active_hold(holds, "work", "claude-sonnet-4-6", 2000.0) is None
    assert q.active_hold(holds, "home", "claude-opus-4-6", 2000.0) is None
    assert q.active_hold(holds, "work", "claude-opus-4-6", 5000.0) is None


@played()
async def test_checking_many_held_sessions_is_quick(fleet: Fleet) -> None:
    fleet.provider.refuses["demo"] = (1000.0 + HOUR, 1000.0 + HOUR, "")
    await fleet.new("first")
    await fleet.flow.append(*(created(f"app-n{number}", 1000.0) for number in range(1000)))
    await fleet.settle()
    waiting = [facts for facts in fleet.flow.sessions.values() if not facts.admitted]
    reasons: set[str] = set()
    assert count_calls(lambda: reasons.update(fleet.quota.gate(facts, ()) for facts in waiting)) < 20 * len(waiting)
    assert len(waiting) == 1000 and len(reasons) == 1
