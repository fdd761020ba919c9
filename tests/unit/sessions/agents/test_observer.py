"""The observer of agents: the end of an agent is recorded despite errors, and floods of reports or screens are read with pauses."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.base.home import Home
from agent_orchestrator.core.listeners import Listeners
from agent_orchestrator.errors import AoError
from agent_orchestrator.plugins.agents.shared.spool import MAX_LINES
from agent_orchestrator.plugins.runtimes import single_use_files
from agent_orchestrator.protocols import Exit, Gone, ScreenRules
from agent_orchestrator.sessions.agents import observer as observing
from agent_orchestrator.sessions.agents.observer import Observer
from agent_orchestrator.sessions.session_plugins import handle_of
from tests.parts import HandSetClock

pytestmark = pytest.mark.anyio

NO_ROOM = OSError(errno.EMFILE, "Too many open files")
HANDLE = {
    "runtime": "tmux",
    "session": "app-a",
    "generation": 1,
    "pid": 1,
    "started": "1",
    "boot_id": "b",
    "address": {},
}


class World:
    """One session with a live agent, and the types of the events recorded for it."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        self.recorded_types: list[str] = []
        self.recorded = asyncio.Event()
        self.failures: list[Exception] = []
        place = SimpleNamespace(git_dir=str(folder / "git"))
        launch = SimpleNamespace(handle=HANDLE, has_inbox=False, at=0.0)
        facts = SimpleNamespace(
            id="app-a", project="app", generation=1, live=True, workspace=place, launch=launch, spool_position=0, head=None,
            node=None, requested_state="run", move_reason="", has_reported=True,
        )  # fmt: skip
        flow = SimpleNamespace(
            sessions={"app-a": facts}, listeners=Listeners(), append=self._append, clock=HandSetClock(1.0),
            owner_home=lambda _: "",
        )  # fmt: skip
        watch = SimpleNamespace(watch_file=lambda *_: lambda: None, watch_folder=lambda *_: lambda: None)
        plugins = SimpleNamespace(runtime_of=lambda _: self, agent_of=self._no_agent)
        self.core = SimpleNamespace(flow=flow, home=self.home, host=None, plugins=plugins, watch=watch)
        self.observer = Observer(cast("Any", self.core))

    def _no_agent(self, _facts: object) -> None:
        raise AoError("its plugin is gone")

    async def _append(self, *events: Any) -> None:
        self.recorded_types += [event.body.type for event in events]
        self.recorded.set()

    async def ended(self, _handle: object) -> Gone:
        """Return the end of the agent, as its runtime does."""
        if self.failures:
            raise self.failures.pop()
        return Gone(Exit(0))

    async def watched(self) -> list[str]:
        """Return the types of the recorded events after the agent has ended."""
        self.observer.start()
        try:
            await asyncio.wait_for(self.recorded.wait(), 30)
        finally:
            await self.observer.close()
        return self.recorded_types


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(observing, "RETRY_PAUSE", 0.0)
    return World(tmp_path)


async def test_an_end_that_cannot_be_watched_is_watched_again(world: World) -> None:
    world.failures = [NO_ROOM, AoError("no"), KeyError("of a plugin")]
    assert await world.watched() == ["agent-exited"]


async def test_an_end_that_cannot_be_recorded_is_retried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [NO_ROOM, NO_ROOM]
    forget = single_use_files.remove_one_time_files

    def failing(private: Path) -> list[Path]:
        if failures:
            raise failures.pop()
        return forget(private)

    monkeypatch.setattr(observing, "remove_one_time_files", failing)
    assert await world.watched() == ["agent-exited"] and not failures


async def test_a_changing_screen_is_read_by_one_reader_at_a_time(world: World) -> None:
    reads: asyncio.Queue[asyncio.Event] = asyncio.Queue()
    changes: list[Callable[[], None]] = []
    rules = ScreenRules(ready=re.compile("^> $"))

    async def screen(_handle: object) -> str:
        reads.put_nowait(over := asyncio.Event())
        await over.wait()
        return ""

    def file(_path: Path, changed: Callable[[], None]) -> Callable[[], None]:
        changes.append(changed)
        return lambda: None

    observer, facts = world.observer, world.observer.flow.sessions["app-a"]
    facts.has_reported, facts.activity = False, SimpleNamespace(state="active", detail="")  # type: ignore[misc, assignment]
    runtime = SimpleNamespace(screen=screen, ended=lambda _: asyncio.Event().wait())
    agent = SimpleNamespace(screen=rules, listens=False)
    world.core.plugins = SimpleNamespace(runtime_of=lambda _: runtime, agent_of=lambda _: agent)
    world.core.watch = SimpleNamespace(watch_file=file, watch_folder=lambda *_: lambda: None)
    observer.start()
    try:
        first = await asyncio.wait_for(reads.get(), 30)
        session_watch = observer._watches["app-a"]
        for _ in range(20):
            changes[-1]()
        assert session_watch.screen_timer is None and reads.empty(), "no second read begins during the first"
        first.set()
        second = await asyncio.wait_for(reads.get(), 30)
        assert reads.empty(), "changes made meanwhile cause one more read"
        second.set()
    finally:
        await observer.close()


def lines(*numbers: int) -> bytes:
    return b"".join(b'{"event": "x", "n": %d}\n' % number for number in numbers)


class Flood:
    """A session whose agent wrote many lines, and the numbers recorded at each turn."""

    def __init__(self, world: World, content: bytes) -> None:
        self.observer = world.observer
        self.path = world.home.spool("app-a", 1)
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(content)
        self.turns: list[list[int]] = []
        self.grow = b""
        self.observer.flow.append = self._append  # type: ignore[assignment, method-assign]
        runtime = SimpleNamespace(ended=lambda _: asyncio.Event().wait())
        world.core.plugins = SimpleNamespace(runtime_of=lambda _: runtime, agent_of=world._no_agent)

    async def _append(self, *events: Any) -> list[Any]:
        self.turns.append([event.body.data["n"] for event in events if event.body.type == "agent-report"])
        with self.path.open("ab") as file:
            file.write(self.grow)
        return []

    async def end(self) -> None:
        facts = self.observer.flow.sessions["app-a"]
        handle = handle_of(facts)
        assert handle is not None
        await self.observer.record_end("app-a", handle, Exit(0))


async def test_many_lines_are_read_in_portions_with_pauses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "READ_PAUSE_FACTOR", 1e9)
    monkeypatch.setattr(observing, "MAX_READ_PAUSE_SECONDS", 3600.0)
    flood = Flood(world, lines(*range(3 * MAX_LINES)))
    flood.observer.start()
    try:
        for _ in range(20):
            await flood.observer.catch_up("app-a")
            await asyncio.sleep(0)
        assert flood.turns == [[*range(MAX_LINES)]], "it pauses also if it is asked to catch up"
    finally:
        await flood.observer.close()


async def test_reading_continues_after_a_pause(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "MAX_READ_PAUSE_SECONDS", 0.0)
    flood = Flood(world, lines(*range(3 * MAX_LINES)))
    flood.observer.start()
    try:
        async with asyncio.timeout(30):
            while len(flood.turns) < 3:
                await asyncio.sleep(0)
        assert [number for turn in flood.turns for number in turn] == [*range(3 * MAX_LINES)], "in order, each once"
    finally:
        await flood.observer.close()


@pytest.mark.parametrize("rests", [True, False])
async def test_a_flood_is_read_to_the_end_though_its_agent_was_stopped_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch, rests: bool
) -> None:
    monkeypatch.setattr(observing, "MAX_READ_PAUSE_SECONDS", 3600.0 if rests else 0.0)
    monkeypatch.setattr(observing, "READ_PAUSE_FACTOR", 1e9)
    flood = Flood(world, lines(*range(3 * MAX_LINES)))
    facts = flood.observer.flow.sessions["app-a"]
    flood.observer.start()
    try:
        if rests:
            await flood.observer.catch_up("app-a")
        monkeypatch.setattr(observing, "MAX_READ_PAUSE_SECONDS", 0.0)
        facts.live = False  # type: ignore[misc]
        flood.observer._update_watch(facts)
        async with asyncio.timeout(30):
            while len(flood.turns) < 3:
                await asyncio.sleep(0)
        assert [number for turn in flood.turns for number in turn] == [*range(3 * MAX_LINES)]
    finally:
        await flood.observer.close()


async def test_a_burst_of_lines_is_read_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "READ_PAUSE_FACTOR", 1e9)
    monkeypatch.setattr(observing, "MAX_READ_PAUSE_SECONDS", 3600.0)
    flood = Flood(world, lines(*range(400)))
    flood.observer.start()
    try:
        await flood.observer.catch_up("app-a")
        with flood.path.open("ab") as file:
            file.write(lines(*range(400, 800)))
        await flood.observer.catch_up("app-a")
        assert flood.turns == [[*range(400)], [*range(400, 800)]]
    finally:
        await flood.observer.close()


async def test_an_agents_end_is_recorded_after_all_its_lines(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "MAX_READ_PAUSE_SECONDS", 0.0)
    flood = Flood(world, lines(*range(3 * MAX_LINES)) + lines(-1).rstrip())
    await asyncio.wait_for(flood.end(), 30)
    *turns, end = flood.turns
    assert [number for turn in turns for number in turn] == [*range(3 * MAX_LINES), -1] and end == []
    assert max(map(len, turns)) == MAX_LINES


async def test_lines_written_after_the_end_do_not_delay_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "MAX_READ_PAUSE_SECONDS", 0.0)
    flood = Flood(world, lines(*range(3 * MAX_LINES)))
    flood.grow = lines(*range(2 * MAX_LINES))
    await asyncio.wait_for(flood.end(), 30)
    assert [number for turn in flood.turns for number in turn][: 3 * MAX_LINES] == [*range(3 * MAX_LINES)]
    assert flood.turns[-1] == [], "its end is recorded"


class Branch:
    """A session whose agent moves HEAD, and the recorded heads."""

    def __init__(self, world: World) -> None:
        self.observer, self.recorded_heads = world.observer, list[str]()
        self.changed: list[Callable[[], None]] = []
        self.facts = self.observer.flow.sessions["app-a"]
        self.git_dir = world.home.path / "git"
        self.git_dir.mkdir()
        self.observer.flow.append = self._append  # type: ignore[assignment, method-assign]
        runtime = SimpleNamespace(ended=lambda _: asyncio.Event().wait())
        world.core.plugins = SimpleNamespace(runtime_of=lambda _: runtime, agent_of=world._no_agent)
        world.core.watch = SimpleNamespace(watch_file=lambda *_: lambda: None, watch_folder=self._watch)

    def _watch(self, _path: Path, changed: Callable[[], None]) -> Callable[[], None]:
        self.changed.append(changed)
        return lambda: None

    async def _append(self, *events: Any) -> list[Any]:
        await asyncio.sleep(0)
        self.recorded_heads += [event.body.head for event in events if event.body.type == "head-moved"]
        return []

    def move(self, number: int) -> str:
        (self.git_dir / "HEAD").write_text(f"{number:040x}\n")
        self.changed[0]()
        return f"{number:040x}"

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def wait_until_recorded(self, head: str) -> None:
        async with asyncio.timeout(30):
            while self.recorded_heads[-1:] != [head]:
                await asyncio.sleep(0)


async def test_continuous_moves_of_a_branch_are_recorded_once_with_the_last_head(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "READ_PAUSE_FACTOR", 1e9)
    monkeypatch.setattr(observing, "MAX_READ_PAUSE_SECONDS", 3600.0)
    branch = Branch(world)
    branch.observer.start()
    try:
        await branch.settle()
        first = branch.move(1)
        await branch.wait_until_recorded(first)
        for number in range(2, 60):
            last = branch.move(number)
            await branch.settle()
        assert branch.recorded_heads == [first], "further moves are not recorded at once"
        branch.facts.live = False  # type: ignore[misc]
        branch.observer._update_watch(branch.facts)
        await branch.wait_until_recorded(last)
        assert branch.recorded_heads == [first, last]
    finally:
        await branch.observer.close()


async def test_pauses_double_while_a_branch_keeps_moving(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observing, "MAX_READ_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(observing, "BRANCH_QUIET_SECONDS", 3600.0)
    branch = Branch(world)
    branch.observer.start()
    try:
        await branch.settle()
        eye, pauses = branch.observer._watches["app-a"], list[float]()
        for number in range(1, 12):
            await branch.wait_until_recorded(branch.move(number))
            await branch.settle()
            pauses.append(eye.branch_pause)
        assert all(later >= min(0.05, 2 * pause) for pause, later in pairwise(pauses)) and pauses[-1] == 0.05
        monkeypatch.setattr(observing, "BRANCH_QUIET_SECONDS", 0.0)
        monkeypatch.setattr(observing, "READ_PAUSE_FACTOR", 0.0)
        await branch.wait_until_recorded(branch.move(12))
        await branch.settle()
        assert eye.branch_pause == 0.0, "after a while without moves the next ones are recorded at once"
    finally:
        await branch.observer.close()
