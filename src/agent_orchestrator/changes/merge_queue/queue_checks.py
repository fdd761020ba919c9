"""Run all of the project's checks on the tree that a merge would produce.

Look here for what makes a check hold a merge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from agent_orchestrator.changes.checks.assessment import assess, check_finished_event
from agent_orchestrator.changes.checks.ownership import task_text
from agent_orchestrator.changes.checks.required_checks import RequiredChecks
from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.checks.spec import CheckSpec
from agent_orchestrator.changes.merge import BuiltMerge
from agent_orchestrator.changes.merge_queue.base_queue import FailedQueueCheck, Ticket
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import CheckSection
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import check_run
from agent_orchestrator.core.pull_request import PASSING_STATES, CheckRun
from agent_orchestrator.core.signals import QueuePlanned
from agent_orchestrator.sessions.part import Core

SpecOf = Callable[[SessionFacts, ProjectConfig, str, CheckSection, str], CheckSpec]
"""Return the specification of one check run, from the session, its project, the check's name, the check, and the commit."""

MAX_REMEMBERED_COMMITS = 500
"""Number of built commits whose check states are kept."""


class QueueChecks:
    """Runs the checks of built merges and keeps their states."""

    def __init__(self, core: Core, checks: Checks, required: RequiredChecks, spec_of: SpecOf) -> None:
        self._core = core
        self._checks = checks
        self._required = required
        self._make_spec = spec_of
        self._states: dict[str, dict[str, str]] = {}

    def states(self, commit: str) -> dict[str, str]:
        """Return the states of a built commit's checks, by name."""
        return self._states.get(commit, {})

    async def find_failure(
        self, ticket: Ticket, built: BuiltMerge, doubt: Callable[[], None]
    ) -> FailedQueueCheck | None:
        """Run all checks of a built merge.

        Return the first check that holds the merge through the change's own fault, or None if the change may merge.
        `doubt` is called when a check fails for the first time and runs again.
        """
        facts = self._core.flow.sessions[ticket.entry.session]
        project = self._core.settings.project(facts.project)
        await self._core.projects.check_trust(project, None, ci=True)
        await self._core.sites.local.login_ready.wait()
        checks = self._required.for_session(facts)
        self._states[built.commit] = dict.fromkeys(checks, "queued")
        for old_commit in list(self._states)[:-MAX_REMEMBERED_COMMITS]:
            del self._states[old_commit]
        specs = {name: self._make_spec(facts, project, name, check, built.commit) for name, check in checks.items()}
        failures = await asyncio.gather(
            *(self._run_check(facts, project, spec, built, doubt) for spec in specs.values())
        )
        return next((failure for failure in failures if failure), None)

    async def _run_check(
        self, facts: SessionFacts, project: ProjectConfig, spec: CheckSpec, built: BuiltMerge, doubt: Callable[[], None]
    ) -> FailedQueueCheck | None:
        """Run one check of a built merge; return its failure, or None if it does not hold the merge."""
        states = self._states.get(built.commit, {})

        def on_start(_tree: str) -> None:
            """Record that the check runs."""
            states[spec.name] = "running"
            self._core.flow.listeners.emit(QueuePlanned())

        def on_first_failure() -> None:
            """Report the first failure in the background."""
            doubt_tasks.append(asyncio.ensure_future(self._report_first_failure(spec, built, doubt)))

        doubt_tasks: list[asyncio.Future[None]] = []
        base = built.base_before
        try:
            assessment = await assess(self._checks, spec, base, started=on_start, doubted=on_first_failure)
            while assessment.state == "cancelled":  # by a session that no longer needs this content
                assessment = await assess(self._checks, spec, base, started=on_start)
        finally:
            for task in doubt_tasks:
                task.cancel()
        body = await check_finished_event(
            facts, project, assessment, spec.name, facts.head or "", spec.command, task=self._task_text(facts)
        )
        states[spec.name] = assessment.state
        self._core.flow.listeners.emit(QueuePlanned())
        return FailedQueueCheck(spec.name, assessment, body) if _holds_merge(check_run(body), facts) else None

    def _task_text(self, facts: SessionFacts) -> str:
        """Return the session's task text, or "" if the session has its own checks."""
        return "" if self._required.fix_check(facts) else task_text(facts)

    async def _report_first_failure(self, spec: CheckSpec, built: BuiltMerge, doubt: Callable[[], None]) -> None:
        """Report that a check failed once, unless the commit below the built one is known to fail that check too."""
        base_result = await self._checks.stored_result(replace(spec, commit=built.base_before))
        if base_result is None or base_result.state != "failure":
            doubt()


def _holds_merge(run: CheckRun, facts: SessionFacts) -> bool:
    """Return whether a check of a built merge holds the merge."""
    assert facts.pr is not None
    if run.forbidden if run.is_known else run.state not in PASSING_STATES:
        return True
    return run.drops_tests and not facts.pr.is_approved_by_person(facts.head)
