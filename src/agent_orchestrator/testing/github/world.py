"""The state with its hooks, and errors: the base of the modules that change the state."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import rules
from agent_orchestrator.testing.github.hooks import GitHubWebhookQueue
from agent_orchestrator.testing.github.shapes import Json
from agent_orchestrator.testing.github.shapes_ci import CiShapes
from agent_orchestrator.testing.github.state import (
    GitHubIssue,
    GitHubLabel,
    GitHubPullRequest,
    GitHubRecord,
    GitHubState,
    GitHubUser,
    Repo,
)


class GitHubRefused(Exception):
    """The forge refuses a request, with an HTTP status and a GraphQL error type."""

    def __init__(self, status: int, message: str, errors: list[Any] | None = None, kind: str = "UNPROCESSABLE") -> None:
        super().__init__(message)
        self.status, self.message, self.errors, self.kind = status, message, errors, kind


def validation_error(resource: str, field: str, message: str | None = None, code: str = "invalid") -> GitHubRefused:
    error = {"resource": resource, "field": field, "code": code}
    if message:
        error["message"] = message
    return GitHubRefused(422, "Validation Failed", [error])


class GitHubWorld(GitHubState):
    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        super().__init__(clock)
        self.root = root
        self.url = ""
        self.hooks = GitHubWebhookQueue(self)
        self.errors: list[Exception] = []
        """Exceptions inside the server, or in a test's CI function."""
        self.merge_ready: Callable[[Repo], None] = lambda _: None
        """Merges what is ready; called after every change that can make a pull request ready."""

    @property
    def shapes(self) -> CiShapes:
        return CiShapes(self.url, self.url)

    def emit(self, repo: Repo, event: str, sender: GitHubUser, **parts: Any) -> None:
        """Deliver an event to the hooks; `parts` is the payload without repository and sender."""
        show = self.shapes
        payload: Json = {**parts, "repository": show.repo(repo), "sender": show.user(sender)}
        self.hooks.send_event(repo, event, payload)

    def new_user(self, login: str, kind: str = "User", name: str = "") -> GitHubUser:
        prefix = {"Bot": "BOT", "Organization": "O"}.get(kind, "U")
        user = self.add_record(GitHubUser(**self.record_fields(prefix), login=login, kind=kind, name=name))
        self.users[login.lower()] = user
        return user

    def new_repo(
        self, owner: GitHubUser, name: str, *, private: bool = False, branch: str = "main", parent: Repo | None = None
    ) -> Repo:
        base = self.record_fields("R")
        repo = Repo(
            **base, owner=owner, name=name, path=self.root / f"{base['id']}.git", private=private, default_branch=branch
        )
        repo.parent = parent
        if parent:
            bare_repository.fork(parent.path, repo.path)
            repo.default_branch = parent.default_branch
            repo.refs = bare_repository.refs(repo.path)
        else:
            bare_repository.create(repo.path, branch)
        self.repos[repo.full_name.lower()] = repo
        self.renamed_repos.pop(repo.full_name.lower(), None)
        return self.add_record(repo)

    def rename(self, repo: Repo, name: str) -> None:
        self.renamed_repos[repo.full_name.lower()] = self.repos.pop(repo.full_name.lower())
        repo.name = name
        self.repos[repo.full_name.lower()] = repo
        self.touch(repo)

    def label(
        self, repo: Repo, name: str, sender: GitHubUser, color: str = "ededed", description: str | None = None
    ) -> GitHubLabel:
        """Return the label with this name, creating it if needed."""
        label_record = repo.labels.get(name.lower())
        if label_record is None:
            label_record = self.add_record(
                GitHubLabel(**self.record_fields("LA"), name=name, color=color, description=description)
            )
            repo.labels[name.lower()] = label_record
            self.emit(repo, "label", sender, action="created", label=self.shapes.label(repo, label_record))
        return label_record

    def user(self, login: str) -> GitHubUser:
        try:
            return self.users[login.lower()]
        except KeyError:
            raise GitHubRefused(404, "Not Found", kind="NOT_FOUND") from None

    def node(self, node_id: str, kind: type[GitHubRecord] | None = None) -> Any:
        record = self.nodes.get(node_id)
        if record is None or (kind and not isinstance(record, kind)):
            raise GitHubRefused(404, f"Could not resolve to a node with the global id of '{node_id}'", kind="NOT_FOUND")
        return record

    def emit_issue_event(self, issue: GitHubIssue, action: str, sender: GitHubUser, **parts: Any) -> None:
        """Emit an event of an issue or pull request; both have the same actions for labels, assignees and states."""
        if isinstance(issue, GitHubPullRequest):
            self.emit(
                issue.repo, "pull_request", sender, action=action, number=issue.number,
                pull_request=self.shapes.pull(issue, ask=False), **parts,
            )  # fmt: skip
        else:
            self.emit(issue.repo, "issues", sender, action=action, issue=self.shapes.issue(issue), **parts)

    def require_push(self, repo: Repo, user: GitHubUser) -> None:
        if not rules.may_push(repo, user):
            raise GitHubRefused(403, f"{user.login} must have push access to {repo.full_name}.", kind="FORBIDDEN")

    def require_triage(self, repo: Repo, user: GitHubUser) -> None:
        if not rules.may_triage(repo, user):
            raise GitHubRefused(403, "Must have triage rights to Repository.", kind="FORBIDDEN")
