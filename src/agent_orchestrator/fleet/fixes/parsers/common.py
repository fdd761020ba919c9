"""What all parsers share: the output of a tool, paths relative to the repository, and functions that make failures."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.changes.checks.summary import strip_escapes
from agent_orchestrator.fleet.fixes.model import (
    MAX_MESSAGE_LENGTH,
    CheckTool,
    StackFrame,
    ToolFailure,
    shorten_middle,
    stable_id,
)

_DEPENDENCY_FOLDER = re.compile(r"(?:^|/)(?:site-packages|dist-packages|node_modules|\.venv|venv|\.tox|\.nox)(?:/|$)")


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The output of a tool: its exit code, text and reports."""

    tool: CheckTool
    code: int
    out: str
    err: str = ""
    top: str = ""
    """The repository's top folder, as the tool saw it."""
    reports: tuple[Path, ...] = ()
    """Report files that the tool wrote."""

    @property
    def lines(self) -> list[str]:
        """Everything that the tool printed, without terminal codes."""
        return strip_escapes(f"{self.out}\n{self.err}").split("\n")

    def relative_path(self, name: str) -> str:
        """Return a file's path relative to the repository; a path outside of it stays absolute."""
        name = name.removeprefix("file://").replace("\\", "/")
        if self.top and name.startswith(f"{self.top}/"):
            return name[len(self.top) + 1 :]
        if not name or name.startswith("/"):
            return name
        return posixpath.normpath(posixpath.join(self.tool.folder, name))

    def with_relative_paths(self, text: str) -> str:
        """Return a text with paths relative to the repository, because each checkout is in another folder."""
        return text.replace(f"{self.top}/", "") if self.top else text


@dataclass(slots=True)
class ParseResult:
    """The result of a parser."""

    failures: list[ToolFailure] = field(default_factory=list)
    tests: dict[str, str] = field(default_factory=dict)
    executed: int = 0
    """How many tests were run, if not all are named."""
    hidden: list[str] = field(default_factory=list)
    problem: str = ""


def is_own(path: str) -> bool:
    """Return whether a file is the project's own, not a dependency's or outside of the repository."""
    return bool(path) and not path.startswith(("/", "../", "<", "node:")) and not _DEPENDENCY_FOLDER.search(path)


def tool_failure(
    output: ToolOutput, file: str, line: int, rule: str, message: str, detail: str = "", hint: str = ""
) -> ToolFailure:
    """Return the failure for an error of a linter, compiler or type checker."""
    text = output.with_relative_paths(" ".join(message.split()))
    return ToolFailure(
        tool=output.tool.name,
        id=stable_id(file, rule, text),
        message=text[:MAX_MESSAGE_LENGTH],
        file=file,
        line=line,
        detail=shorten_middle(output.with_relative_paths(detail) or (f"{text}\n{hint}" if hint else text)),
        rule=rule,
        frames=(StackFrame(file, line),) if is_own(file) and line else (),
    )


def test_failure(
    output: ToolOutput,
    name: str,
    file: str,
    message: str,
    detail: str,
    rule: str = "",
    frames: Iterable[StackFrame] = (),
    line: int = 0,
) -> ToolFailure:
    """Return the failure for a test."""
    return ToolFailure(
        tool=output.tool.name,
        id=name,
        message=output.with_relative_paths(" ".join(message.split()))[:MAX_MESSAGE_LENGTH],
        file=file,
        line=line,
        detail=shorten_middle(output.with_relative_paths(strip_escapes(detail))),
        rule=rule,
        test=True,
        frames=tuple(frames),
    )


def json_lines(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the lines that are JSON objects."""
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            try:
                data = json.loads(line)
            except ValueError:
                continue
            if isinstance(data, dict):
                yield data


def as_number(value: object) -> int:
    """Return a line number of a tool's report, or 0 if it is not a positive whole number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
