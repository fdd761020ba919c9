"""The board's stream: first everything, then changes; a reconnecting viewer misses nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_orchestrator.base.progress import ProgressTexts
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Body, Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.rules.default_rules import DEFAULT_RULES
from agent_orchestrator.core.signals import PlanProgressed, QueuePlanned
from agent_orchestrator.fleet.notifications.receiver_health import Health
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.sessions.session_view import SessionViews
from agent_orchestrator.testing.memory_store import MemoryStore
from agent_orchestrator.views import live_state as module
from agent_orchestrator.views.live_state import MAX_QUEUED_FRAMES, LiveState, last_line
from tests.parts import make_core, make_flow
from tests.unit.core.event_strategies import LIKELY_BODIES
from tests.unit.core.world import ManualClock, created

SESSIONS = ("app-x", "app-y", "app-z")
CONFLICTS = st.one_of(
    st.builds(e.ConflictPredicted, st.sampled_from(SESSIONS), st.just(("a.py",)), st.just("text")),
    st.builds(e.ConflictCleared, st.sampled_from(SESSIONS)),
)
CONFLICT_WITH_Y = e.ConflictPredicted("app-y", ("a.py",), "text")
STEPS = st.one_of(
    st.tuples(st.sampled_from(SESSIONS), LIKELY_BODIES | CONFLICTS),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 61.0, 700.0])),
    st.tuples(st.sampled_from(["flush", "cut", "cut unread", "restart"]), st.none()),
)


class Quiet:
    """An empty queue, and an overview that counts sessions that need a person."""

    def __init__(self, flow: Flow) -> None:
        self.flow = flow

    def entries(self, _project: str | None) -> list[Any]:
        return []

    def current_json(self, columns: dict[str, str]) -> dict[str, Any]:
        return {"needsYou": sum(column == "Needs you" for column in columns.values())}

    def changes_at(self, now: float) -> float:
        return now + 86400.0

    def drop_cached_settings(self) -> None:
        pass


class Viewer:
    """A viewer that keeps a board as the dashboard does."""

    def __init__(self) -> None:
        self.sessions: dict[str, Any] = {}
        self.parts: dict[str, Any] = {}
        self.last_seq: int | None = None
        self.frames: list[dict[str, Any]] = []
        self.bytes: list[bytes] = []
        self._line: AsyncGenerator[bytes, None] | None = None
        self._next: asyncio.Future[bytes] | None = None

    async def open(self, live: LiveState) -> None:
        self._line = cast(AsyncGenerator[bytes, None], live.follow(self.last_seq))
        self._take(await anext(self._line))

    async def read(self, live: LiveState) -> None:
        """Read all frames sent so far."""
        assert self._line is not None
        live.flush()
        while True:
            self._next = self._next or asyncio.ensure_future(anext(self._line))
            for _ in range(5):
                await asyncio.sleep(0)
            if not self._next.done():
                return
            self._take(self._next.result())
            self._next = None

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
            self._next = None
        if self._line is not None:
            await self._line.aclose()
            self._line = None

    def _take(self, sent: bytes) -> None:
        self.bytes.append(sent)
        number, kind, data = sent.decode().rstrip("\n").split("\n")
        assert kind == "event: live"
        frame = json.loads(data.removeprefix("data: "))
        assert number == f"id: {frame['seq']}"
        self.last_seq = frame["seq"]
        self.frames.append(frame)
        if frame["complete"]:
            self.sessions = {}
        self.sessions.update({session["id"]: session for session in frame["sessions"]})
        self.parts.update({part: frame[part] for part in ("questions", "queue", "overview") if frame[part] is not None})


class Stage:
    """A flow, its views and its stream, with a manual clock."""

    def __init__(self, folder: Path) -> None:
        self.time = ManualClock()
        self.store = MemoryStore()
        self.folder = folder
        self.number = 0

    async def start(self) -> None:
        self.store = self.store.clone()
        self.flow = make_flow(self.store, self.time, DEFAULT_RULES)
        await self.flow.start()
        core = make_core(self.folder, self.flow)
        self.views = SessionViews(core, Health())
        unused = cast(Any, None)
        inbox = Inbox(core, unused, unused, unused, self.views)
        quiet = cast(Any, Quiet(self.flow))
        self.live = LiveState(core, self.views, inbox, quiet, quiet)
        self.live.start()

    async def end(self) -> None:
        await self.live.close()
        await self.flow.stop()

    async def append_bodies(self, session: str, *bodies: Body, generation: int = 0) -> None:
        for body in bodies:
            self.number += 1
            launch = self.number if isinstance(body, e.AgentLaunched) else generation
            event = Event(body, self.time.now, "spool", f"k{self.number}", "app", session, launch)
            await self.flow.append(event)

    def now(self) -> dict[str, Any]:
        """Return the sessions by id, as the list shows them."""
        return {session["id"]: session for session in json.loads(self.views.list_json(None))["sessions"]}


def without_last_lines(viewer: Viewer) -> dict[str, Any]:
    return {
        name: {key: value for key, value in session.items() if key != "says"}
        for name, session in viewer.sessions.items()
    }


@contextmanager
def remembering(events: int) -> Iterator[None]:
    before, module.MAX_RECENT_EVENTS = module.MAX_RECENT_EVENTS, events
    try:
        yield
    finally:
        module.MAX_RECENT_EVENTS = before


async def play(steps: list[tuple[str, Any]], folder: Path) -> None:
    stage, viewer, other = Stage(folder), Viewer(), Viewer()
    await stage.start()
    await stage.flow.append(*(created(session) for session in SESSIONS))
    await viewer.open(stage.live)
    for step, argument in steps:
        if step == "wait":
            stage.time.now += argument
        elif step == "flush":
            stage.live.flush()
        elif step == "restart":
            await viewer.close()
            await stage.end()
            await stage.start()
            await stage.flow.append(Event(e.DaemonStarted("1"), stage.time.now, "daemon", f"d{stage.time.now}"))
            await viewer.open(stage.live)
        elif step.startswith("cut"):
            if step == "cut":
                await viewer.read(stage.live)
            await viewer.close()
            await viewer.open(stage.live)
        else:
            await stage.append_bodies(step, argument)
    await viewer.read(stage.live)
    await other.open(stage.live)
    assert without_last_lines(viewer) == stage.now()
    assert viewer.parts == other.parts and viewer.sessions == other.sessions
    await viewer.close()
    await other.close()
    await stage.end()


@given(st.lists(STEPS, max_size=25), st.sampled_from([4, 5000]))
@example([("app-x", CONFLICT_WITH_Y), ("app-y", CONFLICT_WITH_Y)], 5000)
def test_a_reconnecting_viewer_sees_the_current_board(steps: list[tuple[str, Any]], memory: int) -> None:
    with remembering(memory):
        asyncio.run(play(steps, Path("/nonexistent")))


@pytest.fixture
async def stage(tmp_path: Path) -> Any:
    stage = Stage(tmp_path)
    await stage.start()
    await stage.flow.append(created("app-x"), created("app-y"))
    yield stage
    await stage.end()


BEGUN = (e.SessionAdmitted(), e.WorkspaceCreated("/w", "b", "main", "c0", "c0", "/g"), e.AgentLaunched({"pid": 7}))

pytestmark = pytest.mark.anyio


async def test_the_first_frame_is_complete_and_later_ones_hold_changes(stage: Stage) -> None:
    viewer = Viewer()
    await viewer.open(stage.live)
    assert viewer.frames[0]["complete"] and set(viewer.sessions) == {"app-x", "app-y"}
    await stage.append_bodies("app-x", *BEGUN, e.AgentAsk("Which database?\nThis one?"))
    await viewer.read(stage.live)
    frame = viewer.frames[-1]
    assert (frame["complete"], [session["id"] for session in frame["sessions"]]) == (False, ["app-x"])
    assert frame["sessions"][0]["says"] == "This one?"
    assert [question["session"] for question in frame["questions"]] == ["app-x"]
    assert frame["queue"] is None, "it did not change"
    assert frame["touched"] == {"app-x": ["session-admitted", "workspace-created", "agent-launched", "agent-ask"]}
    await viewer.close()


async def test_a_viewer_that_is_up_to_date_gets_nothing_twice(stage: Stage) -> None:
    viewer = Viewer()
    await viewer.open(stage.live)
    await viewer.close()
    await viewer.open(stage.live)
    last = viewer.frames[-1]
    assert (last["complete"], last["sessions"], last["touched"]) == (False, [], {})
    assert last["questions"] == last["queue"] == [] and last["overview"], "these are always sent"


async def test_an_unknown_sequence_number_gets_a_complete_frame(stage: Stage) -> None:
    viewer = Viewer()
    viewer.last_seq = 99_999
    await viewer.open(stage.live)
    assert viewer.frames[0]["complete"] and len(viewer.sessions) == 2
    await viewer.close()


async def test_a_viewer_that_was_away_gets_the_touched_sessions_or_everything(tmp_path: Path) -> None:
    with remembering(3):
        stage, viewer = Stage(tmp_path), Viewer()
        await stage.start()
        await stage.flow.append(created("app-x"), created("app-y"))
        await viewer.open(stage.live)
        for count in (2, 4):
            await viewer.close()
            await stage.append_bodies("app-x", *(e.AgentUsage(input=1) for _ in range(count)))
            await viewer.open(stage.live)
    assert (viewer.frames[1]["complete"], viewer.frames[1]["touched"]) == (False, {"app-x": ["agent-usage"]})
    assert viewer.frames[2]["complete"], "what happened is not known any more"
    await viewer.close()
    await stage.end()


async def test_a_burst_is_one_frame_and_its_first_change_is_sent_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GATHER_SECONDS", 1800.0)
    monkeypatch.setattr(module, "MAX_CLOCK_WAIT_SECONDS", 1e6)
    viewer = Viewer()
    await viewer.open(stage.live)
    stage.live.flush()
    line = cast(Any, viewer)._line
    stage.time.advance(1800.0)
    await stage.append_bodies("app-x", e.SessionAdmitted())
    stage.time.advance(0.0)
    async with asyncio.timeout(60):
        viewer._take(await anext(line))
    await stage.append_bodies("app-x", *(e.AgentUsage(input=number + 1) for number in range(20)))
    next_frame = asyncio.ensure_future(anext(line))
    stage.time.advance(1799.0)
    await asyncio.sleep(0)
    assert not next_frame.done()
    stage.time.advance(1.0)
    viewer._take(await next_frame)
    assert viewer.frames[-1]["sessions"][0]["usage"]["input"] == sum(range(21))
    await viewer.close()


async def test_all_viewers_get_the_same_bytes(stage: Stage) -> None:
    first, second = Viewer(), Viewer()
    await first.open(stage.live)
    await second.open(stage.live)
    await stage.append_bodies("app-x", *BEGUN)
    for viewer in (first, second):
        await viewer.read(stage.live)
    assert len(first.bytes) == 2
    assert all(mine is theirs for mine, theirs in zip(first.bytes, second.bytes, strict=True)), "written once"
    await first.close()
    await second.close()


async def test_a_session_becomes_stuck_by_the_clock_alone(stage: Stage) -> None:
    await stage.append_bodies("app-x", *BEGUN, e.AgentActivity("active"))
    viewer = Viewer()
    await viewer.open(stage.live)
    assert viewer.sessions["app-x"]["status"] == "working"
    stage.time.now += 599.99
    stage.live.flush()
    assert len(viewer.frames) == 1
    waiting = asyncio.create_task(anext(cast(Any, viewer)._line))
    stage.time.now += 0.005  # the timer of the daemon wakes it for the rest
    stage.flow.listeners.emit(QueuePlanned())
    await asyncio.sleep(module.GATHER_SECONDS)
    assert not waiting.done()
    stage.time.advance(0.01)
    async with asyncio.timeout(60):
        viewer._take(await waiting)
    assert viewer.sessions["app-x"]["status"] == "stuck"
    assert viewer.frames[-1]["touched"] == {}
    await viewer.close()
    last_seq = viewer.last_seq
    await viewer.open(stage.live)
    assert [session["status"] for session in viewer.frames[-1]["sessions"]] == ["stuck"], (
        f"there is no event after {last_seq}"
    )
    await viewer.close()


async def test_a_predicted_conflict_updates_both_sessions(stage: Stage) -> None:
    viewer = Viewer()
    await viewer.open(stage.live)
    await stage.append_bodies("app-y", e.ConflictPredicted("app-x", ("a.py",), "text"))
    await viewer.read(stage.live)
    assert [session["id"] for session in viewer.frames[-1]["sessions"]] == ["app-x", "app-y"]
    assert viewer.sessions["app-x"]["collides"] == [{"session": "app-y", "kind": "text", "files": ["a.py"]}]
    await viewer.close()


async def test_output_of_an_agent_touches_no_session(stage: Stage) -> None:
    await stage.append_bodies("app-x", *BEGUN)
    viewer = Viewer()
    await viewer.open(stage.live)
    stage.time.now += 5
    await stage.append_bodies("app-x", e.AgentOutput())
    await viewer.read(stage.live)
    assert viewer.frames[-1]["touched"] == {}
    await viewer.close()


async def test_progress_signals_are_sent_with_pauses_between(stage: Stage) -> None:
    stage.flow.listeners.emit(PlanProgressed())  # without a viewer
    viewer = Viewer()
    await viewer.open(stage.live)
    progress = ProgressTexts(lambda: stage.flow.listeners.emit(PlanProgressed()))
    for doing in ("looks around", "looks around", "thinks", "writes"):
        progress["P1"] = doing
    progress["P1"] = "writes"
    stage.time.advance(module.ANNOUNCE_DELAY)
    async with asyncio.timeout(60):
        viewer._take(await anext(cast(Any, viewer)._line))
    assert (viewer.frames[-1]["touched"], viewer.frames[-1]["sessions"]) == ({"": ["plan-progress"]}, [])
    stage.time.advance(module.ANNOUNCE_DELAY)
    await viewer.read(stage.live)
    assert len(viewer.frames) == 2, "four changes, told once"
    await viewer.close()


async def test_a_slow_viewer_is_disconnected_and_the_others_continue(stage: Stage) -> None:
    slow, quick = Viewer(), Viewer()
    await slow.open(stage.live)
    await quick.open(stage.live)
    for number in range(MAX_QUEUED_FRAMES + 2):
        await stage.append_bodies("app-x", e.AgentUsage(input=number + 1))
        await quick.read(stage.live)
    await quick.read(stage.live)
    assert quick.sessions["app-x"]["usage"]["input"] == sum(range(MAX_QUEUED_FRAMES + 3))
    with pytest.raises(StopAsyncIteration):
        for _ in range(MAX_QUEUED_FRAMES + 2):
            slow._take(await anext(cast(Any, slow)._line))
    await slow.open(stage.live)
    assert slow.sessions["app-x"] == quick.sessions["app-x"]
    await slow.close()
    await quick.close()


async def test_nothing_is_rendered_without_a_viewer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    original = stage.live.inbox.questions_of

    def questions_of(facts: SessionFacts) -> list[dict[str, Any]]:
        rendered.append(facts.id)
        return original(facts)

    monkeypatch.setattr(stage.live.inbox, "questions_of", questions_of)
    await stage.append_bodies("app-x", *BEGUN, e.AgentAsk("why?"))
    await asyncio.sleep(module.GATHER_SECONDS * 2)
    assert rendered == []
    viewer = Viewer()
    await viewer.open(stage.live)
    await stage.append_bodies("app-y", e.SessionAdmitted())
    await viewer.read(stage.live)
    assert rendered == ["app-x", "app-y", "app-y"], "only of sessions that something happened to"
    await viewer.close()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\n\n  two  \n\n", "two"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("", None),
        ("\n \n", None),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_the_last_line_of_an_agents_output_is_shown(text: str, line: str | None) -> None:
    assert last_line(text) == line
