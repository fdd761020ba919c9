"""Actions of people and CI on the forge, for tests: sign up, push, review, comment, report checks, label, merge."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.github import checks, issues, merges, pulls, reviews
from agent_orchestrator.testing.github.state import (
    CommitStatus,
    GitHubCheckRun,
    GitHubComment,
    GitHubIssue,
    GitHubPullRequest,
    GitHubReview,
    GitHubThread,
    GitHubToken,
    GitHubUser,
    GitHubWebhook,
    Log,
    Protection,
    Repo,
    ReviewComment,
    WorkflowRun,
)
from agent_orchestrator.testing.github.world import GitHubWorld


class GitHubPeople:
    """Actions for tests. Repositories and people are passed as records or names, commits as branch or SHA, the rest as records."""

    def __init__(self, world: GitHubWorld) -> None:
        self.world = world

    def user(self, login: str, kind: str = "User", *, name: str = "") -> GitHubUser:
        """Return the user with this login, creating it if needed; a login that ends in `[bot]` is a bot."""
        with self.world.lock:
            existing = self.world.users.get(login.lower())
            return existing or self.world.new_user(login, "Bot" if login.endswith("[bot]") else kind, name)

    def organization(self, login: str, *members: str) -> GitHubUser:
        created = self.user(login, "Organization")
        created.members |= set(members)
        for member in members:
            self.user(member)
        return created

    def token(
        self, user: GitHubUser | str, scopes: tuple[str, ...] = ("repo", "read:org", "workflow"), *, expired: bool = False,
        permissions: frozenset[str] | None = None, ends: str = "",
    ) -> str:  # fmt: skip
        prefix = "ghp" if permissions is None else "github_pat"
        token_record = GitHubToken(
            f"{prefix}_{secrets.token_hex(18)}", self._user(user), scopes, expired, permissions, ends
        )
        self.world.tokens[token_record.value] = token_record
        return token_record.value

    def repository(
        self, full_name: str, files: Mapping[str, str] | None = None, *, private: bool = False, branch: str = "main",
        people: Mapping[str, str] | None = None,
    ) -> Repo:  # fmt: skip
        """Create a repository with one commit; `people` maps collaborators to permissions (admin, write, triage, read)."""
        owner, name = full_name.split("/")
        with self.world.lock:
            repo = self.world.new_repo(self.user(owner), name, private=private, branch=branch)
            for login, permission in (people or {}).items():
                repo.people[self.user(login).login] = permission
            self.push(repo, branch, {"README.md": f"# {name}\n"} if files is None else files, message="Initial commit")
            return repo

    def fork(self, repo: Repo | str, owner: GitHubUser | str, name: str = "") -> Repo:
        with self.world.lock:
            parent = self._repo(repo)
            return self.world.new_repo(self._user(owner), name or parent.name, parent=parent)

    def protect(self, repo: Repo | str, branch: str = "main", **requirements: Any) -> Protection:
        """Require checks, approvals, a merge queue … before a merge (see `Protection`); only admins may push directly."""
        with self.world.lock:
            repository = self._repo(repo)
            protection = repository.protections[branch] = Protection(**requirements)
            admins = [
                repository.owner.login,
                *repository.owner.members,
                *(name for name, may in repository.people.items() if may == "admin"),
            ]
            bare_repository.protect(repository.path, repository.protections, admins)
            return protection

    def rename(self, repo: Repo | str, name: str) -> None:
        with self.world.lock:
            self.world.rename(self._repo(repo), name)

    def delete(self, repo: Repo | str) -> None:
        """Delete the repository; pull requests from it lose their source."""
        with self.world.lock:
            repository = self._repo(repo)
            del self.world.repos[repository.full_name.lower()]
            for other in self.world.repos.values():
                for pull in other.pulls():
                    if pull.head_repo is repository:
                        pull.head_repo, pull.head_deleted = None, True

    def hook(self, repo: Repo | str, url: str, secret: str = "", events: tuple[str, ...] = ("*",)) -> GitHubWebhook:
        with self.world.lock:
            repository = self._repo(repo)
            hook_record = GitHubWebhook(
                **self.world.record_fields("H"), repo=repository, url=url, secret=secret, events=list(events)
            )
            repository.hooks[hook_record.id] = self.world.add_record(hook_record)
            return hook_record

    def ci(self, repo: Repo | str, run: Callable[[Repo, str], None] | None) -> None:
        """Set the repository's CI: called with each commit that is pushed or run again, it calls `check` or `status`."""
        self._repo(repo).ci = run

    # --- Git

    def push(
        self, repo: Repo | str, branch: str, files: Mapping[str, str | None], *, message: str = "Change",
        by: GitHubUser | str | None = None,
        base: str | None = None, force: bool = False,
    ) -> str:  # fmt: skip
        """Commit files to a branch and return the commit; a new branch starts at the default branch or `base`, `force` resets it there."""
        with self.world.lock:
            repository, user = self._repo(repo), self._actor(repo, by)
            start = repository.head(branch) if not force else None
            parent = start or (self._sha(repository, base) if base else repository.head(repository.default_branch))
            sha = bare_repository.commit_files(repository.path, parent, files, message, user.login)
            bare_repository.set_ref(repository.path, f"refs/heads/{branch}", sha)
            pulls.process_ref_changes(self.world, repository, user)
            return sha

    def delete_branch(self, repo: Repo | str, branch: str, by: GitHubUser | str | None = None) -> None:
        with self.world.lock:
            repository = self._repo(repo)
            bare_repository.delete_ref(repository.path, f"refs/heads/{branch}")
            pulls.process_ref_changes(self.world, repository, self._actor(repo, by))

    def read(self, repo: Repo | str, ref: str, path: str) -> str:
        """Return the text of a file at a branch or commit."""
        return bare_repository.git(self._repo(repo).path, "show", f"{ref}:{path}")

    def log(self, repo: Repo | str, ref: str = "main") -> list[bare_repository.BareCommit]:
        """Return the commits of a branch, newest first, along first parents."""
        repository = self._repo(repo)
        return [
            bare_repository.commit(repository.path, sha)
            for sha in bare_repository.git(repository.path, "rev-list", "--first-parent", ref).split()
        ]

    # --- issues and pull requests

    def issue(
        self, repo: Repo | str, title: str, body: str = "", *, by: GitHubUser | str | None = None, labels: tuple[str, ...] = (),
        assignees: tuple[str, ...] = (), association: str | None = None,
    ) -> GitHubIssue:  # fmt: skip
        with self.world.lock:
            created = issues.open_issue(
                self.world, self._repo(repo), self._actor(repo, by), title, body, list(labels), list(assignees)
            )
            created.association = association
            return created

    def pull(
        self, repo: Repo | str, head: str, title: str = "", body: str = "", *, base: str = "main", by: GitHubUser | str | None = None,
        draft: bool = False, head_repo: Repo | None = None, association: str | None = None,
    ) -> GitHubPullRequest:  # fmt: skip
        with self.world.lock:
            created = pulls.open_pull(
                self.world, self._repo(repo), self._actor(repo, by), head, base, title or head, body, draft, head_repo
            )
            created.association = association
            return created

    def find_issue(self, repo: Repo | str, number: int) -> GitHubIssue:
        return self._repo(repo).issues[number]

    def find_pull(self, repo: Repo | str, number: int) -> GitHubPullRequest:
        pull = self._repo(repo).issues[number]
        assert isinstance(pull, GitHubPullRequest)
        return pull

    def label_issue(self, issue: GitHubIssue, *labels: str, by: GitHubUser | str | None = None) -> None:
        with self.world.lock:
            issues.add_labels(self.world, issue, self._actor(issue.repo, by), list(labels))

    def unlabel_issue(self, issue: GitHubIssue, label: str, by: GitHubUser | str | None = None) -> None:
        with self.world.lock:
            issues.remove_label(self.world, issue, self._actor(issue.repo, by), label)

    def assign(self, issue: GitHubIssue, *logins: str, by: GitHubUser | str | None = None) -> None:
        with self.world.lock:
            issues.assign(self.world, issue, self._actor(issue.repo, by), list(logins))

    def comment(
        self, issue: GitHubIssue, body: str, *, by: GitHubUser | str | None = None, association: str | None = None
    ) -> GitHubComment:
        with self.world.lock:
            return issues.comment(self.world, issue, self._actor(issue.repo, by), body, association)

    def edit_comment(
        self, comment: GitHubComment | ReviewComment, body: str, by: GitHubUser | str | None = None
    ) -> None:
        with self.world.lock:
            if isinstance(comment, ReviewComment):
                reviews.edit_comment(self.world, comment, self._actor(comment.thread.pull.repo, by), body)
            else:
                issues.edit_comment(self.world, comment, self._actor(comment.issue.repo, by), body)

    def delete_comment(self, comment: GitHubComment | ReviewComment, by: GitHubUser | str | None = None) -> None:
        with self.world.lock:
            if isinstance(comment, ReviewComment):
                reviews.delete_comment(self.world, comment, self._actor(comment.thread.pull.repo, by))
            else:
                issues.delete_comment(self.world, comment, self._actor(comment.issue.repo, by))

    def minimize(self, comment: GitHubComment | GitHubReview | ReviewComment, hidden: bool = True) -> None:
        """Hide a comment, as a maintainer does with spam; there is no webhook for it."""
        comment.minimized = hidden

    def close(self, issue: GitHubIssue, by: GitHubUser | str | None = None) -> None:
        self._set_state(issue, "closed", by)

    def reopen(self, issue: GitHubIssue, by: GitHubUser | str | None = None) -> None:
        self._set_state(issue, "open", by)

    def _set_state(self, issue: GitHubIssue, state: str, by: GitHubUser | str | None) -> None:
        with self.world.lock:
            user = self._actor(issue.repo, by)
            if isinstance(issue, GitHubPullRequest):
                pulls.set_state(self.world, issue, user, state)
            else:
                issues.set_state(self.world, issue, user, state)

    def ready(self, pull: GitHubPullRequest, draft: bool = False, by: GitHubUser | str | None = None) -> None:
        with self.world.lock:
            pulls.set_draft(self.world, pull, self._actor(pull.repo, by), draft)

    def merge(
        self,
        pull: GitHubPullRequest,
        method: str = "squash",
        *,
        by: GitHubUser | str | None = None,
        sha: str | None = None,
    ) -> str:
        with self.world.lock:
            return merges.merge(self.world, pull, self._actor(pull.repo, by), method, sha)

    def group(self, pull: GitHubPullRequest) -> str | None:
        """Return the merge queue's commit of this pull request while it waits for its checks, or None."""
        return pull.queue.head_sha if pull.queue else None

    # --- reviews

    def review(
        self, pull: GitHubPullRequest, event: str, body: str = "", *, by: GitHubUser | str, comments: list[dict[str, Any]] | None = None,
        association: str | None = None,
    ) -> GitHubReview:  # fmt: skip
        """Submit a review: `event` is APPROVE, REQUEST_CHANGES or COMMENT, each comment `{path, line, body}`."""
        with self.world.lock:
            return reviews.review(self.world, pull, self._user(by), event, body, comments, association)

    def thread(
        self,
        pull: GitHubPullRequest,
        path: str,
        line: int | None,
        body: str,
        *,
        by: GitHubUser | str,
        association: str | None = None,
    ) -> GitHubThread:
        with self.world.lock:
            return reviews.start_thread(self.world, pull, self._user(by), body, path, line, association=association)

    def reply(
        self, thread: GitHubThread, body: str, *, by: GitHubUser | str, association: str | None = None
    ) -> ReviewComment:
        with self.world.lock:
            return reviews.reply(self.world, thread, self._user(by), body, association)

    def resolve(self, thread: GitHubThread, done: bool = True, *, by: GitHubUser | str | None = None) -> None:
        with self.world.lock:
            reviews.resolve(self.world, thread, self._actor(thread.pull.repo, by), done)

    def dismiss(self, review: GitHubReview, by: GitHubUser | str | None = None) -> None:
        with self.world.lock:
            reviews.dismiss(self.world, review, self._actor(review.pull.repo, by))

    def request_review(self, pull: GitHubPullRequest, *logins: str, by: GitHubUser | str | None = None) -> None:
        with self.world.lock:
            for login in logins:
                self.user(login)
            reviews.request(self.world, pull, self._actor(pull.repo, by), list(logins))

    # --- CI

    def check(
        self,
        repo: Repo | str,
        ref: str,
        name: str,
        conclusion: str | None = None,
        *,
        log: Log | None = None,
        **fields: Any,
    ) -> GitHubCheckRun:
        """Report a check run: `conclusion` is None while it runs (before that, `status="queued"`); with a log it is a workflow job."""
        with self.world.lock:
            repository = self._repo(repo)
            return checks.set_check(
                self.world, repository, self._sha(repository, ref), name, conclusion, log=log, **fields
            )

    def status(
        self,
        repo: Repo | str,
        ref: str,
        context: str,
        state: str,
        description: str | None = None,
        url: str | None = None,
    ) -> CommitStatus:
        with self.world.lock:
            repository = self._repo(repo)
            return checks.set_status(
                self.world, repository, self._sha(repository, ref), repository.owner, state, context, description, url
            )

    def await_approval(
        self, repo: Repo | str, ref: str, workflow: str = "CI", by: GitHubUser | str | None = None
    ) -> WorkflowRun:
        """Create a workflow run of an outside contributor's fork, which waits for a maintainer."""
        with self.world.lock:
            repository = self._repo(repo)
            return checks.wait_for_approval(
                self.world, repository, self._sha(repository, ref), workflow, self._actor(repo, by)
            )

    # --- names

    def _repo(self, repo: Repo | str) -> Repo:
        return self.world.repo(repo) if isinstance(repo, str) else repo

    def _user(self, user: GitHubUser | str) -> GitHubUser:
        return self.user(user) if isinstance(user, str) else user

    def _actor(self, repo: Repo | str, by: GitHubUser | str | None) -> GitHubUser:
        return self._repo(repo).owner if by is None else self._user(by)

    def _sha(self, repo: Repo, ref: str) -> str:
        sha = repo.head(ref) or bare_repository.resolve(repo.path, ref)
        if sha is None:
            raise ValueError(f"{repo.full_name} has no commit or branch {ref!r}")
        return sha
