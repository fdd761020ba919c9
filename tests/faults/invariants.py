"""What must hold after every round, checked against independent evidence. Each returns what is wrong, in words."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from tests.faults.play import World

FINAL = {"delivered", "acknowledged", "failed"}


def settle(world: World) -> None:
    """Start the daemon if it is dead, and wait until nothing moves any more."""
    box = world.box
    world._ask("GET", "/healthz")
    before: Any = None

    def quiet() -> bool:
        nonlocal before
        now = [(one["id"], one["status"], one["updatedAt"]) for one in box.sessions()]
        moving = any(one["status"] in ("starting", "working") for one in box.sessions())
        pending = any(
            message["state"] in ("queued", "held")
            for session in world.known.sessions
            if box.session(session)["status"] not in ("stopped", "failed", "queued")
            for message in box.request("GET", f"/api/sessions/{session}/messages")["messages"]
        )
        same, before = now == before, now
        return same and not moving and not pending

    box.until(quiet, "everything to come to rest", 90)


def check(world: World) -> list[str]:
    """Everything that is wrong."""
    box = world.box
    sessions = {one["id"]: one for one in box.sessions()}
    return [
        *_nothing_lost(world, sessions),
        *_one_daemon(world),
        *_states_true(world, sessions),
        *_messages_once(world, sessions),
        *_log_whole(world),
        *_no_faults_logged(world),
    ]


def _nothing_lost(world: World, sessions: dict[str, Any]) -> list[str]:
    """What an agent wrote is in its workspace, on its branch, or under its rescue ref."""
    wrong = []
    for session, mark in world.known.sessions.items():
        now = sessions.get(session)
        if now is None:
            wrong.append(f"{session} was accepted and is gone")
            continue
        if not _turn_finished(world, session):
            continue
        name = f"{mark}.txt"
        path = now["workspacePath"]
        places = [f"refs/heads/{now['branch']}", f"refs/ao/rescue/{session}", f"refs/ao/restored/{session}"]
        in_workspace = path is not None and (Path(path) / name).exists()
        if not in_workspace and not any(_has(world, place, name) for place in places):
            wrong.append(f"{session}: {name} is neither in a workspace ({path}), nor on its branch, nor rescued")
    return wrong


def _turn_finished(world: World, session: str) -> bool:
    """The agent itself said that its first turn ended, or asked: so it has written its file."""
    spool = world.box.home.session(session) / "spool.1.jsonl"  # a later launch does not begin the task again
    text = spool.read_text(errors="replace") if spool.exists() else ""
    return '"idle"' in text or '"ask"' in text


def _has(world: World, ref: str, name: str) -> bool:
    done = subprocess.run(
        ["git", "cat-file", "-e", f"{ref}:{name}"],
        cwd=world.box.repo,
        env=world.box.env,
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def _one_daemon(world: World) -> list[str]:
    mark = f"AO_HOME={world.box.home.path}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                environ = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"agent_orchestrator.daemon" in command and mark in environ:
                found.append(entry.name)
    return [] if len(found) == 1 else [f"{len(found)} daemons run: {found}"]


def _states_true(world: World, sessions: dict[str, Any]) -> list[str]:
    wrong = []
    agents = world.agents()
    for session, pids in agents.items():
        if len(pids) > 1:
            wrong.append(f"{session} has {len(pids)} agents at once: {pids}")
        shown = sessions.get(session, {}).get("pid")
        if shown not in pids:
            wrong.append(
                f"{session}: agent {pids} lives, but {shown} is shown ({sessions.get(session, {}).get('status')})"
            )
    for session, now in sessions.items():
        if now["pid"] is not None and session not in agents:
            wrong.append(f"{session} is shown with pid {now['pid']}, but no agent of it lives")
        if (
            now["status"] == "stopped"
            and now["workspacePath"]
            and Path(now["workspacePath"]).exists()
            and session in agents
        ):
            wrong.append(f"{session} is stopped, but its agent lives")
    return wrong


def _messages_once(world: World, sessions: dict[str, Any]) -> list[str]:
    wrong = []
    shown = {
        session: {
            one["messageId"]: one for one in world.box.request("GET", f"/api/sessions/{session}/messages")["messages"]
        }
        for session in set(world.known.messages.values())
    }
    # Read after what is shown: an agent may take a message up in between, but not give it back.
    heard = Counter(entry.get("id") for entry in world.heard() if entry["event"] == "message")
    for message, session in world.known.messages.items():
        if heard[message] > 1:
            wrong.append(f"{message} to {session} was received {heard[message]} times")
        state = shown[session].get(message, {}).get("state")
        live = sessions.get(session, {}).get("pid") is not None
        if state is None:
            wrong.append(f"{message} to {session} was accepted and is not known any more")
        elif live and state not in FINAL:
            wrong.append(f"{message} to {session} is still {state} although its agent lives")
        elif state == "acknowledged" and heard[message] != 1:
            wrong.append(f"{message} to {session} counts as acknowledged, but was received {heard[message]} times")
    return wrong


def _log_whole(world: World) -> list[str]:
    events: list[Any] = []
    while page := world.box.request("GET", f"/api/events?after={events[-1]['seq'] if events else 0}&limit=1000")[
        "events"
    ]:
        events += page
    numbers = [event["seq"] for event in events]
    keys = Counter(event["key"] for event in events)
    wrong = [] if numbers == list(range(1, len(numbers) + 1)) else ["the event log has gaps"]
    return wrong + [f"event {key} is in the log {count} times" for key, count in keys.items() if count > 1]


def _no_faults_logged(world: World) -> list[str]:
    text = world.box.home.log.read_text(errors="replace") if world.box.home.log.exists() else ""
    start = getattr(world, "log_read", 0)
    world.log_read = len(text)  # type: ignore[attr-defined]
    fresh = text[start:]
    return [
        f"the daemon's log: {line}"
        for line in fresh.splitlines()
        if "Traceback" in line or "unexpectedly" in line or "level=error" in line
    ]


def pid_alive(pid: int) -> bool:
    """Does a process of this pid live?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
