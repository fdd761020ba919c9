"""What all readers share: `Reading`, and names and messages that are the same in every run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_orchestrator.changes.checks.outcome import TestCounts

LONGEST_NAME = 400
LONGEST_MESSAGE = 300
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
UNLOADED = "unloaded"
"""A file or a package whose tests could not be run."""

_UNSTABLE = re.compile(
    r"0x[0-9a-fA-F]{4,}"
    r"|(?:/private)?/(?:tmp|var/folders|var/tmp)/[^\s'\"`,;:)\]}>]*"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
_DURATION = re.compile(
    r"\b\d+(?:\.\d+)? ?(?:ns|µs|us|ms|s|sec|secs|seconds?|min|mins|minutes?|m|h)\b"
    r"|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?|\b\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?\b"
)
_PLACE = re.compile(
    r"(?<=[A-Za-z_)\]'\"]):\d+(?::\d+)?\b|\b(line|lines|pid|port|seed|process|thread)(s?[ =:#]+)\d+|\(\d{3,}\)|\b\d{6,}\b"
)
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b")
_ENDING_TIME = re.compile(r"\s+\(?\d+(?:\.\d+)? ?(?:ns|µs|us|ms|s|sec|m|min)\)?$")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Test:
    """One test, or one file or package that could not be run."""

    __test__ = False

    name: str
    state: str
    message: str = ""


@dataclass(slots=True)
class Reading:
    """What one runner says."""

    runner: str
    tests: list[Test] = field(default_factory=list)
    counts: TestCounts | None = None
    """By the runner's own closing lines; none: as many as are named."""
    unique: bool = False
    """No two tests have the same name: what comes twice is the same test."""
    stopped: bool = False
    """It ended before all tests had been run."""
    runs: int = 1
    begin: int = 0
    """The lines that are this runner's, from this one …"""
    end: int = 0
    """… to before this one."""

    def names_passed(self) -> bool:
        """Whether as many tests are named as passed."""
        named = sum(1 for test in self.tests if test.state == PASSED)
        return self.counts is None or named >= self.counts.passed


def stable_name(text: str) -> str:
    """Return a test's name without what differs from run to run."""
    text = _SPACE.sub(" ", text).strip()
    if "0x" in text or "/tmp" in text or "/var" in text or "-" in text:
        text = _UNSTABLE.sub("…", text)
    return text[:LONGEST_NAME]


def without_time(text: str) -> str:
    """Return a name without the time that the test took at its end."""
    return _ENDING_TIME.sub("", text)


def stable_text(text: str) -> str:
    """Return a line without times, places, addresses and numbers of processes."""
    text = _UNSTABLE.sub("…", _SPACE.sub(" ", text).strip())
    text = _DURATION.sub("…", _PLACE.sub(r"\1\2…", text))
    return _HASH.sub("…", text)


def one_line(parts: str | Sequence[str]) -> str:
    """Return a message as one line."""
    text = parts if isinstance(parts, str) else " ".join(parts)
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"


def indent(line: str) -> int:
    """Return how far a line is indented."""
    return len(line) - len(line.lstrip(" "))


def following(lines: Sequence[str], number: int, stop: re.Pattern[str], most: int = 4) -> list[str]:
    """Return the next lines with text in them, up to one that matches `stop`."""
    found: list[str] = []
    for line in lines[number : number + 30]:
        text = line.strip()
        if stop.match(text) and (found or text):
            break
        if text:
            found.append(text)
        if len(found) == most:
            break
    return found
