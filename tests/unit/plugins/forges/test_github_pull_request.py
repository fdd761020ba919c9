"""Parsing pull requests of GitHub: missing data is unknown, never green."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.plugins.forges.github.people import parse_author
from agent_orchestrator.plugins.forges.github.pull_request_reader import (
    check_state,
    checks_of,
    parse_pull_request,
    read_missing_pages,
)
from agent_orchestrator.plugins.forges.shared.comment_marks import is_same_login, with_mark
from agent_orchestrator.plugins.forges.shared.timestamps import parse_time
from agent_orchestrator.protocols.forge import Author

pytestmark = pytest.mark.anyio

HEAD = "a" * 40


def page(*nodes: Any, more: str | None = None) -> dict[str, Any]:
    return {"nodes": list(nodes), "pageInfo": {"hasNextPage": more is not None, "endCursor": more}}


def run(name: str, conclusion: str | None = "SUCCESS", **more: Any) -> dict[str, Any]:
    suite = {
        "app": {"slug": more.pop("app", "github-actions")},
        "workflowRun": {"event": more.pop("event", "pull_request"), "workflow": {"name": more.pop("workflow", "CI")}},
    }
    status = "COMPLETED" if conclusion else "IN_PROGRESS"
    return {
        "__typename": "CheckRun", "id": "CR", "databaseId": 1, "name": name, "status": status, "conclusion": conclusion,
        "checkSuite": suite, **more,
    }  # fmt: skip


def node(*contexts: Any, **changes: Any) -> dict[str, Any]:
    rollup = {"contexts": page(*contexts)} if contexts else None
    return {
        "__typename": "PullRequest", "id": "PR_1", "number": 4, "url": "https://x/4", "title": "T", "state": "OPEN",
        "isDraft": False, "headRefName": "feature/x", "headRefOid": HEAD, "baseRefName": "main", "baseRefOid": "old",
        "baseRef": {"target": {"oid": "new", "statusCheckRollup": None}, "refUpdateRule": None},
        "mergeable": "MERGEABLE", "mergeStateStatus": "CLEAN", "reviewDecision": None, "isInMergeQueue": False,
        "labels": page({"name": "bug"}), "reviews": page(), "reviewThreads": page(), "comments": page(),
        "commits": {"nodes": [{"commit": {"oid": HEAD, "statusCheckRollup": rollup}}]},
        **changes,
    }  # fmt: skip


def comment_node(body: str, login: str = "ann", association: str = "MEMBER", **more: Any) -> dict[str, Any]:
    return {
        "id": f"IC_{login}", "body": body, "author": {"__typename": "User", "login": login},
        "authorAssociation": association, "createdAt": "2026-01-02T03:04:05Z", "isMinimized": False, **more,
    }  # fmt: skip


def test_the_plain_facts() -> None:
    pull = parse_pull_request(node(run("build"), mergeCommit={"oid": "m"}), "us")
    assert (pull.number, pull.id, pull.state, pull.branch, pull.head) == (4, "PR_1", "open", "feature/x", HEAD)
    assert (pull.base, pull.base_head, pull.mergeable, pull.blocked) == ("main", "new", "yes", "")
    assert pull.labels == ("bug",)
    assert [(check.name, check.state, check.job) for check in pull.checks] == [("CI / build", "success", "1")]
    assert pull.unread == ()
    assert pull.merged_as is None
    assert parse_pull_request(node(state="MERGED", mergeCommit={"oid": "m"}), "us").merged_as == "m"
    assert parse_pull_request(node(isCrossRepository=True, headRepository=None), "us").fork == "?"


@pytest.mark.parametrize(
    ("value", "expected"), [("MERGEABLE", "yes"), ("CONFLICTING", "no"), ("UNKNOWN", "unknown"), (None, "unknown")]
)
def test_unknown_mergeability_stays_unknown(value: str | None, expected: str) -> None:
    assert parse_pull_request(node(mergeable=value), "us").mergeable == expected


@pytest.mark.parametrize(
    ("status", "conclusion", "expected"),
    [
        ("COMPLETED", "SUCCESS", "success"),
        ("completed", "success", "success"),
        ("COMPLETED", "FAILURE", "failure"),
        ("COMPLETED", "NEUTRAL", "skipped"),
        ("COMPLETED", "SKIPPED", "skipped"),
        ("COMPLETED", "CANCELLED", "cancelled"),
        ("COMPLETED", "TIMED_OUT", "timed_out"),
        ("COMPLETED", "ACTION_REQUIRED", "failure"),
        ("COMPLETED", "STALE", "failure"),
        ("COMPLETED", "STARTUP_FAILURE", "failure"),
        ("COMPLETED", "SOMETHING_NEW", "failure"),
        ("COMPLETED", None, "running"),
        ("IN_PROGRESS", None, "running"),
        ("QUEUED", None, "queued"),
        ("WAITING", None, "queued"),
        ("REQUESTED", None, "queued"),
        ("PENDING", None, "queued"),
    ],
)
def test_the_state_of_a_check_run_is_mapped(status: str, conclusion: str | None, expected: str) -> None:
    assert check_state(status, conclusion) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("SUCCESS", "success"),
        ("PENDING", "running"),
        ("EXPECTED", "queued"),
        ("ERROR", "failure"),
        ("FAILURE", "failure"),
        ("NEW", "failure"),
    ],
)
def test_the_state_of_a_commit_status_is_mapped(state: str, expected: str) -> None:
    status = {"__typename": "StatusContext", "id": "SC_1", "context": "ci/x", "state": state, "description": "why"}
    (check,) = checks_of([status])
    assert (check.name, check.state, check.summary, check.job) == ("ci/x", expected, "why", None)


def test_only_github_actions_jobs_have_logs() -> None:
    (check,) = checks_of([run("lint", app="other", workflow=None)])
    assert (check.name, check.job) == ("lint", None)


def test_of_a_jobs_runs_for_one_event_the_newest_counts() -> None:
    old = run("build", "CANCELLED", databaseId=1, startedAt="2026-01-01T00:00:00Z")
    new = run("build", databaseId=2, startedAt="2026-01-01T00:01:00Z")
    for order in ([old, new], [new, old]):
        (check,) = checks_of(order)
        assert (check.id, check.state) == ("2", "success")


def test_of_a_jobs_runs_for_several_events_the_worst_counts() -> None:
    good, bad = run("build", databaseId=2, event="push"), run("build", "FAILURE", databaseId=1)
    for order in ([good, bad], [bad, good]):
        (check,) = checks_of(order)
        assert (check.id, check.state) == ("1", "failure")


def test_jobs_of_the_same_name_in_two_workflows_are_two_checks() -> None:
    assert [check.name for check in checks_of([run("build"), run("build", workflow="Docs")])] == [
        "CI / build",
        "Docs / build",
    ]


def test_no_checks_yet_is_not_none_expected() -> None:
    pull = parse_pull_request(node(), "us")
    assert (pull.checks, pull.checks_expected, pull.unread) == ((), None, ())


def test_a_required_check_is_expected() -> None:
    rule = {"target": {"oid": "n"}, "refUpdateRule": {"requiredStatusCheckContexts": ["build"]}}
    pull = parse_pull_request(node(baseRef=rule, mergeStateStatus="BLOCKED"), "us")
    assert pull.checks_expected is True
    assert pull.blocked == "required checks have not passed: build"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mergeStateStatus": "BLOCKED", "reviewDecision": "REVIEW_REQUIRED"}, "an approving review is required"),
        ({"mergeStateStatus": "BLOCKED", "reviewDecision": "CHANGES_REQUESTED"}, "changes are requested"),
        ({"mergeStateStatus": "BLOCKED"}, "a rule of the repository is not met"),
        ({"mergeStateStatus": "BEHIND"}, "its branch must be brought up to date with its base"),
        ({"mergeStateStatus": "UNSTABLE"}, ""),
        ({"mergeStateStatus": "UNKNOWN"}, ""),
        ({"mergeStateStatus": "BLOCKED", "state": "CLOSED"}, ""),
    ],
)
def test_the_unmet_requirement_of_a_merge_is_named(changes: dict[str, Any], expected: str) -> None:
    assert parse_pull_request(node(**changes), "us").blocked == expected


def test_the_merge_queue_and_auto_merge_are_seen() -> None:
    assert parse_pull_request(node(isInMergeQueue=True), "us").queued
    assert parse_pull_request(node(autoMergeRequest={"enabledAt": "now"}), "us").queued
    assert not parse_pull_request(node(), "us").queued


@pytest.mark.parametrize(
    ("association", "expected"),
    [("OWNER", "yes"), ("MEMBER", "unknown"), ("COLLABORATOR", "unknown"), ("CONTRIBUTOR", "no"), ("NONE", "no"), ("FIRST_TIMER", "no"),
     ("FIRST_TIME_CONTRIBUTOR", "no"), ("MANNEQUIN", "no"), ("NEW_WORD", "unknown"), (None, "unknown")],
)  # fmt: skip
def test_write_access_is_derived_from_the_association(association: str | None, expected: str) -> None:
    assert parse_author({"login": "ann"}, association).write_access == expected


def test_bots_have_their_ending_and_ghosts_a_name() -> None:
    assert parse_author({"__typename": "Bot", "login": "dependabot"}, "NONE") == Author("dependabot[bot]", "bot", "no")
    assert parse_author({"type": "Bot", "login": "dependabot[bot]"}, "NONE") == Author("dependabot[bot]", "bot", "no")
    assert parse_author(None, "OWNER") == Author("ghost", "person", "no")
    assert is_same_login("app", "app[bot]")
    assert not is_same_login("", "")


def test_only_our_marked_comments_are_the_agents() -> None:
    pull = parse_pull_request(
        node(
            comments=page(
                comment_node(with_mark("done", "k:1"), "us"),
                comment_node(with_mark("copied", "k:1"), "eve", "NONE"),
                comment_node("by hand", "us"),
            )
        ),
        "us",
    )
    assert [(comment.body, comment.author.kind, comment.mark) for comment in pull.comments] == [
        ("done", "agent", "k:1"),
        ("copied", "person", ""),
        ("by hand", "person", ""),
    ]
    assert pull.comments[0].at == parse_time("2026-01-02T03:04:05Z") > 0


def test_every_comment_of_a_thread_with_its_place() -> None:
    notes = page(
        comment_node(
            "first", path="a.py", line=None, originalLine=7, originalCommit={"oid": "o"}, pullRequestReview={"id": "R"}
        ),
        comment_node("second", "bob", path="a.py", line=9),
        comment_node("not sent", state="PENDING"),
        comment_node("spam", isMinimized=True),
    )
    thread = {"id": "T", "isResolved": True, "path": "a.py", "line": None, "originalLine": 7, "comments": notes}
    pull = parse_pull_request(node(reviewThreads=page(thread)), "us")
    assert [
        (comment.body, comment.path, comment.line, comment.thread, comment.resolved) for comment in pull.comments
    ] == [
        ("first", "a.py", 7, "T", True),
        ("second", "a.py", 9, "T", True),
    ]
    assert (pull.comments[0].review, pull.comments[0].head) == ("R", "o")


def test_reviews_with_a_body_only_and_those_that_are_but_frames() -> None:
    def review(state: str, body: str = "", **more: Any) -> dict[str, Any]:
        return comment_node(body, state=state, submittedAt="2026-01-02T03:04:05Z", commit={"oid": "c"}, **more)

    pull = parse_pull_request(
        node(
            reviews=page(
                review("COMMENTED", "please look at x"),
                review("COMMENTED"),
                review("APPROVED"),
                review("CHANGES_REQUESTED", "no"),
                review("DISMISSED", "was no"),
                review("PENDING", "draft"),
            )
        ),
        "us",
    )
    assert [(item.verdict, item.body, item.head) for item in pull.reviews] == [
        ("commented", "please look at x", "c"),
        ("approved", "", "c"),
        ("changes_requested", "no", "c"),
        ("commented", "was no", "c"),
    ]


@pytest.mark.parametrize(
    ("changes", "failed", "unread"),
    [
        ({}, [("commits", "nodes", 0, "commit", "statusCheckRollup")], ("checks",)),
        ({"commits": None}, [("commits",)], ("checks",)),
        ({"commits": {"nodes": [{"commit": {"oid": "another"}}]}}, [], ("checks",)),
        ({"reviews": None}, [], ("reviews",)),
        ({"reviewThreads": page(None)}, [], ("comments",)),
        ({"comments": None, "labels": None}, [], ("comments", "labels")),
        ({"comments": page(more="c")}, [], ("comments",)),
        ({"mergeable": None}, [("mergeable",)], ()),
    ],
)
def test_unread_parts_are_named(
    changes: dict[str, Any], failed: list[tuple[Any, ...]], unread: tuple[str, ...]
) -> None:
    pull = parse_pull_request(node(run("build"), **changes), "us", failed)
    assert pull.unread == unread
    if "checks" in unread:
        assert (pull.checks, pull.checks_expected) == ((), None)


async def test_all_pages_are_followed() -> None:
    comments = [comment_node(f"c{number}") for number in range(1000)]
    checks = [run(f"job {number}", databaseId=number) for number in range(300)]
    notes = [comment_node(f"n{number}") for number in range(120)]
    threads = [{"id": f"T{number}", "comments": page()} for number in range(130)]
    threads[0]["comments"] = page(*notes[:30], more="30")
    pull = node(*checks[:100], comments=page(*comments[:100], more="100"), reviewThreads=page(*threads[:40], more="40"))
    pull["commits"]["nodes"][0]["commit"]["statusCheckRollup"]["contexts"] = page(*checks[:100], more="100")
    page_requests = 0

    async def ask(document: str, variables: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        nonlocal page_requests
        page_requests += 1
        start = int(variables["after"])
        if "MoreChecks" in document:
            page_slice = _slice(checks, start)
            commits = {"nodes": [{"commit": {"oid": HEAD, "statusCheckRollup": {"page": page_slice}}}]}
            return {"node": {"commits": commits}}, []
        everything = {"MoreComments": comments, "MoreThreads": threads, "MoreOfThread": notes}
        name = next(name for name in everything if f"{name}(" in document)
        return {"node": {"page": _slice(everything[name], start)}}, []

    await read_missing_pages(ask, pull)
    state = parse_pull_request(pull, "us")
    assert state.unread == ()
    assert len(state.checks) == 300
    assert len(state.comments) == 1120
    assert page_requests == 9 + 2 + 1 + 1


def _slice(everything: list[Any], start: int) -> dict[str, Any]:
    end = start + 100
    return page(*everything[start:end], more=str(end) if end < len(everything) else None)


async def test_a_page_that_fails_leaves_its_part_unread() -> None:
    pull = node(comments=page(comment_node("one"), more="1"))

    async def ask(document: str, variables: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        return {"node": {"page": None}}, [{"type": "SERVICE_UNAVAILABLE"}]

    await read_missing_pages(ask, pull)
    assert parse_pull_request(pull, "us").unread == ("comments",)


_ANY: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just({}) | st.just({"nodes": [None, {}]})
)
_PARTS = [
    "mergeable",
    "mergeStateStatus",
    "reviewDecision",
    "baseRef",
    "commits",
    "mergeCommit",
    "author",
    "headRepository",
    "state",
]


@given(st.dictionaries(st.sampled_from(_PARTS), _ANY))
def test_missing_data_never_makes_a_check_green(changes: dict[str, Any]) -> None:
    pull = parse_pull_request(node(**changes), "us")
    assert not pull.checks
    assert pull.checks_expected is None
    assert pull.mergeable == ("yes" if "mergeable" not in changes else "unknown")


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in it, but those without which there is no pull request."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = [(key, child) for key, child in value.items() if key not in ("id", "number", "__typename")]
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [place for key, child in inner for place in [(*path, key), *_paths(child, (*path, key))]]


def _full() -> dict[str, Any]:
    note = comment_node(
        "why", path="a.py", line=3, originalLine=3, originalCommit={"oid": "o"}, pullRequestReview={"id": "R"}
    )
    status = {"__typename": "StatusContext", "id": "SC", "context": "ci", "state": "FAILURE"}
    pull = node(
        run("build"),
        run("lint", "FAILURE", databaseId=2),
        status,
        comments=page(comment_node("one"), comment_node(with_mark("two", "k"), "us")),
        reviews=page(comment_node("no", state="CHANGES_REQUESTED", commit={"oid": "c"})),
        reviewThreads=page({"id": "T", "isResolved": False, "path": "a.py", "line": 3, "comments": page(note)}),
        mergeCommit={"oid": "m"},
        autoMergeRequest={"enabledAt": "x"},
        headRepository={"nameWithOwner": "o/n"},
        isCrossRepository=True,
    )
    suites = page({"databaseId": 9, "conclusion": "ACTION_REQUIRED", "workflowRun": {"workflow": {"name": "W"}}})
    pull["commits"]["nodes"][0]["commit"]["checkSuites"] = suites
    return pull


_PLACES = _paths(_full())


@given(st.lists(st.sampled_from(_PLACES), min_size=1, max_size=4))
def test_a_hole_anywhere_never_hides_a_failure(holes: list[tuple[Any, ...]]) -> None:
    pull = _full()
    for *path, last in holes:
        place: Any = pull
        for key in path:
            place = place[key] if place is not None else None
        if place is not None:
            place[last] = None
    value = [hole for hole in holes if hole[-1] in ("commits", "commit", "statusCheckRollup", "checkSuites")]
    state = parse_pull_request(pull, "us", value)
    failing = {check.name for check in state.checks if check.state != "success"}
    assert len(failing) >= 2 or "checks" in state.unread
    assert state.checks_expected is not False
