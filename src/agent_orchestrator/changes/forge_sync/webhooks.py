"""Webhooks: who is genuine is heard, once; what it says is but a hint of what to read."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import cast

from agent_orchestrator.changes.forge_sync.connections import Repositories
from agent_orchestrator.changes.forge_sync.issue_sync import Tracking
from agent_orchestrator.changes.forge_sync.pull_request_sync import ForgeWatch
from agent_orchestrator.core.engine import Flow
from agent_orchestrator.errors import AoError, NotFound, UsageError
from agent_orchestrator.protocols.forge import Hooks, WebhookDelivery

KINDS: Mapping[str, str] = {
    "github": "agent_orchestrator.plugins.forges.github.webhooks:GitHubHooks",
    "gitlab": "agent_orchestrator.plugins.forges.gitlab.webhooks:GitLabHooks",
    "linear": "agent_orchestrator.plugins.forges.linear.webhooks:LinearHooks",
    "jira": "agent_orchestrator.plugins.forges.jira.webhooks:JiraHooks",
}
"""Who may send webhooks, and what knows them."""

REMEMBERED = 10_000
"""Deliveries, at least, that are known when they come again."""
OLDEST = 300.0
"""Seconds after which a delivery that says when it was sent is not taken any more."""
LARGE = 1 << 18
"""Bytes from which on a delivery is judged beside the event loop: whoever sends it need not be known, and every secret is tried."""
_JUDGING = ThreadPoolExecutor(1, "webhooks")


class Unsigned(AoError):
    """Nobody whom we agreed upon a secret with sent this."""

    category = "denied"
    http_status = 401


class Webhooks:
    """Takes what forges and trackers send."""

    def __init__(self, flow: Flow, repositories: Repositories, watch: ForgeWatch, tracking: Tracking) -> None:
        self.flow = flow
        self.repositories = repositories
        self.watch = watch
        self.tracking = tracking
        self.last: dict[str, float] = {}
        """When each of them was last heard."""
        self.refused: dict[str, str] = {}
        """Why the last delivery of each was not taken, unless one was taken since."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """Whose webhooks were taken, came again, were refused."""
        self._heard: set[int] = set()
        self._before: set[int] = set()

    async def receive(self, name: str, headers: Mapping[str, str], body: bytes) -> bool:
        """Take a delivery for the projects whose own secret signed it; false: it was taken before. What it leads to is read later."""
        if name not in KINDS:
            raise NotFound(f"nobody called {name} sends webhooks", f"one of {', '.join(KINDS)}")
        secrets = self.repositories.secrets(name)
        hooks, judged = _hooks(name), (headers, body, secrets)
        if len(body) < LARGE or not secrets:
            delivery, secret = _genuine(hooks, *judged)
        else:
            loop = asyncio.get_running_loop()
            delivery, secret = await loop.run_in_executor(_JUDGING, _genuine, hooks, *judged)
        late = delivery and delivery.at is not None and abs(self.flow.clock() - delivery.at) > OLDEST
        if delivery is None or late:
            why = (
                "it is too old" if late else "its signature matches no secret" if secrets else "no secret is configured"
            )
            self.refused[name] = why
            self.counts[name, "refused"] += 1
            raise Unsigned(f"this {name} webhook is not taken: {why}", f"set webhook.secretEnvVar of {name}: ao doctor")
        self.last[name] = self.flow.clock()
        self.refused.pop(name, None)
        projects = secrets[secret]
        key = _short(name, delivery.id, *sorted(projects))  # one event may come by several hooks, under one name
        known = key in self._heard or key in self._before
        self.counts[name, "repeated" if known else "taken"] += 1
        if known:
            return False
        if len(self._heard) == REMEMBERED:
            self._before, self._heard = self._heard, set()
        self._heard.add(key)
        if hint := hooks.hint(delivery):
            self.watch.hint(name, hint, projects)
            self.tracking.hint(name, hint, projects)
        return True


def _short(*parts: str) -> int:
    """Stands for a text among thousands, in little room."""
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=8).digest())


def _genuine(
    hooks: Hooks, headers: Mapping[str, str], body: bytes, secrets: Iterable[str]
) -> tuple[WebhookDelivery | None, str]:
    """The delivery, and the secret that signed it."""
    try:
        for secret in secrets:
            if delivery := hooks.genuine(headers, body, [secret]):
                return delivery, secret
    except UsageError:
        pass
    return None, ""


@cache
def _hooks(name: str) -> Hooks:
    module, _, member = KINDS[name].partition(":")
    return cast("Hooks", getattr(importlib.import_module(module), member)())
