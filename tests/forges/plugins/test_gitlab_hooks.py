"""Webhooks of the test server name what changed, and repeated deliveries keep their id."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agent_orchestrator.plugins.forges.gitlab.webhooks import GitLabHooks
from agent_orchestrator.protocols.forge import Hint
from agent_orchestrator.testing.gitlab import GitLabMergeRequest, GitLabServer
from agent_orchestrator.testing.gitlab.world import delivery_request

SECRET = "s3cret"


@pytest.fixture
def forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def pull(forge: GitLabServer) -> GitLabMergeRequest:
    repo = forge.repository(
        "acme/tools/app", {"a.txt": "1\n2\n"}, people={"dev": "developer", "rev": "developer", "boss": "maintainer"}
    )
    forge.push(repo, "x", {"a.txt": "1\ntwo\n"}, by="dev")
    merge_request = forge.pull(repo, "x", by="dev")
    forge.hook(repo, "http://127.0.0.1:9/", SECRET)
    return merge_request


def hints_of_deliveries(forge: GitLabServer) -> list[Hint]:
    """Return the hints that the plugin reads from all deliveries sent."""
    hooks = GitLabHooks()
    hints = []
    for delivery_sent in forge.hooks.sent:
        body, headers = delivery_request(delivery_sent, forge.url)
        assert hooks.verify(headers, body, ["another"]) is None
        delivery = hooks.verify(headers, body, ["another", SECRET])
        assert delivery is not None
        assert (delivery.id, delivery.kind) == (delivery_sent.key, delivery_sent.event)
        hint = hooks.hint(delivery)
        hints += [hint] if hint else []
    return hints


CHANGES: dict[str, Callable[[GitLabServer, GitLabMergeRequest], object]] = {
    "comment": lambda forge, pull: forge.comment(pull, "x", by="rev"),
    "thread": lambda forge, pull: forge.thread(pull, "a.txt", 2, "x", by="rev"),
    "approval": lambda forge, pull: forge.review(pull, "APPROVE", by="rev"),
    "changes": lambda forge, pull: forge.review(pull, "REQUEST_CHANGES", by="rev"),
    "label": lambda forge, pull: forge.label_issue(pull, "bug"),
    "draft": lambda forge, pull: forge.edit(pull, title="Draft: x"),
    "push": lambda forge, pull: forge.push(pull.project, "x", {"b": "b"}, by="dev"),
    "close": lambda forge, pull: forge.close(pull),
    "merge": lambda forge, pull: forge.merge(pull),
    "pipeline": lambda forge, pull: forge.check(pull.project, "x", "tests", "failed"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_webhook_of_a_change_names_the_merge_request(
    forge: GitLabServer, pull: GitLabMergeRequest, change: str
) -> None:
    CHANGES[change](forge, pull)
    hints = hints_of_deliveries(forge)
    assert all(hint.repo == "acme/tools/app" for hint in hints)
    assert any(hint.pulls == (pull.iid,) for hint in hints)


def test_the_webhook_of_a_job_names_its_commit(forge: GitLabServer, pull: GitLabMergeRequest) -> None:
    forge.check(pull.project, "x", "one", None)
    forge.hooks.sent.clear()
    forge.check(pull.project, "x", "two", "failed")
    assert any(pull.head_sha in hint.heads for hint in hints_of_deliveries(forge))


def test_the_webhook_of_a_forks_pipeline_names_the_target_project(
    forge: GitLabServer, pull: GitLabMergeRequest
) -> None:
    fork = forge.fork(pull.project, "dev")
    forge.push(fork, "far", {"f.txt": "f"}, by="dev")
    fork_request = forge.pull(pull.project, "far", by="dev", source=fork)
    forge.hook(fork, "http://127.0.0.1:9/", SECRET)
    forge.hooks.sent.clear()
    forge.check(fork, fork_request.head_sha, "tests", "success")
    assert any(
        (hint.repo, hint.pulls) == ("acme/tools/app", (fork_request.iid,)) for hint in hints_of_deliveries(forge)
    )


def test_webhooks_name_issues_and_branches(forge: GitLabServer, pull: GitLabMergeRequest) -> None:
    issue = forge.issue(pull.project, "It breaks")
    forge.comment(issue, "yes", by="rev")
    forge.push(pull.project, "main", {"c": "c"})
    hints = hints_of_deliveries(forge)
    assert sum(str(issue.iid) in hint.issues for hint in hints) == 2
    assert "main" in {branch for hint in hints for branch in hint.branches}


def test_a_repeated_delivery_keeps_its_id_and_other_events_have_others(
    forge: GitLabServer, pull: GitLabMergeRequest
) -> None:
    forge.comment(pull, "x", by="rev")
    forge.comment(pull, "x", by="rev")
    first, second = forge.hooks.sent
    again = forge.hooks.redeliver(first)
    delivery_ids = [_delivery_id(forge, delivery) for delivery in (first, second, again)]
    assert delivery_ids[0] == delivery_ids[2] != delivery_ids[1]


def _delivery_id(forge: GitLabServer, sent: object) -> str:
    body, headers = delivery_request(sent, forge.url)  # type: ignore[arg-type]
    delivery = GitLabHooks().verify(headers, body, [SECRET])
    assert delivery is not None
    return delivery.id
