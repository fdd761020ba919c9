"""GitHub's webhooks: their receivers and signatures."""

from __future__ import annotations

import hashlib
import hmac
import json
import urllib.parse
import uuid

from agent_orchestrator.testing.forge.hooks import WebhookQueue
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.state import GitHubDelivery, GitHubState, GitHubWebhook, Repo


class GitHubWebhookQueue(WebhookQueue[GitHubDelivery]):
    def __init__(self, state: GitHubState) -> None:
        super().__init__(state.now, delivery_request)
        self._state = state
        self.keep_payloads: list[tuple[str, Json]] = []
        """Every event, with or without a hook for it."""

    def send_event(self, repo: Repo, event: str, payload: Json) -> None:
        self.keep_payloads.append((event, payload))
        for hook in repo.hooks.values():
            if hook.active and ("*" in hook.events or event in hook.events):
                self.deliver(hook, event, payload)

    def deliver(
        self, hook: GitHubWebhook, event: str, payload: Json, guid: str | None = None, again: bool = False
    ) -> GitHubDelivery:
        number = self._state.record_fields("HD")["id"]
        delivery = GitHubDelivery(number, guid or str(uuid.uuid4()), hook, event, payload, redelivery=again)
        hook.deliveries.append(delivery)
        self.send(delivery)
        return delivery

    def redeliver(self, delivery: GitHubDelivery) -> GitHubDelivery:
        """Send a delivery again with the same id and body, as the forge's button does."""
        return self.deliver(delivery.hook, delivery.event, delivery.payload, delivery.guid, again=True)


def signature(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def delivery_request(delivery: GitHubDelivery) -> tuple[bytes, dict[str, str]]:
    """Return the body and headers of a delivery."""
    hook, body = delivery.hook, json.dumps(delivery.payload).encode()
    kind = "application/json"
    if hook.content_type == "form":
        body, kind = urllib.parse.urlencode({"payload": body.decode()}).encode(), "application/x-www-form-urlencoded"
    headers = {
        "Content-Type": kind, "User-Agent": "GitHub-Hookshot/044aadd", "X-GitHub-Delivery": delivery.guid,
        "X-GitHub-Event": delivery.event, "X-GitHub-Hook-ID": str(hook.id),
        "X-GitHub-Hook-Installation-Target-ID": str(hook.repo.id), "X-GitHub-Hook-Installation-Target-Type": "repository",
    }  # fmt: skip
    if hook.secret:
        headers["X-Hub-Signature-256"] = signature(hook.secret, body)
        headers["X-Hub-Signature"] = "sha1=" + hmac.new(hook.secret.encode(), body, hashlib.sha1).hexdigest()
    return body, headers
