"""How the base branches are: what is known of their checks, here or at a forge, without running any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from agent_orchestrator.base.git.refs import find_layout, read_ref
from agent_orchestrator.changes.checks import Checks
from agent_orchestrator.changes.merge_queue.checks import SpecOf
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import BAD, GOOD
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.forge import BaseChecks
from agent_orchestrator.sessions.plugins import Plugins

log = structlog.get_logger()

Colour = Literal["green", "red", "running", "unknown"]

_TELLING = (e.PrOpened, e.PrMerged, e.BaseMoved, e.BaseChanged, e.CheckStarted, e.CheckFinished, e.ChecksSettled)


@dataclass(frozen=True, slots=True)
class BaseState:
    """Whether a base branch is good; which checks fail there."""

    name: Colour = "unknown"
    failing: tuple[str, ...] = ()


class BaseStates:
    """Keeps what is known of each project's base branch."""

    def __init__(self, flow: Flow, plugins: Plugins, checks: Checks, spec_of: SpecOf) -> None:
        self.flow = flow
        self.plugins = plugins
        self.checks = checks
        self.spec_of = spec_of
        self.on_news: list[Callable[[], None]] = []
        self._known: dict[tuple[str, str], BaseState] = {}
        self._heard: dict[tuple[str, str], BaseState] = {}
        """The same by the word of a project's forge, which counts where there is one."""
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def start(self) -> None:
        """Look at all, and whenever a check or a base says something."""
        self.flow.on_change.append(self._on_change)
        for project in {facts.project for facts in self.flow.sessions.values()}:
            self._look(project)

    def close(self) -> None:
        """Look no more."""
        for task in self._looking.values():
            task.cancel()

    def state(self, project: str, base: str | None) -> BaseState:
        """What is known of a project's branch."""
        place = (project, base or "")
        return self._heard.get(place) or self._known.get(place, BaseState())

    def hear(self, project: str, bases: Mapping[str, BaseChecks]) -> None:
        """A forge tells how a project's bases are there."""
        heard = {(project, base): BaseState(one.state, one.failing) for base, one in bases.items()}
        if any(self._heard.get(place) != state for place, state in heard.items()):
            self._heard |= heard
            for tell in self.on_news:
                tell()

    def _on_change(self, changes: Sequence[Change]) -> None:
        for project in {one.after.project for one in changes if one.after and isinstance(one.event.body, _TELLING)}:
            self._look(project)

    def _look(self, project: str) -> None:
        if project in self._looking:
            self._again.add(project)
            return
        task = asyncio.get_running_loop().create_task(self._find(project))
        self._looking[project] = task
        task.add_done_callback(lambda _: self._looked(project))

    def _looked(self, project: str) -> None:
        del self._looking[project]
        if project in self._again:
            self._again.discard(project)
            self._look(project)

    async def _find(self, project: str) -> None:
        newest: dict[str, SessionFacts] = {}
        for facts in self.flow.sessions.values():
            if facts.project == project and facts.pr and facts.base_head:
                known = newest.get(facts.pr.base)
                if known is None or known.updated_at <= facts.updated_at:
                    newest[facts.pr.base] = facts
        for base, facts in newest.items():
            try:
                found = await self._state(facts)
            except AoError as error:
                log.info("what is known of a base could not be found out", project=project, base=base, error=str(error))
                found = BaseState()
            if self._known.get((project, base), BaseState()) != found:
                self._known[project, base] = found
                for tell in self.on_news:
                    tell()

    async def _state(self, facts: SessionFacts) -> BaseState:
        """By the checks' results at the base's content; `facts`: a session that is to land there, or has."""
        assert facts.pr is not None
        project = self.plugins.project(facts.project)
        head = _head(facts, facts.pr.base)
        if head is None:
            return BaseState()
        states = {
            name: await self.checks.state(self.spec_of(facts, project, name, check, head))
            for name, check in project.ci.items()
            if check.on != "manual"
        }
        failing = tuple(name for name, state in states.items() if state in BAD)
        if failing:
            return BaseState("red", failing)
        if "running" in states.values():
            return BaseState("running")
        return BaseState("green" if states and all(state in GOOD for state in states.values()) else "unknown")


def _head(facts: SessionFacts, base: str) -> str | None:
    """Where the branch is: here, or at the forge as far as was seen."""
    if facts.spec.scm != "local":
        return facts.base_head
    layout = find_layout(Path(facts.spec.repo))
    return read_ref(layout.common, f"refs/heads/{base}") if layout else None
