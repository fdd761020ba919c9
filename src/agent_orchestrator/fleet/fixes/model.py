"""A measurement: which tools ran, what fails, which tests there are. As dataclasses, and as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

LONGEST_DETAIL = 4000
LONGEST_MESSAGE = 400
LONGEST_NAME = 40
CI, GIVEN, FOUND, LINT = "ci", "given", "found", "lint"
EVERYTHING = ""
"""The scope of a tool that could look at nothing at all."""

_VARYING = (
    (re.compile(r"\b(line|lines|column|col) \d+\b"), r"\1 N"),
    (re.compile(r"0x[0-9a-fA-F]{4,}"), "0xN"),
    (re.compile(r":\d+:\d+"), ":N:N"),
)


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that finds failures, and how it is run."""

    kind: str
    """`pytest`, `ruff`, …, or `command` for one that is not known."""
    command: str
    """As a person would run it."""
    folder: str = ""
    """Where, below the repository's top."""
    source: str = FOUND
    """`ci`: a configured check; `given`: a command named for this run; by the project's files: `found` for tests, `lint` for the rest."""
    label: str = ""
    """What it is called where its kind is not enough: see `labelled`."""

    @property
    def name(self) -> str:
        """How it is called in tables."""
        if self.label:
            return self.label
        if self.kind == "command":
            return _shortened(self.command)
        return f"{self.kind} ({self.folder})" if self.folder else self.kind


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in the project's code that an error passed through."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is wrong."""

    tool: str
    id: str
    """The same for the same failure wherever its line has moved to."""
    message: str
    file: str = ""
    line: int = 0
    detail: str = ""
    rule: str = ""
    """The linter's rule, the compiler's code, or the exception's type."""
    test: bool = False
    """A test fails; it must be there afterwards, and pass."""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """What one tool said."""

    tool: Tool
    problem: str = ""
    """Why it could not be run; nothing is known then."""
    lacks: str = ""
    """What its environment lacks: `module humanize not found`; there is a `problem` then."""
    absent: bool = False
    """Its own program is not installed."""
    failures: tuple[Failure, ...] = ()
    tests: Mapping[str, str] = field(default_factory=dict)
    """Test → `passed`, `failed` or `skipped`; empty where not all are named."""
    executed: int = 0
    """How many tests were run, where they are not named."""
    hidden: tuple[str, ...] = ()
    """Files or packages that it could not look into because of a failure; `EVERYTHING`: none at all."""
    seconds: float = 0.0

    @property
    def tests_run(self) -> int:
        """How many tests were run, named or not."""
        return self.executed or sum(state != "skipped" for state in self.tests.values())


@dataclass(frozen=True, slots=True)
class Report:
    """Everything measured at one commit."""

    tools: tuple[Measured, ...] = ()
    silenced: Mapping[str, int] = field(default_factory=dict)
    """Kind of comment or mark that silences a tool → how often it stands in the repository."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """File → digest of what it says to the tools."""

    @property
    def failures(self) -> list[Failure]:
        """All of them."""
        return [failure for one in self.tools for failure in one.failures]

    @property
    def counts(self) -> dict[str, int]:
        """Failures by tool."""
        return {one.tool.name: len(one.failures) for one in self.tools}

    @property
    def problems(self) -> dict[str, str]:
        """Tools that could not be run, and why."""
        return {one.tool.name: one.problem for one in self.tools if one.problem}

    @property
    def lacks(self) -> str:
        """What the environment lacks, by the first tool that says so."""
        return next((one.lacks for one in self.tools if one.lacks), "")

    def found(self, tool: Tool) -> Measured | None:
        """What that tool said."""
        return next((one for one in self.tools if one.tool == tool), None)


def labelled(tools: Sequence[Tool]) -> list[Tool]:
    """The tools, each with a name of its own: failures are counted by name."""
    taken: set[str] = set()
    found = []
    times = Counter(tool.name for tool in tools)
    for tool in dict.fromkeys(tools):
        name = tool.name if times[tool.name] == 1 else _shortened(tool.command)
        number = 2
        unique = name
        while unique in taken:
            unique = f"{name} ({number})"
            number += 1
        taken.add(unique)
        found.append(tool if unique == tool.name else replace(tool, label=unique))
    return found


def _shortened(command: str) -> str:
    text = " ".join(command.split())
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def stable_id(*parts: str) -> str:
    """An identity that does not depend on where a line is."""
    text = ":".join(parts)
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return " ".join(text.split())[:500]


def tally(failures: Sequence[Failure]) -> Counter[tuple[str, str]]:
    """How often each failure is there, by tool and id."""
    return Counter((one.tool, one.id) for one in failures)


def cut(text: str, room: int = LONGEST_DETAIL) -> str:
    """A text of at most so many characters: its beginning and its end."""
    if len(text) <= room:
        return text
    head = room // 2
    return f"{text[:head]}\n…\n{text[-(room - head - 3) :]}"


def as_json(report: Report) -> dict[str, Any]:
    """A report as JSON data."""
    return asdict(report)


def tool_from(data: Mapping[str, Any]) -> Tool:
    """What `asdict` made of a tool."""
    source, label = str(data.get("source") or FOUND), str(data.get("label") or "")
    return Tool(str(data["kind"]), str(data["command"]), str(data.get("folder") or ""), source, label)


def failure_from(data: Mapping[str, Any]) -> Failure:
    """What `asdict` made of a failure."""
    frames = tuple(Frame(**frame) for frame in data.get("frames") or ())
    return Failure(**{**data, "frames": frames})


def report_from(data: Mapping[str, Any]) -> Report:
    """What `as_json` made of a report."""
    tools = tuple(
        Measured(
            tool=tool_from(one["tool"]),
            problem=one["problem"],
            lacks=str(one.get("lacks") or ""),
            absent=bool(one.get("absent")),
            failures=tuple(failure_from(failure) for failure in one["failures"]),
            tests=dict(one["tests"]),
            executed=int(one.get("executed") or 0),
            hidden=tuple(one["hidden"]),
            seconds=one["seconds"],
        )
        for one in data["tools"]
    )
    return Report(tools, dict(data["silenced"]), dict(data["settings"]))
