"""`ao logs --daemon`: the daemon's log, while it runs and while it does not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_orchestrator.cli.daemon.log import fields
from tests.unit.cli.conftest import Run

LINES = r"""timestamp=2026-01-02T03:04:05.000001Z level=info event=serving url=http://127.0.0.1:3000
timestamp=2026-01-02T03:04:06.000001Z level=warning event="an effect is tried again" session=app-a error="it said \"no\"\nand no"
timestamp=2026-01-02T03:04:07.000001Z level=error event="an effect failed unexpectedly" session=app-b exception="Traceback\n  KeyError"
Fatal Python error: a line of nobody
"""


@pytest.fixture
def log(home: Path) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    (home / "daemon.log").write_text(LINES)
    return home / "daemon.log"


def test_it_is_read_without_a_daemon(log: Path, run: Run) -> None:
    ran = run("logs", "--daemon")
    assert ran.code == 0 and not (log.parent / "daemon.lock").exists()
    assert ran.out.splitlines() == [
        "2026-01-02 03:04:05  info     serving  url=http://127.0.0.1:3000",
        '2026-01-02 03:04:06  warning  an effect is tried again  session=app-a error=it said "no" and no',
        "2026-01-02 03:04:07  error    an effect failed unexpectedly  session=app-b",
        "    Traceback",
        "      KeyError",
        "Fatal Python error: a line of nobody",
    ]


def test_as_json_every_line_is_an_object(log: Path, run: Run) -> None:
    found = [json.loads(line) for line in run("logs", "--daemon", "--json").out.splitlines()]
    assert [entry.get("level") for entry in found] == ["info", "warning", "error", None]
    assert found[1]["session"] == "app-a" and found[1]["error"] == 'it said "no"\nand no'
    assert found[3] == {"event": "Fatal Python error: a line of nobody"}


@pytest.mark.parametrize("name", ["app-a", "a"])
def test_of_one_session(log: Path, run: Run, name: str) -> None:
    found = run("logs", "--daemon", name, "--json").out.splitlines()
    assert [json.loads(line)["session"] for line in found] == ["app-a"]


def test_the_last_lines(log: Path, run: Run) -> None:
    assert len(run("logs", "--daemon", "--json", "-n", "2").out.splitlines()) == 2
    assert run("logs", "--daemon", "-n", "0").out == ""
    log.write_text("timestamp=x level=info event=e\n" * 500)
    assert len(run("logs", "--daemon").out.splitlines()) == 100


def test_what_is_asked_for_wrongly_is_said(home: Path, run: Run) -> None:
    ran = run("logs", "--daemon")
    assert ran.code == 3 and str(home / "daemon.log") in ran.err and "ao start" in ran.err
    for argv in (["logs"], ["logs", "x", "--json"], ["logs", "--daemon", "--raw"]):
        assert run(*argv).code == 2, argv


def _entries(*numbers: int) -> str:
    return "".join(f"timestamp={number} level=info event=e{number}\n" for number in numbers)


def test_what_was_turned_over_is_shown_where_more_lines_are_asked_for(log: Path, run: Run) -> None:
    for name, numbers in (("daemon.log.2", (1, 2)), ("daemon.log.1", (3, 4)), ("daemon.log", (5, 6))):
        log.with_name(name).write_text(_entries(*numbers))

    def shown(*argv: str) -> list[str]:
        return [json.loads(line)["event"] for line in run("logs", "--daemon", "--json", *argv).out.splitlines()]

    assert shown() == ["e1", "e2", "e3", "e4", "e5", "e6"]
    assert shown("-n", "3") == ["e4", "e5", "e6"] and shown("-n", "1") == ["e6"] and shown("-n", "0") == []
    log.unlink()  # at the very moment when the next one is not made yet
    assert shown("-n", "3") == ["e2", "e3", "e4"]


def test_nothing_is_missed_while_it_is_followed_and_turned_over(log: Path) -> None:
    log.write_text(_entries(0))
    command = [sys.executable, "-m", "agent_orchestrator", "logs", "--daemon", "-f", "--json", "-n", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    enough = threading.Timer(90.0, process.kill)
    enough.start()
    assert process.stdout is not None
    with process.stdout:
        try:
            seen = [process.stdout.readline()]
            for first in (1, 10):
                with log.open("a") as file:
                    file.write(_entries(first))
                    for number in (first + 1, first + 3):  # twice, between two looks at it
                        if (kept := log.with_name("daemon.log.1")).exists():
                            kept.rename(log.with_name("daemon.log.2"))
                        log.rename(kept)
                        log.write_text(_entries(number, number + 1))
                seen += [process.stdout.readline() for _ in range(5)]
        finally:
            enough.cancel()
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    told = [int(json.loads(line)["timestamp"]) for line in seen]
    assert told == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14]


def test_it_is_followed_into_the_next_file(log: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "agent_orchestrator", "logs", "--daemon", "-f", "--json", "-n", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            assert "nobody" in process.stdout.readline()
            with log.open("a") as file:
                file.write("timestamp=1 level=info event=second")
                file.flush()
                file.write("\n")
            assert json.loads(process.stdout.readline())["event"] == "second"
            log.unlink()
            log.write_text("timestamp=2 level=info event=third\n" + LINES * 9)  # longer than what it takes the place of
            assert json.loads(process.stdout.readline())["event"] == "third"
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_a_message_that_looks_like_fields_is_none(log: Path) -> None:
    assert fields('timestamp=1 level=info event="session=app-z level=error"') == {
        "timestamp": "1",
        "level": "info",
        "event": "session=app-z level=error",
    }
    assert fields("the key=value of a stranger") == {"event": "the key=value of a stranger"}


FORGED = "timestamp=2026-01-02T03:04:09.0Z level=error event=lost a\x1b]0;owned\x07\x9b31mb=1"


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_what_somebody_said_makes_no_entry_and_steers_no_terminal(log: Path, run: Run, how: tuple[str]) -> None:
    line = f'timestamp=2026-01-02T03:04:05.0Z level=warning event="a fetch failed" error="half\r{FORGED}"\n'
    log.write_bytes(line.encode())
    shown = run("logs", "--daemon", *how).out
    assert len(shown.splitlines()) == 1 and "a fetch failed" in shown and "half" in shown
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\r"} and "\\u00" not in shown


def test_neither_does_the_file_itself(tmp_path: Path) -> None:
    imports = "import sys; from agent_orchestrator.base.log_setup import *"
    program = f"{imports}; set_up(sys.stdout); get_logger().warning('it failed', error=sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", program, f"half\r{FORGED}"], capture_output=True, check=True)
    assert done.stdout.count(b"\n") == 1 and b"half\\x0dtimestamp=" in done.stdout
    assert all(character.isprintable() for character in done.stdout.decode().rstrip("\n"))
