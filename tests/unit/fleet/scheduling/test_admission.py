"""Admission: recorded decisions, rechecks, questions about dependencies, and issues that cannot be assigned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.rules.model import Rule
from agent_orchestrator.core.signals import ConfigurationReloaded
from agent_orchestrator.errors import AoError, NotFound, Temporary
from agent_orchestrator.fleet.scheduling.admission import RECHECK_SECONDS, Admission
from agent_orchestrator.fleet.scheduling.auto_assign import MIN_RETRY_SECONDS, AutoAssigner
from agent_orchestrator.fleet.scheduling.backlog import Backlog
from agent_orchestrator.fleet.scheduling.failed_dependencies import DependencyOffers
from agent_orchestrator.sessions.creation.new_session import NewSession
from agent_orchestrator.testing.memory_store import MemoryStore
from tests.parts import make_core, never_quiet
from tests.unit.core.world import ManualClock, created

CONFIG = "orchestrator: {maxParallelAgents: 1, autoAssign: true}\nprojects: {app: {path: app}}\n"


class Stage:
    """A flow without a daemon."""

    def __init__(self, folder: Path, store: MemoryStore | None = None) -> None:
        self.time = ManualClock()
        self.rules: Sequence[Rule] = DEFAULT_RULES
        self.store = store or MemoryStore()
        self.flow = Flow(self.store, self.time, lambda _project, _profile: self.rules)
        self.core = make_core(folder, self.flow)
        self.core.home.create_folders()
        self.configure(CONFIG)
        self.backlog = Backlog(self.core)
        self.gate: Callable[[SessionFacts], str] = lambda _facts: ""
        self.comparisons = 0

    def configure(self, text: str) -> None:
        self.core.home.config.write_text(text)
        self.core.config.load_home()

    async def expected(self, _sessions: Sequence[SessionFacts]) -> Mapping[str, frozenset[str]]:
        self.comparisons += 1
        return {}

    async def queue(self, *names: str, **spec: Any) -> None:
        for name in names:
            await self.flow.append(created(name, **spec))

    async def record(self, session: str, *bodies: e.Body, generation: int = 0) -> None:
        for body in bodies:
            key = f"{session}:{body.type}:{self.flow.seq}"
            await self.flow.append(Event(body, self.time(), "test", key, "app", session, generation))

    async def run(self, session: str) -> None:
        workspace = e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g")
        await self.record(session, e.SessionAdmitted(), workspace)
        await self.record(session, e.AgentLaunched({"pid": 7}), e.AgentActivity("active"), generation=1)

    async def log(self, kind: type[e.Body]) -> list[Event]:
        return [event for event in await self.flow.store.events(0, 10_000) if isinstance(event.body, kind)]

    async def settle(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    scene = Stage(tmp_path / "home")
    await scene.flow.start()
    yield scene
    await scene.flow.stop()


# -- verdicts ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def admission(stage: Stage) -> Admission:
    return Admission(stage.core, stage.expected, [lambda facts, _working: stage.gate(facts)])


@pytest.mark.anyio
async def test_a_decision_is_recorded_only_when_it_changes(stage: Stage, admission: Admission) -> None:
    await stage.queue("a", "b", "c")
    admission.start()
    await stage.settle()
    assert [event.session for event in await stage.log(e.SessionAdmitted)] == ["a"]
    reason = "a free place (1 of 1 agents at work)"
    waits = [(event.session, event.body) for event in await stage.log(e.SessionWaiting)]
    assert waits == [("b", e.SessionWaiting(reason, True)), ("c", e.SessionWaiting(reason, True))]
    since = stage.flow.sessions["b"].slot_wait_since
    assert since == stage.time()
    stage.time.now += 1000.0
    for _ in range(5):
        admission.schedule_check()
        await stage.settle()
    assert len(await stage.log(e.SessionWaiting)) == 2, "unchanged decisions are not recorded"
    assert stage.flow.sessions["b"].slot_wait_since == since
    await admission.close()


@pytest.mark.anyio
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), Temporary("the store cannot be written")])
async def test_waiting_sessions_are_admitted_after_a_full_disk(
    stage: Stage, admission: Admission, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = admission.decide_starts
    full = True

    async def verdicts() -> Any:
        if full:
            raise error
        return await original()

    monkeypatch.setattr(admission, "decide_starts", verdicts)
    await stage.queue("a")
    admission.start()
    await stage.settle()
    assert await stage.log(e.SessionAdmitted) == []
    full = False
    stage.time.advance(RECHECK_SECONDS)
    await stage.settle()
    assert [event.session for event in await stage.log(e.SessionAdmitted)] == ["a"]
    await admission.close()


@pytest.mark.anyio
async def test_a_session_that_loses_its_node_before_the_launch_is_admitted_again(
    stage: Stage, admission: Admission
) -> None:
    await stage.queue("a", runtime="ray", workspace="clone")
    admission.start()
    for number in range(3):
        await stage.settle()
        assert stage.flow.sessions["a"].admitted, f"after {number} losses"
        lost = e.SessionDisplaced(f"n{number}", "it is lost", lost=True, restart=False)
        await stage.record("a", e.SessionPlaced(f"n{number}"), lost)
    await stage.settle()
    assert len(await stage.log(e.SessionAdmitted)) == 4
    await admission.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "reason",
    [
        "memory ({} MB free, {} about to start)",
        "disk space ({} MB free)",
        "room in the day's budget of app: {}.50 of 5.00 USD spent, {:,} reserved, 0.25 expected",
        "tomorrow: the day's budget of app is spent: 1,{} of {} tokens",
    ],
)
async def test_changed_figures_in_a_reason_are_not_recorded_each_time(
    stage: Stage, admission: Admission, reason: str
) -> None:
    await stage.queue(*(f"s{number}" for number in range(20)))
    figures = iter(range(1000, 100_000))
    stage.gate = lambda _facts: reason.format(next(figures), next(figures))
    admission.start()
    for _ in range(5):
        await stage.settle()
        admission.schedule_check()
    await stage.settle()
    assert len(await stage.log(e.SessionWaiting)) == 20
    stage.gate = lambda _facts: "the usage limit of work to end at 2026-11-16T10:00:00Z"
    admission.schedule_check()
    await stage.settle()
    stage.gate = lambda _facts: "the usage limit of work to end at 2026-11-16T12:00:00Z"
    admission.schedule_check()
    await stage.settle()
    assert len(await stage.log(e.SessionWaiting)) == 60
    await admission.close()


@pytest.mark.anyio
async def test_a_session_held_by_a_gate_loses_its_turn(stage: Stage, admission: Admission) -> None:
    await stage.queue("a", "b")
    held: list[str] = []
    stage.gate = lambda facts: "quota" if facts.id in held else ""
    admission.start()
    await stage.settle()
    assert stage.flow.sessions["b"].slot_wait_since is not None
    since = stage.flow.sessions["b"].slot_wait_since
    stage.time.now += 50.0
    await stage.record("b", e.SessionWaiting("a free place for front (1 of 1 agents at work)", True))
    assert stage.flow.sessions["b"].slot_wait_since == since, "another place, the same turn"
    held.append("b")
    await stage.record("a", e.StopRequested())
    await stage.settle()
    b = stage.flow.sessions["b"]
    assert (b.admitted, b.waiting_for, b.slot_wait_since) == (False, "quota", None)
    held.clear()
    admission.schedule_check()
    await stage.settle()
    assert stage.flow.sessions["b"].admitted
    await admission.close()


@pytest.mark.anyio
async def test_output_of_agents_causes_no_new_decision(
    stage: Stage, admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.queue("a", "b")
    admission.start()
    await stage.settle()
    await stage.run("a")
    await stage.settle()
    decisions = 0
    original = admission.decide_starts

    async def counting_verdicts() -> Any:
        nonlocal decisions
        decisions += 1
        return await original()

    monkeypatch.setattr(admission, "decide_starts", counting_verdicts)
    for _ in range(10):
        await stage.record("a", e.AgentOutput(), e.AgentProgress(1, 2), generation=1)
    await stage.settle()
    assert decisions == 0
    await stage.record("a", e.AgentActivity("idle"), generation=1)
    await stage.settle()
    assert decisions >= 1 and stage.flow.sessions["b"].admitted
    await admission.close()


@pytest.mark.anyio
async def test_files_are_compared_only_if_some_sessions_must_wait(stage: Stage, admission: Admission) -> None:
    await stage.queue("a")
    await admission.decide_starts()
    assert stage.comparisons == 0
    await stage.queue("b", after=("a",))
    await admission.decide_starts()
    assert stage.comparisons == 0, "who waits for something else than his turn competes with nobody"
    await stage.queue("c")
    await admission.decide_starts()
    assert stage.comparisons == 1


# -- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_question_is_asked_once_and_withdrawn(stage: Stage) -> None:
    await stage.queue("a")
    await stage.queue("b", after=("a",))
    dependents = DependencyOffers(stage.core, never_quiet)
    dependents.start()
    await stage.run("a")
    await stage.record("a", e.StopRequested(), e.SessionStopped())
    await stage.settle()
    [offer] = stage.flow.sessions["b"].offers
    assert (offer.action, offer.event["other"]) == ("start", "a")
    again = DependencyOffers(stage.core, never_quiet)
    again.start()
    await stage.settle()
    assert len(await stage.log(e.Notified)) == 1, "another daemon does not ask again"
    await stage.record("a", e.RestoreRequested())
    await stage.settle()
    assert stage.flow.sessions["b"].offers == ()
    await stage.record("a", e.StopRequested(), e.SessionStopped())
    await stage.settle()
    assert len(stage.flow.sessions["b"].offers) == 1 and len(await stage.log(e.Notified)) == 2


@pytest.mark.anyio
@pytest.mark.parametrize(("decision", "waived", "expected"), [("allow", ("a",), "run"), ("deny", (), "stop")])
async def test_the_answer_starts_or_stops_the_session(
    stage: Stage, decision: str, waived: tuple[str, ...], expected: str
) -> None:
    await stage.queue("a")
    await stage.queue("b", after=("a",))
    DependencyOffers(stage.core, never_quiet).start()
    await stage.run("a")
    await stage.record("a", e.StopRequested(), e.SessionStopped())
    await stage.settle()
    await stage.record("b", e.OfferAnswered(stage.flow.sessions["b"].offers[0].id, decision))
    await stage.settle()
    b = stage.flow.sessions["b"]
    assert (b.waived_dependencies, b.requested_state, b.offers) == (waived, expected, ())
    assert len(await stage.log(e.Notified)) == 1


@pytest.mark.anyio
async def test_no_question_is_asked_while_a_rule_restarts_the_dependency(stage: Stage) -> None:
    restart = [replace(rule, action="restart") if rule.name == "agent-exited" else rule for rule in DEFAULT_RULES]
    stage.rules = restart
    await stage.queue("a")
    await stage.queue("b", after=("a",))
    DependencyOffers(stage.core, never_quiet).start()
    await stage.run("a")
    await stage.record("a", e.AgentExited(1), generation=1)
    await stage.settle()
    assert await stage.log(e.Notified) == []
    await stage.record("a", e.Escalated("agent-exited", "agent-exited", "it did not help"))
    await stage.settle()
    assert [rule.session for rule in await stage.log(e.Notified)] == ["b"]


# -- issues that cannot be taken ---------------------------------------------------------------------------------------


class RecordingSessions:
    """A session service that records requests, and raises the given error."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.error: AoError | None = None
        self.requests: list[NewSession] = []

    async def create(self, request: NewSession, key: str, _context: object) -> None:
        self.requests.append(request)
        if self.error:
            raise self.error
        event = created(f"s{request.issue}", issue=request.issue)
        await self.stage.flow.append(replace(event, key=f"create:{key}"))


@pytest.fixture
def recording_sessions(stage: Stage) -> RecordingSessions:
    return RecordingSessions(stage)


def make_assigner(stage: Stage, recording_sessions: RecordingSessions) -> AutoAssigner:
    return AutoAssigner(stage.core, stage.backlog, recording_sessions, never_quiet)  # type: ignore[arg-type]


async def open_issue(stage: Stage, number: int, planned: e.IssuePlanned | None = None) -> None:
    bodies: list[e.Body] = [e.IssueOpened(number, f"issue {number}", ""), *([planned] if planned else [])]
    events = [Event(body, 1.0, "person", f"{body.type}:{number}", "app") for body in bodies]
    await stage.flow.append(*events)


@pytest.mark.anyio
async def test_an_issue_that_cannot_be_assigned_is_reported_and_retried(
    stage: Stage, recording_sessions: RecordingSessions
) -> None:
    recording_sessions.error = NotFound("there is no runtime docker", "choose another")
    await open_issue(stage, 1)
    await open_issue(stage, 2)
    assigner = make_assigner(stage, recording_sessions)
    assigner.start()
    await stage.settle()
    assert [item.issue for item in recording_sessions.requests] == ["1", "2"], (
        "the place of the first is free for the second"
    )
    reasons = next(entry.reasons for entry in stage.backlog.entries("app") if entry.issue.number == 1)
    assert reasons[-1].startswith("it could not be taken: there is no runtime docker: choose another; tried again at ")
    for _ in range(5):
        assigner.schedule_check()
        await stage.settle()
    assert len(recording_sessions.requests) == 2, "not before its time"
    stage.time.now += MIN_RETRY_SECONDS
    assigner.schedule_check()
    await stage.settle()
    assert len(recording_sessions.requests) == 4
    stage.time.now += MIN_RETRY_SECONDS * 0.9
    assigner.schedule_check()
    await stage.settle()
    assert len(recording_sessions.requests) == 4, "the next pause is longer"
    titles = [item.body.title for item in await stage.log(e.Notified) if isinstance(item.body, e.Notified)]
    assert titles == ["issue 1: claude-code could not take it", "issue 2: claude-code could not take it"]
    recording_sessions.error = None
    stage.flow.listeners.emit(ConfigurationReloaded())
    await stage.settle()
    assert stage.flow.sessions.keys() == {"s1"} and stage.backlog.refusals == {}, "one place, one session"
    await assigner.close()


@pytest.mark.anyio
async def test_a_temporary_failure_is_not_reported_at_once(stage: Stage, recording_sessions: RecordingSessions) -> None:
    recording_sessions.error = Temporary("the tracker does not answer")
    await open_issue(stage, 1)
    assigner = make_assigner(stage, recording_sessions)
    assigner.start()
    await stage.settle()
    assert stage.backlog.refusals and await stage.log(e.Notified) == []
    await assigner.close()


@pytest.mark.anyio
async def test_issues_of_a_plan_are_assigned_without_auto_assign(
    stage: Stage, recording_sessions: RecordingSessions
) -> None:
    stage.configure("projects: {app: {path: app}}\n")
    await open_issue(stage, 1)
    await open_issue(stage, 2, e.IssuePlanned(2, "P1", "t1", None, 7))
    assigner = make_assigner(stage, recording_sessions)
    assigner.start()
    await stage.settle()
    assert recording_sessions.requests == [NewSession("app", "2", agent="claude-code", group="P1", priority=7)]
    await assigner.close()
