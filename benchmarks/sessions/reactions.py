"""The time from a comment or a failed check until the message is in the agent's log."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from agent_orchestrator.plugins.agents.demo import COMMAND
from agent_orchestrator.plugins.runtimes.tmux import ENTER_DELAY
from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.measure import Figure, quantile

Times = tuple[list[float], list[float]]

COUNT = 50
SINGLE_EVENTS = 50
"""Number of single events."""
TIMEOUT = 300.0
PULL_REQUEST_TASK = "[[edit: {name}.txt|x]] [[commit: work]] [[done: worked]]"
BREAKING_MESSAGE = "[[write: broken.txt|x]] [[commit: spoilt]] [[done: spoilt]]"
CONFIG = """
defaults: {agent: demo, runtime: tmux}
orchestrator: {maxParallelAgents: 100}
ci: {command: "test ! -e broken.txt", parallel: 2}
reactions:
  ci-failed: {message: "checks:{{session.name}} [[say: noted]] {{errors}}", retries: 1, escalateAfter: 9}
"""


def measure_reactions(folder: Path) -> Iterator[Figure]:
    """Measure fifty live sessions: the time until the message is read, for single events and for all at once."""
    if shutil.which("tmux") is None:
        return
    log = folder / "heard.jsonl"
    with Sandbox(folder / "box", "tmux", env={"AO_DEMO_LOG": str(log)}) as box:
        box.repository(config=CONFIG)
        box.start()
        names = [f"n{number:02}" for number in range(COUNT)]
        for name in names:
            request = {"name": name, "title": name, "prompt": PULL_REQUEST_TASK.format(name=name)}
            box.request("POST", "/api/sessions", request)
        box.wait_until(lambda: _count_waiting(box) == COUNT, f"{COUNT} pull requests", TIMEOUT)
        yield from _measure_single(box, folder, log, names)
        yield _figure(f"{COUNT} comments at once", _comments(box, log, names))
        yield _figure(f"{COUNT} failed checks", _failures(box, log, names))


def _measure_single(box: Sandbox, folder: Path, log: Path, names: list[str]) -> Iterator[Figure]:
    ours, bare = [], []
    with BareTmux(folder / "bare", log) as terminal:
        for number in range(SINGLE_EVENTS):
            begun = comment(box, names[number % COUNT], f"alone{number}")
            ours.append(wait_until_read(log, f"alone{number}: ") - begun)
            bare.append(terminal.send(f"bare{number} {'x' * 200} [[say: noted]]", f"bare{number}"))
    note = f"p50 {quantile(ours, 0.5):.2f} s, worst of {SINGLE_EVENTS} {max(ours):.2f} s"
    yield Figure(f"one comment → read by its agent, {COUNT} sessions (p95)", quantile(ours, 0.95), 1, "s", note=note)
    median, limit = quantile(ours, 0.5), quantile(bare, 0.5)
    note = f"{median * 1e3:.0f} ms ÷ {limit * 1e3:.0f} ms; {ENTER_DELAY * 1e3:.0f} of each wait for Enter"
    yield Figure("the same ÷ bare tmux (median)", median / limit, 1.5, note=note)


def _figure(what: str, times: Times) -> Figure:
    written, read = times
    note = f"p50 {quantile(written, 0.5):.2f} s; read by the agents: p50 {quantile(read, 0.5):.2f} s, p95 {quantile(read, 0.95):.2f} s"
    return Figure(f"{what} → delivered (p95)", quantile(written, 0.95), 1, "s", note=note)


def _count_waiting(box: Sandbox) -> int:
    return sum(session["status"] == "review_pending" for session in box.sessions())


def comment(box: Sandbox, name: str, mark: str) -> float:
    """Comment on a session's change; return the time."""
    line_comment = {"path": f"{name}.txt", "line": 1, "body": f"{mark}: please look at this line again [[say: noted]]"}
    begun = time.time()
    box.request("POST", f"/api/sessions/app-{name}/review", {"verdict": "commented", "comments": [line_comment]})
    return begun


def _comments(box: Sandbox, log: Path, names: list[str]) -> Times:
    """Comment on every session at once; return the delays."""
    with ThreadPoolExecutor(COUNT) as pool:
        list(pool.map(lambda name: comment(box, name, f"burst-{name}"), names))
    read = {name: wait_until_read(log, f"burst-{name}: ") for name in names}
    return _delays(box, read, {name: _times(box, name, "review-submitted")[-1] for name in names})


def _failures(box: Sandbox, log: Path, names: list[str]) -> Times:
    """Make every agent break its checks; return the delays."""
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda n: box.request("POST", f"/api/sessions/app-{n}/message", {"content": BREAKING_MESSAGE}), names
            )
        )
    read = {name: wait_until_read(log, f"checks:{name} ") for name in names}
    return _delays(box, read, {name: _times(box, name, "check-finished", state="failure")[0] for name in names})


def _delays(box: Sandbox, read: Mapping[str, float], event: Mapping[str, float]) -> Times:
    """Return the seconds from each event until its message was delivered, and until the agent had read it."""
    written = [_times(box, name, "message-delivered")[-1] - event[name] for name in read]
    return written, [at - event[name] for name, at in read.items()]


def _times(box: Sandbox, name: str, kind: str, **data: str) -> list[float]:
    """Return the times of a session's events of a type with this data."""
    events = [event for event in box.events(f"app-{name}") if event["type"] == kind]
    times = [event["time"] for event in events if all(event["data"].get(key) == value for key, value in data.items())]
    return [datetime.fromisoformat(time_text).timestamp() for time_text in times]


def wait_until_read(log: Path, text: str) -> float:
    """Wait until an agent has read a message with this text; return the time from the agent's log."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        with log.open() as file:
            for line in file:
                record = json.loads(line) if text in line and line.endswith("\n") else {}
                if record.get("event") == "message":
                    return float(record["time"])
        time.sleep(0.05)
    raise TimeoutError(f"no agent read {text!r}")


class BareTmux:
    """The same agent in a bare tmux server."""

    def __init__(self, folder: Path, log: Path) -> None:
        self.folder = folder
        self.log = log
        self.socket = str(folder / "tmux.sock")

    def __enter__(self) -> BareTmux:
        self.folder.mkdir()
        env = {**_plain(os.environ), "AO_DEMO_LOG": str(self.log), "AO_SPOOL": str(self.folder / "spool.jsonl")}
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "bare", "-c", str(self.folder), *COMMAND, env=env)
        spool, end = self.folder / "spool.jsonl", time.monotonic() + 30
        while not (spool.exists() and "idle" in spool.read_text()) and time.monotonic() < end:
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def send(self, text: str, mark: str) -> float:
        """Paste, pause, press Enter; return the seconds until the agent has read the text."""
        file = self.folder / "text"
        begun = time.time()
        file.write_text(text)
        enter = "send-keys -t =bare: Enter"
        self._tmux(
            *("load-buffer", "-b", "b", str(file), ";", "paste-buffer", "-p", "-d", "-b", "b", "-t", "=bare:", ";"),
            *("run-shell", "-b", "-d", str(ENTER_DELAY), "-t", "=bare:", "-C", enter),
        )
        return wait_until_read(self.log, f"{mark} ") - begun

    def _tmux(self, *argv: str, env: Mapping[str, str] | None = None) -> None:
        subprocess.run(["tmux", "-S", self.socket, *argv], env=env or _plain(os.environ), check=True)


def _plain(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if not name.startswith(("AO_", "TMUX"))}
