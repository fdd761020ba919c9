"""Keeping the machine awake while agents are working, and the available methods."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.errors import Missing
from agent_orchestrator.fleet.scheduling.keep_awake import RETRY_SECONDS, SleepInhibitor, SleepPrevention
from agent_orchestrator.testing.programs import Programs
from tests.parts import make_core
from tests.unit.core.world import SESSION, EngineWorld, created

pytestmark = pytest.mark.anyio


class Lock:
    """A wake lock that records when it is held, or fails."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.fails = ""

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[str]:
        if self.fails:
            self.log.append("refused")
            raise Missing(self.fails, "do something")
        self.log.append("held")
        try:
            yield "a lock"
        finally:
            self.log.append("released")


@pytest.fixture
async def world() -> AsyncIterator[EngineWorld]:
    with structlog.testing.capture_logs():
        world = EngineWorld()
        await world.start()
        await world.flow.append(created())
        await world.settle()
        yield world
        await world.end()


@pytest.fixture
async def lock() -> Lock:
    return Lock()


@contextlib.asynccontextmanager
async def following(
    world: EngineWorld, lock: Lock, folder: Path = Path("/nowhere"), *, prevents_sleep: bool = True
) -> AsyncIterator[SleepPrevention]:
    core = make_core(folder, world.flow)
    if not prevents_sleep:
        core.home.config.write_text("power: {preventIdleSleep: false}")
        core.config.load_home()
    power = SleepPrevention(core, lock, rest=0.0)
    power.start()
    yield power
    await power.close()


async def say(world: EngineWorld, activity: str) -> None:
    await world.append_or_skip(
        world.event(e.AgentActivity(activity), generation=world.flow.sessions[SESSION].generation)
    )
    for _ in range(20):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)


async def test_the_lock_is_held_during_turns_only(world: EngineWorld, lock: Lock) -> None:
    await say(world, "idle")
    async with following(world, lock) as power:
        await asyncio.sleep(0.01)
        assert lock.log == [] and not power.holder
        await say(world, "active")
        assert lock.log == ["held"]
        assert (await power.checkup())[0]["detail"] == "kept awake by a lock"
        await say(world, "active")
        await say(world, "retrying")
        assert lock.log == ["held"]
        await say(world, "idle")
        assert lock.log == ["held", "released"] and not power.holder
        await say(world, "active")
        assert lock.log == ["held", "released", "held"]
    assert lock.log[-1] == "released"


async def test_a_question_to_a_person_releases_the_lock(world: EngineWorld, lock: Lock) -> None:
    await say(world, "active")
    async with following(world, lock):
        await asyncio.sleep(0.01)
        await say(world, "blocked")
        assert lock.log == ["held", "released"]


async def test_sleep_prevention_can_be_disabled(world: EngineWorld, lock: Lock, tmp_path: Path) -> None:
    async with following(world, lock, tmp_path, prevents_sleep=False) as power:
        await say(world, "active")
        assert lock.log == []
        assert "preventIdleSleep is false" in (await power.checkup())[0]["detail"]


async def test_a_failure_is_logged_once_and_retried_later(world: EngineWorld, lock: Lock) -> None:
    lock.fails = "nothing here can"
    await say(world, "idle")
    with structlog.testing.capture_logs() as logs:
        async with following(world, lock) as power:
            for _ in range(3):
                await say(world, "active")
                await say(world, "idle")
            check = (await power.checkup())[0]
            assert check["state"] == "warning" and "nothing here can" in check["detail"] and check["remedy"]
            lock.fails = ""
            await say(world, "active")
            assert lock.log == ["refused"], "each try costs programs"
            world.time.now += RETRY_SECONDS
            await say(world, "idle")
            await say(world, "active")
            assert (await power.checkup())[0]["state"] == "ok"
    assert lock.log == ["refused", "held", "released"]
    assert len([line for line in logs if "not kept awake" in line["event"]]) == 1


# -- methods ------------------------------------------------------------------------------------------------------


class Mode:
    """The used part of wakepy; it must be exited by the thread that entered it."""

    def __init__(self, works: bool) -> None:
        import threading

        self._thread = threading.get_ident
        self.works, self.active, self.log = works, False, [0]
        self.method = SimpleNamespace(name="caffeinate")
        self.result = SimpleNamespace(get_failure_text=lambda style: f"no method {style}")

    def __enter__(self) -> Mode:
        self.log = [self._thread()]
        self.active = self.works
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append(self._thread())
        self.active = False


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch) -> Mode:
    mode = Mode(works=True)
    module = ModuleType("wakepy")
    module.keep = SimpleNamespace(running=lambda **_: mode)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wakepy", module)
    return mode


async def test_wakepy_is_entered_and_exited_by_one_thread(mode: Mode, tmp_path: Path) -> None:
    async with SleepInhibitor(Programs(tmp_path).host, "darwin", "")() as by:
        assert by == "wakepy (caffeinate)" and mode.active
    assert not mode.active and len(mode.log) == 2 and len(set(mode.log)) == 1


INHIBIT = 'while [ "$1" != sh ]; do shift; done; exec "$@"'


async def test_a_linux_without_a_desktop_uses_systemd_inhibit(tmp_path: Path) -> None:
    programs = Programs(tmp_path, "systemd-inhibit", then={"systemd-inhibit": INHIBIT})
    host = programs.host
    real = host.pipe
    host.pipe = lambda argv, **more: real([str(programs.folder / argv[0]), *argv[1:]], **more)  # type: ignore[method-assign]
    async with SleepInhibitor(host, "linux", "")() as by:
        assert by == "systemd-inhibit"
    (argv,) = programs.started()
    assert argv[:3] == ["systemd-inhibit", "--what=idle", "--mode=block"]


async def test_if_no_method_works_every_reason_is_named(mode: Mode, tmp_path: Path) -> None:
    mode.works = False
    programs = Programs(tmp_path, "systemd-inhibit", then={"systemd-inhibit": "exit 1"})
    host = programs.host
    real = host.pipe
    host.pipe = lambda argv, **more: real([str(programs.folder / argv[0]), *argv[1:]], **more)  # type: ignore[method-assign]
    with pytest.raises(
        Missing, match=r"wakepy found no way \(no method inline\); systemd-inhibit was refused: set power"
    ):
        async with SleepInhibitor(host, "linux", "unix:path=/x")():
            pass
    with pytest.raises(Missing, match="there is no systemd-inhibit"):
        async with SleepInhibitor(Programs(tmp_path / "none").host, "linux", "")():
            pass
