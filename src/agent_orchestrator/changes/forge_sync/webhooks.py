"""Receive webhooks: verify the signature, drop repeated deliveries, and schedule a read of what changed."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import cast

from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.issue_sync import IssueSync
from agent_orchestrator.changes.forge_sync.pull_request_sync import PullRequestSync
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.errors import AoError, NotFound, UsageError
from agent_orchestrator.protocols.forge import Hooks, WebhookDelivery

HOOKS_BY_SENDER: Mapping[str, str] = {
    "github": "agent_orchestrator.plugins.forges.github.webhooks:GitHubHooks",
    "gitlab": "agent_orchestrator.plugins.forges.gitlab.webhooks:GitLabHooks",
    "linear": "agent_orchestrator.plugins.forges.linear.webhooks:LinearHooks",
    "jira": "agent_orchestrator.plugins.forges.jira.webhooks:JiraHooks",
}
"""The senders of webhooks, each with the class that verifies and parses them."""

MIN_REMEMBERED_DELIVERIES = 10_000
"""Minimum number of latest deliveries that are recognized when they come again."""
MAX_DELIVERY_AGE = 300.0
"""Maximum age in seconds of a delivery that says when it was sent."""
VERIFY_IN_THREAD_FROM = 1 << 18
"""Size in bytes from which on a delivery is verified in a thread: the sender need not be known, and every secret is tried."""
_VERIFIERS = ThreadPoolExecutor(1, "webhooks")


class RejectedWebhook(AoError):
    """The delivery is not signed with a shared secret."""

    category = "denied"
    http_status = 401


class Webhooks:
    """Receives what forges and trackers send."""

    def __init__(self, flow: Flow, repositories: ForgeConnections, watch: PullRequestSync, tracking: IssueSync) -> None:
        self.flow = flow
        self.connections = repositories
        self.pull_request_sync = watch
        self.issue_sync = tracking
        self.last_received_at: dict[str, float] = {}
        """When each sender's last valid delivery came."""
        self.rejection_reasons: dict[str, str] = {}
        """Why each sender's last delivery was refused; removed by a valid one."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """Number of deliveries by sender and result: taken, repeated, refused."""
        self._recent_keys: set[int] = set()
        self._older_keys: set[int] = set()

    async def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Accept a delivery for the projects whose secret signed it, and schedule a read of what it is about.

        Return False if it was accepted before. Raises `NotFound` for an unknown sender and `RejectedWebhook` for a wrong
        signature or an old delivery.
        """
        if name not in HOOKS_BY_SENDER:
            raise NotFound(f"nobody called {name} sends webhooks", f"one of {', '.join(HOOKS_BY_SENDER)}")
        secrets = self.connections.webhook_secrets(name)
        hooks, signed_request = _load_hooks(name), (headers, body, secrets)
        if len(body) < VERIFY_IN_THREAD_FROM or not secrets:
            delivery, secret = _verify(hooks, *signed_request)
        else:
            loop = asyncio.get_running_loop()
            delivery, secret = await loop.run_in_executor(_VERIFIERS, _verify, hooks, *signed_request)
        is_late = delivery and delivery.at is not None and abs(self.flow.clock() - delivery.at) > MAX_DELIVERY_AGE
        if delivery is None or is_late:
            reason = (
                "it is too old"
                if is_late
                else "its signature matches no secret"
                if secrets
                else "no secret is configured"
            )
            self.rejection_reasons[name] = reason
            self.counts[name, "refused"] += 1
            raise RejectedWebhook(
                f"this {name} webhook is not taken: {reason}", f"set webhook.secretEnvVar of {name}: ao doctor"
            )
        self.last_received_at[name] = self.flow.clock()
        self.rejection_reasons.pop(name, None)
        projects = secrets[secret]
        key = _key_hash(name, delivery.id, *sorted(projects))  # several hooks may deliver one event, with the same id
        is_repeated = key in self._recent_keys or key in self._older_keys
        self.counts[name, "repeated" if is_repeated else "taken"] += 1
        if is_repeated:
            return False
        if len(self._recent_keys) == MIN_REMEMBERED_DELIVERIES:
            self._older_keys, self._recent_keys = self._recent_keys, set()
        self._recent_keys.add(key)
        if hint := hooks.hint(delivery):
            self.pull_request_sync.handle_hint(name, hint, projects)
            self.issue_sync.handle_hint(name, hint, projects)
        return True


def _key_hash(*parts: str) -> int:
    """Return a hash of the texts as a number, which needs little memory."""
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=8).digest())


def _verify(
    hooks: Hooks, headers: Mapping[str, str], body: bytes, secrets: Iterable[str]
) -> tuple[WebhookDelivery | None, str]:
    """Return the verified delivery with the secret that signed it, or (None, "")."""
    try:
        for secret in secrets:
            if delivery := hooks.verify(headers, body, [secret]):
                return delivery, secret
    except UsageError:
        pass
    return None, ""


@cache
def _load_hooks(name: str) -> Hooks:
    """Return the object that verifies and parses a sender's webhooks."""
    module, _, member = HOOKS_BY_SENDER[name].partition(":")
    return cast("Hooks", getattr(importlib.import_module(module), member)())
