"""What every tracker of ours does alike: the same tests for Linear, Jira's cloud and a Jira server, each on its test server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from agent_orchestrator.errors import Denied, NotFound, Temporary, UsageError
from agent_orchestrator.protocols.forge import Author, IssueChange, Tracker
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.plugins.trackers import Bench, JiraBench, LinearBench
from tests.forges.published.linear_types import written

pytestmark = pytest.mark.anyio


class Clock:
    """A clock that stands, until it is told to go on."""

    def __init__(self) -> None:
        self.now = float(int(time.time()))

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["linear", "jira cloud", "jira server"])
def bench(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Bench[Any]]:
    made: Bench[Any]
    if request.param == "linear":
        pytest.importorskip("graphql", reason="graphql-core is not installed: make test-forges")
        made = LinearBench(written(published(fetch.LINEAR)), clock)
    else:
        made = JiraBench(3 if request.param == "jira cloud" else 2, clock)
    with made.server:
        yield made


def _called(author: Author) -> str:
    """A name; strangers whose name is theirs to choose are told apart by their account."""
    return author.name.lower().partition(" (")[0]


async def test_an_issue_is_read_with_its_comments_and_attachments(bench: Bench[Any]) -> None:
    issue = bench.issue("It breaks", "see the log", by="eve", labels=("bug",))
    link = bench.attach(issue)
    bench.comment(issue, "me too", by="rev")
    bench.comment(issue, "and me", by="eve")
    plugin = bench.plugin()
    assert isinstance(plugin, Tracker)
    for name in (f"{bench.prefix}-1", f"{bench.prefix.lower()}-1", "1", "#1"):
        found = await plugin.get(name)
        assert (found.id, found.title, found.body) == (f"{bench.prefix}-1", "It breaks", "see the log")
    assert (found.state, found.labels, found.assignee) == ("open", ("bug",), None)
    assert (_called(found.author), found.author.kind, found.author.write_access) == ("eve", "person", "no")
    if isinstance(bench, JiraBench):
        assert found.author.name.endswith(")"), "anybody may call himself Eve there"
    assert link in found.attachments
    assert [(one.body, _called(one.author), one.author.kind, one.author.write_access) for one in found.comments] == [
        ("me too", "rev", "person", "yes"),
        ("and me", "eve", "person", "no"),
    ]
    assert found.updated_at > 0
    assert found.url is not None
    assert (await plugin.get(found.url)).id == found.id
    assert (found.branch is not None) == (bench.name == "linear")


@pytest.mark.parametrize("written_as", ["nine", "XYZ-99999", "99999", "https://other.example/nothing"])
async def test_what_is_no_issue_is_not_found(bench: Bench[Any], written_as: str) -> None:
    with pytest.raises(NotFound):
        await bench.plugin().get(written_as)


async def test_issues_are_listed_by_filters_with_all_pages(bench: Bench[Any], clock: Clock) -> None:
    for number in range(300):
        clock.now += 1
        labels = ("bug", "ui") if number % 2 else ("bug",)
        bench.issue(f"n{number}", labels=labels, assignee="dev" if number < 10 else "rev" if number < 20 else "")
    bench.move(bench.issue("done"), "Done")
    plugin = bench.plugin()
    found = await plugin.list()
    assert [one.id for one in found] == [f"{bench.prefix}-{number}" for number in range(300, 0, -1)]
    assert len(await plugin.list(labels=["bug", "ui"])) == 150
    assert await plugin.list(labels=["bug", "none such"]) == []
    assert len(await plugin.list(assignee="none")) == 280
    assert len(await plugin.list(assignee="@me")) == 10
    assert {str(one.assignee).lower() for one in await plugin.list(assignee="rev")} == {"rev"}
    assert [one.id for one in await plugin.list(state="closed")] == [f"{bench.prefix}-301"]
    assert len(await plugin.list(state="all")) == 301


async def test_only_what_changed_since_is_listed(bench: Bench[Any], clock: Clock) -> None:
    old, young = bench.issue("old"), bench.issue("young")
    clock.now += 600
    since = clock.now
    plugin = bench.plugin()
    assert await plugin.list(since=since) == []
    bench.comment(old, "again", by="rev")
    assert [one.title for one in await plugin.list(since=since)] == ["old"]
    clock.now += 30
    bench.label(young, "bug")
    assert {one.title for one in await plugin.list(since=since)} == {"old", "young"}
    assert await plugin.list(since=clock.now + 1) == []


async def test_work_moves_an_issue_along(bench: Bench[Any]) -> None:
    plugin = bench.plugin()
    made = await plugin.create("New", "body\n\n- one\n- two", ["bug"])
    assert (made.id, made.title, made.labels, made.state) == (f"{bench.prefix}-1", "New", ("bug",), "open")
    issue = bench.team.issues[0] if isinstance(bench, LinearBench) else bench.project.issues[0]  # type: ignore[attr-defined]
    for _ in range(2):
        await plugin.change(made.id, IssueChange(state="in_progress", assignee="@me", add_labels=("x", "bug")))
        assert bench.status(issue) == "In Progress"
    found = await plugin.get(made.id)
    assert (set(found.labels), str(found.assignee).lower(), found.state) == ({"bug", "x"}, "dev", "open")
    for _ in range(2):
        await plugin.change(made.id, IssueChange(state="in_review", remove_labels=("x", "never")))
        assert bench.status(issue) == "In Review"
    assert (await plugin.get(made.id)).labels == ("bug",)
    for _ in range(2):
        await plugin.change(made.id, IssueChange(state="closed", assignee="", title="Was new", body="done"))
        assert bench.status(issue) == "Done"
    found = await plugin.get(made.id)
    assert (found.state, found.title, found.body, found.assignee) == ("closed", "Was new", "done", None)
    await plugin.change(made.id, IssueChange(state="open", assignee="rev"))
    found = await plugin.get(made.id)
    assert (found.state, str(found.assignee).lower()) == ("open", "rev")
    await plugin.change(made.id, IssueChange(state="in_review"))
    await plugin.change(made.id, IssueChange(state="in_progress"))
    assert bench.status(issue) == "In Progress"


async def test_what_is_so_already_is_not_touched(bench: Bench[Any]) -> None:
    issue = bench.issue("x")
    bench.move(issue, "In Review")
    bench.server.hook("http://127.0.0.1:9/", "s")
    await bench.plugin().change("1", IssueChange(state="in_review"))
    assert bench.server.hooks.sent == []


async def test_states_have_the_names_that_the_project_gives_them(bench: Bench[Any]) -> None:
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


async def test_who_cannot_be_assigned_is_told_of(bench: Bench[Any]) -> None:
    bench.issue("x")
    with pytest.raises(UsageError, match="nobody"):
        await bench.plugin().change("1", IssueChange(assignee="nobody-there"))


async def test_a_comment_is_made_once(bench: Bench[Any]) -> None:
    issue = bench.issue("x")
    plugin = bench.plugin()
    said = await plugin.comment("1", "see https://ao.example/1 and `code`", "k:1")
    assert await plugin.comment("1", "see https://ao.example/1 and `code`", "k:1") == said
    assert await bench.plugin().comment("1", "another text", "k:1") == said
    assert await plugin.comment("1", "two", "k:2") != said
    assert len(issue.comments) == 2
    found = await plugin.get("1")
    assert [(one.body, one.author.kind) for one in found.comments] == [
        ("see https://ao.example/1 and `code`", "agent"),
        ("two", "agent"),
    ]
    assert found.comments[0].id == said


@pytest.mark.parametrize("how", ["lost", "cut", 500])
async def test_a_comment_is_made_once_though_its_answer_was_lost(bench: Bench[Any], how: int | str) -> None:
    issue = bench.issue("x")
    bench.server.fail(how, path=bench.posts, method="POST")
    try:
        first = await bench.plugin().comment("1", "hello", "k:1")
    except Temporary:
        first = ""
    again = await bench.plugin().comment("1", "hello", "k:1")
    assert first in ("", again)
    assert len(issue.comments) == 1


async def test_our_mark_in_somebody_elses_comment_is_not_ours(bench: Bench[Any]) -> None:
    issue = bench.issue("x")
    other = await bench.plugin("rev").comment("1", "hello", "k:1")
    found = await bench.plugin().get("1")
    assert [one.author.kind for one in found.comments] == ["person"]
    if bench.name != "linear":  # there an id is taken once, by whomsoever
        assert await bench.plugin().comment("1", "hello", "k:1") != other
        assert len(issue.comments) == 2


async def test_a_thousand_comments_are_read_in_order(bench: Bench[Any], clock: Clock) -> None:
    issue = bench.issue("x")
    for number in range(1000):
        clock.now += 1
        bench.comment(issue, f"c{number}", by="rev")
    plugin = bench.plugin()
    said = await plugin.comment("1", "here", "k:1")
    assert await plugin.comment("1", "here", "k:1") == said
    found = await plugin.get("1")
    assert [one.body for one in found.comments] == [*(f"c{number}" for number in range(1000)), "here"]


async def test_a_wrong_token_is_named_and_not_shown(bench: Bench[Any]) -> None:
    bench.issue("x")
    with pytest.raises(Denied, match=r"tracker\.token") as caught:
        await bench.plugin(token="lin_api_wrong_secret").get("1")
    assert "wrong_secret" not in str(caught.value)
    assert caught.value.remedy


async def test_no_token_is_told_with_how_to_get_one(bench: Bench[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LINEAR_API_KEY", "JIRA_API_TOKEN", "JIRA_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(Denied, match="there is no token") as caught:
        await bench.plugin(token=None).get("1")
    assert "LINEAR_API_KEY" in caught.value.remedy or "JIRA_API_TOKEN" in caught.value.remedy


async def test_a_limit_is_kept_and_nothing_is_asked_meanwhile(bench: Bench[Any], clock: Clock) -> None:
    bench.issue("x")
    plugin = bench.plugin()
    await plugin.get("1")
    bench.server.fail("rate")
    with pytest.raises(Temporary, match="takes no more requests before") as caught:
        await plugin.get("1")
    assert caught.value.until is not None
    assert clock.now < caught.value.until <= clock.now + 3600
    asked = len(bench.server.ledger.requests)
    with pytest.raises(Temporary):
        await plugin.list()
    assert len(bench.server.ledger.requests) == asked
    assert plugin.pause() > 0
    assert any("left" in line for line in plugin.budget())
    clock.now = caught.value.until + 1
    assert (await plugin.get("1")).title == "x"


@pytest.mark.parametrize("what", [500, 502, 503, "html", "drop", "cut"])
async def test_what_fails_for_a_moment_is_asked_again_or_may_be(bench: Bench[Any], what: int | str) -> None:
    bench.issue("x")
    plugin = bench.plugin()
    bench.server.fail(what)
    try:
        assert (await plugin.get("1")).title == "x"
    except Temporary:
        assert what == 500
    assert (await plugin.get("1")).title == "x"


async def test_what_is_not_there_is_told_as_temporary(bench: Bench[Any]) -> None:
    bench.issue("x")
    plugin = bench.plugin()
    await plugin.get("1")
    bench.server.down()
    with pytest.raises(Temporary, match="could not be asked"):
        await plugin.get("1")
    bench.server.up()
    assert (await plugin.get("1")).title == "x"


@pytest.mark.parametrize("status", [403, 404])
async def test_a_refusal_is_told(bench: Bench[Any], status: int) -> None:
    bench.issue("x")
    bench.server.fail(status)
    with pytest.raises((Denied, NotFound)):
        await bench.plugin().get("1")


async def test_a_text_that_is_too_long_is_cut(bench: Bench[Any]) -> None:
    plugin = bench.plugin()
    made = await plugin.create("t" * 1000, "long " * 30_000)
    assert len(made.title) == 250
    assert "… (cut)" in (await plugin.get(made.id)).body
    await plugin.comment(made.id, "long " * 30_000, "k")
    assert "… (cut)" in (await plugin.get(made.id)).comments[0].body


@pytest.mark.parametrize("change", ["comment", "label", "move", "create"])
def test_a_change_is_told_by_webhook_and_names_the_issue(bench: Bench[Any], clock: Clock, change: str) -> None:
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
    name = f"{bench.prefix}-{2 if change == 'create' else 1}"
    hints = []
    for sent in bench.server.hooks.sent:
        body, headers = bench.server.signed(sent)
        assert bench.hooks.genuine(headers, body, ["another"]) is None
        assert bench.hooks.genuine(headers, body + b" ", ["s3cret"]) is None
        delivery = bench.hooks.genuine(headers, body, ["another", "s3cret"])
        assert delivery is not None
        assert (delivery.id, delivery.kind, delivery.at) == (sent.id, sent.event, clock.now)
        hints.append(bench.hooks.hint(delivery))
    assert [(hint.repo, hint.issues) for hint in hints if hint] == [(bench.prefix, (name,))]
