"""Linear's and Jira's webhooks: signatures and times; no request can crash the receiver."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.jira.webhooks import JiraHooks
from agent_orchestrator.plugins.forges.linear.webhooks import LinearHooks
from agent_orchestrator.protocols.forge import Hint, Hooks, WebhookDelivery

LINEAR: Hooks = LinearHooks()
JIRA: Hooks = JiraHooks()
BOTH = pytest.mark.parametrize("hooks", [LINEAR, JIRA], ids=["linear", "jira"])
FIELD = {id(LINEAR): "webhookTimestamp", id(JIRA): "timestamp"}


def signed(hooks: Hooks, body: bytes, secret: str = "s3cret") -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    if hooks is LINEAR:
        return {"Linear-Delivery": "d-1", "Linear-Event": "Issue", "Linear-Signature": digest}
    return {"X-Atlassian-Webhook-Identifier": "d-1", "X-Hub-Signature": f"sha256={digest}"}


def body(hooks: Hooks, **more: Any) -> bytes:
    return json.dumps({FIELD[id(hooks)]: 1_700_000_000_500, **more}).encode()


@BOTH
def test_a_delivery_signed_with_any_secret_is_accepted_with_its_time(hooks: Hooks) -> None:
    sent = body(hooks, webhookEvent="jira:issue_updated")
    delivery = hooks.verify(signed(hooks, sent), sent, ["old", "s3cret"])
    assert delivery is not None
    assert (delivery.id, delivery.at) == ("d-1", 1_700_000_000.5)
    assert delivery.kind == ("Issue" if hooks is LINEAR else "jira:issue_updated")


@BOTH
@pytest.mark.parametrize("secrets", [[], [""], ["other"]])
def test_other_deliveries_are_refused(hooks: Hooks, secrets: list[str]) -> None:
    sent = body(hooks)
    assert hooks.verify(signed(hooks, sent), sent, secrets) is None
    assert hooks.verify(signed(hooks, sent, secret=""), sent, [""]) is None
    assert hooks.verify(signed(hooks, sent), sent + b" ", ["s3cret"]) is None


@BOTH
@pytest.mark.parametrize("signature", ["", "sha256=", "sha1=abc", "é", "ffff"])
def test_a_signature_of_another_shape_is_none(hooks: Hooks, signature: str) -> None:
    sent = body(hooks)
    headers = signed(hooks, sent)
    headers["Linear-Signature" if hooks is LINEAR else "X-Hub-Signature"] = signature
    assert hooks.verify(headers, sent, ["s3cret"]) is None


@BOTH
def test_an_invalid_delivery_is_refused(hooks: Hooks) -> None:
    with pytest.raises(UsageError, match="no delivery of"):
        hooks.verify({}, b"{}", ["s3cret"])


@BOTH
@pytest.mark.parametrize("sent", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_signed_body_that_is_no_object_is_refused(hooks: Hooks, sent: bytes) -> None:
    with pytest.raises(UsageError, match="body is no JSON"):
        hooks.verify(signed(hooks, sent), sent, ["s3cret"])


@BOTH
@pytest.mark.parametrize("at", ["null", "true", '"1700000000500"', "NaN", "Infinity", "-1", "1" + "0" * 400])
def test_a_delivery_without_a_time_is_refused(hooks: Hooks, at: str) -> None:
    sent = f'{{"{FIELD[id(hooks)]}": {at}}}'.encode()
    with pytest.raises(UsageError, match="does not say when"):
        hooks.verify(signed(hooks, sent), sent, ["s3cret"])


@pytest.mark.parametrize(
    ("kind", "payload", "hint"),
    [
        ("Issue", {"data": {"identifier": "LIN-3"}}, Hint("LIN", issues=("LIN-3",))),
        ("Issue", {"data": {}, "url": "https://linear.app/acme/issue/LIN-3/x"}, Hint("LIN", issues=("LIN-3",))),
        ("Comment", {"data": {"issue": {"identifier": "A1-7"}}}, Hint("A1", issues=("A1-7",))),
        (
            "Comment",
            {"data": {}, "url": "https://linear.app/a/issue/LIN-3/x#comment-1"},
            Hint("LIN", issues=("LIN-3",)),
        ),
        ("Comment", {"data": {"projectUpdate": {}}}, None),
        ("Reaction", {"data": {"comment": {"issue": {"identifier": "LIN-3"}}}}, Hint("LIN", issues=("LIN-3",))),
        ("IssueLabel", {"data": {"name": "bug"}}, None),
        ("Project", {"data": {"identifier": "LIN-3"}}, None),
        ("Issue", {"data": {"identifier": "../../x-1"}}, None),
        ("Issue", {"data": []}, None),
    ],
)
def test_linears_hint_names_the_issue(kind: str, payload: dict[str, Any], hint: Hint | None) -> None:
    assert LINEAR.hint(WebhookDelivery("d", kind, payload)) == hint


@pytest.mark.parametrize(
    ("kind", "payload", "hint"),
    [
        ("jira:issue_created", {"issue": {"key": "APP-3"}}, Hint("APP", issues=("APP-3",))),
        ("jira:issue_updated", {"issue": {"key": "A_1-3"}}, Hint("A_1", issues=("A_1-3",))),
        ("jira:issue_deleted", {"issue": {"key": "APP-3"}}, Hint("APP", issues=("APP-3",))),
        ("comment_created", {"issue": {"key": "APP-3"}}, Hint("APP", issues=("APP-3",))),
        ("attachment_created", {"attachment": {}}, None),
        ("sprint_started", {"issue": {"key": "APP-3"}}, None),
        ("jira:issue_updated", {"issue": {"key": "../APP-3"}}, None),
        ("jira:issue_updated", {"issue": []}, None),
        ("jira:issue_updated", {}, None),
    ],
)
def test_jiras_hint_names_the_issue(kind: str, payload: dict[str, Any], hint: Hint | None) -> None:
    assert JIRA.hint(WebhookDelivery("d", kind, payload)) == hint


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "issue", "identifier", "key", "url", "comment", "team"]), inner)
    ),
    max_leaves=10,
)


@given(st.sampled_from(["Issue", "Comment", "Reaction", "jira:issue_updated", "comment_created"]), JSON)
def test_nothing_that_is_sent_makes_a_hint_crash(kind: str, payload: Any) -> None:
    for hooks in (LINEAR, JIRA):
        hooks.hint(WebhookDelivery("d", kind, payload))
