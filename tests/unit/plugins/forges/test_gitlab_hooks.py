"""GitLab's webhooks: verification and hints; no request can crash the receiver."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.forges.gitlab.webhooks import GitLabHooks
from agent_orchestrator.protocols.forge import Hint, Hooks, WebhookDelivery

HOOKS = GitLabHooks()
SHA = "a" * 40
PROJECT = {"path_with_namespace": "acme/app"}


def headers(**more: str) -> dict[str, str]:
    return {"X-Gitlab-Event": "Note Hook", "X-Gitlab-Token": "s3cret", **more}


def test_only_who_shows_the_secret_is_genuine() -> None:
    assert isinstance(HOOKS, Hooks)
    assert HOOKS.verify(headers(), b"{}", ["s3cret"]) is not None
    assert HOOKS.verify(headers(), b"{}", ["other", "s3cret"]) is not None
    assert HOOKS.verify(headers(), b"{}", ["other"]) is None
    assert HOOKS.verify(headers(), b"{}", []) is None
    assert HOOKS.verify({"X-Gitlab-Event": "Note Hook"}, b"{}", ["s3cret"]) is None
    assert HOOKS.verify(headers(**{"X-Gitlab-Token": ""}), b"{}", ["", "s3cret"]) is None
    assert HOOKS.verify(headers(**{"X-Gitlab-Token": "ünï"}), b"{}", ["s3cret"]) is None


def test_an_invalid_delivery_is_refused() -> None:
    with pytest.raises(UsageError, match="X-Gitlab-Event"):
        HOOKS.verify({"X-Gitlab-Token": "s3cret"}, b"{}", ["s3cret"])
    for body in (b"no", b"[1]", b"\xff", b"[" * 100_000):
        with pytest.raises(UsageError):
            HOOKS.verify(headers(), body, ["s3cret"])


def test_a_delivery_is_identified_by_its_key_or_its_content() -> None:
    def named(body: bytes, **more: str) -> str:
        delivery = HOOKS.verify(headers(**more), body, ["s3cret"])
        assert delivery is not None
        return delivery.id

    assert named(b"{}", **{"idempotency-key": "k1"}) == "k1"
    header = {"X-Gitlab-Event-UUID": "u1"}
    assert named(b"{}", **header) == named(b"{}", **header)
    assert named(b"{}", **header) != named(b'{"a": 1}', **header)


@pytest.mark.parametrize(
    ("kind", "payload", "hint"),
    [
        ("Merge Request Hook", {"object_attributes": {"iid": 4}}, Hint("acme/app", pulls=(4,))),
        ("Note Hook", {"merge_request": {"iid": 4}}, Hint("acme/app", pulls=(4,))),
        ("Confidential Note Hook", {"issue": {"iid": 5}}, Hint("acme/app", issues=("5",))),
        ("Issue Hook", {"object_attributes": {"iid": 5}}, Hint("acme/app", issues=("5",))),
        ("Confidential Issue Hook", {"object_attributes": {"iid": 5}}, Hint("acme/app", issues=("5",))),
        ("Work Item Hook", {"object_attributes": {"iid": 5}}, Hint("acme/app", issues=("5",))),
        ("Push Hook", {"ref": "refs/heads/a/b"}, Hint("acme/app", branches=("a/b",))),
        ("Pipeline Hook", {"object_attributes": {"sha": SHA, "ref": "x"}}, Hint("acme/app", heads=(SHA,))),
        (
            "Pipeline Hook",
            {"object_attributes": {"sha": SHA, "ref": "refs/merge-requests/4/merge"}},
            Hint("acme/app", pulls=(4,), heads=(SHA,)),
        ),
        (
            "Job Hook",
            {"sha": SHA, "ref": "refs/merge-requests/4/head"},
            Hint("acme/app", pulls=(4,), heads=(SHA,)),
        ),
        (
            "System Hook",
            {"object_kind": "merge_request", "object_attributes": {"iid": 4}},
            Hint("acme/app", pulls=(4,)),
        ),
        ("System Hook", {"event_name": "project_create"}, None),
        ("Push Hook", {"ref": "refs/tags/v1"}, None),
        ("Tag Push Hook", {"object_kind": "tag_push", "ref": "refs/tags/v1"}, None),
        ("Note Hook", {"commit": {"id": SHA}}, None),
        ("Emoji Hook", {"object_attributes": {"iid": 4}}, None),
        ("Merge Request Hook", {"object_attributes": {"iid": True}}, None),
        ("Merge Request Hook", {"object_attributes": {"iid": -1}}, None),
        ("Pipeline Hook", {"object_attributes": {"sha": "../x"}}, None),
    ],
)
def test_each_event_has_its_hint(kind: str, payload: dict[str, Any], hint: Hint | None) -> None:
    assert HOOKS.hint(WebhookDelivery("d", kind, {"project": PROJECT, **payload})) == hint


def test_a_job_names_its_project_by_the_page_of_its_repository() -> None:
    """A job's delivery has no path of its project."""
    payload = {"object_kind": "build", "sha": SHA, "repository": {"homepage": "https://gitlab.com/acme/tools/app"}}
    assert HOOKS.hint(WebhookDelivery("d", "Job Hook", payload)) == Hint("acme/tools/app", heads=(SHA,))


def test_a_forks_pipeline_names_the_project_that_the_merge_request_is_in() -> None:
    about = {"iid": 4, "url": "https://gitlab.com/acme/app/-/merge_requests/4"}
    payload = {"project": {"path_with_namespace": "eve/app"}, "merge_request": about, "object_attributes": {"sha": SHA}}
    assert HOOKS.hint(WebhookDelivery("d", "Pipeline Hook", payload)) == Hint("acme/app", pulls=(4,), heads=(SHA,))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["iid", "project", "url", "web_url", "sha", "ref", "object_attributes"]), inner
        )
    ),
    max_leaves=10,
)
KEYS = ["object_kind", "project", "object_attributes", "merge_request", "issue", "repository", "ref", "sha"]


@given(
    st.sampled_from(["Merge Request Hook", "Note Hook", "Job Hook", "Pipeline Hook", "Push Hook", "Issue Hook"]),
    st.dictionaries(st.sampled_from(KEYS), JSON),
)
def test_nothing_breaks_it(kind: str, payload: dict[str, Any]) -> None:
    body = json.dumps(payload).encode()
    delivery = HOOKS.verify(headers(**{"X-Gitlab-Event": kind}), body, ["s3cret"])
    assert delivery is not None
    hint = HOOKS.hint(delivery)
    assert hint is None or (hint.repo and (hint.pulls or hint.heads or hint.branches or hint.issues))
