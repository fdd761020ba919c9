"""Who sends a webhook need not be known: what it takes to judge one holds nobody else up."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.changes.forge_sync import webhooks as hooks
from agent_orchestrator.changes.forge_sync.webhooks import Unsigned, Webhooks
from agent_orchestrator.plugins.forges.github.webhooks import GitHubHooks

pytestmark = pytest.mark.anyio
SECRET = "one of many"


@pytest.fixture
def hinted() -> list[str]:
    return []


@pytest.fixture
def webhooks(hinted: list[str]) -> Webhooks:
    told = SimpleNamespace(hint=lambda name, hint, _projects: hinted.append(f"{name} {hint.repo}"))
    secrets = [*(f"secret {number}" for number in range(20)), SECRET]
    known = SimpleNamespace(secrets=lambda _name: dict.fromkeys(secrets, frozenset({"app"})))
    silent = SimpleNamespace(hint=lambda *_: None)
    return Webhooks(*cast("Any", (SimpleNamespace(clock=lambda: 0.0), known, told, silent)))


@pytest.fixture
def judged_in(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which deliveries were judged."""
    found: list[threading.Thread] = []
    genuine = GitHubHooks.genuine

    def noting(*args: Any) -> Any:
        found.append(threading.current_thread())
        return genuine(*args)

    monkeypatch.setattr(GitHubHooks, "genuine", noting)
    return found


def delivery(size: int, secret: str) -> tuple[dict[str, str], bytes]:
    """One of this size, signed by this secret."""
    body = json.dumps({"repository": {"full_name": "acme/app"}, "padding": "x" * size}).encode()
    signed = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"x-github-event": "label", "x-github-delivery": f"{size}", "x-hub-signature-256": f"sha256={signed}"}
    return headers, body


async def test_hooks_a_large_delivery_is_judged_beside_the_loop(
    webhooks: Webhooks, hinted: list[str], judged_in: list[threading.Thread]
) -> None:
    with pytest.raises(Unsigned, match="matches no secret"):
        await webhooks.receive("github", *delivery(hooks.VERIFY_IN_THREAD_FROM, "a guess"))
    assert await webhooks.receive("github", *delivery(hooks.VERIFY_IN_THREAD_FROM, SECRET))
    assert not await webhooks.receive("github", *delivery(hooks.VERIFY_IN_THREAD_FROM, SECRET)), "it came again"
    assert judged_in
    assert threading.current_thread() not in judged_in
    assert hinted == ["github acme/app"]


async def test_hooks_a_small_delivery_is_judged_at_once(
    webhooks: Webhooks, hinted: list[str], judged_in: list[threading.Thread]
) -> None:
    assert await webhooks.receive("github", *delivery(10, SECRET))
    assert set(judged_in) == {threading.current_thread()}
    assert hinted == ["github acme/app"]
