"""The findings of `ao doctor` about forges and trackers: login, missing permissions, rate limits, webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agent_orchestrator.base.finding import finding
from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.webhooks import HOOKS_BY_SENDER, Webhooks
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.forge import SCM, Access, Author, Tracker

ACCESS_TIMEOUT = 10.0
"""Seconds to wait for an answer of a forge or tracker."""
TOKEN_EXPIRY_WARNING_SECONDS = 7 * 86_400.0
"""Seconds before a token's end from which on a warning is shown."""


class ForgeDoctor:
    """Checks every project that has its pull requests or issues at a forge or tracker."""

    def __init__(self, repositories: ForgeConnections, webhooks: Webhooks, url: str) -> None:
        """`url` is the address of this daemon."""
        self.connections = repositories
        self.webhooks = webhooks
        self.clock = webhooks.flow.clock
        self.url = url

    async def run(self) -> list[dict[str, Any]]:
        """Return the findings for all projects."""
        projects = self.connections.core.config.projects()
        findings_by_project = await asyncio.gather(*(self._project_findings(project) for project in projects))
        return [line for lines in findings_by_project for line in lines]

    async def _project_findings(self, project: ProjectConfig) -> list[dict[str, Any]]:
        """Return the findings for one project."""
        lines: list[dict[str, Any]] = []
        try:
            forge, tracker = await self.connections.forge_name(project), await self.connections.tracker_name(project)
            forge_hosted = self.connections.is_hosted("scm", project, forge)
            tracker_hosted = self.connections.is_hosted("tracker", project, tracker)
        except AoError as error:
            return [finding(f"forge of {project.id}", "failed", error.text, error.remedy)]
        if not forge_hosted and project.repo:
            remedy = "gh auth login, or set GITHUB_TOKEN; scm: local says that this is meant"
            detail = f"{project.repo} is named, but there is no token for it: pull requests stay here"
            lines.append(finding(f"forge of {project.id}", "warning", detail, remedy))
        checks = [self._forge_finding(project, forge)] if forge_hosted else []
        checks += [self._tracker_finding(project, tracker)] if tracker_hosted else []
        lines += await asyncio.gather(*checks)
        problems = (
            self.webhooks.pull_request_sync.problems.get((project.id, forge)),
            self.webhooks.issue_sync.problems.get(project.id),
            *self.webhooks.pull_request_sync.describe_incomplete(project.id),
        )
        lines += [
            finding(f"reading {project.id}", "warning", text, "it is tried again by itself")
            for text in problems
            if text
        ]
        lines += [
            self._webhook_finding(project, name) for name in dict.fromkeys((forge, tracker)) if name in HOOKS_BY_SENDER
        ]
        return lines

    async def _forge_finding(self, project: ProjectConfig, name: str) -> dict[str, Any]:
        """Return the finding about the access to a project's forge: whether it answers, and what the token lacks."""

        async def check_access() -> tuple[SCM | Tracker, str, Access]:
            """Return the forge, its repository for the text, and the access that the token gives."""
            scm = await self.connections.trusted_forge(project.id, name)
            access = await scm.access()
            return scm, f"{scm.repo}, ", Access(await scm.login()) if access is None else access

        return await self._access_finding(f"{name}: {project.id}", check_access)

    async def _tracker_finding(self, project: ProjectConfig, name: str) -> dict[str, Any]:
        """Return the finding about the access to a project's tracker: whether it answers, and what the token lacks."""

        async def check_access() -> tuple[SCM | Tracker, str, Access]:
            """Return the tracker and the access that the token gives, by reading issues if the tracker does not report it."""
            tracker = await self.connections.trusted_tracker(project.id, name)
            if (access := await tracker.access()) is not None:
                return tracker, "", access
            await tracker.list(state="open", since=self.clock())
            return tracker, "", Access(Author("somebody"), "tried: reading issues")

        return await self._access_finding(f"{name} issues: {project.id}", check_access)

    async def _access_finding(
        self, title: str, read_access: Callable[[], Awaitable[tuple[SCM | Tracker, str, Access]]]
    ) -> dict[str, Any]:
        """Return a finding: the account, what the token lacks and for what, when it ends, and what is left of the rate limit."""
        try:
            async with asyncio.timeout(ACCESS_TIMEOUT):
                plugin, location, access = await read_access()
        except (AoError, TimeoutError) as error:
            remedy = error.remedy if isinstance(error, AoError) else "try again later"
            text = getattr(error, "text", "") or f"no answer within {ACCESS_TIMEOUT:g} s"
            return finding(title, "failed", text, remedy)
        budget = "; ".join(plugin.budget())
        account = f"{location}as {access.author.name}" + (f", {access.evidence}" if access.evidence else "")
        lacking = [str(lack) for lack in access.lacks]
        remedies = [lack.remedy for lack in access.lacks if lack.remedy]
        if access.until is not None and access.until - self.clock() < TOKEN_EXPIRY_WARNING_SECONDS:
            lacking.append(f"the token ends on {rfc3339(access.until)[:10]}")
            remedies.append("make another one before")
        detail = "; ".join([account, *lacking]) + (f" ({budget})" if budget else "")
        is_vital = any(lack.vital for lack in access.lacks)
        return finding(
            title, "failed" if is_vital else "warning" if lacking else "ok", detail, "; ".join(dict.fromkeys(remedies))
        )

    def _webhook_finding(self, project: ProjectConfig, name: str) -> dict[str, Any]:
        """Return the finding about a forge's or tracker's webhooks for a project."""
        title = f"{name} webhooks: {project.id}"
        address = f"{self.url or 'http://HOST:PORT'}/api/webhooks/{name}"
        setup_hint = (
            f"let {name} send all events as JSON to {address} (by a tunnel or --host, if it must reach this machine)"
        )
        if variable := self.connections.unset_secret_variable(project, name):
            detail = f"{variable} (webhook.secretEnvVar) is not set where the daemon was started: changes are seen by polling"
            return finding(title, "warning", detail, f"set it, then ao shutdown and ao start; and {setup_hint}")
        if not any(project.id in project_ids for project_ids in self.connections.webhook_secrets(name).values()):
            remedy = f"webhook: {{secretEnvVar: NAME}} in the configuration, and {setup_hint}"
            return finding(title, "warning", "no secret is configured: changes are seen by polling", remedy)
        if reason := self.webhooks.rejection_reasons.get(name):
            remedy = f"see that {name} and webhook.secretEnvVar have the same secret, and that both clocks are right"
            return finding(title, "warning", f"the last one was not taken: {reason}", remedy)
        if name not in self.webhooks.last_received_at:
            return finding(title, "warning", "none has come yet: changes are seen by polling", setup_hint)
        return finding(title, "ok", "they come")
