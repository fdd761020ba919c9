"""Texts of strangers that are larger than one answer may be: they are read in smaller parts, and other data is still read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.forges.shared import http
from agent_orchestrator.protocols.forge import KnownPullRequest
from agent_orchestrator.testing.github import GitHubPullRequest, GitHubServer
from agent_orchestrator.testing.gitlab import GitLabProject, GitLabServer
from tests.forges.plugins import github, gitlab

pytestmark = pytest.mark.anyio

LONG_TEXT = "x" * 10_000


@pytest.fixture(autouse=True)
def small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limit of an answer, so that twenty long texts exceed it."""
    monkeypatch.setattr(http, "MAX_RESPONSE_BYTES", 150_000)


@pytest.fixture
def at_github(schema: Path) -> Iterator[GitHubServer]:
    with GitHubServer(schema=schema) as server:
        server.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
        yield server


@pytest.fixture
def at_gitlab() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def project(at_gitlab: GitLabServer) -> GitLabProject:
    return at_gitlab.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "developer", "rev": "developer"})


def pulls(forge: GitHubServer, count: int) -> list[GitHubPullRequest]:
    for number in range(count):
        forge.push("acme/app", f"fix{number}", {"a.txt": f"2{number}\n"}, by="dev")
    return [forge.pull("acme/app", f"fix{number}", "Fix it", by="dev") for number in range(count)]


async def test_a_pull_request_with_long_discussions_is_read_completely_with_the_others(at_github: GitHubServer) -> None:
    long_pull, *others = pulls(at_github, 3)
    for _ in range(10):
        thread = at_github.thread(long_pull, "a.txt", 1, LONG_TEXT, by="eve")
        at_github.reply(thread, LONG_TEXT, by="eve")
        at_github.comment(long_pull, "y" * 7_000, by="eve")
    at_github.comment(long_pull, "Why two?", by="rev")
    states = await github.scm(at_github).read([pull.node_id for pull in (long_pull, *others)])
    assert [state.number for state in states] == [long_pull.number, *(pull.number for pull in others)]
    assert (states[0].unread, len(states[0].comments)) == ((), 31)
    assert ("Why two?", "yes") in [(comment.body, comment.author.write_access) for comment in states[0].comments]


async def test_an_unreadable_pull_request_does_not_prevent_reading_the_others(at_github: GitHubServer) -> None:
    unreadable_pull, *others = pulls(at_github, 4)
    at_github.comment(unreadable_pull, "x" * 160_000, by="eve")
    plugin = github.scm(at_github)
    states = await plugin.read([pull.node_id for pull in (unreadable_pull, *others)])
    assert [state.number for state in states] == [pull.number for pull in others]
    with pytest.raises(Temporary, match="larger than"):
        await plugin.read([unreadable_pull.node_id])


async def test_a_failing_host_is_not_asked_for_each_pull_request(at_github: GitHubServer) -> None:
    open_pulls = pulls(at_github, 16)
    at_github.fail(500, next=1_000, path="graphql")
    with pytest.raises(Temporary, match="failed with 500"):
        await github.scm(at_github).read([pull.node_id for pull in open_pulls])
    assert 1_000 - sum(fault.remaining for fault in at_github.ledger.faults) < 2 * len(open_pulls) - 1


async def test_long_issues_do_not_prevent_listing_the_others(at_gitlab: GitLabServer, project: GitLabProject) -> None:
    at_gitlab.issue(project, "Genuine", "do it", by="rev")
    for number in range(20):
        at_gitlab.issue(project, f"Long {number}", LONG_TEXT, by="eve")
    issues = await gitlab.tracker(at_gitlab).list()
    assert len(issues) == 21
    assert [issue.title for issue in issues if issue.author.write_access == "yes"] == ["Genuine"]


async def test_long_comments_do_not_prevent_reading_an_issue(at_gitlab: GitLabServer, project: GitLabProject) -> None:
    issue = at_gitlab.issue(project, "Genuine", "do it", by="rev")
    for _ in range(20):
        at_gitlab.comment(issue, LONG_TEXT, by="eve")
    at_gitlab.comment(issue, "soon", by="rev")
    read_issue = await gitlab.tracker(at_gitlab).get("1")
    assert len(read_issue.comments) == 21 and read_issue.comments[-1].body == "soon"


async def test_long_comments_do_not_hide_an_approval(at_gitlab: GitLabServer, project: GitLabProject) -> None:
    at_gitlab.push("acme/app", "fix", {"a.txt": "2\n"}, by="dev")
    pull = at_gitlab.pull("acme/app", "fix", "Fix it", by="dev")
    for _ in range(20):
        at_gitlab.comment(pull, LONG_TEXT, by="eve")
    at_gitlab.review(pull, "APPROVE", by="rev")
    (state,) = await gitlab.scm(at_gitlab).read([gitlab.merge_request_id(pull)])
    assert [(review.verdict, review.author.name) for review in state.reviews] == [("approved", "rev")]
    assert not state.unread


async def test_long_descriptions_of_merge_requests_do_not_prevent_polling(
    at_gitlab: GitLabServer, project: GitLabProject
) -> None:
    for number in range(20):
        at_gitlab.push("acme/app", f"fix{number}", {"a.txt": f"2{number}\n"}, by="dev")
        at_gitlab.pull("acme/app", f"fix{number}", "Fix it", LONG_TEXT, by="dev")
    known_pulls = [KnownPullRequest(1, f"{project.id}!1", "", False, 0.0)]
    hint = await gitlab.scm(at_gitlab).changed(known_pulls)
    assert 1 in hint.pulls
