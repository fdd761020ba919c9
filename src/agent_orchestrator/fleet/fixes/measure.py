"""A program that measures what fails in the current checkout, and decides whether given failures are fixed.

    python -P -m agent_orchestrator.fleet.fixes.measure SPEC.json

The daemon runs it as a check. `SPEC.json` says which tools to run (none: find them), how long each may take, where to write the report,
and for a verification the report of the base and the failures that must be gone. Exit code 0: measured, or fixed; 1: not fixed;
2: it could not be measured.
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
from agent_orchestrator.base.malformed_records import PARSE_ERRORS
from agent_orchestrator.base.text.text_trees import map_texts
from agent_orchestrator.changes.checks import junit
from agent_orchestrator.changes.checks.missing_environment import missing_environment
from agent_orchestrator.changes.checks.results import write_json
from agent_orchestrator.changes.checks.runners import read_outcome
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.fleet.fixes import detection, suppressions
from agent_orchestrator.fleet.fixes.comparison import Reason, failures_in_both, reasons_not_fixed, tools_to_retry
from agent_orchestrator.fleet.fixes.model import (
    DETECTED,
    FROM_CI,
    LINTER,
    CheckTool,
    Report,
    ToolResult,
    report_from_json,
    report_to_json,
    with_unique_names,
)
from agent_orchestrator.fleet.fixes.parsers.common import ParseResult, ToolOutput
from agent_orchestrator.fleet.fixes.parsers.unknown_command import PYTEST_REPORT, whole_command_failure
from agent_orchestrator.fleet.fixes.spec import MeasurementSpec, spec_from_json
from agent_orchestrator.fleet.fixes.tools import PARSERS, TEST_TOOLS, ToolCommand, pytest_options, tool_commands
from agent_orchestrator.protocols.text import replace_lone_surrogates

_NOT_STARTED = (126, 127)
"""Exit codes of a command that could not be run."""
_RUNNER_ERRORS = r"npx canceled due to missing packages|could not determine executable to run|[Ff]ailed to spawn: `|^Command not found: "
"""Error texts of programs that cannot find the program they are to run."""
NO_TESTS = "no tests were found"
"""What `missing_environment` returns if there are no tests."""


async def measure(top: Path, spec: MeasurementSpec) -> Report:
    """Run every tool, one after the other: the configured ones first, then those found in the project's files."""
    host = LocalHost()
    if spec.tools is not None:
        results = await _run_tools(host, top, spec.tools, spec)
    else:
        configured_tools = with_unique_names(detection.configured_tools(top, spec.ci, spec.commands))
        results = await _run_tools(host, top, configured_tools, spec)
        if not spec.commands:
            has_tests = any(result.tests or result.executed for result in results)
            detected_tools = with_unique_names(
                [*configured_tools, *detection.detect_tools(top, configured_tools, tested=has_tests)]
            )[len(configured_tools) :]
            results += await _run_tools(host, top, detected_tools, spec, optional=bool(configured_tools))
    listing = await host.run(["git", "ls-files", "-z"], cwd=top)
    files = [name for name in os.fsdecode(listing.out).split("\0") if name]
    return Report(tuple(results), suppressions.count_marks(top, files), suppressions.settings_digests(top, files))


async def _run_tools(
    host: LocalHost, top: Path, tools: Sequence[CheckTool], spec: MeasurementSpec, *, optional: bool = False
) -> list[ToolResult]:
    """Run these tools and return their results.

    A linter that was found in the project's files and is not set up is left out; with `optional`, so is such a test runner.
    """
    results: list[ToolResult] = []
    for number, tool in enumerate(tools, 1):
        _print_line(f"{number}/{len(tools)} {tool.name} …")
        result = await _run_tool(host, top, tool, spec)
        await _restore(host, top)
        if (tool.source == LINTER and result.lacks) or (tool.source == DETECTED and result.absent and optional):
            _print_line(f"{tool.name}: left out, {result.lacks}")
            continue
        results.append(result)
        _print_line(f"{tool.name}: {_summary(result)}")
    return results


def _print_line(line: str) -> None:
    """Print a line at once: the daemon shows it as progress."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _summary(result: ToolResult) -> str:
    """Return the result of a tool as one line."""
    if result.problem:
        return result.problem if result.lacks else f"cannot be run: {result.problem}"
    count = len(result.failures)
    test_count = len(result.tests) or result.executed
    tests = f" in {test_count} tests" if test_count else ""
    return f"{count} {'failure' if count == 1 else 'failures'}{tests} ({result.seconds:.1f} s)"


async def _run_tool(host: LocalHost, top: Path, tool: CheckTool, spec: MeasurementSpec) -> ToolResult:
    """Run a tool, and use its report if it agrees with the exit code; otherwise the failure is the command as a whole."""
    started_at = time.monotonic()
    scripts = detection.scripts_of(top / tool.folder)
    with tempfile.TemporaryDirectory(prefix="ao-fix-") as scratch_folder:
        for attempt in tool_commands(tool, str(Path(scratch_folder) / "report"), scripts):
            try:
                output = await _tool_output(host, top, tool, attempt, spec, Path(scratch_folder) / PYTEST_REPORT)
            except AoError as error:
                problem = f"it did not finish within {spec.timeout:g} s" if isinstance(error, Temporary) else error.text
                return ToolResult(tool, problem=problem, seconds=time.monotonic() - started_at)
            findings = parse_output(output, plain=attempt.plain)
            if output.code == 0 or (findings.failures and not findings.problem):
                break
    seconds = round(time.monotonic() - started_at, 3)
    if output.code == 0:
        return ToolResult(tool, tests=findings.tests, executed=findings.executed, seconds=seconds)
    if missing_setup := _missing_setup(output, findings):
        problem, is_absent = f"environment not set up: {missing_setup}", _is_absent(output) or missing_setup == NO_TESTS
        return ToolResult(tool, problem=problem, lacks=missing_setup, absent=is_absent, seconds=seconds)
    failures = findings.failures if findings.failures and not findings.problem else [whole_command_failure(output)]
    hidden = tuple(dict.fromkeys(findings.hidden))
    return ToolResult(
        tool,
        failures=tuple(failures),
        tests=findings.tests,
        executed=findings.executed,
        hidden=hidden,
        seconds=seconds,
    )


def _is_absent(output: ToolOutput) -> bool:
    """Return whether the tool's own program is not installed."""
    module = rf"No module named '?{output.tool.kind}'?(?:\s|$)"
    return output.code in _NOT_STARTED or any(re.search(rf"{_RUNNER_ERRORS}|{module}", line) for line in output.lines)


def _missing_setup(output: ToolOutput, findings: ParseResult) -> str:
    """Return what the environment lacks according to a tool's output, or ""."""
    text = "\n".join([*output.lines, *(failure.detail for failure in findings.failures)])
    outcome = read_outcome(text, output.reports, exit_code=output.code, top=Path(output.top))
    return missing_environment(text, outcome, exit_code=output.code)


def parse_output(output: ToolOutput, *, plain: bool = True) -> ParseResult:
    """Parse a tool's output; if it has an unknown shape, return that as the tool's problem."""
    try:
        findings = PARSERS["command" if plain or output.code in _NOT_STARTED else output.tool.kind](output)
    except PARSE_ERRORS as error:
        return ParseResult(problem=f"what it wrote is of no known shape ({type(error).__name__})")
    tests = {replace_lone_surrogates(name): state for name, state in findings.tests.items()}
    return replace(map_texts(findings, replace_lone_surrogates), tests=tests)


async def _tool_output(
    host: LocalHost, top: Path, tool: CheckTool, attempt: ToolCommand, spec: MeasurementSpec, pytest_report: Path
) -> ToolOutput:
    """Run a command of a tool and return its output and reports."""
    folder = top / tool.folder
    since = time.time_ns() - 20_000_000
    argv = ["/bin/sh", "-c", attempt.command]
    env = _environment(folder, tool, spec)
    if attempt.plain:
        configured_options = env.get("PYTEST_ADDOPTS", "")
        env["PYTEST_ADDOPTS"] = f"{configured_options} {shlex.join(pytest_options(str(pytest_report)))}".strip()
    result = await host.run(argv, cwd=folder, env=env, timeout=spec.timeout)
    reports = [Path(attempt.report)] if attempt.report else []
    if attempt.plain:
        reports = [pytest_report] if pytest_report.is_file() else junit.find_reports(top, since)
    code = result.code if result.code >= 0 else 128 - result.code
    out, err = result.out.decode(errors="replace"), result.err.decode(errors="replace")
    return ToolOutput(tool, code, out, err, str(top), tuple(file for file in reports if file.is_file()))


def _environment(folder: Path, tool: CheckTool, spec: MeasurementSpec) -> dict[str, str]:
    """Return the environment of the project's checks; for other tools, the project's own programs come first on the path."""
    env = dict(os.environ)
    env.setdefault("MYPY_CACHE_DIR", str(spec.cache / "mypy"))
    if tool.source == FROM_CI:
        return env
    program_folders = [folder / ".venv" / "bin", folder / "venv" / "bin", folder / "node_modules" / ".bin"]
    existing_folders = [str(program_folder) for program_folder in program_folders if program_folder.is_dir()]
    env["PATH"] = os.pathsep.join([*existing_folders, env.get("PATH", os.defpath)])
    for name in ("FORCE_COLOR", "PY_COLORS"):
        env.pop(name, None)
    return env


async def _restore(host: LocalHost, top: Path) -> None:
    """Undo what a tool changed in the commit's own files, because the next tool is to measure the commit."""
    await host.run(["git", "checkout", "-q", "--", "."], cwd=top)


async def _retry_failures(top: Path, spec: MeasurementSpec, report: Report, names: set[str]) -> Report:
    """Run tools again whose test failures prevent the fix from counting; what passes the second time fails at random."""
    repeated_tools = [
        result for result in report.tools if result.tool.name in names and result.tool.kind in (*TEST_TOOLS, "command")
    ]
    if not repeated_tools:
        return report
    _print_line("once more, for what fails by chance:")
    second = await measure(top, replace(spec, tools=tuple(result.tool for result in repeated_tools)))
    second_results = {result.tool: result for result in second.tools}
    tools = tuple(
        failures_in_both(result, second_results[result.tool]) if result.tool in second_results else result
        for result in report.tools
    )
    return replace(report, tools=tools)


def not_fixed_text(reasons: list[Reason]) -> str:
    """Return the text that explains to the agent why the failures are not fixed."""
    return "\n".join(["", "not fixed:", *(reason.text for reason in reasons)])


@contextlib.contextmanager
def own_cache(folder: Path) -> Iterator[Path]:
    """Yield a cache folder that no other measurement uses at the same time, and that later ones use again."""
    number = 0
    while True:
        number += 1
        cache = folder / str(number)
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (cache / "lock").open("a") as lock:
            if not locking.try_lock(lock):
                continue
            yield cache
            return


async def main(file: Path) -> int:
    """Carry out a spec file in the working directory, and return the exit code."""
    spec = spec_from_json(json.loads(file.read_bytes()))
    with own_cache(spec.cache) as cache:
        return await _measure_and_compare(Path.cwd(), replace(spec, cache=cache))


async def _measure_and_compare(top: Path, spec: MeasurementSpec) -> int:
    """Measure, write the report, and compare it with the base if the spec names targets; return the exit code."""
    report = await measure(top, spec)
    if spec.before is not None:
        before = report_from_json(json.loads(spec.before.read_bytes()))
        report = await _retry_failures(top, spec, report, tools_to_retry(before, report, spec.targets))
    write_json(spec.output, report_to_json(report))
    if spec.before is None:
        return 0
    reasons = reasons_not_fixed(before, report, spec.targets)
    if not reasons:
        _print_line(f"fixed: {len(spec.targets)} failures are gone, and there are no new ones")
        return 0
    _print_line(not_fixed_text(reasons))
    return 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(Path(sys.argv[1]))))
    except (OSError, ValueError, KeyError, IndexError, AoError) as error:
        _print_line(f"error: it could not be measured: {error}")
        sys.exit(2)
