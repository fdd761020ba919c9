"""The GitHub plugin compared with what GitHub publishes: queries match its schema, and all published webhook payloads are handled."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.plugins.forges.github.graphql_documents import DOCUMENTS
from agent_orchestrator.plugins.forges.github.host import VIEWER_QUERY
from agent_orchestrator.plugins.forges.github.webhooks import GitHubHooks
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery
from tests.forges import fetch
from tests.forges.conftest import published


@pytest.mark.parametrize("name", [*DOCUMENTS, "viewer"])
def test_each_query_matches_the_published_schema(schema: Path, name: str) -> None:
    import graphql

    from agent_orchestrator.testing.github.graphql.endpoint import load_schema

    document = graphql.parse({**DOCUMENTS, "viewer": VIEWER_QUERY}[name])
    assert [error.message for error in graphql.validate(load_schema(schema), document)] == []


def test_a_wrong_field_fails_validation(schema: Path) -> None:
    import graphql

    from agent_orchestrator.testing.github.graphql.endpoint import load_schema

    document = graphql.parse(DOCUMENTS["read"].replace("mergeStateStatus", "mergeStateStatu"))
    assert graphql.validate(load_schema(schema), document)


@pytest.fixture(scope="module")
def examples() -> list[tuple[str, dict[str, Any]]]:
    events = json.loads(published(fetch.EXAMPLES).read_text())
    return [(event["name"], payload) for event in events for payload in event["examples"]]


RELEVANT = {
    "pull_request", "pull_request_review", "pull_request_review_comment", "pull_request_review_thread", "issue_comment",
    "issues", "label", "check_run", "check_suite", "status", "workflow_run", "workflow_job", "push", "merge_group",
}  # fmt: skip


def test_all_published_payloads_are_handled_and_relevant_ones_give_hints(
    examples: list[tuple[str, dict[str, Any]]],
) -> None:
    hooks = GitHubHooks()
    with_hint: Counter[str] = Counter()
    without_hint: Counter[str] = Counter()
    for name, payload in examples:
        hint = hooks.hint(WebhookDelivery("d", name, payload))
        (without_hint if hint is None else with_hint)[name] += 1
        if hint is not None:
            assert hint.repo.count("/") == 1
            _check_hint(name, payload, hint)
    assert len(examples) >= 329
    example_events = {name for name, _ in examples}
    assert RELEVANT & example_events <= set(with_hint)
    assert RELEVANT & set(without_hint) <= {"push"}, "only pushes of tags give no hint"
    assert set(with_hint) <= RELEVANT | {"create", "delete", "repository"}


def _check_hint(name: str, payload: dict[str, Any], hint: Hint) -> None:
    if name.startswith("pull_request"):
        assert hint.pulls == (payload["pull_request"]["number"],)
    elif name in ("issues", "issue_comment"):
        number = payload["issue"]["number"]
        expected = (
            Hint(hint.repo, pulls=(number,))
            if "pull_request" in payload["issue"]
            else Hint(hint.repo, issues=(str(number),))
        )
        assert hint == expected
    elif name in ("check_run", "check_suite", "workflow_run", "workflow_job"):
        assert payload[name]["head_sha"] in hint.heads
    elif name == "status":
        assert hint.heads == (payload["sha"],)
    elif name == "push":
        assert hint.branches == (payload["ref"].removeprefix("refs/heads/"),)
