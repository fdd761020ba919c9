"""JSON of GitLab's REST API."""

from __future__ import annotations

from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.gitlab import rules
from agent_orchestrator.testing.gitlab.state import (
    Discussion,
    GitLabIssue,
    GitLabJob,
    GitLabLabel,
    GitLabMergeRequest,
    GitLabPipeline,
    GitLabProject,
    GitLabState,
    GitLabUser,
    GitLabWebhook,
    Note,
    Train,
)

Json = dict[str, Any]
HOOK_EVENTS = (
    "push_events", "tag_push_events", "merge_requests_events", "issues_events", "confidential_issues_events", "note_events",
    "confidential_note_events", "job_events", "pipeline_events", "wiki_page_events", "deployment_events", "releases_events",
)  # fmt: skip


class GitLabShapes:
    def __init__(self, state: GitLabState, viewer: GitLabUser | None = None) -> None:
        self.state = state
        self.viewer = viewer

    @property
    def api(self) -> str:
        return f"{self.state.url}/api/v4"

    def page(self, project: GitLabProject) -> str:
        return f"{self.state.url}/{project.full_name}"

    def user(self, user: GitLabUser) -> Json:
        return {
            "id": user.id, "username": user.login, "public_email": "", "name": user.name or user.login.title(), "state": "active",
            "locked": False, "avatar_url": f"{self.state.url}/avatar/{user.id}.png", "web_url": f"{self.state.url}/{user.login}",
        }  # fmt: skip

    def myself(self, user: GitLabUser) -> Json:
        empty = (
            "bio",
            "location",
            "linkedin",
            "twitter",
            "discord",
            "website_url",
            "pronouns",
            "organization",
            "job_title",
        )
        return {
            **self.user(user), "created_at": user.created_at, **dict.fromkeys(empty, ""), "skype": "", "work_information": None,
            "bot": user.bot, "followers": 0, "following": 0, "local_time": None, "is_followed": False, "is_admin": False,
            "last_sign_in_at": user.created_at, "confirmed_at": user.created_at, "last_activity_on": user.created_at[:10],
            "email": f"{user.login}@example.com", "theme_id": 1, "color_scheme_id": 1, "projects_limit": 100000, "note": None,
            "current_sign_in_at": user.created_at, "identities": [], "can_create_group": True, "can_create_project": True,
            "two_factor_enabled": False, "external": False, "private_profile": False, "commit_email": f"{user.login}@example.com",
            "namespace_id": user.id, "created_by": None,
        }  # fmt: skip

    def member(self, project: GitLabProject, user: GitLabUser) -> Json:
        fields = {
            "access_level": rules.access_level(project, user),
            "expires_at": None,
            "created_at": project.created_at,
        }
        return {**self.user(user), **fields, "membership_state": "active"}

    def project(self, project: GitLabProject) -> Json:
        page, root = self.page(project), project.namespace.partition("/")[0]
        own_level = rules.access_level(project, self.viewer)
        return {
            "id": project.id, "description": None, "name": project.name, "path": project.name,
            "name_with_namespace": " / ".join(project.full_name.split("/")), "path_with_namespace": project.full_name,
            "created_at": project.created_at, "default_branch": project.default_branch, "topics": [], "tag_list": [],
            "ssh_url_to_repo": f"git@127.0.0.1:{project.full_name}.git", "http_url_to_repo": f"{page}.git", "web_url": page,
            "readme_url": f"{page}/-/blob/{project.default_branch}/README.md", "forks_count": 0, "avatar_url": None, "star_count": 0,
            "last_activity_at": project.updated_at, "visibility": "private" if project.private else "public",
            "namespace": {
                "id": project.creator.id, "name": root, "path": root, "kind": "group", "full_path": project.namespace,
                "parent_id": None, "avatar_url": None, "web_url": f"{self.state.url}/{project.namespace}",
            },
            "archived": False, "merge_method": project.merge_method, "squash_option": project.squash_option,
            "jobs_enabled": project.jobs_enabled, "builds_access_level": "enabled" if project.jobs_enabled else "disabled",
            "ci_config_path": None, "auto_devops_enabled": False, "creator_id": project.creator.id,
            "only_allow_merge_if_pipeline_succeeds": project.pipeline_must_succeed,
            "only_allow_merge_if_all_discussions_are_resolved": project.discussions_must_be_resolved,
            "merge_trains_enabled": project.merge_trains, "merge_pipelines_enabled": project.merge_trains,
            "remove_source_branch_after_merge": False, "approvals_before_merge": project.approvals_required,
            "permissions": {
                "project_access": {"access_level": own_level, "notification_level": 3} if own_level else None, "group_access": None,
            },
            **({"forked_from_project": {"id": project.parent.id, "path_with_namespace": project.parent.full_name}}
               if project.parent else {}),
        }  # fmt: skip

    def commit(self, project: GitLabProject, sha: str) -> Json:
        data = bare_repository.commit(project.path, sha)
        return {
            "id": data.sha, "short_id": data.sha[:8], "created_at": data.committed, "parent_ids": list(data.parents),
            "title": data.message.partition("\n")[0], "message": data.message, "author_name": data.author,
            "author_email": data.email, "authored_date": data.date, "committer_name": data.committer,
            "committer_email": data.committer_email, "committed_date": data.committed, "trailers": {}, "extended_trailers": {},
            "web_url": f"{self.page(project)}/-/commit/{data.sha}",
        }  # fmt: skip

    def branch(self, project: GitLabProject, name: str) -> Json:
        can_push = rules.access_level(project, self.viewer) >= rules.DEVELOPER
        return {
            "name": name, "commit": self.commit(project, project.head(name) or ""), "merged": False,
            "protected": name in project.protected, "developers_can_push": False, "developers_can_merge": False, "can_push": can_push,
            "default": name == project.default_branch, "web_url": f"{self.page(project)}/-/tree/{name}",
        }  # fmt: skip

    def protected(self, project: GitLabProject, name: str) -> Json:
        maintainers = [{"id": project.id, "access_level": 40, "access_level_description": "Maintainers", "user_id": None,
                        "group_id": None}]  # fmt: skip
        return {
            "id": project.id, "name": name, "push_access_levels": maintainers, "merge_access_levels": maintainers,
            "unprotect_access_levels": [], "allow_force_push": False, "code_owner_approval_required": False,
        }  # fmt: skip

    def _common(self, issue: GitLabIssue, sign: str, kind: str) -> Json:
        full = f"{issue.project.full_name}{sign}{issue.iid}"
        short = f"{sign}{issue.iid}"
        return {
            "id": issue.id, "iid": issue.iid, "project_id": issue.project.id, "title": issue.title, "description": issue.body,
            "state": issue.state, "created_at": issue.created_at, "updated_at": issue.updated_at, "labels": list(issue.labels),
            "author": self.user(issue.author), "assignees": [self.user(person) for person in issue.assignees],
            "assignee": self.user(issue.assignees[0]) if issue.assignees else None, "milestone": None, "upvotes": 0, "downvotes": 0,
            "user_notes_count": sum(not note.system for note in issue.notes), "closed_at": issue.closed_at,
            "closed_by": self.user(issue.closed_by) if issue.closed_by else None, "discussion_locked": None,
            "web_url": f"{self.page(issue.project)}/-/{kind}/{issue.iid}",
            "references": {"short": short, "relative": short, "full": full},
            "time_stats": {"time_estimate": 0, "total_time_spent": 0, "human_time_estimate": None, "human_total_time_spent": None},
            "task_completion_status": {"count": 0, "completed_count": 0}, "imported": False, "imported_from": "none",
        }  # fmt: skip

    def issue(self, issue: GitLabIssue) -> Json:
        base = f"{self.api}/projects/{issue.project.id}"
        own = f"{base}/issues/{issue.iid}"
        return {
            **self._common(issue, "#", "issues"), "type": "ISSUE", "issue_type": "issue", "merge_requests_count": 0, "due_date": None,
            "confidential": issue.confidential, "has_tasks": True, "task_status": "0 of 0 checklist items completed", "weight": None,
            "severity": "UNKNOWN", "moved_to_id": None, "service_desk_reply_to": None, "blocking_issues_count": 0, "subscribed": False,
            "_links": {"self": own, "notes": f"{own}/notes", "award_emoji": f"{own}/award_emoji", "project": base},
        }  # fmt: skip

    def merge_request(self, merge_request: GitLabMergeRequest, *, ask: bool = False) -> Json:
        """Return a merge request as in a list."""
        status = rules.merge_status(merge_request, ask=ask)
        return {
            **self._common(merge_request, "!", "merge_requests"),
            "merged_by": self.user(merge_request.merged_by) if merge_request.merged_by else None,
            "merge_user": self.user(merge_request.merged_by) if merge_request.merged_by else None,
            "merged_at": merge_request.merged_at,
            "target_branch": merge_request.base,
            "source_branch": merge_request.branch,
            "source_project_id": merge_request.source.id if merge_request.source else None,
            "target_project_id": merge_request.project.id,
            "reviewers": [self.user(self.state.users[name.lower()]) for name in merge_request.reviewers],
            "draft": merge_request.draft,
            "work_in_progress": merge_request.draft,
            "merge_when_pipeline_succeeds": merge_request.auto_merge is not None,
            "merge_status": status,
            "detailed_merge_status": rules.detailed_merge_status(merge_request, status),
            "merge_after": None,
            "sha": merge_request.head_sha,
            "merge_commit_sha": merge_request.merge_commit,
            "squash_commit_sha": merge_request.squash_commit,
            "should_remove_source_branch": None,
            "force_remove_source_branch": merge_request.remove_branch,
            "prepared_at": merge_request.created_at,
            "reference": f"!{merge_request.iid}",
            "squash": merge_request.squash,
            "squash_on_merge": merge_request.squash,
            "has_conflicts": status == "cannot_be_merged",
            "blocking_discussions_resolved": rules.are_discussions_resolved(merge_request),
            "approvals_before_merge": None,
        }

    def whole_merge_request(self, merge_request: GitLabMergeRequest) -> Json:
        """Return a merge request with the fields of a single read."""
        pipeline, base = (
            merge_request.head_pipeline,
            merge_request.project.head(merge_request.base) or merge_request.base_sha,
        )
        return {
            **self.merge_request(merge_request, ask=True), "subscribed": False, "changes_count": "1", "latest_build_started_at": None,
            "latest_build_finished_at": None, "first_deployed_to_production_at": None, "first_contribution": False,
            "pipeline": self.pipeline(pipeline) if pipeline else None,
            "head_pipeline": self.whole_pipeline(pipeline) if pipeline else None, "merge_error": merge_request.merge_error,
            "diff_refs": {"base_sha": merge_request.base_sha, "head_sha": merge_request.head_sha, "start_sha": base},
            "user": {"can_merge": rules.access_level(merge_request.project, self.viewer) >= rules.DEVELOPER},
        }  # fmt: skip

    def approvals(self, merge_request: GitLabMergeRequest) -> Json:
        required = merge_request.project.approvals_required
        status = rules.merge_status(merge_request, ask=False)
        approvals = [
            {"user": self.user(self.state.users[name.lower()]), "approved_at": at}
            for name, at in merge_request.approvals.items()
        ]
        return {
            "id": merge_request.id,
            "iid": merge_request.iid,
            "project_id": merge_request.project.id,
            "title": merge_request.title,
            "description": merge_request.body,
            "state": merge_request.state,
            "created_at": merge_request.created_at,
            "updated_at": merge_request.updated_at,
            "merge_status": status,
            "approved": len(approvals) >= required,
            "approvals_required": required,
            "approvals_left": max(0, required - len(approvals)),
            "require_password_to_approve": False,
            "approved_by": approvals,
            "suggested_approvers": [],
            "approvers": [],
            "approver_groups": [],
            "user_has_approved": bool(self.viewer and self.viewer.login in merge_request.approvals),
            "user_can_approve": True,
            "approval_rules_left": [],
            "has_approval_rules": required > 0,
        }

    def reviewer(self, merge_request: GitLabMergeRequest, login: str) -> Json:
        user = self.state.users[login.lower()]
        return {
            "user": self.user(user),
            "state": merge_request.reviewers[login],
            "created_at": merge_request.created_at,
        }

    def note(self, note: Note, noteable: GitLabIssue) -> Json:
        kind = "MergeRequest" if isinstance(noteable, GitLabMergeRequest) else "Issue"
        threaded = next((discussion for discussion in noteable.discussions if note in discussion.comments), None)
        note_type = (
            "DiffNote" if note.position else None if threaded is None or threaded.individual else "DiscussionNote"
        )
        shape: Json = {
            "id": note.id, "type": note_type, "body": note.body, "attachment": None, "author": self.user(note.author),
            "created_at": note.created_at, "updated_at": note.updated_at, "system": note.system, "noteable_id": noteable.id,
            "noteable_type": kind, "project_id": noteable.project.id, "resolvable": note.resolvable, "confidential": False,
            "internal": False, "imported": False, "imported_from": "none", "noteable_iid": noteable.iid, "commands_changes": {},
        }  # fmt: skip
        if note.position:
            shape |= {"commit_id": None, "position": note.position}
        if note.resolvable:
            by = self.user(note.resolved_by) if note.resolved_by else None
            shape |= {"resolved": note.resolved, "resolved_by": by, "resolved_at": note.resolved_at}
        return shape

    def discussion(self, discussion: Discussion) -> Json:
        notes = [self.note(note, discussion.on) for note in discussion.comments]
        return {"id": discussion.id, "individual_note": discussion.individual, "notes": notes}

    def pipeline(self, pipeline: GitLabPipeline) -> Json:
        return {
            "id": pipeline.id,
            "iid": pipeline.iid,
            "project_id": pipeline.project.id,
            "sha": pipeline.sha,
            "ref": pipeline.ref,
            "status": pipeline.status,
            "source": pipeline.source,
            "created_at": pipeline.created_at,
            "updated_at": pipeline.updated_at,
            "web_url": f"{self.page(pipeline.project)}/-/pipelines/{pipeline.id}",
            "name": None,
        }

    def whole_pipeline(self, pipeline: GitLabPipeline) -> Json:
        path = f"/{pipeline.project.full_name}/-/pipelines/{pipeline.id}"
        return {
            **self.pipeline(pipeline),
            "before_sha": bare_repository.NO_COMMIT,
            "tag": False,
            "yaml_errors": pipeline.yaml_errors,
            "user": self.user(pipeline.user),
            "started_at": pipeline.created_at,
            "finished_at": pipeline.finished_at,
            "committed_at": None,
            "duration": 1,
            "queued_duration": 1,
            "coverage": None,
            "archived": False,
            "detailed_status": {
                "icon": f"status_{pipeline.status}",
                "text": pipeline.status.title(),
                "label": pipeline.status,
                "group": pipeline.status,
                "tooltip": pipeline.status,
                "has_details": True,
                "details_path": path,
                "illustration": None,
                "favicon": "/favicon.png",
            },
        }

    def job(self, job: GitLabJob) -> Json:
        pipeline = job.pipeline
        return {
            "id": job.id, "status": job.status, "stage": job.stage, "name": job.name, "ref": pipeline.ref, "tag": False,
            "coverage": None, "allow_failure": job.allow_failure, "created_at": job.created_at, "started_at": job.started_at,
            "finished_at": job.finished_at, "erased_at": None, "duration": 1.0, "queued_duration": 1.0,
            "user": self.myself(pipeline.user), "commit": self.commit(pipeline.project, pipeline.sha),
            "pipeline": self.pipeline(pipeline), "failure_reason": job.failure_reason,
            "web_url": f"{self.page(pipeline.project)}/-/jobs/{job.id}", "project": {"ci_job_token_scope_enabled": False},
            "artifacts": [], "runner": None, "runner_manager": None, "artifacts_expire_at": None, "archived": False, "tag_list": [],
        }  # fmt: skip

    def status(self, job: GitLabJob) -> Json:
        own = f"{self.page(job.pipeline.project)}/-/jobs/{job.id}"
        return {
            "id": job.id, "sha": job.pipeline.sha, "ref": job.pipeline.ref, "status": job.status, "name": job.name,
            "target_url": job.target_url if job.external else own, "description": job.description, "created_at": job.created_at,
            "started_at": job.started_at, "finished_at": job.finished_at, "allow_failure": job.allow_failure, "coverage": None,
            "pipeline_id": job.pipeline.id, "author": self.user(job.pipeline.user),
        }  # fmt: skip

    def train(self, train: Train) -> Json:
        merge_request = train.merge_request
        keys = ("id", "iid", "project_id", "title", "description", "state", "created_at", "updated_at", "web_url")
        short = self.merge_request(merge_request)
        return {
            "id": train.id, "merge_request": {key: short[key] for key in keys}, "user": self.user(train.user),
            "pipeline": self.pipeline(train.pipeline) if train.pipeline else None, "created_at": train.created_at,
            "updated_at": train.updated_at, "target_branch": merge_request.base, "status": train.status, "merged_at": None, "duration": 0,
        }  # fmt: skip

    def label(self, label: GitLabLabel) -> Json:
        return {
            "id": label.id, "name": label.name, "description": None, "description_html": "", "text_color": "#FFFFFF",
            "color": label.color, "archived": False, "subscribed": False, "priority": None, "is_project_label": True,
            "open_issues_count": 0, "closed_issues_count": 0, "open_merge_requests_count": 0,
        }  # fmt: skip

    def hook(self, hook: GitLabWebhook) -> Json:
        every = "*" in hook.events
        return {
            "id": hook.id, "url": hook.url, "name": None, "description": None, "created_at": hook.created_at,
            "project_id": hook.project.id, "enable_ssl_verification": True, "repository_update_events": False,
            "alert_status": "executable", "disabled_until": None, "url_variables": [], "push_events_branch_filter": None,
            "custom_webhook_template": None, "custom_headers": [], **{name: every or name in hook.events for name in HOOK_EVENTS},
        }  # fmt: skip
