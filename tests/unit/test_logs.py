"""The daemon's log: one form for all that is said, with the session that it is about, and without secrets."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agent_orchestrator.cli.daemon_log import fields

PROGRAM = """
import logging, sys
from agent_orchestrator import logs
logs.set_up(sys.stdout)
from agent_orchestrator.flow.effects import about
from agent_orchestrator.redaction import KNOWN
log = logs.get_logger()
with about("app-a"):
    log.warning("tried again", error="two\\nlines")
    log.warning("of another one", session="app-b")
log.info("of none")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("lib").exception("a library says %s", "no")
"""


@pytest.fixture(scope="module")
def told() -> list[dict[str, str]]:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    return [fields(line) for line in ran.stdout.splitlines()]


def test_every_entry_is_one_line_of_fields(told: list[dict[str, str]]) -> None:
    assert [entry["event"] for entry in told] == ["tried again", "of another one", "of none", "a library says no"]
    assert all(entry["timestamp"].endswith("Z") and len(entry["timestamp"]) == 27 for entry in told)
    assert [entry["level"] for entry in told] == ["warning", "warning", "info", "error"]
    assert told[0]["error"] == "two\nlines"
    assert told[3]["logger"] == "lib" and "ZeroDivisionError" in told[3]["exception"]


def test_what_an_effect_says_names_its_session(told: list[dict[str, str]]) -> None:
    assert [entry.get("session") for entry in told] == ["app-a", "app-b", None, None]


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    said = "from agent_orchestrator import logs; logs.set_up(open('/dev/full', 'w')); import logging\n"
    said += "logs.get_logger().warning('x'); logging.getLogger('library').warning('y'); print('goes on')"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode, done.stderr) == ("goes on\n", 0, "")
