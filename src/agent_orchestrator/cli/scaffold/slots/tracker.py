"""the-name: issues in a JSON file, beside the project or anywhere else."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols import Author, Host, Issue, IssueChange, Tracker, TrackerComment

Issues = list[dict[str, Any]]


class TheClass(Tracker):
    """Keeps issues in the file `file`; put calls of your tracker's API in the place of `_load` and `_save`."""

    name = "the-name"
    permissions: ClassVar = ["files"]

    def __init__(self, config: Mapping[str, Any], host: Host) -> None:
        del host  # nothing of this machine is needed
        self._file = Path(str(config.get("path") or "."), str(config.get("file") or "issues.json")).expanduser()

    async def get(self, issue: str) -> Issue:
        """One issue with its comments."""
        return self._issue(self._find(self._load(), issue))

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[Issue]:
        """Issues without their comments, the newest first."""
        wanted = None if assignee == "none" else assignee
        found = [
            one
            for one in self._load()
            if state in ("all", one["state"]) and set(labels) <= set(one["labels"]) and one["at"] >= since
            if assignee is None or one["assignee"] == wanted
        ]
        return [self._issue({**one, "comments": []}) for one in reversed(found)]

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> Issue:
        """Make an issue."""
        issues = self._load()
        made = {"id": str(len(issues) + 1), "title": title, "body": body, "labels": list(labels), "state": "open"}
        issues.append({**made, "assignee": None, "comments": [], "at": time.time()})
        self._save(issues)
        return self._issue(issues[-1])

    async def change(self, issue: str, change: IssueChange) -> None:
        """Change an issue; what is so already stays. It has no states between open and closed."""
        issues = self._load()
        one = self._find(issues, issue)
        if change.state is not None:
            one["state"] = "closed" if change.state == "closed" else "open"
        if change.assignee is not None:
            one["assignee"] = change.assignee or None
        one["labels"] = [label for label in one["labels"] if label not in change.remove_labels]
        one["labels"] += [label for label in change.add_labels if label not in one["labels"]]
        one["title"] = one["title"] if change.title is None else change.title
        one["body"] = one["body"] if change.body is None else change.body
        self._save(issues)

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Say something, once for a key: a comment that has it already is found."""
        issues = self._load()
        one = self._find(issues, issue)
        for said in one["comments"]:
            if said["key"] == key:
                return str(said["id"])
        made = {"id": f"{one['id']}.{len(one['comments']) + 1}", "key": key, "text": text, "at": time.time()}
        one["comments"].append(made)
        self._save(issues)
        return str(made["id"])

    def _find(self, issues: Issues, issue: str) -> dict[str, Any]:
        for one in issues:
            if one["id"] == issue.strip().lstrip("#"):
                return one
        raise NotFound(f"{self._file} has no issue {issue}", "see those that there are: ao issues")

    def _issue(self, one: Mapping[str, Any]) -> Issue:
        """Comments are all ours here: elsewhere, tell by login and mark who said what, and whether he may write."""
        us = Author(self.name, kind="agent", write_access="yes")
        said = tuple(TrackerComment(each["id"], us, each["text"], each["at"]) for each in one["comments"])
        return Issue(
            id=one["id"],
            title=one["title"],
            body=one["body"],
            state=one["state"],
            labels=tuple(one["labels"]),
            assignee=one["assignee"],
            author=Author(self.name, write_access="yes"),
            comments=said,
            updated_at=one["at"],
        )

    def _load(self) -> Issues:
        try:
            found: Issues = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        return found

    def _save(self, issues: Issues) -> None:
        """The whole file or nothing of it, whenever we are killed."""
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(json.dumps(issues, indent=1, ensure_ascii=False), encoding="utf-8")
        new.replace(self._file)
