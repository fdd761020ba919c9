"""Decide whether failures are fixed, by comparing two measurements. Pure. Look here if a fix is accepted or refused wrongly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from agent_orchestrator.fleet.fixes.model import EVERYTHING, Report, ToolFailure, ToolResult, tally

MAX_SHOWN_LINES = 12
"""Lines that one reason lists."""


@dataclass(frozen=True, slots=True)
class TargetFailure:
    """One failure that is to be fixed."""

    tool: str
    id: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a change does not count as fixed."""

    title: str
    lines: tuple[str, ...] = ()
    more: int = 0

    @property
    def text(self) -> str:
        """The reason as text for people and agents."""
        rest = (f"and {self.more} more",) if self.more else ()
        return "\n".join([self.title, *(f"  {line}" for line in (*self.lines, *rest))])


def reasons_not_fixed(before: Report, after: Report, targets: Collection[TargetFailure]) -> list[Reason]:
    """Return every reason why a change does not count as fixed.

    The list is empty if the targets are gone, nothing else fails, and nothing was silenced.
    """
    reasons = _tools_not_run(before, after)
    broken_tools = {result.tool.name for result in after.tools if result.problem}
    target_ids = {(target.tool, target.id) for target in targets if target.tool not in broken_tools}
    reasons += _remaining_targets(after, target_ids)
    reasons += _untested_targets(before, after, target_ids)
    reasons += _new_failures(before, after)
    reasons += _missing_tests(before, after, target_ids)
    reasons += _silenced_failures(before, after, targets)
    return reasons


def tools_to_retry(before: Report, after: Report, targets: Collection[TargetFailure]) -> set[str]:
    """Return the tools whose failures prevent the fix from counting; they are run again, because a failure may be random."""
    target_ids = {(target.tool, target.id) for target in targets}
    earlier, later = tally(before.failures), tally(after.failures)
    return {
        failure_id[0] for failure_id, count in later.items() if failure_id in target_ids or count > earlier[failure_id]
    }


def failures_in_both(first: ToolResult, second: ToolResult) -> ToolResult:
    """Return what fails in both of two measurements of the same content."""
    if first.problem or second.problem:
        return second if first.problem else first
    remaining = tally(second.failures)
    failures = []
    for failure in first.failures:
        if remaining[failure.tool, failure.id] > 0:
            remaining[failure.tool, failure.id] -= 1
            failures.append(failure)
    tests = {**first.tests, **{name: state for name, state in second.tests.items() if state == "passed"}}
    return replace(first, failures=tuple(failures), tests=tests)


def _reasons_of(title: str, lines: Sequence[str]) -> list[Reason]:
    """Return one reason with its first lines, or an empty list if there are no lines."""
    return [Reason(title, tuple(lines[:MAX_SHOWN_LINES]), max(0, len(lines) - MAX_SHOWN_LINES))] if lines else []


def _tools_not_run(before: Report, after: Report) -> list[Reason]:
    """Return a reason if a tool that could be run at the base cannot be run now."""
    lines = []
    for result in before.tools:
        later = after.result_of(result.tool)
        if not result.problem and (later is None or later.problem):
            lines.append(f"{result.tool.name}: {later.problem if later else 'it was not run'}")
    return _reasons_of("error: these cannot be run any more:", lines)


def _remaining_targets(after: Report, target_ids: Collection[tuple[str, str]]) -> list[Reason]:
    """Return a reason if targets still fail."""
    remaining: dict[tuple[str, str], list[ToolFailure]] = {}
    for failure in after.failures:
        if (failure.tool, failure.id) in target_ids:
            remaining.setdefault((failure.tool, failure.id), []).append(failure)
    lines = [_failure_line(repetitions[0], len(repetitions)) for repetitions in remaining.values()]
    return _reasons_of(f"error: {len(lines)} of {len(target_ids)} failures to be fixed still fail:", lines)


def _untested_targets(before: Report, after: Report, target_ids: Collection[tuple[str, str]]) -> list[Reason]:
    """Return a reason if a test to be fixed is missing or is not run: such a test is not fixed."""
    failing_ids = {(later_failure.tool, later_failure.id) for later_failure in after.failures}
    lines = []
    for earlier in before.tools:
        later = after.result_of(earlier.tool)
        if later is None or later.problem or not (earlier.tests or later.tests):
            continue
        for failure in earlier.failures:
            failure_id = (failure.tool, failure.id)
            if not failure.test or failure_id not in target_ids or failure_id in failing_ids:
                continue
            state = later.tests.get(failure.id)
            if failure.id in earlier.tests:
                if state != "passed":
                    lines.append(f"{failure.id} ({'is skipped' if state else 'is not there any more'})")
            elif not _runs_tests_of(later, failure.id):
                lines.append(f"{failure.id} (none of its tests is run)")
    return _reasons_of("error: these tests must pass, and were not run:", list(dict.fromkeys(lines)))


def _runs_tests_of(result: ToolResult, name: str) -> bool:
    """Return whether tests of a file or package are run that could not be loaded before."""
    return any(test.startswith(name) and state != "skipped" for test, state in result.tests.items())


def _new_failures(before: Report, after: Report) -> list[Reason]:
    """Return a reason for what fails now and did not before. What could not be checked before is not new."""
    lines = []
    earlier = tally(before.failures)
    for result in after.tools:
        earlier_result = before.result_of(result.tool)
        if earlier_result is None or earlier_result.problem:
            continue
        count = tally(result.failures)
        for failure_id, failure in {
            (each_failure.tool, each_failure.id): each_failure for each_failure in result.failures
        }.items():
            more = count[failure_id] - earlier[failure_id]
            if more > 0 and not _was_hidden(earlier_result, failure):
                lines.append(_failure_line(failure, more))
    return _reasons_of("error: these fail now, and did not before:", lines)


def _was_hidden(result: ToolResult, failure: ToolFailure) -> bool:
    """Return whether the file, package or test of a failure could not be checked in a measurement."""
    return any(
        scope == EVERYTHING
        or failure.file == scope
        or failure.id == scope
        or failure.id.startswith((f"{scope}::", f"{scope}.", f"{scope} >"))
        for scope in result.hidden
    )


def _missing_tests(before: Report, after: Report, target_ids: Collection[tuple[str, str]]) -> list[Reason]:
    """Return reasons if tests that passed before are missing or not run now, or fewer tests are run."""
    lines = []
    for earlier in before.tools:
        later = after.result_of(earlier.tool)
        if later is None or later.problem:
            continue
        for test, state in earlier.tests.items():
            if (
                state == "passed"
                and later.tests.get(test) in (None, "skipped")
                and (earlier.tool.name, test) not in target_ids
            ):
                hidden = any(scope == EVERYTHING or test.startswith(scope) for scope in later.hidden)
                if not hidden:
                    lines.append(f"{test} ({'is skipped' if test in later.tests else 'is not there any more'})")
    fewer = [
        f"{earlier.tool.name}: {later.tests_run} tests are run, {earlier.executed} before"
        for earlier in before.tools
        if (later := after.result_of(earlier.tool)) and not later.problem and later.tests_run < earlier.executed
    ]
    return [
        *_reasons_of("error: these tests passed before, and are not run now:", lines),
        *_reasons_of("error: fewer tests are run than before:", fewer),
    ]


def _silenced_failures(before: Report, after: Report, targets: Collection[TargetFailure]) -> list[Reason]:
    """Return reasons if marks that silence a tool were added, or settings of tools changed. Files with targets may change."""
    marks = [
        f"{mark}: {count} now, {before.silenced.get(mark, 0)} before"
        for mark, count in sorted(after.silenced.items())
        if count > before.silenced.get(mark, 0)
    ]
    target_files = {
        failure.file for failure in before.failures if TargetFailure(failure.tool, failure.id) in set(targets)
    }
    files = sorted(
        name
        for name in {*before.settings, *after.settings}
        if before.settings.get(name) != after.settings.get(name) and name not in target_files
    )
    return [
        *_reasons_of("error: failures are to be fixed, not silenced; these marks were added:", marks),
        *_reasons_of("error: what these files say to the tools was changed, and must not be:", files),
    ]


def _failure_line(failure: ToolFailure, count: int = 1) -> str:
    """Return a failure as one line of text."""
    position = f"{failure.file}:{failure.line}: " if failure.file and failure.line else ""
    identity = failure.id if failure.test else f"{position}{failure.rule}" if failure.rule else position.rstrip(": ")
    times = f" ({count} times)" if count > 1 else ""
    return " ".join(f"{failure.tool}: {identity}: {failure.message}{times}".split())[:300]
