"""The data of a measurement: which tools ran, what fails, which tests there are; as dataclasses and as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

MAX_DETAIL_LENGTH = 4000
MAX_MESSAGE_LENGTH = 400
MAX_NAME_LENGTH = 40
FROM_CI, FROM_OPTIONS, DETECTED, LINTER = "ci", "given", "found", "lint"
EVERYTHING = ""
"""The scope of a tool that could not check anything."""

_VARYING_PARTS = (
    (re.compile(r"\b(line|lines|column|col) \d+\b"), r"\1 N"),
    (re.compile(r"0x[0-9a-fA-F]{4,}"), "0xN"),
    (re.compile(r":\d+:\d+"), ":N:N"),
)


@dataclass(frozen=True, slots=True)
class CheckTool:
    """A program that finds failures, and how it is run."""

    kind: str
    """`pytest`, `ruff`, …, or `command` for an unknown one."""
    command: str
    """The command as a person would run it."""
    folder: str = ""
    """The folder to run it in, relative to the repository's top."""
    source: str = DETECTED
    """`ci`: a configured check; `given`: a command named for this run; by the project's files: `found` for tests, `lint` for others."""
    label: str = ""
    """The name if the kind alone is not unique: see `labelled`."""

    @property
    def name(self) -> str:
        """The name of the tool in tables."""
        if self.label:
            return self.label
        if self.kind == "command":
            return _shorten(self.command)
        return f"{self.kind} ({self.folder})" if self.folder else self.kind


@dataclass(frozen=True, slots=True)
class StackFrame:
    """A place in the project's code that an error passed through."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, slots=True)
class ToolFailure:
    """One failure of a tool or test."""

    tool: str
    id: str
    """The identity of the failure, which stays the same if its line moves."""
    message: str
    file: str = ""
    line: int = 0
    detail: str = ""
    rule: str = ""
    """The linter's rule, the compiler's code, or the exception's type."""
    test: bool = False
    """It is a failing test, which must exist and pass once it is fixed."""
    frames: tuple[StackFrame, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one tool."""

    tool: CheckTool
    problem: str = ""
    """Why the tool could not be run, in which case there are no results; "" if it was run."""
    lacks: str = ""
    """What its environment lacks: `module humanize not found`; `problem` is set then."""
    absent: bool = False
    """The tool's own program is not installed."""
    failures: tuple[ToolFailure, ...] = ()
    tests: Mapping[str, str] = field(default_factory=dict)
    """Test → `passed`, `failed` or `skipped`; empty if not all tests are named."""
    executed: int = 0
    """How many tests were run, if they are not named."""
    hidden: tuple[str, ...] = ()
    """Files or packages that could not be checked because of a failure; `EVERYTHING` if nothing could."""
    seconds: float = 0.0

    @property
    def tests_run(self) -> int:
        """How many tests were run, named or not."""
        return self.executed or sum(state != "skipped" for state in self.tests.values())


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all tools at one commit."""

    tools: tuple[ToolResult, ...] = ()
    silenced: Mapping[str, int] = field(default_factory=dict)
    """Kind of comment or mark that silences a tool → how often it occurs in the repository."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """File → digest of the settings for tools in it."""

    @property
    def failures(self) -> list[ToolFailure]:
        """The failures of all tools."""
        return [failure for result in self.tools for failure in result.failures]

    @property
    def counts(self) -> dict[str, int]:
        """Failures by tool."""
        return {result.tool.name: len(result.failures) for result in self.tools}

    @property
    def problems(self) -> dict[str, str]:
        """Tools that could not be run, and why."""
        return {result.tool.name: result.problem for result in self.tools if result.problem}

    @property
    def lacks(self) -> str:
        """What the environment lacks, by the first tool that reports it."""
        return next((result.lacks for result in self.tools if result.lacks), "")

    def result_of(self, tool: CheckTool) -> ToolResult | None:
        """Return the result of a tool, or None if it was not run."""
        return next((result for result in self.tools if result.tool == tool), None)


def with_unique_names(tools: Sequence[CheckTool]) -> list[CheckTool]:
    """Return the tools without repetitions, each with a unique name, because failures are counted by name."""
    names: set[str] = set()
    labelled_tools = []
    name_counts = Counter(tool.name for tool in tools)
    for tool in dict.fromkeys(tools):
        name = tool.name if name_counts[tool.name] == 1 else _shorten(tool.command)
        number = 2
        unique = name
        while unique in names:
            unique = f"{name} ({number})"
            number += 1
        names.add(unique)
        labelled_tools.append(tool if unique == tool.name else replace(tool, label=unique))
    return labelled_tools


def _shorten(command: str) -> str:
    """Return a command as a name of limited length."""
    text = " ".join(command.split())
    return text if len(text) <= MAX_NAME_LENGTH else f"{text[: MAX_NAME_LENGTH - 1]}…"


def stable_id(*parts: str) -> str:
    """Return an identity that does not depend on line numbers."""
    text = ":".join(parts)
    for pattern, replacement in _VARYING_PARTS:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())[:500]


def tally(failures: Sequence[ToolFailure]) -> Counter[tuple[str, str]]:
    """Return how often each failure occurs, by tool and id."""
    return Counter((failure.tool, failure.id) for failure in failures)


def shorten_middle(text: str, room: int = MAX_DETAIL_LENGTH) -> str:
    """Return a text of at most `room` characters: its beginning and its end."""
    if len(text) <= room:
        return text
    head = room // 2
    return f"{text[:head]}\n…\n{text[-(room - head - 3) :]}"


def report_to_json(report: Report) -> dict[str, Any]:
    """Return a report as JSON data."""
    return asdict(report)


def tool_from_json(data: Mapping[str, Any]) -> CheckTool:
    """Return a tool from the data that `asdict` made."""
    source, label = str(data.get("source") or DETECTED), str(data.get("label") or "")
    return CheckTool(str(data["kind"]), str(data["command"]), str(data.get("folder") or ""), source, label)


def failure_from_json(data: Mapping[str, Any]) -> ToolFailure:
    """Return a failure from the data that `asdict` made."""
    frames = tuple(StackFrame(**frame) for frame in data.get("frames") or ())
    return ToolFailure(**{**data, "frames": frames})


def report_from_json(data: Mapping[str, Any]) -> Report:
    """Return a report from the data that `report_to_json` made."""
    tools = tuple(
        ToolResult(
            tool=tool_from_json(tool_data["tool"]),
            problem=tool_data["problem"],
            lacks=str(tool_data.get("lacks") or ""),
            absent=bool(tool_data.get("absent")),
            failures=tuple(failure_from_json(failure) for failure in tool_data["failures"]),
            tests=dict(tool_data["tests"]),
            executed=int(tool_data.get("executed") or 0),
            hidden=tuple(tool_data["hidden"]),
            seconds=tool_data["seconds"],
        )
        for tool_data in data["tools"]
    )
    return Report(tools, dict(data["silenced"]), dict(data["settings"]))
