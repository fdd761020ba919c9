"""The daemon's log: one format for all entries, with their session and without secrets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from agent_orchestrator.cli.daemon.log import parse_fields

PROGRAM = """
import logging, sys
from agent_orchestrator.base import log_setup as logs
logs.set_up(sys.stdout)
from agent_orchestrator.core.effects import log_context
from agent_orchestrator.base.text.redaction import REDACTOR
log = logs.get_logger()
with log_context("app-a"):
    log.warning("tried again", error="two\\nlines")
    log.warning("of another one", session="app-b")
log.info("of none")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("lib").exception("a library says %s", "no")
"""


@pytest.fixture(scope="module")
def entries() -> list[dict[str, str]]:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    return [parse_fields(line) for line in ran.stdout.splitlines()]


def test_every_entry_is_one_line_of_fields(entries: list[dict[str, str]]) -> None:
    assert [entry["event"] for entry in entries] == ["tried again", "of another one", "of none", "a library says no"]
    assert all(entry["timestamp"].endswith("Z") and len(entry["timestamp"]) == 27 for entry in entries)
    assert [entry["level"] for entry in entries] == ["warning", "warning", "info", "error"]
    assert entries[0]["error"] == "two\nlines"
    assert entries[3]["logger"] == "lib" and "ZeroDivisionError" in entries[3]["exception"]


def test_a_line_logged_within_an_effect_names_its_session(entries: list[dict[str, str]]) -> None:
    assert [entry.get("session") for entry in entries] == ["app-a", "app-b", None, None]


ROTATING_PROGRAM = """
import os, sys, threading
from pathlib import Path
from agent_orchestrator.base import log_setup as logs
path = Path(sys.argv[1])
logs.set_up(path.open("a")).enable_rotation(path, most=2000, kept=3)
log = logs.get_logger()
sys.setswitchinterval(1e-6)
def say(who):
    for number in range(40):
        log.info("said", who=who, number=number, more="x" * 10)
threads = [threading.Thread(target=say, args=(who,)) for who in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
os.write(2, b"last words\\n")
"""


def test_a_full_log_is_rotated_without_torn_or_lost_lines(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    with path.open("a") as other:  # another process that has it open
        subprocess.run([sys.executable, "-c", ROTATING_PROGRAM, str(path)], check=True)
        other.write("said by another\n")
    files = [tmp_path / f"daemon.log.{number}" for number in (3, 2, 1)] + [path]
    assert {each.name for each in tmp_path.iterdir()} == {each.name for each in files}
    assert all(each.stat().st_size < 2200 and each.stat().st_mode & 0o777 == 0o600 for each in files)
    assert all(each.stat().st_size >= 2000 for each in files[:-1]), "none was turned over twice"
    lines = [line for each in files for line in each.read_text().splitlines()]
    assert lines.pop() == "last words"
    entries = [parse_fields(line) for line in lines]
    assert {entry["event"] for entry in entries} == {"said"}
    for who in "0123":  # the oldest are gone, all later ones are there
        numbers = [int(entry["number"]) for entry in entries if entry["who"] == who]
        assert numbers == list(range(40))[40 - len(numbers) :]
    assert len(entries) > 40


def events_by_file(folder: Path) -> dict[str, list[str]]:
    """Return the events logged in each file."""
    return {
        each.name: [parse_fields(line)["event"] for line in each.read_text().splitlines()] for each in folder.iterdir()
    }


def test_without_a_free_descriptor_the_old_file_is_used_on(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    program = """
import resource, sys
from pathlib import Path
from agent_orchestrator.base import log_setup as logs
path = Path(sys.argv[1])
logs.set_up(path.open("a")).enable_rotation(path, most=100)
before = resource.getrlimit(resource.RLIMIT_NOFILE)
log = logs.get_logger()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
log.info("one", more="x" * 100)
log.info("two")
resource.setrlimit(resource.RLIMIT_NOFILE, before)
log.info("three")
log.info("four")
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert events_by_file(tmp_path) == {"daemon.log.1": ["one", "two", "three"], "daemon.log": ["four"]}


def test_another_file_at_the_logs_path_is_not_rotated(tmp_path: Path) -> None:
    path = tmp_path / "daemon.log"
    program = """
import sys
from pathlib import Path
from agent_orchestrator.base import log_setup as logs
path = Path(sys.argv[1])
logs.set_up(path.open("a")).enable_rotation(path, most=100)
path.rename(path.with_name("away"))
path.write_text("of another\\n")
logs.get_logger().info("one", more="x" * 100)
logs.get_logger().info("two")
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert events_by_file(tmp_path) == {"away": ["one"], "daemon.log": ["of another", "two"]}


def test_a_log_that_cannot_be_written_does_not_stop_the_program() -> None:
    program = (
        "from agent_orchestrator.base import log_setup as logs; logs.set_up(open('/dev/full', 'w')); import logging\n"
    )
    program += "logs.get_logger().warning('x'); logging.getLogger('library').warning('y'); print('goes on')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode, done.stderr) == ("goes on\n", 0, "")
