"""The issue plugins of GitHub and GitLab against the test servers: what both have in common."""

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
class TrackerStage:
    """A forge, a repository with the members `dev` (whose token we have) and `rev`, and our plugin for it."""

    forge: Any
    repo: Any
    tracker: Callable[..., Tracker]

    def changes(self) -> int:
        """Return how many requests wrote to an issue."""
        return sum(request.method in ("PUT", "PATCH") for request in self.forge.ledger.requests)


@pytest.fixture(params=["github", "gitlab"])
def stage(request: pytest.FixtureRequest) -> Iterator[TrackerStage]:
    if request.param == "github":
        forge = request.getfixturevalue("forge")
        repo = forge.repository("acme/app", people={"dev": "write", "rev": "write"})
        yield TrackerStage(forge, repo, lambda **config: github.tracker(forge, **config))
        return
    with GitLabServer() as server:
        project = server.repository("acme/app", people={"dev": "developer", "rev": "developer"})
        yield TrackerStage(server, project, lambda **config: gitlab.tracker(server, **config))


async def test_issues_are_listed_by_filters_with_all_pages(stage: TrackerStage) -> None:
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
    for assignee in ("dev", "@me"):
        assert {issue.assignee for issue in await plugin.list(assignee=assignee)} == {"dev"}
    assert [issue.id for issue in await plugin.list(state="closed")] == ["120"]
    assert await plugin.list(since=4_000_000_000) == []


async def test_an_issue_follows_the_states_of_the_work(stage: TrackerStage) -> None:
    plugin = stage.tracker(labels={"inProgress": "doing", "inReview": "reviewing"})
    new_issue = await plugin.create("New", "body", ["bug"])
    assert (new_issue.id, new_issue.labels) == ("1", ("bug",))
    for _ in range(2):
        await plugin.change("1", IssueChange(state="in_progress", assignee="@me", add_labels=("x",)))
    issue = await plugin.get("1")
    assert (set(issue.labels), issue.assignee, issue.state) == ({"bug", "x", "doing"}, "dev", "open")
    for _ in range(2):
        await plugin.change("1", IssueChange(state="in_review", remove_labels=("x", "never")))
    assert set((await plugin.get("1")).labels) == {"bug", "reviewing"}
    for _ in range(2):
        await plugin.change("1", IssueChange(state="closed", assignee="", title="Done", body="done"))
    issue = await plugin.get("1")
    values = (issue.state, issue.title, issue.body, issue.labels, issue.assignee)
    assert values == ("closed", "Done", "done", ("bug",), None)
    await plugin.change("1", IssueChange(state="open", assignee="rev"))
    issue = await plugin.get("1")
    assert (issue.state, issue.assignee) == ("open", "rev")
    assert stage.changes() <= 7


async def test_states_without_a_configured_label_do_not_change_the_issue(stage: TrackerStage) -> None:
    stage.forge.issue(stage.repo, "x", labels=("bug",))
    plugin = stage.tracker()
    await plugin.change("1", IssueChange(state="in_progress"))
    issue = await plugin.get("1")
    assert (issue.state, issue.labels) == ("open", ("bug",))
    assert stage.changes() == 0


async def test_assigning_an_unknown_person_is_refused(stage: TrackerStage) -> None:
    stage.forge.issue(stage.repo, "x")
    with pytest.raises((UsageError, NotFound), match="nobody-there"):
        await stage.tracker().change("1", IssueChange(assignee="nobody-there"))


async def test_labels_that_are_not_a_mapping_are_refused(stage: TrackerStage) -> None:
    with pytest.raises(UsageError, match=r"tracker\.labels"):
        stage.tracker(labels=["x"])
