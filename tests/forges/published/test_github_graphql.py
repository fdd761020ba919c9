"""GraphQL of the test forge: the published schema refuses what GitHub refuses, and answers show the current state."""

from __future__ import annotations

import pytest

from agent_orchestrator.testing.github import GitHubServer
from tests.forges.client import ForgeClient

PULL = """query ($id: ID!) { node(id: $id) { ... on PullRequest {
  state isDraft mergeable mergeStateStatus reviewDecision isInMergeQueue headRefOid baseRefOid mergeQueueEntry { state position }
  autoMergeRequest { mergeMethod } viewerDidAuthor authorAssociation author { __typename login }
  reviewThreads(first: 10) { nodes { id isResolved isOutdated comments(first: 10) { nodes { body author { login } } } } }
  commits(last: 1) { nodes { commit { statusCheckRollup { state contexts(first: 10) { totalCount } } } } }
} } }"""


@pytest.fixture
def dev(forge: GitHubServer) -> ForgeClient:
    forge.repository("acme/app", {"a.txt": "1\n2\n3\n"}, people={"dev": "write", "rev": "write"})
    forge.push("acme/app", "fix", {"a.txt": "1\n2\n3\n4\n"}, by="dev")
    return ForgeClient(forge, forge.token("dev"))


def test_the_published_schema_refuses_unknown_fields(dev: ForgeClient) -> None:
    answer = dev.graphql("{ viewer { login nonsense } }")
    assert "Cannot query field 'nonsense' on type 'User'" in answer["errors"][0]["message"]


def test_a_pull_request_is_followed_to_its_merge_by_graphql(forge: GitHubServer, dev: ForgeClient) -> None:
    forge.protect("acme/app", checks=("tests",), approvals=1)
    forge.world.unknown_first = 1
    pull = forge.pull("acme/app", "fix", by="dev", draft=True)

    def read_pull() -> dict[str, object]:
        answer = dev.graphql(PULL, id=pull.node_id)
        assert "errors" not in answer
        pull_fields: dict[str, object] = answer["data"]["node"]
        return pull_fields

    assert read_pull()["mergeable"] == "UNKNOWN"
    first = read_pull()
    assert (first["mergeable"], first["mergeStateStatus"], first["isDraft"]) == ("MERGEABLE", "DRAFT", True)
    assert first["author"] == {"__typename": "User", "login": "dev"}
    assert first["commits"] == {"nodes": [{"commit": {"statusCheckRollup": None}}]}
    dev.graphql(
        "mutation ($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) { clientMutationId } }",
        id=pull.node_id,
    )
    assert read_pull()["mergeStateStatus"] == "BLOCKED"

    thread = forge.thread(pull, "a.txt", 4, "Why four?", by="rev")
    forge.reply(thread, "Beep", by="helper[bot]")
    threads = read_pull()["reviewThreads"]
    assert threads == {"nodes": [{
        "id": thread.node_id, "isResolved": False, "isOutdated": False,
        "comments": {"nodes": [{"body": "Why four?", "author": {"login": "rev"}}, {"body": "Beep", "author": {"login": "helper"}}]},
    }]}  # fmt: skip
    forge.push("acme/app", "fix", {"a.txt": "1\n2\n3\nfour\n"}, by="dev")
    assert pull.threads[0].outdated
    dev.graphql(
        "mutation ($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { isResolved } } }",
        id=thread.node_id,
    )

    enable = "mutation ($id: ID!) { enablePullRequestAutoMerge(input: {pullRequestId: $id, mergeMethod: SQUASH}) { clientMutationId } }"
    assert "errors" not in dev.graphql(enable, id=pull.node_id)
    assert read_pull()["autoMergeRequest"] == {"mergeMethod": "SQUASH"}
    forge.check("acme/app", "fix", "tests", "success")
    assert read_pull()["reviewDecision"] == "REVIEW_REQUIRED"
    forge.review(pull, "APPROVE", by="rev")
    assert read_pull()["state"] == "MERGED"


def test_the_merge_queue_merges_once_its_group_passes_the_checks(forge: GitHubServer, dev: ForgeClient) -> None:
    forge.protect("acme/app", checks=("tests",), merge_queue=True)
    pull = forge.pull("acme/app", "fix", by="dev")
    forge.check("acme/app", "fix", "tests", "success")
    forge.review(pull, "APPROVE", by="rev")
    assert dev.graphql(PULL, id=pull.node_id)["data"]["node"]["reviewDecision"] is None, "the branch asks for no review"
    enqueue = "mutation ($id: ID!) { enqueuePullRequest(input: {pullRequestId: $id}) { mergeQueueEntry { position } } }"
    assert dev.graphql(enqueue, id=pull.node_id)["data"]["enqueuePullRequest"] == {"mergeQueueEntry": {"position": 1}}
    assert dev.graphql(PULL, id=pull.node_id)["data"]["node"]["mergeQueueEntry"] == {
        "state": "AWAITING_CHECKS",
        "position": 1,
    }
    assert dev.ask("PUT", f"/repos/acme/app/pulls/{pull.number}/merge", {})[0] == 405
    group = forge.group(pull)
    assert group
    forge.check("acme/app", group, "tests", "success")
    assert pull.merged
    assert pull.repo.head("main") == group


def test_node_ids_stay_valid_after_a_rename(forge: GitHubServer, dev: ForgeClient) -> None:
    pull = forge.pull("acme/app", "fix", by="dev")
    forge.rename("acme/app", "engine")
    answer = dev.graphql(
        "query ($id: ID!) { node(id: $id) { ... on PullRequest { repository { nameWithOwner } } } }", id=pull.node_id
    )
    assert answer["data"]["node"]["repository"]["nameWithOwner"] == "acme/engine"
    assert dev.ask("GET", f"/repos/acme/app/pulls/{pull.number}")[0] == 301
    location = dev.headers["location"].removeprefix(forge.url)
    assert dev("GET", location)["node_id"] == pull.node_id


def test_the_cost_of_queries_is_counted_as_documented(forge: GitHubServer, dev: ForgeClient) -> None:
    query = """{ rateLimit { cost nodeCount remaining } viewer { login }
      repository(owner: "acme", name: "app") { issues(first: 50) { nodes { comments(first: 60) { nodes { id } } } } } }"""
    rate_limit = dev.graphql(query)["data"]["rateLimit"]
    assert rate_limit == {"cost": 1, "nodeCount": 50 + 50 * 60, "remaining": 4999}
    wide = """{ repository(owner: "acme", name: "app") { pullRequests(first: 50) { nodes {
      reviewThreads(first: 60) { nodes { comments(first: 60) { nodes { id } } } } } } } }"""
    dev.graphql(wide)
    assert forge.ledger.counts()["graphql points"] == 1 + 31
    assert dev.headers["x-ratelimit-remaining"] == str(5000 - 32)


def test_an_answer_can_contain_errors_and_data(forge: GitHubServer, dev: ForgeClient) -> None:
    pull = forge.pull("acme/app", "fix", by="dev")
    forge.fail("partial", field="reviewDecision", path="/graphql")
    answer = dev.graphql(
        "query ($ids: [ID!]!) { nodes(ids: $ids) { ... on PullRequest { number reviewDecision } } }",
        ids=[pull.node_id, "PR_no"],
    )
    assert answer["data"]["nodes"] == [{"number": 1, "reviewDecision": None}, None]
    assert [(error["type"], error["path"]) for error in answer["errors"]] == [
        ("SERVICE_UNAVAILABLE", ["nodes", 0, "reviewDecision"]),
        ("NOT_FOUND", ["nodes", 1]),
    ]
    unpaged = dev.graphql('{ repository(owner: "acme", name: "app") { issues { nodes { id } } } }')
    assert unpaged["errors"][0]["type"] == "MISSING_PAGINATION_BOUNDARIES"


def test_a_used_up_rate_limit_refuses_queries(forge: GitHubServer, dev: ForgeClient) -> None:
    forge.set_rate(dev.token, remaining=0, kind="graphql")
    assert dev.graphql("{ viewer { login } }")["errors"][0]["type"] == "RATE_LIMITED"
    assert dev.headers["x-ratelimit-remaining"] == "0"
