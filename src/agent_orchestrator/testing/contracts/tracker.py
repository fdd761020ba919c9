"""What every Tracker plugin must do. Yours too:

    from agent_orchestrator.testing.contracts.tracker import TrackerContract

    class TestMyTracker(TrackerContract):
        @pytest.fixture
        def tracker(self, server) -> Tracker:
            return MyTracker({"url": server.url}, LocalHost())

It begins without issues. `restarted` may give a second object for the same place, as the daemon makes one when it is started again;
`absent` names an issue that there is not.
"""

from __future__ import annotations

import pytest

from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols.forge import Issue, IssueChange, Tracker

ODD = 'ein Übel, 日本語, 🚀: it\'s a "test" & <b>more</b>'
LATER = 4_000_000_000.0
"""A time that nothing here happened after."""


class TrackerContract:
    """Subclass it and give the fixture `tracker`."""

    pytestmark = pytest.mark.anyio

    @pytest.fixture
    def tracker(self) -> Tracker:
        """The plugin under test."""
        raise NotImplementedError("give a fixture named `tracker`")

    @pytest.fixture
    def restarted(self, tracker: Tracker) -> Tracker:
        """The plugin as after a restart of the daemon; the same object where there is no other."""
        return tracker

    @pytest.fixture
    def absent(self) -> str:
        """An issue that there is not."""
        return "999999"

    def test_it_has_the_shape_of_a_tracker(self, tracker: Tracker) -> None:
        assert isinstance(tracker, Tracker), "let its class inherit from agent_orchestrator.protocols.Tracker"

    # -- read

    async def test_a_new_issue_is_found_as_it_was_made(self, tracker: Tracker, restarted: Tracker) -> None:
        made = await tracker.create("Fix the login", "It fails.\n\nAlways.", ["bug"])
        found = await restarted.get(made.id)
        for issue in (made, found):
            assert isinstance(issue, Issue) and issue.id
            assert (issue.title, issue.body, issue.state) == ("Fix the login", "It fails.\n\nAlways.", "open")
            assert (issue.labels, issue.comments, issue.assignee) == (("bug",), (), None)
        assert found.id == made.id
        assert found.author.name
        assert found.updated_at > 0

    async def test_words_stay_as_they_are(self, tracker: Tracker) -> None:
        made = await tracker.create(ODD)
        await tracker.comment(made.id, "ein Übel, 日本語, 🚀", "k")
        found = await tracker.get(made.id)
        assert found.title == ODD
        assert [one.body for one in found.comments] == ["ein Übel, 日本語, 🚀"]

    async def test_issues_are_listed_by_what_is_asked_for(self, tracker: Tracker) -> None:
        first = await tracker.create("first", labels=["bug"])
        second = await tracker.create("second", labels=["bug", "ui"])
        third = await tracker.create("third")
        await tracker.change(third.id, IssueChange(state="closed"))
        assert {one.id for one in await tracker.list()} == {first.id, second.id}
        assert [one.id for one in await tracker.list(labels=["bug", "ui"])] == [second.id]
        assert [one.id for one in await tracker.list(state="closed")] == [third.id]
        assert {one.id for one in await tracker.list(state="all")} == {first.id, second.id, third.id}
        assert {one.id for one in await tracker.list(assignee="none")} == {first.id, second.id}
        assert await tracker.list(labels=["nobody-has-it"]) == []
        assert await tracker.list(since=LATER) == []

    async def test_an_issue_that_is_not_there_is_named(self, tracker: Tracker, absent: str) -> None:
        for asking in (
            tracker.get(absent),
            tracker.change(absent, IssueChange(state="closed")),
            tracker.comment(absent, "hello", "k"),
        ):
            with pytest.raises(NotFound) as caught:
                await asking
            assert absent in str(caught.value)
            assert "\n" not in str(caught.value)

    # -- change

    async def test_a_change_may_be_repeated(self, tracker: Tracker, restarted: Tracker) -> None:
        made = await tracker.create("Old", "old", ["bug"])
        change = IssueChange(title="New", body="new", add_labels=("ui", "bug"), remove_labels=("never",))
        for plugin in (tracker, tracker, restarted):
            await plugin.change(made.id, change)
        found = await tracker.get(made.id)
        assert (found.title, found.body, set(found.labels)) == ("New", "new", {"bug", "ui"})
        await tracker.change(made.id, IssueChange(remove_labels=("ui",)))
        assert (await tracker.get(made.id)).labels == ("bug",)

    async def test_what_is_not_named_stays(self, tracker: Tracker) -> None:
        made = await tracker.create("Title", "body", ["bug"])
        await tracker.change(made.id, IssueChange(state="closed"))
        found = await tracker.get(made.id)
        assert (found.title, found.body, found.labels, found.state) == ("Title", "body", ("bug",), "closed")

    async def test_work_moves_an_issue_along(self, tracker: Tracker) -> None:
        made = await tracker.create("Do it")
        for state in ("in_progress", "in_review"):
            for _ in range(2):
                await tracker.change(made.id, IssueChange(state=state))
            assert (await tracker.get(made.id)).state == "open", f"{state} is not the end"
        for state in ("closed", "closed", "open", "open"):
            await tracker.change(made.id, IssueChange(state=state))
            assert (await tracker.get(made.id)).state == state

    # -- say

    async def test_a_comment_is_made_once_for_a_key(self, tracker: Tracker, restarted: Tracker) -> None:
        made = await tracker.create("Talk")
        said = await tracker.comment(made.id, "I am on it", "session:1")
        assert await tracker.comment(made.id, "I am on it", "session:1") == said
        assert await restarted.comment(made.id, "in other words", "session:1") == said
        other = await restarted.comment(made.id, "done", "session:2")
        assert other != said
        found = await tracker.get(made.id)
        assert [(one.id, one.body) for one in found.comments] == [(said, "I am on it"), (other, "done")]
        assert {one.author.kind for one in found.comments} == {"agent"}, "what we say ourselves is never news to us"

    async def test_the_same_key_on_another_issue_is_another_comment(self, tracker: Tracker) -> None:
        one, two = await tracker.create("one"), await tracker.create("two")
        await tracker.comment(one.id, "hello", "k")
        await tracker.comment(two.id, "hello", "k")
        assert [len((await tracker.get(issue.id)).comments) for issue in (one, two)] == [1, 1]
