"""Is what was built good? Every check of the project, at that very tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from agent_orchestrator.changes.checks import Checks, CheckSpec, assess
from agent_orchestrator.changes.checks.events import check_finished, task_text
from agent_orchestrator.changes.merge import Built
from agent_orchestrator.changes.merge_queue.lane import Failed, Ticket
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import Check
from agent_orchestrator.config.projects.projects import Projects
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.pull_requests import check_run
from agent_orchestrator.core.pull_request import GOOD, CheckRun
from agent_orchestrator.sessions.plugins import Plugins

SpecOf = Callable[[SessionFacts, ProjectConfig, str, Check, str], CheckSpec]
"""One check of one commit: session, its project, the check's name, the check, the commit."""

REMEMBERED = 500
"""Of so many built commits it is known how far their checks are."""


class Checking:
    """Judges what was built, and knows how far that is."""

    def __init__(self, flow: Flow, plugins: Plugins, projects: Projects, checks: Checks, spec_of: SpecOf) -> None:
        self._flow = flow
        self._plugins = plugins
        self._projects = projects
        self._checks = checks
        self._spec_of = spec_of
        self._states: dict[str, dict[str, str]] = {}
        self.on_state: Callable[[], None] = lambda: None
        """Told when a check of something built is further than before."""

    def states(self, commit: str) -> dict[str, str]:
        """The checks of what was built, by name."""
        return self._states.get(commit, {})

    async def judge(self, ticket: Ticket, built: Built, doubt: Callable[[], None]) -> Failed | None:
        """The first check that fails through the change's own fault; none: it may land."""
        facts = self._flow.sessions[ticket.entry.session]
        project = self._plugins.project(facts.project)
        await self._projects.check_trust(project, None, ci=True)
        await self._plugins.here.login_ready.wait()
        checks = self._plugins.checks(facts)
        self._states[built.commit] = dict.fromkeys(checks, "queued")
        for old in list(self._states)[:-REMEMBERED]:
            del self._states[old]
        specs = {name: self._spec_of(facts, project, name, check, built.commit) for name, check in checks.items()}
        found = await asyncio.gather(*(self._one(facts, project, spec, built, doubt) for spec in specs.values()))
        return next((failed for failed in found if failed), None)

    async def _one(
        self, facts: SessionFacts, project: ProjectConfig, spec: CheckSpec, built: Built, doubt: Callable[[], None]
    ) -> Failed | None:
        states = self._states.get(built.commit, {})

        def started(_tree: str) -> None:
            states[spec.name] = "running"
            self.on_state()

        def failed_once() -> None:
            doubting.append(asyncio.ensure_future(self._doubt(spec, built, doubt)))

        doubting: list[asyncio.Future[None]] = []
        base = built.base_before
        try:
            found = await assess(self._checks, spec, base, started=started, doubted=failed_once)
            while found.state == "cancelled":  # by a session that no longer needs this content; we do
                found = await assess(self._checks, spec, base, started=started)
        finally:
            for one in doubting:
                one.cancel()
        body = await check_finished(
            facts, project, found, spec.name, facts.head or "", spec.command, task=self._task(facts)
        )
        states[spec.name] = found.state
        self.on_state()
        return Failed(spec.name, found, body) if _holds(check_run(body), facts) else None

    def _task(self, facts: SessionFacts) -> str:
        return "" if self._plugins.own_checks(facts) else task_text(facts)

    async def _doubt(self, spec: CheckSpec, built: Built, doubt: Callable[[], None]) -> None:
        """Say that a check failed once, unless what the change was built upon is known to fail."""
        known = await self._checks.known(replace(spec, commit=built.base_before))
        if known is None or known.state != "failure":
            doubt()


def _holds(run: CheckRun, facts: SessionFacts) -> bool:
    """Whether a check of what was built holds its merge."""
    assert facts.pr is not None
    if run.forbidden if run.is_known else run.state not in GOOD:
        return True
    return run.drops_tests and not facts.pr.person_approved(facts.head)
