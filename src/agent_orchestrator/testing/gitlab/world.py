"""The state with its hooks: the base of the modules that change the state."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.forge import bare_repository
from agent_orchestrator.testing.forge.hooks import WebhookQueue
from agent_orchestrator.testing.gitlab.payloads import Payloads
from agent_orchestrator.testing.gitlab.shapes import Json
from agent_orchestrator.testing.gitlab.state import (
    Discussion,
    GitLabDelivery,
    GitLabIssue,
    GitLabLabel,
    GitLabMergeRequest,
    GitLabProject,
    GitLabRefused,
    GitLabState,
    GitLabUser,
    GitLabWebhook,
    Note,
)

SETTING_OF_EVENT = {
    "Push Hook": "push_events",
    "Merge Request Hook": "merge_requests_events",
    "Issue Hook": "issues_events",
    "Note Hook": "note_events",
    "Pipeline Hook": "pipeline_events",
    "Job Hook": "job_events",
}


class GitLabWebhookQueue(WebhookQueue[GitLabDelivery]):
    """GitLab's webhooks and their receivers."""

    def __init__(self, now: Callable[[], str], url: Callable[[], str]) -> None:
        super().__init__(now, lambda delivery: delivery_request(delivery, url()))
        self.keep_payloads: list[tuple[str, Json]] = []
        """Every event, with or without a hook for it."""

    def send_event(self, project: GitLabProject, event: str, payload: Json) -> None:
        self.keep_payloads.append((event, payload))
        guid = str(uuid.uuid4())
        for hook in project.hooks.values():
            if "*" in hook.events or SETTING_OF_EVENT[event] in hook.events:
                self.send(GitLabDelivery(guid, str(uuid.uuid4()), hook, event, payload))

    def redeliver(self, delivery: GitLabDelivery) -> GitLabDelivery:
        """Send a delivery again with the same key, as GitLab's retry does."""
        again = GitLabDelivery(delivery.guid, delivery.key, delivery.hook, delivery.event, delivery.payload)
        self.send(again)
        return again


def delivery_request(delivery: GitLabDelivery, url: str) -> tuple[bytes, dict[str, str]]:
    """Return the body and headers of a delivery."""
    headers = {
        "Content-Type": "application/json", "User-Agent": "GitLab/18.5.0", "X-Gitlab-Event": delivery.event,
        "X-Gitlab-Webhook-UUID": delivery.hook.uuid, "X-Gitlab-Instance": url, "X-Gitlab-Event-UUID": delivery.guid,
        "Idempotency-Key": delivery.key,
    }  # fmt: skip
    if delivery.hook.secret:
        headers["X-Gitlab-Token"] = delivery.hook.secret
    return json.dumps(delivery.payload).encode(), headers


class GitLabWorld(GitLabState):
    def __init__(self, root: Path, clock: Callable[[], float] = time.time) -> None:
        super().__init__(root, clock)
        self.hooks = GitLabWebhookQueue(self.now, lambda: self.url)

    @property
    def payloads(self) -> Payloads:
        return Payloads(self)

    def new_user(self, login: str, name: str = "") -> GitLabUser:
        bot = login.startswith("project_") and "_bot" in login
        user = GitLabUser(**self.record_fields(), login=login, name=name, bot=bot)
        self.users[login.lower()] = user
        return user

    def new_project(
        self,
        full_name: str,
        creator: GitLabUser,
        *,
        private: bool = False,
        branch: str = "main",
        parent: GitLabProject | None = None,
    ) -> GitLabProject:
        base = self.record_fields()
        path = self.root / f"{base['id']}.git"
        created = GitLabProject(
            **base, full_name=full_name, path=path, creator=creator, private=private, default_branch=branch
        )
        created.parent = parent
        if parent:
            bare_repository.fork(parent.path, path)
            created.default_branch, created.refs = parent.default_branch, bare_repository.refs(path)
        else:
            bare_repository.create(path, branch)
        self.projects[full_name.lower()] = created
        self.renamed_projects.pop(full_name.lower(), None)
        return created

    def rename(self, project: GitLabProject, full_name: str) -> None:
        self.renamed_projects[project.full_name.lower()] = self.projects.pop(project.full_name.lower())
        project.full_name = full_name
        self.projects[full_name.lower()] = project

    def label(self, project: GitLabProject, name: str) -> GitLabLabel:
        """Return the label with this name, creating it if needed."""
        label_record = project.labels.get(name.lower())
        if label_record is None:
            label_record = project.labels[name.lower()] = GitLabLabel(**self.record_fields(), name=name)
        return label_record

    def user(self, login: str) -> GitLabUser:
        try:
            return self.users[login.lower()]
        except KeyError:
            raise GitLabRefused(404, "404 User Not Found") from None

    # --- issues, and merge requests as issues

    def emit_issue_event(
        self, issue: GitLabIssue, user: GitLabUser, action: str, changes: Json | None = None, **fields: Any
    ) -> None:
        """Send the webhook of an issue or merge request."""
        if isinstance(issue, GitLabMergeRequest):
            payload = self.payloads.merge_request_event(issue, user, action, changes or {}, fields)
            self.hooks.send_event(issue.project, "Merge Request Hook", payload)
        else:
            self.hooks.send_event(
                issue.project, "Issue Hook", self.payloads.issue_event(issue, user, action, changes or {})
            )

    def open_issue(
        self,
        project: GitLabProject,
        user: GitLabUser,
        title: str,
        body: str | None,
        labels: list[str],
        people: list[GitLabUser],
    ) -> GitLabIssue:
        iid = max(project.issues, default=0) + 1
        for name in labels:
            self.label(project, name)
        created = GitLabIssue(
            **self.record_fields(), project=project, iid=iid, author=user, title=title, body=body, labels=list(labels)
        )
        created.assignees = people
        project.issues[iid] = created
        self.emit_issue_event(created, user, "open")
        return created

    def change_fields(self, issue: GitLabIssue, user: GitLabUser, **fields: Any) -> None:
        """Change plain fields of an issue or merge request, with one webhook for all of them."""
        changes: Json = {}
        for name, value in fields.items():
            before = getattr(issue, name)
            if before == value:
                continue
            setattr(issue, name, value)
            key = {"body": "description", "base": "target_branch"}.get(name, name)
            simple = name in ("title", "body", "base")
            changes[key] = {"previous": before if simple else None, "current": value if simple else None}
        if "title" in changes and isinstance(issue, GitLabMergeRequest):
            changes["draft"] = {"previous": not issue.draft, "current": issue.draft}
        if changes:
            self.touch(issue)
            self.emit_issue_event(issue, user, "update", changes)

    def set_labels(self, issue: GitLabIssue, user: GitLabUser, labels: list[str]) -> None:
        for name in labels:
            self.label(issue.project, name)
        label_names = [issue.project.labels[name.lower()].name for name in dict.fromkeys(labels)]
        if label_names != issue.labels:
            before = self.payloads._labels(issue)
            issue.labels = label_names
            self.touch(issue)
            after = self.payloads._labels(issue)
            self.emit_issue_event(issue, user, "update", {"labels": {"previous": before, "current": after}})

    def set_state(self, issue: GitLabIssue, user: GitLabUser, state: str) -> None:
        if issue.state == state or issue.state == "merged":
            return
        issue.state = state
        issue.closed_at, issue.closed_by = (self.now(), user) if state == "closed" else (None, None)
        self.touch(issue)
        self.emit_issue_event(issue, user, "close" if state == "closed" else "reopen")

    # --- notes

    def note(
        self, noteable: GitLabIssue, user: GitLabUser, body: str, *, thread: Discussion | None = None, position: Json | None = None,
        threaded: bool = False, system: bool = False,
    ) -> tuple[Discussion, Note]:  # fmt: skip
        """Add a note: in a discussion, on a line, or on the whole; system notes send no webhook."""
        if not body.strip():
            raise GitLabRefused(400, '400 Bad request - Note {:note=>["can\'t be blank"]}')
        discussion = thread or Discussion(
            uuid.uuid4().hex + "00000000", noteable, individual=not (threaded or position)
        )
        if thread and thread.individual:
            thread.individual = False
        resolvable = isinstance(noteable, GitLabMergeRequest) and not discussion.individual
        created = Note(
            **self.record_fields(),
            author=user,
            body=body,
            system=system,
            position=position,
            resolvable=resolvable and not system,
        )
        if thread is None:
            noteable.discussions.append(discussion)
        discussion.comments.append(created)
        self.touch(noteable)
        if not system:
            if thread and thread.resolved:
                created.resolved = True
            self.hooks.send_event(
                noteable.project, "Note Hook", self.payloads.note_event(created, discussion, "create")
            )
        return discussion, created

    def add_system_note(self, noteable: GitLabIssue, user: GitLabUser, body: str) -> None:
        """Add a system note about an action."""
        self.note(noteable, user, body, system=True)

    def resolve(self, discussion: Discussion, user: GitLabUser, done: bool) -> None:
        """Mark a discussion as resolved or unresolved, without a webhook."""
        for note in discussion.comments:
            if note.resolvable:
                note.resolved, note.resolved_by = done, user if done else None
                note.resolved_at = self.now() if done else None
                self.touch(note)

    def new_hook(self, project: GitLabProject, url: str, secret: str, events: tuple[str, ...]) -> GitLabWebhook:
        created = GitLabWebhook(
            **self.record_fields(), project=project, url=url, secret=secret, events=events, uuid=str(uuid.uuid4())
        )
        project.hooks[created.id] = created
        return created
