"""Shared parts of all readers: `RunnerReading`, and functions that make names and messages the same in every run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_orchestrator.changes.checks.outcome import TestCounts

MAX_NAME_LENGTH = 400
MAX_MESSAGE_LENGTH = 300
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
UNLOADED = "unloaded"
"""State of a file or a package whose tests could not be run."""

_UNSTABLE = re.compile(
    r"0x[0-9a-fA-F]{4,}"
    r"|(?:/private)?/(?:tmp|var/folders|var/tmp)/[^\s'\"`,;:)\]}>]*"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
)
_DURATION = re.compile(
    r"\b\d+(?:\.\d+)? ?(?:ns|µs|us|ms|s|sec|secs|seconds?|min|mins|minutes?|m|h)\b"
    r"|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?|\b\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?\b"
)
_LINE_OR_NUMBER = re.compile(
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
class RunnerReading:
    """What one reader found in an output."""

    runner: str
    tests: list[Test] = field(default_factory=list)
    counts: TestCounts | None = None
    """The numbers in the runner's own closing lines, or None if only the named tests can be counted."""
    has_unique_names: bool = False
    """Whether no two tests have the same name, so that a repeated name is the same test."""
    stopped: bool = False
    """Whether the run ended before all tests had been run."""
    runs: int = 1
    begin: int = 0
    """First line of this runner's output."""
    end: int = 0
    """Line after the last one of this runner's output."""

    def has_passed_names(self) -> bool:
        """Return whether all passed tests are named."""
        passed_count = sum(1 for test in self.tests if test.state == PASSED)
        return self.counts is None or passed_count >= self.counts.passed


def stable_name(text: str) -> str:
    """Return a test's name without the parts that differ from run to run."""
    text = _SPACE.sub(" ", text).strip()
    if "0x" in text or "/tmp" in text or "/var" in text or "-" in text:
        text = _UNSTABLE.sub("…", text)
    return text[:MAX_NAME_LENGTH]


def without_time(text: str) -> str:
    """Return a name without the duration at its end."""
    return _ENDING_TIME.sub("", text)


def stable_text(text: str) -> str:
    """Return a line without times, line numbers, addresses and process numbers."""
    text = _UNSTABLE.sub("…", _SPACE.sub(" ", text).strip())
    text = _DURATION.sub("…", _LINE_OR_NUMBER.sub(r"\1\2…", text))
    return _HASH.sub("…", text)


def one_line(parts: str | Sequence[str]) -> str:
    """Return a message as one line of at most `MAX_MESSAGE_LENGTH` characters."""
    text = parts if isinstance(parts, str) else " ".join(parts)
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= MAX_MESSAGE_LENGTH else f"{text[: MAX_MESSAGE_LENGTH - 1]}…"


def indent(line: str) -> int:
    """Return the number of spaces at the start of a line."""
    return len(line) - len(line.lstrip(" "))


def next_lines(lines: Sequence[str], number: int, stop: re.Pattern[str], most: int = 4) -> list[str]:
    """Return the next lines with text in them, at most `most`, up to one that matches `stop`."""
    texts: list[str] = []
    for line in lines[number : number + 30]:
        text = line.strip()
        if stop.match(text) and (texts or text):
            break
        if text:
            texts.append(text)
        if len(texts) == most:
            break
    return texts
