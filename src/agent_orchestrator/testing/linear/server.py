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

from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.forge.tracker import (
    TrackerDelivery,
    TrackerRateLimit,
    TrackerRequest,
    TrackerServer,
    TrackerWebhook,
)
from agent_orchestrator.testing.linear.graphql import LinearGraphQL
from agent_orchestrator.testing.linear.state import (
    STATES,
    Attachment,
    LinearComment,
    LinearIssue,
    LinearLabel,
    LinearTeamRecord,
    LinearUser,
    WorkflowState,
    new_id,
    next_number,
)

SCHEMA_VARIABLE = "AO_LINEAR_SCHEMA"
MAX_REQUESTS_PER_HOUR = 5_000
MAX_COMPLEXITY_PER_HOUR = 250_000


class LinearServer(TrackerServer):
    """The server. Start it with `with LinearServer(schema=…) as linear:`; its GraphQL is at `linear.api`."""

    kind = "graphql"

    def __init__(
        self, *, clock: Callable[[], float] = time.time, schema: Path | str | None = None, port: int = 0
    ) -> None:
        super().__init__(clock, port)
        schema_path = schema or os.environ.get(SCHEMA_VARIABLE)
        self._graphql = LinearGraphQL(self, Path(schema_path) if schema_path else None)
        self.api = f"{self.url}/graphql"
        self.users: dict[str, LinearUser] = {}
        self.teams: list[LinearTeamRecord] = []
        self.labels: list[LinearLabel] = []
        self.comments_by_id: dict[str, LinearComment] = {}
        self.organization = new_id()
        self.rate_limits: dict[str, dict[str, TrackerRateLimit]] = {}
        """The rate limits of each person: `requests` and `complexity`."""

    # --- actions of tests

    def user(self, name: str, *, guest: bool = False, app: bool = False) -> LinearUser:
        """Return the user with this name, creating it if needed."""
        if name not in self.users:
            created = LinearUser(name.title(), name, f"{name}@acme.example", guest, app)
            created.url = f"{self.url}/acme/profiles/{name}"
            self.users[name] = created
        return self.users[name]

    def token(self, name: str) -> str:
        value = f"lin_api_{hashlib.sha256(name.encode()).hexdigest()[:40]}"
        self.tokens[value] = self.user(name).display_name
        return value

    def team(self, key: str, states: Sequence[tuple[str, str]] = STATES) -> LinearTeamRecord:
        team = LinearTeamRecord(key, key.title())
        team.states = [WorkflowState(name, kind, float(position)) for position, (name, kind) in enumerate(states)]
        self.teams.append(team)
        return team

    def label(self, name: str, team: LinearTeamRecord | None = None) -> LinearLabel:
        """Return the label with this name, creating it if needed."""
        label = next(
            (candidate for candidate in self.labels if candidate.name == name and candidate.team in (None, team)), None
        )
        if label is None:
            label = LinearLabel(name, team, self.now())
            self.labels.append(label)
            self._emit("IssueLabel", "create", self._label_data(label), None, None)
        return label

    def issue(
        self, team: LinearTeamRecord, title: str, body: str = "", *, by: LinearUser | str = "dev",
        labels: Sequence[LinearLabel | str] = (), assignee: str = "", external: bool = False,
    ) -> LinearIssue:  # fmt: skip
        author = self.user(by) if isinstance(by, str) else by
        first = next(state for state in team.states if state.type in ("backlog", "unstarted"))
        created = LinearIssue(
            team, next_number(team), title, body, first, None if external else author, self.now(), self.now(), self.url
        )
        created.external_user_creator = author if external else None
        created.labels = [self.label(label, team) if isinstance(label, str) else label for label in labels]
        created.assignee = self.user(assignee) if assignee else None
        team.issues.append(created)
        self._emit("Issue", "create", self.issue_data(created), created.url, author)
        return created

    def comment(
        self,
        issue: LinearIssue,
        body: str,
        *,
        by: LinearUser | str = "dev",
        external: bool = False,
        number: str | None = None,
    ) -> LinearComment:
        author = self.user(by) if isinstance(by, str) else by
        created = LinearComment(issue, body, None if external else author, self.now())
        created.external_user = author if external else None
        created.id = number or created.id
        issue.comments.append(created)
        issue.updated_at = self.now()
        self.comments_by_id[created.id] = created
        self._emit("Comment", "create", self._comment_data(created), f"{issue.url}#comment-{created.id[:8]}", author)
        return created

    def move(self, issue: LinearIssue, state: str, by: str = "dev") -> None:
        before = issue.state.id
        issue.state = next(candidate for candidate in issue.team.states if candidate.name == state)
        self.mark_updated(issue, self.user(by), "update", {"stateId": before})

    def transfer(self, issue: LinearIssue, team: LinearTeamRecord, by: str = "dev") -> None:
        """Move an issue to another team: it gets a new identifier and is still found by the old one."""
        before = issue.identifier
        issue.team.issues.remove(issue)
        issue.team, issue.number = team, next_number(team)
        issue.state = next(state for state in team.states if state.type == "unstarted")
        issue.former_identifiers.append(before)
        team.issues.append(issue)
        self.mark_updated(issue, self.user(by), "update", {})

    def label_issue(self, issue: LinearIssue, name: str, by: str = "dev") -> None:
        before = [label.id for label in issue.labels]
        issue.labels.append(self.label(name, issue.team))
        self.mark_updated(issue, self.user(by), "update", {"labelIds": before})

    def attach(self, issue: LinearIssue, title: str, url: str) -> None:
        issue.attachments.append(Attachment(title, url, self.now()))

    def mark_updated(self, issue: LinearIssue, by: LinearUser, action: str, before: dict[str, Any]) -> None:
        """Update an issue's time and send its webhook."""
        issue.updated_at = self.now()
        self._emit("Issue", action, self.issue_data(issue), issue.url, by, before)

    # --- answers

    def login_of(self, headers: dict[str, str]) -> str:
        return self.tokens.get(headers.get("authorization", "").removeprefix("Bearer "), "")

    def answer(self, request: TrackerRequest) -> ForgeAnswer:
        if request.path != "/graphql" or request.method != "POST":
            return ForgeAnswer(404, {"errors": [{"message": "Not found"}]})
        if not request.login:
            return self.refusal_answer(401)
        grants = self._rate_limits_of(request.login)
        if not grants["requests"].remaining or not grants["complexity"].remaining:
            return self.rate_limit_answer(request)
        answer, cost = self._graphql.answer(request.body, self.users[request.login])
        grants["requests"].used += 1
        grants["complexity"].used += cost
        answer.headers |= {"X-Complexity": str(cost), **self._limit_headers(grants)}
        return answer

    def _rate_limits_of(self, login: str) -> dict[str, TrackerRateLimit]:
        grants = self.rate_limits.setdefault(
            login,
            {
                "requests": TrackerRateLimit(MAX_REQUESTS_PER_HOUR),
                "complexity": TrackerRateLimit(MAX_COMPLEXITY_PER_HOUR),
            },
        )
        for allowance in grants.values():
            allowance.renew(self.clock())
        return grants

    def _limit_headers(self, grants: dict[str, TrackerRateLimit]) -> dict[str, str]:
        return {
            f"X-RateLimit-{kind.title()}-{name}": str(value)
            for kind, allowance in grants.items()
            for name, value in (
                ("Limit", allowance.limit),
                ("Remaining", allowance.remaining),
                ("Reset", int(allowance.reset * 1000)),
            )
        }

    def refusal_answer(self, status: int) -> ForgeAnswer:
        code = {401: "AUTHENTICATION_ERROR", 403: "FORBIDDEN", 429: "RATELIMITED"}.get(status, "INTERNAL_SERVER_ERROR")
        words = {401: "Authentication required, not authenticated"}.get(status, "Something went wrong")
        return ForgeAnswer(status, {"errors": [{"message": words, "extensions": {"code": code, "type": code.lower()}}]})

    def rate_limit_answer(self, request: TrackerRequest) -> ForgeAnswer:
        grants = self._rate_limits_of(request.login)
        if grants["complexity"].remaining:
            grants["requests"].used = grants["requests"].limit
        answer = self.refusal_answer(429)
        answer.status, answer.headers = 400, self._limit_headers(grants)
        return answer

    # --- webhooks

    def sign_delivery(self, delivery: TrackerDelivery) -> tuple[bytes, dict[str, str]]:
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
        self, kind: str, action: str, data: dict[str, Any], url: str | None, by: LinearUser | None,
        before: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        def payload(hook: TrackerWebhook) -> dict[str, Any]:
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

    def issue_data(self, issue: LinearIssue) -> dict[str, Any]:
        """Return an issue as webhooks show it."""
        state, team = issue.state, issue.team
        data: dict[str, Any] = {
            "id": issue.id, "createdAt": issue.created_at, "updatedAt": issue.updated_at, "number": issue.number,
            "title": issue.title, "description": issue.description, "priority": 0, "priorityLabel": "No priority",
            "prioritySortOrder": 0, "sortOrder": 0, "url": issue.url, "identifier": issue.identifier,
            "previousIdentifiers": issue.former_identifiers, "subscriberIds": [], "reactionData": [], "releases": [], "teamId": team.id,
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

    def _comment_data(self, comment: LinearComment) -> dict[str, Any]:
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

    def _label_data(self, label: LinearLabel) -> dict[str, Any]:
        data: dict[str, Any] = {
            "id": label.id, "createdAt": label.created_at, "updatedAt": label.created_at, "name": label.name,
            "color": label.color, "isGroup": label.is_group,
        }  # fmt: skip
        if label.team:
            data["teamId"] = label.team.id
        return data


def _person(user: LinearUser) -> dict[str, Any]:
    return {"id": user.id, "name": user.name, "email": user.email, "url": user.url}
