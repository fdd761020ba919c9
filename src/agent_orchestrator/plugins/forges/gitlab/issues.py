"""Issues at GitLab: gitlab.com and one's own hosts.

GitLab's issues are open or closed. That work has begun, or is in review, is told by labels, if the project names them:
`tracker: {plugin: gitlab, labels: {inProgress: doing, inReview: reviewing}}`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.plugins.forges.github.comment_marks import LONGEST_TITLE, bears, fitting, marked, unmarked
from agent_orchestrator.plugins.forges.github.people import same, when
from agent_orchestrator.plugins.forges.gitlab.host import GitLabHost
from agent_orchestrator.plugins.forges.gitlab.people import Members
from agent_orchestrator.plugins.forges.gitlab.token_access import access
from agent_orchestrator.plugins.forges.shared.rate_limits import lines, longest_wait
from agent_orchestrator.protocols.forge import Access, Issue, IssueChange, TrackerComment
from agent_orchestrator.protocols.host import Host

_NUMBER = re.compile(r"#?(\d{1,12})")
_ADDRESS = re.compile(r"https?://[^/\s]+/(\S+?)/-/(?:issues|work_items)/(\d{1,12})(?:[/?#].*)?", re.IGNORECASE)
_ATTACHED = re.compile(
    r"\]\((/uploads/[^\s)]+)|!\[[^\]]{0,300}\]\((https?://[^\s)]+)|<img\b[^<>]*?\bsrc=[\"']([^\"'\s]+)"
)
_STATES = {"in_progress": "inProgress", "in_review": "inReview"}


class GitLabIssues:
    """The issues of one project."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        self._at = GitLabHost(config, host, "tracker", clock)
        labels = config.get("labels") or {}
        if not isinstance(labels, Mapping):
            raise UsageError("tracker.labels is no map", "for example labels: {inProgress: doing, inReview: reviewing}")
        self._labels = {state: str(labels[key]) for state, key in _STATES.items() if labels.get(key)}
        self._members = Members(clock)

    def pause(self) -> float:
        """Seconds that background reading should wait."""
        return longest_wait(self._at.opened)

    def budget(self) -> Sequence[str]:
        """What is left of the host's grants."""
        return lines(self._at.opened)

    async def access(self) -> Access:
        """Who we are, and what the token lets us do."""
        _, found = await access(self._at, "to read and change issues")
        if not found.lacks:
            await self._at.project()
        return found

    async def _root(self) -> str:
        return f"projects/{await self._at.project()}/issues"

    def _number(self, issue: str) -> str:
        """An issue's number, from any way to write it."""
        text = issue.strip()
        address = _ADDRESS.fullmatch(text)
        if address and address[1].casefold() == self._at.repo.casefold():
            return address[2]
        found = _NUMBER.fullmatch(text)
        if found is None:
            raise NotFound(f"{issue!r} is no issue of {self._at.repo}", "write its number: 123 or #123")
        return str(int(found[1]))

    async def get(self, issue: str) -> Issue:
        """One issue with its comments."""
        http = await self._at.http()
        path = f"{await self._root()}/{self._number(issue)}"
        data = (await http.get(path)).data
        notes = await http.pages(f"{path}/notes?sort=asc&per_page=100") if data.get("user_notes_count") else []
        said = [note for note in notes if not note.get("system")]
        await self._members.learn(
            http, await self._at.project(), [data.get("author"), *(note.get("author") for note in said)]
        )
        us = await self._at.login() if any(unmarked(str(note.get("body") or ""))[1] for note in said) else ""
        return self._issue(data, [self._comment(note, us) for note in said])

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[Issue]:
        """Issues with all these labels, the newest first."""
        query = {"scope": "all", "order_by": "created_at", "sort": "desc", "per_page": "100"}
        query["state"] = {"open": "opened"}.get(state, state)
        if labels:
            query["labels"] = ",".join(labels)
        if assignee == "none":
            query["assignee_id"] = "None"
        elif assignee:
            query["assignee_username"] = await self._at.login() if assignee == "@me" else assignee.removeprefix("@")
        if since:
            query["updated_after"] = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        http = await self._at.http()
        found = await http.pages(f"{await self._root()}?{urlencode(query)}")
        await self._members.learn(http, await self._at.project(), [one.get("author") for one in found])
        return [self._issue(one) for one in found]

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> Issue:
        """Make an issue."""
        http = await self._at.http()
        given = {"title": title[:LONGEST_TITLE], "description": fitting(body), "labels": ",".join(labels)}
        answer = await http.call("POST", await self._root(), given)
        return self._issue(answer.data)

    async def change(self, issue: str, change: IssueChange) -> None:
        """Change an issue by one request; what is so already stays."""
        http = await self._at.http()
        wanted = self._labels.get(change.state or "")
        add = list(dict.fromkeys([*change.add_labels, *([wanted] if wanted else [])]))
        others = [label for label in self._labels.values() if label != wanted]
        over = others if change.state and (wanted or change.state in ("open", "closed")) else []
        gone = [label for label in dict.fromkeys([*change.remove_labels, *over]) if label not in add]
        new: dict[str, Any] = {
            "title": change.title,
            "description": change.body,
            "state_event": {"open": "reopen", "closed": "close"}.get(change.state or ""),
            "add_labels": ",".join(add) or None,
            "remove_labels": ",".join(gone) or None,
            "assignee_ids": await self._people(change.assignee),
        }
        given = {key: value for key, value in new.items() if value is not None}
        if given:
            await http.call("PUT", f"{await self._root()}/{self._number(issue)}", given, safe=True)

    async def _people(self, assignee: str | None) -> Sequence[int] | None:
        """One person; `@me`: ourselves; empty or `none`: nobody (as GitLab writes it)."""
        if assignee is None:
            return None
        if assignee in ("", "none"):
            return [0]
        name = await self._at.login() if assignee == "@me" else assignee.removeprefix("@")
        number = await self._at.person(name)
        if number is None:
            raise UsageError(f"GitLab has no user {name}", "write the name that his page has in its address")
        return [number]

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Say something, once."""
        http, us = await self._at.http(), await self._at.login()
        path = f"{await self._root()}/{self._number(issue)}/notes"
        for note in await http.pages(f"{path}?per_page=100"):
            if bears(str(note.get("body")), key) and same(us, str((note.get("author") or {}).get("username"))):
                return str(note["id"])
        answer = await http.call("POST", path, {"body": marked(text, key)})
        return str(answer.data["id"])

    def _issue(self, data: Mapping[str, Any], comments: Sequence[TrackerComment] = ()) -> Issue:
        body = str(data.get("description") or "")
        assignee = next(iter(data.get("assignees") or []), None) or {}
        labels = [one if isinstance(one, str) else str(one.get("name")) for one in data.get("labels") or []]
        return Issue(
            id=str(data["iid"]),
            title=str(data.get("title") or ""),
            body=body,
            url=data.get("web_url"),
            state="closed" if data.get("state") == "closed" else "open",
            labels=tuple(labels),
            assignee=assignee.get("username"),
            author=self._members.author(data.get("author")),
            comments=tuple(comments),
            attachments=self._attachments(data, body, *(one.body for one in comments)),
            updated_at=when(data.get("updated_at")),
        )

    def _attachments(self, data: Mapping[str, Any], *texts: str) -> tuple[str, ...]:
        """Addresses of pictures and files in the texts, each once; what was uploaded is named by its path in the project."""
        found = (next(filter(None, match.groups())) for text in texts for match in _ATTACHED.finditer(text))
        own = f"{self._at.place.web}/-/project/{data.get('project_id')}"
        return tuple(dict.fromkeys(own + one if one.startswith("/uploads/") else one for one in found))

    def _comment(self, note: Mapping[str, Any], us: str) -> TrackerComment:
        body, mark = unmarked(str(note.get("body") or ""))
        who = self._members.author(note.get("author"))
        if mark and same(us, who.name):
            who = replace(who, kind="agent")
        return TrackerComment(str(note.get("id")), who, body, when(note.get("created_at")))
