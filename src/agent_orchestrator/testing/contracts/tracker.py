"""The suite that every Tracker plugin must pass. To run it on yours:

    from agent_orchestrator.testing.contracts.tracker import TrackerContract

    class TestMyTracker(TrackerContract):
        @pytest.fixture
        def tracker(self, server) -> Tracker:
            return MyTracker({"url": server.url}, LocalHost())

The tracker is empty at first. `restarted` may return a second object for the same tracker, as after a restart of the daemon;
`absent` is the id of an issue that does not exist.
"""

from __future__ import annotations

import pytest

from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols.forge import IssueChange, Tracker, TrackerIssue

UNUSUAL_TEXT = 'ein Übel, 日本語, 🚀: it\'s a "test" & <b>more</b>'
FAR_FUTURE = 4_000_000_000.0
"""A time after every event of the suite."""


class TrackerContract:
    """Subclass it and define the fixture `tracker`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def tracker(self) -> Tracker:
        """The plugin under test."""
        raise NotImplementedError("give a fixture named `tracker`")

    @pytest.fixture
    def restarted(self, tracker: Tracker) -> Tracker:
        """The plugin as after a restart of the daemon; the same object by default."""
        return tracker

    @pytest.fixture
    def absent(self) -> str:
        """The id of an issue that does not exist."""
        return "999999"

    async def test_it_implements_the_tracker_protocol(self, tracker: Tracker) -> None:
        assert isinstance(tracker, Tracker), "let its class inherit from agent_orchestrator.protocols.Tracker"

    # -- read

    async def test_a_new_issue_is_read_back_unchanged(self, tracker: Tracker, restarted: Tracker) -> None:
        created = await tracker.create("Fix the login", "It fails.\n\nAlways.", ["bug"])
        fetched = await restarted.get(created.id)
        for issue in (created, fetched):
            assert isinstance(issue, TrackerIssue) and issue.id
            assert (issue.title, issue.body, issue.state) == ("Fix the login", "It fails.\n\nAlways.", "open")
            assert (issue.labels, issue.comments, issue.assignee) == (("bug",), (), None)
        assert fetched.id == created.id
        assert fetched.author.name
        assert fetched.updated_at > 0

    async def test_unicode_text_is_read_back_unchanged(self, tracker: Tracker) -> None:
        created = await tracker.create(UNUSUAL_TEXT)
        await tracker.comment(created.id, "ein Übel, 日本語, 🚀", "k")
        fetched = await tracker.get(created.id)
        assert fetched.title == UNUSUAL_TEXT
        assert [comment.body for comment in fetched.comments] == ["ein Übel, 日本語, 🚀"]

    async def test_issues_are_listed_by_labels_state_assignee_and_time(self, tracker: Tracker) -> None:
        first = await tracker.create("first", labels=["bug"])
        second = await tracker.create("second", labels=["bug", "ui"])
        third = await tracker.create("third")
        await tracker.change(third.id, IssueChange(state="closed"))
        assert {issue.id for issue in await tracker.list()} == {first.id, second.id}
        assert [issue.id for issue in await tracker.list(labels=["bug", "ui"])] == [second.id]
        assert [issue.id for issue in await tracker.list(state="closed")] == [third.id]
        assert {issue.id for issue in await tracker.list(state="all")} == {first.id, second.id, third.id}
        assert {issue.id for issue in await tracker.list(assignee="none")} == {first.id, second.id}
        assert await tracker.list(labels=["nobody-has-it"]) == []
        assert await tracker.list(since=FAR_FUTURE) == []

    async def test_a_missing_issue_is_named_in_the_error(self, tracker: Tracker, absent: str) -> None:
        for request in (
            tracker.get(absent),
            tracker.change(absent, IssueChange(state="closed")),
            tracker.comment(absent, "hello", "k"),
        ):
            with pytest.raises(NotFound) as caught:
                await request
            assert absent in str(caught.value)
            assert "\n" not in str(caught.value)

    # -- change

    async def test_a_repeated_change_has_no_further_effect(self, tracker: Tracker, restarted: Tracker) -> None:
        created = await tracker.create("Old", "old", ["bug"])
        change = IssueChange(title="New", body="new", add_labels=("ui", "bug"), remove_labels=("never",))
        for plugin in (tracker, tracker, restarted):
            await plugin.change(created.id, change)
        changed = await tracker.get(created.id)
        assert (changed.title, changed.body, set(changed.labels)) == ("New", "new", {"bug", "ui"})
        await tracker.change(created.id, IssueChange(remove_labels=("ui",)))
        assert (await tracker.get(created.id)).labels == ("bug",)

    async def test_fields_that_a_change_does_not_name_stay(self, tracker: Tracker) -> None:
        created = await tracker.create("Title", "body", ["bug"])
        await tracker.change(created.id, IssueChange(state="closed"))
        changed = await tracker.get(created.id)
        assert (changed.title, changed.body, changed.labels, changed.state) == ("Title", "body", ("bug",), "closed")

    async def test_states_of_work_do_not_close_an_issue(self, tracker: Tracker) -> None:
        created = await tracker.create("Do it")
        for state in ("in_progress", "in_review"):
            for _ in range(2):
                await tracker.change(created.id, IssueChange(state=state))
            assert (await tracker.get(created.id)).state == "open", f"{state} is not the end"
        for state in ("closed", "closed", "open", "open"):
            await tracker.change(created.id, IssueChange(state=state))
            assert (await tracker.get(created.id)).state == state

    # -- comments

    async def test_a_comment_is_added_once_per_key(self, tracker: Tracker, restarted: Tracker) -> None:
        created = await tracker.create("Talk")
        comment = await tracker.comment(created.id, "I am on it", "session:1")
        assert await tracker.comment(created.id, "I am on it", "session:1") == comment
        assert await restarted.comment(created.id, "in other words", "session:1") == comment
        other_comment = await restarted.comment(created.id, "done", "session:2")
        assert other_comment != comment
        fetched = await tracker.get(created.id)
        assert [(each.id, each.body) for each in fetched.comments] == [(comment, "I am on it"), (other_comment, "done")]
        assert {each.author.kind for each in fetched.comments} == {"agent"}, "our own comments are marked as ours"

    async def test_the_same_key_on_another_issue_is_another_comment(self, tracker: Tracker) -> None:
        first, second = await tracker.create("one"), await tracker.create("two")
        await tracker.comment(first.id, "hello", "k")
        await tracker.comment(second.id, "hello", "k")
        assert [len((await tracker.get(issue.id)).comments) for issue in (first, second)] == [1, 1]
