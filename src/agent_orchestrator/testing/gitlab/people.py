"""Actions of people and CI on the forge, for tests: sign up, push, review, comment, report jobs, label, merge."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.gitlab import jobs, merge_requests
from agent_orchestrator.testing.gitlab.pipelines import create_pipeline
from agent_orchestrator.testing.gitlab.state import (
    LEVELS,
    Discussion,
    GitLabIssue,
    GitLabJob,
    GitLabMergeRequest,
    GitLabPipeline,
    GitLabProject,
    GitLabToken,
    GitLabUser,
    GitLabWebhook,
    Log,
    Note,
)
from agent_orchestrator.testing.gitlab.world import GitLabWorld


class GitLabPeople:
    """Actions for tests. Projects and people are passed as records or names, commits as branch or SHA, the rest as records."""

    def __init__(self, world: GitLabWorld) -> None:
        self.world = world

    def user(self, login: str, *, name: str = "") -> GitLabUser:
        """Return the user with this login, creating it if needed."""
        with self.world.lock:
            return self.world.users.get(login.lower()) or self.world.new_user(login, name)

    def token(
        self,
        user: GitLabUser | str,
        scopes: tuple[str, ...] = ("api",),
        *,
        expired: bool = False,
        ends: str | None = None,
    ) -> str:
        token_record = GitLabToken(f"glpat-{secrets.token_hex(10)}", self._user(user), scopes, expired, ends)
        self.world.tokens[token_record.value] = token_record
        return token_record.value

    def repository(
        self, full_name: str, files: Mapping[str, str] | None = None, *, private: bool = False, branch: str = "main",
        people: Mapping[str, str] | None = None,
    ) -> GitLabProject:  # fmt: skip
        """Create a project with one commit; `people` maps members to roles (guest, reporter, developer, maintainer, owner)."""
        with self.world.lock:
            creator = self.user(full_name.partition("/")[0])
            project = self.world.new_project(full_name, creator, private=private, branch=branch)
            for login, role in (people or {}).items():
                project.people[self.user(login).login] = LEVELS[role]
            self.push(project, branch, {"README.md": "# App\n"} if files is None else files, message="Initial commit")
            return project

    def fork(self, project: GitLabProject | str, owner: GitLabUser | str) -> GitLabProject:
        with self.world.lock:
            parent, user = self._project(project), self._user(owner)
            return self.world.new_project(f"{user.login}/{parent.name}", user, parent=parent)

    def protect(self, project: GitLabProject | str, branch: str = "main", **requirements: Any) -> None:
        """Set requirements of a merge: fields of `GitLabProject` (pipeline_must_succeed, approvals_required, merge_trains …)."""
        with self.world.lock:
            record = self._project(project)
            for name, value in requirements.items():
                assert hasattr(record, name), name
                setattr(record, name, value)
            record.protected = [*dict.fromkeys([*record.protected, branch])]
            admins = [login for login, level in record.people.items() if level >= LEVELS["maintainer"]]
            bare_repository.protect(record.path, record.protected, [record.creator.login, *admins])

    def rename(self, project: GitLabProject | str, full_name: str) -> None:
        with self.world.lock:
            self.world.rename(self._project(project), full_name)

    def hook(
        self, project: GitLabProject | str, url: str, secret: str = "", events: tuple[str, ...] = ("*",)
    ) -> GitLabWebhook:
        with self.world.lock:
            return self.world.new_hook(self._project(project), url, secret, events)

    def ci(self, project: GitLabProject | str, run: Callable[[GitLabProject, str], None] | None) -> None:
        """Set the project's CI: called with each commit that is pushed or run again, it calls `check`."""
        self._project(project).ci = run

    # --- Git

    def push(
        self, project: GitLabProject | str, branch: str, files: Mapping[str, str | None], *, message: str = "Change",
        by: GitLabUser | str | None = None, base: str | None = None, force: bool = False,
    ) -> str:  # fmt: skip
        """Commit files to a branch and return the commit; a new branch starts at the default branch or `base`, `force` resets it there."""
        with self.world.lock:
            record, user = self._project(project), self._actor(project, by)
            start = record.head(branch) if not force else None
            parent = start or (self._sha(record, base) if base else record.head(record.default_branch))
            sha = bare_repository.commit_files(record.path, parent, files, message, user.login)
            bare_repository.set_ref(record.path, f"refs/heads/{branch}", sha)
            merge_requests.process_ref_changes(self.world, record, user)
            return sha

    def read(self, project: GitLabProject | str, ref: str, path: str) -> str:
        """Return the text of a file at a branch or commit."""
        return bare_repository.git(self._project(project).path, "show", f"{ref}:{path}")

    # --- issues and merge requests

    def issue(
        self, project: GitLabProject | str, title: str, body: str = "", *, by: GitLabUser | str | None = None, labels: tuple[str, ...] = (),
        assignees: tuple[str, ...] = (),
    ) -> GitLabIssue:  # fmt: skip
        with self.world.lock:
            people = [self.user(login) for login in assignees]
            return self.world.open_issue(
                self._project(project), self._actor(project, by), title, body, list(labels), people
            )

    def pull(
        self, project: GitLabProject | str, branch: str, title: str = "", body: str = "", *, base: str = "main",
        by: GitLabUser | str | None = None, source: GitLabProject | None = None,
    ) -> GitLabMergeRequest:  # fmt: skip
        with self.world.lock:
            return merge_requests.open_merge_request(
                self.world,
                self._project(project),
                self._actor(project, by),
                branch,
                base,
                title or branch,
                body,
                source,
            )

    def find_pull(self, project: GitLabProject | str, iid: int) -> GitLabMergeRequest:
        return self._project(project).merge_requests[iid]

    def label_issue(self, issue: GitLabIssue, *labels: str, by: GitLabUser | str | None = None) -> None:
        with self.world.lock:
            self.world.set_labels(issue, self._actor(issue.project, by), [*issue.labels, *labels])

    def edit(self, issue: GitLabIssue, by: GitLabUser | str | None = None, **fields: Any) -> None:
        """Change the `title` or `body` of an issue or merge request."""
        with self.world.lock:
            self.world.change_fields(issue, self._actor(issue.project, by), **fields)

    def comment(self, issue: GitLabIssue, body: str, *, by: GitLabUser | str | None = None) -> Note:
        with self.world.lock:
            return self.world.note(issue, self._actor(issue.project, by), body)[1]

    def close(self, issue: GitLabIssue, by: GitLabUser | str | None = None) -> None:
        with self.world.lock:
            self.world.set_state(issue, self._actor(issue.project, by), "closed")

    def reopen(self, issue: GitLabIssue, by: GitLabUser | str | None = None) -> None:
        with self.world.lock:
            self.world.set_state(issue, self._actor(issue.project, by), "opened")

    def merge(self, pull: GitLabMergeRequest, *, by: GitLabUser | str | None = None, **options: Any) -> None:
        with self.world.lock:
            merge_requests.merge(self.world, pull, self._actor(pull.project, by), options)

    def train(self, pull: GitLabMergeRequest) -> str | None:
        """Return the merge train's commit of this merge request while it is on the train, or None."""
        return pull.train.sha if pull.train else None

    # --- reviews

    def review(self, pull: GitLabMergeRequest, event: str, body: str = "", *, by: GitLabUser | str) -> None:
        """Submit a review: `event` is APPROVE, UNAPPROVE, REQUEST_CHANGES or COMMENT."""
        with self.world.lock:
            user = self._user(by)
            if body:
                self.world.note(pull, user, body)
            if event == "APPROVE":
                merge_requests.approve(self.world, pull, user)
            elif event == "UNAPPROVE":
                merge_requests.unapprove(self.world, pull, user)
            elif event == "REQUEST_CHANGES":
                merge_requests.request_changes(self.world, pull, user)

    def thread(
        self, pull: GitLabMergeRequest, path: str | None, line: int | None, body: str, *, by: GitLabUser | str
    ) -> Discussion:
        """Start a discussion on a line, or on the whole merge request without a path."""
        position = {
            "base_sha": pull.base_sha, "start_sha": pull.base_sha, "head_sha": pull.head_sha, "old_path": path, "new_path": path,
            "position_type": "text", "old_line": None, "new_line": line, "line_range": None,
        }  # fmt: skip
        with self.world.lock:
            line_position = position if path else None
            return self.world.note(pull, self._user(by), body, position=line_position, threaded=True)[0]

    def reply(self, thread: Discussion, body: str, *, by: GitLabUser | str) -> Note:
        with self.world.lock:
            return self.world.note(thread.on, self._user(by), body, thread=thread)[1]

    def resolve(self, thread: Discussion, done: bool = True, *, by: GitLabUser | str | None = None) -> None:
        with self.world.lock:
            self.world.resolve(thread, self._actor(thread.on.project, by), done)

    # --- CI

    def check(
        self,
        project: GitLabProject | str,
        ref: str,
        name: str,
        conclusion: str | None = None,
        *,
        log: Log | None = None,
        **fields: Any,
    ) -> GitLabJob:
        """Report a job: None while it runs (`pending` before), else success, failed, canceled, skipped or manual."""
        with self.world.lock:
            record = self._project(project)
            return jobs.report_job(self.world, record, self._sha(record, ref), name, conclusion, log=log, **fields)

    def status(
        self, project: GitLabProject | str, ref: str, name: str, state: str, description: str | None = None
    ) -> GitLabJob:
        """Report an external commit status."""
        with self.world.lock:
            record = self._project(project)
            return jobs.report_job(
                self.world, record, self._sha(record, ref), name, state, external=True, description=description
            )

    def pipeline(self, project: GitLabProject | str, ref: str, **fields: Any) -> GitLabPipeline:
        """Create a pipeline without jobs."""
        with self.world.lock:
            record = self._project(project)
            return create_pipeline(self.world, record, self._sha(record, ref), **fields)

    # --- names

    def _project(self, project: GitLabProject | str) -> GitLabProject:
        return self.world.project(project) if isinstance(project, str) else project

    def _user(self, user: GitLabUser | str) -> GitLabUser:
        return self.user(user) if isinstance(user, str) else user

    def _actor(self, project: GitLabProject | str, by: GitLabUser | str | None) -> GitLabUser:
        return self._project(project).creator if by is None else self._user(by)

    def _sha(self, project: GitLabProject, ref: str) -> str:
        sha = project.head(ref) or bare_repository.resolve(project.path, ref)
        if sha is None:
            raise ValueError(f"{project.full_name} has no commit or branch {ref!r}")
        return sha
