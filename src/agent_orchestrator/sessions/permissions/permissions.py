"""Decides permission requests of agents, by rule or by a person; each decision is recorded before the agent gets it.

Look here when a request is not answered by a rule, or an answer does not reach the agent.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import COORDINATOR_KIND, SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.errors import AoError, NotFound, UsageError
from agent_orchestrator.protocols import Permission
from agent_orchestrator.sessions.agents.listener import running_launch
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.permissions.autorun_files import hook_folders
from agent_orchestrator.sessions.permissions.path_checks import paths_stay_inside, paths_stay_inside_remote
from agent_orchestrator.sessions.permissions.permission_mode import may_edit, permission_mode, project_commands
from agent_orchestrator.sessions.permissions.rules import SHELL_TOOLS, RuleDecision, check_permission, is_read_only
from agent_orchestrator.sessions.session_plugins import handle_of

log = structlog.get_logger()


class Permissions(Part):
    """The permission requests of all sessions."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._decided: set[tuple[str, float]] = set()

    def start(self) -> None:
        """Decide by rule the open requests and those to come."""
        self.on(self._consider_new, e.PermissionAsked)
        for facts in self.flow.sessions.values():
            self._consider(facts)

    def _consider_new(self, changes: Sequence[FactsChange]) -> None:
        """Consider each new permission request."""
        for change in changes:
            if change.after:
                self._consider(self.flow.sessions[change.after.id])

    def _consider(self, facts: SessionFacts) -> None:
        """Start to decide a session's permission request if a rule allows it."""
        request = facts.permission
        if request is None or not facts.live or (facts.id, request.at) in self._decided:
            return
        try:
            verdict = self._apply_rules(facts, request.tool, request.command)
        except AoError:
            return  # the project is not registered, so a person decides
        if verdict:
            self._decided.add((facts.id, request.at))
            self.spawn(self._allow_by_rule(facts, verdict))

    def _apply_rules(self, facts: SessionFacts, tool: str, command: str) -> RuleDecision:
        """Return what the rules say about this tool call."""
        project = self.core.settings.project(facts.project)
        kind = facts.spec.kind
        mode, _ = permission_mode(project, self.core.settings.agent(facts), facts.spec.runtime, kind)
        if kind == COORDINATOR_KIND:
            if tool in SHELL_TOOLS and is_read_only(command):
                return RuleDecision("it only looks")
            mode = mode if may_edit(project, kind) else "default"
        commands = project_commands(project)
        allowed = self.flow.home.allowed_permissions.get(facts.project, ())
        return check_permission(tool, command, mode, commands, allowed, facts.spec.path, hooks=_hook_folders_of(facts))

    async def _are_paths_safe(self, facts: SessionFacts, verdict: RuleDecision) -> bool:
        """Return whether the paths of a verdict are safe on the session's machine, as the rule assumed from their names."""
        workspace, site = Path(facts.spec.path), self.core.sites.for_session(facts)
        if not verdict.paths:
            return True
        if site.node is None:
            return paths_stay_inside(workspace, verdict, _hook_folders_of(facts))
        return await paths_stay_inside_remote(site.host, workspace, verdict, _hook_folders_of(facts))

    async def _allow_by_rule(self, facts: SessionFacts, verdict: RuleDecision) -> None:
        """Allow the current request by rule, if its paths are safe."""
        assert facts.permission is not None
        try:
            if not await self._are_paths_safe(facts, verdict):
                return  # a person decides
            key = f"rule:{facts.generation}:{facts.permission.at:.6f}"
            await self.decide(facts, "allow", "", by=verdict.reason, key=key)
        except AoError as error:
            log.warning("a permission could not be given by rule", session=facts.id, error=str(error))

    async def earlier_answer(self, session: str, key: str | None) -> Event | None:
        """Return the decision that was recorded for this key, or None."""
        return await self.flow.store.event_by_key(f"answer:{session}:{key}") if key else None

    async def decide(
        self, facts: SessionFacts, decision: str, text: str, *, by: str = "person", key: str | None = None
    ) -> None:
        """Record a decision, then give it to the agent by its own protocol or by the keys of its dialog.

        The same key again is the same decision: it is given if it was not, and never to a later request of the agent. Raises `UsageError`
        if the agent cannot be answered that way.
        """
        earlier = await self.earlier_answer(facts.id, key)
        if earlier and not _is_still_waiting(facts, earlier):
            return
        event_key = f"answer:{facts.id}:{key or uuid.uuid4().hex}"
        request, handle = facts.permission, handle_of(facts)
        agent = self.core.plugins.agent_of(facts)
        keys: Sequence[str] | None = agent.permission_keys.get(decision)
        if keys is None and decision == "always":
            keys = agent.permission_keys.get("allow")  # our rule answers the next request
        if handle is None or (keys is None and not (agent.answers_requests and request)):
            raise UsageError(
                f"{facts.spec.agent} cannot be answered by {decision}", f"answer in its terminal: ao attach {facts.id}"
            )
        await self.flow.append(*self._decision_events(facts, decision, text, by, event_key))
        if agent.answers_requests and request is not None:
            permission = Permission(request.tool, request.command, request.reason, request.request)
            keys = await agent.answer(running_launch(facts, self.core), permission, decision, text)
            if keys is None:
                raise UsageError(
                    f"{facts.spec.agent} could not be given the answer", f"answer in its terminal: ao attach {facts.id}"
                )
        if keys:
            await self.core.plugins.runtime_of(facts).press(handle, keys, once=event_key)

    def _decision_events(self, facts: SessionFacts, decision: str, text: str, by: str, event_key: str) -> list[Event]:
        """Return the events that record a decision, and the standing permission if it is to hold from now on."""
        now, request = self.clock(), facts.permission
        tool, command = (request.tool, request.command) if request else ("", facts.activity.detail)
        source = "person" if by == "person" else "daemon"
        answer = e.PermissionAnswered(decision, text, tool, command, by)
        events = [Event(answer, now, source, event_key, facts.project, facts.id, facts.generation)]
        if decision == "always" and tool:
            rule = e.PermissionAllowed(tool, command)
            events.append(Event(rule, now, source, f"allowed:{event_key}", facts.project))
        return events

    # -- standing permissions -------------------------------------------------------------------------------------------

    def standing_permissions(self, project: str | None) -> list[dict[str, Any]]:
        """Return the standing permissions that people gave, by project."""
        return [
            {"project": owner, "tool": tool, "command": command}
            for owner, rules in self.flow.home.allowed_permissions.items()
            if project in (None, owner)
            for tool, command in rules
        ]

    async def withdraw(self, project: str, tool: str, command: str) -> None:
        """Withdraw a standing permission; raise `NotFound` if there is none."""
        if (tool, command) not in self.flow.home.allowed_permissions.get(project, ()):
            raise NotFound(f"{project} has no such permission: {tool}: {command}", "see them: ao permissions")
        body = e.PermissionWithdrawn(tool, command)
        await self.flow.append(Event(body, self.clock(), "person", f"withdrawn:{uuid.uuid4().hex}", project))


def _hook_folders_of(facts: SessionFacts) -> tuple[str, ...]:
    """Return the folders of the workspace from which its Git runs hooks."""
    return hook_folders(facts.workspace.git_env) if facts.workspace else ()


def _is_still_waiting(facts: SessionFacts, decision: Event) -> bool:
    """Return whether the agent still waits for the answer that this decision gave."""
    is_blocked = facts.live and facts.activity.state == "blocked"
    return is_blocked and facts.generation == decision.generation and facts.activity.at <= decision.time
