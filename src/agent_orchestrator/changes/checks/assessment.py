"""Assess a check of a change: compare its failures with the base branch, test by test, and report what cannot be known as unknown.

`assess(checks, spec, base)` runs the check and compares it; `judge(checks, spec, result, base)` compares an existing result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from agent_orchestrator.changes.checks.outcome import WHOLE, Comparison, Outcome, compare
from agent_orchestrator.changes.checks.results import Result
from agent_orchestrator.changes.checks.runner import Checks, Started
from agent_orchestrator.changes.checks.runners.common import stable_text
from agent_orchestrator.changes.checks.spec import CheckSpec, may_run_tests, runs_tests

State = Literal["success", "failure", "flaky", "timed_out", "cancelled", "not_set_up"]
_PASSED_STATES = ("success", "flaky")
_LONGEST_REASON = 120


@dataclass(frozen=True, slots=True)
class Assessment:
    """The result of a check on a change, compared with the base branch."""

    state: State
    result: Result
    reason: str = ""
    """What the environment lacks (`not_set_up`), or, for known failures, that no test is run or passes here or on the base."""
    stops_tests: bool = False
    """Whether the state is `not_set_up` although tests run on the base branch: the change prevents its own tests from running."""
    compared: bool = False
    """Whether the result was compared with the base branch's result."""
    new: Mapping[str, str] = field(default_factory=dict)
    """Failures that the base does not have: message by name."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Failures that the base has too: message by name."""
    vanished: tuple[str, ...] = ()
    newly_skipped: tuple[str, ...] = ()
    fewer: int = 0
    fixed_since: bool = False
    """Whether the known failures are those of the branch point and the base does not have them any more."""

    @property
    def is_known(self) -> bool:
        """Whether every failure also occurs on the base."""
        return self.state == "failure" and bool(self.known) and not self.new


async def assess(
    checks: Checks,
    spec: CheckSpec,
    base: str,
    *,
    started: Started | None = None,
    doubted: Callable[[], None] | None = None,
) -> Assessment:
    """Run a check on a change on top of the commit `base` and assess it. Raises what `Checks.verdict` raises."""
    result = await checks.verdict(spec, started=started, doubted=doubted)
    return await judge(checks, spec, result, base)


async def judge(
    checks: Checks, spec: CheckSpec, result: Result, base: str | None, branch_point: str | None = None
) -> Assessment:
    """Compare a change's result with the commit `base` and with the branch point, where the branch left the base.

    Runs the check on those commits if their results are not stored. Raises what `Checks.verdict` raises.
    """
    if spec.own or base is None or result.state in ("cancelled", "timed_out"):
        return Assessment(result.state, result, new=result.outcome.failures)
    fork = branch_point or base
    if result.state in _PASSED_STATES:
        return await _assess_passed(checks, spec, result, base, fork)
    if result.obstacle and await _base_lacks_something(checks, spec, base):
        return Assessment("not_set_up", result, reason=result.obstacle)
    return await _assess_failed(checks, spec, result, base, fork)


async def _assess_passed(checks: Checks, spec: CheckSpec, result: Result, base: str, branch_point: str) -> Assessment:
    """Assess a check that passes: find out whether tests are missing or skipped that ran at the branch point."""
    earlier_count = checks.executed_before(spec)
    if not result.outcome.executed and not earlier_count and not may_run_tests(spec.command):
        return Assessment(result.state, result)  # the check runs no tests, so none can be missing
    branch_point_result = await checks.verdict(replace(spec, commit=branch_point))
    branch_point_count = branch_point_result.outcome.executed if _has_verdict(branch_point_result) else 0
    if not result.outcome.executed and not earlier_count and not branch_point_count:
        return Assessment(result.state, result)
    if not result.outcome.executed and (branch_point_count or earlier_count):
        comparison = (
            f"{branch_point_count} on {spec.base or 'the base'}"
            if branch_point_count
            else f"{earlier_count} in an earlier run"
        )
        return Assessment(
            "not_set_up", result, reason=f"no test was executed ({comparison})", stops_tests=bool(branch_point_count)
        )
    assessment = Assessment(result.state, result, compared=_has_verdict(branch_point_result))
    return await _add_missing_tests(checks, spec, assessment, branch_point_result, base, branch_point)


async def _assess_failed(checks: Checks, spec: CheckSpec, result: Result, base: str, branch_point: str) -> Assessment:
    """Assess a check that fails: separate new failures from those of the base and the branch point."""
    base_result = await checks.verdict(replace(spec, commit=base))
    earlier_count = checks.executed_before(spec)
    if earlier_count and not result.outcome.executed and base_result.cached:
        base_result = await checks.verdict(replace(spec, commit=base), again=True)  # the environment may have changed
    if earlier_count and not result.outcome.executed and not base_result.outcome.executed:
        reason = f"no test was executed, here or on {spec.base or 'the base'} ({earlier_count} in an earlier run)"
        return Assessment("not_set_up", result, reason=reason)
    new = _compare(result, base_result).new
    branch_point_result = base_result
    if branch_point != base:
        branch_point_result = await checks.verdict(replace(spec, commit=branch_point))
        new = {name: message for name, message in _compare(result, branch_point_result).new.items() if name in new}
    known = {name: message for name, message in result.outcome.failures.items() if name not in new}
    reason = ""
    if not new and not result.outcome.executed and not base_result.outcome.executed and runs_tests(spec.command):
        reason = f"no test was run, here or on {spec.base or 'the base'}"
        if all(name.startswith(WHOLE) for name in known):
            failure_text = "".join(known.values())  # the same text in every session, so that all share one notification
            return Assessment("not_set_up", result, reason=f"{reason} ({stable_text(failure_text)[:_LONGEST_REASON]})")
    if not new and result.outcome.none_passes and base_result.outcome.none_passes:
        messages = {stable_text(message) for message in result.outcome.failures.values()}
        reason = f"no test passes, here or on {spec.base or 'the base'}"
        if len(messages) == 1 and len(result.outcome.failures) > 1:
            return Assessment("not_set_up", result, reason=f"{reason} ({messages.pop()[:_LONGEST_REASON]})")
    is_fixed = (
        bool(known) and _has_verdict(base_result) and not any(name in base_result.outcome.failures for name in known)
    )
    assessment = Assessment(result.state, result, reason, compared=True, new=new, known=known, fixed_since=is_fixed)
    return await _add_missing_tests(checks, spec, assessment, branch_point_result, base, branch_point)


async def _add_missing_tests(
    checks: Checks, spec: CheckSpec, assessment: Assessment, branch_point_result: Result, base: str, branch_point: str
) -> Assessment:
    """Return the assessment with the tests that are no longer run; tests that the base has removed since do not count."""
    if not _has_verdict(branch_point_result):
        return assessment
    difference = compare(assessment.result.outcome, branch_point_result.outcome)
    vanished, skipped = set(difference.vanished), set(difference.newly_skipped)
    if branch_point != base and (vanished or skipped):
        base_result = await checks.verdict(replace(spec, commit=base))
        base_difference = compare(assessment.result.outcome, base_result.outcome)
        vanished &= set(base_difference.vanished)
        skipped &= set(base_difference.newly_skipped)
    return replace(
        assessment, vanished=tuple(sorted(vanished)), newly_skipped=tuple(sorted(skipped)), fewer=difference.fewer
    )


def _compare(result: Result, base: Result) -> Comparison:
    """Compare failures; a base without a verdict has no failures that a change could share."""
    return compare(result.outcome, base.outcome if _has_verdict(base) else Outcome())


def _has_verdict(result: Result) -> bool:
    """Return whether a result says something about its content."""
    return result.state in (*_PASSED_STATES, "failure") and not result.obstacle


async def _base_lacks_something(checks: Checks, spec: CheckSpec, base: str) -> bool:
    """Return whether the environment lacks something on the base too, by a run made now."""
    base_spec = replace(spec, commit=base)
    base_result = await checks.verdict(base_spec)
    if base_result.cached:
        base_result = await checks.verdict(base_spec, again=True)
    return bool(base_result.obstacle)
