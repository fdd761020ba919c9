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

from agent_orchestrator.testing.forge.tracker import Allowance, Delivery, Hook, TrackerRequest, TrackerServer
from agent_orchestrator.testing.forge.wire import Answer
from agent_orchestrator.testing.jira import jql
from agent_orchestrator.testing.jira.shapes import Shapes
from agent_orchestrator.testing.jira.state import STATUSES, Comment, Issue, Project, Status, User

LONGEST_COMMENT = 32_767
_API_PATH = re.compile(r"/rest/api/([23])/(.*)")
_ISSUE = re.compile(r"issue/([A-Za-z][A-Za-z0-9_]*-\d+|\d+)(?:/(comment|transitions|assignee))?")

_PERMISSIONS = (
    *("BROWSE_PROJECTS", "CREATE_ISSUES", "EDIT_ISSUES", "ASSIGN_ISSUES"),
    *("TRANSITION_ISSUES", "ADD_COMMENTS", "DELETE_ISSUES"),
)


class Refused(Exception):
    """Jira refuses a request."""

    def __init__(self, status: int, *messages: str, **fields: str) -> None:
        super().__init__(status, messages, fields)
        self.status, self.messages, self.fields = status, list(messages), fields


class JiraServer(TrackerServer):
    """The server. Start it with `with JiraServer() as jira:`."""

    def __init__(self, *, clock: Callable[[], float] = time.time, port: int = 0) -> None:
        super().__init__(clock, port)
        self.projects: dict[str, Project] = {}
        self.users: dict[str, User] = {}
        self.show = Shapes(self.url)
        self.pages = 100
        """The maximum number of issues or comments on a page."""
        self.allowance = Allowance(5_000)
        self.answers: list[tuple[str, str, int, Any]] = []
        """The log of answers: method, path, status, body."""
        self.forbidden: set[str] = set()
        """Permissions that no user has."""
        self._numbers = 10_000

    # --- actions of tests

    def user(self, name: str, kind: str = "atlassian") -> User:
        """Return the user with this name, creating it if needed."""
        if name not in self.users:
            account = f"5b10{hashlib.sha256(name.encode()).hexdigest()[:20]}"
            self.users[name] = User(account, name, name.title(), f"{name}@acme.example", kind)
        return self.users[name]

    def token(self, name: str) -> str:
        value = f"ATATT{hashlib.sha256(name.encode()).hexdigest()[:40]}"
        self.tokens[value] = self.user(name).name
        return value

    def project(
        self, key: str, members: Sequence[str] = ("dev",), statuses: Sequence[tuple[str, str]] = STATUSES,
        transitions: Mapping[str, Sequence[str]] | None = None,
    ) -> Project:  # fmt: skip
        created = Project(self._number(), key, ways=transitions)
        created.statuses = [Status(self._number(), name, category) for name, category in statuses]
        created.members = [self.user(name) for name in members]
        self.projects[key] = created
        return created

    def issue(
        self, project: Project, title: str, body: Any = None, *, by: User | str = "dev", labels: Sequence[str] = (),
        assignee: str = "", kind: str = "Task",
    ) -> Issue:  # fmt: skip
        reporter = self.user(by) if isinstance(by, str) else by
        now = self.clock()
        project.last += 1
        created = Issue(
            self._number(), project, project.last, title, body, project.statuses[0], reporter, now, now, kind
        )
        created.labels = list(labels)
        created.assignee = self.user(assignee) if assignee else None
        project.issues.append(created)
        self._emit("jira:issue_created", created, reporter)
        return created

    def comment(self, issue: Issue, body: Any, *, by: User | str = "dev", properties: Sequence[Any] = ()) -> Comment:
        author = self.user(by) if isinstance(by, str) else by
        created = Comment(self._number(), author, body, self.clock(), list(properties))
        issue.comments.append(created)
        issue.updated = self.clock()
        self._emit("comment_created", issue, author, comment=created)
        return created

    def move(self, issue: Issue, status: str, by: str = "dev") -> None:
        issue.status = next(candidate for candidate in issue.project.statuses if candidate.name == status)
        self._mark_updated(issue, self.user(by), "status")

    def label_issue(self, issue: Issue, name: str, by: str = "dev") -> None:
        issue.labels.append(name)
        self._mark_updated(issue, self.user(by), "labels")

    def attach(self, issue: Issue, name: str, version: int = 3) -> str:
        """Attach a file and return its URL in this API version."""
        issue.attachments.append((self._number(), name))
        return str(self.show.attachment(issue, *issue.attachments[-1], version)["content"])

    def _number(self) -> str:
        self._numbers += 1
        return str(self._numbers)

    # --- answers

    def login_of(self, headers: dict[str, str]) -> str:
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return self.tokens.get(value, "")
        email, _, token = base64.b64decode(value).decode(errors="replace").partition(":")
        name = self.tokens.get(token, "")
        return name if name and email in (self.users[name].email, name) else ""

    def answer(self, request: TrackerRequest) -> Answer:
        answer = self._answer(request)
        body = json.loads(json.dumps(answer.body)) if answer.body is not None else None
        self.answers.append((request.method, request.path, answer.status, body))
        return answer

    def _answer(self, request: TrackerRequest) -> Answer:
        match = _API_PATH.fullmatch(request.path)
        if match is None:
            return Answer(404, {"errorMessages": ["dead link"], "errors": {}})
        if not request.login:
            return self.refusal(401)
        self.allowance.renew(self.clock())
        if not self.allowance.remaining:
            return self.limited(request)
        self.allowance.used += 1
        try:
            body = json.loads(request.body) if request.body else {}
            answer = self._route(request, int(match[1]), match[2], body)
        except Refused as refused:
            answer = Answer(refused.status, {"errorMessages": refused.messages, "errors": refused.fields})
        answer.headers |= self._limit_headers()
        return answer

    def _limit_headers(self) -> dict[str, str]:
        reset = datetime.fromtimestamp(self.allowance.reset, UTC).strftime("%Y-%m-%dT%H:%MZ")
        values = {"Limit": str(self.allowance.limit), "Remaining": str(self.allowance.remaining), "Reset": reset}
        return {f"X-RateLimit-{name}": value for name, value in values.items()}

    def refusal(self, status: int) -> Answer:
        words = {401: "Client must be authenticated to access this resource.", 403: "You do not have the permission."}
        return Answer(status, {"errorMessages": [words.get(status, "Internal error")], "errors": {}})

    def limited(self, request: TrackerRequest) -> Answer:
        del request
        answer = self.refusal(429)
        answer.headers = {**self._limit_headers(), "X-RateLimit-Remaining": "0", "Retry-After": "120"}
        return answer

    def _route(self, request: TrackerRequest, version: int, path: str, body: Any) -> Answer:
        me = self.users[request.login]
        if request.method == "GET" and path == "myself":
            return Answer(200, self.show.user(me, version))
        if request.method == "GET" and path == "mypermissions":
            return self._permissions(request.query, version)
        if request.method == "GET" and path == "user/assignable/search":
            return Answer(200, [self.show.user(person, version) for person in self._assignable(request.query, version)])
        if request.method == "POST" and path == "comment/list" and version == 3:
            return self._list_comments(body, "properties" in request.query.get("expand", ""))
        if request.method == "POST" and path == "issue":
            return self._create(body, me, version)
        if request.method == "POST" and path == "search/jql" and version == 3:
            return self._search(body, me)
        if request.method == "POST" and path == "search" and version == 2:
            return self._search_server(body, me)
        if path == "search" and version == 3:
            raise Refused(410, "The requested API has been removed. Please migrate to the /rest/api/3/search/jql API.")
        match = _ISSUE.fullmatch(path)
        if match is None:
            raise Refused(404, "dead link")
        issue = self._issue(match[1])
        part = match[2] or ""
        if request.method == "GET":
            return self._read(issue, part, request.query, version)
        return self._write(request.method, issue, part, body, me, version)

    def _permissions(self, query: dict[str, str], version: int) -> Answer:
        if version == 3 and not query.get("permissions"):
            raise Refused(400, "The permissions query parameter is required.")
        if query.get("projectKey", "") not in self.projects:
            raise Refused(404, f"No project could be found with key '{query.get('projectKey', '')}'.")
        names = query.get("permissions", "").split(",") if version == 3 else _PERMISSIONS
        return Answer(200, {
            "permissions": {
                name: {
                    "id": str(number), "key": name, "name": name.replace("_", " ").title(), "type": "PROJECT", "description": "",
                    "havePermission": name not in self.forbidden,
                }
                for number, name in enumerate(names, 10)
            }
        })  # fmt: skip

    def _read(self, issue: Issue, part: str, query: dict[str, str], version: int) -> Answer:
        if part == "transitions":
            transitions = [self.show.transition(issue, item) for item in issue.project.leads_to(issue.status)]
            return Answer(200, {"expand": "transitions", "transitions": transitions})
        if part == "comment":
            ordered = issue.comments[::-1] if query.get("orderBy") == "-created" else issue.comments
            start, size = int(query.get("startAt", 0)), min(self.pages, int(query.get("maxResults", 50)))
            page = [self.show.comment(issue, item, version, False) for item in ordered[start : start + size]]
            return Answer(200, {"startAt": start, "maxResults": size, "total": len(ordered), "comments": page})
        fields = query["fields"].split(",") if query.get("fields") else None
        return Answer(200, self.show.issue(issue, version, fields))

    def _write(self, method: str, issue: Issue, part: str, body: Any, me: User, version: int) -> Answer:
        if (method, part) == ("POST", "comment"):
            text = self._text(body.get("body"), version)
            created = self.comment(issue, text, by=me, properties=body.get("properties") or ())
            return Answer(201, self.show.comment(issue, created, version, False))
        if (method, part) == ("POST", "transitions"):
            number = (body.get("transition") or {}).get("id")
            status = next(
                (candidate for candidate in issue.project.leads_to(issue.status) if candidate.id == number), None
            )
            if status is None:
                raise Refused(400, f"It seems that you have tried to perform an illegal workflow operation: {number}.")
            issue.status = status
            self._mark_updated(issue, me, "status")
            return Answer(204)
        if (method, part) == ("PUT", "assignee"):
            issue.assignee = self._person(body, issue.project, version)
            self._mark_updated(issue, me, "assignee")
            return Answer(204)
        if (method, part) == ("PUT", ""):
            self._edit(issue, body, version)
            self._mark_updated(issue, me, "labels")
            return Answer(204)
        raise Refused(405, "Method Not Allowed")

    def _edit(self, issue: Issue, body: Any, version: int) -> None:
        fields = body.get("fields") or {}
        if unknown := set(fields) - {"summary", "description", "labels"}:
            name = unknown.pop()
            raise Refused(400, **{name: f"Field '{name}' cannot be set."})
        if "summary" in fields:
            issue.title = self._summary(fields["summary"])
        if "description" in fields:
            issue.body = self._text(fields["description"], version)
        for step in (body.get("update") or {}).get("labels") or []:
            if "add" in step and step["add"] not in issue.labels:
                issue.labels.append(self._label(step["add"]))
            if "remove" in step and step["remove"] in issue.labels:
                issue.labels.remove(step["remove"])

    def _create(self, body: Any, me: User, version: int) -> Answer:
        fields = body.get("fields") or {}
        project = self.projects.get((fields.get("project") or {}).get("key", ""))
        if project is None:
            raise Refused(400, project="valid project is required")
        kind = (fields.get("issuetype") or {}).get("name")
        if kind not in ("Task", "Bug", "Story"):
            raise Refused(400, issuetype="Specify a valid issue type")
        labels = [self._label(label) for label in fields.get("labels") or []]
        text = self._text(fields["description"], version) if fields.get("description") is not None else None
        created = self.issue(project, self._summary(fields.get("summary")), text, by=me, labels=labels, kind=kind)
        return Answer(
            201, {"id": created.id, "key": created.key, "self": self.show.address(f"issue/{created.id}", version)}
        )

    def _summary(self, text: Any) -> str:
        if not isinstance(text, str) or not text.strip():
            raise Refused(400, summary="You must specify a summary of the issue.")
        if len(text) > 255 or "\n" in text:
            raise Refused(400, summary="The summary is invalid because it contains newline characters or is too long.")
        return text

    def _label(self, label: Any) -> str:
        if not isinstance(label, str) or re.search(r"\s", label):
            raise Refused(400, labels=f"The label '{label}' contains spaces which is invalid.")
        return label

    def _text(self, text: Any, version: int) -> Any:
        """Return a valid body, a document for version 3 and a text for version 2; raise `Refused` for others."""
        if version == 3:
            is_document = isinstance(text, dict) and text.get("type") == "doc" and text.get("version") == 1
            if not is_document or not isinstance(text.get("content"), list):
                raise Refused(400, comment="Comment body is not valid!")
        elif not isinstance(text, str):
            raise Refused(400, comment="Operation value must be a string")
        if len(json.dumps(text) if version == 3 else text) > LONGEST_COMMENT * (4 if version == 3 else 1):
            raise Refused(
                400, comment="The entered text is too long. It exceeds the allowed limit of 32,767 characters."
            )
        return text

    def _person(self, body: Any, project: Project, version: int) -> User | None:
        account = body.get("accountId" if version == 3 else "name")
        if account is None:
            return None
        matching = [
            member for member in project.members if account == (member.account if version == 3 else member.name)
        ]
        if not matching:
            raise Refused(400, assignee=f"User '{account}' cannot be assigned issues.")
        return matching[0]

    def _assignable(self, query: dict[str, str], version: int) -> list[User]:
        project = self.projects.get(query.get("project", ""))
        if project is None:
            raise Refused(404, f"No project could be found with key '{query.get('project')}'.")
        if version == 3 and "accountId" in query:
            return [member for member in project.members if member.account == query["accountId"]]
        text = query.get("query" if version == 3 else "username", "").lower()
        if not text:
            raise Refused(400, "The query parameter was not provided.")
        matching = [
            member
            for member in project.members
            if any(text in name.lower() for name in (member.display, member.email, member.name))
        ]
        return matching[: int(query.get("maxResults", 50))]

    def _issue(self, name: str) -> Issue:
        for project in self.projects.values():
            for issue in project.issues:
                if name.upper() in (issue.key, issue.former) or name == issue.id:
                    return issue
        raise Refused(404, "Issue does not exist or you do not have permission to see it.")

    def _query_issues(self, body: Any, me: User) -> list[Issue]:
        issues = [issue for project in self.projects.values() for issue in project.issues]
        try:
            return jql.find(str(body.get("jql") or ""), issues, me, self.clock())
        except jql.InvalidQuery as wrong:
            raise Refused(400, str(wrong)) from None

    def _list_comments(self, body: Any, with_properties: bool) -> Answer:
        ids = body.get("ids")
        if not isinstance(ids, list) or not all(isinstance(item, int) for item in ids) or len(ids) > 1000:
            raise Refused(400, "The list of comment IDs is not valid.")
        issues = [issue for project in self.projects.values() for issue in project.issues]
        page = [
            self.show.comment(issue, item, 3, with_properties)
            for issue in issues
            for item in issue.comments
            if int(item.id) in set(ids)
        ]
        counts = {"maxResults": 1_048_576, "startAt": 0, "total": len(page), "isLast": True}
        return Answer(200, {**counts, "values": page})

    def _search(self, body: Any, me: User) -> Answer:
        matching, fields = self._query_issues(body, me), body.get("fields") or ["id"]
        token = str(body.get("nextPageToken") or "")
        if token and not token.startswith("Ch0j"):
            raise Refused(400, "The provided next page token is invalid.")
        start, size = int(token[4:]) if token else 0, min(self.pages, int(body.get("maxResults", 50)))
        page = [self.show.issue(issue, 3, fields) for issue in matching[start : start + size]]
        last = start + size >= len(matching)
        next_page = {} if last else {"nextPageToken": f"Ch0j{start + size}"}
        return Answer(200, {"issues": page, "isLast": last, **next_page})

    def _search_server(self, body: Any, me: User) -> Answer:
        matching, fields = self._query_issues(body, me), body.get("fields")
        start, size = int(body.get("startAt", 0)), min(self.pages, int(body.get("maxResults", 50)))
        page = [self.show.issue(issue, 2, fields) for issue in matching[start : start + size]]
        counts = {"startAt": start, "maxResults": size, "total": len(matching)}
        return Answer(200, {"expand": "names,schema", **counts, "issues": page})

    # --- webhooks

    def signed(self, delivery: Delivery) -> tuple[bytes, dict[str, str]]:
        body = json.dumps(delivery.payload).encode()
        digest = hmac.new(delivery.hook.secret.encode(), body, hashlib.sha256).hexdigest()
        return body, {
            "Content-Type": "application/json; charset=UTF-8",
            "User-Agent": "Atlassian Webhook HTTP Client",
            "X-Atlassian-Webhook-Identifier": delivery.id,
            "X-Atlassian-Webhook-Flow": "Primary",
            "X-Hub-Signature": f"sha256={digest}",
        }

    def _mark_updated(self, issue: Issue, by: User, field: str) -> None:
        issue.updated = self.clock()
        self._emit("jira:issue_updated", issue, by, field=field)

    def _emit(self, event: str, issue: Issue, by: User, comment: Comment | None = None, field: str = "") -> None:
        def payload(_: Hook) -> dict[str, Any]:
            event_payload: dict[str, Any] = {"timestamp": int(self.clock() * 1000), "webhookEvent": event}
            if comment is not None:
                issue_fields = ["summary", "status", "labels", "assignee"]
                comment_shape = self.show.comment(issue, comment, 2, False)
                return {**event_payload, "comment": comment_shape, "issue": self.show.issue(issue, 2, issue_fields)}
            event_payload |= {"user": self.show.user(by, 3), "issue": self.show.issue(issue, 2, None)}
            kind = "issue_created" if event == "jira:issue_created" else "issue_generic"
            event_payload["issue_event_type_name"] = kind
            if field:
                event_payload["changelog"] = {"id": self._number(), "items": [{"field": field, "fieldtype": "jira"}]}
            return event_payload

        self.deliver(event, payload)
