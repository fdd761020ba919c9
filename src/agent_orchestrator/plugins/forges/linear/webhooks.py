"""What Linear tells by webhook: is it genuine, and which issue is worth reading because of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared.webhook_signatures import is_signed, payload_of, sent_at
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery

_ISSUE = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-\d{1,9}")
_IN_ADDRESS = re.compile(r"/issue/([A-Za-z][A-Za-z0-9_]*-\d{1,9})(?:[/?#]|$)")


class LinearHooks:
    """Linear's webhooks."""

    def genuine(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """The delivery, if one of the secrets signed it. Its time counts only where it is signed too: in the body."""
        told = {name.lower(): value for name, value in headers.items()}
        number = told.get("linear-delivery", "").strip()
        if not number:
            raise UsageError("this is no delivery of Linear's", "it has Linear-Delivery and Linear-Signature")
        if not is_signed(body, told.get("linear-signature", ""), secrets):
            return None
        payload = payload_of(body)
        kind = told.get("linear-event", "").strip() or str(payload.get("type") or "")
        return WebhookDelivery(number[:200], kind[:100], payload, sent_at(payload, "webhookTimestamp"))

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """The issue that changed; its labels are a change of the issue."""
        payload = delivery.payload if isinstance(delivery.payload, Mapping) else {}
        data = _dict(payload.get("data"))
        if delivery.kind == "Issue":
            return _of(data.get("identifier")) or _of(_from(payload.get("url")))
        if delivery.kind in ("Comment", "Attachment", "Reaction", "IssueAttachment"):
            inner = _dict(data.get("issue")) or _dict(_dict(data.get("comment")).get("issue"))
            return _of(inner.get("identifier")) or _of(_from(payload.get("url"))) or _of(_from(inner.get("url")))
        return None


def _of(name: Any) -> Hint | None:
    found = _ISSUE.fullmatch(_text(name))
    return Hint(found[1].upper(), issues=(found[0].upper(),)) if found else None


def _from(url: Any) -> str:
    found = _IN_ADDRESS.search(_text(url))
    return found[1] if found else ""


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
