"""Reads the JUnit XML that a check has written: which tests there were.

The files are a stranger's: bounded, and without DTDs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from agent_orchestrator.base.files.safe import plain

LARGEST = 32 << 20
"""Bytes of one report that are still read."""
_ENTRIES = 50_000
_DEPTH = 8
_REPORTS = 1_000
_NAME = re.compile(r"(?:.*junit.*|TEST-.*)\.xml", re.IGNORECASE)
_FOLDER = re.compile(r"reports?|test-?results?|surefire-reports|failsafe-reports", re.IGNORECASE)
_PASSED_OVER = {".git", "node_modules", ".venv", "venv", ".tox", ".nox", "__pycache__", "site-packages"}


class _Refused(Exception):
    """It is not a report, or not one that we read."""


def find_reports(top: Path, since_ns: int) -> list[Path]:
    """The reports below a folder that were written since."""
    found: list[Path] = []
    for entry in _files(top):
        if len(found) >= _REPORTS:
            break
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if status.st_mtime_ns >= since_ns and status.st_size <= LARGEST:
            found.append(Path(entry.path))
    return found


@dataclass(slots=True)
class Case:
    """One test, as a report tells of it."""

    classname: str
    name: str
    file: str = ""
    line: int = 0
    """From 1; 0: not told."""
    state: str = "passed"
    """`passed`, `failed` or `skipped`."""
    kind: str = ""
    """`failure` or `error`."""
    message: str = ""
    text: str = ""
    suites: tuple[str, ...] = ()
    """Names of the suites that it is in, the outermost first."""
    _words: list[str] = field(default_factory=list, repr=False)


def read_cases(file: Path) -> list[Case]:
    """Every test that a report tells of. Raises `ValueError` for what is no report."""
    reader = _Reader()
    try:
        with plain(file) as stream:
            _parsed(stream.read(LARGEST), reader)
    except (OSError, _Refused, expat.ExpatError) as error:
        raise ValueError(f"{file.name} is no JUnit report: {error}") from None
    return reader.cases


def _files(top: Path) -> Iterator[os.DirEntry[str]]:
    """Files that may be reports, by name or by the folder they are in; no symlink is followed."""
    folders: list[tuple[str, int, bool]] = [(str(top), 0, False)]
    seen = 0
    while folders:
        folder, depth, of_reports = folders.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError:
            continue
        for entry in entries:
            seen += 1
            if seen > _ENTRIES:
                return
            if entry.is_dir(follow_symlinks=False):
                if depth < _DEPTH and entry.name not in _PASSED_OVER:
                    folders.append((entry.path, depth + 1, of_reports or bool(_FOLDER.fullmatch(entry.name))))
            elif entry.is_file(follow_symlinks=False) and (
                _NAME.fullmatch(entry.name) or (of_reports and entry.name.endswith(".xml"))
            ):
                yield entry


class _Reader:
    """Collects test cases with what is said of them."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self._outermost = True
        self._case: Case | None = None
        self._in_text = False
        self._suites: list[tuple[str, str]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if self._outermost and name not in ("testsuites", "testsuite"):
            raise _Refused(f"{name} is not a report's")
        self._outermost = False
        if name == "testcase":
            line = attributes.get("line", "")
            file = attributes.get("file") or (self._suites[-1][1] if self._suites else "")
            told = attributes.get("classname", ""), attributes.get("name", ""), file
            self._case = Case(*told, int(line) + 1 if line.isascii() and line.isdigit() else 0)
            self._case.suites = tuple(name for name, _ in self._suites if name)
            if attributes.get("status") in ("disabled", "notrun"):
                self._case.state = "skipped"
        elif name == "testsuite":
            self._suites.append(
                (attributes.get("name", ""), attributes.get("file") or attributes.get("filepath") or "")
            )
        elif self._case and name in ("failure", "error"):
            self._in_text = self._case.state != "failed"  # an error of the teardown comes after that of the test
            if self._in_text:
                self._case.state, self._case.kind = "failed", name
                self._case.message = attributes.get("message", "")
        elif self._case and self._case.state == "passed" and name == "skipped":
            self._case.state, self._case.message = "skipped", attributes.get("message", "")

    def end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        if name == "testcase" and self._case:
            self._case.text = "".join(self._case._words)
            self._case._words.clear()
            self.cases.append(self._case)
            self._case = None
        elif name == "testsuite" and self._suites:
            self._suites.pop()
        self._in_text = False

    def data(self, text: str) -> None:
        if self._in_text and self._case:
            self._case._words.append(text)


def _parsed(content: bytes, reader: _Reader) -> None:
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = _refuse
    parser.CharacterDataHandler = reader.data
    parser.Parse(content, True)


def _refuse(name: str, *_: object) -> None:
    raise _Refused(f"the document type {name} is declared")
