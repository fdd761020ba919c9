"""What `ao doctor` says of forges and trackers: who we are there, what is left of their grants, and whether their webhooks come."""

from __future__ import annotations

import asyncio
from typing import Any

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.errors import AoError
from agent_orchestrator.forge import SCM, Metered
from agent_orchestrator.services.doctor import finding
from agent_orchestrator.services.forges.hooks import KINDS, Webhooks
from agent_orchestrator.services.forges.repositories import LOCAL, Repositories, problem

PATIENCE = 10.0


class Checkup:
    """Looks at every project that has its pull requests or issues elsewhere."""

    def __init__(self, repositories: Repositories, webhooks: Webhooks) -> None:
        self.repositories = repositories
        self.webhooks = webhooks
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
        if forge != LOCAL:
            lines.append(await self._login(project, forge))
        troubles = (
            self.webhooks.watch.problems.get((project.id, forge)),
            self.webhooks.tracking.problems.get(project.id),
        )
        lines += [
            finding(f"reading {project.id}", "warning", one, "it is tried again by itself") for one in troubles if one
        ]
        lines += [self._hooks(project, name) for name in dict.fromkeys((forge, tracker)) if name in KINDS]
        return lines

    async def _login(self, project: ProjectConfig, name: str) -> dict[str, Any]:
        title = f"{name}: {project.id}"
        try:
            async with asyncio.timeout(PATIENCE):
                scm: SCM = await self.repositories.reach(project.id, name)
                me = await scm.login()
        except (AoError, TimeoutError) as error:
            remedy = error.remedy if isinstance(error, AoError) else "try again later"
            return finding(title, "failed", getattr(error, "text", "") or problem(error), remedy)
        left = "; ".join(scm.budget()) if isinstance(scm, Metered) else ""
        return finding(title, "ok", f"{scm.repo}, as {me.name}{f' ({left})' if left else ''}")

    def _hooks(self, project: ProjectConfig, name: str) -> dict[str, Any]:
        title = f"{name} webhooks: {project.id}"
        address = f"{self.url or 'http://HOST:PORT'}/api/webhooks/{name}"
        how = f"let {name} send all events as JSON to {address} (by a tunnel or --host, if it must reach this machine)"
        if not list(self.repositories.secrets(name)):
            remedy = f"webhook: {{secretEnvVar: NAME}} in the configuration, and {how}"
            return finding(title, "warning", "no secret is configured: changes are seen by polling", remedy)
        if name not in self.webhooks.last:
            return finding(title, "warning", "none has come yet: changes are seen by polling", how)
        return finding(title, "ok", "they come")
