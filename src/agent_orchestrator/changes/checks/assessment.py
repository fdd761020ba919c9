"""Assess a check of a change: compare its failures with the base branch, test by test, and report what cannot be known as unknown.

`assess(checks, spec, base)` runs the check and compares it; `compare_with_base(checks, spec, result, base)` compares an existing result;
`check_finished_event(...)` is the event that records an assessment, for pull requests and for the merge queue.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from agent_orchestrator.changes.checks.outcome import WHOLE_OUTPUT, Comparison, Outcome, compare_outcomes
from agent_orchestrator.changes.checks.ownership import owned_failures
from agent_orchestrator.changes.checks.results import CheckResult
from agent_orchestrator.changes.checks.runner import Checks, OnStart, run_confirmed
from agent_orchestrator.changes.checks.runners.common import stable_text
from agent_orchestrator.changes.checks.spec import CheckSpec, may_run_tests, runs_tests
from agent_orchestrator.config.detection import detect_commands
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import NOT_SET_UP
from agent_orchestrator.errors import AoError

AssessmentState = Literal["success", "failure", "flaky", "timed_out", "cancelled", "not_set_up"]
_PASSED_STATES = ("success", "flaky")
_MAX_REASON_LENGTH = 120
MAX_NAMES = 200
"""Maximum number of failures, and of tests of each kind, that an event names."""
MAX_NAME_LENGTH = 300
"""Maximum number of characters of a name and of a failure's message."""
_MAX_SHOWN = 10
"""Maximum number of failures that a summary names."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """The result of a check on a change, compared with the base branch."""

    state: AssessmentState
    result: CheckResult
    reason: str = ""
    """What the environment lacks (`not_set_up`), or, for known failures, that no test is run or passes here or on the base."""
    stops_tests: bool = False
    """Whether the state is `not_set_up` although tests run on the base branch: the change prevents its own tests from running."""
    compared: bool = False
    """Whether the result was compared with the base branch's result."""
    new: Mapping[str, str] = field(default_factory=dict)
    """Failures that the base does not have: message by name."""
    known_failures: Mapping[str, str] = field(default_factory=dict)
    """Failures that the base has too: message by name."""
    vanished: tuple[str, ...] = ()
    newly_skipped: tuple[str, ...] = ()
    fewer: int = 0
    fixed_since: bool = False
    """Whether the known failures are those of the branch point and the base does not have them any more."""

    @property
    def is_known(self) -> bool:
        """Whether every failure also occurs on the base."""
        return self.state == "failure" and bool(self.known_failures) and not self.new


async def assess(
    checks: Checks,
    spec: CheckSpec,
    base: str,
    *,
    started: OnStart | None = None,
    doubted: Callable[[], None] | None = None,
) -> Assessment:
    """Run a check on a change on top of the commit `base` and assess it. Raises what `run_confirmed` raises."""
    result = await run_confirmed(checks, spec, started=started, doubted=doubted)
    return await compare_with_base(checks, spec, result, base)


async def compare_with_base(
    checks: Checks, spec: CheckSpec, result: CheckResult, base: str | None, branch_point: str | None = None
) -> Assessment:
    """Compare a change's result with the commit `base` and with the branch point, where the branch left the base.

    Runs the check on those commits if their results are not stored. Raises what `run_confirmed` raises.
    """
    if spec.never_compared or base is None or result.state in ("cancelled", "timed_out"):
        return Assessment(result.state, result, new=result.outcome.failures)
    fork = branch_point or base
    if result.state in _PASSED_STATES:
        return await _assess_passed(checks, spec, result, base, fork)
    if result.obstacle and await _base_lacks_something(checks, spec, base):
        return Assessment("not_set_up", result, reason=result.obstacle)
    return await _assess_failed(checks, spec, result, base, fork)


async def _assess_passed(
    checks: Checks, spec: CheckSpec, result: CheckResult, base: str, branch_point: str
) -> Assessment:
    """Assess a check that passes: find out whether tests are missing or skipped that ran at the branch point."""
    earlier_count = checks.last_executed_count(spec)
    if not result.outcome.executed_count and not earlier_count and not may_run_tests(spec.command):
        return Assessment(result.state, result)  # the check runs no tests, so none can be missing
    branch_point_result = await run_confirmed(checks, replace(spec, commit=branch_point))
    branch_point_count = branch_point_result.outcome.executed_count if _is_conclusive(branch_point_result) else 0
    if not result.outcome.executed_count and not earlier_count and not branch_point_count:
        return Assessment(result.state, result)
    if not result.outcome.executed_count and (branch_point_count or earlier_count):
        comparison = (
            f"{branch_point_count} on {spec.base or 'the base'}"
            if branch_point_count
            else f"{earlier_count} in an earlier run"
        )
        return Assessment(
            "not_set_up", result, reason=f"no test was executed ({comparison})", stops_tests=bool(branch_point_count)
        )
    assessment = Assessment(result.state, result, compared=_is_conclusive(branch_point_result))
    return await _add_missing_tests(checks, spec, assessment, branch_point_result, base, branch_point)


async def _assess_failed(
    checks: Checks, spec: CheckSpec, result: CheckResult, base: str, branch_point: str
) -> Assessment:
    """Assess a check that fails: separate new failures from those of the base and the branch point."""
    base_result = await run_confirmed(checks, replace(spec, commit=base))
    earlier_count = checks.last_executed_count(spec)
    if earlier_count and not result.outcome.executed_count and base_result.cached:
        base_result = await run_confirmed(
            checks, replace(spec, commit=base), again=True
        )  # the environment may have changed
    if earlier_count and not result.outcome.executed_count and not base_result.outcome.executed_count:
        reason = f"no test was executed, here or on {spec.base or 'the base'} ({earlier_count} in an earlier run)"
        return Assessment("not_set_up", result, reason=reason)
    new = _compare(result, base_result).new
    branch_point_result = base_result
    if branch_point != base:
        branch_point_result = await run_confirmed(checks, replace(spec, commit=branch_point))
        new = {name: message for name, message in _compare(result, branch_point_result).new.items() if name in new}
    known_failures = {name: message for name, message in result.outcome.failures.items() if name not in new}
    reason = ""
    if (
        not new
        and not result.outcome.executed_count
        and not base_result.outcome.executed_count
        and runs_tests(spec.command)
    ):
        reason = f"no test was run, here or on {spec.base or 'the base'}"
        if all(name.startswith(WHOLE_OUTPUT) for name in known_failures):
            failure_text = "".join(
                known_failures.values()
            )  # the same text in every session, so that all share one notification
            return Assessment(
                "not_set_up", result, reason=f"{reason} ({stable_text(failure_text)[:_MAX_REASON_LENGTH]})"
            )
    if not new and result.outcome.has_only_failures and base_result.outcome.has_only_failures:
        messages = {stable_text(message) for message in result.outcome.failures.values()}
        reason = f"no test passes, here or on {spec.base or 'the base'}"
        if len(messages) == 1 and len(result.outcome.failures) > 1:
            return Assessment("not_set_up", result, reason=f"{reason} ({messages.pop()[:_MAX_REASON_LENGTH]})")
    is_fixed = (
        bool(known_failures)
        and _is_conclusive(base_result)
        and not any(name in base_result.outcome.failures for name in known_failures)
    )
    assessment = Assessment(
        result.state, result, reason, compared=True, new=new, known_failures=known_failures, fixed_since=is_fixed
    )
    return await _add_missing_tests(checks, spec, assessment, branch_point_result, base, branch_point)


async def _add_missing_tests(
    checks: Checks,
    spec: CheckSpec,
    assessment: Assessment,
    branch_point_result: CheckResult,
    base: str,
    branch_point: str,
) -> Assessment:
    """Return the assessment with the tests that are no longer run; tests that the base has removed since do not count."""
    if not _is_conclusive(branch_point_result):
        return assessment
    difference = compare_outcomes(assessment.result.outcome, branch_point_result.outcome)
    vanished, skipped = set(difference.vanished), set(difference.newly_skipped)
    if branch_point != base and (vanished or skipped):
        base_result = await run_confirmed(checks, replace(spec, commit=base))
        base_difference = compare_outcomes(assessment.result.outcome, base_result.outcome)
        vanished &= set(base_difference.vanished)
        skipped &= set(base_difference.newly_skipped)
    return replace(
        assessment, vanished=tuple(sorted(vanished)), newly_skipped=tuple(sorted(skipped)), fewer=difference.fewer
    )


def _compare(result: CheckResult, base: CheckResult) -> Comparison:
    """Compare failures; a base without a verdict has no failures that a change could share."""
    return compare_outcomes(result.outcome, base.outcome if _is_conclusive(base) else Outcome())


def _is_conclusive(result: CheckResult) -> bool:
    """Return whether a result says something about its content."""
    return result.state in (*_PASSED_STATES, "failure") and not result.obstacle


async def _base_lacks_something(checks: Checks, spec: CheckSpec, base: str) -> bool:
    """Return whether the environment lacks something on the base too, by a run made now."""
    base_spec = replace(spec, commit=base)
    base_result = await run_confirmed(checks, base_spec)
    if base_result.cached:
        base_result = await run_confirmed(checks, base_spec, again=True)
    return bool(base_result.obstacle)


# -- the event ---------------------------------------------------------------------------------------------------------


async def check_finished_event(
    facts: SessionFacts,
    project: ProjectConfig,
    assessment: Assessment,
    name: str,
    head: str,
    command: str,
    *,
    task: str = "",
    where: str = "",
) -> e.CheckFinished:
    """Return the event for a check at the session's commit `head`.

    `task` is the text by which the session owns failures of the base branch. `where` is put before the summary ("on top of main").
    """
    result, tests = assessment.result, assessment.result.tests
    owned = owned_failures(task, assessment.known_failures, facts.base) if task and assessment.known_failures else ()
    is_not_set_up = assessment.state == NOT_SET_UP
    return e.CheckFinished(
        name,
        head,
        assessment.state,
        summary=_summary(facts.base, assessment, owned, where),
        log=str(result.log),
        tree=result.tree,
        passed=tests.passed if tests else None,
        failed=tests.failed if tests else None,
        skipped=tests.skipped if tests else None,
        on_base=assessment.is_known and not owned,
        compared=assessment.compared,
        new={_truncate(failure): _truncate(message) for failure, message in list(assessment.new.items())[:MAX_NAMES]},
        known=_limit_names(assessment.known_failures),
        owned=_limit_names(owned),
        vanished=_limit_names(assessment.vanished),
        newly_skipped=_limit_names(assessment.newly_skipped),
        fewer=assessment.fewer,
        fixed_since=assessment.fixed_since,
        forbidden=project.red_base == "forbid",
        reason=assessment.reason,
        remedy=await _remedy(facts, project, assessment) if is_not_set_up else "",
        command=command,
    )


async def _remedy(facts: SessionFacts, project: ProjectConfig, assessment: Assessment) -> str:
    """Return what a person or the agent can do about a check whose environment is not set up."""
    if assessment.stops_tests:
        return f"The tests run on {facts.base}, so this change stops them: see its output and what it does to the tests' configuration"
    return await asyncio.to_thread(set_up_remedy, project.path, project.post_create)


def check_not_started_event(name: str, head: str, error: AoError) -> e.CheckFinished:
    """Return the event for a check that could not be started; its state `not_set_up` says nothing about the change."""
    return e.CheckFinished(name, head, NOT_SET_UP, summary=str(error), reason=error.text, remedy=error.remedy)


def set_up_remedy(root: Path, post_create: Sequence[str]) -> str:
    """Return a remedy: set `postCreate` to what the repository's files suggest, or find out why the present one fails."""
    if post_create:
        return "Correct postCreate, then: ao init --check"
    candidates = detect_commands(root)
    suggested_commands = list(candidates[0].set_up) if candidates and candidates[0].set_up else ["npm ci"]
    return f"Set postCreate, for example: {json.dumps(suggested_commands, ensure_ascii=False)}, then: ao init --check"


def _summary(base: str, assessment: Assessment, owned: Sequence[str], prefix: str) -> str:
    """Return how the failures compare with the base's, then the summary of the output; "" if there is nothing to report."""
    lines = []
    if assessment.state == NOT_SET_UP:
        lines.append(f"environment not set up: {assessment.reason}")
    elif assessment.reason:
        lines.append(assessment.reason)
    if assessment.known_failures:
        owned_items = ((name, assessment.known_failures[name]) for name in owned)
        lines += _failure_lines("new failure", "new failures", assessment.new.items())
        lines += _failure_lines(f"failure on {base} to fix", f"failures on {base} to fix", owned_items)
        other_names = [name for name in assessment.known_failures if name not in owned]
        label = f"also {'fails' if len(other_names) == 1 else 'fail'} on {base}"
        if assessment.fixed_since:
            label = f"also failed at the branch point, since fixed on {base}"
        lines += [f"{label}: {_join_names(other_names)}"] if other_names else []
    if assessment.vanished:
        lines.append(f"tests that pass on {base} and are gone: {_join_names(assessment.vanished)}")
    if assessment.newly_skipped:
        lines.append(f"tests that pass on {base} and are skipped: {_join_names(assessment.newly_skipped)}")
    if assessment.fewer:
        lines.append(f"{assessment.fewer} fewer tests are run than on {base}")
    output_summary = "" if assessment.result.state == "success" else assessment.result.summary
    text = "\n".join([*lines, *([output_summary] if output_summary else [])])
    return f"{prefix}{text}" if text else ""


def _failure_lines(singular: str, plural: str, failures: Iterable[tuple[str, str]]) -> list[str]:
    """Return a heading with the number of failures and a line for each of the first ones, or no lines if there are no failures."""
    lines = [f"  {_truncate(name)}: {_truncate(message)}" for name, message in failures]
    overflow = [f"  and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
    return [f"{len(lines)} {singular if len(lines) == 1 else plural}:", *lines[:_MAX_SHOWN], *overflow] if lines else []


def _join_names(names: Sequence[str]) -> str:
    """Join the first names with commas and add the number of the others."""
    suffix = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(map(_truncate, names[:_MAX_SHOWN])) + suffix


def _limit_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return at most `MAX_NAMES` names, each truncated to `MAX_NAME_LENGTH`."""
    return tuple(_truncate(name) for name in list(names)[:MAX_NAMES])


def _truncate(text: str) -> str:
    """Truncate a text to `MAX_NAME_LENGTH` characters."""
    return text if len(text) <= MAX_NAME_LENGTH else f"{text[: MAX_NAME_LENGTH - 1]}…"
