"""What the test server tells by webhook leads our intake to what changed, whatever becomes of the deliveries."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from agent_orchestrator.plugins.forges.gitlab.webhooks import GitLabHooks
from agent_orchestrator.protocols.forge import Hint
from agent_orchestrator.testing.gitlab import GitLabServer, MergeRequest
from agent_orchestrator.testing.gitlab.world import request

SECRET = "s3cret"


@pytest.fixture
def forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def pull(forge: GitLabServer) -> MergeRequest:
    repo = forge.repository(
        "acme/tools/app", {"a.txt": "1\n2\n"}, people={"dev": "developer", "rev": "developer", "boss": "maintainer"}
    )
    forge.push(repo, "x", {"a.txt": "1\ntwo\n"}, by="dev")
    made = forge.pull(repo, "x", by="dev")
    forge.hook(repo, "http://127.0.0.1:9/", SECRET)
    return made


def told(forge: GitLabServer) -> list[Hint]:
    """What our intake makes of everything that was sent."""
    hooks = GitLabHooks()
    hints = []
    for sent in forge.hooks.sent:
        body, headers = request(sent, forge.url)
        assert hooks.genuine(headers, body, ["another"]) is None
        delivery = hooks.genuine(headers, body, ["another", SECRET])
        assert delivery is not None
        assert (delivery.id, delivery.kind) == (sent.key, sent.event)
        hint = hooks.hint(delivery)
        hints += [hint] if hint else []
    return hints


CHANGES: dict[str, Callable[[GitLabServer, MergeRequest], object]] = {
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
def test_a_change_of_a_merge_request_names_it(forge: GitLabServer, pull: MergeRequest, change: str) -> None:
    CHANGES[change](forge, pull)
    hints = told(forge)
    assert all(hint.repo == "acme/tools/app" for hint in hints)
    assert any(hint.pulls == (pull.iid,) for hint in hints)


def test_a_job_names_its_commit(forge: GitLabServer, pull: MergeRequest) -> None:
    forge.check(pull.project, "x", "one", None)
    forge.hooks.sent.clear()
    forge.check(pull.project, "x", "two", "failed")
    assert any(pull.head_sha in hint.heads for hint in told(forge))


def test_a_forks_pipeline_names_the_merge_request_where_it_is(forge: GitLabServer, pull: MergeRequest) -> None:
    fork = forge.fork(pull.project, "dev")
    forge.push(fork, "far", {"f.txt": "f"}, by="dev")
    theirs = forge.pull(pull.project, "far", by="dev", source=fork)
    forge.hook(fork, "http://127.0.0.1:9/", SECRET)
    forge.hooks.sent.clear()
    forge.check(fork, theirs.head_sha, "tests", "success")
    assert any((hint.repo, hint.pulls) == ("acme/tools/app", (theirs.iid,)) for hint in told(forge))


def test_an_issue_and_a_branch_are_named(forge: GitLabServer, pull: MergeRequest) -> None:
    issue = forge.issue(pull.project, "It breaks")
    forge.comment(issue, "yes", by="rev")
    forge.push(pull.project, "main", {"c": "c"})
    hints = told(forge)
    assert sum(str(issue.iid) in hint.issues for hint in hints) == 2
    assert "main" in {branch for hint in hints for branch in hint.branches}


def test_a_repeated_delivery_has_the_same_name_and_another_event_another(
    forge: GitLabServer, pull: MergeRequest
) -> None:
    forge.comment(pull, "x", by="rev")
    forge.comment(pull, "x", by="rev")
    first, second = forge.hooks.sent
    again = forge.hooks.redeliver(first)
    names = [_named(forge, one) for one in (first, second, again)]
    assert names[0] == names[2] != names[1]


def _named(forge: GitLabServer, sent: object) -> str:
    body, headers = request(sent, forge.url)  # type: ignore[arg-type]
    delivery = GitLabHooks().genuine(headers, body, [SECRET])
    assert delivery is not None
    return delivery.id
