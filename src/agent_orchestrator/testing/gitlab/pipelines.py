"""Pipelines: created for a commit, and found again."""

from __future__ import annotations

from agent_orchestrator.testing.gitlab.state import GitLabMergeRequest, GitLabPipeline, GitLabProject
from agent_orchestrator.testing.gitlab.world import GitLabWorld


def create_pipeline(
    world: GitLabWorld,
    project: GitLabProject,
    sha: str,
    *,
    ref: str = "",
    source: str = "push",
    of_merge_request: GitLabMergeRequest | None = None,
) -> GitLabPipeline:
    """Create a pipeline of a commit."""
    branch = ref or next((name.removeprefix("refs/heads/") for name, at in project.refs.items() if at == sha), "main")
    iid = len(project.pipelines) + 1
    created = GitLabPipeline(
        **world.record_fields(),
        project=project,
        iid=iid,
        sha=sha,
        ref=branch,
        user=project.creator,
        source=source,
        merge_request=of_merge_request,
    )
    project.pipelines[created.id] = created
    for other in world.projects.values():
        for candidate in other.merge_requests.values():
            if (
                candidate.state == "opened"
                and candidate.head_sha == sha
                and project in (candidate.source, candidate.project)
            ):
                candidate.head_pipeline = created
                created.merge_request = created.merge_request or candidate
    return created


def use_existing_pipeline(merge_request: GitLabMergeRequest) -> None:
    """Assign an existing pipeline of its head to a merge request; without one it keeps the old pipeline."""
    for project in filter(None, (merge_request.source, merge_request.project)):
        existing = [other for other in project.pipelines.values() if other.sha == merge_request.head_sha]
        if existing:
            merge_request.head_pipeline = existing[-1]
            existing[-1].merge_request = existing[-1].merge_request or merge_request
            return


def newest_pipeline(project: GitLabProject, sha: str) -> GitLabPipeline | None:
    return next((candidate for candidate in reversed(project.pipelines.values()) if candidate.sha == sha), None)
