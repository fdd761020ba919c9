"""The coordinating agent of a project: started on request, told of what happens by digests, and woken by them.

News are gathered for a while (`coordinator.digest`) and told together, when it is at rest: never in the middle of a turn, and never
while it waits for a person's answer. How far it was told is recorded with the message itself, so that neither a restart nor a second
look tells anything twice; what a message that was lost told of is told again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.config.projects.projects import NOWHERE
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import CallLater, Timer
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import COORDINATOR, message_id
from agent_orchestrator.errors import AoError, Conflict
from agent_orchestrator.fleet.coordinator.digest import digest, tells
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.sessions.plugins import Plugins
from agent_orchestrator.sessions.sessions import Sessions

BRANCH = "ao/coordinator"
TITLE = "Coordinator"
SENDER = "digest"
PAGE = 2000
LONGEST_WAIT = 300.0
"""The clock is looked at again at least this often: it may be set, or the machine may sleep."""
STOPPED_WITHIN = 60.0

log = structlog.get_logger()


class Coordinators:
    """Starts coordinating agents, gives them goals, and tells them what happens."""

    def __init__(
        self,
        flow: Flow,
        host: Host,
        plugins: Plugins,
        sessions: Sessions,
        inbox: Inbox,
        call_later: CallLater | None = None,
    ) -> None:
        self.flow = flow
        self.host = host
        self.plugins = plugins
        self.sessions = sessions
        self.inbox = inbox
        self._call_later = call_later
        self._ensuring = asyncio.Lock()
        self._mine: dict[str, str] = {}
        """Project → its coordinating session."""
        self._since: dict[str, float] = {}
        """Coordinating session → when the first of the news came that it is still to be told of."""
        self._seen: dict[str, int] = {}
        """How far there turned out to be nothing to tell."""
        self._timers: dict[str, Timer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._starting: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Tell what is still to be told, and whatever happens from now on; start those that the configuration wants."""
        for facts in self.flow.sessions.values():
            if facts.spec.kind == COORDINATOR:
                self._know(facts)
        self.flow.on_change.append(self._on_change)
        for session in list(self._mine.values()):
            self._since.setdefault(session, self.flow.clock())
            self._look(session)
        if any(project.coordinator.auto for project in self.plugins.config.projects()):
            self._starting = asyncio.get_running_loop().create_task(self._start_wanted())

    def close(self) -> None:
        """Tell no more."""
        for pending in (*self._timers.values(), *self._tasks.values(), self._starting):
            if pending is not None:
                pending.cancel()

    # -- starting ------------------------------------------------------------------------------------------------------

    def of(self, project: str) -> SessionFacts | None:
        """A project's coordinating session, the last one there was."""
        return self.flow.sessions.get(self._mine.get(project, ""))

    async def _start_wanted(self) -> None:
        for project in self.plugins.config.projects():
            if project.coordinator.auto:
                try:
                    await self.ensure(project.id)
                except AoError as error:
                    log.warning("a coordinator could not be started", project=project.id, error=str(error))

    async def ensure(
        self, project: str, agent: str | None = None, model: str | None = None, key: str | None = None
    ) -> SessionFacts:
        """The project's coordinating session, made or brought back if need be; one at a time."""
        settings = self.plugins.project(project)
        async with self._ensuring:
            await self.sessions.projects.check_trust(settings, settings.coordinator.agent, coordinator=True)
            facts = self.of(project)
            if facts is not None and facts.wanted == "stop" and not facts.stopped:
                facts = await self.sessions.until(facts.id, lambda now: now.stopped, STOPPED_WITHIN)
            if facts is None or (facts.stopped and _anew(facts, settings.coordinator.conversation, agent, model)):
                return await self._make(project, agent, model, key)
            self._refuse_other(facts, agent, model)
            if facts.stopped or (not facts.live and (facts.failure is not None or facts.launched_run == facts.run)):
                await self.sessions.restore(facts.id, key)
            return self.flow.sessions[facts.id]

    async def _make(self, project: str, agent: str | None, model: str | None, key: str | None) -> SessionFacts:
        wanted = self.plugins.project(project).coordinator
        request = {
            "projectId": project,
            "title": TITLE,
            "agent": agent or wanted.agent,
            "model": model or (wanted.model if agent in (None, wanted.agent) else None),
            "branch": BRANCH,
            "kind": COORDINATOR,
        }
        made = await self.sessions.create(request, key, NOWHERE)
        return self.flow.sessions[made["id"]]

    def _refuse_other(self, facts: SessionFacts, agent: str | None, model: str | None) -> None:
        same = agent in (None, facts.spec.profile, facts.spec.agent) and model in (None, facts.spec.model)
        if not same and not facts.stopped:
            runs = " with ".join(filter(None, (facts.spec.profile or facts.spec.agent, facts.spec.model)))
            raise Conflict(f"{facts.id} is there already, by {runs}", "stop it first: ao orchestrator --stop")

    async def give(
        self,
        project: str,
        goal: str | None,
        agent: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Start it, or find it, and give it a goal, if there is one."""
        facts = await self.ensure(project, agent, model, f"coordinator:{key}" if key else None)
        sent = None
        if goal is not None:
            await self._follow(facts)
            sent = await self.inbox.send(facts.id, goal, key=key)
        return {**self.view(project), "message": sent}

    async def stop(self, project: str, key: str | None = None) -> dict[str, Any]:
        """Stop it; its conversation is kept."""
        facts = self.of(project)
        if facts is not None and not facts.stopped:
            await self.sessions.stop(facts.id, key=key)
        return self.view(project)

    def view(self, project: str) -> dict[str, Any]:
        """How it stands, as JSON."""
        facts = self.of(project)
        told = facts.digest if facts else None
        return {
            "project": project,
            "session": self.sessions.view(facts.id) if facts else None,
            "goal": next((one.text for one in reversed(facts.messages) if one.sender != SENDER), None)
            if facts
            else None,
            "said": facts.said or None if facts else None,
            "digest": {
                "lastAt": rfc3339(told.at) if told and told.at else None,
                "pending": bool(facts and facts.id in self._since),
            },
            "message": None,
        }

    # -- telling -------------------------------------------------------------------------------------------------------

    def _know(self, facts: SessionFacts) -> None:
        known = self.flow.sessions.get(self._mine.get(facts.project, ""))
        if known is None or facts.created_at >= known.created_at:
            self._mine[facts.project] = facts.id

    def _on_change(self, changes: Sequence[Change]) -> None:
        due = set()
        for change in changes:
            event = change.event
            if isinstance(event.body, e.SessionCreated) and event.body.kind == COORDINATOR and change.after:
                self._know(change.after)
            me = self.flow.sessions.get(self._mine.get(event.project or "", ""))
            if me is None:
                continue
            if event.session == me.id:
                if me.live and lost(me):
                    self._since.setdefault(me.id, self.flow.clock())
                due.add(me.id)
            elif tells(event, me):
                self._since.setdefault(me.id, self.flow.clock())
                due.add(me.id)
        for session in due:
            self._look(session)

    def _look(self, session: str) -> None:
        """Tell what there is to tell, if it is time, and it is at rest; otherwise the clock or its next change calls again."""
        facts = self.flow.sessions[session]
        since = self._since.get(session)
        if since is None or session in self._tasks or not at_rest(facts):
            return
        if timer := self._timers.pop(session, None):
            timer.cancel()
        loop = asyncio.get_running_loop()
        try:
            wait = since + self.plugins.project(facts.project).coordinator.digest - self.flow.clock()
        except AoError:
            return  # its project is gone
        if wait > 0:
            self._timers[session] = (self._call_later or loop.call_later)(
                min(wait, LONGEST_WAIT), lambda: self._look(session)
            )
            return
        task = loop.create_task(self._tell(session))
        self._tasks[session] = task
        task.add_done_callback(lambda done: self._told(session, done))

    def _told(self, session: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(session, None)
        if task.cancelled():
            return
        if error := task.exception():
            log.warning("a digest could not be sent", session=session, error=str(error))
        self._look(session)

    async def _tell(self, session: str) -> None:
        self._since.pop(session, None)
        facts = self.flow.sessions[session]
        events, upto = await self._unread(facts)
        if not events:
            self._seen[session] = upto
            return
        await self._follow(facts)
        facts = self.flow.sessions[session]
        if not at_rest(facts):  # a person was quicker
            self._since.setdefault(session, self.flow.clock())
            return
        now = self.flow.clock()
        told = digest(events, self.flow.sessions, facts, now)
        if told is None:
            self._seen[session] = upto
            return
        key = f"digest:{session}:{upto}:{facts.digest.message if lost(facts) else ''}"
        message = message_id(key)
        await self.flow.append(
            Event(e.MessageQueued(message, told.text, SENDER), now, SENDER, key, facts.project, session),
            Event(
                e.DigestSent(message, upto, told.events, told.left_out),
                now,
                SENDER,
                f"{key}:sent",
                facts.project,
                session,
            ),
        )

    async def _unread(self, facts: SessionFacts) -> tuple[list[Event], int]:
        """What happened in its project since it was last told, and how far that goes."""
        after = facts.digest.since if lost(facts) else max(facts.digest.upto, self._seen.get(facts.id, 0))
        found: list[Event] = []
        while page := await self.flow.store.events(after=after, limit=PAGE, project=facts.project):
            found += [event for event in page if tells(event, facts)]
            after = page[-1].seq
            if len(page) < PAGE:
                break
        return found, after

    async def _follow(self, facts: SessionFacts) -> None:
        """Show it the base branch as it is now, as far as nothing of its own is in the way."""
        if facts.place is None or not facts.place.present:
            return
        try:
            git = Git(self.plugins.site_of(facts).host, Path(facts.place.path))
            await git.run("merge", "--quiet", "--ff-only", facts.base, ok=(0, 1, 128))
        except AoError as error:
            log.info("a coordinator's folder stays where it is", session=facts.id, error=str(error))


def lost(facts: SessionFacts) -> bool:
    """Its last digest never reached it."""
    known = next((one for one in facts.messages if one.id == facts.digest.message), None)
    return known is not None and known.state == "failed"


def at_rest(facts: SessionFacts) -> bool:
    """It may be told something: it waits for nobody, nothing waits for it, and if its agent has ended, that was not our doing."""
    if facts.stopped or facts.wanted == "stop" or facts.failure is not None or facts.next_message is not None:
        return False
    launch = facts.launch
    if launch is None or facts.launched_run != facts.run:
        return False
    if facts.live:
        return facts.activity.state == "idle" and not facts.question
    return not launch.stopped


def _anew(facts: SessionFacts, conversation: str, agent: str | None, model: str | None) -> bool:
    """Does a stopped one give way to a new one, with a conversation of its own?"""
    other = agent not in (None, facts.spec.profile, facts.spec.agent) or model not in (None, facts.spec.model)
    return conversation == "new" or other
