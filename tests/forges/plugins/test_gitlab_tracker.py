"""The GitLab issues plugin against the test server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols.forge import Tracker
from agent_orchestrator.testing.gitlab import GitLabProject, GitLabServer
from tests.forges.plugins.gitlab import tracker

pytestmark = pytest.mark.anyio


@pytest.fixture
def forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def repo(forge: GitLabServer) -> GitLabProject:
    return forge.repository("acme/app", people={"dev": "developer", "rev": "developer"})


async def test_an_issue_is_read_with_its_comments_and_attachments(forge: GitLabServer, repo: GitLabProject) -> None:
    issue = forge.issue(
        repo,
        "It breaks",
        "see ![shot](/uploads/66dbcd21/shot.png) and ![far](https://example.com/far.png)",
        by="eve",
        labels=("bug",),
    )
    forge.comment(issue, "me too", by="rev")
    plugin = tracker(forge)
    assert isinstance(plugin, Tracker)
    comment_id = await plugin.comment("#1", "I work on it", "k:1")
    assert await tracker(forge).comment("1", "I work on it", "k:1") == comment_id
    for reference in ("1", "#1", f"{forge.url}/acme/app/-/issues/1", f"{forge.url}/acme/app/-/work_items/1"):
        read_issue = await plugin.get(reference)
        assert (read_issue.id, read_issue.title, read_issue.state, read_issue.labels) == (
            "1",
            "It breaks",
            "open",
            ("bug",),
        )
    assert (read_issue.author.name, read_issue.author.write_access) == ("eve", "no")
    assert read_issue.attachments == (
        f"{forge.url}/-/project/{repo.id}/uploads/66dbcd21/shot.png",
        "https://example.com/far.png",
    )
    assert [
        (comment.body, comment.author.name, comment.author.kind, comment.author.write_access)
        for comment in read_issue.comments
    ] == [
        ("me too", "rev", "person", "yes"),
        ("I work on it", "dev", "agent", "yes"),
    ]
    assert read_issue.updated_at > 0


@pytest.mark.parametrize("reference", ["nine", "LIN-3", "99", "https://other.example/o/n/-/issues/1"])
async def test_an_unknown_issue_reference_is_not_found(
    forge: GitLabServer, repo: GitLabProject, reference: str
) -> None:
    with pytest.raises(NotFound):
        await tracker(forge).get(reference)
