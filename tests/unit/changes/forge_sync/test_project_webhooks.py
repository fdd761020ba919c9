"""Webhooks of projects: one counts only for the projects whose own secret signed it."""

from __future__ import annotations

import hashlib
import hmac
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.changes.forge_sync import webhooks as hooks
from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.webhooks import RejectedWebhook, Webhooks
from agent_orchestrator.protocols.forge import Hint

pytestmark = pytest.mark.anyio
SENDERS = ("github", "gitlab", "linear", "jira")
PAYLOADS: dict[str, dict[str, Any]] = {
    "github": {"repository": {"full_name": "acme/b"}, "issue": {"number": 7}},
    "gitlab": {"project": {"path_with_namespace": "acme/b"}, "object_kind": "issue", "object_attributes": {"iid": 7}},
    "linear": {"type": "Issue", "data": {"identifier": "B-7"}, "webhookTimestamp": 1_000_000},
    "jira": {"webhookEvent": "jira:issue_updated", "issue": {"key": "B-7"}, "timestamp": 1_000_000},
}
"""The payload of each sender about issue 7 of the second project."""


class World:
    """Projects with their webhook settings, and the hints that were passed on."""

    def __init__(self, sender: str, environ: dict[str, str] | None = None, **hooks: dict[str, str]) -> None:
        self.sender, self.hinted_projects = sender, dict[str, set[str]]()
        self.hinted: list[Hint] = []
        projects = [self._project(name, hook) for name, hook in hooks.items()]
        config = SimpleNamespace(projects=lambda: projects, environ=environ or {})
        repositories = ForgeConnections(cast("Any", SimpleNamespace(config=config)), cast("Any", None))
        sides = (SimpleNamespace(handle_hint=self._watched), SimpleNamespace(handle_hint=self._tracked))
        self.webhooks = Webhooks(*cast("Any", (SimpleNamespace(clock=lambda: 1000.0), repositories, *sides)))

    def _project(self, name: str, hook: dict[str, str]) -> SimpleNamespace:
        part, none = (SimpleNamespace(plugin=plugin, options={"webhook": hook}) for plugin in (self.sender, "local"))
        at_forge = self.sender in ("github", "gitlab")
        return SimpleNamespace(id=name, repo=None, scm=part if at_forge else none, tracker=none if at_forge else part)

    def _watched(self, _name: str, hint: Hint, projects: frozenset[str]) -> None:
        self.hinted.append(hint)
        self.hinted_projects["watch"] = set(projects)

    def _tracked(self, _name: str, _hint: Hint, projects: frozenset[str]) -> None:
        self.hinted_projects["tracking"] = set(projects)

    async def send(self, secret: bytes, number: str = "1", **payload: Any) -> bool:
        body = json.dumps(payload or PAYLOADS[self.sender]).encode()
        digest = hmac.new(secret, body, hashlib.sha256).hexdigest()
        headers = {
            "github": {
                "x-github-event": "issues",
                "x-github-delivery": number,
                "x-hub-signature-256": f"sha256={digest}",
            },
            "gitlab": {
                "x-gitlab-event": "Issue Hook",
                "x-gitlab-token": secret.decode("latin-1"),
                "idempotency-key": number,
            },
            "linear": {"linear-event": "Issue", "linear-delivery": number, "linear-signature": digest},
            "jira": {"x-atlassian-webhook-identifier": number, "x-hub-signature": f"sha256={digest}"},
        }
        self.hinted_projects.clear()
        return await self.webhooks.receive(self.sender, headers[self.sender], body)


@pytest.mark.parametrize("sender", SENDERS)
async def test_a_projects_secret_signs_for_that_project_only(sender: str) -> None:
    world = World(sender, a={"secret": "of a"}, b={"secret": "of b"}, c={})
    assert await world.send(b"of a")
    assert world.hinted_projects == {"watch": {"a"}, "tracking": {"a"}}, "whatever it names"
    assert await world.send(b"of b"), "the same event by the other's own hook"
    assert world.hinted_projects == {"watch": {"b"}, "tracking": {"b"}}
    assert not await world.send(b"of b"), "it came again"


@pytest.mark.parametrize("sender", SENDERS)
async def test_a_shared_secret_counts_for_all_its_projects(sender: str) -> None:
    variable = {"secretEnvVar": "HOOKS"}
    world = World(sender, {"HOOKS": "shared"}, a=variable, b={"secret": "shared"}, c={"secret": "own"})
    assert await world.send(b"shared")
    assert world.hinted_projects == {"watch": {"a", "b"}, "tracking": {"a", "b"}}


@pytest.mark.parametrize("sender", SENDERS)
async def test_a_secret_may_have_any_bytes(sender: str) -> None:
    secret = b"s\xffcr\xc3\xa9t"
    world = World(sender, {"HOOKS": secret.decode(errors="surrogateescape")}, a={"secretEnvVar": "HOOKS"})
    assert await world.send(secret)
    with pytest.raises(RejectedWebhook):
        await world.send(b"another", "2")


@pytest.mark.parametrize("digits", [17, 4000, 5000])
async def test_an_issue_number_of_thousands_of_digits_is_ignored(digits: int) -> None:
    world = World("github", a={"secret": "of a"})
    number = "9" * digits
    body = {"repository": {"full_name": "acme/b"}, "issue": {"number": "HERE"}}
    text = json.dumps(body).replace('"HERE"', number).encode()
    digest = hmac.new(b"of a", text, hashlib.sha256).hexdigest()
    headers = {"x-github-event": "issues", "x-github-delivery": "1", "x-hub-signature-256": f"sha256={digest}"}
    if digits > 4300:  # Python itself reads no such number
        with pytest.raises(RejectedWebhook):
            await world.webhooks.receive("github", headers, text)
    else:
        assert await world.webhooks.receive("github", headers, text)
    assert world.hinted == []


async def test_the_last_deliveries_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "MIN_REMEMBERED_DELIVERIES", 3)
    world = World("github", a={"secret": "of a"})
    for number in range(20):
        assert await world.send(b"of a", str(number))
        for before in range(max(0, number - 2), number + 1):
            assert not await world.send(b"of a", str(before)), (number, before)
    assert await world.send(b"of a", "0"), "no longer"
    assert [await world.send(b"of a", "\ud800") for _ in range(2)] == [True, False], (
        "half a character is a name as well"
    )
