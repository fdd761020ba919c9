"""Verify Linear's webhooks and find the issue that is worth reading because of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared.webhook_signatures import is_signed, parse_payload, sent_at
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery

_ISSUE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-\d{1,9}")
_ISSUE_IN_URL = re.compile(r"/issue/([A-Za-z][A-Za-z0-9_]*-\d{1,9})(?:[/?#]|$)")


class LinearHooks:
    """The receiver of Linear's webhooks."""

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """Return the delivery if one of the secrets signed it, otherwise None. Raise `UsageError` if it is not Linear's.

        The time of sending is read from the body because only the body is signed.
        """
        lowercase_headers = {name.lower(): value for name, value in headers.items()}
        delivery_id = lowercase_headers.get("linear-delivery", "").strip()
        if not delivery_id:
            raise UsageError("this is no delivery of Linear's", "it has Linear-Delivery and Linear-Signature")
        if not is_signed(body, lowercase_headers.get("linear-signature", ""), secrets):
            return None
        payload = parse_payload(body)
        kind = lowercase_headers.get("linear-event", "").strip() or str(payload.get("type") or "")
        return WebhookDelivery(delivery_id[:200], kind[:100], payload, sent_at(payload, "webhookTimestamp"))

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """Return the issue that changed, or None. A change of an issue's labels is a change of the issue."""
        payload = delivery.payload if isinstance(delivery.payload, Mapping) else {}
        data = _dict(payload.get("data"))
        if delivery.kind == "Issue":
            return _hint_of(data.get("identifier")) or _hint_of(_issue_of_url(payload.get("url")))
        if delivery.kind in ("Comment", "Attachment", "Reaction", "IssueAttachment"):
            issue = _dict(data.get("issue")) or _dict(_dict(data.get("comment")).get("issue"))
            return (
                _hint_of(issue.get("identifier"))
                or _hint_of(_issue_of_url(payload.get("url")))
                or _hint_of(_issue_of_url(issue.get("url")))
            )
        return None


def _hint_of(identifier: Any) -> Hint | None:
    """Return the hint of an issue by its identifier, or None."""
    match = _ISSUE.fullmatch(_text(identifier))
    return Hint(match[1].upper(), issues=(match[0].upper(),)) if match else None


def _issue_of_url(url: Any) -> str:
    """Return the issue's identifier in a URL, or ""."""
    match = _ISSUE_IN_URL.search(_text(url))
    return match[1] if match else ""


def _dict(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    """Return the value if it is a text, otherwise ""."""
    return value if isinstance(value, str) else ""
