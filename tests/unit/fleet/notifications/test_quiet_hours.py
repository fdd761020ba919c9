"""Quiet hours: when they apply, and that held notifications are sent together at their end, with a manual clock."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.config.units import QuietPeriod as Hours
from agent_orchestrator.config.units import parse_quiet_hours
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.fleet.notifications.quiet_hours import QuietHours, quiet_until
from tests.parts import make_config, make_core, make_flow
from tests.unit.core.world import ManualClock

ZONE = timezone(timedelta(hours=2))
NIGHT = parse_quiet_hours("22:00..07:00")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZONE).timestamp()


@pytest.mark.parametrize(
    ("hours", "now", "until"),
    [
        (NIGHT, "2026-11-15T21:59:59", None),
        (NIGHT, "2026-11-15T22:00:00", "2026-11-16T07:00:00"),
        (NIGHT, "2026-11-16T06:59:00", "2026-11-16T07:00:00"),
        (NIGHT, "2026-11-16T07:00:00", None),
        (parse_quiet_hours("12-13:30"), "2026-11-16T13:00:00", "2026-11-16T13:30:00"),
        (parse_quiet_hours("12-13:30"), "2026-11-16T11:00:00", None),
        (None, "2026-11-16T03:00:00", None),
    ],
)
def test_quiet_hours_follow_the_local_clock(hours: Hours | None, now: str, until: str | None) -> None:
    assert quiet_until(hours, at(now), ZONE) == (at(until) if until else None)


@given(st.integers(0, 1439), st.integers(0, 1439), st.integers(0, 3 * 86400))
def test_quiet_hours_end_within_a_day(start: int, end: int, now: int) -> None:
    if start == end:
        return
    moment = at("2026-11-15T00:00:00") + now
    until = quiet_until(Hours(start, end), moment, ZONE)
    if until is not None:
        assert moment < until <= moment + 86400
        assert quiet_until(Hours(start, end), until, ZONE) is None


@pytest.mark.parametrize("text", ["22:00", "25:00..07:00", "22:00..22:00", "22:60..07:00", "", 7, "night"])
def test_invalid_quiet_hours_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"22:00\.\.07:00"):
        parse_quiet_hours(text)


def test_notifications_that_are_not_urgent_are_combined_after_the_quiet_hours(tmp_path: Path) -> None:
    asyncio.run(_run_night(tmp_path))


async def _run_night(folder: Path) -> None:
    time = ManualClock(at("2026-11-15T23:00:00"))
    flow = make_flow(clock=time)
    await flow.start()
    file = folder / "agent-orchestrator.yaml"
    file.write_text("quietHours: 22:00..07:00\nprojects: {app: {path: app}}")
    config = make_config(folder / "home" / "config.yaml")
    config.add(file)
    quiet = QuietHours(make_core(folder / "home", flow, config=config), ZONE)
    quiet.start()
    urgent, warning = e.Notified("t", "a", "now", "urgent"), e.Notified("t", "b", "later", "warning")
    assert quiet.gate("app", urgent) is urgent and quiet.gate("other", warning) is warning
    for number, level in enumerate(("info", "warning")):
        body = quiet.gate("app", e.Notified("t", f"title {number}", f"text {number}", level))
        await flow.append(Event(body, time(), "rule r", f"k{number}", "app", "app-x"))
    time.advance(3600.0)
    assert await _notified_bodies(flow) == []
    time.advance(8 * 3600.0)
    for _ in range(50):
        await asyncio.sleep(0)
    assert await _notified_bodies(flow) == [
        e.Notified("quiet-hours", "2 notifications from the quiet hours", "title 0: text 0\ntitle 1: text 1", "warning")
    ]
    assert flow.home.held_notices == {"app": ()}
    await quiet.close()
    await flow.stop()


async def _notified_bodies(flow: Flow) -> list[e.Body]:
    return [event.body for event in await flow.store.events(kind="notified")]
