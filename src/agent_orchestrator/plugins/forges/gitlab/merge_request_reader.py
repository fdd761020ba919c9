"""Convert a merge request as GitLab's REST API returns it into `PullRequestState`. Pure.

A part that is missing in an answer is unknown: it is listed in `PullRequestState.unread`, and nothing is concluded from its absence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_orchestrator.plugins.forges.shared.comment_marks import is_same_login, split_mark
from agent_orchestrator.plugins.forges.shared.timestamps import parse_time
from agent_orchestrator.protocols.forge import (
    Author,
    PullRequestCheck,
    PullRequestComment,
    PullRequestReview,
    PullRequestState,
)

RestObject = Mapping[str, Any]
"""An object in a REST answer."""
AuthorOfUser = Callable[[Any], Author]
"""A function that returns an author from a user."""

DRAFT_PREFIX = re.compile(r"\s*(?:\[draft\]|\(draft\)|draft:)\s*", re.IGNORECASE)
"""The beginning of a title that makes a merge request a draft."""
MAX_SUMMARY_LENGTH = 4_000
"""Characters that are kept of a check's summary."""
PIPELINE_CHECK_NAME = "pipeline"
"""The name of the check that stands for a pipeline whose state its jobs do not account for."""
_STATES = {
    "created": "queued",
    "waiting_for_resource": "queued",
    "waiting_for_callback": "queued",
    "preparing": "queued",
    "pending": "queued",
    "scheduled": "queued",
    "manual": "queued",
    "running": "running",
    "canceling": "running",
    "success": "success",
    "canceled": "cancelled",
    "skipped": "skipped",
}
"""Our state by GitLab's status of a job. Any other status is a failure."""
_TIMED_OUT = ("job_execution_timeout", "stuck_or_timeout_failure")
"""Failure reasons that mean a timeout."""
_UNDECIDED_STATUSES = (
    "checking",
    "unchecked",
    "preparing",
    "approvals_syncing",
    "cannot_be_merged_recheck",
    "cannot_be_merged_rechecking",
)
"""Statuses with which GitLab does not know yet whether there is a conflict."""
_UNBLOCKED_STATUSES = ("", "mergeable", "not_open", "draft_status", "conflict", "broken_status", *_UNDECIDED_STATUSES)
"""Statuses that demand nothing, or that are reported in another field."""
_MERGE_REQUIREMENTS = {
    "ci_must_pass": "its pipeline must pass",
    "ci_still_running": "its pipeline must have ended",
    "commits_status": "its branch is gone or has no commits",
    "discussions_not_resolved": "discussions must be resolved",
    "external_status_checks": "external status checks must pass",
    "status_checks_must_pass": "external status checks must pass",
    "jira_association_missing": "its title or description must name a Jira issue",
    "merge_request_blocked": "another merge request must land first",
    "blocked_status": "another merge request must land first",
    "merge_time": "it may not land before its time",
    "need_rebase": "its branch must be brought up to date with its base",
    "not_approved": "an approving review is required",
    "policies_denied": "a policy must be satisfied",
    "requested_changes": "changes are requested",
    "security_policy_violations": "security policies must be satisfied",
    "security_policy_pipeline_check": "security policies must be satisfied",
    "locked_paths": "it changes paths that somebody has locked",
    "locked_lfs_files": "it changes files that somebody has locked",
    "title_regex": "its title must be as the project demands",
}
"""What GitLab demands before a merge, by its status."""
_APPROVAL_NOTE, _CHANGES_REQUESTED_NOTE, _PUSH_NOTE = "approved this merge request", "requested changes", "added "


@dataclass(frozen=True, slots=True)
class MergeRequestParts:
    """What was read of a merge request; a part is None if it could not be read."""

    whole: RestObject
    approvals: RestObject | None
    discussions: Sequence[RestObject] | None
    reviewers: Sequence[RestObject] | None
    jobs: Sequence[RestObject] | None
    """The jobs of its head's pipeline; empty if there is none."""
    pipeline: RestObject | None
    """The pipeline of its head, or None if the latest pipeline belongs to another head."""
    base_head: str = ""
    checks_expected: bool | None = None
    fork: str = ""


def parse_merge_request(parts: MergeRequestParts, who: AuthorOfUser, us: str) -> PullRequestState:
    """Return the state of a merge request from its parts. `us`: our username; `who`: returns an author with the known access."""
    whole = parts.whole
    state = {"opened": "open", "locked": "open", "merged": "merged"}.get(str(whole.get("state")), "closed")
    required_parts = [("checks", parts.jobs), ("comments", parts.discussions)]
    unread = {name for name, part in required_parts if part is None}
    if parts.approvals is None or parts.discussions is None or parts.reviewers is None:
        unread.add("reviews")
    checks = () if parts.jobs is None else checks_of(parts.pipeline, parts.jobs)
    return PullRequestState(
        number=int(whole["iid"]),
        id=merge_request_id(whole),
        url=str(whole.get("web_url") or ""),
        title=plain_title(str(whole.get("title") or "")),
        state=state,
        draft=bool(whole.get("draft")),
        branch=str(whole.get("source_branch") or ""),
        head=str(whole.get("sha") or ""),
        base=str(whole.get("target_branch") or ""),
        base_head=parts.base_head,
        mergeable=mergeability(whole),
        blocked=blocking_reason(whole) if state == "open" else "",
        checks=checks,
        checks_expected=True if checks else parts.checks_expected,
        reviews=() if "reviews" in unread else tuple(_reviews(parts, who)),
        comments=tuple(_comments(parts, who, us)),
        labels=tuple(_label(label) for label in whole.get("labels") or []),
        queued=state == "open" and bool(whole.get("merge_when_pipeline_succeeds")),
        merged_as=merge_commit_of(whole) if state == "merged" else None,
        fork=parts.fork,
        unread=tuple(sorted(unread)),
    )


def merge_request_id(merge_request: RestObject) -> str:
    """Return the permanent id of a merge request: the project's number, which does not change with its path, and its own."""
    return f"{merge_request.get('target_project_id') or merge_request.get('project_id')}!{merge_request['iid']}"


def plain_title(title: str) -> str:
    """Return a title without the prefix that makes it a draft."""
    return DRAFT_PREFIX.sub("", title, count=1) if DRAFT_PREFIX.match(title) else title


def merge_commit_of(merge_request: RestObject) -> str:
    """Return the commit that a merge request was merged as; a fast-forward has no merge commit, so its head counts."""
    return str(
        merge_request.get("merge_commit_sha")
        or merge_request.get("squash_commit_sha")
        or merge_request.get("sha")
        or ""
    )


def mergeability(merge_request: RestObject) -> str:
    """Return `no` if a merge request conflicts with its base, `yes` if not, `unknown` if GitLab has not decided."""
    detailed, status = (
        str(merge_request.get("detailed_merge_status") or ""),
        str(merge_request.get("merge_status") or ""),
    )
    if detailed in _UNDECIDED_STATUSES or status in _UNDECIDED_STATUSES:
        return "unknown"
    if detailed == "conflict" or merge_request.get("has_conflicts") or status == "cannot_be_merged":
        return "no"
    return "yes" if status == "can_be_merged" or detailed in ("mergeable", "need_rebase") else "unknown"


def blocking_reason(merge_request: RestObject) -> str:
    """Return what GitLab demands before the merge request can be merged, or ""."""
    status = str(merge_request.get("detailed_merge_status") or "")
    return "" if status in _UNBLOCKED_STATUSES else _MERGE_REQUIREMENTS.get(status, f"GitLab says {status}")


def job_state(job: RestObject) -> str:
    """Return our state of a job. One with `allow_failure` that failed, was cancelled or waits for a manual start counts as skipped."""
    status = str(job.get("status"))
    state = _STATES.get(status, "failure")
    if job.get("allow_failure") and (state == "failure" or status in ("manual", "canceled")):
        return "skipped"
    return "timed_out" if state == "failure" and job.get("failure_reason") in _TIMED_OUT else state


def jobs_explain_state(pipeline: RestObject, jobs: Iterable[RestObject]) -> bool:
    """Return whether the jobs account for a pipeline's state. External statuses and downstream pipelines are not among its jobs."""
    states = {job_state(job) for job in jobs}
    status = _STATES.get(str(pipeline.get("status")), "failure")
    if status == "failure":
        return bool(states & {"failure", "timed_out"})
    if status in ("queued", "running"):
        return bool(states & {"queued", "running"})
    return status == "cancelled" or bool(states)


def checks_of(pipeline: RestObject | None, jobs: Iterable[RestObject]) -> tuple[PullRequestCheck, ...]:
    """Return the checks of a head: the newest job per name, and the pipeline itself if they do not account for its state."""
    if pipeline is None:
        return ()
    newest: dict[str, RestObject] = {}
    for job in jobs:
        name = str(job.get("name") or "job")
        if name not in newest or int(newest[name].get("id") or 0) < int(job.get("id") or 0):
            newest[name] = job
    checks = [_check(pipeline, newest[name]) for name in sorted(newest)]
    if not jobs_explain_state(pipeline, newest.values()):
        config_errors = str(pipeline.get("yaml_errors") or "")
        checks.append(
            PullRequestCheck(
                id=f"pipeline-{pipeline.get('id')}-{pipeline.get('status')}",
                name=PIPELINE_CHECK_NAME,
                state=_STATES.get(str(pipeline.get("status")), "failure"),
                url=pipeline.get("web_url"),
                summary=config_errors[:MAX_SUMMARY_LENGTH],
            )
        )
    return tuple(checks)


def _check(pipeline: RestObject, job: RestObject) -> PullRequestCheck:
    """Return the check of a job or of an external status. Only a job of GitLab has a `stage`, and therefore a log."""
    is_job = "stage" in job
    reason = str(job.get("failure_reason") or "").replace("_", " ")
    optional = "It failed, but may." if job.get("allow_failure") and job.get("status") == "failed" else ""
    manual = "It waits for a person to start it." if job.get("status") == "manual" else ""
    notes = (optional, manual, str(job.get("description") or ""), reason if reason != "script failure" else "")
    return PullRequestCheck(
        id=str(job.get("id")),
        name=str(job.get("name") or "job"),
        state=job_state(job),
        url=job.get("web_url") or job.get("target_url"),
        summary="\n".join(filter(None, notes))[:MAX_SUMMARY_LENGTH],
        job=f"{pipeline.get('project_id')}/{job.get('id')}" if is_job else None,
    )


def _reviews(parts: MergeRequestParts, who: AuthorOfUser) -> Iterable[PullRequestReview]:
    """Return approvals and requested changes as reviews. A withdrawn one has the verdict `commented`.

    GitLab writes its system notes some time after the action, if at all. So a verdict never depends on a note: notes only show how often
    changes were requested, and when.
    """
    notes = [note for item in parts.discussions or () for note in item.get("notes") or [] if note.get("system")]
    pushes = [parse_time(note.get("created_at")) for note in notes if str(note.get("body")).startswith(_PUSH_NOTE)]
    requesting = {
        _username(item.get("user")): item for item in parts.reviewers or () if item.get("state") == "requested_changes"
    }
    head = str(parts.whole.get("sha") or "")
    request_notes: dict[str, list[RestObject]] = {name: [] for name in requesting}
    for note in notes:
        if note.get("body") == _CHANGES_REQUESTED_NOTE:
            request_notes.setdefault(_username(note.get("author")), []).append(note)
    for name, own_notes in request_notes.items():
        user = requesting[name].get("user") if name in requesting else own_notes[0].get("author")
        for number, note in enumerate(own_notes or [{}], 1):
            at = parse_time(note.get("created_at"))
            is_current = name in requesting and number == max(1, len(own_notes))
            review_head = "" if note and any(at < push for push in pushes) else head
            review_id = f"changes-{name}" + (f"-{number}" if number > 1 else "")
            yield PullRequestReview(
                review_id, "changes_requested" if is_current else "commented", who(user), "", review_head, at
            )
    approvals = {_username(item.get("user")): item for item in (parts.approvals or {}).get("approved_by") or []}
    approval_notes = {_username(note.get("author")): note for note in notes if note.get("body") == _APPROVAL_NOTE}
    for name in {**approval_notes, **approvals}:
        note_of_approval = approval_notes.get(name, {})
        user = approvals[name].get("user") if name in approvals else note_of_approval.get("author")
        at = parse_time(approvals.get(name, {}).get("approved_at") or note_of_approval.get("created_at"))
        yield PullRequestReview(
            f"approved-{name}", "approved" if name in approvals else "commented", who(user), "", head, at
        )


def _comments(parts: MergeRequestParts, who: AuthorOfUser, our_login: str) -> Iterable[PullRequestComment]:
    """Return all comments except system notes."""
    merge_request = merge_request_id(parts.whole)
    for discussion in parts.discussions or ():
        notes = [note for note in discussion.get("notes") or [] if not note.get("system")]
        resolutions = [bool(note.get("resolved")) for note in notes if note.get("resolvable")]
        thread = None if discussion.get("individual_note") else f"{merge_request}!{discussion.get('id')}"
        for note in notes:
            body, mark = split_mark(str(note.get("body") or ""))
            author = who(note.get("author"))
            is_ours = bool(mark) and is_same_login(our_login, author.name)
            position = note.get("position") if isinstance(note.get("position"), Mapping) else {}
            yield PullRequestComment(
                id=str(note.get("id")),
                body=body,
                author=replace(author, kind="agent") if is_ours else author,
                at=parse_time(note.get("created_at")),
                path=position.get("new_path") or position.get("old_path"),
                line=position.get("new_line") or position.get("old_line"),
                thread=thread,
                head=str(position.get("head_sha") or ""),
                resolved=bool(resolutions) and all(resolutions),
                mark=mark if is_ours else "",
            )


def people_of(parts: MergeRequestParts) -> Iterable[Any]:
    """Return the users of all comments, approvals and requests for changes."""
    for discussion in parts.discussions or ():
        for note in discussion.get("notes") or []:
            if not note.get("system") or str(note.get("body")) in (_APPROVAL_NOTE, _CHANGES_REQUESTED_NOTE):
                yield note.get("author")
    yield from (item.get("user") for item in (parts.approvals or {}).get("approved_by") or [])
    yield from (item.get("user") for item in parts.reviewers or () if item.get("state") == "requested_changes")


def _label(label: Any) -> str:
    """Return a label's name; GitLab returns an object or a plain name."""
    return str(label.get("name")) if isinstance(label, Mapping) else str(label)


def _username(user: Any) -> str:
    """Return a username, or ""."""
    return str(user.get("username")) if isinstance(user, Mapping) else ""
