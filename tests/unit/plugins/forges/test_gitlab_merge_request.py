"""Parsing merge requests of GitLab."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.plugins.forges.gitlab.merge_request_reader import (
    MergeRequestParts,
    blocking_reason,
    checks_of,
    job_state,
    merge_commit_of,
    mergeability,
    parse_merge_request,
    plain_title,
)
from agent_orchestrator.plugins.forges.gitlab.permissions import ProjectPermissions
from agent_orchestrator.protocols.forge import Author


@pytest.mark.parametrize(
    ("status", "plain", "conflicts", "means"),
    [
        ("mergeable", "can_be_merged", False, "yes"),
        ("checking", "checking", False, "unknown"),
        ("unchecked", "unchecked", False, "unknown"),
        ("preparing", "can_be_merged", False, "unknown"),
        ("approvals_syncing", "can_be_merged", False, "unknown"),
        ("not_approved", "can_be_merged", False, "yes"),
        ("not_approved", "unchecked", False, "unknown"),
        ("conflict", "cannot_be_merged", True, "no"),
        ("draft_status", "cannot_be_merged", True, "no"),
        ("draft_status", "cannot_be_merged_recheck", True, "unknown"),
        ("need_rebase", "can_be_merged", False, "yes"),
        ("something_new", "", False, "unknown"),
        ("", "", False, "unknown"),
    ],
)
def test_the_merge_status_is_mapped(status: str, plain: str, conflicts: bool, means: str) -> None:
    merge_request = {"detailed_merge_status": status, "merge_status": plain, "has_conflicts": conflicts}
    assert mergeability(merge_request) == means


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("mergeable", ""),
        ("draft_status", ""),
        ("conflict", ""),
        ("checking", ""),
        ("not_approved", "an approving review is required"),
        ("requested_changes", "changes are requested"),
        ("something_new", "GitLab says something_new"),
    ],
)
def test_the_unmet_requirement_of_a_merge_is_named(status: str, says: str) -> None:
    assert blocking_reason({"detailed_merge_status": status}) == says


@pytest.mark.parametrize(
    ("title", "plain"),
    [
        ("Draft: Fix", "Fix"),
        ("[Draft] Fix", "Fix"),
        ("(draft) Fix", "Fix"),
        ("Drafting a letter", "Drafting a letter"),
        ("Fix draft: it", "Fix draft: it"),
    ],
)
def test_a_drafts_title(title: str, plain: str) -> None:
    assert plain_title(title) == plain


def test_the_commit_of_a_merge_is_found() -> None:
    every = {"merge_commit_sha": "m", "squash_commit_sha": "s", "sha": "h"}
    assert merge_commit_of(every) == "m"
    assert merge_commit_of({**every, "merge_commit_sha": None}) == "s"
    assert merge_commit_of({"merge_commit_sha": None, "squash_commit_sha": None, "sha": "h"}) == "h"


@pytest.mark.parametrize("status", ["created", "pending", "manual", "scheduled", "waiting_for_resource", "preparing"])
def test_a_job_that_has_not_begun_is_queued(status: str) -> None:
    assert job_state({"status": status}) == "queued"


def test_an_unknown_state_is_no_success() -> None:
    assert job_state({"status": "exploded"}) == "failure"


PIPELINE = {"id": 7, "project_id": 3, "status": "failed", "web_url": "http://x", "yaml_errors": None}


def job(number: int, name: str, status: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "status": status, "stage": "test", **more}


def test_the_newest_of_a_name_counts() -> None:
    [check] = checks_of({**PIPELINE, "status": "success"}, [job(2, "t", "success"), job(1, "t", "failed")])
    assert (check.id, check.state, check.job) == ("2", "success", "3/2")


def test_a_pipeline_that_its_jobs_do_not_explain_is_a_check_itself() -> None:
    assert [(check.name, check.state) for check in checks_of(PIPELINE, [job(1, "t", "success")])] == [
        ("pipeline", "failure"),
        ("t", "success"),
    ][::-1]
    assert [check.state for check in checks_of({**PIPELINE, "status": "running"}, [])] == ["running"]
    assert checks_of(None, [job(1, "t", "failed")]) == ()


WHOLE = {"iid": 4, "target_project_id": 3, "state": "opened", "sha": "h", "title": "T", "source_branch": "x"}


def people(who: Any) -> Author:
    return Author(str((who or {}).get("username")), "person", "yes")


def test_unread_parts_are_named_and_unknown() -> None:
    parts = MergeRequestParts(WHOLE, None, None, None, None, PIPELINE)
    state = parse_merge_request(parts, people, "me")
    assert state.unread == ("checks", "comments", "reviews")
    assert (state.checks, state.checks_expected, state.reviews, state.comments) == ((), None, (), ())
    assert (state.id, state.number, state.mergeable) == ("3!4", 4, "unknown")


def note(number: int, who: str, body: str, at: str, **more: Any) -> dict[str, Any]:
    return {"id": number, "author": {"username": who}, "body": body, "created_at": at, "system": False, **more}


def test_an_approval_has_one_name_before_and_after_it_was_written_down_and_when_it_is_withdrawn() -> None:
    written = note(3, "rev", "approved this merge request", "2026-01-01T12:00:00Z", system=True)
    discussions = [{"id": "d", "individual_note": True, "notes": [written]}]
    approvals = {"approved_by": [{"user": {"username": "rev"}}]}
    review_lists = [
        parse_merge_request(
            MergeRequestParts(WHOLE, approval_state, discussion_list, [], [], None), people, "me"
        ).reviews
        for approval_state, discussion_list in (
            (approvals, []),
            (approvals, discussions),
            ({"approved_by": []}, discussions),
        )
    ]
    assert [[(review.id, review.verdict) for review in reviews] for reviews in review_lists] == [
        [("approved-rev", "approved")],
        [("approved-rev", "approved")],
        [("approved-rev", "commented")],
    ]


def test_requested_changes_have_one_name_each_time_also_before_they_are_written_down() -> None:
    first, second = (note(k, "rev", "requested changes", f"2026-01-01T1{k}:00:00Z", system=True) for k in (1, 2))
    wanting = [{"user": {"username": "rev"}, "state": "requested_changes"}]
    review_lists = []
    for written in ([], [first], [first, second]):
        discussions = [{"id": "d", "individual_note": True, "notes": written}]
        state = parse_merge_request(MergeRequestParts(WHOLE, {}, discussions, wanting, [], None), people, "me")
        review_lists.append([(review.id, review.verdict) for review in state.reviews])
    assert review_lists == [
        [("changes-rev", "changes_requested")],
        [("changes-rev", "changes_requested")],
        [("changes-rev", "commented"), ("changes-rev-2", "changes_requested")],
    ]


def test_events_are_distinguished_from_comments() -> None:
    notes = [
        note(1, "rev", "requested changes", "2026-01-01T10:00:00Z", system=True),
        note(2, "me", "added 1 commit\n\n<ul>", "2026-01-01T11:00:00Z", system=True),
        note(3, "rev", "approved this merge request", "2026-01-01T12:00:00Z", system=True),
        note(4, "eve", "approved this merge request", "2026-01-01T12:30:00Z", system=False),
    ]
    discussions = [{"id": f"d{item['id']}", "individual_note": True, "notes": [item]} for item in notes]
    approvals = {"approved_by": [{"user": {"username": "rev"}}, {"user": {"username": "old"}, "approved_at": None}]}
    state = parse_merge_request(MergeRequestParts(WHOLE, approvals, discussions, [], [], None), people, "me")
    assert [(item.id, item.verdict, item.author.name, item.head) for item in state.reviews] == [
        ("changes-rev", "commented", "rev", ""),
        ("approved-rev", "approved", "rev", "h"),
        ("approved-old", "approved", "old", "h"),
    ]
    assert [item.author.name for item in state.comments] == ["eve"]


def test_bots_and_deleted_users_are_recognized() -> None:
    members = ProjectPermissions(lambda: 0.0)
    assert members.author({"id": 1, "username": "project_12_bot_5aff0e"}).kind == "bot"
    assert members.author({"id": 1, "username": "group_12_bot"}).kind == "bot"
    assert members.author({"id": 1, "username": "renovate", "bot": True}).kind == "bot"
    assert members.author({"id": 1, "username": "robot_fan"}) == Author("robot_fan", "person", "unknown")
    for gone in (None, {}, {"id": 5, "username": "ghost"}):
        assert members.author(gone) == Author("ghost", "person", "no")


@given(st.text(max_size=20), st.text(max_size=20), st.booleans())
def test_any_merge_status_of_gitlab_is_accepted(status: str, plain: str, conflicts: bool) -> None:
    merge_request = {"detailed_merge_status": status, "merge_status": plain, "has_conflicts": conflicts}
    assert mergeability(merge_request) in ("yes", "no", "unknown")
    assert isinstance(blocking_reason(merge_request), str)
