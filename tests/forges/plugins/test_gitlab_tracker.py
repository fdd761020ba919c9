"""GitLab's issues through our tracker, against the test server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols.forge import Tracker
from agent_orchestrator.testing.gitlab import GitLabServer, Project
from tests.forges.plugins.gitlab import tracker

pytestmark = pytest.mark.anyio


@pytest.fixture
def forge() -> Iterator[GitLabServer]:
    with GitLabServer() as server:
        yield server


@pytest.fixture
def repo(forge: GitLabServer) -> Project:
    return forge.repository("acme/app", people={"dev": "developer", "rev": "developer"})


async def test_an_issue_is_read_with_its_comments_and_attachments(forge: GitLabServer, repo: Project) -> None:
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
    said = await plugin.comment("#1", "I work on it", "k:1")
    assert await tracker(forge).comment("1", "I work on it", "k:1") == said
    for written in ("1", "#1", f"{forge.url}/acme/app/-/issues/1", f"{forge.url}/acme/app/-/work_items/1"):
        found = await plugin.get(written)
        assert (found.id, found.title, found.state, found.labels) == ("1", "It breaks", "open", ("bug",))
    assert (found.author.name, found.author.write_access) == ("eve", "no")
    assert found.attachments == (
        f"{forge.url}/-/project/{repo.id}/uploads/66dbcd21/shot.png",
        "https://example.com/far.png",
    )
    assert [(one.body, one.author.name, one.author.kind, one.author.write_access) for one in found.comments] == [
        ("me too", "rev", "person", "yes"),
        ("I work on it", "dev", "agent", "yes"),
    ]
    assert found.updated_at > 0


@pytest.mark.parametrize("written", ["nine", "LIN-3", "99", "https://other.example/o/n/-/issues/1"])
async def test_what_is_no_issue_is_not_found(forge: GitLabServer, repo: Project, written: str) -> None:
    with pytest.raises(NotFound):
        await tracker(forge).get(written)
