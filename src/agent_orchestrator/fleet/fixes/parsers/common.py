"""What all parsers share: what was said, paths as they are in the repository, and how a failure is made of it."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.changes.checks.summary import plain
from agent_orchestrator.fleet.fixes.model import LONGEST_MESSAGE, Failure, Frame, Tool, cut, stable_id

_STRANGE = re.compile(r"(?:^|/)(?:site-packages|dist-packages|node_modules|\.venv|venv|\.tox|\.nox)(?:/|$)")


@dataclass(frozen=True, slots=True)
class Said:
    """How a tool ended, and what it left."""

    tool: Tool
    code: int
    out: str
    err: str = ""
    top: str = ""
    """The repository's top, as the tool saw it."""
    reports: tuple[Path, ...] = ()
    """Report files that it wrote."""

    @property
    def lines(self) -> list[str]:
        """All that it printed."""
        return plain(f"{self.out}\n{self.err}").split("\n")

    def path(self, name: str) -> str:
        """A file as it is called in the repository; what is outside of it stays as it is."""
        name = name.removeprefix("file://").replace("\\", "/")
        if self.top and name.startswith(f"{self.top}/"):
            return name[len(self.top) + 1 :]
        if not name or name.startswith("/"):
            return name
        return posixpath.normpath(posixpath.join(self.tool.folder, name))

    def inside(self, text: str) -> str:
        """Words with files as they are called in the repository: no two checkouts are at the same place."""
        return text.replace(f"{self.top}/", "") if self.top else text


@dataclass(slots=True)
class Found:
    """What a parser made of it."""

    failures: list[Failure] = field(default_factory=list)
    tests: dict[str, str] = field(default_factory=dict)
    executed: int = 0
    """How many tests were run, where not all are named."""
    hidden: list[str] = field(default_factory=list)
    problem: str = ""


def is_own(path: str) -> bool:
    """Is a file the project's own?"""
    return bool(path) and not path.startswith(("/", "../", "<", "node:")) and not _STRANGE.search(path)


def complaint(said: Said, file: str, line: int, rule: str, message: str, detail: str = "", hint: str = "") -> Failure:
    """What a linter, a compiler or a type checker says about a place."""
    words = said.inside(" ".join(message.split()))
    return Failure(
        tool=said.tool.name,
        id=stable_id(file, rule, words),
        message=words[:LONGEST_MESSAGE],
        file=file,
        line=line,
        detail=cut(said.inside(detail) or (f"{words}\n{hint}" if hint else words)),
        rule=rule,
        frames=(Frame(file, line),) if is_own(file) and line else (),
    )


def test_failure(
    said: Said,
    name: str,
    file: str,
    message: str,
    detail: str,
    rule: str = "",
    frames: Iterable[Frame] = (),
    line: int = 0,
) -> Failure:
    """A test that fails."""
    return Failure(
        tool=said.tool.name,
        id=name,
        message=said.inside(" ".join(message.split()))[:LONGEST_MESSAGE],
        file=file,
        line=line,
        detail=cut(said.inside(plain(detail))),
        rule=rule,
        test=True,
        frames=tuple(frames),
    )


def json_lines(text: str) -> Iterator[Mapping[str, Any]]:
    """The lines that are JSON objects."""
    for line in text.splitlines():
        if line.lstrip().startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found


def as_number(value: object) -> int:
    """A line number of a stranger's report; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
