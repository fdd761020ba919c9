"""Keep the state of each base branch's checks, from stored results or from a forge, without running any check (`BaseStates`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from agent_orchestrator.base.git.refs import find_layout, read_ref
from agent_orchestrator.changes.checks.runner import Checks
from agent_orchestrator.changes.merge_queue.queue_checks import SpecOf
from agent_orchestrator.core import events as e
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.pull_request import FAILED_STATES, PASSING_STATES
from agent_orchestrator.core.signals import BaseChecksRead, BaseStateChanged
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.part import Core, Part

log = structlog.get_logger()

BaseStateName = Literal["green", "red", "running", "unknown"]

_RELEVANT_EVENTS = (
    e.PrOpened,
    e.PrMerged,
    e.BaseMoved,
    e.BaseChanged,
    e.CheckStarted,
    e.CheckFinished,
    e.ChecksSettled,
)


@dataclass(frozen=True, slots=True)
class BaseState:
    """Whether a base branch is good, and which of its checks fail."""

    name: BaseStateName = "unknown"
    failing: tuple[str, ...] = ()


class BaseStates(Part):
    """The states of all projects' base branches."""

    def __init__(self, core: Core, checks: Checks, spec_of: SpecOf) -> None:
        super().__init__(core)
        self.checks = checks
        self.spec_of = spec_of
        self._local_states: dict[tuple[str, str], BaseState] = {}
        self._forge_states: dict[tuple[str, str], BaseState] = {}
        """States reported by a project's forge; these take precedence."""
        self._updating: set[str] = set()
        self._update_again: set[str] = set()
        self.on_signal(BaseChecksRead, self._set_forge_states)

    def start(self) -> None:
        """Read the state of every project now, and again after each event that may change it."""
        self.on(self._update_changed, *_RELEVANT_EVENTS)
        for project in {facts.project for facts in self.flow.sessions.values()}:
            self._schedule_update(project)

    def state(self, project: str, base: str | None) -> BaseState:
        """Return the known state of a project's branch."""
        branch_key = (project, base or "")
        return self._forge_states.get(branch_key) or self._local_states.get(branch_key, BaseState())

    def _set_forge_states(self, read: BaseChecksRead) -> None:
        """Store the states that a forge reports for a project's base branches, and report changes."""
        states = {(read.project, base): BaseState(checks.state, checks.failing) for base, checks in read.bases.items()}
        if any(self._forge_states.get(branch_key) != state for branch_key, state in states.items()):
            self._forge_states |= states
            self.emit(BaseStateChanged())

    def _update_changed(self, changes: Sequence[FactsChange]) -> None:
        """Schedule an update for each project that has a relevant event."""
        for project in {change.after.project for change in changes if change.after}:
            self._schedule_update(project)

    def _schedule_update(self, project: str) -> None:
        """Start an update of a project's states, or repeat a running one when it ends."""
        if project in self._updating:
            self._update_again.add(project)
            return
        self._updating.add(project)
        self.spawn(self._update(project)).add_done_callback(lambda _: self._on_update_done(project))

    def _on_update_done(self, project: str) -> None:
        """Start the next update of the project if one was requested meanwhile."""
        self._updating.discard(project)
        if project in self._update_again:
            self._update_again.discard(project)
            self._schedule_update(project)

    async def _update(self, project: str) -> None:
        """Read the states of a project's base branches again and notify the listeners of changes."""
        newest: dict[str, SessionFacts] = {}
        for facts in self.flow.sessions.values():
            if facts.project == project and facts.pr and facts.base_head:
                newest_facts = newest.get(facts.pr.base)
                if newest_facts is None or newest_facts.updated_at <= facts.updated_at:
                    newest[facts.pr.base] = facts
        for base, facts in newest.items():
            try:
                state = await self._state_from_results(facts)
            except AoError as error:
                log.info("what is known of a base could not be found out", project=project, base=base, error=str(error))
                state = BaseState()
            if self._local_states.get((project, base), BaseState()) != state:
                self._local_states[project, base] = state
                self.emit(BaseStateChanged())

    async def _state_from_results(self, facts: SessionFacts) -> BaseState:
        """Return the state from the stored results at the base's commit; `facts` is a session with a pull request to that base."""
        assert facts.pr is not None
        project = self.core.settings.project(facts.project)
        head = _base_commit(facts, facts.pr.base)
        if head is None:
            return BaseState()
        states = {
            name: await self.checks.state(self.spec_of(facts, project, name, check, head))
            for name, check in project.ci.items()
            if check.on != "manual"
        }
        failing = tuple(name for name, state in states.items() if state in FAILED_STATES)
        if failing:
            return BaseState("red", failing)
        if "running" in states.values():
            return BaseState("running")
        return BaseState("green" if states and all(state in PASSING_STATES for state in states.values()) else "unknown")


def _base_commit(facts: SessionFacts, base: str) -> str | None:
    """Return the base branch's commit: from the repository, or the last one seen at the forge."""
    if facts.has_remote_forge:
        return facts.base_head
    layout = find_layout(Path(facts.spec.repo))
    return read_ref(layout.common, f"refs/heads/{base}") if layout else None
