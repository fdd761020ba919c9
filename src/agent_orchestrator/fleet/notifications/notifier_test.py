"""Tests notifiers on request (`ao notify test`), and checks them for `ao doctor`."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from agent_orchestrator.base.finding import finding
from agent_orchestrator.core.notices import Notice
from agent_orchestrator.errors import AoError, Missing, NotFound
from agent_orchestrator.fleet.notifications.sender import NotificationSender, send
from agent_orchestrator.fleet.notifications.targets import NotifierTarget


class NotifierTest:
    """Sends test notifications and reports the results."""

    def __init__(self, notifying: NotificationSender) -> None:
        self.notifying = notifying

    async def run(self, project: str | None, names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Send a test by a project's notifiers, all or those named, regardless of quiet hours and rates; return the
        results as JSON. Raises NotFound for an unknown name.
        """
        targets = self.notifying.targets.for_project(project) if project else self.notifying.targets.all_targets()
        known_names = list(dict.fromkeys(target.name for target in targets))
        for name in names:
            if name not in known_names:
                raise NotFound(f"there is no notifier {name!r}", f"known: {', '.join(known_names) or 'none'}")
        return [await self._test_one(target) for target in targets if not names or target.name in names]

    async def _test_one(self, target: NotifierTarget) -> dict[str, Any]:
        test = Notice(
            id=f"test-{uuid.uuid4().hex[:8]}",
            title="Agent Orchestrator: a test",
            message="This is a test of your notifications. Nothing happened, and there is nothing to do.",
            trigger="test",
            project=target.project.id,
            at=self.notifying.flow.clock(),
        )
        problem: AoError | None = None
        try:
            await send(
                self.notifying.targets.create_notifier(target), self.notifying.create_notification(target, [test])
            )
        except AoError as error:
            problem = error
        routed = [level for level, names in target.project.routing.items() if target.name in names]
        return {
            "name": target.name,
            "plugin": target.settings.plugin,
            "project": target.project.id or None,
            "levels": routed,
            "sent": problem is None,
            "problem": problem.text if problem else None,
            "remedy": (problem.remedy or None) if problem else None,
        }

    async def checkup(self) -> list[dict[str, Any]]:
        """Return a finding for each notifier, without sending anything."""
        return [await self._check(target) for target in self.notifying.targets.all_targets()]

    async def _check(self, target: NotifierTarget) -> dict[str, Any]:
        name = f"notifier {target.name}"
        trouble = self.notifying.health.failure_of(target.receiver)
        if trouble is not None and trouble.is_reported:
            return finding(name, "warning", trouble.error, trouble.remedy)
        try:
            await self.notifying.targets.create_notifier(target).check()
        except Missing as error:
            return finding(name, "warning", error.text, error.remedy)
        except AoError as error:
            return finding(name, "failed", error.text, error.remedy)
        return finding(name, "ok", f"{target.settings.plugin}; try it: ao notify test {target.name}")
