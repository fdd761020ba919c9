"""Actions of people and CI on the forge, for tests: sign up, push, review, comment, report jobs, label, merge."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from agent_orchestrator.testing.forge import bare
from agent_orchestrator.testing.gitlab import changes, job_states
from agent_orchestrator.testing.gitlab.pipelines import create_pipeline
from agent_orchestrator.testing.gitlab.state import (
    LEVELS,
    Discussion,
    Hook,
    Issue,
    Job,
    Log,
    MergeRequest,
    Note,
    Pipeline,
    Project,
    Token,
    User,
)
from agent_orchestrator.testing.gitlab.world import World


class People:
    """Actions for tests. Projects and people are passed as records or names, commits as branch or SHA, the rest as records."""

    def __init__(self, world: World) -> None:
        self.world = world

    def user(self, login: str, *, name: str = "") -> User:
        """Return the user with this login, creating it if needed."""
        with self.world.lock:
            return self.world.users.get(login.lower()) or self.world.new_user(login, name)

    def token(
        self, user: User | str, scopes: tuple[str, ...] = ("api",), *, expired: bool = False, ends: str | None = None
    ) -> str:
        token_record = Token(f"glpat-{secrets.token_hex(10)}", self._user(user), scopes, expired, ends)
        self.world.tokens[token_record.value] = token_record
        return token_record.value

    def repository(
        self, full_name: str, files: Mapping[str, str] | None = None, *, private: bool = False, branch: str = "main",
        people: Mapping[str, str] | None = None,
    ) -> Project:  # fmt: skip
        """Create a project with one commit; `people` maps members to roles (guest, reporter, developer, maintainer, owner)."""
        with self.world.lock:
            creator = self.user(full_name.partition("/")[0])
            project = self.world.new_project(full_name, creator, private=private, branch=branch)
            for login, role in (people or {}).items():
                project.people[self.user(login).login] = LEVELS[role]
            self.push(project, branch, {"README.md": "# App\n"} if files is None else files, message="Initial commit")
            return project

    def fork(self, project: Project | str, owner: User | str) -> Project:
        with self.world.lock:
            parent, user = self._project(project), self._user(owner)
            return self.world.new_project(f"{user.login}/{parent.name}", user, parent=parent)

    def protect(self, project: Project | str, branch: str = "main", **requirements: Any) -> None:
        """Set requirements of a merge: fields of `Project` (pipeline_must_succeed, approvals_required, merge_trains …)."""
        with self.world.lock:
            record = self._project(project)
            for name, value in requirements.items():
                assert hasattr(record, name), name
                setattr(record, name, value)
            record.protected = [*dict.fromkeys([*record.protected, branch])]
            admins = [login for login, level in record.people.items() if level >= LEVELS["maintainer"]]
            bare.protect(record.path, record.protected, [record.creator.login, *admins])

    def rename(self, project: Project | str, full_name: str) -> None:
        with self.world.lock:
            self.world.rename(self._project(project), full_name)

    def hook(self, project: Project | str, url: str, secret: str = "", events: tuple[str, ...] = ("*",)) -> Hook:
        with self.world.lock:
            return self.world.new_hook(self._project(project), url, secret, events)

    def ci(self, project: Project | str, run: Callable[[Project, str], None] | None) -> None:
        """Set the project's CI: called with each commit that is pushed or run again, it calls `check`."""
        self._project(project).ci = run

    # --- Git

    def push(
        self, project: Project | str, branch: str, files: Mapping[str, str | None], *, message: str = "Change",
        by: User | str | None = None, base: str | None = None, force: bool = False,
    ) -> str:  # fmt: skip
        """Commit files to a branch and return the commit; a new branch starts at the default branch or `base`, `force` resets it there."""
        with self.world.lock:
            record, user = self._project(project), self._by(project, by)
            start = record.head(branch) if not force else None
            parent = start or (self._sha(record, base) if base else record.head(record.default_branch))
            sha = bare.write(record.path, parent, files, message, user.login)
            bare.set_ref(record.path, f"refs/heads/{branch}", sha)
            changes.refs_moved(self.world, record, user)
            return sha

    def read(self, project: Project | str, ref: str, path: str) -> str:
        """Return the text of a file at a branch or commit."""
        return bare.git(self._project(project).path, "show", f"{ref}:{path}")

    # --- issues and merge requests

    def issue(
        self, project: Project | str, title: str, body: str = "", *, by: User | str | None = None, labels: tuple[str, ...] = (),
        assignees: tuple[str, ...] = (),
    ) -> Issue:  # fmt: skip
        with self.world.lock:
            people = [self.user(login) for login in assignees]
            return self.world.open_issue(
                self._project(project), self._by(project, by), title, body, list(labels), people
            )

    def pull(
        self, project: Project | str, branch: str, title: str = "", body: str = "", *, base: str = "main",
        by: User | str | None = None, source: Project | None = None,
    ) -> MergeRequest:  # fmt: skip
        with self.world.lock:
            return changes.open_merge_request(
                self.world, self._project(project), self._by(project, by), branch, base, title or branch, body, source
            )

    def find_pull(self, project: Project | str, iid: int) -> MergeRequest:
        return self._project(project).merge_requests[iid]

    def label_issue(self, issue: Issue, *labels: str, by: User | str | None = None) -> None:
        with self.world.lock:
            self.world.set_labels(issue, self._by(issue.project, by), [*issue.labels, *labels])

    def edit(self, issue: Issue, by: User | str | None = None, **fields: Any) -> None:
        """Change the `title` or `body` of an issue or merge request."""
        with self.world.lock:
            self.world.change(issue, self._by(issue.project, by), **fields)

    def comment(self, issue: Issue, body: str, *, by: User | str | None = None) -> Note:
        with self.world.lock:
            return self.world.note(issue, self._by(issue.project, by), body)[1]

    def close(self, issue: Issue, by: User | str | None = None) -> None:
        with self.world.lock:
            self.world.set_state(issue, self._by(issue.project, by), "closed")

    def reopen(self, issue: Issue, by: User | str | None = None) -> None:
        with self.world.lock:
            self.world.set_state(issue, self._by(issue.project, by), "opened")

    def merge(self, pull: MergeRequest, *, by: User | str | None = None, **options: Any) -> None:
        with self.world.lock:
            changes.merge(self.world, pull, self._by(pull.project, by), options)

    def train(self, pull: MergeRequest) -> str | None:
        """Return the merge train's commit of this merge request while it is on the train, or None."""
        return pull.train.sha if pull.train else None

    # --- reviews

    def review(self, pull: MergeRequest, event: str, body: str = "", *, by: User | str) -> None:
        """Submit a review: `event` is APPROVE, UNAPPROVE, REQUEST_CHANGES or COMMENT."""
        with self.world.lock:
            user = self._user(by)
            if body:
                self.world.note(pull, user, body)
            if event == "APPROVE":
                changes.approve(self.world, pull, user)
            elif event == "UNAPPROVE":
                changes.unapprove(self.world, pull, user)
            elif event == "REQUEST_CHANGES":
                changes.request_changes(self.world, pull, user)

    def thread(
        self, pull: MergeRequest, path: str | None, line: int | None, body: str, *, by: User | str
    ) -> Discussion:
        """Start a discussion on a line, or on the whole merge request without a path."""
        position = {
            "base_sha": pull.base_sha, "start_sha": pull.base_sha, "head_sha": pull.head_sha, "old_path": path, "new_path": path,
            "position_type": "text", "old_line": None, "new_line": line, "line_range": None,
        }  # fmt: skip
        with self.world.lock:
            line_position = position if path else None
            return self.world.note(pull, self._user(by), body, position=line_position, threaded=True)[0]

    def reply(self, thread: Discussion, body: str, *, by: User | str) -> Note:
        with self.world.lock:
            return self.world.note(thread.on, self._user(by), body, thread=thread)[1]

    def resolve(self, thread: Discussion, done: bool = True, *, by: User | str | None = None) -> None:
        with self.world.lock:
            self.world.resolve(thread, self._by(thread.on.project, by), done)

    # --- CI

    def check(
        self,
        project: Project | str,
        ref: str,
        name: str,
        conclusion: str | None = None,
        *,
        log: Log | None = None,
        **fields: Any,
    ) -> Job:
        """Report a job: None while it runs (`pending` before), else success, failed, canceled, skipped or manual."""
        with self.world.lock:
            record = self._project(project)
            return job_states.report(self.world, record, self._sha(record, ref), name, conclusion, log=log, **fields)

    def status(self, project: Project | str, ref: str, name: str, state: str, description: str | None = None) -> Job:
        """Report an external commit status."""
        with self.world.lock:
            record = self._project(project)
            return job_states.report(
                self.world, record, self._sha(record, ref), name, state, external=True, description=description
            )

    def pipeline(self, project: Project | str, ref: str, **fields: Any) -> Pipeline:
        """Create a pipeline without jobs."""
        with self.world.lock:
            record = self._project(project)
            return create_pipeline(self.world, record, self._sha(record, ref), **fields)

    # --- names

    def _project(self, project: Project | str) -> Project:
        return self.world.project(project) if isinstance(project, str) else project

    def _user(self, user: User | str) -> User:
        return self.user(user) if isinstance(user, str) else user

    def _by(self, project: Project | str, by: User | str | None) -> User:
        return self._project(project).creator if by is None else self._user(by)

    def _sha(self, project: Project, ref: str) -> str:
        sha = project.head(ref) or bare.resolve(project.path, ref)
        if sha is None:
            raise ValueError(f"{project.full_name} has no commit or branch {ref!r}")
        return sha
