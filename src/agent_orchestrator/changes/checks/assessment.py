"""Judges a change by a check: what fails is compared with the base branch, test by test, and what cannot be known is said to be unknown.

`assess(checks, spec, base)` runs the check and judges it; `judge(checks, spec, result, base)` judges a result that is there already.
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
_PASSED = ("success", "flaky")
_LONGEST_REASON = 120


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a check says of a change."""

    state: State
    result: Result
    reason: str = ""
    """What the environment lacks, if the state is `not_set_up`; that no test is run, or passes, here or on the base, if it is known."""
    stops_tests: bool = False
    """The state is `not_set_up`, and the base branch's tests do run: the change keeps its own from running."""
    compared: bool = False
    """The result was compared with the base branch's."""
    new: Mapping[str, str] = field(default_factory=dict)
    """Failures that the base does not have: name and message."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Failures that the base has too."""
    vanished: tuple[str, ...] = ()
    newly_skipped: tuple[str, ...] = ()
    fewer: int = 0
    fixed_since: bool = False
    """The known failures are those of the commit where the branch left the base; the base does not have them any more."""

    @property
    def is_known(self) -> bool:
        """Whether everything that fails fails on the base too."""
        return self.state == "failure" and bool(self.known) and not self.new


async def assess(
    checks: Checks,
    spec: CheckSpec,
    base: str,
    *,
    started: Started | None = None,
    doubted: Callable[[], None] | None = None,
) -> Assessment:
    """Run a check on a change that is on top of the commit `base`, and judge it by that. Raises what `Checks.verdict` raises."""
    result = await checks.verdict(spec, started=started, doubted=doubted)
    return await judge(checks, spec, result, base)


async def judge(
    checks: Checks, spec: CheckSpec, result: Result, base: str | None, branch_point: str | None = None
) -> Assessment:
    """Compare a change's result with the commit `base`, and with the one where the branch left the base.

    Runs the check on those where their results are not known. Raises what `Checks.verdict` raises.
    """
    if spec.own or base is None or result.state in ("cancelled", "timed_out"):
        return Assessment(result.state, result, new=result.outcome.failures)
    left = branch_point or base
    if result.state in _PASSED:
        return await _assess_passed(checks, spec, result, base, left)
    if result.obstacle and await _lacks_something(checks, spec, base):
        return Assessment("not_set_up", result, reason=result.obstacle)
    return await _assess_failed(checks, spec, result, base, left)


async def _assess_passed(checks: Checks, spec: CheckSpec, result: Result, base: str, left: str) -> Assessment:
    earlier = checks.executed_before(spec)
    if not result.outcome.executed and not earlier and not may_run_tests(spec.command):
        return Assessment(result.state, result)  # it runs no tests that could be missing
    before = await checks.verdict(replace(spec, commit=left))
    there = before.outcome.executed if _has_verdict(before) else 0
    if not result.outcome.executed and not earlier and not there:
        return Assessment(result.state, result)
    if not result.outcome.executed and (there or earlier):
        where = f"{there} on {spec.base or 'the base'}" if there else f"{earlier} in an earlier run"
        return Assessment("not_set_up", result, reason=f"no test was executed ({where})", stops_tests=bool(there))
    found = Assessment(result.state, result, compared=_has_verdict(before))
    return await _with_dropped(checks, spec, found, before, base, left)


async def _assess_failed(checks: Checks, spec: CheckSpec, result: Result, base: str, left: str) -> Assessment:
    there = await checks.verdict(replace(spec, commit=base))
    earlier = checks.executed_before(spec)
    if earlier and not result.outcome.executed and there.cached:
        there = await checks.verdict(replace(spec, commit=base), again=True)  # what it had may be gone from the machine
    if earlier and not result.outcome.executed and not there.outcome.executed:
        reason = f"no test was executed, here or on {spec.base or 'the base'} ({earlier} in an earlier run)"
        return Assessment("not_set_up", result, reason=reason)
    new = _compare(result, there).new
    before = there
    if left != base:
        before = await checks.verdict(replace(spec, commit=left))
        new = {name: message for name, message in _compare(result, before).new.items() if name in new}
    known = {name: message for name, message in result.outcome.failures.items() if name not in new}
    reason = ""
    if not new and not result.outcome.executed and not there.outcome.executed and runs_tests(spec.command):
        reason = f"no test was run, here or on {spec.base or 'the base'}"
        if all(name.startswith(WHOLE) for name in known):
            said = "".join(known.values())  # one failure, and the same words in every session: one notification for all
            return Assessment("not_set_up", result, reason=f"{reason} ({stable_text(said)[:_LONGEST_REASON]})")
    if not new and result.outcome.none_passes and there.outcome.none_passes:
        messages = {stable_text(message) for message in result.outcome.failures.values()}
        reason = f"no test passes, here or on {spec.base or 'the base'}"
        if len(messages) == 1 and len(result.outcome.failures) > 1:
            return Assessment("not_set_up", result, reason=f"{reason} ({messages.pop()[:_LONGEST_REASON]})")
    fixed = bool(known) and _has_verdict(there) and not any(name in there.outcome.failures for name in known)
    found = Assessment(result.state, result, reason, compared=True, new=new, known=known, fixed_since=fixed)
    return await _with_dropped(checks, spec, found, before, base, left)


async def _with_dropped(
    checks: Checks, spec: CheckSpec, found: Assessment, before: Result, base: str, left: str
) -> Assessment:
    """Add the tests that are not run any more; what the base has removed since is none of them."""
    if not _has_verdict(before):
        return found
    difference = compare(found.result.outcome, before.outcome)
    vanished, skipped = set(difference.vanished), set(difference.newly_skipped)
    if left != base and (vanished or skipped):
        now = await checks.verdict(replace(spec, commit=base))
        later = compare(found.result.outcome, now.outcome)
        vanished &= set(later.vanished)
        skipped &= set(later.newly_skipped)
    return replace(
        found, vanished=tuple(sorted(vanished)), newly_skipped=tuple(sorted(skipped)), fewer=difference.fewer
    )


def _compare(result: Result, base: Result) -> Comparison:
    """Compare failures; a base without a verdict has no failures that a change could share."""
    return compare(result.outcome, base.outcome if _has_verdict(base) else Outcome())


def _has_verdict(result: Result) -> bool:
    """Whether a result says something about its content."""
    return result.state in (*_PASSED, "failure") and not result.obstacle


async def _lacks_something(checks: Checks, spec: CheckSpec, base: str) -> bool:
    """Whether the environment lacks something on the base as well, by a run of this moment."""
    there = replace(spec, commit=base)
    found = await checks.verdict(there)
    if found.cached:
        found = await checks.verdict(there, again=True)
    return bool(found.obstacle)
