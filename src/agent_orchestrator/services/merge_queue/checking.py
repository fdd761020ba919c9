"""Is what was built good? Every check of the project, at that very tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import Check
from agent_orchestrator.flow.engine import Flow
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.pull import GOOD
from agent_orchestrator.services.checks import Checks, CheckSpec, Result
from agent_orchestrator.services.landing import Built
from agent_orchestrator.services.merge_queue.lane import Failed, Ticket
from agent_orchestrator.services.plugins import Plugins
from agent_orchestrator.services.projects import Projects

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
        checks = self._plugins.checks(facts)
        self._states[built.commit] = dict.fromkeys(checks, "queued")
        for old in list(self._states)[:-REMEMBERED]:
            del self._states[old]
        specs = {name: self._spec_of(facts, project, name, check, built.commit) for name, check in checks.items()}
        found = await asyncio.gather(*(self._one(spec, built, doubt) for spec in specs.values()))
        return next((failed for failed in found if failed), None)

    async def _one(self, spec: CheckSpec, built: Built, doubt: Callable[[], None]) -> Failed | None:
        states = self._states.get(built.commit, {})

        def started(_tree: str) -> None:
            states[spec.name] = "running"
            self.on_state()

        def failed_once() -> None:
            doubting.append(asyncio.ensure_future(self._doubt(spec, built, doubt)))

        doubting: list[asyncio.Future[None]] = []
        try:
            result = await self._checks.verdict(spec, started=started, doubted=failed_once)
            while result.state == "cancelled":  # by somebody who had no use for this content any more: we have
                result = await self._checks.verdict(spec, started=started)
        finally:
            for one in doubting:
                one.cancel()
        states[spec.name] = result.state
        self.on_state()
        if result.state in GOOD or await self._not_its_own(spec, built, result):
            return None
        return Failed(spec.name, result)

    async def _doubt(self, spec: CheckSpec, built: Built, doubt: Callable[[], None]) -> None:
        """It failed once. That says something, unless what it was built upon is known to fail."""
        known = await self._checks.known(replace(spec, commit=built.base_before))
        if known is None or known.state != "failure":
            doubt()

    async def _not_its_own(self, spec: CheckSpec, built: Built, result: Result) -> bool:
        """Did it fail in the same way without the change?"""
        return result.about_content and await self._checks.base_fails(spec, built.base_before, result)
