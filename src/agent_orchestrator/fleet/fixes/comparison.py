"""Is it fixed? Two measurements compared. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from agent_orchestrator.fleet.fixes.model import EVERYTHING, Failure, Measured, Report, tally

SHOWN = 12
"""Of one kind of reason that are named."""


@dataclass(frozen=True, slots=True)
class Target:
    """One failure that is to go."""

    tool: str
    id: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why it does not count as fixed."""

    title: str
    lines: tuple[str, ...] = ()
    more: int = 0

    @property
    def text(self) -> str:
        """For people and agents."""
        rest = (f"and {self.more} more",) if self.more else ()
        return "\n".join([self.title, *(f"  {line}" for line in (*self.lines, *rest))])


def judge(before: Report, after: Report, targets: Collection[Target]) -> list[Reason]:
    """Everything that speaks against it; nothing: the targets are gone, nothing else fails, and nothing was silenced."""
    reasons = _not_run(before, after)
    broken = {one.tool.name for one in after.tools if one.problem}
    wanted = {(target.tool, target.id) for target in targets if target.tool not in broken}
    reasons += _still_there(after, wanted)
    reasons += _not_tested(before, after, wanted)
    reasons += _new(before, after)
    reasons += _gone(before, after, wanted)
    reasons += _looked_away(before, after, targets)
    return reasons


def doubtful(before: Report, after: Report, targets: Collection[Target]) -> set[str]:
    """Tools with failures that speak against it: what fails by chance should not."""
    wanted = {(target.tool, target.id) for target in targets}
    earlier, now = tally(before.failures), tally(after.failures)
    return {place[0] for place, count in now.items() if place in wanted or count > earlier[place]}


def reconciled(first: Measured, second: Measured) -> Measured:
    """Of two measurements of the same content: what fails in both."""
    if first.problem or second.problem:
        return second if first.problem else first
    left = tally(second.failures)
    failures = []
    for one in first.failures:
        if left[one.tool, one.id] > 0:
            left[one.tool, one.id] -= 1
            failures.append(one)
    tests = {**first.tests, **{name: state for name, state in second.tests.items() if state == "passed"}}
    return replace(first, failures=tuple(failures), tests=tests)


def _reason(title: str, lines: Sequence[str]) -> list[Reason]:
    return [Reason(title, tuple(lines[:SHOWN]), max(0, len(lines) - SHOWN))] if lines else []


def _not_run(before: Report, after: Report) -> list[Reason]:
    """A tool that could be run at the base must be run here too."""
    lines = []
    for one in before.tools:
        now = after.found(one.tool)
        if not one.problem and (now is None or now.problem):
            lines.append(f"{one.tool.name}: {now.problem if now else 'it was not run'}")
    return _reason("error: these cannot be run any more:", lines)


def _still_there(after: Report, wanted: Collection[tuple[str, str]]) -> list[Reason]:
    seen: dict[tuple[str, str], list[Failure]] = {}
    for one in after.failures:
        if (one.tool, one.id) in wanted:
            seen.setdefault((one.tool, one.id), []).append(one)
    lines = [_line(ones[0], len(ones)) for ones in seen.values()]
    return _reason(f"error: {len(lines)} of {len(wanted)} failures to be fixed still fail:", lines)


def _not_tested(before: Report, after: Report, wanted: Collection[tuple[str, str]]) -> list[Reason]:
    """A test that is not there any more, or is not run, is not fixed."""
    failing = {(one.tool, one.id) for one in after.failures}
    lines = []
    for earlier in before.tools:
        now = after.found(earlier.tool)
        if now is None or now.problem or not (earlier.tests or now.tests):
            continue
        for failure in earlier.failures:
            place = (failure.tool, failure.id)
            if not failure.test or place not in wanted or place in failing:
                continue
            state = now.tests.get(failure.id)
            if failure.id in earlier.tests:
                if state != "passed":
                    lines.append(f"{failure.id} ({'is skipped' if state else 'is not there any more'})")
            elif not _runs(now, failure.id):
                lines.append(f"{failure.id} (none of its tests is run)")
    return _reason("error: these tests must pass, and were not run:", list(dict.fromkeys(lines)))


def _runs(now: Measured, name: str) -> bool:
    """Are there tests of a file or package that could not be looked into before?"""
    return any(test.startswith(name) and state != "skipped" for test, state in now.tests.items())


def _new(before: Report, after: Report) -> list[Reason]:
    """What fails now and did not; but what could not be looked into before is not new."""
    lines = []
    earlier = tally(before.failures)
    for one in after.tools:
        known = before.found(one.tool)
        if known is None or known.problem:
            continue
        count = tally(one.failures)
        for place, failures in {(each.tool, each.id): each for each in one.failures}.items():
            more = count[place] - earlier[place]
            if more > 0 and not _was_hidden(known, failures):
                lines.append(_line(failures, more))
    return _reason("error: these fail now, and did not before:", lines)


def _was_hidden(known: Measured, failure: Failure) -> bool:
    return any(
        scope == EVERYTHING
        or failure.file == scope
        or failure.id == scope
        or failure.id.startswith((f"{scope}::", f"{scope}.", f"{scope} >"))
        for scope in known.hidden
    )


def _gone(before: Report, after: Report, wanted: Collection[tuple[str, str]]) -> list[Reason]:
    """Tests that passed are still there and run."""
    lines = []
    for earlier in before.tools:
        now = after.found(earlier.tool)
        if now is None or now.problem:
            continue
        for test, state in earlier.tests.items():
            if (
                state == "passed"
                and now.tests.get(test) in (None, "skipped")
                and (earlier.tool.name, test) not in wanted
            ):
                hidden = any(scope == EVERYTHING or test.startswith(scope) for scope in now.hidden)
                if not hidden:
                    lines.append(f"{test} ({'is skipped' if test in now.tests else 'is not there any more'})")
    fewer = [
        f"{earlier.tool.name}: {now.tests_run} tests are run, {earlier.executed} before"
        for earlier in before.tools
        if (now := after.found(earlier.tool)) and not now.problem and now.tests_run < earlier.executed
    ]
    return [
        *_reason("error: these tests passed before, and are not run now:", lines),
        *_reason("error: fewer tests are run than before:", fewer),
    ]


def _looked_away(before: Report, after: Report, targets: Collection[Target]) -> list[Reason]:
    marks = [
        f"{mark}: {count} now, {before.silenced.get(mark, 0)} before"
        for mark, count in sorted(after.silenced.items())
        if count > before.silenced.get(mark, 0)
    ]
    meant = {one.file for one in before.failures if Target(one.tool, one.id) in set(targets)}
    files = sorted(
        name
        for name in {*before.settings, *after.settings}
        if before.settings.get(name) != after.settings.get(name) and name not in meant
    )
    return [
        *_reason("error: failures are to be fixed, not silenced; these marks were added:", marks),
        *_reason("error: what these files say to the tools was changed, and must not be:", files),
    ]


def _line(failure: Failure, count: int = 1) -> str:
    where = f"{failure.file}:{failure.line}: " if failure.file and failure.line else ""
    named = failure.id if failure.test else f"{where}{failure.rule}" if failure.rule else where.rstrip(": ")
    times = f" ({count} times)" if count > 1 else ""
    return " ".join(f"{failure.tool}: {named}: {failure.message}{times}".split())[:300]
