"""A merge request as GitLab tells it by REST, and what it comes to: `PullState`. Pure.

What an answer does not have is unknown: it is named in `PullState.unread`, and nothing is concluded from its absence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_orchestrator.plugins.forges.github.comment_marks import unmarked
from agent_orchestrator.plugins.forges.github.people import same, when
from agent_orchestrator.protocols.forge import Author, PullCheck, PullComment, PullReview, PullState

Node = Mapping[str, Any]
Who = Callable[[Any], Author]

DRAFT = re.compile(r"\s*(?:\[draft\]|\(draft\)|draft:)\s*", re.IGNORECASE)
LONGEST_SUMMARY = 4_000
PIPELINE = "pipeline"
"""The check that stands for a pipeline which its jobs do not explain."""
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
"""Whatever else a job may have come to is a failure."""
_TIMED_OUT = ("job_execution_timeout", "stuck_or_timeout_failure")
_UNDECIDED = (
    "checking",
    "unchecked",
    "preparing",
    "approvals_syncing",
    "cannot_be_merged_recheck",
    "cannot_be_merged_rechecking",
)
_FREE = ("", "mergeable", "not_open", "draft_status", "conflict", "broken_status", *_UNDECIDED)
"""What demands nothing, or is told otherwise."""
_DEMANDS = {
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
_APPROVED, _REQUESTED, _PUSHED = "approved this merge request", "requested changes", "added "


@dataclass(frozen=True, slots=True)
class Parts:
    """What was read of a merge request; none: it could not be."""

    whole: Node
    approvals: Node | None
    discussions: Sequence[Node] | None
    reviewers: Sequence[Node] | None
    jobs: Sequence[Node] | None
    """Of its head's pipeline; nothing where there is none."""
    pipeline: Node | None
    """Its head's pipeline, if it is of this head."""
    base_head: str = ""
    checks_expected: bool | None = None
    fork: str = ""


def pull_state(parts: Parts, who: Who, us: str) -> PullState:
    """What all that comes to. `us`: our login; `who` knows people's rights."""
    one = parts.whole
    state = {"opened": "open", "locked": "open", "merged": "merged"}.get(str(one.get("state")), "closed")
    lacking = [("checks", parts.jobs), ("comments", parts.discussions)]
    unread = {name for name, part in lacking if part is None}
    if parts.approvals is None or parts.discussions is None or parts.reviewers is None:
        unread.add("reviews")
    checks = () if parts.jobs is None else checks_of(parts.pipeline, parts.jobs)
    return PullState(
        number=int(one["iid"]),
        id=name_of(one),
        url=str(one.get("web_url") or ""),
        title=plain_title(str(one.get("title") or "")),
        state=state,
        draft=bool(one.get("draft")),
        branch=str(one.get("source_branch") or ""),
        head=str(one.get("sha") or ""),
        base=str(one.get("target_branch") or ""),
        base_head=parts.base_head,
        mergeable=mergeable(one),
        blocked=blocked(one) if state == "open" else "",
        checks=checks,
        checks_expected=True if checks else parts.checks_expected,
        reviews=() if "reviews" in unread else tuple(_reviews(parts, who)),
        comments=tuple(_comments(parts, who, us)),
        labels=tuple(_label(label) for label in one.get("labels") or []),
        queued=state == "open" and bool(one.get("merge_when_pipeline_succeeds")),
        merged_as=landed_as(one) if state == "merged" else None,
        fork=parts.fork,
        unread=tuple(sorted(unread)),
    )


def name_of(one: Node) -> str:
    """A merge request's name for good: the project's number does not change with its path."""
    return f"{one.get('target_project_id') or one.get('project_id')}!{one['iid']}"


def plain_title(title: str) -> str:
    """A title without the word that makes it a draft."""
    return DRAFT.sub("", title, count=1) if DRAFT.match(title) else title


def landed_as(one: Node) -> str:
    """The commit that it landed as; a fast-forward makes none of its own."""
    return str(one.get("merge_commit_sha") or one.get("squash_commit_sha") or one.get("sha") or "")


def mergeable(one: Node) -> str:
    """Does it conflict with its base?"""
    told, plain = str(one.get("detailed_merge_status") or ""), str(one.get("merge_status") or "")
    if told in _UNDECIDED or plain in _UNDECIDED:
        return "unknown"
    if told == "conflict" or one.get("has_conflicts") or plain == "cannot_be_merged":
        return "no"
    return "yes" if plain == "can_be_merged" or told in ("mergeable", "need_rebase") else "unknown"


def blocked(one: Node) -> str:
    """What GitLab demands before it may land."""
    told = str(one.get("detailed_merge_status") or "")
    return "" if told in _FREE else _DEMANDS.get(told, f"GitLab says {told}")


def job_state(job: Node) -> str:
    """Our word for a job's state. One that may fail has nothing to say when it did; nobody waits for one that may be left out."""
    status = str(job.get("status"))
    state = _STATES.get(status, "failure")
    if job.get("allow_failure") and (state == "failure" or status in ("manual", "canceled")):
        return "skipped"
    return "timed_out" if state == "failure" and job.get("failure_reason") in _TIMED_OUT else state


def explained(pipeline: Node, jobs: Iterable[Node]) -> bool:
    """Do its jobs account for a pipeline's state? Other systems' statuses and downstream pipelines are not among the jobs."""
    states = {job_state(job) for job in jobs}
    status = _STATES.get(str(pipeline.get("status")), "failure")
    if status == "failure":
        return bool(states & {"failure", "timed_out"})
    if status in ("queued", "running"):
        return bool(states & {"queued", "running"})
    return status == "cancelled" or bool(states)


def checks_of(pipeline: Node | None, jobs: Iterable[Node]) -> tuple[PullCheck, ...]:
    """The checks of a head: one for each name, the newest; and the pipeline itself where they do not account for its state."""
    if pipeline is None:
        return ()
    newest: dict[str, Node] = {}
    for job in jobs:
        name = str(job.get("name") or "job")
        if name not in newest or int(newest[name].get("id") or 0) < int(job.get("id") or 0):
            newest[name] = job
    found = [_check(pipeline, newest[name]) for name in sorted(newest)]
    if not explained(pipeline, newest.values()):
        wrong = str(pipeline.get("yaml_errors") or "")
        found.append(
            PullCheck(
                id=f"pipeline-{pipeline.get('id')}-{pipeline.get('status')}",
                name=PIPELINE,
                state=_STATES.get(str(pipeline.get("status")), "failure"),
                url=pipeline.get("web_url"),
                summary=wrong[:LONGEST_SUMMARY],
            )
        )
    return tuple(found)


def _check(pipeline: Node, job: Node) -> PullCheck:
    ran_here = "stage" in job
    reason = str(job.get("failure_reason") or "").replace("_", " ")
    optional = "It failed, but may." if job.get("allow_failure") and job.get("status") == "failed" else ""
    waits = "It waits for a person to start it." if job.get("status") == "manual" else ""
    words = (optional, waits, str(job.get("description") or ""), reason if reason != "script failure" else "")
    return PullCheck(
        id=str(job.get("id")),
        name=str(job.get("name") or "job"),
        state=job_state(job),
        url=job.get("web_url") or job.get("target_url"),
        summary="\n".join(filter(None, words))[:LONGEST_SUMMARY],
        job=f"{pipeline.get('project_id')}/{job.get('id')}" if ran_here else None,
    )


def _reviews(parts: Parts, who: Who) -> Iterable[PullReview]:
    """Approvals and requested changes as they stand. What was withdrawn is no verdict any more.

    GitLab writes down what somebody did some time after he did it, if at all; so that does not name a verdict, it but tells how often
    changes were requested.
    """
    notes = [note for one in parts.discussions or () for note in one.get("notes") or [] if note.get("system")]
    pushes = [when(note.get("created_at")) for note in notes if str(note.get("body")).startswith(_PUSHED)]
    wanting = {_name(one.get("user")): one for one in parts.reviewers or () if one.get("state") == "requested_changes"}
    head = str(parts.whole.get("sha") or "")
    asked: dict[str, list[Node]] = {name: [] for name in wanting}
    for note in notes:
        if note.get("body") == _REQUESTED:
            asked.setdefault(_name(note.get("author")), []).append(note)
    for name, written in asked.items():
        user = wanting[name].get("user") if name in wanting else written[0].get("author")
        for turn, note in enumerate(written or [{}], 1):
            at = when(note.get("created_at"))
            holds = name in wanting and turn == max(1, len(written))
            seen = "" if note and any(at < push for push in pushes) else head
            known = f"changes-{name}" + (f"-{turn}" if turn > 1 else "")
            yield PullReview(known, "changes_requested" if holds else "commented", who(user), "", seen, at)
    given = {_name(one.get("user")): one for one in (parts.approvals or {}).get("approved_by") or []}
    before = {_name(note.get("author")): note for note in notes if note.get("body") == _APPROVED}
    for name in {**before, **given}:
        said = before.get(name, {})
        user = given[name].get("user") if name in given else said.get("author")
        at = when(given.get(name, {}).get("approved_at") or said.get("created_at"))
        yield PullReview(f"approved-{name}", "approved" if name in given else "commented", who(user), "", head, at)


def _comments(parts: Parts, who: Who, us: str) -> Iterable[PullComment]:
    of = name_of(parts.whole)
    for discussion in parts.discussions or ():
        notes = [note for note in discussion.get("notes") or [] if not note.get("system")]
        settled = [bool(note.get("resolved")) for note in notes if note.get("resolvable")]
        thread = None if discussion.get("individual_note") else f"{of}!{discussion.get('id')}"
        for note in notes:
            body, mark = unmarked(str(note.get("body") or ""))
            author = who(note.get("author"))
            ours = bool(mark) and same(us, author.name)
            place = note.get("position") if isinstance(note.get("position"), Mapping) else {}
            yield PullComment(
                id=str(note.get("id")),
                body=body,
                author=replace(author, kind="agent") if ours else author,
                at=when(note.get("created_at")),
                path=place.get("new_path") or place.get("old_path"),
                line=place.get("new_line") or place.get("old_line"),
                thread=thread,
                head=str(place.get("head_sha") or ""),
                resolved=bool(settled) and all(settled),
                mark=mark if ours else "",
            )


def people_of(parts: Parts) -> Iterable[Any]:
    """Everybody whose word is in it."""
    for discussion in parts.discussions or ():
        for note in discussion.get("notes") or []:
            if not note.get("system") or str(note.get("body")) in (_APPROVED, _REQUESTED):
                yield note.get("author")
    yield from (one.get("user") for one in (parts.approvals or {}).get("approved_by") or [])
    yield from (one.get("user") for one in parts.reviewers or () if one.get("state") == "requested_changes")


def _label(label: Any) -> str:
    return str(label.get("name")) if isinstance(label, Mapping) else str(label)


def _name(user: Any) -> str:
    return str(user.get("username")) if isinstance(user, Mapping) else ""
