"""`ao logs --daemon`: the daemon's log, with and without a running daemon."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent_orchestrator.cli.daemon.log import parse_fields
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


def test_the_log_is_read_without_a_daemon(log: Path, run: Run) -> None:
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
    entries = [json.loads(line) for line in run("logs", "--daemon", "--json").out.splitlines()]
    assert [entry.get("level") for entry in entries] == ["info", "warning", "error", None]
    assert entries[1]["session"] == "app-a" and entries[1]["error"] == 'it said "no"\nand no'
    assert entries[3] == {"event": "Fatal Python error: a line of nobody"}


@pytest.mark.parametrize("name", ["app-a", "a"])
def test_the_log_can_be_limited_to_a_session(log: Path, run: Run, name: str) -> None:
    lines = run("logs", "--daemon", name, "--json").out.splitlines()
    assert [json.loads(line)["session"] for line in lines] == ["app-a"]


def test_the_number_of_lines_can_be_limited(log: Path, run: Run) -> None:
    assert len(run("logs", "--daemon", "--json", "-n", "2").out.splitlines()) == 2
    assert run("logs", "--daemon", "-n", "0").out == ""
    log.write_text("timestamp=x level=info event=e\n" * 500)
    assert len(run("logs", "--daemon").out.splitlines()) == 100


def test_wrong_usage_is_explained(home: Path, run: Run) -> None:
    ran = run("logs", "--daemon")
    assert ran.code == 3 and str(home / "daemon.log") in ran.err and "ao start" in ran.err
    for argv in (["logs"], ["logs", "x", "--json"], ["logs", "--daemon", "--raw"]):
        assert run(*argv).code == 2, argv


def _entries(*numbers: int) -> str:
    return "".join(f"timestamp={number} level=info event=e{number}\n" for number in numbers)


def test_rotated_files_are_read_if_more_lines_are_requested(log: Path, run: Run) -> None:
    for name, numbers in (("daemon.log.2", (1, 2)), ("daemon.log.1", (3, 4)), ("daemon.log", (5, 6))):
        log.with_name(name).write_text(_entries(*numbers))

    def shown_events(*argv: str) -> list[str]:
        return [json.loads(line)["event"] for line in run("logs", "--daemon", "--json", *argv).out.splitlines()]

    assert shown_events() == ["e1", "e2", "e3", "e4", "e5", "e6"]
    assert (
        shown_events("-n", "3") == ["e4", "e5", "e6"]
        and shown_events("-n", "1") == ["e6"]
        and shown_events("-n", "0") == []
    )
    log.unlink()  # at the very moment when the next one is not made yet
    assert shown_events("-n", "3") == ["e2", "e3", "e4"]


def test_no_line_is_missed_while_the_followed_log_is_rotated(log: Path) -> None:
    log.write_text(_entries(0))
    command = [sys.executable, "-m", "agent_orchestrator", "logs", "--daemon", "-f", "--json", "-n", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    deadline = threading.Timer(90.0, process.kill)
    deadline.start()
    assert process.stdout is not None
    with process.stdout:
        try:
            output = [process.stdout.readline()]
            for first in (1, 10):
                with log.open("a") as file:
                    file.write(_entries(first))
                    for number in (first + 1, first + 3):  # twice between two reads
                        if (kept := log.with_name("daemon.log.1")).exists():
                            kept.rename(log.with_name("daemon.log.2"))
                        log.rename(kept)
                        log.write_text(_entries(number, number + 1))
                output += [process.stdout.readline() for _ in range(5)]
        finally:
            deadline.cancel()
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    numbers = [int(json.loads(line)["timestamp"]) for line in output]
    assert numbers == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14]


def test_following_continues_in_the_next_file(log: Path) -> None:
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


def test_a_message_that_looks_like_fields_is_not_parsed(log: Path) -> None:
    assert parse_fields('timestamp=1 level=info event="session=app-z level=error"') == {
        "timestamp": "1",
        "level": "info",
        "event": "session=app-z level=error",
    }
    assert parse_fields("the key=value of a stranger") == {"event": "the key=value of a stranger"}


FORGED = "timestamp=2026-01-02T03:04:09.0Z level=error event=lost a\x1b]0;owned\x07\x9b31mb=1"


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_text_in_a_message_makes_no_entry_and_no_control_sequence(log: Path, run: Run, how: tuple[str]) -> None:
    line = f'timestamp=2026-01-02T03:04:05.0Z level=warning event="a fetch failed" error="half\r{FORGED}"\n'
    log.write_bytes(line.encode())
    output = run("logs", "--daemon", *how).out
    assert len(output.splitlines()) == 1 and "a fetch failed" in output and "half" in output
    assert not set(output) & {"\x1b", "\x07", "\x9b", "\r"} and "\\u00" not in output


def test_text_in_the_log_file_has_no_control_characters(tmp_path: Path) -> None:
    imports = "import sys; from agent_orchestrator.base.log_setup import *"
    program = f"{imports}; set_up(sys.stdout); get_logger().warning('it failed', error=sys.argv[1])"
    completed = subprocess.run([sys.executable, "-c", program, f"half\r{FORGED}"], capture_output=True, check=True)
    assert completed.stdout.count(b"\n") == 1 and b"half\\x0dtimestamp=" in completed.stdout
    assert all(character.isprintable() for character in completed.stdout.decode().rstrip("\n"))
