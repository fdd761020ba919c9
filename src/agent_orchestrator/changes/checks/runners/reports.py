"""Tests of JUnit XML, called as the runner that wrote it calls them in its output."""

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
    Reading,
    Test,
    one_line,
    stable_name,
)

_ERROR = re.compile(r"^E {2,3}\s*(\S.*)$", re.MULTILINE)
_NOT_COLLECTED = "collection failure"
_FILE = re.compile(r"\.[cm]?[jt]sx?$")


def read_reports(files: Sequence[Path], top: Path | None = None) -> Reading | None:
    """Read every test of these reports; none if none of them is a report."""
    reading, told = Reading("junit"), False
    for file in files:
        try:
            cases = junit.read_cases(file)
        except ValueError:
            continue
        told = True
        for case in cases:
            _take(reading, case, top)
    return reading if told else None


def _take(reading: Reading, case: Case, top: Path | None) -> None:
    file = _inside(case.file, top)
    if case.suites and case.suites[-1] == "pytest":
        reading.runner, reading.unique = "pytest", True
        test = _pytest(case, file)
    else:
        name = stable_name(_name(case, file)) or "a test without a name"
        test = Test(name, case.state, _message(case) if case.state == FAILED else "")
    reading.tests.append(replace(test, message=_paths_inside(test.message, top)))


def _message(case: Case) -> str:
    text = case.message or next((line for line in case.text.split("\n") if line.strip()), "")
    return one_line(text.partition("\n\n")[0])


def _paths_inside(text: str, top: Path | None) -> str:
    """Return a message with paths as they are in the repository."""
    return text.replace(f"{top}/", "").replace(f"{top.resolve()}/", "") if top else text


def _inside(file: str, top: Path | None) -> str:
    return file.removeprefix(f"{top}/").removeprefix(f"{top.resolve()}/") if top else file


def _pytest(case: Case, file: str) -> Test:
    """A test as pytest prints it: file, classes and name."""
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
    else:  # of a class that another module imports: the file is where it is defined, not where it is collected
        file = _module_file(classes) or file
        classes = ".".join(part for part in classes.split(".") if part[:1].isupper())
    name = "::".join([file, *(part for part in classes.split(".") if part), case.name])
    return Test(stable_name(name), case.state, message)


def _module_file(dotted: str) -> str:
    parts = [part for part in dotted.split(".") if part and not part[:1].isupper()]
    return "/".join(parts) + ".py" if parts else ""


def _name(case: Case, file: str) -> str:
    """A test as other runners call it: node:test by its suites, vitest and jest by file and titles, others by class and name."""
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
