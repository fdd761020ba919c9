"""the-name: issues in a JSON file in the project or anywhere else."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols import Author, Host, IssueChange, Tracker, TrackerComment, TrackerIssue

Issues = list[dict[str, Any]]


class TheClass(Tracker):
    """Keeps issues in the file `file`; replace `_load` and `_save` with calls of your tracker's API."""

    name = "the-name"
    permissions: ClassVar = ["files"]

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        del host  # nothing of this machine is needed
        self._file = Path(str(config.get("path") or "."), str(config.get("file") or "issues.json")).expanduser()

    async def get(self, issue: str) -> TrackerIssue:
        """Return an issue with its comments."""
        return self._issue(self._find(self._load(), issue))

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[TrackerIssue]:
        """Return issues without their comments, the newest first."""
        assignee_name = None if assignee == "none" else assignee
        issues = [
            issue
            for issue in self._load()
            if state in ("all", issue["state"]) and set(labels) <= set(issue["labels"]) and issue["at"] >= since
            if assignee is None or issue["assignee"] == assignee_name
        ]
        return [self._issue({**issue, "comments": []}) for issue in reversed(issues)]

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> TrackerIssue:
        """Create an issue."""
        issues = self._load()
        issue = {"id": str(len(issues) + 1), "title": title, "body": body, "labels": list(labels), "state": "open"}
        issues.append({**issue, "assignee": None, "comments": [], "at": time.time()})
        self._save(issues)
        return self._issue(issues[-1])

    async def change(self, issue: str, change: IssueChange) -> None:
        """Change an issue; what has that value already stays. There are no states besides open and closed."""
        issues = self._load()
        stored = self._find(issues, issue)
        if change.state is not None:
            stored["state"] = "closed" if change.state == "closed" else "open"
        if change.assignee is not None:
            stored["assignee"] = change.assignee or None
        stored["labels"] = [label for label in stored["labels"] if label not in change.remove_labels]
        stored["labels"] += [label for label in change.add_labels if label not in stored["labels"]]
        stored["title"] = stored["title"] if change.title is None else change.title
        stored["body"] = stored["body"] if change.body is None else change.body
        self._save(issues)

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Comment on an issue, once per key: an existing comment with this key is returned."""
        issues = self._load()
        stored = self._find(issues, issue)
        for existing in stored["comments"]:
            if existing["key"] == key:
                return str(existing["id"])
        comment = {"id": f"{stored['id']}.{len(stored['comments']) + 1}", "key": key, "text": text, "at": time.time()}
        stored["comments"].append(comment)
        self._save(issues)
        return str(comment["id"])

    def _find(self, issues: Issues, issue: str) -> dict[str, Any]:
        for stored in issues:
            if stored["id"] == issue.strip().lstrip("#"):
                return stored
        raise NotFound(f"{self._file} has no issue {issue}", "see those that there are: ao issues")

    def _issue(self, stored: Mapping[str, Any]) -> TrackerIssue:
        """Convert a stored issue.

        All comments here are ours; another tracker decides by login and mark whose they are, and who may write.
        """
        author = Author(self.name, kind="agent", write_access="yes")
        comments = tuple(
            TrackerComment(comment["id"], author, comment["text"], comment["at"]) for comment in stored["comments"]
        )
        return TrackerIssue(
            id=stored["id"],
            title=stored["title"],
            body=stored["body"],
            state=stored["state"],
            labels=tuple(stored["labels"]),
            assignee=stored["assignee"],
            author=Author(self.name, write_access="yes"),
            comments=comments,
            updated_at=stored["at"],
        )

    def _load(self) -> Issues:
        try:
            issues: Issues = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        return issues

    def _save(self, issues: Issues) -> None:
        """Write the whole file atomically."""
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(json.dumps(issues, indent=1, ensure_ascii=False), encoding="utf-8")
        new.replace(self._file)
