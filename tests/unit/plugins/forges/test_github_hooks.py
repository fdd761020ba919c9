"""GitHub's webhooks: signatures and hints; no request can crash the receiver."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.github.webhooks import GitHubHooks
from agent_orchestrator.protocols.forge import Hint, Hooks, WebhookDelivery

HOOKS: Hooks = GitHubHooks()
SHA = "a" * 40
REPO = {"full_name": "o/n", "id": 7}


def signed(body: bytes, secret: str = "s3cret", **more: str) -> dict[str, str]:
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-GitHub-Event": "push", "X-GitHub-Delivery": "d-1", "X-Hub-Signature-256": f"sha256={digest}", **more}


def hint(kind: str, **payload: Any) -> Hint | None:
    return HOOKS.hint(WebhookDelivery("d", kind, {"repository": REPO, **payload}))


def test_a_delivery_signed_with_any_secret_is_accepted() -> None:
    body = b'{"ref": "refs/heads/x"}'
    delivery = HOOKS.verify(signed(body), body, ["old", "s3cret"])
    assert delivery == WebhookDelivery("d-1", "push", {"ref": "refs/heads/x"})


def test_a_forms_body_is_understood_too() -> None:
    body = urlencode({"payload": json.dumps({"a": 1})}).encode()
    headers = signed(body, **{"Content-Type": "application/x-www-form-urlencoded"})
    delivery = HOOKS.verify(headers, body, ["s3cret"])
    assert delivery is not None and delivery.payload == {"a": 1}


@pytest.mark.parametrize("secrets", [[], [""], ["other"]])
def test_other_deliveries_are_refused(secrets: list[str]) -> None:
    body = b"{}"
    assert HOOKS.verify(signed(body), body, secrets) is None


def test_an_empty_secret_signs_nothing() -> None:
    body = b"{}"
    assert HOOKS.verify(signed(body, secret=""), body, [""]) is None


@pytest.mark.parametrize("signature", ["", "sha256=", "sha1=abc", "sha256=é", "ffff"])
def test_a_signature_of_another_shape_is_none(signature: str) -> None:
    body = b"{}"
    headers = {**signed(body), "X-Hub-Signature-256": signature}
    assert HOOKS.verify(headers, body, ["s3cret"]) is None


def test_a_changed_body_is_not_genuine() -> None:
    assert HOOKS.verify(signed(b'{"a": 1}'), b'{"a": 2}', ["s3cret"]) is None


@pytest.mark.parametrize("missing", ["X-GitHub-Event", "X-GitHub-Delivery"])
def test_an_invalid_delivery_is_refused(missing: str) -> None:
    headers = signed(b"{}")
    del headers[missing]
    with pytest.raises(UsageError, match="no delivery of GitHub's"):
        HOOKS.verify(headers, b"{}", ["s3cret"])


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_a_signed_body_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(UsageError, match="body is no JSON"):
        HOOKS.verify(signed(body), body, ["s3cret"])


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        ("pull_request", {"action": "labeled", "number": 4, "pull_request": {"number": 4}}, Hint("o/n", pulls=(4,))),
        ("pull_request_review", {"pull_request": {"number": 4}}, Hint("o/n", pulls=(4,))),
        ("pull_request_review_comment", {"pull_request": {"number": 4}}, Hint("o/n", pulls=(4,))),
        ("pull_request_review_thread", {"pull_request": {"number": 4}}, Hint("o/n", pulls=(4,))),
        ("issue_comment", {"issue": {"number": 4, "pull_request": {"url": "…"}}}, Hint("o/n", pulls=(4,))),
        ("issue_comment", {"issue": {"number": 4}}, Hint("o/n", issues=("4",))),
        ("issues", {"action": "assigned", "issue": {"number": 4}}, Hint("o/n", issues=("4",))),
        ("label", {"action": "edited"}, Hint("o/n")),
        (
            "check_run",
            {"check_run": {"head_sha": SHA, "pull_requests": [{"number": 4, "base": {"repo": {"id": 7}}}]}},
            Hint("o/n", pulls=(4,), heads=(SHA,)),
        ),
        (
            "check_suite",
            {"check_suite": {"head_sha": SHA, "pull_requests": [{"number": 4, "base": {"repo": {"id": 8}}}]}},
            Hint("o/n", heads=(SHA,)),
        ),
        ("status", {"sha": SHA, "state": "failure"}, Hint("o/n", heads=(SHA,))),
        ("workflow_run", {"workflow_run": {"head_sha": SHA, "pull_requests": []}}, Hint("o/n", heads=(SHA,))),
        ("workflow_job", {"workflow_job": {"head_sha": SHA}}, Hint("o/n", heads=(SHA,))),
        ("push", {"ref": "refs/heads/feature/x", "deleted": True}, Hint("o/n", branches=("feature/x",))),
        ("push", {"ref": "refs/tags/v1"}, None),
        ("delete", {"ref": "feature/x", "ref_type": "branch"}, Hint("o/n", branches=("feature/x",))),
        ("delete", {"ref": "v1", "ref_type": "tag"}, None),
        (
            "merge_group",
            {
                "merge_group": {
                    "head_sha": SHA,
                    "head_ref": f"refs/heads/gh-readonly-queue/main/pr-104-{SHA}",
                    "base_ref": "refs/heads/main",
                }
            },
            Hint("o/n", pulls=(104,), heads=(SHA,), branches=("main",)),
        ),
        ("repository", {"action": "renamed", "changes": {"repository": {"name": {"from": "old"}}}}, Hint("o/old")),
        (
            "repository",
            {"action": "transferred", "changes": {"owner": {"from": {"user": {"login": "me"}}}}},
            Hint("me/n"),
        ),
        ("repository", {"action": "edited"}, None),
        ("star", {"action": "created"}, None),
        ("ping", {}, None),
    ],
)
def test_each_event_has_its_hint(kind: str, payload: dict[str, Any], expected: Hint | None) -> None:
    assert hint(kind, **payload) == expected


def test_an_event_without_a_repository_has_no_hint() -> None:
    assert HOOKS.hint(WebhookDelivery("d", "push", {"ref": "refs/heads/x"})) is None


_KEYS = st.sampled_from(
    ["repository", "full_name", "pull_request", "number", "issue", "check_run", "check_suite", "pull_requests", "head_sha",
     "merge_group", "head_ref", "base_ref", "changes", "owner", "from", "name", "base", "repo", "id", "ref", "ref_type", "action", "sha"]
)  # fmt: skip
_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["o/n", SHA, "branch"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=6),
    max_leaves=20,
)
_KINDS = st.sampled_from(
    ["pull_request", "pull_request_review", "issue_comment", "issues", "label", "check_run", "check_suite", "status",
     "workflow_run", "workflow_job", "push", "create", "delete", "merge_group", "repository", "star", ""]
)  # fmt: skip


@given(_KINDS, st.dictionaries(_KEYS, _ANY, max_size=8), st.booleans())
def test_no_payload_makes_it_crash(kind: str, payload: dict[str, Any], with_repository: bool) -> None:
    result = HOOKS.hint(
        WebhookDelivery(
            "d", kind, {**payload, **({"repository": REPO, "action": "renamed"} if with_repository else {})}
        )
    )
    assert result is None or isinstance(result, Hint)


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=60)), st.binary(max_size=200))
def test_no_request_makes_it_crash(headers: dict[str, str], body: bytes) -> None:
    try:
        assert HOOKS.verify(headers, body, ["s3cret"]) is None
    except UsageError:
        pass
