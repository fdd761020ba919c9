"""GitHub's issues through our tracker, against the test server."""

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
    said = await plugin.comment("#1", "I work on it", "k:1")
    assert await tracker(forge).comment("GH-1", "I work on it", "k:1") == said
    for written in ("1", "#1", "gh-1", f"{forge.url}/acme/app/issues/1"):
        found = await plugin.get(written)
        assert (found.id, found.title, found.state, found.labels) == ("1", "It breaks", "open", ("bug",))
    assert (found.author.name, found.author.write_access) == ("eve", "no")
    assert found.attachments == (
        "https://github.com/user-attachments/assets/1",
        "https://github.com/acme/app/files/12/log.txt",
    )
    assert [(one.body, one.author.name, one.author.kind, one.author.write_access) for one in found.comments] == [
        ("me too", "rev", "person", "yes"),
        ("I work on it", "dev", "agent", "yes"),
    ]
    assert found.branch is None
    assert found.updated_at > 0


@pytest.mark.parametrize("written", ["nine", "LIN-3", "99", "https://other.example/o/n/issues/1"])
async def test_what_is_no_issue_is_not_found(forge: GitHubServer, repo: Repo, written: str) -> None:
    with pytest.raises(NotFound):
        await tracker(forge).get(written)


async def test_a_pull_request_is_no_issue(forge: GitHubServer, repo: Repo) -> None:
    forge.push(repo, "x", {"x": "x"})
    forge.pull(repo, "x")
    with pytest.raises(NotFound, match="ao new --pr 1"):
        await tracker(forge).get("1")
    assert await tracker(forge).list() == []


async def test_an_issue_of_a_collaborator_who_may_only_read_is_a_strangers(forge: GitHubServer, repo: Repo) -> None:
    repo.people["eve"] = "read"
    issue = forge.issue(repo, "Do this", by=forge.user("eve"), association="COLLABORATOR")
    forge.comment(issue, "and that", by="rev", association="MEMBER")
    plugin = tracker(forge)
    (listed,) = await plugin.list()
    found = await plugin.get("1")
    assert (listed.author.write_access, found.author.write_access) == ("no", "no")
    assert [one.author.write_access for one in found.comments] == ["yes"]
    made = await plugin.create("More")
    assert (made.author.name, made.author.write_access) == ("dev", "yes")
