"""Issues of forges through our trackers, against the test servers: what is the same for GitHub and GitLab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.protocols.forge import IssueChange, Tracker
from agent_orchestrator.testing.gitlab import GitLabServer
from tests.forges.plugins import github, gitlab

pytestmark = pytest.mark.anyio


@dataclass
class Stage:
    """A forge, a repository with `dev` (whose token we have) and `rev`, and our plugin for it."""

    forge: Any
    repo: Any
    tracker: Callable[..., Tracker]

    def changes(self) -> int:
        """How often an issue was written to."""
        return sum(one.method in ("PUT", "PATCH") for one in self.forge.ledger.requests)


@pytest.fixture(params=["github", "gitlab"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "github":
        forge = request.getfixturevalue("forge")
        repo = forge.repository("acme/app", people={"dev": "write", "rev": "write"})
        yield Stage(forge, repo, lambda **config: github.tracker(forge, **config))
        return
    with GitLabServer() as server:
        project = server.repository("acme/app", people={"dev": "developer", "rev": "developer"})
        yield Stage(server, project, lambda **config: gitlab.tracker(server, **config))


async def test_issues_are_listed_by_filters_with_all_pages(stage: Stage) -> None:
    for number in range(120):
        labels = ("bug", "ui") if number % 2 else ("bug",)
        stage.forge.issue(stage.repo, f"n{number}", labels=labels, assignees=("dev",) if number < 10 else ())
    stage.forge.close(stage.repo.issues[120])
    plugin = stage.tracker()
    assert len(await plugin.list()) == 119
    assert (await plugin.list())[0].id == "119"
    assert (await plugin.list())[0].author.write_access == "yes"
    assert len(await plugin.list(labels=["bug", "ui"])) == 59
    assert len(await plugin.list(assignee="none")) == 109
    for mine in ("dev", "@me"):
        assert {issue.assignee for issue in await plugin.list(assignee=mine)} == {"dev"}
    assert [issue.id for issue in await plugin.list(state="closed")] == ["120"]
    assert await plugin.list(since=4_000_000_000) == []


async def test_work_moves_an_issue_along(stage: Stage) -> None:
    plugin = stage.tracker(labels={"inProgress": "doing", "inReview": "reviewing"})
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
    shown = (found.state, found.title, found.body, found.labels, found.assignee)
    assert shown == ("closed", "Done", "done", ("bug",), None)
    await plugin.change("1", IssueChange(state="open", assignee="rev"))
    found = await plugin.get("1")
    assert (found.state, found.assignee) == ("open", "rev")
    assert stage.changes() <= 7


async def test_without_labels_for_them_states_between_leave_the_issue_alone(stage: Stage) -> None:
    stage.forge.issue(stage.repo, "x", labels=("bug",))
    plugin = stage.tracker()
    await plugin.change("1", IssueChange(state="in_progress"))
    found = await plugin.get("1")
    assert (found.state, found.labels) == ("open", ("bug",))
    assert stage.changes() == 0


async def test_who_cannot_be_assigned_is_told_of(stage: Stage) -> None:
    stage.forge.issue(stage.repo, "x")
    with pytest.raises((UsageError, NotFound), match="nobody-there"):
        await stage.tracker().change("1", IssueChange(assignee="nobody-there"))


async def test_labels_must_be_a_map(stage: Stage) -> None:
    with pytest.raises(UsageError, match=r"tracker\.labels"):
        stage.tracker(labels=["x"])
