"""Create the event that records a check's result: `check_finished(...)`, for pull requests and for the merge queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent_orchestrator.changes.checks import Assessment, owned_failures
from agent_orchestrator.config.detection import detect_commands
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import NOT_SET_UP
from agent_orchestrator.errors import AoError

MAX_NAMES = 200
"""Maximum number of failures, and of tests of each kind, that an event names."""
MAX_LENGTH = 300
"""Maximum number of characters of a name and of a failure's message."""
_MAX_SHOWN = 10
"""Maximum number of failures that a summary names."""


async def check_finished(
    facts: SessionFacts,
    project: ProjectConfig,
    found: Assessment,
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
    result, tests = found.result, found.result.tests
    owned = owned_failures(task, found.known, facts.base) if task and found.known else ()
    is_not_set_up = found.state == NOT_SET_UP
    return e.CheckFinished(
        name,
        head,
        found.state,
        summary=_summary(facts.base, found, owned, where),
        log=str(result.log),
        tree=result.tree,
        passed=tests.passed if tests else None,
        failed=tests.failed if tests else None,
        skipped=tests.skipped if tests else None,
        on_base=found.is_known and not owned,
        compared=found.compared,
        new={_truncate(failure): _truncate(message) for failure, message in list(found.new.items())[:MAX_NAMES]},
        known=_limit_names(found.known),
        owned=_limit_names(owned),
        vanished=_limit_names(found.vanished),
        newly_skipped=_limit_names(found.newly_skipped),
        fewer=found.fewer,
        fixed_since=found.fixed_since,
        forbidden=project.red_base == "forbid",
        reason=found.reason,
        remedy=await _remedy(facts, project, found) if is_not_set_up else "",
        command=command,
    )


async def _remedy(facts: SessionFacts, project: ProjectConfig, assessment: Assessment) -> str:
    """Return what a person or the agent can do about a check whose environment is not set up."""
    if assessment.stops_tests:
        return f"The tests run on {facts.base}, so this change stops them: see its output and what it does to the tests' configuration"
    return await asyncio.to_thread(set_up_remedy, project.path, project.post_create)


def check_not_started(name: str, head: str, error: AoError) -> e.CheckFinished:
    """Return the event for a check that could not be started; its state `not_set_up` says nothing about the change."""
    return e.CheckFinished(name, head, NOT_SET_UP, summary=str(error), reason=error.text, remedy=error.remedy)


def task_text(facts: SessionFacts) -> str:
    """Return a session's task: its title, and its prompt with the issue's text."""
    return f"{facts.spec.title}\n{facts.spec.prompt}"


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
    if assessment.known:
        owned_items = ((name, assessment.known[name]) for name in owned)
        lines += _failure_lines("new failure", "new failures", assessment.new.items())
        lines += _failure_lines(f"failure on {base} to fix", f"failures on {base} to fix", owned_items)
        other_names = [name for name in assessment.known if name not in owned]
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
    """Return at most `MAX_NAMES` names, each truncated to `MAX_LENGTH`."""
    return tuple(_truncate(name) for name in list(names)[:MAX_NAMES])


def _truncate(text: str) -> str:
    """Truncate a text to `MAX_LENGTH` characters."""
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"
