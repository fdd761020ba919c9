"""`JiraServer`: a Jira on loopback. Tests call its methods; clients use REST 3 or REST 2."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.testing.forge.http import ForgeAnswer
from agent_orchestrator.testing.forge.tracker import (
    TrackerDelivery,
    TrackerRateLimit,
    TrackerRequest,
    TrackerServer,
    TrackerWebhook,
)
from agent_orchestrator.testing.jira import jql
from agent_orchestrator.testing.jira.shapes import JiraShapes
from agent_orchestrator.testing.jira.state import (
    STATUSES,
    JiraComment,
    JiraIssue,
    JiraProject,
    JiraStatusRecord,
    JiraUser,
)

MAX_COMMENT_LENGTH = 32_767
_API_PATH = re.compile(r"/rest/api/([23])/(.*)")
_ISSUE = re.compile(r"issue/([A-Za-z][A-Za-z0-9_]*-\d+|\d+)(?:/(comment|transitions|assignee))?")

_PERMISSIONS = (
    *("BROWSE_PROJECTS", "CREATE_ISSUES", "EDIT_ISSUES", "ASSIGN_ISSUES"),
    *("TRANSITION_ISSUES", "ADD_COMMENTS", "DELETE_ISSUES"),
)


class JiraRefused(Exception):
    """Jira refuses a request."""

    def __init__(self, status: int, *messages: str, **fields: str) -> None:
        super().__init__(status, messages, fields)
        self.status, self.messages, self.fields = status, list(messages), fields


class JiraServer(TrackerServer):
    """The server. Start it with `with JiraServer() as jira:`."""

    def __init__(self, *, clock: Callable[[], float] = time.time, port: int = 0) -> None:
        super().__init__(clock, port)
        self.projects: dict[str, JiraProject] = {}
        self.users: dict[str, JiraUser] = {}
        self.shapes = JiraShapes(self.url)
        self.page_size = 100
        """The maximum number of issues or comments on a page."""
        self.rate_limit = TrackerRateLimit(5_000)
        self.answer_log: list[tuple[str, str, int, Any]] = []
        """The log of answers: method, path, status, body."""
        self.forbidden: set[str] = set()
        """Permissions that no user has."""
        self._last_number = 10_000

    # --- actions of tests

    def user(self, name: str, kind: str = "atlassian") -> JiraUser:
        """Return the user with this name, creating it if needed."""
        if name not in self.users:
            account = f"5b10{hashlib.sha256(name.encode()).hexdigest()[:20]}"
            self.users[name] = JiraUser(account, name, name.title(), f"{name}@acme.example", kind)
        return self.users[name]

    def token(self, name: str) -> str:
        value = f"ATATT{hashlib.sha256(name.encode()).hexdigest()[:40]}"
        self.tokens[value] = self.user(name).name
        return value

    def project(
        self, key: str, members: Sequence[str] = ("dev",), statuses: Sequence[tuple[str, str]] = STATUSES,
        transitions: Mapping[str, Sequence[str]] | None = None,
    ) -> JiraProject:  # fmt: skip
        created = JiraProject(self._number(), key, transitions=transitions)
        created.statuses = [JiraStatusRecord(self._number(), name, category) for name, category in statuses]
        created.members = [self.user(name) for name in members]
        self.projects[key] = created
        return created

    def issue(
        self, project: JiraProject, title: str, body: Any = None, *, by: JiraUser | str = "dev", labels: Sequence[str] = (),
        assignee: str = "", kind: str = "Task",
    ) -> JiraIssue:  # fmt: skip
        reporter = self.user(by) if isinstance(by, str) else by
        now = self.clock()
        project.last_number += 1
        created = JiraIssue(
            self._number(), project, project.last_number, title, body, project.statuses[0], reporter, now, now, kind
        )
        created.labels = list(labels)
        created.assignee = self.user(assignee) if assignee else None
        project.issues.append(created)
        self._emit("jira:issue_created", created, reporter)
        return created

    def comment(
        self, issue: JiraIssue, body: Any, *, by: JiraUser | str = "dev", properties: Sequence[Any] = ()
    ) -> JiraComment:
        author = self.user(by) if isinstance(by, str) else by
        created = JiraComment(self._number(), author, body, self.clock(), list(properties))
        issue.comments.append(created)
        issue.updated = self.clock()
        self._emit("comment_created", issue, author, comment=created)
        return created

    def move(self, issue: JiraIssue, status: str, by: str = "dev") -> None:
        issue.status = next(candidate for candidate in issue.project.statuses if candidate.name == status)
        self._mark_updated(issue, self.user(by), "status")

    def label_issue(self, issue: JiraIssue, name: str, by: str = "dev") -> None:
        issue.labels.append(name)
        self._mark_updated(issue, self.user(by), "labels")

    def attach(self, issue: JiraIssue, name: str, version: int = 3) -> str:
        """Attach a file and return its URL in this API version."""
        issue.attachments.append((self._number(), name))
        return str(self.shapes.attachment(issue, *issue.attachments[-1], version)["content"])

    def _number(self) -> str:
        self._last_number += 1
        return str(self._last_number)

    # --- answers

    def login_of(self, headers: dict[str, str]) -> str:
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return self.tokens.get(value, "")
        email, _, token = base64.b64decode(value).decode(errors="replace").partition(":")
        name = self.tokens.get(token, "")
        return name if name and email in (self.users[name].email, name) else ""

    def answer(self, request: TrackerRequest) -> ForgeAnswer:
        answer = self._answer(request)
        body = json.loads(json.dumps(answer.body)) if answer.body is not None else None
        self.answer_log.append((request.method, request.path, answer.status, body))
        return answer

    def _answer(self, request: TrackerRequest) -> ForgeAnswer:
        match = _API_PATH.fullmatch(request.path)
        if match is None:
            return ForgeAnswer(404, {"errorMessages": ["dead link"], "errors": {}})
        if not request.login:
            return self.refusal_answer(401)
        self.rate_limit.renew(self.clock())
        if not self.rate_limit.remaining:
            return self.rate_limit_answer(request)
        self.rate_limit.used += 1
        try:
            body = json.loads(request.body) if request.body else {}
            answer = self._route(request, int(match[1]), match[2], body)
        except JiraRefused as refused:
            answer = ForgeAnswer(refused.status, {"errorMessages": refused.messages, "errors": refused.fields})
        answer.headers |= self._limit_headers()
        return answer

    def _limit_headers(self) -> dict[str, str]:
        reset = datetime.fromtimestamp(self.rate_limit.reset, UTC).strftime("%Y-%m-%dT%H:%MZ")
        values = {"Limit": str(self.rate_limit.limit), "Remaining": str(self.rate_limit.remaining), "Reset": reset}
        return {f"X-RateLimit-{name}": value for name, value in values.items()}

    def refusal_answer(self, status: int) -> ForgeAnswer:
        words = {401: "Client must be authenticated to access this resource.", 403: "You do not have the permission."}
        return ForgeAnswer(status, {"errorMessages": [words.get(status, "Internal error")], "errors": {}})

    def rate_limit_answer(self, request: TrackerRequest) -> ForgeAnswer:
        del request
        answer = self.refusal_answer(429)
        answer.headers = {**self._limit_headers(), "X-RateLimit-Remaining": "0", "Retry-After": "120"}
        return answer

    def _route(self, request: TrackerRequest, version: int, path: str, body: Any) -> ForgeAnswer:
        me = self.users[request.login]
        if request.method == "GET" and path == "myself":
            return ForgeAnswer(200, self.shapes.user(me, version))
        if request.method == "GET" and path == "mypermissions":
            return self._permissions(request.query, version)
        if request.method == "GET" and path == "user/assignable/search":
            return ForgeAnswer(
                200, [self.shapes.user(person, version) for person in self._assignable(request.query, version)]
            )
        if request.method == "POST" and path == "comment/list" and version == 3:
            return self._list_comments(body, "properties" in request.query.get("expand", ""))
        if request.method == "POST" and path == "issue":
            return self._create(body, me, version)
        if request.method == "POST" and path == "search/jql" and version == 3:
            return self._search(body, me)
        if request.method == "POST" and path == "search" and version == 2:
            return self._search_server(body, me)
        if path == "search" and version == 3:
            raise JiraRefused(
                410, "The requested API has been removed. Please migrate to the /rest/api/3/search/jql API."
            )
        match = _ISSUE.fullmatch(path)
        if match is None:
            raise JiraRefused(404, "dead link")
        issue = self._issue(match[1])
        part = match[2] or ""
        if request.method == "GET":
            return self._read(issue, part, request.query, version)
        return self._write(request.method, issue, part, body, me, version)

    def _permissions(self, query: dict[str, str], version: int) -> ForgeAnswer:
        if version == 3 and not query.get("permissions"):
            raise JiraRefused(400, "The permissions query parameter is required.")
        if query.get("projectKey", "") not in self.projects:
            raise JiraRefused(404, f"No project could be found with key '{query.get('projectKey', '')}'.")
        names = query.get("permissions", "").split(",") if version == 3 else _PERMISSIONS
        return ForgeAnswer(200, {
            "permissions": {
                name: {
                    "id": str(number), "key": name, "name": name.replace("_", " ").title(), "type": "PROJECT", "description": "",
                    "havePermission": name not in self.forbidden,
                }
                for number, name in enumerate(names, 10)
            }
        })  # fmt: skip

    def _read(self, issue: JiraIssue, part: str, query: dict[str, str], version: int) -> ForgeAnswer:
        if part == "transitions":
            transitions = [self.shapes.transition(issue, item) for item in issue.project.next_statuses(issue.status)]
            return ForgeAnswer(200, {"expand": "transitions", "transitions": transitions})
        if part == "comment":
            ordered = issue.comments[::-1] if query.get("orderBy") == "-created" else issue.comments
            start, size = int(query.get("startAt", 0)), min(self.page_size, int(query.get("maxResults", 50)))
            page = [self.shapes.comment(issue, item, version, False) for item in ordered[start : start + size]]
            return ForgeAnswer(200, {"startAt": start, "maxResults": size, "total": len(ordered), "comments": page})
        fields = query["fields"].split(",") if query.get("fields") else None
        return ForgeAnswer(200, self.shapes.issue(issue, version, fields))

    def _write(self, method: str, issue: JiraIssue, part: str, body: Any, me: JiraUser, version: int) -> ForgeAnswer:
        if (method, part) == ("POST", "comment"):
            text = self._text(body.get("body"), version)
            created = self.comment(issue, text, by=me, properties=body.get("properties") or ())
            return ForgeAnswer(201, self.shapes.comment(issue, created, version, False))
        if (method, part) == ("POST", "transitions"):
            number = (body.get("transition") or {}).get("id")
            status = next(
                (candidate for candidate in issue.project.next_statuses(issue.status) if candidate.id == number), None
            )
            if status is None:
                raise JiraRefused(
                    400, f"It seems that you have tried to perform an illegal workflow operation: {number}."
                )
            issue.status = status
            self._mark_updated(issue, me, "status")
            return ForgeAnswer(204)
        if (method, part) == ("PUT", "assignee"):
            issue.assignee = self._person(body, issue.project, version)
            self._mark_updated(issue, me, "assignee")
            return ForgeAnswer(204)
        if (method, part) == ("PUT", ""):
            self._edit(issue, body, version)
            self._mark_updated(issue, me, "labels")
            return ForgeAnswer(204)
        raise JiraRefused(405, "Method Not Allowed")

    def _edit(self, issue: JiraIssue, body: Any, version: int) -> None:
        fields = body.get("fields") or {}
        if unknown := set(fields) - {"summary", "description", "labels"}:
            name = unknown.pop()
            raise JiraRefused(400, **{name: f"Field '{name}' cannot be set."})
        if "summary" in fields:
            issue.title = self._summary(fields["summary"])
        if "description" in fields:
            issue.body = self._text(fields["description"], version)
        for step in (body.get("update") or {}).get("labels") or []:
            if "add" in step and step["add"] not in issue.labels:
                issue.labels.append(self._label(step["add"]))
            if "remove" in step and step["remove"] in issue.labels:
                issue.labels.remove(step["remove"])

    def _create(self, body: Any, me: JiraUser, version: int) -> ForgeAnswer:
        fields = body.get("fields") or {}
        project = self.projects.get((fields.get("project") or {}).get("key", ""))
        if project is None:
            raise JiraRefused(400, project="valid project is required")
        kind = (fields.get("issuetype") or {}).get("name")
        if kind not in ("Task", "Bug", "Story"):
            raise JiraRefused(400, issuetype="Specify a valid issue type")
        labels = [self._label(label) for label in fields.get("labels") or []]
        text = self._text(fields["description"], version) if fields.get("description") is not None else None
        created = self.issue(project, self._summary(fields.get("summary")), text, by=me, labels=labels, kind=kind)
        return ForgeAnswer(
            201, {"id": created.id, "key": created.key, "self": self.shapes.address(f"issue/{created.id}", version)}
        )

    def _summary(self, text: Any) -> str:
        if not isinstance(text, str) or not text.strip():
            raise JiraRefused(400, summary="You must specify a summary of the issue.")
        if len(text) > 255 or "\n" in text:
            raise JiraRefused(
                400, summary="The summary is invalid because it contains newline characters or is too long."
            )
        return text

    def _label(self, label: Any) -> str:
        if not isinstance(label, str) or re.search(r"\s", label):
            raise JiraRefused(400, labels=f"The label '{label}' contains spaces which is invalid.")
        return label

    def _text(self, text: Any, version: int) -> Any:
        """Return a valid body, a document for version 3 and a text for version 2; raise `JiraRefused` for others."""
        if version == 3:
            is_document = isinstance(text, dict) and text.get("type") == "doc" and text.get("version") == 1
            if not is_document or not isinstance(text.get("content"), list):
                raise JiraRefused(400, comment="Comment body is not valid!")
        elif not isinstance(text, str):
            raise JiraRefused(400, comment="Operation value must be a string")
        if len(json.dumps(text) if version == 3 else text) > MAX_COMMENT_LENGTH * (4 if version == 3 else 1):
            raise JiraRefused(
                400, comment="The entered text is too long. It exceeds the allowed limit of 32,767 characters."
            )
        return text

    def _person(self, body: Any, project: JiraProject, version: int) -> JiraUser | None:
        account = body.get("accountId" if version == 3 else "name")
        if account is None:
            return None
        matching = [
            member for member in project.members if account == (member.account if version == 3 else member.name)
        ]
        if not matching:
            raise JiraRefused(400, assignee=f"User '{account}' cannot be assigned issues.")
        return matching[0]

    def _assignable(self, query: dict[str, str], version: int) -> list[JiraUser]:
        project = self.projects.get(query.get("project", ""))
        if project is None:
            raise JiraRefused(404, f"No project could be found with key '{query.get('project')}'.")
        if version == 3 and "accountId" in query:
            return [member for member in project.members if member.account == query["accountId"]]
        text = query.get("query" if version == 3 else "username", "").lower()
        if not text:
            raise JiraRefused(400, "The query parameter was not provided.")
        matching = [
            member
            for member in project.members
            if any(text in name.lower() for name in (member.display, member.email, member.name))
        ]
        return matching[: int(query.get("maxResults", 50))]

    def _issue(self, name: str) -> JiraIssue:
        for project in self.projects.values():
            for issue in project.issues:
                if name.upper() in (issue.key, issue.former_key) or name == issue.id:
                    return issue
        raise JiraRefused(404, "Issue does not exist or you do not have permission to see it.")

    def _query_issues(self, body: Any, me: JiraUser) -> list[JiraIssue]:
        issues = [issue for project in self.projects.values() for issue in project.issues]
        try:
            return jql.find_issues(str(body.get("jql") or ""), issues, me, self.clock())
        except jql.InvalidQuery as wrong:
            raise JiraRefused(400, str(wrong)) from None

    def _list_comments(self, body: Any, with_properties: bool) -> ForgeAnswer:
        ids = body.get("ids")
        if not isinstance(ids, list) or not all(isinstance(item, int) for item in ids) or len(ids) > 1000:
            raise JiraRefused(400, "The list of comment IDs is not valid.")
        issues = [issue for project in self.projects.values() for issue in project.issues]
        page = [
            self.shapes.comment(issue, item, 3, with_properties)
            for issue in issues
            for item in issue.comments
            if int(item.id) in set(ids)
        ]
        counts = {"maxResults": 1_048_576, "startAt": 0, "total": len(page), "isLast": True}
        return ForgeAnswer(200, {**counts, "values": page})

    def _search(self, body: Any, me: JiraUser) -> ForgeAnswer:
        matching, fields = self._query_issues(body, me), body.get("fields") or ["id"]
        token = str(body.get("nextPageToken") or "")
        if token and not token.startswith("Ch0j"):
            raise JiraRefused(400, "The provided next page token is invalid.")
        start, size = int(token[4:]) if token else 0, min(self.page_size, int(body.get("maxResults", 50)))
        page = [self.shapes.issue(issue, 3, fields) for issue in matching[start : start + size]]
        last = start + size >= len(matching)
        next_page = {} if last else {"nextPageToken": f"Ch0j{start + size}"}
        return ForgeAnswer(200, {"issues": page, "isLast": last, **next_page})

    def _search_server(self, body: Any, me: JiraUser) -> ForgeAnswer:
        matching, fields = self._query_issues(body, me), body.get("fields")
        start, size = int(body.get("startAt", 0)), min(self.page_size, int(body.get("maxResults", 50)))
        page = [self.shapes.issue(issue, 2, fields) for issue in matching[start : start + size]]
        counts = {"startAt": start, "maxResults": size, "total": len(matching)}
        return ForgeAnswer(200, {"expand": "names,schema", **counts, "issues": page})

    # --- webhooks

    def sign_delivery(self, delivery: TrackerDelivery) -> tuple[bytes, dict[str, str]]:
        body = json.dumps(delivery.payload).encode()
        digest = hmac.new(delivery.hook.secret.encode(), body, hashlib.sha256).hexdigest()
        return body, {
            "Content-Type": "application/json; charset=UTF-8",
            "User-Agent": "Atlassian Webhook HTTP Client",
            "X-Atlassian-Webhook-Identifier": delivery.id,
            "X-Atlassian-Webhook-Flow": "Primary",
            "X-Hub-Signature": f"sha256={digest}",
        }

    def _mark_updated(self, issue: JiraIssue, by: JiraUser, field: str) -> None:
        issue.updated = self.clock()
        self._emit("jira:issue_updated", issue, by, field=field)

    def _emit(
        self, event: str, issue: JiraIssue, by: JiraUser, comment: JiraComment | None = None, field: str = ""
    ) -> None:
        def payload(_: TrackerWebhook) -> dict[str, Any]:
            event_payload: dict[str, Any] = {"timestamp": int(self.clock() * 1000), "webhookEvent": event}
            if comment is not None:
                issue_fields = ["summary", "status", "labels", "assignee"]
                comment_shape = self.shapes.comment(issue, comment, 2, False)
                return {**event_payload, "comment": comment_shape, "issue": self.shapes.issue(issue, 2, issue_fields)}
            event_payload |= {"user": self.shapes.user(by, 3), "issue": self.shapes.issue(issue, 2, None)}
            kind = "issue_created" if event == "jira:issue_created" else "issue_generic"
            event_payload["issue_event_type_name"] = kind
            if field:
                event_payload["changelog"] = {"id": self._number(), "items": [{"field": field, "fieldtype": "jira"}]}
            return event_payload

        self.deliver(event, payload)
