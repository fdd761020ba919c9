"""The coordinating agent of a project: started on request, and sent digests of what happens, which also wake it.

News is gathered for a while (`digest.py`) and sent together while the agent rests: never in the middle of a turn, and
never while it waits for a person's answer. The message's own record says up to which event it informs, so that a
restart repeats nothing; the content of a message that was lost is sent again.

Look here when a coordinator is not started, not woken, or informed twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.config.projects.projects import NO_CONTEXT
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import COORDINATOR_KIND, SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.reactions import message_id
from agent_orchestrator.errors import AoError, Conflict
from agent_orchestrator.fleet.coordinator.digest import build_digest, is_news
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.creation.new_session import NewSession
from agent_orchestrator.sessions.followers import Followers
from agent_orchestrator.sessions.messages import Inbox
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.sessions import Sessions

BRANCH = "ao/coordinator"
TITLE = "Coordinator"
SENDER = "digest"
EVENTS_PER_PAGE = 2000
MAX_TIMER_WAIT = 300.0
"""Seconds after which the clock is checked again at the latest: it may be set, or the machine may sleep."""
STOP_TIMEOUT = 60.0

log = structlog.get_logger()


class Coordinators(Part):
    """Starts coordinating agents, gives them goals, and sends them digests."""

    def __init__(self, core: Core, sessions: Sessions, followers: Followers, inbox: Inbox) -> None:
        super().__init__(core)
        self.sessions = sessions
        self.followers = followers
        self.inbox = inbox
        self._ensuring = asyncio.Lock()
        self._sessions_by_project: dict[str, str] = {}
        """Project → its coordinating session."""
        self._pending_since: dict[str, float] = {}
        """Coordinating session → when the first event came that it has not been sent yet."""
        self._checked_up_to: dict[str, int] = {}
        """Coordinating session → the event up to which there was nothing to send."""
        self._timers: dict[str, Timer] = {}
        self._sending: set[str] = set()
        """Coordinating sessions that a digest is being sent to."""

    def start(self) -> None:
        """Send what is due and whatever happens from now on; start the coordinators that the configuration asks for."""
        for facts in self.flow.sessions.values():
            if facts.spec.kind == COORDINATOR_KIND:
                self._register(facts)
        self.on(self._check_changed)
        for session in list(self._sessions_by_project.values()):
            self._pending_since.setdefault(session, self.clock())
            self._send_if_due(session)
        if any(project.coordinator.auto for project in self.core.config.projects()):
            self.spawn(self._start_configured())

    async def close(self) -> None:
        """Cancel all timers and tasks."""
        for timer in self._timers.values():
            timer.cancel()
        await super().close()

    # -- starting ------------------------------------------------------------------------------------------------------

    def latest(self, project: str) -> SessionFacts | None:
        """Return a project's latest coordinating session, or None."""
        return self.flow.sessions.get(self._sessions_by_project.get(project, ""))

    async def _start_configured(self) -> None:
        for project in self.core.config.projects():
            if project.coordinator.auto:
                try:
                    await self.ensure(project.id)
                except AoError as error:
                    log.warning("a coordinator could not be started", project=project.id, error=str(error))

    async def ensure(
        self, project: str, agent: str | None = None, model: str | None = None, key: str | None = None
    ) -> SessionFacts:
        """Return the project's coordinating session, created or restored if necessary; one call at a time. Raises
        Conflict if one by another agent or model runs.
        """
        settings = self.core.settings.project(project)
        async with self._ensuring:
            await self.core.projects.check_trust(settings, settings.coordinator.agent, coordinator=True)
            facts = self.latest(project)
            if facts is not None and facts.requested_state == "stop" and not facts.stopped:
                facts = await self.followers.wait_until(facts.id, lambda now: now.stopped, STOP_TIMEOUT)
            if facts is None or (
                facts.stopped and _needs_new_session(facts, settings.coordinator.conversation, agent, model)
            ):
                return await self._create(project, agent, model, key)
            self._refuse_different_agent(facts, agent, model)
            if facts.stopped or (not facts.live and (facts.failure is not None or facts.launched_run == facts.run)):
                await self.sessions.restore(facts.id, key)
            return self.flow.sessions[facts.id]

    async def _create(self, project: str, agent: str | None, model: str | None, key: str | None) -> SessionFacts:
        settings = self.core.settings.project(project).coordinator
        request = NewSession(
            project=project,
            title=TITLE,
            agent=agent or settings.agent,
            model=model or (settings.model if agent in (None, settings.agent) else None),
            branch=BRANCH,
            kind=COORDINATOR_KIND,
        )
        session = await self.sessions.create(request, key, NO_CONTEXT)
        return self.flow.sessions[session["id"]]

    def _refuse_different_agent(self, facts: SessionFacts, agent: str | None, model: str | None) -> None:
        is_same = agent in (None, facts.spec.profile, facts.spec.agent) and model in (None, facts.spec.model)
        if not is_same and not facts.stopped:
            current_agent = " with ".join(filter(None, (facts.spec.profile or facts.spec.agent, facts.spec.model)))
            raise Conflict(f"{facts.id} is there already, by {current_agent}", "stop it first: ao orchestrator --stop")

    async def start_with_goal(
        self,
        project: str,
        goal: str | None,
        agent: str | None = None,
        model: str | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Start the coordinator, or use the existing one, and send it a goal if there is one; return its view."""
        facts = await self.ensure(project, agent, model, f"coordinator:{key}" if key else None)
        message = None
        if goal is not None:
            await self._fast_forward_workspace(facts)
            message = await self.inbox.send(facts.id, goal, key=key)
        return {**self.view(project), "message": message}

    async def stop(self, project: str, key: str | None = None) -> dict[str, Any]:
        """Stop the coordinator, keeping its conversation, and return its view."""
        facts = self.latest(project)
        if facts is not None and not facts.stopped:
            await self.sessions.stop(facts.id, key=key)
        return self.view(project)

    def view(self, project: str) -> dict[str, Any]:
        """Return the coordinator's state as JSON."""
        facts = self.latest(project)
        last_digest = facts.digest if facts else None
        return {
            "project": project,
            "session": self.sessions.view(facts.id) if facts else None,
            "goal": next((message.text for message in reversed(facts.messages) if message.sender != SENDER), None)
            if facts
            else None,
            "said": facts.last_turn_text or None if facts else None,
            "digest": {
                "lastAt": rfc3339(last_digest.at) if last_digest and last_digest.at else None,
                "pending": bool(facts and facts.id in self._pending_since),
            },
            "message": None,
        }

    # -- sending digests -----------------------------------------------------------------------------------------------

    def _register(self, facts: SessionFacts) -> None:
        registered = self.flow.sessions.get(self._sessions_by_project.get(facts.project, ""))
        if registered is None or facts.created_at >= registered.created_at:
            self._sessions_by_project[facts.project] = facts.id

    def _check_changed(self, changes: Sequence[FactsChange]) -> None:
        to_check = set()
        for change in changes:
            event = change.event
            if isinstance(event.body, e.SessionCreated) and event.body.kind == COORDINATOR_KIND and change.after:
                self._register(change.after)
            coordinator = self.flow.sessions.get(self._sessions_by_project.get(event.project or "", ""))
            if coordinator is None:
                continue
            if event.session == coordinator.id:
                if coordinator.live and digest_failed(coordinator):
                    self._pending_since.setdefault(coordinator.id, self.clock())
                to_check.add(coordinator.id)
            elif is_news(event, coordinator):
                self._pending_since.setdefault(coordinator.id, self.clock())
                to_check.add(coordinator.id)
        for session in to_check:
            self._send_if_due(session)

    def _send_if_due(self, session: str) -> None:
        """Send a digest if it is time and the agent rests; otherwise the timer or the session's next change calls this again."""
        facts = self.flow.sessions[session]
        since = self._pending_since.get(session)
        if since is None or session in self._sending or not can_receive_digest(facts):
            return
        if timer := self._timers.pop(session, None):
            timer.cancel()
        try:
            wait = since + self.core.settings.project(facts.project).coordinator.digest - self.clock()
        except AoError:
            return  # its project is gone
        if wait > 0:
            self._timers[session] = self.clock.call_later(min(wait, MAX_TIMER_WAIT), lambda: self._send_if_due(session))
            return
        self._sending.add(session)
        self.spawn(self._send_digest(session)).add_done_callback(lambda task: self._on_sent(session, task))

    def _on_sent(self, session: str, task: asyncio.Task[None]) -> None:
        self._sending.discard(session)
        if task.cancelled():
            return
        if error := task.exception():
            log.warning("a digest could not be sent", session=session, error=str(error))
        self._send_if_due(session)

    async def _send_digest(self, session: str) -> None:
        self._pending_since.pop(session, None)
        facts = self.flow.sessions[session]
        events, upto = await self._unsent_news(facts)
        if not events:
            self._checked_up_to[session] = upto
            return
        await self._fast_forward_workspace(facts)
        facts = self.flow.sessions[session]
        if not can_receive_digest(facts):  # a person sent a message meanwhile
            self._pending_since.setdefault(session, self.clock())
            return
        now = self.clock()
        news = build_digest(events, self.flow.sessions, facts, now)
        if news is None:
            self._checked_up_to[session] = upto
            return
        key = f"digest:{session}:{upto}:{facts.digest.message if digest_failed(facts) else ''}"
        message = message_id(key)
        await self.flow.append(
            Event(e.MessageQueued(message, news.text, SENDER), now, SENDER, key, facts.project, session),
            Event(
                e.DigestSent(message, upto, news.events, news.left_out),
                now,
                SENDER,
                f"{key}:sent",
                facts.project,
                session,
            ),
        )

    async def _unsent_news(self, facts: SessionFacts) -> tuple[list[Event], int]:
        """Return the news of the session's project since its last digest, and the number of the last event read."""
        after = (
            facts.digest.since if digest_failed(facts) else max(facts.digest.upto, self._checked_up_to.get(facts.id, 0))
        )
        news: list[Event] = []
        while page := await self.flow.store.events(after=after, limit=EVENTS_PER_PAGE, project=facts.project):
            news += [event for event in page if is_news(event, facts)]
            after = page[-1].seq
            if len(page) < EVENTS_PER_PAGE:
                break
        return news, after

    async def _fast_forward_workspace(self, facts: SessionFacts) -> None:
        """Fast-forward its workspace to the base branch, unless its own changes prevent that."""
        if facts.workspace is None or not facts.workspace.present:
            return
        try:
            git = Git(self.core.sites.for_session(facts).host, Path(facts.workspace.path))
            await git.run("merge", "--quiet", "--ff-only", facts.base, ok=(0, 1, 128))
        except AoError as error:
            log.info("a coordinator's folder stays where it is", session=facts.id, error=str(error))


def digest_failed(facts: SessionFacts) -> bool:
    """Return whether the session's last digest could not be delivered."""
    digest_message = next((message for message in facts.messages if message.id == facts.digest.message), None)
    return digest_message is not None and digest_message.state == "failed"


def can_receive_digest(facts: SessionFacts) -> bool:
    """Return whether it can be sent a digest: it waits for no person, no message waits for it, and its agent was not
    stopped by the daemon.
    """
    if facts.stopped or facts.requested_state == "stop" or facts.failure is not None or facts.next_message is not None:
        return False
    launch = facts.launch
    if launch is None or facts.launched_run != facts.run:
        return False
    if facts.live:
        return facts.activity.state == "idle" and not facts.question
    return not launch.stopped


def _needs_new_session(facts: SessionFacts, conversation: str, agent: str | None, model: str | None) -> bool:
    """Return whether a stopped coordinator is replaced by a new session with a new conversation, instead of restored."""
    is_different = agent not in (None, facts.spec.profile, facts.spec.agent) or model not in (None, facts.spec.model)
    return conversation == "new" or is_different
