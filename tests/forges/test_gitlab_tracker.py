"""GitLab's issues through our tracker, against the test server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.forge import IssueChange, Metered, Tracker
from agent_orchestrator.testing.gitlab import GitLabServer, Project

from .gitlab import tracker

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
    assert isinstance(plugin, Metered)
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


async def test_issues_are_listed_by_filters_with_all_pages(forge: GitLabServer, repo: Project) -> None:
    for number in range(120):
        labels = ("bug", "ui") if number % 2 else ("bug",)
        forge.issue(repo, f"n{number}", labels=labels, assignees=("dev",) if number < 10 else ())
    forge.close(repo.issues[120])
    plugin = tracker(forge)
    assert len(await plugin.list()) == 119
    assert (await plugin.list())[0].id == "119"
    assert (await plugin.list())[0].author.write_access == "yes"
    assert len(await plugin.list(labels=["bug", "ui"])) == 59
    assert len(await plugin.list(assignee="none")) == 109
    assert {issue.assignee for issue in await plugin.list(assignee="@me")} == {"dev"}
    assert [issue.id for issue in await plugin.list(state="closed")] == ["120"]
    assert await plugin.list(since=4_000_000_000) == []


async def test_work_moves_an_issue_along_by_one_request_each(forge: GitLabServer, repo: Project) -> None:
    plugin = tracker(forge, labels={"inProgress": "doing", "inReview": "reviewing"})
    made = await plugin.create("New", "body", ["bug"])
    assert (made.id, made.labels) == ("1", ("bug",))
    for _ in range(2):
        await plugin.change("1", IssueChange(state="in_progress", assignee="@me", add_labels=("x",)))
    found = await plugin.get("1")
    assert (set(found.labels), found.assignee, found.state) == ({"bug", "x", "doing"}, "dev", "open")
    for _ in range(2):
        await plugin.change("1", IssueChange(state="in_review", remove_labels=("x", "never")))
    assert set((await plugin.get("1")).labels) == {"bug", "reviewing"}
    for _ in range(2):
        await plugin.change("1", IssueChange(state="closed", assignee="", title="Done", body="done"))
    found = await plugin.get("1")
    assert (found.state, found.title, found.body, found.labels, found.assignee) == (
        "closed",
        "Done",
        "done",
        ("bug",),
        None,
    )
    await plugin.change("1", IssueChange(state="open", assignee="rev"))
    found = await plugin.get("1")
    assert (found.state, found.assignee) == ("open", "rev")
    assert len([one for one in forge.ledger.requests if one.method == "PUT"]) == 7


async def test_without_labels_for_them_states_between_leave_the_issue_alone(forge: GitLabServer, repo: Project) -> None:
    forge.issue(repo, "x", labels=("bug",))
    plugin = tracker(forge)
    await plugin.change("1", IssueChange(state="in_progress"))
    found = await plugin.get("1")
    assert (found.state, found.labels) == ("open", ("bug",))
    assert not [one for one in forge.ledger.requests if one.method == "PUT"]


async def test_who_cannot_be_assigned_is_told_of(forge: GitLabServer, repo: Project) -> None:
    forge.issue(repo, "x")
    with pytest.raises(UsageError, match="nobody-there"):
        await tracker(forge).change("1", IssueChange(assignee="nobody-there"))


def test_labels_must_be_a_map(forge: GitLabServer) -> None:
    with pytest.raises(UsageError, match=r"tracker\.labels"):
        tracker(forge, labels=["x"])
