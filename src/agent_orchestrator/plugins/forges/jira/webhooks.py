"""Verify Jira's webhooks and find the issue that is worth reading because of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.shared.webhook_signatures import is_signed, parse_payload, sent_at
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery

_ISSUE_KEY = re.compile(r"([A-Z][A-Z0-9_]*)-\d{1,9}")
_ISSUE_EVENTS = ("jira:issue_", "comment_", "attachment_", "issue_property_", "worklog_")
"""How the names of events about an issue begin."""


class JiraHooks:
    """The receiver of Jira's webhooks, from the cloud and from servers."""

    def verify(self, headers: Mapping[str, str], body: bytes, secrets: Sequence[str]) -> WebhookDelivery | None:
        """Return the delivery if one of the secrets signed it, otherwise None. Raise `UsageError` if it is not Jira's."""
        lowercase_headers = {name.lower(): value for name, value in headers.items()}
        delivery_id = lowercase_headers.get("x-atlassian-webhook-identifier", "").strip()
        if not delivery_id:
            remedy = "it has X-Atlassian-Webhook-Identifier and, with a secret, X-Hub-Signature"
            raise UsageError("this is no delivery of Jira's", remedy)
        if not is_signed(body, lowercase_headers.get("x-hub-signature", ""), secrets, "sha256="):
            return None
        payload = parse_payload(body)
        event = str(payload.get("webhookEvent") or "")
        return WebhookDelivery(delivery_id[:200], event[:100], payload, sent_at(payload, "timestamp"))

    def hint(self, delivery: WebhookDelivery) -> Hint | None:
        """Return the issue that changed, or None."""
        if not delivery.kind.startswith(_ISSUE_EVENTS):
            return None
        payload = delivery.payload if isinstance(delivery.payload, Mapping) else {}
        issue = payload.get("issue")
        key = issue.get("key") if isinstance(issue, Mapping) else None
        match = _ISSUE_KEY.fullmatch(key) if isinstance(key, str) else None
        return Hint(match[1], issues=(match[0],)) if match else None
