"""Two daemons on one PostgreSQL server: one is active, the other one is on standby and takes over without loss or duplicates."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.errors import AoError
from agent_orchestrator.testing import sandbox
from agent_orchestrator.testing.postgres import DATABASE_PASSWORD, PostgresServer
from agent_orchestrator.testing.sandbox import Sandbox

TAKEOVER = 10.0
SECRETS = (DATABASE_PASSWORD, "s3cret%2Fof%3Athem")


def box_on(folder: Path, url: str, **env: str) -> Sandbox:
    box = Sandbox(folder, "process", env).__enter__()
    box.home.path.mkdir(mode=0o700, parents=True)
    box.home.config.write_text(f"database: {url}\n")
    box.repository()
    return box


@pytest.fixture
def boxes(tmp_path: Path, url: str) -> Iterator[tuple[Sandbox, Sandbox]]:
    both = box_on(tmp_path / "one", url), box_on(tmp_path / "two", url, AO_TEST_BOOT_ID="another machine")
    both[1].repo = both[0].repo  # both machines of a team have the same repository
    try:
        yield both
    finally:
        for box in both:
            with contextlib.suppress(OSError, TypeError):
                os.kill(int(box.home.lock.read_text()), signal.SIGCONT)
            box.clean_up()
        for box in both:
            log = box.home.log.read_text() if box.home.log.exists() else ""
            assert not any(secret in log for secret in SECRETS)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start daemons in new processes, so that their exit codes can be read."""
    monkeypatch.setattr(sandbox, "launch", sandbox.launch_fresh)


def health(box: Sandbox) -> dict[str, Any]:
    try:
        with box.client() as client:
            return dict(client.request("GET", "/healthz", timeout=5.0).json())
    except AoError:
        return {"status": "none"}


def is_active(box: Sandbox) -> bool:
    return bool(health(box)["status"] == "ok")


# -- errors are one line ----------------------------------------------------------------------------------------------


def start_failure(box: Sandbox) -> tuple[int, str]:
    """Run a daemon that cannot start; return its exit code and error text."""
    command = [sys.executable, "-m", "agent_orchestrator.daemon", "--foreground", "--port", "0"]
    done = subprocess.run(command, env=box.env, capture_output=True, text=True, timeout=120)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_every_database_problem_is_a_one_line_error_with_a_remedy(tmp_path: Path, server: PostgresServer) -> None:
    cases = {
        server.url("ao", password="wr0ng/pw"): (1, r"lets us not in: .*: correct user and password"),
        server.url("nothing-there"): (3, r"there is no database nothing-there .*createdb"),
        "postgresql://ao:wr0ng@127.0.0.1:1/ao": (1, r"cannot be used: .*: see whether PostgreSQL runs at 127.0.0.1:1"),
        "postgresql://ao:wr0ng@pw@127.0.0.1/ao": (2, r"two @ in the URL: write postgresql://"),
        "postgresql://ao:wr0ng@127.0.0.1:x/ao": (2, r"the port is no number: write postgresql://"),
        "mysql://ao:wr0ng@127.0.0.1/ao": (2, r"config.yaml:1: database: .*accepted: sqlite, or postgresql://"),
    }
    box = box_on(tmp_path / "one", "sqlite")
    for url, (code, pattern) in cases.items():
        box.home.config.write_text(f"database: {url}\n")
        ended, line = start_failure(box)
        assert ended == code and len(line.splitlines()) == 1 and line.startswith("ao: "), line
        assert re.search(pattern, line) and "wr0ng" not in line


def test_without_psycopg_the_error_says_what_to_install(tmp_path: Path, url: str) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "psycopg.py").write_text("raise ImportError('not here')\n")
    box = box_on(tmp_path / "one", url, PYTHONPATH=str(tmp_path / "without"))
    assert start_failure(box) == (
        1,
        "ao: database: psycopg, which speaks to PostgreSQL, is not installed: pip install 'agent-orchestrator[postgres]'\n",
    )


def test_an_environment_variable_may_hold_the_url(tmp_path: Path, url: str) -> None:
    box = box_on(tmp_path / "one", "${AO_TEST_URL}", AO_TEST_URL=url.replace("postgresql://", "postgres://"))
    try:
        box.start()
        (row,) = [check for check in box.json("doctor")["checks"] if check["name"] == "database"]
        assert row["state"] == "ok" and "PostgreSQL 1" in row["detail"] and "ao:***@127.0.0.1" in row["detail"]
        assert not any(secret in box.ao("doctor", check=False).stdout for secret in SECRETS)
        assert not (box.home.database).exists()
    finally:
        box.clean_up()


# -- active and standby ------------------------------------------------------------------------------------------------


def test_a_standby_daemon_takes_over_when_the_active_one_is_shut_down(
    boxes: tuple[Sandbox, Sandbox],
) -> None:
    first, second = boxes
    pid = first.start()
    first.request("POST", "/api/issues", {"title": "first"})
    second.start()
    state = health(second)
    assert (state["status"], state["active"]["pid"]) == ("standby", pid)
    start_output = second.ao("start", "--no-open")
    assert re.match(
        rf"standby: {re.escape(state['active']['host'])}'s daemon \(pid {pid}, since .*\) is active",
        start_output.stdout,
    )
    refused = second.ao("status", check=False)
    assert refused.returncode == 4 and len(refused.stderr.splitlines()) == 1 and f"pid {pid}" in refused.stderr
    url = second.client().info()["url"]
    document = subprocess.run(["curl", "-si", f"{url}/api/sessions"], capture_output=True, text=True).stdout
    assert " 503 " in document.splitlines()[0] and "application/problem+json" in document and f"pid {pid}" in document
    started = time.monotonic()
    first.ao("shutdown")
    second.wait_until(lambda: is_active(second), "the second to take over", TAKEOVER)
    assert time.monotonic() - started < TAKEOVER
    assert [first["title"] for first in second.request("GET", "/api/issues?all=1")["issues"]] == ["first"]
    assert "standby" not in second.client().info()
    first.start()
    assert health(first)["status"] == "standby"
    first.ao("shutdown")  # a standby daemon can be shut down too
    assert first.daemon_pid() is None and is_active(second)


class Load(threading.Thread):
    """Creates issues one after the other, each until a daemon has acknowledged it, and records their titles."""

    def __init__(self, boxes: tuple[Sandbox, ...], name: str) -> None:
        super().__init__(name=name)
        self.boxes = boxes
        self.acknowledged: list[str] = []
        self.stop = threading.Event()
        self.failed = 0

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            title = f"{self.name}-{number}"
            for box in self.boxes:
                try:
                    box.request("POST", "/api/issues", {"title": title}, **{"Idempotency-Key": title})
                except (AoError, OSError):
                    self.failed += 1
                    time.sleep(0.02)
                    continue
                self.acknowledged.append(title)
                number += 1
                break

    def end(self) -> list[str]:
        self.stop.set()
        self.join(60)
        return self.acknowledged


def check_log(server: PostgresServer, database: str, titles: list[str]) -> None:
    """Assert that every acknowledged issue is in the log once, and that event numbers have no gap or duplicate."""
    rows = server.sql("SELECT seq, data FROM events ORDER BY seq", database)
    assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
    titles_in_log = [match[1] for _, data in rows if (match := re.search(r'"title":"(load\d-\d+)"', data))]
    assert len(titles_in_log) == len(set(titles_in_log)), "doubled"
    assert set(titles) <= set(titles_in_log), "lost"


def test_a_standby_daemon_takes_over_when_the_active_one_is_killed_under_load(
    boxes: tuple[Sandbox, Sandbox], server: PostgresServer, database: str
) -> None:
    first, second = boxes
    first.start()
    second.start()
    loads = [Load(boxes, f"load{number}") for number in range(4)]
    for load in loads:
        load.start()
    first.wait_until(lambda: sum(len(load.acknowledged) for load in loads) > 100, "load", 60)
    first.stop(signal.SIGKILL)
    started = time.monotonic()
    before = sum(len(load.acknowledged) for load in loads)
    second.wait_until(lambda: is_active(second), "the second to take over", 30)
    seconds = time.monotonic() - started
    second.wait_until(lambda: sum(len(load.acknowledged) for load in loads) > before + 100, "load", 60)
    titles = [title for load in loads for title in load.end()]
    assert seconds < TAKEOVER
    check_log(server, database, titles)


@pytest.mark.usefixtures("fresh")
def test_a_suspended_daemon_that_lost_leadership_writes_nothing_and_ends(
    boxes: tuple[Sandbox, Sandbox], server: PostgresServer, database: str
) -> None:
    first, second = boxes
    pid = first.start()
    second.start()
    loads = [Load(boxes, f"load{number}") for number in range(2)]
    for load in loads:
        load.start()
    first.wait_until(lambda: sum(len(load.acknowledged) for load in loads) > 40, "load", 60)
    titles = [title for load in loads for title in load.end()]
    os.kill(pid, signal.SIGSTOP)
    started = time.monotonic()
    second.wait_until(lambda: is_active(second), "the second to take over", 30)
    assert time.monotonic() - started < TAKEOVER
    second.request("POST", "/api/issues", {"title": "by the second"})
    (before,) = server.sql("SELECT max(seq), max(xmin::text::bigint) FROM events", database)
    os.kill(pid, signal.SIGCONT)
    with contextlib.suppress(AoError, OSError):
        first.request("POST", "/api/issues", {"title": "by the first"})
    first.wait_until(lambda: first.daemon_pid() is None, "the first to end", 15)
    assert first._daemon is not None and first._daemon.wait(15) == 4
    assert server.sql("SELECT max(seq), max(xmin::text::bigint) FROM events", database) == [before]
    assert "has taken over: this one does nothing more" in first.home.log.read_text()
    check_log(server, database, titles)
    first.start()
    assert health(first)["status"] == "standby" and is_active(second)


def test_daemons_survive_a_restart_of_the_server(
    boxes: tuple[Sandbox, Sandbox], server: PostgresServer, database: str
) -> None:
    first, second = boxes
    pid = first.start()
    second.start()
    loads = [Load((first,), f"load{number}") for number in range(2)]
    for load in loads:
        load.start()
    first.wait_until(lambda: sum(len(load.acknowledged) for load in loads) > 40, "load", 60)
    for mode in ("fast", "immediate"):
        server.stop(mode)
        time.sleep(0.5)
        server.start()
        before = sum(len(load.acknowledged) for load in loads)
        first.wait_until(lambda before=before: sum(len(load.acknowledged) for load in loads) > before + 20, "load", 30)  # type: ignore[misc]
    titles = [title for load in loads for title in load.end()]
    assert sum(load.failed for load in loads) > 0
    time.sleep(4.0)
    assert first.daemon_pid() == pid and is_active(first) and health(second)["status"] == "standby"
    check_log(server, database, titles)


def test_a_session_of_another_home_keeps_running_until_its_daemon_is_active_again(
    boxes: tuple[Sandbox, Sandbox],
) -> None:
    first, second = boxes
    first.start()
    first.ao("new", "[[say: here I am]] [[wait]] [[write: told.txt|yes]]", "--name", "life")
    first.wait_until(lambda: first.session("app-life")["status"] == "idle", "the agent")
    agent = first.session("app-life")["pid"]
    second.start()
    state = health(second)["active"]
    first.stop(signal.SIGKILL)
    second.wait_until(lambda: is_active(second), "the second to take over", 30)
    session = second.session("app-life")
    assert (session["status"], session["pid"]) == ("idle", agent)
    assert f"it lives in {state['host']}" in session["why"] and f":{first.home.path}, " in session["why"]
    second.ao("send", "app-life", "go on")
    with pytest.raises(AoError, match=f"app-life lives in {state['host']}"):
        second.request("GET", "/api/sessions/app-life/attach")
    stopped = second.ao("prune", check=False)
    assert stopped.returncode == 0
    first.start()
    assert health(first)["status"] == "standby"
    assert second.session("app-life")["status"] == "idle"
    assert not (first.home.worktrees / "app" / "life" / "told.txt").exists()
    second.ao("shutdown", "--sessions")  # it has no sessions itself
    first.wait_until(lambda: is_active(first), "the first to be active again", TAKEOVER)
    assert first.session("app-life")["pid"] == agent
    first.wait_until((first.home.worktrees / "app" / "life" / "told.txt").exists, "the message to arrive")
    kinds = [event["type"] for event in first.events("app-life")]
    assert kinds.count("agent-launched") == 1 and not {"agent-lost", "agent-exited"} & set(kinds)


# -- the whole loop ----------------------------------------------------------------------------------------------------


def test_the_demo_runs_on_postgresql(url: str, server: PostgresServer, database: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent_orchestrator.testing.demo", "--database", url],
        capture_output=True,
        text=True,
        timeout=300,
        env={name: value for name, value in os.environ.items() if not name.startswith("AO_")},
    )
    home = re.search(r"AO_HOME=(\S+)", done.stdout)
    assert home is not None, done.stdout + done.stderr
    try:
        assert done.returncode == 0 and "Four have landed; one waits" in done.stdout
        assert not any(secret in done.stdout + done.stderr for secret in SECRETS)
        (count,) = server.sql("SELECT count(*) FROM events", database)
        assert count[0] > 100
    finally:
        box = Sandbox(Path(home[1]).parent)
        box.ao("shutdown", "--sessions", check=False, cwd=Path("/"))
        box.clean_up()
        shutil.rmtree(box.folder)
