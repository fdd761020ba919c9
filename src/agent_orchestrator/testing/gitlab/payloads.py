"""The payloads of GitLab's webhooks."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.gitlab import rules
from agent_orchestrator.testing.gitlab.shapes import GitLabShapes, Json
from agent_orchestrator.testing.gitlab.state import (
    Discussion,
    GitLabIssue,
    GitLabJob,
    GitLabLabel,
    GitLabMergeRequest,
    GitLabPipeline,
    GitLabProject,
    GitLabUser,
    Note,
)


class Payloads(GitLabShapes):
    def _user(self, user: GitLabUser) -> Json:
        shape = self.user(user)
        return {**{key: shape[key] for key in ("id", "name", "username", "avatar_url")}, "email": "[REDACTED]"}

    def _project(self, project: GitLabProject) -> Json:
        page, ssh = self.page(project), f"git@127.0.0.1:{project.full_name}.git"
        return {
            "id": project.id, "name": project.name, "description": None, "web_url": page, "avatar_url": None, "git_ssh_url": ssh,
            "git_http_url": f"{page}.git", "namespace": project.namespace, "visibility_level": 0 if project.private else 20,
            "path_with_namespace": project.full_name, "default_branch": project.default_branch, "ci_config_path": None,
            "homepage": page, "url": ssh, "ssh_url": ssh, "http_url": f"{page}.git",
        }  # fmt: skip

    def _repository(self, project: GitLabProject) -> Json:
        shape = self._project(project)
        keys = ("name", "url", "description", "homepage", "git_http_url", "git_ssh_url", "visibility_level")
        return {key: shape[key] for key in keys}

    def _commit(self, project: GitLabProject, sha: str) -> Json:
        data = bare_repository.commit(project.path, sha)
        return {
            "id": sha, "message": data.message, "title": data.message.partition("\n")[0], "timestamp": data.committed,
            "url": f"{self.page(project)}/-/commit/{sha}", "author": {"name": data.author, "email": data.email},
        }  # fmt: skip

    def _label(self, label: GitLabLabel, project: GitLabProject) -> Json:
        return {
            "id": label.id, "title": label.name, "color": label.color, "project_id": project.id, "created_at": label.created_at,
            "updated_at": label.updated_at, "template": False, "description": None, "type": "ProjectLabel", "group_id": None,
        }  # fmt: skip

    def _labels(self, issue: GitLabIssue) -> list[Json]:
        return [self._label(issue.project.labels[name.lower()], issue.project) for name in issue.labels]

    def push(self, project: GitLabProject, user: GitLabUser, ref: str, old: str | None, new: str | None) -> Json:
        shas = bare_repository.commits(project.path, old, new)[-20:] if old and new else ()
        commits = [{**self._commit(project, sha), "added": [], "modified": [], "removed": []} for sha in shas]
        return {
            "object_kind": "push", "event_name": "push", "before": old or bare_repository.NO_COMMIT,
            "after": new or bare_repository.NO_COMMIT, "ref": ref,
            "ref_protected": ref.removeprefix("refs/heads/") in project.protected, "checkout_sha": new, "message": None,
            "user_id": user.id, "user_name": user.name or user.login, "user_username": user.login, "user_email": "",
            "user_avatar": "", "project_id": project.id, "project": self._project(project), "commits": commits,
            "total_commits_count": len(commits), "push_options": {}, "repository": self._repository(project),
        }  # fmt: skip

    def _issue_attributes(self, issue: GitLabIssue, action: str) -> Json:
        people = [person.id for person in issue.assignees]
        kind = "merge_requests" if isinstance(issue, GitLabMergeRequest) else "issues"
        return {
            "id": issue.id, "iid": issue.iid, "title": issue.title, "description": issue.body or "", "author_id": issue.author.id,
            "assignee_ids": people, "assignee_id": people[0] if people else None, "project_id": issue.project.id,
            "created_at": issue.created_at, "updated_at": issue.updated_at, "last_edited_at": None, "last_edited_by_id": None,
            "milestone_id": None, "state": issue.state, "state_id": {"opened": 1, "closed": 2, "merged": 3}[issue.state],
            "url": f"{self.page(issue.project)}/-/{kind}/{issue.iid}", "action": action, "labels": self._labels(issue),
            "total_time_spent": 0, "time_change": 0, "human_total_time_spent": None, "human_time_change": None,
            "human_time_estimate": None, "time_estimate": 0,
        }  # fmt: skip

    def issue_event(self, issue: GitLabIssue, user: GitLabUser, action: str, changes: Json) -> Json:
        fields = {
            "confidential": issue.confidential, "discussion_locked": None, "due_date": None, "moved_to_id": None, "type": "Issue",
            "duplicated_to_id": None, "relative_position": 0, "updated_by_id": None, "weight": None, "severity": "unknown",
            "position": 0, "branch_name": None, "health_status": None,
        }  # fmt: skip
        people = [self._user(person) for person in issue.assignees]
        return {
            "object_kind": "issue", "event_type": "issue", "user": self._user(user), "project": self._project(issue.project),
            "object_attributes": {**self._issue_attributes(issue, action), **fields}, "labels": self._labels(issue),
            "changes": changes, "repository": self._repository(issue.project), "assignees": people,
            "assignee": people[0] if people else None,
        }  # fmt: skip

    def _merge_request(self, merge_request: GitLabMergeRequest, action: str) -> Json:
        status = rules.merge_status(merge_request, ask=False)
        return {
            **self._issue_attributes(merge_request, action),
            "target_branch": merge_request.base,
            "source_branch": merge_request.branch,
            "source_project_id": merge_request.source.id if merge_request.source else None,
            "target_project_id": merge_request.project.id,
            "reviewer_ids": [self.state.users[name.lower()].id for name in merge_request.reviewers],
            "blocking_discussions_resolved": rules.are_discussions_resolved(merge_request),
            "work_in_progress": merge_request.draft,
            "draft": merge_request.draft,
            "first_contribution": False,
            "merge_commit_sha": merge_request.merge_commit,
            "merge_status": status,
            "detailed_merge_status": rules.detailed_merge_status(merge_request, status),
            "source": self._project(merge_request.source or merge_request.project),
            "target": self._project(merge_request.project),
            "last_commit": self._commit(merge_request.project, merge_request.head_sha),
            "position": 0,
            "head_pipeline_id": merge_request.head_pipeline.id if merge_request.head_pipeline else None,
            "merge_error": None,
            "merge_params": {},
            "merge_when_pipeline_succeeds": merge_request.auto_merge is not None,
            "updated_by_id": None,
            "prepared_at": merge_request.created_at,
            "assignee": self._user(merge_request.assignees[0]) if merge_request.assignees else None,
        }

    def merge_request_event(
        self, merge_request: GitLabMergeRequest, user: GitLabUser, action: str, changes: Json, fields: Json
    ) -> Json:
        return {
            "object_kind": "merge_request",
            "event_type": "merge_request",
            "user": self._user(user),
            "project": self._project(merge_request.project),
            "object_attributes": {**self._merge_request(merge_request, action), **fields},
            "labels": self._labels(merge_request),
            "changes": changes,
            "repository": self._repository(merge_request.project),
            "assignees": [self._user(user) for user in merge_request.assignees],
            "reviewers": [self._user(self.state.users[name.lower()]) for name in merge_request.reviewers],
        }

    def note_event(self, note: Note, discussion: Discussion, action: str) -> Json:
        noteable = discussion.on
        is_merge_request = isinstance(noteable, GitLabMergeRequest)
        kind = "merge_requests" if is_merge_request else "issues"
        inner: Json = (
            {"merge_request": self._merge_request(noteable, action)}
            if isinstance(noteable, GitLabMergeRequest)
            else {"issue": {**self._issue_attributes(noteable, action), "position": 0, "branch_name": None}}
        )
        return {
            "object_kind": "note",
            "event_type": "note",
            "user": self._user(note.author),
            "project_id": noteable.project.id,
            "project": self._project(noteable.project),
            "repository": self._repository(noteable.project),
            "object_attributes": {
                "id": note.id,
                "note": note.body,
                "description": note.body,
                "noteable_type": "MergeRequest" if is_merge_request else "Issue",
                "noteable_id": noteable.id,
                "author_id": note.author.id,
                "created_at": note.created_at,
                "updated_at": note.updated_at,
                "project_id": noteable.project.id,
                "attachment": None,
                "line_code": None,
                "commit_id": None,
                "system": False,
                "st_diff": None,
                "discussion_id": discussion.id,
                "type": "DiffNote" if note.position else None,
                "position": note.position,
                "resolved_at": note.resolved_at,
                "resolved_by_id": None,
                "internal": False,
                "url": f"{self.page(noteable.project)}/-/{kind}/{noteable.iid}#note_{note.id}",
                "action": action,
            },
            **inner,
        }

    def pipeline_event(self, pipeline: GitLabPipeline) -> Json:
        merge_request = pipeline.merge_request
        merge_request_part = None
        if merge_request:
            shape = self._merge_request(merge_request, "update")
            keys = ("id", "iid", "title", "source_branch", "source_project_id", "target_branch", "target_project_id", "state",
                    "merge_status", "detailed_merge_status", "url")  # fmt: skip
            merge_request_part = {key: shape[key] for key in keys}
        return {
            "object_kind": "pipeline",
            "object_attributes": {
                "id": pipeline.id,
                "iid": pipeline.iid,
                "name": None,
                "ref": pipeline.ref,
                "tag": False,
                "sha": pipeline.sha,
                "before_sha": bare_repository.NO_COMMIT,
                "source": pipeline.source,
                "status": pipeline.status,
                "detailed_status": pipeline.status,
                "stages": ["test"],
                "created_at": pipeline.created_at,
                "finished_at": pipeline.finished_at,
                "duration": 1,
                "queued_duration": 1,
                "variables": [],
                "url": f"{self.page(pipeline.project)}/-/pipelines/{pipeline.id}",
            },
            "merge_request": merge_request_part,
            "user": self._user(pipeline.user),
            "project": self._project(pipeline.project),
            "commit": self._commit(pipeline.project, pipeline.sha),
            "builds": [self._build(job) for job in pipeline.jobs if not job.external],
        }

    def _build(self, job: GitLabJob) -> Json:
        return {
            "id": job.id,
            "stage": job.stage,
            "name": job.name,
            "status": job.status,
            "created_at": job.created_at,
            "started_at": job.started_at,
            "finished_at": job.finished_at,
            "duration": 1.0,
            "queued_duration": 1.0,
            "failure_reason": job.failure_reason,
            "when": "on_success",
            "manual": False,
            "allow_failure": job.allow_failure,
            "user": self._user(job.pipeline.user),
            "runner": None,
            "artifacts_file": {"filename": None, "size": None},
            "environment": None,
        }

    def job_event(self, job: GitLabJob) -> Json:
        pipeline: GitLabPipeline = job.pipeline
        data = bare_repository.commit(pipeline.project.path, pipeline.sha)
        commit: dict[str, Any] = {
            "id": pipeline.id, "name": None, "sha": pipeline.sha, "message": data.message, "author_name": data.author,
            "author_email": data.email, "author_url": "", "status": pipeline.status, "duration": None,
            "started_at": pipeline.created_at, "finished_at": pipeline.finished_at,
        }  # fmt: skip
        return {
            "object_kind": "build", "ref": pipeline.ref, "tag": False, "before_sha": bare_repository.NO_COMMIT, "sha": pipeline.sha,
            "retries_count": 0, "build_id": job.id, "build_name": job.name, "build_stage": job.stage, "build_status": job.status,
            "build_created_at": job.created_at, "build_started_at": job.started_at, "build_finished_at": job.finished_at,
            "build_duration": 1.0, "build_queued_duration": 1.0, "build_allow_failure": job.allow_failure,
            "build_failure_reason": job.failure_reason or "unknown_failure", "pipeline_id": pipeline.id, "runner": None,
            "project_id": pipeline.project.id, "project_name": " / ".join(pipeline.project.full_name.split("/")),
            "user": self._user(pipeline.user), "commit": commit, "repository": self._repository(pipeline.project),
            "project": self._project(pipeline.project), "environment": None,
        }  # fmt: skip
