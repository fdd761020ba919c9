"""What Jira tells by webhook: is it genuine, and which issue is worth reading because of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared.webhook_signatures import is_signed, payload_of, sent_at
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery

_ISSUE = re.compile(r"([A-Z][A-Z0-9_]*)-\d{1,9}")
_OF_ISSUE = ("jira:issue_", "comment_", "attachment_", "issue_property_", "worklog_")


class JiraHooks:
    """Jira's webhooks, of its cloud and of servers."""

    def genuine(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """The delivery, if one of the secrets signed it."""
        told = {name.lower(): value for name, value in headers.items()}
        number = told.get("x-atlassian-webhook-identifier", "").strip()
        if not number:
            remedy = "it has X-Atlassian-Webhook-Identifier and, with a secret, X-Hub-Signature"
            raise UsageError("this is no delivery of Jira's", remedy)
        if not is_signed(body, told.get("x-hub-signature", ""), secrets, "sha256="):
            return None
        payload = payload_of(body)
        event = str(payload.get("webhookEvent") or "")
        return WebhookDelivery(number[:200], event[:100], payload, sent_at(payload, "timestamp"))

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """The issue that changed."""
        if not delivery.kind.startswith(_OF_ISSUE):
            return None
        payload = delivery.payload if isinstance(delivery.payload, Mapping) else {}
        issue = payload.get("issue")
        key = issue.get("key") if isinstance(issue, Mapping) else None
        found = _ISSUE.fullmatch(key) if isinstance(key, str) else None
        return Hint(found[1], issues=(found[0],)) if found else None
