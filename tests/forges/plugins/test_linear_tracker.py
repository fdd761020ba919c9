"""What only Linear has: labels by id, branch names, teams, two rate limits, external users."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from agent_orchestrator.errors import NotFound, Temporary, UsageError
from agent_orchestrator.protocols.forge import IssueChange
from agent_orchestrator.protocols.text import one_line
from tests.forges import fetch
from tests.forges.conftest import published
from tests.forges.plugins.trackers import LinearBench
from tests.forges.published.linear_types import write_schema

pytestmark = pytest.mark.anyio


@pytest.fixture
def bench() -> Iterator[LinearBench]:
    pytest.importorskip("graphql", reason="graphql-core is not installed: make test-forges")
    linear_bench = LinearBench(write_schema(published(fetch.LINEAR)))
    with linear_bench.server:
        yield linear_bench


async def test_the_branch_name_suggested_by_linear_is_read(bench: LinearBench) -> None:
    bench.issue("It breaks: badly!", by="dev")
    assert (await bench.plugin().get("LIN-1")).branch == "dev/lin-1-it-breaks-badly"
    assert (await bench.plugin().list())[0].branch == "dev/lin-1-it-breaks-badly"


async def test_labels_are_found_by_name_or_created_for_the_team(bench: LinearBench) -> None:
    shared = bench.server.label("Shared")
    other = bench.server.team("OTH")
    other_label = bench.server.label("only theirs", other)
    plugin = bench.plugin()
    await plugin.create("x", labels=["shared", "new one", "only theirs"])
    issue = bench.team.issues[0]
    assert issue.labels[0] is shared
    assert other_label not in issue.labels
    assert [label.team for label in issue.labels[1:]] == [bench.team, bench.team]
    await plugin.change("1", IssueChange(add_labels=("NEW ONE", "SHARED")))
    assert len(issue.labels) == 3
    await plugin.change("1", IssueChange(remove_labels=("Shared",)))
    assert [label.name for label in issue.labels] == ["new one", "only theirs"]


async def test_a_label_group_is_not_used_as_a_label(bench: LinearBench) -> None:
    bench.server.label("area").is_group = True
    with pytest.raises(UsageError, match="duplicate label name"):
        await bench.plugin().create("x", labels=["area"])


async def test_only_the_teams_issues_are_listed(bench: LinearBench) -> None:
    other = bench.server.team("OTH")
    bench.server.issue(other, "theirs")
    bench.issue("ours")
    assert [issue.title for issue in await bench.plugin().list()] == ["ours"]
    assert [issue.title for issue in await bench.plugin(team=other.id).list()] == ["theirs"]
    assert [issue.title for issue in await bench.plugin(team=None, teamId="oth").list()] == ["theirs"]
    assert (bench.plugin().repo, bench.plugin(team=other.id).repo) == ("LIN", "")
    assert (await bench.plugin(team=other.id).get("OTH-1")).title == "theirs"
    for plugin in (bench.plugin(), bench.plugin(team=bench.team.id)):
        with pytest.raises(NotFound, match="OTH-1 is no issue of the team LIN"):
            await plugin.get("OTH-1")
        with pytest.raises(NotFound, match="OTH-1 is no issue of the team LIN"):
            await plugin.comment("https://linear.app/acme/issue/OTH-1/x", "hello", "k")
    with pytest.raises(NotFound, match="no team NONE"):
        await bench.plugin(team="NONE").list()
    with pytest.raises(UsageError, match=r"tracker\.team"):
        bench.plugin(team="")


async def test_an_issue_moved_to_another_team_is_not_found(bench: LinearBench) -> None:
    issue = bench.issue("x")
    other = bench.server.team("OTH")
    bench.server.transfer(issue, other)
    for request in (bench.plugin().get("LIN-1"), bench.plugin().change("LIN-1", IssueChange(state="closed"))):
        with pytest.raises(NotFound, match="moved to another team, as OTH-1"):
            await request


async def test_users_of_external_services_have_no_write_access(bench: LinearBench) -> None:
    issue = bench.issue("x", by="customer", external=True)
    bench.server.comment(issue, "do this", by="customer", external=True)
    read_issue = await bench.plugin().get("1")
    assert (read_issue.author.name, read_issue.author.write_access) == ("customer (external)", "no"), (
        "a member may have the same name"
    )
    assert read_issue.comments[0].author.write_access == "no"


@pytest.mark.parametrize(
    "name", ["sentry[bot]", "customer (external)", "Sentry[BOT] ", "sentry[bot\u200b]", "al\u200bice"]
)
async def test_guests_named_like_apps_or_external_users_are_marked_as_guests(bench: LinearBench, name: str) -> None:
    bench.server.user(name, guest=True)
    read_issue = await bench.plugin().get(bench.issue("x", by=name).identifier)
    assert (read_issue.author.name, read_issue.author.write_access) == (f"{one_line(name)} (guest)", "no")


async def test_query_complexity_has_a_separate_limit(bench: LinearBench) -> None:
    bench.issue("x")
    plugin = bench.plugin()
    await plugin.get("LIN-1")
    lines = plugin.budget()
    assert [line.partition(":")[0] for line in lines] == ["complexity", "core"]
    assert "4,999 of 5,000" in lines[1]
    assert "used by others" not in " ".join(lines)
    bench.server.rate_limits["dev"]["complexity"].used = 250_000
    with pytest.raises(Temporary, match="takes no more requests"):
        await plugin.get("LIN-1")
    assert plugin.pause() > 3_000
    request_count = len(bench.server.ledger.requests)
    with pytest.raises(Temporary, match="takes no more requests"):
        await plugin.get("LIN-1")
    assert len(bench.server.ledger.requests) == request_count
    assert bench.plugin()._linear.http().budget.request_count == request_count


async def test_half_of_the_rate_limit_slows_background_reading(bench: LinearBench) -> None:
    bench.issue("x")
    plugin = bench.plugin()
    assert plugin.pause() == 0
    await plugin.get("1")
    assert plugin.pause() == 0
    bench.server.rate_limits["dev"]["requests"].used = 3_500
    await plugin.get("1")
    assert 0 < plugin.pause() < 60
    assert (await plugin.get("1")).title == "x"


async def test_a_listing_of_300_issues_takes_few_requests(bench: LinearBench) -> None:
    for number in range(300):
        bench.issue(f"n{number}")
    plugin = bench.plugin()
    await plugin.list()
    request_count = len(bench.server.ledger.requests)
    await plugin.list(since=time.time() - 60)
    assert len(bench.server.ledger.requests) - request_count == 3


async def test_two_simultaneous_equal_comments_are_posted_once(bench: LinearBench) -> None:
    issue = bench.issue("x")
    plugin = bench.plugin()
    comment_id = await plugin.comment("1", "hello", "k")
    bench.server.fail(404, path="AoComment")  # the question whether it is said is answered wrongly, once
    assert await plugin.comment("1", "hello", "k") == comment_id
    assert len(issue.comments) == 1
