"""Texts of strangers that fill more than one answer: they are read in smaller parts, and keep nothing else from being read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.forges.shared import http
from agent_orchestrator.protocols.forge import Known
from agent_orchestrator.testing.github import GitHubServer, Pull
from agent_orchestrator.testing.gitlab import GitLabServer, Project
from tests.forges.plugins import github, gitlab

pytestmark = pytest.mark.anyio

LONG = "x" * 10_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred long texts are too large for one answer, and so are twenty."""
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 150_000)


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
def project(at_gitlab: GitLabServer) -> Project:
    return at_gitlab.repository("acme/app", {"a.txt": "1\n"}, people={"dev": "developer", "rev": "developer"})


def pulls(forge: GitHubServer, count: int) -> list[Pull]:
    for number in range(count):
        forge.push("acme/app", f"fix{number}", {"a.txt": f"2{number}\n"}, by="dev")
    return [forge.pull("acme/app", f"fix{number}", "Fix it", by="dev") for number in range(count)]


async def test_a_pull_request_with_long_discussions_is_read_whole_with_all_others(at_github: GitHubServer) -> None:
    talked, *others = pulls(at_github, 3)
    for _ in range(10):
        thread = at_github.thread(talked, "a.txt", 1, LONG, by="eve")
        at_github.reply(thread, LONG, by="eve")
        at_github.comment(talked, "y" * 7_000, by="eve")
    at_github.comment(talked, "Why two?", by="rev")
    found = await github.scm(at_github).read([one.node_id for one in (talked, *others)])
    assert [one.number for one in found] == [talked.number, *(one.number for one in others)]
    assert (found[0].unread, len(found[0].comments)) == ((), 31)
    assert ("Why two?", "yes") in [(one.body, one.author.write_access) for one in found[0].comments]


async def test_a_pull_request_that_cannot_be_told_takes_no_others_along(at_github: GitHubServer) -> None:
    sick, *others = pulls(at_github, 4)
    at_github.comment(sick, "x" * 160_000, by="eve")
    plugin = github.scm(at_github)
    found = await plugin.read([one.node_id for one in (sick, *others)])
    assert [one.number for one in found] == [one.number for one in others]
    with pytest.raises(Temporary, match="larger than"):
        await plugin.read([sick.node_id])


async def test_a_host_that_tells_of_none_is_not_asked_for_each(at_github: GitHubServer) -> None:
    asked = pulls(at_github, 16)
    at_github.fail(500, next=1_000, path="graphql")
    with pytest.raises(Temporary, match="failed with 500"):
        await github.scm(at_github).read([one.node_id for one in asked])
    assert 1_000 - sum(fault.left for fault in at_github.ledger.faults) < 2 * len(asked) - 1


async def test_long_issues_keep_no_others_from_being_listed(at_gitlab: GitLabServer, project: Project) -> None:
    at_gitlab.issue(project, "Genuine", "do it", by="rev")
    for number in range(20):
        at_gitlab.issue(project, f"Long {number}", LONG, by="eve")
    found = await gitlab.tracker(at_gitlab).list()
    assert len(found) == 21
    assert [one.title for one in found if one.author.write_access == "yes"] == ["Genuine"]


async def test_long_comments_keep_no_issue_from_being_read(at_gitlab: GitLabServer, project: Project) -> None:
    issue = at_gitlab.issue(project, "Genuine", "do it", by="rev")
    for _ in range(20):
        at_gitlab.comment(issue, LONG, by="eve")
    at_gitlab.comment(issue, "soon", by="rev")
    found = await gitlab.tracker(at_gitlab).get("1")
    assert len(found.comments) == 21 and found.comments[-1].body == "soon"


async def test_long_comments_hide_no_approval(at_gitlab: GitLabServer, project: Project) -> None:
    at_gitlab.push("acme/app", "fix", {"a.txt": "2\n"}, by="dev")
    pull = at_gitlab.pull("acme/app", "fix", "Fix it", by="dev")
    for _ in range(20):
        at_gitlab.comment(pull, LONG, by="eve")
    at_gitlab.review(pull, "APPROVE", by="rev")
    (found,) = await gitlab.scm(at_gitlab).read([gitlab.name(pull)])
    assert [(one.verdict, one.author.name) for one in found.reviews] == [("approved", "rev")]
    assert not found.unread


async def test_long_descriptions_of_merge_requests_keep_no_poll_from_being_made(
    at_gitlab: GitLabServer, project: Project
) -> None:
    for number in range(20):
        at_gitlab.push("acme/app", f"fix{number}", {"a.txt": f"2{number}\n"}, by="dev")
        at_gitlab.pull("acme/app", f"fix{number}", "Fix it", LONG, by="dev")
    known = [Known(1, f"{project.id}!1", "", False, 0.0)]
    hint = await gitlab.scm(at_gitlab).changed(known)
    assert 1 in hint.pulls
