"""What came of a check, and where that is remembered: one file a tree and a check, so that the same content is never tested twice."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from agent_orchestrator.changes.checks.outcome import Outcome, TestCounts
from agent_orchestrator.changes.checks.spec import digest, file_name

State = Literal["success", "failure", "flaky", "timed_out", "cancelled"]
_REMEMBERED = ("success", "failure", "flaky")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a check of one tree."""

    state: State
    tree: str
    exit_code: int | None
    """None: it was killed, or never got to run."""
    seconds: float
    log: Path
    summary: str
    """What went wrong: the relevant part of the output as plain text of at most 4 kB, below one line that says how it ended."""
    outcome: Outcome = field(default_factory=Outcome)
    """What it says, test by test."""
    obstacle: str = ""
    """What kept it from a verdict on the content: a missing module, a command that is not installed, a signal …"""
    cached: bool = False
    """It was known already; nothing ran."""
    runs: int = 1
    """How often this content was tested for this result: 2 once a failure was confirmed or found flaky."""
    at: float = 0.0
    """When it ended."""
    set_up_seconds: float = 0.0
    """How long the set-up commands took; 0 if an earlier check's set-up was used."""
    left: tuple[str, ...] = ()
    """Untracked files and folders after a run from scratch, folders with a `/` at the end."""

    @property
    def about_content(self) -> bool:
        """Whether the same content would give the same result again: not if it ran out of time or the environment lacked something."""
        return self.state in _REMEMBERED and not self.obstacle

    @property
    def tests(self) -> TestCounts | None:
        """How many tests there were, if the output says so."""
        return self.outcome.counts


class Results:
    """The results of a home."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def log(self, project: str, tree: str, name: str) -> Path:
        """Where the output of the last run of a check on a tree is, also while it runs."""
        return self._folder / file_name(project) / file_name(tree) / f"{file_name(name)}.log"

    def read(self, project: str, tree: str, name: str, key: str) -> Result | None:
        """What is known of a check on a tree; `key` stands for its command and set-up. Unreadable is unknown."""
        file = self.log(project, tree, name).with_suffix(".json")
        try:
            found = json.loads(file.read_bytes())
            if found["key"] != key:
                return None
            result = _result(found["result"], self.log(project, tree, name))
            if result.tree != tree or not result.about_content:
                return None
        except (OSError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            return None
        with contextlib.suppress(OSError):
            os.utime(file.parent)
        return result

    def write(self, project: str, name: str, key: str, result: Result) -> None:
        """Remember a result; one that says nothing about the content makes an earlier one forgotten instead."""
        file = self.log(project, result.tree, name).with_suffix(".json")
        if not result.about_content:
            file.unlink(missing_ok=True)
            return
        known = {**asdict(result), "log": None}
        write_atomically(file, {"key": key, "result": known})

    def executed(self, project: str, command: str) -> int:
        """Return how many tests the last run of a command that executed any had, whatever its content; 0 if there was none."""
        try:
            return int(json.loads(self._executed_file(project, command).read_bytes())["tests"])
        except (OSError, LookupError, RecursionError, TypeError, ValueError):
            return 0

    def note_executed(self, project: str, command: str, tests: int) -> None:
        """Remember that a run of a command executed so many tests."""
        if tests and tests != self.executed(project, command):
            write_atomically(self._executed_file(project, command), {"tests": tests})

    def _executed_file(self, project: str, command: str) -> Path:
        return self._folder / file_name(project) / f"executed-{digest(command)}.json"

    def forget_before(self, moment: float) -> None:
        """Remove the results and logs of trees that nobody asked for since."""
        for tree in self._folder.glob("*/*"):
            with contextlib.suppress(OSError):
                if tree.stat().st_mtime < moment:
                    shutil.rmtree(tree)


def _result(found: dict[str, Any], log: Path) -> Result:
    outcome = found.pop("outcome")
    counts = outcome.pop("counts")
    lists: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in outcome.items()
    }
    said = Outcome(**lists, counts=TestCounts(**counts) if counts else None)
    return Result(**{**found, "log": log, "cached": True, "outcome": said, "left": tuple(found.get("left", ()))})


def write_atomically(file: Path, content: object) -> None:
    """Write JSON completely or not at all."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=file.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(content, stream)
        Path(fresh).replace(file)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise
