"""Answers from outside the dashboard: links and buttons that say yes or no to one request, once, for a while.

What they open is an address with a word that only this daemon can have signed. It names the very request that was shown: a permission
asked at that moment for that command, an action offered by that rule. Once that is answered, by whomever, or no longer asked, the word
is good for nothing. Opening the address changes nothing; what is sent there by POST does. The word behind a button that only some may
press can be read by everybody who sees the button: it opens no address.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_orchestrator.config.tokens import Tokens
from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import current
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.notices import Notice
from agent_orchestrator.core.status import WAITS_FOR
from agent_orchestrator.errors import Conflict, Denied, NotFound
from agent_orchestrator.protocols import NotificationAction
from agent_orchestrator.protocols.text import one_line
from agent_orchestrator.sessions.permissions.requests import request_of
from agent_orchestrator.sessions.permissions.rules import is_whole

if TYPE_CHECKING:
    from agent_orchestrator.fleet.notifications.targets import Target
    from agent_orchestrator.sessions.messages import Inbox

GOOD_FOR = 12 * 3600.0
"""Seconds for which a link is good."""
PREFIX = "aoa_"
_PERMISSION = ("agent-blocked", "agent-needs-input")
_LABELS = {"merge": "Merge", "raise-budget": "Let it use as much again"}


@dataclass(frozen=True, slots=True)
class Word:
    """What a link says, if it is used."""

    session: str
    asked: str
    """The request that it answers."""
    verb: str
    """`allow` or `deny`."""
    notifier: str
    notice: str
    until: float
    pressed: bool
    """It counts only by the button, of whoever may press it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A request, for the person who is to confirm the answer."""

    word: Word
    title: str
    text: str
    note: str = ""
    """What else he should know."""


class Answers:
    """Makes links, and takes what they say."""

    def __init__(self, flow: Flow, tokens: Tokens) -> None:
        self.flow = flow
        self.tokens = tokens
        self.inbox: Inbox | None = None

    # -- asking ------------------------------------------------------------------------------------------------------------

    def asked(self, facts: SessionFacts, trigger: str) -> str:
        """Names what a session waits for that a notification of this trigger tells of; nothing: nothing that is answered by yes or no."""
        offer = next((one for one in facts.offers if one.trigger == trigger), None)
        if offer is not None:
            return f"offer {offer.id}"
        asked = facts.permission
        if asked is None or trigger not in _PERMISSION or facts.activity.state != "blocked":
            return ""
        return f"permission {request_of(facts, 'permission', '')}"

    def offered(self, notice: Notice, target: Target, url: str) -> tuple[Notice, list[NotificationAction]]:
        """The notice with what is asked in full, and the answers that it may be given from where it is read."""
        facts = self.flow.sessions.get(notice.session)
        asked = self.asked(facts, notice.trigger) if facts else ""
        if facts is None or not asked or not target.settings.actions or not url:
            return notice, []
        said = self._request(facts, asked)
        whole = notice.message in (said, f"{WAITS_FOR}{said}")  # a part of it may be another request's
        message = notice.message if whole else f"{notice.message}\n{said}".strip()
        yes = "Allow"
        if asked.startswith("offer "):
            action = next(one.action for one in facts.offers if f"offer {one.id}" == asked)
            yes = _LABELS.get(action, f"Do it: {action}")
        until = self.flow.clock() + GOOD_FOR
        actions = []
        verbs = {"allow": yes, "deny": "Deny"} if is_whole(said) else {"deny": "Deny"}
        for verb, label in verbs.items():
            token = self._token(Word(facts.id, asked, verb, target.name, notice.id, until, target.pressed))
            name = "merge" if label == "Merge" else verb
            actions.append(NotificationAction(name, label, f"{url}/answer/{token}", token))
        return replace(notice, message=message), actions

    def _request(self, facts: SessionFacts, asked: str) -> str:
        """What is asked, in full."""
        if asked.startswith("permission ") and facts.permission is not None:
            return f"{facts.permission.tool}: {facts.permission.command}".rstrip(": ")
        offer = next((one for one in facts.offers if f"offer {one.id}" == asked), None)
        return f"{offer.trigger}: {offer.action}" if offer else ""

    # -- answering ---------------------------------------------------------------------------------------------------------

    def show(self, token: str) -> Shown:
        """What a link would answer; `Denied` and `Conflict` say why it is good for nothing."""
        word = self._linked(token)
        facts = self._still(word)
        verb = "Allow" if word.verb == "allow" else "Deny"
        said = self._request(facts, word.asked)
        note = "" if is_whole(said) else f"This is not all of it: {_elsewhere(facts)}"
        return Shown(word, f"{verb}: {facts.id}", said, note)

    def sent_by(self, token: str) -> tuple[str, str]:
        """The project and the notifier that a word was sent for."""
        word = self._word(token)
        return self._still(word).project, word.notifier

    async def answer(self, token: str, by: str = "") -> dict[str, Any]:
        """Give the answer, once. `by`: who pressed, where that is known."""
        assert self.inbox is not None
        word = self._word(token) if by else self._linked(token)
        facts = self._still(word)
        who = by or f"link {word.notifier}"
        if (behalf := current()) is not None:
            behalf.actor = who
        used = e.AnswerLinkUsed(word.verb, who, word.notice)
        key = f"answer-link:{word.session}:{word.asked}"
        if not await self.flow.append(Event(used, self.flow.clock(), "person", key, facts.project, facts.id)):
            raise Conflict("this was answered already", f"see what it does now: ao status {facts.id}")
        self._still(word)
        kind, _, reference = word.asked.partition(" ")
        named = {"offer": reference} if kind == "offer" else {"request": reference}
        await self.inbox.answer(facts.id, decision=word.verb, **named, key=key)
        return {"session": facts.id, "verb": word.verb, "by": who}

    def _linked(self, token: str) -> Word:
        """What a link says; what was sent as a button is none."""
        word = self._word(token)
        if word.pressed:
            raise Denied("this is no link, but a button", f"press it, or answer by: ao answer {word.session}")
        return word

    def _still(self, word: Word) -> SessionFacts:
        """The session, if it asks the very thing that the link was made for."""
        facts = self.flow.sessions.get(word.session)
        if facts is None:
            raise NotFound(f"there is no session {word.session} any more", "see what there is: ao status")
        kind, _, reference = word.asked.partition(" ")
        still = (
            any(one.id == reference for one in facts.offers)
            if kind == "offer"
            else self.asked(facts, _PERMISSION[0]) == word.asked
        )
        if not still:
            raise Conflict(f"{facts.id} does not ask this any more", f"see what it does now: ao status {facts.id}")
        if word.verb == "allow" and not is_whole(self._request(facts, word.asked)):
            raise Conflict(f"what {facts.id} asks is too long to be shown here", _elsewhere(facts))
        return facts

    # -- signing -----------------------------------------------------------------------------------------------------------

    def _token(self, word: Word) -> str:
        said: Sequence[Any] = (
            *(word.session, word.asked, word.verb, word.notifier, word.notice, int(word.until)),
            *([1] if word.pressed else []),
        )
        body = base64.urlsafe_b64encode(json.dumps(said, separators=(",", ":")).encode()).decode().rstrip("=")
        return f"{PREFIX}{body}.{self.tokens.seal(body)}"

    def _word(self, token: str) -> Word:
        body, _, seal = token.removeprefix(PREFIX).partition(".")
        good = token.startswith(PREFIX) and token.isascii() and len(token) < 2000
        if not good or not hmac.compare_digest(self.tokens.seal(body).encode(), seal.encode()):
            raise Denied("this link was not made here, or is not whole", "open it from the notification itself")
        try:
            session, asked, verb, notifier, notice, until, *pressed = json.loads(
                base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            )
        except (ValueError, binascii.Error) as error:
            raise Denied(
                f"this link cannot be read: {one_line(str(error), 80)}", "open it from the notification itself"
            ) from None
        word = Word(session, asked, verb, notifier, notice, float(until), bool(pressed))
        if self.flow.clock() > word.until:
            raise Denied("this link is too old", f"answer in the dashboard, or: ao answer {word.session}")
        return word


def _elsewhere(facts: SessionFacts) -> str:
    """How a request is allowed that cannot be shown whole."""
    return f"look at it in its terminal, then: ao answer {facts.id} --allow --request {request_of(facts, 'permission', '')}"
