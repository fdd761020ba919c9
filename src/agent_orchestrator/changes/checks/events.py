"""The event that says what a check found: `check_finished(...)`. For a session's pull request and for the merge queue alike."""

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
"""Failures and tests of each kind that an event names."""
MAX_LENGTH = 300
"""Characters of a name, and of a failure's message."""
_SHOWN = 10
"""Failures that a summary names."""


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
    """Return what is recorded of a check at the session's commit `head`.

    `task`: the text by which the session owns failures of the base branch. `where`: said before the summary ("on top of main").
    """
    result, tests = found.result, found.result.tests
    owned = owned_failures(task, found.known, facts.base) if task and found.known else ()
    lacking = found.state == NOT_SET_UP
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
        new={_short(failure): _short(message) for failure, message in list(found.new.items())[:MAX_NAMES]},
        known=_bounded(found.known),
        owned=_bounded(owned),
        vanished=_bounded(found.vanished),
        newly_skipped=_bounded(found.newly_skipped),
        fewer=found.fewer,
        fixed_since=found.fixed_since,
        forbidden=project.red_base == "forbid",
        reason=found.reason,
        remedy=await _remedy(facts, project, found) if lacking else "",
        command=command,
    )


async def _remedy(facts: SessionFacts, project: ProjectConfig, found: Assessment) -> str:
    if found.stops_tests:
        return f"The tests run on {facts.base}, so this change stops them: see its output and what it does to the tests' configuration"
    return await asyncio.to_thread(set_up_remedy, project.path, project.post_create)


def check_not_started(name: str, head: str, error: AoError) -> e.CheckFinished:
    """Return what is recorded of a check that could not be started: it says nothing of the change."""
    return e.CheckFinished(name, head, NOT_SET_UP, summary=str(error), reason=error.text, remedy=error.remedy)


def task_text(facts: SessionFacts) -> str:
    """Return what a session's task says: title, and text with its issue."""
    return f"{facts.spec.title}\n{facts.spec.prompt}"


def set_up_remedy(root: Path, post_create: Sequence[str]) -> str:
    """Return what a person can do: set `postCreate` to what the repository's files suggest, or see why the present one fails."""
    if post_create:
        return "Correct postCreate, then: ao init --check"
    found = detect_commands(root)
    suggested = list(found[0].set_up) if found and found[0].set_up else ["npm ci"]
    return f"Set postCreate, for example: {json.dumps(suggested, ensure_ascii=False)}, then: ao init --check"


def _summary(base: str, found: Assessment, owned: Sequence[str], where: str) -> str:
    """Say how the failures compare with the base's, then what the output says."""
    lines = []
    if found.state == NOT_SET_UP:
        lines.append(f"environment not set up: {found.reason}")
    elif found.reason:
        lines.append(found.reason)
    if found.known:
        mine = ((name, found.known[name]) for name in owned)
        lines += _listed("new failure", "new failures", found.new.items())
        lines += _listed(f"failure on {base} to fix", f"failures on {base} to fix", mine)
        rest = [name for name in found.known if name not in owned]
        also = f"also {'fails' if len(rest) == 1 else 'fail'} on {base}"
        if found.fixed_since:
            also = f"also failed at the branch point, since fixed on {base}"
        lines += [f"{also}: {_some(rest)}"] if rest else []
    if found.vanished:
        lines.append(f"tests that pass on {base} and are gone: {_some(found.vanished)}")
    if found.newly_skipped:
        lines.append(f"tests that pass on {base} and are skipped: {_some(found.newly_skipped)}")
    if found.fewer:
        lines.append(f"{found.fewer} fewer tests are run than on {base}")
    said = "" if found.result.state == "success" else found.result.summary
    text = "\n".join([*lines, *([said] if said else [])])
    return f"{where}{text}" if text else ""


def _listed(one: str, many: str, failures: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"  {_short(name)}: {_short(message)}" for name, message in failures]
    more = [f"  and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [f"{len(lines)} {one if len(lines) == 1 else many}:", *lines[:_SHOWN], *more] if lines else []


def _some(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(_short, names[:_SHOWN])) + rest


def _bounded(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(_short(name) for name in list(names)[:MAX_NAMES])


def _short(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 1]}…"
