"""`Deliveries`: the effect that hands a message to an agent, exactly once, when the agent can take it.

Look here when a message is held too long, arrives twice or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import RetryLater
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import COORDINATOR_KIND, Message, SessionFacts
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.core.status import IN_TURN_ACTIVITIES
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import (
    Agent,
    Delivered,
    Delivery,
    Handle,
    NotReady,
    ReadyToType,
    Undeliverable,
)
from agent_orchestrator.sessions.agents.listener import running_launch
from agent_orchestrator.sessions.agents.observer import Observer
from agent_orchestrator.sessions.lifecycle.launch import Launches
from agent_orchestrator.sessions.lifecycle.pending_message import append_to_inbox, held_events
from agent_orchestrator.sessions.lifecycle.reachability import UNREACHABLE_PAUSE, is_reachable
from agent_orchestrator.sessions.lifecycle.usage_wait import UsageGate, seconds_until_recheck
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.session_plugins import handle_of

QUIET_SECONDS = 0.4
"""Seconds without output after which an agent that does not report readiness counts as ready for its first prompt."""
FIRST_REPORT_TIMEOUT = 3.0
"""Seconds that a started agent which already has its task gets for its first report before a message is typed."""
READY_TIMEOUT = 20.0
"""Seconds to wait for the prompt of a CLI whose plugin cannot listen to it."""
LISTENED_READY_TIMEOUT = 120.0
"""Seconds to wait for the prompt of a CLI whose plugin can listen to it: on a busy machine it may start slowly."""
SUBMIT_CHECK_SECONDS, MAX_SUBMIT_CHECKS = 2.0, 5
"""Seconds between checks that a typed message was submitted, and the number of checks."""
INTERRUPT_TIMEOUT = 3.0
"""Seconds to wait for an interrupted turn to end."""


class Deliveries(Part):
    """Delivers messages by the agent's own protocol, through its inbox file, or by typing them into its terminal."""

    def __init__(self, core: Core, observer: Observer, launches: Launches, usage: UsageGate) -> None:
        super().__init__(core)
        self.observer = observer
        self.launches = launches
        self.usage = usage

    async def deliver(self, intent: Intent, attempts: int) -> Sequence[Event]:
        """Deliver the next message once, after checking the agent's state."""
        facts = self.flow.sessions[intent.session]
        message = next((candidate for candidate in facts.messages if candidate.id == intent.args["message"]), None)
        if message is None or not message.pending:
            return []
        is_current = facts.live and facts.generation == intent.generation
        if is_current and not is_reachable(self.core, facts):
            raise RetryLater(UNREACHABLE_PAUSE, *held_events(self, facts, message, f"node {facts.node} is unreachable"))
        if is_current:
            await self.observer.catch_up(facts.id)
            facts = self.flow.sessions[intent.session]
            await self._hold_if_needed(facts, message)
        handle = handle_of(facts)
        if handle is None or handle.generation != intent.generation or (facts.remote and not facts.live):
            outcome: Delivery = Undeliverable("its terminal is gone", ambiguous=True)
        else:
            await append_to_inbox(self.core, facts, message)
            outcome = await self._hand_to_agent(facts, handle, message, interrupt=is_current and not attempts)
        return self._events_of_delivery(facts, message, intent, outcome)

    async def _hand_to_agent(
        self, facts: SessionFacts, handle: Handle, message: Message, *, interrupt: bool
    ) -> Delivery:
        """Deliver a message by the agent's own protocol, through its inbox, or by typing it into its terminal."""
        agent, runtime, interrupt = (
            self.core.plugins.agent_of(facts),
            self.core.plugins.runtime_of(facts),
            interrupt and message.interrupt,
        )
        if agent.delivers_messages and facts.live and not (facts.launch and facts.launch.has_inbox):
            outcome = await agent.deliver(
                running_launch(facts, self.core), message.id, message.text, interrupt=interrupt
            )
            if isinstance(outcome, ReadyToType):
                interrupt = False
                if outcome.first:
                    await runtime.press(handle, outcome.first)
            elif outcome is not None:
                return outcome
        uses_inbox = facts.launch is not None and facts.launch.has_inbox
        if interrupt:
            await runtime.press(handle, ("C-c",) if uses_inbox else agent.interrupt_keys)
            await self._wait_until_interrupted(facts.id)
        if uses_inbox:
            return Delivered()
        delivery = await runtime.deliver(handle, message.id, agent.escape_input(message.text))
        if agent.detects_unsent_text and isinstance(delivery, Delivered):
            self.spawn(self._press_enter_until_sent(facts.id, handle, message, agent))
        return delivery

    async def _press_enter_until_sent(self, session: str, handle: Handle, message: Message, agent: Agent) -> None:
        """Press Enter again while a typed message is still in the agent's input line."""
        for attempt in range(MAX_SUBMIT_CHECKS):
            await asyncio.sleep(SUBMIT_CHECK_SECONDS)
            facts = self.flow.sessions[session]
            current_message = next((candidate for candidate in facts.messages if candidate.id == message.id), None)
            is_settled = current_message is None or current_message.state not in ("queued", "held", "delivered")
            if (
                is_settled
                or not facts.live
                or facts.generation != handle.generation
                or facts.activity.state == "blocked"
            ):
                return
            runtime = self.core.plugins.runtime_of(facts)
            try:
                if agent.has_unsent_text(await runtime.screen(handle), message.text):
                    await runtime.press(handle, ("Enter",), once=f"{message.id}-{attempt}")
            except AoError:
                return

    async def _wait_until_interrupted(self, session: str) -> None:
        """Wait until the turn has ended.

        Text typed while a turn is being stopped may be lost, or be joined to what the agent puts back into its prompt.
        """
        for _ in range(int(INTERRUPT_TIMEOUT / 0.05)):
            if self.flow.sessions[session].activity.state not in IN_TURN_ACTIVITIES:
                return
            await asyncio.sleep(0.05)

    def _events_of_delivery(
        self, facts: SessionFacts, message: Message, intent: Intent, outcome: Delivery
    ) -> Sequence[Event]:
        """Return the events that record a delivery's outcome; raise `RetryLater` if the message is held."""
        generation = intent.generation
        match outcome:
            case Delivered():
                return [self.event(facts, e.MessageDelivered(message.id), f"delivered:{message.id}", generation)]
            case NotReady(reason):
                raise RetryLater(1.0, *held_events(self, facts, message, reason))
            case Undeliverable(reason, ambiguous=True):
                text = f"{reason}, and it cannot be told whether the message was written before; send it again if it was not"
                return [self.event(facts, e.MessageFailed(message.id, text), f"undelivered:{message.id}")]
        return []  # not written: it stays queued; the observer records the agent's end

    async def _hold_if_needed(self, facts: SessionFacts, message: Message) -> None:
        """Raise `RetryLater` if the message must wait for a permission, a usage limit, or the agent to become ready."""
        if facts.activity.state == "blocked":
            raise RetryLater(60.0, *held_events(self, facts, message, "the agent waits for a permission"))
        if not message.is_task and (wait := self.usage.claim_turn_or_wait(facts)):
            raise RetryLater(
                seconds_until_recheck(wait, self.clock), *held_events(self, facts, message, f"waits for {wait.reason}")
            )
        expects_prompt = message.is_task or facts.spec.prompt or facts.spec.kind == COORDINATOR_KIND
        if facts.activity.state == "starting" and expects_prompt:
            await self._hold_until_ready(facts, message)
        await self._hold_until_listening(facts, message)

    async def _hold_until_listening(self, facts: SessionFacts, message: Message) -> None:
        """Raise `RetryLater` if typed text could be taken for an answer: before the agent's first report, or while a dialog is shown."""
        assert facts.launch is not None
        if facts.launch.has_inbox:
            return
        has_not_reported = facts.activity.source == "process" and facts.activity.state in IN_TURN_ACTIVITIES
        if has_not_reported and self.launches.seconds_since_start(facts) < FIRST_REPORT_TIMEOUT:
            raise RetryLater(0.2, *held_events(self, facts, message, "the agent is not ready yet"))
        blocked = self.core.plugins.agent_of(facts).screen.blocked
        if blocked is not None and facts.activity.state in IN_TURN_ACTIVITIES:
            screen = await self.core.plugins.runtime_of(facts).screen(Handle(**facts.launch.handle))
            if blocked.search(screen):
                raise RetryLater(0.5, *held_events(self, facts, message, "the agent waits for a permission"))

    async def _hold_until_ready(self, facts: SessionFacts, message: Message) -> None:
        """Raise `RetryLater` until a starting agent shows its prompt or is quiet, because it may drop text that is typed earlier."""
        assert facts.launch is not None
        log, waited_seconds = self.home.terminal_log(facts.id), self.launches.seconds_since_start(facts)
        agent = self.core.plugins.agent_of(facts)
        rules, max_wait = agent.screen, LISTENED_READY_TIMEOUT if agent.listens else READY_TIMEOUT
        if rules.ready is not None and waited_seconds < max_wait:
            if not rules.ready.search(await self.core.plugins.runtime_of(facts).screen(Handle(**facts.launch.handle))):
                raise RetryLater(0.2, *held_events(self, facts, message, "the agent is not ready yet"))
        elif rules.ready is None and waited_seconds < READY_TIMEOUT / 4:
            status = log.stat()
            if not status.st_size or self.flow.clock() - status.st_mtime < QUIET_SECONDS:
                raise RetryLater(0.1)
