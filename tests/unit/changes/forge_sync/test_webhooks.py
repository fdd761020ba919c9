"""Verification of webhooks from unknown senders, which does not block the event loop."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.changes.forge_sync import webhooks as hooks
from agent_orchestrator.changes.forge_sync.webhooks import RejectedWebhook, Webhooks
from agent_orchestrator.plugins.forges.github.webhooks import GitHubHooks

pytestmark = pytest.mark.anyio
SECRET = "one of many"


@pytest.fixture
def hinted() -> list[str]:
    return []


@pytest.fixture
def webhooks(hinted: list[str]) -> Webhooks:
    pull_request_sync = SimpleNamespace(handle_hint=lambda name, hint, _projects: hinted.append(f"{name} {hint.repo}"))
    secrets = [*(f"secret {number}" for number in range(20)), SECRET]
    connections = SimpleNamespace(webhook_secrets=lambda _name: dict.fromkeys(secrets, frozenset({"app"})))
    issue_sync = SimpleNamespace(handle_hint=lambda *_: None)
    return Webhooks(*cast("Any", (SimpleNamespace(clock=lambda: 0.0), connections, pull_request_sync, issue_sync)))


@pytest.fixture
def verification_threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """Return the threads in which deliveries were verified."""
    threads: list[threading.Thread] = []
    original = GitHubHooks.verify

    def recording_verification(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return original(*args)

    monkeypatch.setattr(GitHubHooks, "verify", recording_verification)
    return threads


def delivery(size: int, secret: str) -> tuple[dict[str, str], bytes]:
    """Return a delivery of this size, signed with this secret."""
    body = json.dumps({"repository": {"full_name": "acme/app"}, "padding": "x" * size}).encode()
    signed = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"x-github-event": "label", "x-github-delivery": f"{size}", "x-hub-signature-256": f"sha256={signed}"}
    return headers, body


async def test_a_large_webhook_is_verified_in_a_thread(
    webhooks: Webhooks, hinted: list[str], verification_threads: list[threading.Thread]
) -> None:
    with pytest.raises(RejectedWebhook, match="matches no secret"):
        await webhooks.receive("github", *delivery(hooks.VERIFY_IN_THREAD_FROM, "a guess"))
    assert await webhooks.receive("github", *delivery(hooks.VERIFY_IN_THREAD_FROM, SECRET))
    assert not await webhooks.receive("github", *delivery(hooks.VERIFY_IN_THREAD_FROM, SECRET)), "it came again"
    assert verification_threads
    assert threading.current_thread() not in verification_threads
    assert hinted == ["github acme/app"]


async def test_a_small_webhook_is_verified_at_once(
    webhooks: Webhooks, hinted: list[str], verification_threads: list[threading.Thread]
) -> None:
    assert await webhooks.receive("github", *delivery(10, SECRET))
    assert set(verification_threads) == {threading.current_thread()}
    assert hinted == ["github acme/app"]
