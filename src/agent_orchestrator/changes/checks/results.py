"""Results of checks and their storage: one file per tree and check, so that the same content is not tested twice."""

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
from agent_orchestrator.changes.checks.spec import digest, safe_file_name

ResultState = Literal["success", "failure", "flaky", "timed_out", "cancelled"]
_CONCLUSIVE_STATES = ("success", "failure", "flaky")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check of one tree."""

    state: ResultState
    tree: str
    exit_code: int | None
    """The exit code, or None if the command was killed or never ran."""
    seconds: float
    log: Path
    summary: str
    """What went wrong: one line that says how the command ended, then the relevant output as plain text, at most 4 kB."""
    outcome: Outcome = field(default_factory=Outcome)
    """The outcome, test by test."""
    obstacle: str = ""
    """What prevented a verdict on the content, such as a missing module, a missing command or a signal; "" if nothing."""
    cached: bool = False
    """Whether the result was stored already and nothing ran."""
    runs: int = 1
    """How often this content was tested for this result: 2 if a failure was confirmed or found flaky."""
    at: float = 0.0
    """When the check ended, as a Unix timestamp."""
    set_up_seconds: float = 0.0
    """How long the set-up commands took; 0 if the set-up of an earlier check was used."""
    left: tuple[str, ...] = ()
    """Untracked files and folders after a run from scratch; folders end with `/`."""

    @property
    def is_reproducible(self) -> bool:
        """Whether the same content would give the same result: not after a timeout or if the environment lacked something."""
        return self.state in _CONCLUSIVE_STATES and not self.obstacle

    @property
    def tests(self) -> TestCounts | None:
        """The numbers of tests, or None if the output does not contain them."""
        return self.outcome.counts


class Results:
    """The stored results of a home."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def log(self, project: str, tree: str, name: str) -> Path:
        """Return the file with the output of a check's last run on a tree, which also grows while it runs."""
        return self._folder / safe_file_name(project) / safe_file_name(tree) / f"{safe_file_name(name)}.log"

    def read(self, project: str, tree: str, name: str, key: str) -> CheckResult | None:
        """Return the stored result of a check on a tree, or None if there is none or it cannot be read.

        `key` identifies the command and the set-up; a result with another key does not count.
        """
        file = self.log(project, tree, name).with_suffix(".json")
        try:
            stored = json.loads(file.read_bytes())
            if stored["key"] != key:
                return None
            result = _parse_result(stored["result"], self.log(project, tree, name))
            if result.tree != tree or not result.is_reproducible:
                return None
        except (OSError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            return None
        with contextlib.suppress(OSError):
            os.utime(file.parent)
        return result

    def write(self, project: str, name: str, key: str, result: CheckResult) -> None:
        """Store a result; one that says nothing about the content deletes the earlier one instead."""
        file = self.log(project, result.tree, name).with_suffix(".json")
        if not result.is_reproducible:
            file.unlink(missing_ok=True)
            return
        content = {**asdict(result), "log": None}
        write_json(file, {"key": key, "result": content})

    def executed_count(self, project: str, command: str) -> int:
        """Return how many tests the last run of a command that executed any had, whatever its content; 0 if there was none."""
        try:
            return int(json.loads(self._executed_file(project, command).read_bytes())["tests"])
        except (OSError, LookupError, RecursionError, TypeError, ValueError):
            return 0

    def store_executed_count(self, project: str, command: str, tests: int) -> None:
        """Store how many tests a run of a command executed; 0 is not stored."""
        if tests and tests != self.executed_count(project, command):
            write_json(self._executed_file(project, command), {"tests": tests})

    def _executed_file(self, project: str, command: str) -> Path:
        """Return the file that stores a command's number of executed tests."""
        return self._folder / safe_file_name(project) / f"executed-{digest(command)}.json"

    def remove_unused_since(self, moment: float) -> None:
        """Remove the results and logs of trees that were last used before `moment`."""
        for tree in self._folder.glob("*/*"):
            with contextlib.suppress(OSError):
                if tree.stat().st_mtime < moment:
                    shutil.rmtree(tree)


def _parse_result(stored: dict[str, Any], log: Path) -> CheckResult:
    """Return the result from its stored JSON. Raises `LookupError`, `TypeError` or `AttributeError` if the JSON is not one."""
    outcome = stored.pop("outcome")
    counts = outcome.pop("counts")
    outcome_fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in outcome.items()
    }
    parsed_outcome = Outcome(**outcome_fields, counts=TestCounts(**counts) if counts else None)
    return CheckResult(
        **{**stored, "log": log, "cached": True, "outcome": parsed_outcome, "left": tuple(stored.get("left", ()))}
    )


def write_json(file: Path, content: object) -> None:
    """Write JSON to a file completely or not at all."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, temporary_name = tempfile.mkstemp(dir=file.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "w") as stream:
            json.dump(content, stream)
        Path(temporary_name).replace(file)
    except BaseException:
        Path(temporary_name).unlink(missing_ok=True)
        raise
