"""Measures what fails in the checkout it is run in, and judges it where the failures to be fixed are given.

    python -P -m agent_orchestrator.fleet.fixes.measure SPEC.json

The daemon runs it as a check. `SPEC.json` says which tools (none: they are found), how long each may take, where to write the report,
and for a verification the report of the base and the failures that are to go. Exit code 0: measured, or fixed; 1: not fixed; 2: it
could not be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from agent_orchestrator.base.files import lock as locking
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.text.redaction import with_texts
from agent_orchestrator.base.tolerant import ODD
from agent_orchestrator.changes.checks import junit
from agent_orchestrator.changes.checks.missing import missing_environment
from agent_orchestrator.changes.checks.results import write_atomically
from agent_orchestrator.changes.checks.runners import read_outcome
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.fleet.fixes import detection, suppressions
from agent_orchestrator.fleet.fixes.comparison import Reason, doubtful, judge, reconciled
from agent_orchestrator.fleet.fixes.model import CI, FOUND, LINT, Measured, Report, Tool, as_json, labelled, report_from
from agent_orchestrator.fleet.fixes.parsers.common import Found, Said
from agent_orchestrator.fleet.fixes.parsers.text import PYTEST_REPORT, as_a_whole
from agent_orchestrator.fleet.fixes.spec import Spec, spec_from
from agent_orchestrator.fleet.fixes.tools import PARSERS, TEST_TOOLS, Asking, asking, pytest_options
from agent_orchestrator.protocols.text import writable

_NOT_STARTED = (126, 127)
"""Exit codes of a command that could not be run."""
_ABSENT = r"npx canceled due to missing packages|could not determine executable to run|[Ff]ailed to spawn: `|^Command not found: "
"""What programs say that are to run another one."""
NO_TESTS = "no tests were found"
"""Said by `missing_environment`."""


async def measure(top: Path, spec: Spec) -> Report:
    """Run every tool, one after the other: what is configured first, then what the project has beside it."""
    host = LocalHost()
    if spec.tools is not None:
        results = await _each(host, top, spec.tools, spec)
    else:
        known = labelled(detection.configured(top, spec.ci, spec.commands))
        results = await _each(host, top, known, spec)
        if not spec.commands:
            tested = any(one.tests or one.executed for one in results)
            others = labelled([*known, *detection.found(top, known, tested=tested)])[len(known) :]
            results += await _each(host, top, others, spec, optional=bool(known))
    listing = await host.run(["git", "ls-files", "-z"], cwd=top)
    files = [name for name in os.fsdecode(listing.out).split("\0") if name]
    return Report(tuple(results), suppressions.silenced(top, files), suppressions.settings(top, files))


async def _each(
    host: LocalHost, top: Path, tools: Sequence[Tool], spec: Spec, *, optional: bool = False
) -> list[Measured]:
    """Run these tools. What was found by itself and is not set up is left out: linters, and with `optional` test runners too."""
    results: list[Measured] = []
    for number, tool in enumerate(tools, 1):
        _say(f"{number}/{len(tools)} {tool.name} …")
        one = await _run(host, top, tool, spec)
        await _restore(host, top)
        if (tool.source == LINT and one.lacks) or (tool.source == FOUND and one.absent and optional):
            _say(f"{tool.name}: left out, {one.lacks}")
            continue
        results.append(one)
        _say(f"{tool.name}: {_summary(one)}")
    return results


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _summary(one: Measured) -> str:
    if one.problem:
        return one.problem if one.lacks else f"cannot be run: {one.problem}"
    count = len(one.failures)
    many = len(one.tests) or one.executed
    tests = f" in {many} tests" if many else ""
    return f"{count} {'failure' if count == 1 else 'failures'}{tests} ({one.seconds:.1f} s)"


async def _run(host: LocalHost, top: Path, tool: Tool, spec: Spec) -> Measured:
    """Run a tool, and take its report for what it says as long as it agrees with the exit code."""
    began = time.monotonic()
    scripts = detection.scripts_of(top / tool.folder)
    with tempfile.TemporaryDirectory(prefix="ao-fix-") as scratch:
        for way in asking(tool, str(Path(scratch) / "report"), scripts):
            try:
                said = await _said(host, top, tool, way, spec, Path(scratch) / PYTEST_REPORT)
            except AoError as error:
                problem = f"it did not finish within {spec.timeout:g} s" if isinstance(error, Temporary) else error.text
                return Measured(tool, problem=problem, seconds=time.monotonic() - began)
            found = read(said, plain=way.plain)
            if said.code == 0 or (found.failures and not found.problem):
                break
    seconds = round(time.monotonic() - began, 3)
    if said.code == 0:
        return Measured(tool, tests=found.tests, executed=found.executed, seconds=seconds)
    if lacks := _lacks(said, found):
        problem, absent = f"environment not set up: {lacks}", _is_absent(said) or lacks == NO_TESTS
        return Measured(tool, problem=problem, lacks=lacks, absent=absent, seconds=seconds)
    failures = found.failures if found.failures and not found.problem else [as_a_whole(said)]
    hidden = tuple(dict.fromkeys(found.hidden))
    return Measured(
        tool,
        failures=tuple(failures),
        tests=found.tests,
        executed=found.executed,
        hidden=hidden,
        seconds=seconds,
    )


def _is_absent(said: Said) -> bool:
    """Whether the tool's own program is not installed."""
    module = rf"No module named '?{said.tool.kind}'?(?:\s|$)"
    return said.code in _NOT_STARTED or any(re.search(rf"{_ABSENT}|{module}", line) for line in said.lines)


def _lacks(said: Said, found: Found) -> str:
    """What the environment lacks, by everything that was said."""
    text = "\n".join([*said.lines, *(one.detail for one in found.failures)])
    outcome = read_outcome(text, said.reports, exit_code=said.code, top=Path(said.top))
    return missing_environment(text, outcome, exit_code=said.code)


def read(said: Said, *, plain: bool = True) -> Found:
    """What a tool said. What it wrote is of its own making: where it makes no sense, that is the tool's problem."""
    try:
        found = PARSERS["command" if plain or said.code in _NOT_STARTED else said.tool.kind](said)
    except ODD as error:
        return Found(problem=f"what it wrote is of no known shape ({type(error).__name__})")
    tests = {writable(name): state for name, state in found.tests.items()}
    return replace(with_texts(found, writable), tests=tests)


async def _said(host: LocalHost, top: Path, tool: Tool, way: Asking, spec: Spec, pytest_report: Path) -> Said:
    folder = top / tool.folder
    since = time.time_ns() - 20_000_000
    argv = ["/bin/sh", "-c", way.command]
    env = _environment(folder, tool, spec)
    if way.plain:
        given = env.get("PYTEST_ADDOPTS", "")
        env["PYTEST_ADDOPTS"] = f"{given} {shlex.join(pytest_options(str(pytest_report)))}".strip()
    done = await host.run(argv, cwd=folder, env=env, timeout=spec.timeout)
    reports = [Path(way.report)] if way.report else []
    if way.plain:
        reports = [pytest_report] if pytest_report.is_file() else junit.find_reports(top, since)
    code = done.code if done.code >= 0 else 128 - done.code
    out, err = done.out.decode(errors="replace"), done.err.decode(errors="replace")
    return Said(tool, code, out, err, str(top), tuple(file for file in reports if file.is_file()))


def _environment(folder: Path, tool: Tool, spec: Spec) -> dict[str, str]:
    """The environment of the project's checks; for what is no check, with the project's own programs first."""
    env = dict(os.environ)
    env.setdefault("MYPY_CACHE_DIR", str(spec.cache / "mypy"))
    if tool.source == CI:
        return env
    own = [folder / ".venv" / "bin", folder / "venv" / "bin", folder / "node_modules" / ".bin"]
    path = [str(place) for place in own if place.is_dir()]
    env["PATH"] = os.pathsep.join([*path, env.get("PATH", os.defpath)])
    for name in ("FORCE_COLOR", "PY_COLORS"):
        env.pop(name, None)
    return env


async def _restore(host: LocalHost, top: Path) -> None:
    """Undo what a tool changed in the commit's own files: the next one measures the commit."""
    await host.run(["git", "checkout", "-q", "--", "."], cwd=top)


async def _looked_twice(top: Path, spec: Spec, report: Report, names: set[str]) -> Report:
    """Run tests again that speak against the fix: what passes then fails by chance."""
    again = [one for one in report.tools if one.tool.name in names and one.tool.kind in (*TEST_TOOLS, "command")]
    if not again:
        return report
    _say("once more, for what fails by chance:")
    second = await measure(top, replace(spec, tools=tuple(one.tool for one in again)))
    known = {one.tool: one for one in second.tools}
    tools = tuple(reconciled(one, known[one.tool]) if one.tool in known else one for one in report.tools)
    return replace(report, tools=tools)


def verdict(reasons: list[Reason]) -> str:
    """What the agent is told."""
    return "\n".join(["", "not fixed:", *(reason.text for reason in reasons)])


@contextlib.contextmanager
def own_cache(folder: Path) -> Iterator[Path]:
    """A place that no other measurement uses at the same time, and that a later one finds again."""
    number = 0
    while True:
        number += 1
        place = folder / str(number)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (place / "lock").open("a") as lock:
            if not locking.take(lock):
                continue
            yield place
            return


async def main(file: Path) -> int:
    """Do what the file says, in the working directory."""
    given = spec_from(json.loads(file.read_bytes()))
    with own_cache(given.cache) as cache:
        return await _done(Path.cwd(), replace(given, cache=cache))


async def _done(top: Path, spec: Spec) -> int:
    report = await measure(top, spec)
    if spec.before is not None:
        before = report_from(json.loads(spec.before.read_bytes()))
        report = await _looked_twice(top, spec, report, doubtful(before, report, spec.targets))
    write_atomically(spec.output, as_json(report))
    if spec.before is None:
        return 0
    reasons = judge(before, report, spec.targets)
    if not reasons:
        _say(f"fixed: {len(spec.targets)} failures are gone, and there are no new ones")
        return 0
    _say(verdict(reasons))
    return 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(Path(sys.argv[1]))))
    except (OSError, ValueError, KeyError, IndexError, AoError) as error:
        _say(f"error: it could not be measured: {error}")
        sys.exit(2)
