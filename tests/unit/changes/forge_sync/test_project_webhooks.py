"""A webhook counts for the projects whose own secret signed it, and for no other."""

from __future__ import annotations

import hashlib
import hmac
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent_orchestrator.changes.forge_sync import webhooks as hooks
from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.webhooks import Unsigned, Webhooks
from agent_orchestrator.protocols.forge import Hint

pytestmark = pytest.mark.anyio
SENDERS = ("github", "gitlab", "linear", "jira")
PAYLOADS: dict[str, dict[str, Any]] = {
    "github": {"repository": {"full_name": "acme/b"}, "issue": {"number": 7}},
    "gitlab": {"project": {"path_with_namespace": "acme/b"}, "object_kind": "issue", "object_attributes": {"iid": 7}},
    "linear": {"type": "Issue", "data": {"identifier": "B-7"}, "webhookTimestamp": 1_000_000},
    "jira": {"webhookEvent": "jira:issue_updated", "issue": {"key": "B-7"}, "timestamp": 1_000_000},
}
"""What each says of the second project's seventh issue."""


class World:
    """Projects, each with what it agreed upon, and what was hinted to whom."""

    def __init__(self, sender: str, environ: dict[str, str] | None = None, **hooks: dict[str, str]) -> None:
        self.sender, self.told = sender, dict[str, set[str]]()
        self.hinted: list[Hint] = []
        projects = [self._project(name, hook) for name, hook in hooks.items()]
        config = SimpleNamespace(projects=lambda: projects, environ=environ or {})
        repositories = ForgeConnections(cast("Any", SimpleNamespace(config=config)))
        sides = (SimpleNamespace(hint=self._watched), SimpleNamespace(hint=self._tracked))
        self.webhooks = Webhooks(*cast("Any", (SimpleNamespace(clock=lambda: 1000.0), repositories, *sides)))

    def _project(self, name: str, hook: dict[str, str]) -> SimpleNamespace:
        part, none = (SimpleNamespace(plugin=one, options={"webhook": hook}) for one in (self.sender, "local"))
        at_forge = self.sender in ("github", "gitlab")
        return SimpleNamespace(id=name, repo=None, scm=part if at_forge else none, tracker=none if at_forge else part)

    def _watched(self, _name: str, hint: Hint, projects: frozenset[str]) -> None:
        self.hinted.append(hint)
        self.told["watch"] = set(projects)

    def _tracked(self, _name: str, _hint: Hint, projects: frozenset[str]) -> None:
        self.told["tracking"] = set(projects)

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
        self.told.clear()
        return await self.webhooks.receive(self.sender, headers[self.sender], body)


@pytest.mark.parametrize("sender", SENDERS)
async def test_who_knows_the_secret_of_one_project_says_nothing_of_another(sender: str) -> None:
    world = World(sender, a={"secret": "of a"}, b={"secret": "of b"}, c={})
    assert await world.send(b"of a")
    assert world.told == {"watch": {"a"}, "tracking": {"a"}}, "whatever it names"
    assert await world.send(b"of b"), "the same event by the other's own hook"
    assert world.told == {"watch": {"b"}, "tracking": {"b"}}
    assert not await world.send(b"of b"), "it came again"


@pytest.mark.parametrize("sender", SENDERS)
async def test_a_secret_that_projects_share_counts_for_all_of_them(sender: str) -> None:
    variable = {"secretEnvVar": "HOOKS"}
    world = World(sender, {"HOOKS": "shared"}, a=variable, b={"secret": "shared"}, c={"secret": "own"})
    assert await world.send(b"shared")
    assert world.told == {"watch": {"a", "b"}, "tracking": {"a", "b"}}


@pytest.mark.parametrize("sender", SENDERS)
async def test_a_secret_of_any_bytes_is_one(sender: str) -> None:
    secret = b"s\xffcr\xc3\xa9t"
    world = World(sender, {"HOOKS": secret.decode(errors="surrogateescape")}, a={"secretEnvVar": "HOOKS"})
    assert await world.send(secret)
    with pytest.raises(Unsigned):
        await world.send(b"another", "2")


@pytest.mark.parametrize("digits", [17, 4000, 5000])
async def test_a_number_of_thousands_of_digits_has_nothing_read(digits: int) -> None:
    world = World("github", a={"secret": "of a"})
    number = "9" * digits
    body = {"repository": {"full_name": "acme/b"}, "issue": {"number": "HERE"}}
    text = json.dumps(body).replace('"HERE"', number).encode()
    digest = hmac.new(b"of a", text, hashlib.sha256).hexdigest()
    headers = {"x-github-event": "issues", "x-github-delivery": "1", "x-hub-signature-256": f"sha256={digest}"}
    if digits > 4300:  # Python itself reads no such number
        with pytest.raises(Unsigned):
            await world.webhooks.receive("github", headers, text)
    else:
        assert await world.webhooks.receive("github", headers, text)
    assert world.hinted == []


async def test_so_many_deliveries_are_known_when_they_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "REMEMBERED", 3)
    world = World("github", a={"secret": "of a"})
    for number in range(20):
        assert await world.send(b"of a", str(number))
        for before in range(max(0, number - 2), number + 1):
            assert not await world.send(b"of a", str(before)), (number, before)
    assert await world.send(b"of a", "0"), "no longer"
    assert [await world.send(b"of a", "\ud800") for _ in range(2)] == [True, False], (
        "half a character is a name as well"
    )
