"""JSON of Jira: REST 3 with documents and account ids, REST 2 as on servers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.testing.jira.state import CATEGORIES, JiraComment, JiraIssue, JiraStatusRecord, JiraUser

Json = dict[str, Any]


class JiraShapes:
    def __init__(self, url: str) -> None:
        self._url = url

    def address(self, path: str, version: int) -> str:
        return f"{self._url}/rest/api/{version}/{path}"

    def user(self, user: JiraUser, version: int) -> Json:
        shape: Json = {
            "self": self.address(f"user?accountId={user.account}", version),
            "active": True,
            "displayName": user.display,
            "timeZone": "Europe/Zurich",
        }
        if not user.has_hidden_email:
            shape["emailAddress"] = user.email
        if version == 3:
            return {**shape, "accountId": user.account, "accountType": user.kind}
        return {**shape, "name": user.name, "key": f"JIRAUSER{user.account[4:9]}"}

    def status(self, status: JiraStatusRecord, version: int) -> Json:
        number, name, color = CATEGORIES[status.category]
        category = {
            "self": self.address(f"statuscategory/{number}", version),
            "id": number,
            "key": status.category,
            "colorName": color,
            "name": name,
        }
        own = self.address(f"status/{status.id}", version)
        return {"self": own, "id": status.id, "name": status.name, "description": "", "statusCategory": category}

    def transition(self, issue: JiraIssue, target: JiraStatusRecord) -> Json:
        return {
            "id": target.id, "name": f"To {target.name}", "to": self.status(target, 3), "hasScreen": False, "isGlobal": True,
            "isInitial": False, "isAvailable": issue.status is not target, "isConditional": False,
        }  # fmt: skip

    def comment(self, issue: JiraIssue, comment: JiraComment, version: int, with_properties: bool) -> Json:
        shape: Json = {
            "self": self.address(f"issue/{issue.id}/comment/{comment.id}", version),
            "id": comment.id,
            "author": self.user(comment.author, version),
            "updateAuthor": self.user(comment.author, version),
            "body": body_of(comment.body, version),
            "created": format_time(comment.at),
            "updated": format_time(comment.at),
            "jsdPublic": True,
        }
        return {**shape, "properties": comment.properties} if with_properties else shape

    def attachment(self, issue: JiraIssue, number: str, name: str, version: int) -> Json:
        root = self.address(f"attachment/{number}", version)
        return {
            "self": root, "id": number, "filename": name, "author": self.user(issue.reporter, version),
            "created": format_time(issue.created), "size": 12, "mimeType": "text/plain",
            "content": self.address(f"attachment/content/{number}", version),
        }  # fmt: skip

    def issue(self, issue: JiraIssue, version: int, fields: Sequence[str] | None) -> Json:
        """Return an issue with these fields, or with all if `fields` is None."""
        all_fields: Json = {
            "summary": issue.title,
            "description": body_of(issue.body, version),
            "status": self.status(issue.status, version),
            "labels": list(issue.labels),
            "assignee": self.user(issue.assignee, version) if issue.assignee else None,
            "reporter": self.user(issue.reporter, version),
            "creator": self.user(issue.reporter, version),
            "attachment": [self.attachment(issue, number, name, version) for number, name in issue.attachments],
            "created": format_time(issue.created),
            "updated": format_time(issue.updated),
            "issuetype": {"name": issue.kind, "subtask": False},
            "project": {"id": issue.project.id, "key": issue.project.key, "name": issue.project.key.title()},
        }
        selected = (
            all_fields
            if fields is None or "*all" in fields
            else {field: all_fields[field] for field in fields if field in all_fields}
        )
        own = self.address(f"issue/{issue.id}", version)
        if fields is not None and list(fields) == ["id"]:
            return {"id": issue.id}
        return {"expand": "renderedFields,names", "id": issue.id, "self": own, "key": issue.key, "fields": selected}


def body_of(body: Any, version: int) -> Any:
    """Return a body as this version shows it: a document by 3, wiki text by 2."""
    if version == 3 and isinstance(body, str):
        inner = [{"type": "text", "text": body}] if body else []
        return {"type": "doc", "version": 1, "content": [{"type": "paragraph", "content": inner}]}
    if version == 2 and isinstance(body, dict):
        return _plain(body).strip()
    return body


def _plain(node: Any) -> str:
    if node.get("type") == "text":
        return str(node.get("text", ""))
    inner = "".join(_plain(child) for child in node.get("content") or [])
    return inner + ("\n\n" if node.get("type") in ("paragraph", "heading", "codeBlock") else "")


def format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(at * 1000) % 1000:03d}+0000"
