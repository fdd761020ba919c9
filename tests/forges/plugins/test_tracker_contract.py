"""What every tracker plugin does: the same tests for Linear, Jira Cloud and a Jira server, each on its test server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from agent_orchestrator.errors import Denied, NotFound, Temporary, UsageError
from agent_orchestrator.protocols.forge import Author, IssueChange, Tracker
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.plugins.trackers import JiraBench, LinearBench, TrackerBench
from tests.forges.published.linear_types import write_schema

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["linear", "jira cloud", "jira server"])
def bench(request: pytest.FixtureRequest, clock: Clock) -> Iterator[TrackerBench[Any]]:
    tracker_bench: TrackerBench[Any]
    if request.param == "linear":
        pytest.importorskip("graphql", reason="graphql-core is not installed: make test-forges")
        tracker_bench = LinearBench(write_schema(published(fetch.LINEAR)), clock)
    else:
        tracker_bench = JiraBench(3 if request.param == "jira cloud" else 2, clock)
    with tracker_bench.server:
        yield tracker_bench


def _lower_name(author: Author) -> str:
    """Return the name in lower case, without the account that is added to names of strangers."""
    return author.name.lower().partition(" (")[0]


async def test_an_issue_is_read_with_its_comments_and_attachments(bench: TrackerBench[Any]) -> None:
    issue = bench.issue("It breaks", "see the log", by="eve", labels=("bug",))
    link = bench.attach(issue)
    bench.comment(issue, "me too", by="rev")
    bench.comment(issue, "and me", by="eve")
    plugin = bench.plugin()
    assert isinstance(plugin, Tracker)
    for reference in (f"{bench.prefix}-1", f"{bench.prefix.lower()}-1", "1", "#1"):
        read_issue = await plugin.get(reference)
        assert (read_issue.id, read_issue.title, read_issue.body) == (f"{bench.prefix}-1", "It breaks", "see the log")
    assert (read_issue.state, read_issue.labels, read_issue.assignee) == ("open", ("bug",), None)
    assert (_lower_name(read_issue.author), read_issue.author.kind, read_issue.author.write_access) == (
        "eve",
        "person",
        "no",
    )
    if isinstance(bench, JiraBench):
        assert read_issue.author.name.endswith(")"), "display names can be chosen freely there"
    assert link in read_issue.attachments
    assert [
        (comment.body, _lower_name(comment.author), comment.author.kind, comment.author.write_access)
        for comment in read_issue.comments
    ] == [
        ("me too", "rev", "person", "yes"),
        ("and me", "eve", "person", "no"),
    ]
    assert read_issue.updated_at > 0
    assert read_issue.url is not None
    assert (await plugin.get(read_issue.url)).id == read_issue.id
    assert (read_issue.branch is not None) == (bench.name == "linear")


@pytest.mark.parametrize("reference", ["nine", "XYZ-99999", "99999", "https://other.example/nothing"])
async def test_an_unknown_issue_reference_is_not_found(bench: TrackerBench[Any], reference: str) -> None:
    with pytest.raises(NotFound):
        await bench.plugin().get(reference)


async def test_issues_are_listed_by_filters_with_all_pages(bench: TrackerBench[Any], clock: Clock) -> None:
    for number in range(300):
        clock.now += 1
        labels = ("bug", "ui") if number % 2 else ("bug",)
        bench.issue(f"n{number}", labels=labels, assignee="dev" if number < 10 else "rev" if number < 20 else "")
    bench.move(bench.issue("done"), "Done")
    plugin = bench.plugin()
    issues = await plugin.list()
    assert [issue.id for issue in issues] == [f"{bench.prefix}-{number}" for number in range(300, 0, -1)]
    assert len(await plugin.list(labels=["bug", "ui"])) == 150
    assert await plugin.list(labels=["bug", "none such"]) == []
    assert len(await plugin.list(assignee="none")) == 280
    assert len(await plugin.list(assignee="@me")) == 10
    assert {str(issue.assignee).lower() for issue in await plugin.list(assignee="rev")} == {"rev"}
    assert [issue.id for issue in await plugin.list(state="closed")] == [f"{bench.prefix}-301"]
    assert len(await plugin.list(state="all")) == 301


async def test_only_issues_changed_since_the_given_time_are_listed(bench: TrackerBench[Any], clock: Clock) -> None:
    old, young = bench.issue("old"), bench.issue("young")
    clock.now += 600
    since = clock.now
    plugin = bench.plugin()
    assert await plugin.list(since=since) == []
    bench.comment(old, "again", by="rev")
    assert [issue.title for issue in await plugin.list(since=since)] == ["old"]
    clock.now += 30
    bench.label(young, "bug")
    assert {issue.title for issue in await plugin.list(since=since)} == {"old", "young"}
    assert await plugin.list(since=clock.now + 1) == []


async def test_an_issue_follows_the_states_of_the_work(bench: TrackerBench[Any]) -> None:
    plugin = bench.plugin()
    new_issue = await plugin.create("New", "body\n\n- one\n- two", ["bug"])
    assert (new_issue.id, new_issue.title, new_issue.labels, new_issue.state) == (
        f"{bench.prefix}-1",
        "New",
        ("bug",),
        "open",
    )
    issue = bench.team.issues[0] if isinstance(bench, LinearBench) else bench.project.issues[0]  # type: ignore[attr-defined]
    for _ in range(2):
        await plugin.change(new_issue.id, IssueChange(state="in_progress", assignee="@me", add_labels=("x", "bug")))
        assert bench.status(issue) == "In Progress"
    read_issue = await plugin.get(new_issue.id)
    assert (set(read_issue.labels), str(read_issue.assignee).lower(), read_issue.state) == ({"bug", "x"}, "dev", "open")
    for _ in range(2):
        await plugin.change(new_issue.id, IssueChange(state="in_review", remove_labels=("x", "never")))
        assert bench.status(issue) == "In Review"
    assert (await plugin.get(new_issue.id)).labels == ("bug",)
    for _ in range(2):
        await plugin.change(new_issue.id, IssueChange(state="closed", assignee="", title="Was new", body="done"))
        assert bench.status(issue) == "Done"
    read_issue = await plugin.get(new_issue.id)
    assert (read_issue.state, read_issue.title, read_issue.body, read_issue.assignee) == (
        "closed",
        "Was new",
        "done",
        None,
    )
    await plugin.change(new_issue.id, IssueChange(state="open", assignee="rev"))
    read_issue = await plugin.get(new_issue.id)
    assert (read_issue.state, str(read_issue.assignee).lower()) == ("open", "rev")
    await plugin.change(new_issue.id, IssueChange(state="in_review"))
    await plugin.change(new_issue.id, IssueChange(state="in_progress"))
    assert bench.status(issue) == "In Progress"


async def test_an_issue_in_the_wanted_state_is_not_changed(bench: TrackerBench[Any]) -> None:
    issue = bench.issue("x")
    bench.move(issue, "In Review")
    bench.server.hook("http://127.0.0.1:9/", "s")
    await bench.plugin().change("1", IssueChange(state="in_review"))
    assert bench.server.hooks.sent == []


async def test_states_have_the_names_that_the_configuration_gives(bench: TrackerBench[Any]) -> None:
    issue = bench.issue("x")
    plugin = bench.plugin(states={"inProgress": "in review", "closed": "In Progress"})
    await plugin.change("1", IssueChange(state="in_progress"))
    assert bench.status(issue) == "In Review"
    await plugin.change("1", IssueChange(state="closed"))
    assert bench.status(issue) == "In Progress"
    with pytest.raises(UsageError, match=r"Nowhere|in_review"):
        await bench.plugin(states={"inReview": "Nowhere"}).change("1", IssueChange(state="in_review"))
    with pytest.raises(UsageError, match=r"tracker\.states"):
        bench.plugin(states=["x"])


async def test_assigning_an_unknown_person_is_refused(bench: TrackerBench[Any]) -> None:
    bench.issue("x")
    with pytest.raises(UsageError, match="nobody"):
        await bench.plugin().change("1", IssueChange(assignee="nobody-there"))


async def test_a_comment_is_posted_once_per_key(bench: TrackerBench[Any]) -> None:
    issue = bench.issue("x")
    plugin = bench.plugin()
    comment_id = await plugin.comment("1", "see https://ao.example/1 and `code`", "k:1")
    assert await plugin.comment("1", "see https://ao.example/1 and `code`", "k:1") == comment_id
    assert await bench.plugin().comment("1", "another text", "k:1") == comment_id
    assert await plugin.comment("1", "two", "k:2") != comment_id
    assert len(issue.comments) == 2
    read_issue = await plugin.get("1")
    assert [(comment.body, comment.author.kind) for comment in read_issue.comments] == [
        ("see https://ao.example/1 and `code`", "agent"),
        ("two", "agent"),
    ]
    assert read_issue.comments[0].id == comment_id


@pytest.mark.parametrize("fault_kind", ["lost", "cut", 500])
async def test_a_comment_is_posted_once_even_if_the_response_was_lost(
    bench: TrackerBench[Any], fault_kind: int | str
) -> None:
    issue = bench.issue("x")
    bench.server.fail(fault_kind, path=bench.posts, method="POST")
    try:
        first = await bench.plugin().comment("1", "hello", "k:1")
    except Temporary:
        first = ""
    second = await bench.plugin().comment("1", "hello", "k:1")
    assert first in ("", second)
    assert len(issue.comments) == 1


async def test_our_mark_in_another_persons_comment_is_ignored(bench: TrackerBench[Any]) -> None:
    issue = bench.issue("x")
    other = await bench.plugin("rev").comment("1", "hello", "k:1")
    read_issue = await bench.plugin().get("1")
    assert [comment.author.kind for comment in read_issue.comments] == ["person"]
    if bench.name != "linear":  # there an id is taken once, by whomsoever
        assert await bench.plugin().comment("1", "hello", "k:1") != other
        assert len(issue.comments) == 2


async def test_a_thousand_comments_are_read_in_order(bench: TrackerBench[Any], clock: Clock) -> None:
    issue = bench.issue("x")
    for number in range(1000):
        clock.now += 1
        bench.comment(issue, f"c{number}", by="rev")
    plugin = bench.plugin()
    comment_id = await plugin.comment("1", "here", "k:1")
    assert await plugin.comment("1", "here", "k:1") == comment_id
    read_issue = await plugin.get("1")
    assert [comment.body for comment in read_issue.comments] == [*(f"c{number}" for number in range(1000)), "here"]


async def test_a_wrong_token_is_refused_without_showing_it(bench: TrackerBench[Any]) -> None:
    bench.issue("x")
    with pytest.raises(Denied, match=r"tracker\.token") as caught:
        await bench.plugin(token="lin_api_wrong_secret").get("1")
    assert "wrong_secret" not in str(caught.value)
    assert caught.value.remedy


async def test_a_missing_token_is_refused_with_a_remedy(
    bench: TrackerBench[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LINEAR_API_KEY", "JIRA_API_TOKEN", "JIRA_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Denied, match="there is no token") as caught:
        await bench.plugin(token=None).get("1")
    assert "LINEAR_API_KEY" in caught.value.remedy or "JIRA_API_TOKEN" in caught.value.remedy


async def test_no_request_is_made_until_the_rate_limit_resets(bench: TrackerBench[Any], clock: Clock) -> None:
    bench.issue("x")
    plugin = bench.plugin()
    await plugin.get("1")
    bench.server.fail("rate")
    with pytest.raises(Temporary, match="takes no more requests before") as caught:
        await plugin.get("1")
    assert caught.value.until is not None
    assert clock.now < caught.value.until <= clock.now + 3600
    request_count = len(bench.server.ledger.requests)
    with pytest.raises(Temporary):
        await plugin.list()
    assert len(bench.server.ledger.requests) == request_count
    assert plugin.pause() > 0
    assert any("left" in line for line in plugin.budget())
    clock.now = caught.value.until + 1
    assert (await plugin.get("1")).title == "x"


@pytest.mark.parametrize("fault_kind", [500, 502, 503, "html", "drop", "cut"])
async def test_a_single_failed_request_is_retried_or_gives_a_temporary_error(
    bench: TrackerBench[Any], fault_kind: int | str
) -> None:
    bench.issue("x")
    plugin = bench.plugin()
    bench.server.fail(fault_kind)
    try:
        assert (await plugin.get("1")).title == "x"
    except Temporary:
        assert fault_kind == 500
    assert (await plugin.get("1")).title == "x"


async def test_an_unreachable_server_is_a_temporary_error(bench: TrackerBench[Any]) -> None:
    bench.issue("x")
    plugin = bench.plugin()
    await plugin.get("1")
    bench.server.down()
    with pytest.raises(Temporary, match="could not be asked"):
        await plugin.get("1")
    bench.server.up()
    assert (await plugin.get("1")).title == "x"


@pytest.mark.parametrize("status", [403, 404])
async def test_a_refused_request_raises_an_error(bench: TrackerBench[Any], status: int) -> None:
    bench.issue("x")
    bench.server.fail(status)
    with pytest.raises((Denied, NotFound)):
        await bench.plugin().get("1")


async def test_texts_that_are_too_long_are_cut(bench: TrackerBench[Any]) -> None:
    plugin = bench.plugin()
    new_issue = await plugin.create("t" * 1000, "long " * 30_000)
    assert len(new_issue.title) == 250
    assert "… (cut)" in (await plugin.get(new_issue.id)).body
    await plugin.comment(new_issue.id, "long " * 30_000, "k")
    assert "… (cut)" in (await plugin.get(new_issue.id)).comments[0].body


@pytest.mark.parametrize("change", ["comment", "label", "move", "create"])
def test_the_webhook_of_a_change_names_the_issue(bench: TrackerBench[Any], clock: Clock, change: str) -> None:
    issue = bench.issue("x")
    bench.server.hook("http://127.0.0.1:9/", "s3cret")
    if change == "comment":
        bench.comment(issue, "hello", by="rev")
    elif change == "label":
        bench.label(issue, "bug")
    elif change == "move":
        bench.move(issue, "Done")
    else:
        bench.issue("another")
    issue_id = f"{bench.prefix}-{2 if change == 'create' else 1}"
    hints = []
    for sent in bench.server.hooks.sent:
        body, headers = bench.server.signed(sent)
        assert bench.hooks.verify(headers, body, ["another"]) is None
        assert bench.hooks.verify(headers, body + b" ", ["s3cret"]) is None
        delivery = bench.hooks.verify(headers, body, ["another", "s3cret"])
        assert delivery is not None
        assert (delivery.id, delivery.kind, delivery.at) == (sent.id, sent.event, clock.now)
        hints.append(bench.hooks.hint(delivery))
    assert [(hint.repo, hint.issues) for hint in hints if hint] == [(bench.prefix, (issue_id,))]
