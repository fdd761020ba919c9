"""Our side of GitHub beside what GitHub publishes: every query fits its schema, every payload of its webhooks is survived."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.plugins.forges.github.graphql_documents import DOCUMENTS
from agent_orchestrator.plugins.forges.github.host import VIEWER
from agent_orchestrator.plugins.forges.github.webhooks import GitHubHooks
from agent_orchestrator.protocols.forge import Hint, WebhookDelivery
from tests.forges import fetch
from tests.forges.conftest import published


@pytest.mark.parametrize("name", [*DOCUMENTS, "viewer"])
def test_a_query_of_ours_fits_the_published_schema(schema: Path, name: str) -> None:
    import graphql

    from agent_orchestrator.testing.github.graphql.endpoint import load

    document = graphql.parse({**DOCUMENTS, "viewer": VIEWER}[name])
    assert [error.message for error in graphql.validate(load(schema), document)] == []


def test_a_wrong_field_would_be_seen(schema: Path) -> None:
    import graphql

    from agent_orchestrator.testing.github.graphql.endpoint import load

    document = graphql.parse(DOCUMENTS["read"].replace("mergeStateStatus", "mergeStateStatu"))
    assert graphql.validate(load(schema), document)


@pytest.fixture(scope="module")
def examples() -> list[tuple[str, dict[str, Any]]]:
    listed = json.loads(published(fetch.EXAMPLES).read_text())
    return [(event["name"], payload) for event in listed for payload in event["examples"]]


RELEVANT = {
    "pull_request", "pull_request_review", "pull_request_review_comment", "pull_request_review_thread", "issue_comment",
    "issues", "label", "check_run", "check_suite", "status", "workflow_run", "workflow_job", "push", "merge_group",
}  # fmt: skip


def test_every_published_payload_is_survived_and_the_relevant_ones_tell_something(
    examples: list[tuple[str, dict[str, Any]]],
) -> None:
    hooks = GitHubHooks()
    told: Counter[str] = Counter()
    silent: Counter[str] = Counter()
    for name, payload in examples:
        hint = hooks.hint(WebhookDelivery("d", name, payload))
        (silent if hint is None else told)[name] += 1
        if hint is not None:
            assert hint.repo.count("/") == 1
            _fits(name, payload, hint)
    assert len(examples) >= 329
    seen = {name for name, _ in examples}
    assert RELEVANT & seen <= set(told)
    assert RELEVANT & set(silent) <= {"push"}, "only pushes of tags tell nothing"
    assert set(told) <= RELEVANT | {"create", "delete", "repository"}


def _fits(name: str, payload: dict[str, Any], hint: Hint) -> None:
    if name.startswith("pull_request"):
        assert hint.pulls == (payload["pull_request"]["number"],)
    elif name in ("issues", "issue_comment"):
        number = payload["issue"]["number"]
        wanted = (
            Hint(hint.repo, pulls=(number,))
            if "pull_request" in payload["issue"]
            else Hint(hint.repo, issues=(str(number),))
        )
        assert hint == wanted
    elif name in ("check_run", "check_suite", "workflow_run", "workflow_job"):
        assert payload[name]["head_sha"] in hint.heads
    elif name == "status":
        assert hint.heads == (payload["sha"],)
    elif name == "push":
        assert hint.branches == (payload["ref"].removeprefix("refs/heads/"),)
