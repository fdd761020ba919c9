"""Answers from outside the dashboard: links and buttons that allow or deny one request, once, until they expire.

A link contains a token that only this daemon can have signed. It names the exact request that was shown: a permission
requested at that moment for that command, an action offered by that rule. Once the request is answered or withdrawn,
the token is worthless. Opening the address changes nothing; only a POST to it does. The token of a button that only
some people may press is readable by all who see the button, so it does not work as a link.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agent_orchestrator.base.api_tokens import Tokens
from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import current_actor
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.notices import Notice
from agent_orchestrator.core.status import PERMISSION_REASON_PREFIX
from agent_orchestrator.errors import Conflict, Denied, NotFound
from agent_orchestrator.protocols import NotificationAction
from agent_orchestrator.protocols.text import one_line
from agent_orchestrator.sessions.permissions.request_ids import request_id
from agent_orchestrator.sessions.permissions.rules import is_complete

if TYPE_CHECKING:
    from agent_orchestrator.fleet.notifications.targets import NotifierTarget
    from agent_orchestrator.sessions.messages import Inbox

VALID_SECONDS = 12 * 3600.0
"""Seconds for which a link is valid."""
TOKEN_PREFIX = "aoa_"
_PERMISSION_TRIGGERS = ("agent-blocked", "agent-needs-input")
_LABELS = {"merge": "Merge", "raise-budget": "Let it use as much again"}


@dataclass(frozen=True, slots=True)
class LinkContent:
    """The content of a link's token."""

    session: str
    reference: str
    """The request that it answers."""
    verb: str
    """`allow` or `deny`."""
    notifier: str
    notice: str
    until: float
    is_button: bool
    """Whether it is valid only as a button, pressed by a person who may press it."""


@dataclass(frozen=True, slots=True)
class LinkPreview:
    """A request, for the person who is to confirm the answer."""

    link: LinkContent
    title: str
    text: str
    note: str = ""
    """What else the person should know."""


class AnswerLinks:
    """Creates links and carries out the answers that they contain."""

    def __init__(self, flow: Flow, tokens: Tokens, inbox: Inbox) -> None:
        self.flow = flow
        self.tokens = tokens
        self.inbox = inbox

    # -- requests ------------------------------------------------------------------------------------------------------

    def request_reference(self, facts: SessionFacts, trigger: str) -> str:
        """Return the reference of the offer or permission request that a notification of this trigger is about, or ""
        if none can be answered by yes or no.
        """
        offer = next((candidate for candidate in facts.offers if candidate.trigger == trigger), None)
        if offer is not None:
            return f"offer {offer.id}"
        permission = facts.permission
        if permission is None or trigger not in _PERMISSION_TRIGGERS or facts.activity.state != "blocked":
            return ""
        return f"permission {request_id(facts, 'permission', '')}"

    def with_actions(self, notice: Notice, target: NotifierTarget, url: str) -> tuple[Notice, list[NotificationAction]]:
        """Return the notice with the full request in its text, and the actions by which its reader may answer."""
        facts = self.flow.sessions.get(notice.session)
        reference = self.request_reference(facts, notice.trigger) if facts else ""
        if facts is None or not reference or not target.settings.actions or not url:
            return notice, []
        request_text = self._request_text(facts, reference)
        is_full = notice.message in (
            request_text,
            f"{PERMISSION_REASON_PREFIX}{request_text}",
        )  # a part of it may be another request's
        message = notice.message if is_full else f"{notice.message}\n{request_text}".strip()
        allow_label = "Allow"
        if reference.startswith("offer "):
            action = next(offer.action for offer in facts.offers if f"offer {offer.id}" == reference)
            allow_label = _LABELS.get(action, f"Do it: {action}")
        until = self.flow.clock() + VALID_SECONDS
        actions = []
        verbs = {"allow": allow_label, "deny": "Deny"} if is_complete(request_text) else {"deny": "Deny"}
        for verb, label in verbs.items():
            token = self._create_token(
                LinkContent(facts.id, reference, verb, target.name, notice.id, until, target.uses_buttons)
            )
            name = "merge" if label == "Merge" else verb
            actions.append(NotificationAction(name, label, f"{url}/answer/{token}", token))
        return replace(notice, message=message), actions

    def _request_text(self, facts: SessionFacts, reference: str) -> str:
        """Return the full text of a request, or "" if it is no longer there."""
        if reference.startswith("permission ") and facts.permission is not None:
            return f"{facts.permission.tool}: {facts.permission.command}".rstrip(": ")
        offer = next((candidate for candidate in facts.offers if f"offer {candidate.id}" == reference), None)
        return f"{offer.trigger}: {offer.action}" if offer else ""

    # -- answering ---------------------------------------------------------------------------------------------------------

    def preview(self, token: str) -> LinkPreview:
        """Return what a link would answer. Raises Denied or Conflict if it is not valid."""
        link = self._read_link(token)
        facts = self._require_pending(link)
        verb = "Allow" if link.verb == "allow" else "Deny"
        request_text = self._request_text(facts, link.reference)
        note = "" if is_complete(request_text) else f"This is not all of it: {_terminal_remedy(facts)}"
        return LinkPreview(link, f"{verb}: {facts.id}", request_text, note)

    def origin_of(self, token: str) -> tuple[str, str]:
        """Return the project and the notifier that a token was sent for."""
        link = self._read_token(token)
        return self._require_pending(link).project, link.notifier

    async def answer(self, token: str, by: str = "") -> dict[str, Any]:
        """Give the answer, once; `by` is the person who pressed, if known. Raises Denied or Conflict if the token is not valid."""
        link = self._read_token(token) if by else self._read_link(token)
        facts = self._require_pending(link)
        answerer = by or f"link {link.notifier}"
        if (actor := current_actor()) is not None:
            actor.actor = answerer
        link_used = e.AnswerLinkUsed(link.verb, answerer, link.notice)
        key = f"answer-link:{link.session}:{link.reference}"
        if not await self.flow.append(Event(link_used, self.flow.clock(), "person", key, facts.project, facts.id)):
            raise Conflict("this was answered already", f"see what it does now: ao status {facts.id}")
        self._require_pending(link)
        kind, _, reference = link.reference.partition(" ")
        target = {"offer": reference} if kind == "offer" else {"request": reference}
        await self.inbox.answer(facts.id, decision=link.verb, **target, key=key)
        return {"session": facts.id, "verb": link.verb, "by": answerer}

    def _read_link(self, token: str) -> LinkContent:
        """Return what a link says. Raises Denied for a token that was sent as a button."""
        link = self._read_token(token)
        if link.is_button:
            raise Denied("this is no link, but a button", f"press it, or answer by: ao answer {link.session}")
        return link

    def _require_pending(self, link: LinkContent) -> SessionFacts:
        """Return the session if it still waits for the request that the token names. Raises NotFound or Conflict otherwise."""
        facts = self.flow.sessions.get(link.session)
        if facts is None:
            raise NotFound(f"there is no session {link.session} any more", "see what there is: ao status")
        kind, _, reference = link.reference.partition(" ")
        is_pending = (
            any(offer.id == reference for offer in facts.offers)
            if kind == "offer"
            else self.request_reference(facts, _PERMISSION_TRIGGERS[0]) == link.reference
        )
        if not is_pending:
            raise Conflict(f"{facts.id} does not ask this any more", f"see what it does now: ao status {facts.id}")
        if link.verb == "allow" and not is_complete(self._request_text(facts, link.reference)):
            raise Conflict(f"what {facts.id} asks is too long to be shown here", _terminal_remedy(facts))
        return facts

    # -- signing -----------------------------------------------------------------------------------------------------------

    def _create_token(self, link: LinkContent) -> str:
        fields: Sequence[Any] = (
            *(link.session, link.reference, link.verb, link.notifier, link.notice, int(link.until)),
            *([1] if link.is_button else []),
        )
        body = base64.urlsafe_b64encode(json.dumps(fields, separators=(",", ":")).encode()).decode().rstrip("=")
        return f"{TOKEN_PREFIX}{body}.{self.tokens.seal(body)}"

    def _read_token(self, token: str) -> LinkContent:
        body, _, seal = token.removeprefix(TOKEN_PREFIX).partition(".")
        is_well_formed = token.startswith(TOKEN_PREFIX) and token.isascii() and len(token) < 2000
        if not is_well_formed or not hmac.compare_digest(self.tokens.seal(body).encode(), seal.encode()):
            raise Denied("this link was not made here, or is not whole", "open it from the notification itself")
        try:
            session, reference, verb, notifier, notice, until, *pressed = json.loads(
                base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
            )
        except (ValueError, binascii.Error) as error:
            raise Denied(
                f"this link cannot be read: {one_line(str(error), 80)}", "open it from the notification itself"
            ) from None
        link = LinkContent(session, reference, verb, notifier, notice, float(until), bool(pressed))
        if self.flow.clock() > link.until:
            raise Denied("this link is too old", f"answer in the dashboard, or: ao answer {link.session}")
        return link


def _terminal_remedy(facts: SessionFacts) -> str:
    """Return how to allow a request that cannot be shown in full."""
    return f"look at it in its terminal, then: ao answer {facts.id} --allow --request {request_id(facts, 'permission', '')}"
