"""The messages to agents, and the questions and permission requests of agents.

Messages are stored here and delivered by `delivery.py`. Look here when a message or an answer is refused.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace
from typing import Any

from agent_orchestrator.base.text.terminal_output import last_lines
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import Message, Offer, SessionFacts
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.sessions.followers import Followers
from agent_orchestrator.sessions.part import Core, Part
from agent_orchestrator.sessions.permissions.permissions import Permissions
from agent_orchestrator.sessions.permissions.request_ids import request_id
from agent_orchestrator.sessions.session_view import SessionViews, message_json
from agent_orchestrator.sessions.sessions import Sessions

MAX_MESSAGE_BYTES = 1 << 20
"""Maximum size of a message in bytes."""
ACKNOWLEDGE_TIMEOUT = 3.0
"""Seconds after delivery that an agent which never acknowledged a message gets to do so."""


_KIND_BY_STATUS = {"needs_input": "question", "blocked": "permission"}
"""The statuses of a session whose agent waits for an answer, with the kind of answer."""


class Inbox(Part):
    """The messages of people to agents, and everything that waits for a person's answer."""

    def __init__(
        self, core: Core, permissions: Permissions, sessions: Sessions, followers: Followers, views: SessionViews
    ) -> None:
        super().__init__(core)
        self.permissions = permissions
        self.sessions = sessions
        self.followers = followers
        self.views = views
        self._answer_keys: dict[tuple[str, float | str], str] = {}

    async def send(
        self, session: str, content: str, *, key: str | None = None, interrupt: bool = False, sender: str = "person"
    ) -> dict[str, Any]:
        """Store a message for the agent; a repeated key is the same message."""
        facts = self.flow.sessions[session]
        text = clean_text(content).strip("\n")
        if not text.strip():
            raise UsageError("the message is empty", "write something")
        if len(text.encode()) > MAX_MESSAGE_BYTES:
            raise UsageError(
                f"the message has over {MAX_MESSAGE_BYTES >> 20} MB",
                "put it into a file in the workspace and name that",
            )
        message = _message_id(key)
        stored = self._find_message(facts, message)
        if stored is None:
            self._refuse_if_stopped(facts)
            body = e.MessageQueued(message, text, sender, interrupt)
            event = Event(body, self.clock(), sender, f"message:{session}:{message}", facts.project, session)
            await self.flow.append(event)
            stored = self._find_message(self.flow.sessions[session], message)
        return {"messageId": message, "state": stored.state if stored else "queued"}

    def _refuse_if_stopped(self, facts: SessionFacts) -> None:
        """Raise `Conflict` if the session is stopped or failed, so that its agent cannot receive messages."""
        if facts.stopped or facts.requested_state == "stop":
            raise Conflict(f"{facts.id} is stopped", f"bring it back first: ao restore {facts.id}")
        if facts.failure and not facts.live:
            raise Conflict(f"{facts.id} failed at {facts.failure.step}", f"mend that, then: ao restore {facts.id}")

    def _find_message(self, facts: SessionFacts, message: str) -> Message | None:
        """Return a session's message with this id, or None."""
        return next((candidate for candidate in facts.messages if candidate.id == message), None)

    def messages(self, session: str, *, to_agent: bool = False) -> list[dict[str, Any]]:
        """Return a session's messages, oldest first; `to_agent` hides the text of messages that wait for a person's approval."""
        return [
            message_json(_hide_unapproved(message) if to_agent else message)
            for message in self.flow.sessions[session].messages
        ]

    async def message(
        self, session: str, message: str, wait: float | None = None, *, to_agent: bool = False
    ) -> dict[str, Any]:
        """Return one message; `wait`: after waiting up to so many seconds until its delivery has succeeded or failed."""

        def is_final(facts: SessionFacts) -> bool:
            """Return whether the message's state is final, or the message is gone."""
            current = self._find_message(facts, message)
            return current is None or current.state in ("acknowledged", "failed")

        def is_delivered(facts: SessionFacts) -> bool:
            """Return whether nothing more is to be expected: final, or delivered to an agent that never acknowledges."""
            current = self._find_message(facts, message)
            return is_final(facts) or (
                current is not None and current.state == "delivered" and not facts.has_acknowledged
            )

        patience = wait or 0.0
        facts = await self.followers.wait_until(session, is_delivered, patience)
        if not is_final(facts):  # an agent that never acknowledged a message gets a short time to do so
            facts = await self.followers.wait_until(session, is_final, min(patience, ACKNOWLEDGE_TIMEOUT))
        result = self._find_message(facts, message)
        if result is None:
            raise NotFound(f"{session} has no message {message}", f"see them: ao api GET /sessions/{session}/messages")
        return message_json(_hide_unapproved(result) if to_agent else result)

    def questions(self, project: str | None) -> list[dict[str, Any]]:
        """Return everything that waits for a person's answer, oldest first."""
        questions = [
            question
            for facts in self.flow.sessions.values()
            if project in (None, facts.project)
            for question in self.questions_of(facts)
        ]
        return sorted(questions, key=lambda question: question["since"])

    def questions_of(self, facts: SessionFacts) -> list[dict[str, Any]]:
        """Return what waits for a person's answer in one session."""
        questions = [_held_message_json(facts, item) for item in facts.held_messages]
        questions += [_offer_json(facts, item) for item in facts.offers]
        status = self.views.status(facts)
        if kind := _KIND_BY_STATUS.get(status.name):
            question = {
                "session": facts.id,
                "kind": kind,
                "text": status.waiting_for,
                "request": request_id(facts, kind, status.waiting_for or ""),
                "permission": _permission_json(facts),
                "message": None,
                "offer": None,
                "since": rfc3339(status.at),
                "context": last_lines(self.home.terminal_log(facts.id), 8).splitlines(),
            }
            questions.append(question)
        return questions

    async def answer(
        self,
        session: str,
        *,
        text: str | None = None,
        decision: str | None = None,
        message: str | None = None,
        offer: str | None = None,
        request: str | None = None,
        key: str | None = None,
        by: str = "person",
    ) -> dict[str, Any]:
        """Answer a question with text, or decide a permission request, a held message or an offered action.

        `request` is the id of the question that the person saw; if the agent asks something else by now, nothing is answered.
        """
        facts = self.flow.sessions[session]
        status = self.views.status(facts).name
        if offer is not None:
            return await self._answer_offer(facts, offer, decision, key)
        if message is not None:
            return await self._decide_held_message(facts, message, decision, key)
        if decision and await self.permissions.earlier_answer(session, key):
            return await self._decide(facts, decision, text, key, by)
        if key and (earlier_message := self._find_message(facts, _message_id(key))):
            return {"messageId": earlier_message.id, "state": earlier_message.state}
        if request is not None:
            self._require_open_request(session, request)
            facts = self.flow.sessions[session]
            status = self.views.status(facts).name
        if status == "blocked":
            if decision is None:
                raise UsageError(f"{session} waits for a permission, not for text", "say --allow, --always or --deny")
            self._claim_answer(facts, key)
            return await self._decide(facts, decision, text, key, by)
        if decision is not None and facts.held_messages:
            return await self._decide_held_message(facts, _only_held_message(facts), decision, key)
        if decision is not None and facts.offers:
            return await self._answer_offer(facts, _only_offer(facts), decision, key)
        if decision is not None and key and await self.flow.store.event_by_key(f"took:{session}:{key}"):
            return {"messageId": None, "state": "delivered"}
        if decision is not None:
            raise Conflict(f"{session} waits for no permission ({status})", "see what it waits for: ao status")
        if status != "needs_input":
            raise Conflict(f"{session} asks nothing just now ({status})", f"send it a message: ao send {session} TEXT")
        self._claim_answer(facts, key)
        return await self.send(session, text or "", key=key, sender=by)

    def _require_open_request(self, session: str, request: str) -> None:
        """Raise `Conflict` if the session no longer asks this request."""
        facts = self.flow.sessions[session]
        current_question = next((question for question in self.questions_of(facts) if question["request"]), None)
        if current_question is None:
            raise Conflict(f"{session} does not ask this any more", f"see what it does now: ao status {session}")
        if current_question["request"] != request:
            raise Conflict(
                f"{session} asks something else by now, which was not answered", f"see it: ao answer {session}"
            )

    async def _decide(
        self, facts: SessionFacts, decision: str, text: str | None, key: str | None, by: str
    ) -> dict[str, Any]:
        """Decide the current permission request; a text with a denial is sent as a message."""
        try:
            await self.permissions.decide(facts, decision, text or "", by=by, key=key)
        except AoError:
            self._answer_keys.pop((facts.id, facts.activity.at), None)  # not given, so another answer is allowed
            raise
        if text and decision == "deny":
            return await self.send(facts.id, text, key=key, sender=by)
        return {"messageId": None, "state": "delivered"}

    async def _decide_held_message(
        self, facts: SessionFacts, message: str, decision: str | None, key: str | None
    ) -> dict[str, Any]:
        """Deliver or refuse a message that waits for a person's approval."""
        if decision not in ("allow", "deny"):
            raise UsageError(
                f"a message is let through or refused, not by {decision or 'text'}",
                "say --allow or --deny; name an author in trustedAuthors to trust him for good",
            )
        self._claim_answer(facts, key, message)
        is_held = any(candidate.id == message for candidate in facts.held_messages)
        if not is_held and await self.flow.store.event_by_key(f"word:{message}:{key}") is None:
            raise Conflict(f"{message} waits for nobody's word", f"see what does: ao answer {facts.id}")
        is_allowed = decision == "allow"
        body = e.MessageReleased(message) if is_allowed else e.MessageFailed(message, "a person refused it")
        event_key = f"word:{message}:{key or uuid.uuid4().hex}"
        await self.flow.append(Event(body, self.clock(), "person", event_key, facts.project, facts.id))
        return {"messageId": message, "state": "queued" if is_allowed else "failed"}

    async def _answer_offer(
        self, facts: SessionFacts, offer: str, decision: str | None, key: str | None
    ) -> dict[str, Any]:
        """Run or refuse an action that a rule offers."""
        if decision not in ("allow", "deny"):
            raise UsageError(
                f"an action is taken or refused, not by {decision or 'text'}",
                "say --allow or --deny; auto: true in the rule takes it by itself from then on",
            )
        event_key = f"took:{facts.id}:{key or uuid.uuid4().hex}"
        if (
            not any(candidate.id == offer for candidate in facts.offers)
            and await self.flow.store.event_by_key(event_key) is None
        ):
            raise Conflict(f"{offer} is not offered any more", f"see what is: ao answer {facts.id}")
        body = e.OfferAnswered(offer, decision)
        await self.flow.append(Event(body, self.clock(), "person", event_key, facts.project, facts.id))
        return {"messageId": None, "state": "delivered" if decision == "allow" else "failed"}

    def _claim_answer(self, facts: SessionFacts, key: str | None, message: str = "") -> None:
        """Raise `Conflict` if another person has answered already; a repeated request counts as the same answer."""
        question, own_key = (facts.id, message or facts.activity.at), key or uuid.uuid4().hex
        if self._answer_keys.setdefault(question, own_key) != own_key:
            raise Conflict(f"{facts.id} has been answered already", "see what it does now: ao status")


def _only_held_message(facts: SessionFacts) -> str:
    """Return the id of the one held message; raise `Conflict` if there are several."""
    if len(facts.held_messages) > 1:
        count = len(facts.held_messages)
        raise Conflict(f"{count} messages to {facts.id} wait for your word", f"go through them: ao answer {facts.id}")
    return facts.held_messages[0].id


def _only_offer(facts: SessionFacts) -> str:
    """Return the id of the one offered action; raise `Conflict` if there are several."""
    if len(facts.offers) > 1:
        raise Conflict(
            f"{len(facts.offers)} actions of {facts.id} wait for your word", f"go through them: ao answer {facts.id}"
        )
    return facts.offers[0].id


def _offer_json(facts: SessionFacts, offer: Offer) -> dict[str, Any]:
    """Return an offered action as a question."""
    return {
        "session": facts.id,
        "kind": "offer",
        "text": f"{offer.trigger}: {offer.action}?",
        "request": None,
        "permission": None,
        "message": None,
        "offer": offer.id,
        "since": rfc3339(offer.at),
        "context": offer.text.splitlines(),
    }


def _held_message_json(facts: SessionFacts, message: Message) -> dict[str, Any]:
    """Return a held message as a question."""
    return {
        "session": facts.id,
        "kind": "message",
        "text": message.reason,
        "request": None,
        "permission": None,
        "message": message.id,
        "offer": None,
        "since": rfc3339(message.at),
        "context": message.text.splitlines(),
    }


def _permission_json(facts: SessionFacts) -> dict[str, str | None] | None:
    """Return the session's permission request, or None."""
    permission = facts.permission
    if permission is None:
        return None
    return {"tool": permission.tool, "command": permission.command or None, "reason": permission.reason or None}


def _message_id(key: str | None) -> str:
    """Return the id of a message; the same key gives the same id."""
    return f"m-{hashlib.sha256(key.encode()).hexdigest()[:16] if key else uuid.uuid4().hex[:16]}"


def _hide_unapproved(message: Message) -> Message:
    """Return a message as an agent may see it: a text that no person approved is replaced by the reason it is held."""
    return replace(message, text=f"({message.reason})") if message.needs_approval else message
