"""Permissions, and whether a merge request may be merged. Pure, except that Git is asked about conflicts."""

from __future__ import annotations

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.gitlab.state import GitLabMergeRequest, GitLabPipeline, GitLabProject, GitLabUser

DEVELOPER, MAINTAINER, OWNER = 30, 40, 50
ENDED_STATUSES = ("success", "failed", "canceled", "skipped", "manual")


def access_level(project: GitLabProject, user: GitLabUser | None) -> int:
    """Return a person's access level; 0 for a non-member."""
    if user is None:
        return 0
    own = OWNER if user.login.lower() == project.namespace.partition("/")[0].lower() else 0
    return max(own, project.people.get(user.login, 0))


def is_visible(project: GitLabProject, user: GitLabUser | None) -> bool:
    return not project.private or access_level(project, user) > 0


def pipeline_status(pipeline: GitLabPipeline) -> str:
    """Return a pipeline's status from its jobs."""
    if pipeline.yaml_errors:
        return "failed"
    jobs = [job for job in pipeline.jobs if not job.retried]
    states = {"success" if job.status == "failed" and job.allow_failure else job.status for job in jobs}
    states -= {"manual"} if any(job.status == "manual" and job.allow_failure for job in jobs) else set()
    for name in ("running", "pending", "created", "failed", "canceled", "manual"):
        if name in states:
            return name
    return "skipped" if states == {"skipped"} else "success" if states else "created"


def can_be_merged(merge_request: GitLabMergeRequest) -> bool:
    base = merge_request.project.head(merge_request.base)
    return (
        bool(base)
        and bare_repository.merge_tree(merge_request.project.path, base or "", merge_request.head_sha) is not None
    )


def merge_status(merge_request: GitLabMergeRequest, *, ask: bool) -> str:
    """Return `merge_status`; reading it (`ask`) starts its computation, as on GitLab."""
    if merge_request.state == "opened" and merge_request.unknown_left > 0:
        merge_request.unknown_left -= ask
        return "checking" if ask else "unchecked"
    return "can_be_merged" if can_be_merged(merge_request) else "cannot_be_merged"


def detailed_merge_status(merge_request: GitLabMergeRequest, status: str) -> str:
    """Return `detailed_merge_status` by the first unmet requirement."""
    if merge_request.state != "opened":
        return "not_open"
    if status in ("checking", "unchecked"):
        return status
    project = merge_request.project
    if merge_request.draft:
        return "draft_status"
    if not bare_repository.commits(project.path, project.head(merge_request.base) or "", merge_request.head_sha):
        return "commits_status"
    if project.discussions_must_be_resolved and not are_discussions_resolved(merge_request):
        return "discussions_not_resolved"
    if project.pipeline_must_succeed and (problem := _pipeline(merge_request)):
        return problem
    if len(merge_request.approvals) < project.approvals_required:
        return "not_approved"
    if "requested_changes" in merge_request.reviewers.values():
        return "requested_changes"
    if status == "cannot_be_merged":
        return "conflict"
    return "need_rebase" if project.merge_method == "ff" and is_behind(merge_request) else "mergeable"


def are_discussions_resolved(merge_request: GitLabMergeRequest) -> bool:
    return all(note.resolved for note in merge_request.notes if note.resolvable)


def is_behind(merge_request: GitLabMergeRequest) -> bool:
    base = merge_request.project.head(merge_request.base) or ""
    return not bare_repository.is_ancestor(merge_request.project.path, base, merge_request.head_sha)


def _pipeline(merge_request: GitLabMergeRequest) -> str:
    pipeline = merge_request.head_pipeline
    if pipeline is None or pipeline.sha != merge_request.head_sha:
        return "ci_must_pass"
    if pipeline.status not in ENDED_STATUSES:
        return "ci_still_running"
    return "" if pipeline.status in ("success", "skipped") else "ci_must_pass"
