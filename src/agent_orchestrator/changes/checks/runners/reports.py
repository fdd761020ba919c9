"""Convert the tests of JUnit XML to the names that the runner prints in its output: `read_reports(files, top)`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.changes.checks import junit
from agent_orchestrator.changes.checks.junit import Case
from agent_orchestrator.changes.checks.runners.common import (
    FAILED,
    SKIPPED,
    UNLOADED,
    RunnerReading,
    Test,
    one_line,
    stable_name,
)

_ERROR = re.compile(r"^E {2,3}\s*(\S.*)$", re.MULTILINE)
_NOT_COLLECTED = "collection failure"
_FILE = re.compile(r"\.[cm]?[jt]sx?$")


def read_reports(files: Sequence[Path], top: Path | None = None) -> RunnerReading | None:
    """Read every test of these reports; return None if none of the files is a report."""
    reading, has_report = RunnerReading("junit"), False
    for file in files:
        try:
            cases = junit.read_cases(file)
        except ValueError:
            continue
        has_report = True
        for case in cases:
            _add_case(reading, case, top)
    return reading if has_report else None


def _add_case(reading: RunnerReading, case: Case, top: Path | None) -> None:
    """Add a test case to the reading."""
    file = _relative_file(case.file, top)
    if case.suites and case.suites[-1] == "pytest":
        reading.runner, reading.has_unique_names = "pytest", True
        test = _pytest_test(case, file)
    else:
        name = stable_name(_test_name(case, file)) or "a test without a name"
        test = Test(name, case.state, _failure_message(case) if case.state == FAILED else "")
    reading.tests.append(replace(test, message=_relative_paths(test.message, top)))


def _failure_message(case: Case) -> str:
    """Return the message of a failed case as one line."""
    text = case.message or next((line for line in case.text.split("\n") if line.strip()), "")
    return one_line(text.partition("\n\n")[0])


def _relative_paths(text: str, top: Path | None) -> str:
    """Return a message with paths relative to the repository."""
    return text.replace(f"{top}/", "").replace(f"{top.resolve()}/", "") if top else text


def _relative_file(file: str, top: Path | None) -> str:
    """Return a file's path relative to the repository."""
    return file.removeprefix(f"{top}/").removeprefix(f"{top.resolve()}/") if top else file


def _pytest_test(case: Case, file: str) -> Test:
    """Return a test with the name that pytest prints: file, classes and name."""
    file = file or _module_file(case.classname or case.name)
    lines = _ERROR.findall(case.text) if case.state == FAILED else []
    message = one_line(
        (lines[-1] if case.message == _NOT_COLLECTED else lines[0]) if lines else case.message.partition("\n")[0]
    )
    if case.state == FAILED and (not case.classname or case.message == _NOT_COLLECTED):
        return Test(stable_name(file), UNLOADED, message)
    if not case.classname and case.state == SKIPPED:
        return Test(stable_name(file), SKIPPED)
    module = file.removesuffix(".py").replace("/", ".")
    classes = case.classname
    for prefix in (module, module.rpartition(".")[2]):
        if classes == prefix or classes.startswith(f"{prefix}."):
            classes = classes[len(prefix) :].lstrip(".")
            break
    else:  # the class is imported from another module: `file` is where it is defined, not where it is collected
        file = _module_file(classes) or file
        classes = ".".join(part for part in classes.split(".") if part[:1].isupper())
    name = "::".join([file, *(part for part in classes.split(".") if part), case.name])
    return Test(stable_name(name), case.state, message)


def _module_file(dotted: str) -> str:
    """Return the file of a dotted module name, without its classes; "" if there is no module."""
    parts = [part for part in dotted.split(".") if part and not part[:1].isupper()]
    return "/".join(parts) + ".py" if parts else ""


def _test_name(case: Case, file: str) -> str:
    """Return the name that other runners print.

    node:test uses suites, vitest and jest file and titles, others class and name.
    """
    classname, name = case.classname, case.name
    if classname in ("test", "suite") and not file.endswith(".py"):
        return " > ".join([*(suite for suite in case.suites if not _FILE.search(suite)), name])
    if _FILE.search(classname):
        return f"{classname} > {name}"
    if not classname or classname == name:
        return f"{file} > {name}" if file else name
    if name.startswith(classname) or name.endswith(classname):
        return name
    return f"{classname}.{name}"
