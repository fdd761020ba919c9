"""Permission requests of agents: decided by a rule, or by a person; every decision is recorded before it is given to the agent."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import COORDINATOR
from agent_orchestrator.errors import AoError, NotFound, UsageError
from agent_orchestrator.protocols import Answers, Permission
from agent_orchestrator.sessions.agents import prompts
from agent_orchestrator.sessions.lifecycle import Lifecycle
from agent_orchestrator.sessions.permissions.path_checks import borne_out, borne_out_there
from agent_orchestrator.sessions.permissions.rules import SHELLS, Verdict, only_looks, permitted
from agent_orchestrator.sessions.permissions.sensitive_files import hook_folders
from agent_orchestrator.sessions.plugins import Plugins, handle_of

log = structlog.get_logger()


class Permissions:
    """What agents ask to do."""

    def __init__(self, flow: Flow, plugins: Plugins, lifecycle: Lifecycle) -> None:
        self.flow = flow
        self.plugins = plugins
        self.lifecycle = lifecycle
        self._decided: set[tuple[str, float]] = set()
        self._background: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Decide by rule what can be, from now on."""
        self.flow.on_change.append(self._on_change)
        for facts in self.flow.sessions.values():
            self._consider(facts)

    def close(self) -> None:
        """Decide no more."""
        for task in self._background:
            task.cancel()

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.after and isinstance(change.event.body, e.PermissionAsked):
                self._consider(self.flow.sessions[change.after.id])

    def _consider(self, facts: SessionFacts) -> None:
        asked = facts.permission
        if asked is None or not facts.live or (facts.id, asked.at) in self._decided:
            return
        try:
            verdict = self._verdict(facts, asked.tool, asked.command)
        except AoError:
            return  # its project is gone: a person decides
        if verdict:
            self._decided.add((facts.id, asked.at))
            task = asyncio.get_running_loop().create_task(self._by_rule(facts, verdict))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    def _verdict(self, facts: SessionFacts, tool: str, command: str) -> Verdict:
        project = self.plugins.project(facts.project)
        kind = facts.spec.kind
        mode, _ = prompts.granted(project, self.plugins.settings(facts), facts.spec.runtime, kind)
        if kind == COORDINATOR:
            if tool in SHELLS and only_looks(command):
                return Verdict("it only looks")
            mode = mode if prompts.may_edit(project, kind) else "default"
        commands = prompts.commands(project)
        allowed = self.flow.home.allowed.get(facts.project, ())
        return permitted(tool, command, mode, commands, allowed, facts.spec.path, hooks=_hooks(facts))

    async def _borne_out(self, facts: SessionFacts, verdict: Verdict) -> bool:
        """Do the files on its machine say the same as the letters?"""
        workspace, site = Path(facts.spec.path), self.plugins.site_of(facts)
        if not verdict.paths:
            return True
        if site.node is None:
            return borne_out(workspace, verdict, _hooks(facts))
        return await borne_out_there(site.host, workspace, verdict, _hooks(facts))

    async def _by_rule(self, facts: SessionFacts, verdict: Verdict) -> None:
        assert facts.permission is not None
        try:
            if not await self._borne_out(facts, verdict):
                return  # a person decides
            key = f"rule:{facts.generation}:{facts.permission.at:.6f}"
            await self.decide(facts, "allow", "", by=verdict.why, key=key)
        except AoError as error:
            log.warning("a permission could not be given by rule", session=facts.id, error=str(error))

    async def given(self, session: str, key: str | None) -> Event | None:
        """The decision that was recorded for this key."""
        return await self.flow.store.event_by_key(f"answer:{session}:{key}") if key else None

    async def decide(
        self, facts: SessionFacts, decision: str, text: str, *, by: str = "person", key: str | None = None
    ) -> None:
        """Record a decision, then give it to the agent: by its own protocol, or by its dialog's keys.

        The same key again is the same decision: it is given if it was not, and never to what the agent asked after it.
        """
        before = await self.given(facts.id, key)
        if before and not _still_asks(facts, before):
            return
        unique = f"answer:{facts.id}:{key or uuid.uuid4().hex}"
        asked, handle = facts.permission, handle_of(facts)
        agent = self.plugins.agent_of(facts)
        keys: Sequence[str] | None = agent.permission_keys.get(decision)
        if keys is None and decision == "always":
            keys = agent.permission_keys.get("allow")  # the rule is ours: the next request is answered by it
        if handle is None or (keys is None and not (isinstance(agent, Answers) and asked)):
            raise UsageError(
                f"{facts.spec.agent} cannot be answered by {decision}", f"answer in its terminal: ao attach {facts.id}"
            )
        await self.flow.append(*self._decision(facts, decision, text, by, unique))
        if isinstance(agent, Answers) and asked is not None:
            permission = Permission(asked.tool, asked.command, asked.reason, asked.request)
            keys = await agent.answer(self.lifecycle.run_of(facts), permission, decision, text)
            if keys is None:
                raise UsageError(
                    f"{facts.spec.agent} could not be given the answer", f"answer in its terminal: ao attach {facts.id}"
                )
        if keys:
            await self.plugins.runtime_of(facts).press(handle, keys, once=unique)

    def _decision(self, facts: SessionFacts, decision: str, text: str, by: str, unique: str) -> list[Event]:
        now, asked = self.flow.clock(), facts.permission
        tool, command = (asked.tool, asked.command) if asked else ("", facts.activity.detail)
        who = "person" if by == "person" else "daemon"
        answered = e.PermissionAnswered(decision, text, tool, command, by)
        events = [Event(answered, now, who, unique, facts.project, facts.id, facts.generation)]
        if decision == "always" and tool:
            rule = e.PermissionAllowed(tool, command)
            events.append(Event(rule, now, who, f"allowed:{unique}", facts.project))
        return events

    # -- what was allowed for good -----------------------------------------------------------------------------------------

    def rules(self, project: str | None) -> list[dict[str, Any]]:
        """What was allowed for good, by project."""
        return [
            {"project": owner, "tool": tool, "command": command}
            for owner, rules in self.flow.home.allowed.items()
            if project in (None, owner)
            for tool, command in rules
        ]

    async def withdraw(self, project: str, tool: str, command: str) -> None:
        """Ask again from now on."""
        if (tool, command) not in self.flow.home.allowed.get(project, ()):
            raise NotFound(f"{project} has no such permission: {tool}: {command}", "see them: ao permissions")
        body = e.PermissionWithdrawn(tool, command)
        await self.flow.append(Event(body, self.flow.clock(), "person", f"withdrawn:{uuid.uuid4().hex}", project))


def _hooks(facts: SessionFacts) -> tuple[str, ...]:
    return hook_folders(facts.place.git_env) if facts.place else ()


def _still_asks(facts: SessionFacts, given: Event) -> bool:
    """Is the agent still asking what this decision was given to?"""
    blocked = facts.live and facts.activity.state == "blocked"
    return blocked and facts.generation == given.generation and facts.activity.at <= given.time
