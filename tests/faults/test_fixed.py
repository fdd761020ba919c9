"""Bugs that rounds of faults have found, each in its shortest form."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import evidence
from tests.faults.invariants import check_all
from tests.faults.play import FaultWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FaultWorld]:
    created = FaultWorld(tmp_path, "plain", "process", fresh=False, seed="mended", disk=False)
    try:
        created.begin()
        yield created
    finally:
        created.close()


def test_a_clock_that_was_days_ahead_is_set_back_at_the_next_start(world: FaultWorld) -> None:
    """What was due by the wrong clock does not wait for those days."""
    world.clock.set_offset(10 * 86400.0)
    world._new(0.0, 0.0)
    (session,) = world.accepted.sessions
    world.wait_until_settled()
    due = {key: left for key, _, _, left in evidence.pending_rows(world)}
    world.clock.set_offset(0.0)
    world.restart()
    world._send(0.0, 0.0)

    def heard() -> bool:
        messages = world.box.request("GET", f"/api/sessions/{session}/messages")["messages"]
        return bool(messages[-1]["state"] == "acknowledged" and world.box.session(session)["activity"] == "idle")

    world.box.wait_until(heard, "the message")
    world.wait_until_settled()
    assert check_all(world) == []
    assert evidence.daemon_time(world) - time.time() < 60.0
    later = {key: left for key, _, _, left in evidence.pending_rows(world)}
    assert later.keys() == due.keys() and all(left < due[key] + 60.0 for key, left in later.items())
    kinds = [event["type"] for event in world.box.request("GET", "/api/events?limit=1000")["events"]]
    assert kinds.count("clock-set-back") == 1
    world.restart()
    kinds = [event["type"] for event in world.box.request("GET", "/api/events?limit=1000")["events"]]
    assert kinds.count("clock-set-back") == 1


def test_files_left_by_an_agents_start_are_removed_with_the_agent(world: FaultWorld) -> None:
    """Such as the file with its environment, if the disk was read-only when it was read."""
    world._new(0.0, 0.0)
    (session,) = world.accepted.sessions
    world.wait_until_settled()
    left = world.box.home.path / "sessions" / session / "launch.1.x.sh"
    left.touch()
    world.ask("DELETE", f"/api/sessions/{session}")
    world.wait_until_settled()
    world.box.wait_until(lambda: not left.exists(), "its removal with the agent")
    left.touch()
    world.restart()
    world.box.wait_until(lambda: not left.exists(), "its removal by the next daemon")


def test_files_left_by_an_agents_end_are_removed_later(world: FaultWorld) -> None:
    """Such as when the disk was still read-only at the agent's end."""
    world._new(0.0, 0.0)
    (session,) = world.accepted.sessions
    world.wait_until_settled()
    left = world.box.home.path / "sessions" / session / "launch.1.x.sh"
    left.mkdir()  # which cannot be unlinked
    os.kill(world.box.session(session)["pid"], signal.SIGKILL)
    world.box.wait_until(lambda: world.box.session(session)["pid"] is None, "the agent's end")
    (daemon,) = world.launcher.live()
    os.kill(daemon, signal.SIGSTOP)  # so that it does not check while the file is absent
    left.rmdir()
    left.touch()
    os.kill(daemon, signal.SIGCONT)
    world.box.wait_until(lambda: not left.exists(), "its removal")
