"""`LinearServer`: a Linear on loopback. What a test does with it are its methods; what a client does comes by GraphQL."""

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
    """Start it with `with LinearServer(schema=…) as linear:`; its GraphQL is at `linear.api`."""

    kind = "graphql"

    def __init__(
        self, *, clock: Callable[[], float] = time.time, schema: Path | str | None = None, port: int = 0
    ) -> None:
        super().__init__(clock, port)
        named = schema or os.environ.get(SCHEMA_VARIABLE)
        self._graphql = GraphQL(self, Path(named) if named else None)
        self.api = f"{self.url}/graphql"
        self.users: dict[str, User] = {}
        self.teams: list[Team] = []
        self.labels: list[Label] = []
        self.said: dict[str, Comment] = {}
        self.organization = new_id()
        self.grants: dict[str, dict[str, Allowance]] = {}
        """What is left to each person: `requests` and `complexity`."""

    # --- what a test does

    def user(self, name: str, *, guest: bool = False, app: bool = False) -> User:
        """Somebody, made where there is none."""
        if name not in self.users:
            made = User(name.title(), name, f"{name}@acme.example", guest, app)
            made.url = f"{self.url}/acme/profiles/{name}"
            self.users[name] = made
        return self.users[name]

    def token(self, name: str) -> str:
        value = f"lin_api_{hashlib.sha256(name.encode()).hexdigest()[:40]}"
        self.tokens[value] = self.user(name).display_name
        return value

    def team(self, key: str, states: Sequence[tuple[str, str]] = STATES) -> Team:
        team = Team(key, key.title())
        team.states = [WorkflowState(name, kind, float(place)) for place, (name, kind) in enumerate(states)]
        self.teams.append(team)
        return team

    def label(self, name: str, team: Team | None = None) -> Label:
        """A label, made where there is none."""
        found = next((one for one in self.labels if one.name == name and one.team in (None, team)), None)
        if found is None:
            found = Label(name, team, self.now())
            self.labels.append(found)
            self._tell("IssueLabel", "create", self._label_data(found), None, None)
        return found

    def issue(
        self, team: Team, title: str, body: str = "", *, by: User | str = "dev",
        labels: Sequence[Label | str] = (), assignee: str = "", external: bool = False,
    ) -> Issue:  # fmt: skip
        who = self.user(by) if isinstance(by, str) else by
        first = next(state for state in team.states if state.type in ("backlog", "unstarted"))
        made = Issue(
            team, next_number(team), title, body, first, None if external else who, self.now(), self.now(), self.url
        )
        made.external_user_creator = who if external else None
        made.labels = [self.label(one, team) if isinstance(one, str) else one for one in labels]
        made.assignee = self.user(assignee) if assignee else None
        team.issues.append(made)
        self._tell("Issue", "create", self.issue_data(made), made.url, who)
        return made

    def comment(
        self, issue: Issue, body: str, *, by: User | str = "dev", external: bool = False, number: str | None = None
    ) -> Comment:
        who = self.user(by) if isinstance(by, str) else by
        made = Comment(issue, body, None if external else who, self.now())
        made.external_user = who if external else None
        made.id = number or made.id
        issue.comments.append(made)
        issue.updated_at = self.now()
        self.said[made.id] = made
        self._tell("Comment", "create", self._comment_data(made), f"{issue.url}#comment-{made.id[:8]}", who)
        return made

    def move(self, issue: Issue, state: str, by: str = "dev") -> None:
        before = issue.state.id
        issue.state = next(one for one in issue.team.states if one.name == state)
        self.touched(issue, self.user(by), "update", {"stateId": before})

    def transfer(self, issue: Issue, team: Team, by: str = "dev") -> None:
        """Move an issue to another team: it has a new name, and is still found by the old one."""
        before = issue.identifier
        issue.team.issues.remove(issue)
        issue.team, issue.number = team, next_number(team)
        issue.state = next(state for state in team.states if state.type == "unstarted")
        issue.former.append(before)
        team.issues.append(issue)
        self.touched(issue, self.user(by), "update", {})

    def label_issue(self, issue: Issue, name: str, by: str = "dev") -> None:
        before = [one.id for one in issue.labels]
        issue.labels.append(self.label(name, issue.team))
        self.touched(issue, self.user(by), "update", {"labelIds": before})

    def attach(self, issue: Issue, title: str, url: str) -> None:
        issue.attachments.append(Attachment(title, url, self.now()))

    def touched(self, issue: Issue, by: User, action: str, before: dict[str, Any]) -> None:
        """An issue has changed."""
        issue.updated_at = self.now()
        self._tell("Issue", action, self.issue_data(issue), issue.url, by, before)

    # --- what is answered

    def login_of(self, headers: dict[str, str]) -> str:
        return self.tokens.get(headers.get("authorization", "").removeprefix("Bearer "), "")

    def answer(self, asked: TrackerRequest) -> Answer:
        if asked.path != "/graphql" or asked.method != "POST":
            return Answer(404, {"errors": [{"message": "Not found"}]})
        if not asked.login:
            return self.refusal(401)
        grants = self._grants(asked.login)
        if not grants["requests"].remaining or not grants["complexity"].remaining:
            return self.limited(asked)
        answer, cost = self._graphql.answer(asked.body, self.users[asked.login])
        grants["requests"].used += 1
        grants["complexity"].used += cost
        answer.headers |= {"X-Complexity": str(cost), **self._left(grants)}
        return answer

    def _grants(self, login: str) -> dict[str, Allowance]:
        grants = self.grants.setdefault(login, {"requests": Allowance(REQUESTS), "complexity": Allowance(COMPLEXITY)})
        for one in grants.values():
            one.renew(self.clock())
        return grants

    def _left(self, grants: dict[str, Allowance]) -> dict[str, str]:
        return {
            f"X-RateLimit-{kind.title()}-{name}": str(value)
            for kind, one in grants.items()
            for name, value in (("Limit", one.limit), ("Remaining", one.remaining), ("Reset", int(one.reset * 1000)))
        }

    def refusal(self, status: int) -> Answer:
        code = {401: "AUTHENTICATION_ERROR", 403: "FORBIDDEN", 429: "RATELIMITED"}.get(status, "INTERNAL_SERVER_ERROR")
        words = {401: "Authentication required, not authenticated"}.get(status, "Something went wrong")
        return Answer(status, {"errors": [{"message": words, "extensions": {"code": code, "type": code.lower()}}]})

    def limited(self, asked: TrackerRequest) -> Answer:
        grants = self._grants(asked.login)
        if grants["complexity"].remaining:
            grants["requests"].used = grants["requests"].limit
        answer = self.refusal(429)
        answer.status, answer.headers = 400, self._left(grants)
        return answer

    # --- what is told

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

    def _tell(
        self, kind: str, action: str, data: dict[str, Any], url: str | None, by: User | None,
        before: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        def payload(hook: Hook) -> dict[str, Any]:
            told: dict[str, Any] = {
                "action": action, "type": kind, "createdAt": self.now(), "data": data, "organizationId": self.organization,
                "webhookId": hook.id, "webhookTimestamp": int(self.clock() * 1000),
            }  # fmt: skip
            if url:
                told["url"] = url
            if by:
                told["actor"] = {**_person(by), "type": "user"}
            if before is not None:
                told["updatedFrom"] = before
            return told

        self.deliver(kind, payload)

    def issue_data(self, issue: Issue) -> dict[str, Any]:
        """An issue as webhooks show it."""
        state, team = issue.state, issue.team
        shown: dict[str, Any] = {
            "id": issue.id, "createdAt": issue.created_at, "updatedAt": issue.updated_at, "number": issue.number,
            "title": issue.title, "description": issue.description, "priority": 0, "priorityLabel": "No priority",
            "prioritySortOrder": 0, "sortOrder": 0, "url": issue.url, "identifier": issue.identifier,
            "previousIdentifiers": issue.former, "subscriberIds": [], "reactionData": [], "releases": [], "teamId": team.id,
            "stateId": state.id, "labelIds": [one.id for one in issue.labels],
            "state": {"id": state.id, "color": state.color, "name": state.name, "type": state.type},
            "team": {"id": team.id, "key": team.key, "name": team.name},
            "labels": [{"id": one.id, "color": one.color, "name": one.name} for one in issue.labels],
        }  # fmt: skip
        if issue.assignee:
            shown |= {"assigneeId": issue.assignee.id, "assignee": _person(issue.assignee)}
        if issue.creator:
            shown |= {"creatorId": issue.creator.id, "creator": _person(issue.creator)}
        return shown

    def _comment_data(self, comment: Comment) -> dict[str, Any]:
        issue = comment.issue
        shown: dict[str, Any] = {
            "id": comment.id, "createdAt": comment.created_at, "updatedAt": comment.created_at, "body": comment.body,
            "issueId": issue.id, "reactionData": [],
            "issue": {
                "id": issue.id, "identifier": issue.identifier, "title": issue.title, "url": issue.url,
                "teamId": issue.team.id, "team": {"id": issue.team.id, "key": issue.team.key, "name": issue.team.name},
            },
        }  # fmt: skip
        if comment.user:
            shown |= {"userId": comment.user.id, "user": _person(comment.user)}
        return shown

    def _label_data(self, label: Label) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": label.id, "createdAt": label.created_at, "updatedAt": label.created_at, "name": label.name,
            "color": label.color, "isGroup": label.is_group,
        }  # fmt: skip
        if label.team:
            shown["teamId"] = label.team.id
        return shown


def _person(user: User) -> dict[str, Any]:
    return {"id": user.id, "name": user.name, "email": user.email, "url": user.url}
