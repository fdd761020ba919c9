"""The notifiers of each project as the configuration in force names them; each plugin is made once."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import cast

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import NotifierSection as Settings
from agent_orchestrator.fleet.notifications.rate_limit import SendLimits
from agent_orchestrator.protocols import Notifier
from agent_orchestrator.sessions.part import Core


@dataclass(frozen=True, slots=True)
class NotifierTarget:
    """One notifier of a project."""

    name: str
    settings: Settings
    project: ProjectConfig
    receiver: str
    """Identifies the receiver: the same for the same settings in any project; reveals nothing of the settings."""
    send_limits: SendLimits

    @property
    def uses_buttons(self) -> bool:
        """Whether it is answered by buttons, which count only for configured people."""
        return self.settings.plugin == "slack" and bool(self.settings.options.get("signingSecret"))


class NotifierTargets:
    """The notifiers in force."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self._notifiers: dict[str, Notifier] = {}

    def find(self, project: str | None, name: str) -> NotifierTarget | None:
        """Return a project's notifier by its name, or None if no notifier has that name."""
        settings = self._settings(project)
        notifier = settings.notifiers.get(name)
        return _make_target(name, notifier, settings) if notifier else None

    def for_project(self, project: str | None) -> list[NotifierTarget]:
        """Return all notifiers of a project, in the order of its routing (most urgent level first), then the others."""
        settings = self._settings(project)
        named = dict.fromkeys([*(name for names in settings.routing.values() for name in names), *settings.notifiers])
        return [_make_target(name, settings.notifiers[name], settings) for name in named]

    def all_targets(self) -> list[NotifierTarget]:
        """Return the notifiers of all projects, each receiver once."""
        project_ids = [project.id for project in self.core.config.projects()] or [""]
        targets = [target for project in project_ids for target in self.for_project(project)]
        return list({target.receiver: target for target in reversed(targets)}.values())[::-1]

    def receivers(self) -> list[str]:
        """Return all receivers that may be sent something, including those for notifications without a project."""
        return [target.receiver for target in (*self.all_targets(), *self.for_project(""))]

    def create_notifier(self, target: NotifierTarget) -> Notifier:
        """Return the notifier plugin; the error names what is wrong in its configuration."""
        if target.receiver not in self._notifiers:
            registry = self.core.plugins.registry(target.project)
            notifier = registry.create("notifier", target.settings.plugin, target.settings.options, self.core.host)
            self._notifiers[target.receiver] = cast("Notifier", notifier)
        return self._notifiers[target.receiver]

    def forget(self) -> None:
        """Drop all plugins that were made, because the configuration changed."""
        self._notifiers.clear()

    def _settings(self, project: str | None) -> ProjectConfig:
        return self.core.config.project_or_unowned(project)


def _make_target(name: str, settings: Settings, project: ProjectConfig) -> NotifierTarget:
    common = project.notifications
    rate = settings.rate_limit or common.rate_limit
    pace = SendLimits(
        digest_seconds=common.digest if settings.digest is None else settings.digest,
        max_messages=rate.most,
        period_seconds=rate.per,
        repeat_after=common.repeat_after if settings.repeat_after is None else settings.repeat_after,
    )
    identity = json.dumps([settings.plugin, settings.options], sort_keys=True, default=str)
    receiver = f"{name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    return NotifierTarget(name, settings, project, receiver, pace)
