"""Webhooks of the test server name what changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agent_orchestrator.plugins.forges.github.webhooks import GitHubHooks
from agent_orchestrator.protocols.forge import Hint
from agent_orchestrator.testing.github import GitHubPullRequest, GitHubServer, Repo
from agent_orchestrator.testing.github.hooks import delivery_request

SECRET = "s3cret"


@pytest.fixture
def forge() -> Iterator[GitHubServer]:
    with GitHubServer() as server:
        yield server


@pytest.fixture
def pull(forge: GitHubServer) -> GitHubPullRequest:
    repo = forge.repository("acme/app", {"a.txt": "1\n2\n"}, people={"dev": "write", "rev": "write"})
    forge.push(repo, "x", {"a.txt": "1\ntwo\n"}, by="dev")
    pull_request = forge.pull(repo, "x", by="dev")
    forge.hook(repo, "http://127.0.0.1:9/", SECRET)
    return pull_request


def hints_of_deliveries(forge: GitHubServer) -> list[Hint]:
    """Return the hints that the plugin reads from all deliveries sent."""
    hooks = GitHubHooks()
    hints = []
    for sent in forge.hooks.sent:
        body, headers = delivery_request(sent)
        assert hooks.verify(headers, body, ["another"]) is None
        delivery = hooks.verify(headers, body, ["another", SECRET])
        assert delivery is not None
        assert (delivery.id, delivery.kind) == (sent.guid, sent.event)
        hint = hooks.hint(delivery)
        hints += [hint] if hint else []
    return hints


CHANGES: dict[str, Callable[[GitHubServer, GitHubPullRequest], object]] = {
    "comment": lambda forge, pull: forge.comment(pull, "x", by="rev"),
    "thread": lambda forge, pull: forge.thread(pull, "a.txt", 2, "x", by="rev"),
    "approval": lambda forge, pull: forge.review(pull, "APPROVE", by="rev"),
    "label": lambda forge, pull: forge.label_issue(pull, "bug"),
    "draft": lambda forge, pull: forge.ready(pull, draft=True),
    "push": lambda forge, pull: forge.push(pull.repo, "x", {"b": "b"}, by="dev"),
    "close": lambda forge, pull: forge.close(pull),
    "merge": lambda forge, pull: forge.merge(pull),
    "review request": lambda forge, pull: forge.request_review(pull, "rev"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_pull_request_names_it(forge: GitHubServer, pull: GitHubPullRequest, change: str) -> None:
    CHANGES[change](forge, pull)
    hints = hints_of_deliveries(forge)
    assert all(hint.repo == "acme/app" for hint in hints)
    assert any(hint.pulls == (pull.number,) for hint in hints)


def test_a_resolved_discussion_names_it(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    thread = forge.thread(pull, "a.txt", 2, "x", by="rev")
    forge.hooks.sent.clear()
    forge.resolve(thread)
    assert [hint.pulls for hint in hints_of_deliveries(forge)] == [(pull.number,)]


@pytest.mark.parametrize("kind", ["job", "check", "status"])
def test_a_check_names_its_commit(forge: GitHubServer, pull: GitHubPullRequest, kind: str) -> None:
    if kind == "status":
        forge.status(pull.repo, "x", "ci", "failure")
    else:
        forge.check(pull.repo, "x", "tests", "failure", log="no" if kind == "job" else None)
    assert any(pull.head_sha in hint.heads for hint in hints_of_deliveries(forge))


def test_webhooks_name_issues_and_branches(forge: GitHubServer, pull: GitHubPullRequest) -> None:
    repo: Repo = pull.repo
    issue = forge.issue(repo, "It breaks")
    forge.comment(issue, "yes", by="rev")
    forge.push(repo, "main", {"c": "c"})
    forge.delete_branch(repo, "x")
    hints = hints_of_deliveries(forge)
    assert sum(str(issue.number) in hint.issues for hint in hints) == 2
    assert {"main", "x"} <= {branch for hint in hints for branch in hint.branches}
