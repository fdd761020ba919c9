"""Errors of forges: one line with cause and remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.errors import AoError, Conflict, Denied, NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.shared.response_errors import (
    HostText,
    error_message,
    rate_limit_kind,
    response_error,
)

SPEAKER = HostText(
    "GitHub",
    "the token from GITHUB_TOKEN",
    "gh auth login --hostname github.com",
    "gh auth refresh --scopes {scope}",
)


def refused(status: int, headers: Mapping[str, str] | None = None, data: Any = None) -> AoError:
    return response_error(SPEAKER, "GET /repos/o/n", status, headers or {}, data)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, Denied),
        (403, Denied),
        (404, NotFound),
        (410, NotFound),
        (409, Conflict),
        (422, UsageError),
        (500, Temporary),
    ],
)
def test_each_status_has_its_place_in_the_tree(status: int, kind: type[AoError]) -> None:
    assert type(refused(status)) is kind


def test_a_bad_token_names_where_it_came_from_and_how_to_get_another() -> None:
    text = str(refused(401, data={"message": "Bad credentials"}))
    assert "the token from GITHUB_TOKEN is not accepted" in text
    assert "gh auth login" in text


def test_a_missing_scope_is_named() -> None:
    error = refused(403, {"x-oauth-scopes": "gist, read:org", "x-accepted-oauth-scopes": "repo"})
    assert "lacks the scope repo" in error.text
    assert error.remedy == "gh auth refresh --scopes repo"


def test_a_scope_that_contains_the_needed_one_is_enough() -> None:
    headers = {"x-oauth-scopes": "repo", "x-accepted-oauth-scopes": "public_repo"}
    error = refused(403, headers, {"message": "Repository was archived"})
    assert "Repository was archived" in error.text


def test_a_fine_grained_tokens_lacking_permission_is_named() -> None:
    headers = {"x-accepted-github-permissions": "pull_requests=write"}
    error = refused(403, headers, {"message": "Resource not accessible by personal access token"})
    assert "pull_requests=write" in error.text


def test_single_sign_on_gives_the_address() -> None:
    error = refused(403, {"x-github-sso": "required; url=https://github.com/orgs/o/sso?authorization_request=A"})
    assert error.remedy.startswith("https://github.com/orgs/o/sso")


def test_a_missing_repository_may_be_a_private_one() -> None:
    remedy = refused(404, data={"message": "Not Found"}).remedy
    assert "may not see" in remedy and "repo and apiUrl" in remedy


def test_the_message_of_github_is_passed_on() -> None:
    data = {"message": "Validation Failed", "errors": [{"resource": "PullRequest", "field": "head", "code": "invalid"}]}
    assert "Validation Failed; head invalid" in refused(422, data=data).text


@pytest.mark.parametrize(
    ("status", "headers", "message", "kind"),
    [
        (403, {}, "You have exceeded a secondary rate limit", "secondary"),
        (403, {"retry-after": "5"}, "slow down", "secondary"),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "5"}, "API rate limit exceeded", "primary"),
        (429, {"x-ratelimit-reset": "5"}, "", "primary"),
        (429, {}, "", "secondary"),
        (403, {"x-ratelimit-remaining": "17"}, "Must have admin rights", ""),
        (404, {"x-ratelimit-remaining": "0"}, "", ""),
    ],
)
def test_rate_limit_responses_are_distinguished(status: int, headers: dict[str, str], message: str, kind: str) -> None:
    assert rate_limit_kind(status, headers, {"message": message}) == kind


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["message", "errors", "field", "x"]), inner)
    ),
    max_leaves=12,
)


@given(st.integers(400, 599), st.dictionaries(st.sampled_from(["x-oauth-scopes", "x-github-sso"]), st.text()), _JSON)
def test_any_error_is_one_line(status: int, headers: dict[str, str], data: Any) -> None:
    assert (
        "\n" not in refused(status, {k: v.replace("\n", " ").replace("\r", " ") for k, v in headers.items()}, data).text
    )
    assert len(error_message(data)) <= 300
    rate_limit_kind(status, headers, data)
