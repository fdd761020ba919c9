"""Messages to agents, and what agents ask: accepted durably, delivered by `lifecycle.py`, told here."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace
from typing import Any

from agent_orchestrator.base.home import Home
from agent_orchestrator.base.text.terminal_output import last_lines
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event, rfc3339
from agent_orchestrator.core.facts import Message, Offer, SessionFacts
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
from agent_orchestrator.plugins.agents.shared.spool import clean_text
from agent_orchestrator.sessions.permissions.requests import request_of
from agent_orchestrator.sessions.permissions.service import Permissions
from agent_orchestrator.sessions.session_view import Views, message_json
from agent_orchestrator.sessions.sessions import Sessions

LONGEST_MESSAGE = 1 << 20
ACKNOWLEDGED_WITHIN = 3.0
"""Seconds after delivery in which an agent that never acknowledged a message gets the chance to."""


_ASKING = {"needs_input": "question", "blocked": "permission"}
"""Statuses of a session whose agent asks something, and what kind of thing."""


class Inbox:
    """What people say to agents, and what waits for people."""

    def __init__(self, flow: Flow, home: Home, permissions: Permissions, sessions: Sessions, views: Views) -> None:
        self.flow = flow
        self.home = home
        self.permissions = permissions
        self.sessions = sessions
        self.views = views
        self._answered: dict[tuple[str, float | str], str] = {}

    async def send(
        self, session: str, content: str, *, key: str | None = None, interrupt: bool = False, sender: str = "person"
    ) -> dict[str, Any]:
        """Accept a message for the agent, durably; the same key is the same message."""
        facts = self.flow.sessions[session]
        text = clean_text(content).strip("\n")
        if not text.strip():
            raise UsageError("the message is empty", "write something")
        if len(text.encode()) > LONGEST_MESSAGE:
            raise UsageError(
                f"the message has over {LONGEST_MESSAGE >> 20} MB", "put it into a file in the workspace and name that"
            )
        message = _id(key)
        known = self._message(facts, message)
        if known is None:
            self._refuse_if_deaf(facts)
            body = e.MessageQueued(message, text, sender, interrupt)
            event = Event(body, self.flow.clock(), sender, f"message:{session}:{message}", facts.project, session)
            await self.flow.append(event)
            known = self._message(self.flow.sessions[session], message)
        return {"messageId": message, "state": known.state if known else "queued"}

    def _refuse_if_deaf(self, facts: SessionFacts) -> None:
        if facts.stopped or facts.wanted == "stop":
            raise Conflict(f"{facts.id} is stopped", f"bring it back first: ao restore {facts.id}")
        if facts.failure and not facts.live:
            raise Conflict(f"{facts.id} failed at {facts.failure.step}", f"mend that, then: ao restore {facts.id}")

    def _message(self, facts: SessionFacts, message: str) -> Message | None:
        return next((one for one in facts.messages if one.id == message), None)

    def messages(self, session: str, *, to_agent: bool = False) -> list[dict[str, Any]]:
        """A session's messages, oldest first; for an agent without words that wait for a person's leave."""
        return [message_json(_free(one) if to_agent else one) for one in self.flow.sessions[session].messages]

    async def message(
        self, session: str, message: str, wait: float | None = None, *, to_agent: bool = False
    ) -> dict[str, Any]:
        """One message; `wait`: until its fate is known, at most so many seconds."""

        def ended(facts: SessionFacts) -> bool:
            one = self._message(facts, message)
            return one is None or one.state in ("acknowledged", "failed")

        def delivered(facts: SessionFacts) -> bool:
            one = self._message(facts, message)
            return ended(facts) or (one is not None and one.state == "delivered" and not facts.acknowledges)

        patience = wait or 0.0
        facts = await self.sessions.until(session, delivered, patience)
        if not ended(facts):  # an agent that never acknowledged anything may do so now, or never
            facts = await self.sessions.until(session, ended, min(patience, ACKNOWLEDGED_WITHIN))
        found = self._message(facts, message)
        if found is None:
            raise NotFound(f"{session} has no message {message}", f"see them: ao api GET /sessions/{session}/messages")
        return message_json(_free(found) if to_agent else found)

    def questions(self, project: str | None) -> list[dict[str, Any]]:
        """Everything that waits for a person's answer, oldest first."""
        found = [
            question
            for facts in self.flow.sessions.values()
            if project in (None, facts.project)
            for question in self.questions_of(facts)
        ]
        return sorted(found, key=lambda question: question["since"])

    def questions_of(self, facts: SessionFacts) -> list[dict[str, Any]]:
        """What waits for a person's answer in one session."""
        found = [_held_json(facts, one) for one in facts.held_messages]
        found += [_offer_json(facts, one) for one in facts.offers]
        status = self.views.status(facts)
        if kind := _ASKING.get(status.name):
            question = {
                "session": facts.id,
                "kind": kind,
                "text": status.waiting_for,
                "request": request_of(facts, kind, status.waiting_for or ""),
                "permission": _permission_json(facts),
                "message": None,
                "offer": None,
                "since": rfc3339(status.at),
                "context": last_lines(self.home.terminal_log(facts.id), 8).splitlines(),
            }
            found.append(question)
        return found

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
        """A person's answer: text to a question, a decision to a permission request, a message or an action that waits for it.

        `request`: what the agent was seen to ask; if it asks something else by now, nothing is answered."""
        facts = self.flow.sessions[session]
        status = self.views.status(facts).name
        if offer is not None:
            return await self._take(facts, offer, decision, key)
        if message is not None:
            return await self._release(facts, message, decision, key)
        if decision and await self.permissions.given(session, key):
            return await self._decide(facts, decision, text, key, by)
        if key and (sent := self._message(facts, _id(key))):
            return {"messageId": sent.id, "state": sent.state}
        if request is not None:
            self._still_asks(session, request)
            facts = self.flow.sessions[session]
            status = self.views.status(facts).name
        if status == "blocked":
            if decision is None:
                raise UsageError(f"{session} waits for a permission, not for text", "say --allow, --always or --deny")
            self._first(facts, key)
            return await self._decide(facts, decision, text, key, by)
        if decision is not None and facts.held_messages:
            return await self._release(facts, _only(facts), decision, key)
        if decision is not None and facts.offers:
            return await self._take(facts, _only_offer(facts), decision, key)
        if decision is not None and key and await self.flow.store.event_by_key(f"took:{session}:{key}"):
            return {"messageId": None, "state": "delivered"}
        if decision is not None:
            raise Conflict(f"{session} waits for no permission ({status})", "see what it waits for: ao status")
        if status != "needs_input":
            raise Conflict(f"{session} asks nothing just now ({status})", f"send it a message: ao send {session} TEXT")
        self._first(facts, key)
        return await self.send(session, text or "", key=key, sender=by)

    def _still_asks(self, session: str, request: str) -> None:
        """Refuse an answer to what is not asked any more."""
        facts = self.flow.sessions[session]
        asked = next((one for one in self.questions_of(facts) if one["request"]), None)
        if asked is None:
            raise Conflict(f"{session} does not ask this any more", f"see what it does now: ao status {session}")
        if asked["request"] != request:
            raise Conflict(
                f"{session} asks something else by now, which was not answered", f"see it: ao answer {session}"
            )

    async def _decide(
        self, facts: SessionFacts, decision: str, text: str | None, key: str | None, by: str
    ) -> dict[str, Any]:
        try:
            await self.permissions.decide(facts, decision, text or "", by=by, key=key)
        except AoError:
            self._answered.pop((facts.id, facts.activity.at), None)  # it was not given: another answer may be
            raise
        if text and decision == "deny":
            return await self.send(facts.id, text, key=key, sender=by)
        return {"messageId": None, "state": "delivered"}

    async def _release(
        self, facts: SessionFacts, message: str, decision: str | None, key: str | None
    ) -> dict[str, Any]:
        """A person's word on a message that waits for it."""
        if decision not in ("allow", "deny"):
            raise UsageError(
                f"a message is let through or refused, not by {decision or 'text'}",
                "say --allow or --deny; name an author in trustedAuthors to trust him for good",
            )
        self._first(facts, key, message)
        held = any(one.id == message for one in facts.held_messages)
        if not held and await self.flow.store.event_by_key(f"word:{message}:{key}") is None:
            raise Conflict(f"{message} waits for nobody's word", f"see what does: ao answer {facts.id}")
        allowed = decision == "allow"
        body = e.MessageReleased(message) if allowed else e.MessageFailed(message, "a person refused it")
        unique = f"word:{message}:{key or uuid.uuid4().hex}"
        await self.flow.append(Event(body, self.flow.clock(), "person", unique, facts.project, facts.id))
        return {"messageId": message, "state": "queued" if allowed else "failed"}

    async def _take(self, facts: SessionFacts, offer: str, decision: str | None, key: str | None) -> dict[str, Any]:
        """A person's word on an action that a rule offers."""
        if decision not in ("allow", "deny"):
            raise UsageError(
                f"an action is taken or refused, not by {decision or 'text'}",
                "say --allow or --deny; auto: true in the rule takes it by itself from then on",
            )
        unique = f"took:{facts.id}:{key or uuid.uuid4().hex}"
        if not any(one.id == offer for one in facts.offers) and await self.flow.store.event_by_key(unique) is None:
            raise Conflict(f"{offer} is not offered any more", f"see what is: ao answer {facts.id}")
        body = e.OfferAnswered(offer, decision)
        await self.flow.append(Event(body, self.flow.clock(), "person", unique, facts.project, facts.id))
        return {"messageId": None, "state": "delivered" if decision == "allow" else "failed"}

    def _first(self, facts: SessionFacts, key: str | None, message: str = "") -> None:
        """Of two people who answer at once, the second is told so; the same request again is no second one."""
        asked, mine = (facts.id, message or facts.activity.at), key or uuid.uuid4().hex
        if self._answered.setdefault(asked, mine) != mine:
            raise Conflict(f"{facts.id} has been answered already", "see what it does now: ao status")


def _only(facts: SessionFacts) -> str:
    """The message that waits for a person's word, if it is clear which."""
    if len(facts.held_messages) > 1:
        count = len(facts.held_messages)
        raise Conflict(f"{count} messages to {facts.id} wait for your word", f"go through them: ao answer {facts.id}")
    return facts.held_messages[0].id


def _only_offer(facts: SessionFacts) -> str:
    """The action that waits for a person's word, if it is clear which."""
    if len(facts.offers) > 1:
        raise Conflict(
            f"{len(facts.offers)} actions of {facts.id} wait for your word", f"go through them: ao answer {facts.id}"
        )
    return facts.offers[0].id


def _offer_json(facts: SessionFacts, offer: Offer) -> dict[str, Any]:
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


def _held_json(facts: SessionFacts, message: Message) -> dict[str, Any]:
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
    asked = facts.permission
    if asked is None:
        return None
    return {"tool": asked.tool, "command": asked.command or None, "reason": asked.reason or None}


def _id(key: str | None) -> str:
    """A message's id; the same request gives the same."""
    return f"m-{hashlib.sha256(key.encode()).hexdigest()[:16] if key else uuid.uuid4().hex[:16]}"


def _free(message: Message) -> Message:
    """A message as an agent may see it; what nobody let through was for nobody to read."""
    return replace(message, text=f"({message.reason})") if message.needs_word else message
