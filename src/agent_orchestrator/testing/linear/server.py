"""`LinearServer`: a Linear on loopback. Tests call its methods; clients use GraphQL."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.forge.tracker import Allowance, Delivery, Hook, TrackerRequest, TrackerServer
from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.linear.graphql import GraphQL
from agent_orchestrator.testing.linear.state import (
    STATES,
    Attachment,
    Comment,
    Issue,
    Label,
    Team,
    User,
    WorkflowState,
    new_id,
    next_number,
)

SCHEMA_VARIABLE = "AO_LINEAR_SCHEMA"
REQUESTS = 5_000
COMPLEXITY = 250_000


class LinearServer(TrackerServer):
    """The server. Start it with `with LinearServer(schema=…) as linear:`; its GraphQL is at `linear.api`."""

    kind = "graphql"

    def __init__(
        self, *, clock: Callable[[], float] = time.time, schema: Path | str | None = None, port: int = 0
    ) -> None:
        super().__init__(clock, port)
        schema_path = schema or os.environ.get(SCHEMA_VARIABLE)
        self._graphql = GraphQL(self, Path(schema_path) if schema_path else None)
        self.api = f"{self.url}/graphql"
        self.users: dict[str, User] = {}
        self.teams: list[Team] = []
        self.labels: list[Label] = []
        self.comments_by_id: dict[str, Comment] = {}
        self.organization = new_id()
        self.grants: dict[str, dict[str, Allowance]] = {}
        """The rate limits of each person: `requests` and `complexity`."""

    # --- actions of tests

    def user(self, name: str, *, guest: bool = False, app: bool = False) -> User:
        """Return the user with this name, creating it if needed."""
        if name not in self.users:
            created = User(name.title(), name, f"{name}@acme.example", guest, app)
            created.url = f"{self.url}/acme/profiles/{name}"
            self.users[name] = created
        return self.users[name]

    def token(self, name: str) -> str:
        value = f"lin_api_{hashlib.sha256(name.encode()).hexdigest()[:40]}"
        self.tokens[value] = self.user(name).display_name
        return value

    def team(self, key: str, states: Sequence[tuple[str, str]] = STATES) -> Team:
        team = Team(key, key.title())
        team.states = [WorkflowState(name, kind, float(position)) for position, (name, kind) in enumerate(states)]
        self.teams.append(team)
        return team

    def label(self, name: str, team: Team | None = None) -> Label:
        """Return the label with this name, creating it if needed."""
        label = next(
            (candidate for candidate in self.labels if candidate.name == name and candidate.team in (None, team)), None
        )
        if label is None:
            label = Label(name, team, self.now())
            self.labels.append(label)
            self._emit("IssueLabel", "create", self._label_data(label), None, None)
        return label

    def issue(
        self, team: Team, title: str, body: str = "", *, by: User | str = "dev",
        labels: Sequence[Label | str] = (), assignee: str = "", external: bool = False,
    ) -> Issue:  # fmt: skip
        author = self.user(by) if isinstance(by, str) else by
        first = next(state for state in team.states if state.type in ("backlog", "unstarted"))
        created = Issue(
            team, next_number(team), title, body, first, None if external else author, self.now(), self.now(), self.url
        )
        created.external_user_creator = author if external else None
        created.labels = [self.label(label, team) if isinstance(label, str) else label for label in labels]
        created.assignee = self.user(assignee) if assignee else None
        team.issues.append(created)
        self._emit("Issue", "create", self.issue_data(created), created.url, author)
        return created

    def comment(
        self, issue: Issue, body: str, *, by: User | str = "dev", external: bool = False, number: str | None = None
    ) -> Comment:
        author = self.user(by) if isinstance(by, str) else by
        created = Comment(issue, body, None if external else author, self.now())
        created.external_user = author if external else None
        created.id = number or created.id
        issue.comments.append(created)
        issue.updated_at = self.now()
        self.comments_by_id[created.id] = created
        self._emit("Comment", "create", self._comment_data(created), f"{issue.url}#comment-{created.id[:8]}", author)
        return created

    def move(self, issue: Issue, state: str, by: str = "dev") -> None:
        before = issue.state.id
        issue.state = next(candidate for candidate in issue.team.states if candidate.name == state)
        self.mark_updated(issue, self.user(by), "update", {"stateId": before})

    def transfer(self, issue: Issue, team: Team, by: str = "dev") -> None:
        """Move an issue to another team: it gets a new identifier and is still found by the old one."""
        before = issue.identifier
        issue.team.issues.remove(issue)
        issue.team, issue.number = team, next_number(team)
        issue.state = next(state for state in team.states if state.type == "unstarted")
        issue.former.append(before)
        team.issues.append(issue)
        self.mark_updated(issue, self.user(by), "update", {})

    def label_issue(self, issue: Issue, name: str, by: str = "dev") -> None:
        before = [label.id for label in issue.labels]
        issue.labels.append(self.label(name, issue.team))
        self.mark_updated(issue, self.user(by), "update", {"labelIds": before})

    def attach(self, issue: Issue, title: str, url: str) -> None:
        issue.attachments.append(Attachment(title, url, self.now()))

    def mark_updated(self, issue: Issue, by: User, action: str, before: dict[str, Any]) -> None:
        """Update an issue's time and send its webhook."""
        issue.updated_at = self.now()
        self._emit("Issue", action, self.issue_data(issue), issue.url, by, before)

    # --- answers

    def login_of(self, headers: dict[str, str]) -> str:
        return self.tokens.get(headers.get("authorization", "").removeprefix("Bearer "), "")

    def answer(self, request: TrackerRequest) -> Answer:
        if request.path != "/graphql" or request.method != "POST":
            return Answer(404, {"errors": [{"message": "Not found"}]})
        if not request.login:
            return self.refusal(401)
        grants = self._grants(request.login)
        if not grants["requests"].remaining or not grants["complexity"].remaining:
            return self.limited(request)
        answer, cost = self._graphql.answer(request.body, self.users[request.login])
        grants["requests"].used += 1
        grants["complexity"].used += cost
        answer.headers |= {"X-Complexity": str(cost), **self._limit_headers(grants)}
        return answer

    def _grants(self, login: str) -> dict[str, Allowance]:
        grants = self.grants.setdefault(login, {"requests": Allowance(REQUESTS), "complexity": Allowance(COMPLEXITY)})
        for allowance in grants.values():
            allowance.renew(self.clock())
        return grants

    def _limit_headers(self, grants: dict[str, Allowance]) -> dict[str, str]:
        return {
            f"X-RateLimit-{kind.title()}-{name}": str(value)
            for kind, allowance in grants.items()
            for name, value in (
                ("Limit", allowance.limit),
                ("Remaining", allowance.remaining),
                ("Reset", int(allowance.reset * 1000)),
            )
        }

    def refusal(self, status: int) -> Answer:
        code = {401: "AUTHENTICATION_ERROR", 403: "FORBIDDEN", 429: "RATELIMITED"}.get(status, "INTERNAL_SERVER_ERROR")
        words = {401: "Authentication required, not authenticated"}.get(status, "Something went wrong")
        return Answer(status, {"errors": [{"message": words, "extensions": {"code": code, "type": code.lower()}}]})

    def limited(self, request: TrackerRequest) -> Answer:
        grants = self._grants(request.login)
        if grants["complexity"].remaining:
            grants["requests"].used = grants["requests"].limit
        answer = self.refusal(429)
        answer.status, answer.headers = 400, self._limit_headers(grants)
        return answer

    # --- webhooks

    def signed(self, delivery: Delivery) -> tuple[bytes, dict[str, str]]:
        body = json.dumps(delivery.payload).encode()
        digest = hmac.new(delivery.hook.secret.encode(), body, hashlib.sha256).hexdigest()
        return body, {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": "Linear-Webhook",
            "Linear-Delivery": delivery.id,
            "Linear-Event": delivery.event,
            "Linear-Signature": digest,
            "Linear-Timestamp": str(delivery.payload["webhookTimestamp"]),
        }

    def _emit(
        self, kind: str, action: str, data: dict[str, Any], url: str | None, by: User | None,
        before: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        def payload(hook: Hook) -> dict[str, Any]:
            event_payload: dict[str, Any] = {
                "action": action, "type": kind, "createdAt": self.now(), "data": data, "organizationId": self.organization,
                "webhookId": hook.id, "webhookTimestamp": int(self.clock() * 1000),
            }  # fmt: skip
            if url:
                event_payload["url"] = url
            if by:
                event_payload["actor"] = {**_person(by), "type": "user"}
            if before is not None:
                event_payload["updatedFrom"] = before
            return event_payload

        self.deliver(kind, payload)

    def issue_data(self, issue: Issue) -> dict[str, Any]:
        """Return an issue as webhooks show it."""
        state, team = issue.state, issue.team
        data: dict[str, Any] = {
            "id": issue.id, "createdAt": issue.created_at, "updatedAt": issue.updated_at, "number": issue.number,
            "title": issue.title, "description": issue.description, "priority": 0, "priorityLabel": "No priority",
            "prioritySortOrder": 0, "sortOrder": 0, "url": issue.url, "identifier": issue.identifier,
            "previousIdentifiers": issue.former, "subscriberIds": [], "reactionData": [], "releases": [], "teamId": team.id,
            "stateId": state.id, "labelIds": [label.id for label in issue.labels],
            "state": {"id": state.id, "color": state.color, "name": state.name, "type": state.type},
            "team": {"id": team.id, "key": team.key, "name": team.name},
            "labels": [{"id": label.id, "color": label.color, "name": label.name} for label in issue.labels],
        }  # fmt: skip
        if issue.assignee:
            data |= {"assigneeId": issue.assignee.id, "assignee": _person(issue.assignee)}
        if issue.creator:
            data |= {"creatorId": issue.creator.id, "creator": _person(issue.creator)}
        return data

    def _comment_data(self, comment: Comment) -> dict[str, Any]:
        issue = comment.issue
        data: dict[str, Any] = {
            "id": comment.id, "createdAt": comment.created_at, "updatedAt": comment.created_at, "body": comment.body,
            "issueId": issue.id, "reactionData": [],
            "issue": {
                "id": issue.id, "identifier": issue.identifier, "title": issue.title, "url": issue.url,
                "teamId": issue.team.id, "team": {"id": issue.team.id, "key": issue.team.key, "name": issue.team.name},
            },
        }  # fmt: skip
        if comment.user:
            data |= {"userId": comment.user.id, "user": _person(comment.user)}
        return data

    def _label_data(self, label: Label) -> dict[str, Any]:
        data: dict[str, Any] = {
            "id": label.id, "createdAt": label.created_at, "updatedAt": label.created_at, "name": label.name,
            "color": label.color, "isGroup": label.is_group,
        }  # fmt: skip
        if label.team:
            data["teamId"] = label.team.id
        return data


def _person(user: User) -> dict[str, Any]:
    return {"id": user.id, "name": user.name, "email": user.email, "url": user.url}
