"""Read the tests from JUnit XML files that a check wrote: `find_reports`, `read_cases`.

The files come from untrusted code, so sizes are limited and DTDs are rejected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from agent_orchestrator.base.files.safe import open_regular_file

MAX_REPORT_BYTES = 32 << 20
"""Maximum size of one report, in bytes."""
_MAX_ENTRIES = 50_000
_MAX_DEPTH = 8
_MAX_REPORTS = 1_000
_REPORT_NAME = re.compile(r"(?:.*junit.*|TEST-.*)\.xml", re.IGNORECASE)
_REPORT_FOLDER = re.compile(r"reports?|test-?results?|surefire-reports|failsafe-reports", re.IGNORECASE)
_SKIPPED_FOLDERS = {".git", "node_modules", ".venv", "venv", ".tox", ".nox", "__pycache__", "site-packages"}


class _NotAReport(Exception):
    """The file is not a JUnit report, or one with a declaration that we reject."""


def find_reports(top: Path, since_ns: int) -> list[Path]:
    """Return the reports below a folder that were written since `since_ns`, at most 1,000."""
    reports: list[Path] = []
    for entry in _report_candidates(top):
        if len(reports) >= _MAX_REPORTS:
            break
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if status.st_mtime_ns >= since_ns and status.st_size <= MAX_REPORT_BYTES:
            reports.append(Path(entry.path))
    return reports


@dataclass(slots=True)
class Case:
    """One test of a report."""

    classname: str
    name: str
    file: str = ""
    line: int = 0
    """Line number from 1, or 0 if unknown."""
    state: str = "passed"
    """`passed`, `failed` or `skipped`."""
    kind: str = ""
    """`failure` or `error`."""
    message: str = ""
    text: str = ""
    suites: tuple[str, ...] = ()
    """Names of the suites around the test, the outermost first."""
    _text_parts: list[str] = field(default_factory=list, repr=False)


def read_cases(file: Path) -> list[Case]:
    """Return every test of a report. Raises `ValueError` if the file is not a JUnit report."""
    reader = _Reader()
    try:
        with open_regular_file(file) as stream:
            _parse(stream.read(MAX_REPORT_BYTES), reader)
    except (OSError, _NotAReport, expat.ExpatError) as error:
        raise ValueError(f"{file.name} is no JUnit report: {error}") from None
    return reader.cases


def _report_candidates(top: Path) -> Iterator[os.DirEntry[str]]:
    """Yield the files that may be reports, by their name or by the folder they are in; symlinks are not followed."""
    folders: list[tuple[str, int, bool]] = [(str(top), 0, False)]
    entry_count = 0
    while folders:
        folder, depth, in_report_folder = folders.pop()
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError:
            continue
        for entry in entries:
            entry_count += 1
            if entry_count > _MAX_ENTRIES:
                return
            if entry.is_dir(follow_symlinks=False):
                if depth < _MAX_DEPTH and entry.name not in _SKIPPED_FOLDERS:
                    folders.append(
                        (entry.path, depth + 1, in_report_folder or bool(_REPORT_FOLDER.fullmatch(entry.name)))
                    )
            elif entry.is_file(follow_symlinks=False) and (
                _REPORT_NAME.fullmatch(entry.name) or (in_report_folder and entry.name.endswith(".xml"))
            ):
                yield entry


class _Reader:
    """XML parser callbacks that collect the test cases."""

    def __init__(self) -> None:
        self.cases: list[Case] = []
        self._outermost = True
        self._case: Case | None = None
        self._in_text = False
        self._suites: list[tuple[str, str]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Handle the start of an element. Raises `_NotAReport` if the outermost element is not a report."""
        name = name.rpartition(":")[2]
        if self._outermost and name not in ("testsuites", "testsuite"):
            raise _NotAReport(f"{name} is not a report's")
        self._outermost = False
        if name == "testcase":
            line = attributes.get("line", "")
            file = attributes.get("file") or (self._suites[-1][1] if self._suites else "")
            identity = attributes.get("classname", ""), attributes.get("name", ""), file
            self._case = Case(*identity, int(line) + 1 if line.isascii() and line.isdigit() else 0)
            self._case.suites = tuple(name for name, _ in self._suites if name)
            if attributes.get("status") in ("disabled", "notrun"):
                self._case.state = "skipped"
        elif name == "testsuite":
            self._suites.append(
                (attributes.get("name", ""), attributes.get("file") or attributes.get("filepath") or "")
            )
        elif self._case and name in ("failure", "error"):
            self._in_text = self._case.state != "failed"  # a teardown error must not replace the test's failure
            if self._in_text:
                self._case.state, self._case.kind = "failed", name
                self._case.message = attributes.get("message", "")
        elif self._case and self._case.state == "passed" and name == "skipped":
            self._case.state, self._case.message = "skipped", attributes.get("message", "")

    def end(self, name: str) -> None:
        """Handle the end of an element: a finished test case is added to `cases`."""
        name = name.rpartition(":")[2]
        if name == "testcase" and self._case:
            self._case.text = "".join(self._case._text_parts)
            self._case._text_parts.clear()
            self.cases.append(self._case)
            self._case = None
        elif name == "testsuite" and self._suites:
            self._suites.pop()
        self._in_text = False

    def data(self, text: str) -> None:
        """Collect text inside a failure or error."""
        if self._in_text and self._case:
            self._case._text_parts.append(text)


def _parse(content: bytes, reader: _Reader) -> None:
    """Parse a report with the reader's callbacks."""
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.StartDoctypeDeclHandler = _refuse
    parser.CharacterDataHandler = reader.data
    parser.Parse(content, True)


def _refuse(name: str, *_: object) -> None:
    """Reject a report with a document type declaration."""
    raise _NotAReport(f"the document type {name} is declared")
