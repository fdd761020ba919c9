"""Who is told: a project's notifiers as the configuration in force has them, each made once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import Notifier as Settings
from agent_orchestrator.config.scope import ConfigSet
from agent_orchestrator.fleet.notifications.rate import Pace
from agent_orchestrator.protocols import Notifier
from agent_orchestrator.sessions.plugins import Plugins


@dataclass(frozen=True, slots=True)
class Target:
    """One notifier of a project."""

    name: str
    settings: Settings
    project: ProjectConfig
    receiver: str
    """The same for whoever has the same settings, in whichever project; tells nothing of them."""
    pace: Pace

    @property
    def pressed(self) -> bool:
        """Whether it is answered by buttons, which count for some people only."""
        return self.settings.plugin == "slack" and bool(self.settings.options.get("signingSecret"))


class Targets:
    """The notifiers in force."""

    def __init__(self, config: ConfigSet, plugins: Plugins) -> None:
        self.config = config
        self.plugins = plugins
        self._made: dict[str, Notifier] = {}

    def routes(self, project: str | None, level: str) -> Sequence[str]:
        """The notifiers that a notification of this level goes to."""
        return self._settings(project).routing.get(level, ())

    def find(self, project: str | None, name: str) -> Target | None:
        """A project's notifier by its name; none: nobody has that name any more."""
        settings = self._settings(project)
        found = settings.notifiers.get(name)
        return _target(name, found, settings) if found else None

    def of(self, project: str | None) -> list[Target]:
        """All notifiers of a project that somebody named, in the order of who is told of what is most urgent."""
        settings = self._settings(project)
        named = dict.fromkeys([*(name for names in settings.routing.values() for name in names), *settings.notifiers])
        return [_target(name, settings.notifiers[name], settings) for name in named]

    def everywhere(self) -> list[Target]:
        """The notifiers of all projects, each receiver once."""
        places = [project.id for project in self.config.projects()] or [""]
        found = [target for project in places for target in self.of(project)]
        return list({target.receiver: target for target in reversed(found)}.values())[::-1]

    def receivers(self) -> list[str]:
        """All who may be sent something, that which belongs to no project included."""
        return [target.receiver for target in (*self.everywhere(), *self.of(""))]

    def make(self, target: Target) -> Notifier:
        """The plugin; the error says what of its configuration is wrong."""
        if target.receiver not in self._made:
            registry = self.plugins.registry(target.project)
            made = registry.make("notifier", target.settings.plugin, target.settings.options, self.plugins.host)
            self._made[target.receiver] = cast("Notifier", made)
        return self._made[target.receiver]

    def forget(self) -> None:
        """The configuration changed."""
        self._made.clear()

    def _settings(self, project: str | None) -> ProjectConfig:
        return (self.config.project(project) if project else None) or self.config.unowned()


def _target(name: str, settings: Settings, project: ProjectConfig) -> Target:
    common = project.notifications
    rate = settings.rate_limit or common.rate_limit
    pace = Pace(
        digest=common.digest if settings.digest is None else settings.digest,
        most=rate.most,
        per=rate.per,
        repeat_after=common.repeat_after if settings.repeat_after is None else settings.repeat_after,
    )
    known = json.dumps([settings.plugin, settings.options], sort_keys=True, default=str)
    receiver = f"{name}-{hashlib.sha256(known.encode()).hexdigest()[:8]}"
    return Target(name, settings, project, receiver, pace)
