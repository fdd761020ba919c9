"""The GitHub issues plugin against the test server."""

from __future__ import annotations

import pytest

from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols.forge import Tracker
from agent_orchestrator.testing.github import GitHubServer, Repo
from tests.forges.plugins.github import tracker

pytestmark = pytest.mark.anyio


@pytest.fixture
def repo(forge: GitHubServer) -> Repo:
    return forge.repository("acme/app", people={"dev": "write", "rev": "write"})


async def test_an_issue_is_read_with_its_comments_and_attachments(forge: GitHubServer, repo: Repo) -> None:
    issue = forge.issue(
        repo,
        "It breaks",
        "see ![shot](https://github.com/user-attachments/assets/1) and https://github.com/acme/app/files/12/log.txt",
        by="eve",
        labels=("bug",),
        association="NONE",
    )
    forge.comment(issue, "me too", by="rev", association="MEMBER")
    plugin = tracker(forge)
    assert isinstance(plugin, Tracker)
    comment_id = await plugin.comment("#1", "I work on it", "k:1")
    assert await tracker(forge).comment("GH-1", "I work on it", "k:1") == comment_id
    for reference in ("1", "#1", "gh-1", f"{forge.url}/acme/app/issues/1"):
        read_issue = await plugin.get(reference)
        assert (read_issue.id, read_issue.title, read_issue.state, read_issue.labels) == (
            "1",
            "It breaks",
            "open",
            ("bug",),
        )
    assert (read_issue.author.name, read_issue.author.write_access) == ("eve", "no")
    assert read_issue.attachments == (
        "https://github.com/user-attachments/assets/1",
        "https://github.com/acme/app/files/12/log.txt",
    )
    assert [
        (comment.body, comment.author.name, comment.author.kind, comment.author.write_access)
        for comment in read_issue.comments
    ] == [
        ("me too", "rev", "person", "yes"),
        ("I work on it", "dev", "agent", "yes"),
    ]
    assert read_issue.branch is None
    assert read_issue.updated_at > 0


@pytest.mark.parametrize("reference", ["nine", "LIN-3", "99", "https://other.example/o/n/issues/1"])
async def test_an_unknown_issue_reference_is_not_found(forge: GitHubServer, repo: Repo, reference: str) -> None:
    with pytest.raises(NotFound):
        await tracker(forge).get(reference)


async def test_a_pull_request_is_not_read_as_an_issue(forge: GitHubServer, repo: Repo) -> None:
    forge.push(repo, "x", {"x": "x"})
    forge.pull(repo, "x")
    with pytest.raises(NotFound, match="ao new --pr 1"):
        await tracker(forge).get("1")
    assert await tracker(forge).list() == []


async def test_an_issue_author_with_read_access_only_has_no_write_access(forge: GitHubServer, repo: Repo) -> None:
    repo.people["eve"] = "read"
    issue = forge.issue(repo, "Do this", by=forge.user("eve"), association="COLLABORATOR")
    forge.comment(issue, "and that", by="rev", association="MEMBER")
    plugin = tracker(forge)
    (listed_issue,) = await plugin.list()
    read_issue = await plugin.get("1")
    assert (listed_issue.author.write_access, read_issue.author.write_access) == ("no", "no")
    assert [comment.author.write_access for comment in read_issue.comments] == ["yes"]
    new_issue = await plugin.create("More")
    assert (new_issue.author.name, new_issue.author.write_access) == ("dev", "yes")
