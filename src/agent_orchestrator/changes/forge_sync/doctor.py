"""What `ao doctor` says of forges and trackers: who we are there, what tokens lack, what is left of the grants, whether webhooks come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agent_orchestrator.base.health import finding
from agent_orchestrator.changes.forge_sync.connections import LOCAL, Repositories
from agent_orchestrator.changes.forge_sync.webhooks import KINDS, Webhooks
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.forge import Access, Author, Metered, SignedIn

PATIENCE = 10.0
SOON = 7 * 86_400.0
"""Seconds before a token's end from which on it is told."""


class Checkup:
    """Looks at every project that has its pull requests or issues elsewhere."""

    def __init__(self, repositories: Repositories, webhooks: Webhooks) -> None:
        self.repositories = repositories
        self.webhooks = webhooks
        self.clock = webhooks.flow.clock
        self.url = ""
        """Where this daemon is reached."""

    async def run(self) -> list[dict[str, Any]]:
        """A line or two for each of them."""
        projects = self.repositories.plugins.config.projects()
        found = await asyncio.gather(*(self._project(project) for project in projects))
        return [line for lines in found for line in lines]

    async def _project(self, project: ProjectConfig) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        try:
            forge, tracker = await self.repositories.name(project), await self.repositories.tracker_name(project)
        except AoError as error:
            return [finding(f"forge of {project.id}", "failed", error.text, error.remedy)]
        if forge == LOCAL and project.repo:
            remedy = "gh auth login, or set GITHUB_TOKEN; scm: local says that this is meant"
            detail = f"{project.repo} is named, but there is no token for it: pull requests stay here"
            lines.append(finding(f"forge of {project.id}", "warning", detail, remedy))
        looks = [self._scm(project, forge)] if forge != LOCAL else []
        looks += [self._tracker(project, tracker)] if tracker != LOCAL else []
        lines += await asyncio.gather(*looks)
        troubles = (
            self.webhooks.watch.problems.get((project.id, forge)),
            self.webhooks.tracking.problems.get(project.id),
            *self.webhooks.watch.untold(project.id),
        )
        lines += [
            finding(f"reading {project.id}", "warning", one, "it is tried again by itself") for one in troubles if one
        ]
        lines += [self._hooks(project, name) for name in dict.fromkeys((forge, tracker)) if name in KINDS]
        return lines

    async def _scm(self, project: ProjectConfig, name: str) -> dict[str, Any]:
        async def look() -> tuple[object, str, Access]:
            scm = await self.repositories.reach(project.id, name)
            found = await scm.access() if isinstance(scm, SignedIn) else Access(await scm.login())
            return scm, f"{scm.repo}, ", found

        return await self._signed_in(f"{name}: {project.id}", look)

    async def _tracker(self, project: ProjectConfig, name: str) -> dict[str, Any]:
        async def look() -> tuple[object, str, Access]:
            tracker = await self.repositories.reach_tracker(project.id, name)
            if isinstance(tracker, SignedIn):
                return tracker, "", await tracker.access()
            await tracker.list(state="open", since=self.clock())
            return tracker, "", Access(Author("somebody"), "tried: reading issues")

        return await self._signed_in(f"{name} issues: {project.id}", look)

    async def _signed_in(self, title: str, look: Callable[[], Awaitable[tuple[object, str, Access]]]) -> dict[str, Any]:
        """Who we are there, what the token lacks and for what, and what is left of the grants."""
        try:
            async with asyncio.timeout(PATIENCE):
                part, where, found = await look()
        except (AoError, TimeoutError) as error:
            remedy = error.remedy if isinstance(error, AoError) else "try again later"
            text = getattr(error, "text", "") or f"no answer within {PATIENCE:g} s"
            return finding(title, "failed", text, remedy)
        left = "; ".join(part.budget()) if isinstance(part, Metered) else ""
        who = f"{where}as {found.author.name}" + (f", {found.told}" if found.told else "")
        lacks = [str(lack) for lack in found.lacks]
        remedies = [lack.remedy for lack in found.lacks if lack.remedy]
        if found.until is not None and found.until - self.clock() < SOON:
            lacks.append(f"the token ends on {rfc3339(found.until)[:10]}")
            remedies.append("make another one before")
        detail = "; ".join([who, *lacks]) + (f" ({left})" if left else "")
        vital = any(lack.vital for lack in found.lacks)
        return finding(
            title, "failed" if vital else "warning" if lacks else "ok", detail, "; ".join(dict.fromkeys(remedies))
        )

    def _hooks(self, project: ProjectConfig, name: str) -> dict[str, Any]:
        title = f"{name} webhooks: {project.id}"
        address = f"{self.url or 'http://HOST:PORT'}/api/webhooks/{name}"
        how = f"let {name} send all events as JSON to {address} (by a tunnel or --host, if it must reach this machine)"
        if variable := self.repositories.unset_secret(project, name):
            detail = f"{variable} (webhook.secretEnvVar) is not set where the daemon was started: changes are seen by polling"
            return finding(title, "warning", detail, f"set it, then ao shutdown and ao start; and {how}")
        if not any(project.id in whose for whose in self.repositories.secrets(name).values()):
            remedy = f"webhook: {{secretEnvVar: NAME}} in the configuration, and {how}"
            return finding(title, "warning", "no secret is configured: changes are seen by polling", remedy)
        if why := self.webhooks.refused.get(name):
            remedy = f"see that {name} and webhook.secretEnvVar have the same secret, and that both clocks are right"
            return finding(title, "warning", f"the last one was not taken: {why}", remedy)
        if name not in self.webhooks.last:
            return finding(title, "warning", "none has come yet: changes are seen by polling", how)
        return finding(title, "ok", "they come")
