"""`JiraServer`: a Jira on loopback. What a test does with it are its methods; what a client does comes by REST 3 or REST 2."""

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
_NAMED = re.compile(r"/rest/api/([23])/(.*)")
_ISSUE = re.compile(r"issue/([A-Za-z][A-Za-z0-9_]*-\d+|\d+)(?:/(comment|transitions|assignee))?")

_PERMISSIONS = (
    *("BROWSE_PROJECTS", "CREATE_ISSUES", "EDIT_ISSUES", "ASSIGN_ISSUES"),
    *("TRANSITION_ISSUES", "ADD_COMMENTS", "DELETE_ISSUES"),
)


class Refused(Exception):
    """Jira says no."""

    def __init__(self, status: int, *messages: str, **fields: str) -> None:
        super().__init__(status, messages, fields)
        self.status, self.messages, self.fields = status, list(messages), fields


class JiraServer(TrackerServer):
    """Start it with `with JiraServer() as jira:`."""

    def __init__(self, *, clock: Callable[[], float] = time.time, port: int = 0) -> None:
        super().__init__(clock, port)
        self.projects: dict[str, Project] = {}
        self.users: dict[str, User] = {}
        self.show = Shapes(self.url)
        self.pages = 100
        """At most so many issues or comments are on one page, whatever is asked for."""
        self.allowance = Allowance(5_000)
        self.answers: list[tuple[str, str, int, Any]] = []
        """What was answered: method, path, status, body."""
        self.forbidden: set[str] = set()
        """Permissions that nobody has."""
        self._numbers = 10_000

    # --- what a test does

    def user(self, name: str, kind: str = "atlassian") -> User:
        """Somebody, made where there is none."""
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
        ways: Mapping[str, Sequence[str]] | None = None,
    ) -> Project:  # fmt: skip
        made = Project(self._number(), key, ways=ways)
        made.statuses = [Status(self._number(), name, category) for name, category in statuses]
        made.members = [self.user(name) for name in members]
        self.projects[key] = made
        return made

    def issue(
        self, project: Project, title: str, body: Any = None, *, by: User | str = "dev", labels: Sequence[str] = (),
        assignee: str = "", kind: str = "Task",
    ) -> Issue:  # fmt: skip
        who = self.user(by) if isinstance(by, str) else by
        at = self.clock()
        project.last += 1
        made = Issue(self._number(), project, project.last, title, body, project.statuses[0], who, at, at, kind)
        made.labels = list(labels)
        made.assignee = self.user(assignee) if assignee else None
        project.issues.append(made)
        self._tell("jira:issue_created", made, who)
        return made

    def comment(self, issue: Issue, body: Any, *, by: User | str = "dev", properties: Sequence[Any] = ()) -> Comment:
        who = self.user(by) if isinstance(by, str) else by
        made = Comment(self._number(), who, body, self.clock(), list(properties))
        issue.comments.append(made)
        issue.updated = self.clock()
        self._tell("comment_created", issue, who, comment=made)
        return made

    def move(self, issue: Issue, status: str, by: str = "dev") -> None:
        issue.status = next(one for one in issue.project.statuses if one.name == status)
        self._changed(issue, self.user(by), "status")

    def label_issue(self, issue: Issue, name: str, by: str = "dev") -> None:
        issue.labels.append(name)
        self._changed(issue, self.user(by), "labels")

    def attach(self, issue: Issue, name: str, version: int = 3) -> str:
        """A file; its address by this version."""
        issue.attachments.append((self._number(), name))
        return str(self.show.attachment(issue, *issue.attachments[-1], version)["content"])

    def _number(self) -> str:
        self._numbers += 1
        return str(self._numbers)

    # --- what is answered

    def login_of(self, headers: dict[str, str]) -> str:
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() != "basic":
            return self.tokens.get(value, "")
        email, _, token = base64.b64decode(value).decode(errors="replace").partition(":")
        name = self.tokens.get(token, "")
        return name if name and email in (self.users[name].email, name) else ""

    def answer(self, asked: TrackerRequest) -> Answer:
        answer = self._answer(asked)
        shown = json.loads(json.dumps(answer.body)) if answer.body is not None else None
        self.answers.append((asked.method, asked.path, answer.status, shown))
        return answer

    def _answer(self, asked: TrackerRequest) -> Answer:
        found = _NAMED.fullmatch(asked.path)
        if found is None:
            return Answer(404, {"errorMessages": ["dead link"], "errors": {}})
        if not asked.login:
            return self.refusal(401)
        self.allowance.renew(self.clock())
        if not self.allowance.remaining:
            return self.limited(asked)
        self.allowance.used += 1
        try:
            body = json.loads(asked.body) if asked.body else {}
            answer = self._route(asked, int(found[1]), found[2], body)
        except Refused as refused:
            answer = Answer(refused.status, {"errorMessages": refused.messages, "errors": refused.fields})
        answer.headers |= self._left()
        return answer

    def _left(self) -> dict[str, str]:
        reset = datetime.fromtimestamp(self.allowance.reset, UTC).strftime("%Y-%m-%dT%H:%MZ")
        left = {"Limit": str(self.allowance.limit), "Remaining": str(self.allowance.remaining), "Reset": reset}
        return {f"X-RateLimit-{name}": value for name, value in left.items()}

    def refusal(self, status: int) -> Answer:
        words = {401: "Client must be authenticated to access this resource.", 403: "You do not have the permission."}
        return Answer(status, {"errorMessages": [words.get(status, "Internal error")], "errors": {}})

    def limited(self, asked: TrackerRequest) -> Answer:
        del asked
        answer = self.refusal(429)
        answer.headers = {**self._left(), "X-RateLimit-Remaining": "0", "Retry-After": "120"}
        return answer

    def _route(self, asked: TrackerRequest, version: int, path: str, body: Any) -> Answer:
        me = self.users[asked.login]
        if asked.method == "GET" and path == "myself":
            return Answer(200, self.show.user(me, version))
        if asked.method == "GET" and path == "mypermissions":
            return self._permissions(asked.query, version)
        if asked.method == "GET" and path == "user/assignable/search":
            return Answer(200, [self.show.user(one, version) for one in self._assignable(asked.query, version)])
        if asked.method == "POST" and path == "comment/list" and version == 3:
            return self._listed(body, "properties" in asked.query.get("expand", ""))
        if asked.method == "POST" and path == "issue":
            return self._create(body, me, version)
        if asked.method == "POST" and path == "search/jql" and version == 3:
            return self._search(body, me)
        if asked.method == "POST" and path == "search" and version == 2:
            return self._search_server(body, me)
        if path == "search" and version == 3:
            raise Refused(410, "The requested API has been removed. Please migrate to the /rest/api/3/search/jql API.")
        found = _ISSUE.fullmatch(path)
        if found is None:
            raise Refused(404, "dead link")
        issue = self._issue(found[1])
        part = found[2] or ""
        if asked.method == "GET":
            return self._read(issue, part, asked.query, version)
        return self._write(asked.method, issue, part, body, me, version)

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
            ways = [self.show.transition(issue, one) for one in issue.project.leads_to(issue.status)]
            return Answer(200, {"expand": "transitions", "transitions": ways})
        if part == "comment":
            ordered = issue.comments[::-1] if query.get("orderBy") == "-created" else issue.comments
            start, size = int(query.get("startAt", 0)), min(self.pages, int(query.get("maxResults", 50)))
            page = [self.show.comment(issue, one, version, False) for one in ordered[start : start + size]]
            return Answer(200, {"startAt": start, "maxResults": size, "total": len(ordered), "comments": page})
        fields = query["fields"].split(",") if query.get("fields") else None
        return Answer(200, self.show.issue(issue, version, fields))

    def _write(self, method: str, issue: Issue, part: str, body: Any, me: User, version: int) -> Answer:
        if (method, part) == ("POST", "comment"):
            text = self._text(body.get("body"), version)
            made = self.comment(issue, text, by=me, properties=body.get("properties") or ())
            return Answer(201, self.show.comment(issue, made, version, False))
        if (method, part) == ("POST", "transitions"):
            number = (body.get("transition") or {}).get("id")
            status = next((one for one in issue.project.leads_to(issue.status) if one.id == number), None)
            if status is None:
                raise Refused(400, f"It seems that you have tried to perform an illegal workflow operation: {number}.")
            issue.status = status
            self._changed(issue, me, "status")
            return Answer(204)
        if (method, part) == ("PUT", "assignee"):
            issue.assignee = self._person(body, issue.project, version)
            self._changed(issue, me, "assignee")
            return Answer(204)
        if (method, part) == ("PUT", ""):
            self._edit(issue, body, version)
            self._changed(issue, me, "labels")
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
        labels = [self._label(one) for one in fields.get("labels") or []]
        text = self._text(fields["description"], version) if fields.get("description") is not None else None
        made = self.issue(project, self._summary(fields.get("summary")), text, by=me, labels=labels, kind=kind)
        return Answer(201, {"id": made.id, "key": made.key, "self": self.show.address(f"issue/{made.id}", version)})

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
        """A document in the cloud, a text on servers; each refuses the other."""
        if version == 3:
            good = isinstance(text, dict) and text.get("type") == "doc" and text.get("version") == 1
            if not good or not isinstance(text.get("content"), list):
                raise Refused(400, comment="Comment body is not valid!")
        elif not isinstance(text, str):
            raise Refused(400, comment="Operation value must be a string")
        if len(json.dumps(text) if version == 3 else text) > LONGEST_COMMENT * (4 if version == 3 else 1):
            raise Refused(
                400, comment="The entered text is too long. It exceeds the allowed limit of 32,767 characters."
            )
        return text

    def _person(self, body: Any, project: Project, version: int) -> User | None:
        named = body.get("accountId" if version == 3 else "name")
        if named is None:
            return None
        wanted = [one for one in project.members if named == (one.account if version == 3 else one.name)]
        if not wanted:
            raise Refused(400, assignee=f"User '{named}' cannot be assigned issues.")
        return wanted[0]

    def _assignable(self, query: dict[str, str], version: int) -> list[User]:
        project = self.projects.get(query.get("project", ""))
        if project is None:
            raise Refused(404, f"No project could be found with key '{query.get('project')}'.")
        if version == 3 and "accountId" in query:
            return [one for one in project.members if one.account == query["accountId"]]
        text = query.get("query" if version == 3 else "username", "").lower()
        if not text:
            raise Refused(400, "The query parameter was not provided.")
        found = [
            one for one in project.members if any(text in name.lower() for name in (one.display, one.email, one.name))
        ]
        return found[: int(query.get("maxResults", 50))]

    def _issue(self, name: str) -> Issue:
        for project in self.projects.values():
            for issue in project.issues:
                if name.upper() in (issue.key, issue.former) or name == issue.id:
                    return issue
        raise Refused(404, "Issue does not exist or you do not have permission to see it.")

    def _found(self, body: Any, me: User) -> list[Issue]:
        issues = [issue for project in self.projects.values() for issue in project.issues]
        try:
            return jql.find(str(body.get("jql") or ""), issues, me, self.clock())
        except jql.Wrong as wrong:
            raise Refused(400, str(wrong)) from None

    def _listed(self, body: Any, wide: bool) -> Answer:
        ids = body.get("ids")
        if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids) or len(ids) > 1000:
            raise Refused(400, "The list of comment IDs is not valid.")
        issues = [issue for project in self.projects.values() for issue in project.issues]
        page = [
            self.show.comment(issue, one, 3, wide)
            for issue in issues
            for one in issue.comments
            if int(one.id) in set(ids)
        ]
        counts = {"maxResults": 1_048_576, "startAt": 0, "total": len(page), "isLast": True}
        return Answer(200, {**counts, "values": page})

    def _search(self, body: Any, me: User) -> Answer:
        found, fields = self._found(body, me), body.get("fields") or ["id"]
        token = str(body.get("nextPageToken") or "")
        if token and not token.startswith("Ch0j"):
            raise Refused(400, "The provided next page token is invalid.")
        start, size = int(token[4:]) if token else 0, min(self.pages, int(body.get("maxResults", 50)))
        page = [self.show.issue(one, 3, fields) for one in found[start : start + size]]
        last = start + size >= len(found)
        more = {} if last else {"nextPageToken": f"Ch0j{start + size}"}
        return Answer(200, {"issues": page, "isLast": last, **more})

    def _search_server(self, body: Any, me: User) -> Answer:
        found, fields = self._found(body, me), body.get("fields")
        start, size = int(body.get("startAt", 0)), min(self.pages, int(body.get("maxResults", 50)))
        page = [self.show.issue(one, 2, fields) for one in found[start : start + size]]
        counts = {"startAt": start, "maxResults": size, "total": len(found)}
        return Answer(200, {"expand": "names,schema", **counts, "issues": page})

    # --- what is told

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

    def _changed(self, issue: Issue, by: User, field: str) -> None:
        issue.updated = self.clock()
        self._tell("jira:issue_updated", issue, by, field=field)

    def _tell(self, event: str, issue: Issue, by: User, comment: Comment | None = None, field: str = "") -> None:
        def payload(_: Hook) -> dict[str, Any]:
            told: dict[str, Any] = {"timestamp": int(self.clock() * 1000), "webhookEvent": event}
            if comment is not None:
                few = ["summary", "status", "labels", "assignee"]
                shown = self.show.comment(issue, comment, 2, False)
                return {**told, "comment": shown, "issue": self.show.issue(issue, 2, few)}
            told |= {"user": self.show.user(by, 3), "issue": self.show.issue(issue, 2, None)}
            kind = "issue_created" if event == "jira:issue_created" else "issue_generic"
            told["issue_event_type_name"] = kind
            if field:
                told["changelog"] = {"id": self._number(), "items": [{"field": field, "fieldtype": "jira"}]}
            return told

        self.deliver(event, payload)
