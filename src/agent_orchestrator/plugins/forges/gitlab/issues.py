"""Issues at GitLab: gitlab.com and self-managed hosts.

GitLab knows only the states open and closed. "In progress" and "in review" are shown by labels, if the project names them:
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
from agent_orchestrator.plugins.forges.github.comment_marks import (
    LONGEST_TITLE,
    cut_to_limit,
    has_mark,
    split_mark,
    with_mark,
)
from agent_orchestrator.plugins.forges.github.people import is_same_login, parse_time
from agent_orchestrator.plugins.forges.gitlab.host import GitLabHost
from agent_orchestrator.plugins.forges.gitlab.people import Members
from agent_orchestrator.plugins.forges.gitlab.token_access import access
from agent_orchestrator.plugins.forges.shared.rate_limits import longest_wait, rate_limit_lines
from agent_orchestrator.protocols.forge import Access, Issue, IssueChange, Tracker, TrackerComment
from agent_orchestrator.protocols.host import Host

_NUMBER = re.compile(r"#?(\d{1,12})")
_ADDRESS = re.compile(r"https?://[^/\s]+/(\S+?)/-/(?:issues|work_items)/(\d{1,12})(?:[/?#].*)?", re.IGNORECASE)
_ATTACHED = re.compile(
    r"\]\((/uploads/[^\s)]+)|!\[[^\]]{0,300}\]\((https?://[^\s)]+)|<img\b[^<>]*?\bsrc=[\"']([^\"'\s]+)"
)
_STATES = {"in_progress": "inProgress", "in_review": "inReview"}


class GitLabIssues(Tracker):
    """The issues of one project."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        self._at = GitLabHost(config, host, "tracker", clock)
        labels = config.get("labels") or {}
        if not isinstance(labels, Mapping):
            raise UsageError("tracker.labels is no map", "for example labels: {inProgress: doing, inReview: reviewing}")
        self._labels = {state: str(labels[key]) for state, key in _STATES.items() if labels.get(key)}
        self._members = Members(clock)

    def pause(self) -> float:
        """Return how many seconds background reading should wait."""
        return longest_wait(self._at.opened)

    def budget(self) -> Sequence[str]:
        """Return one line per rate limit of the host."""
        return rate_limit_lines(self._at.opened)

    async def access(self) -> Access:
        """Return the token's account and what the token may not do."""
        _, result = await access(self._at, "to read and change issues")
        if not result.lacks:
            await self._at.project()
        return result

    async def _root(self) -> str:
        """Return the path of the project's issues."""
        return f"projects/{await self._at.project()}/issues"

    def _number(self, issue: str) -> str:
        """Return an issue's number from any notation of it, or raise `NotFound`."""
        text = issue.strip()
        address = _ADDRESS.fullmatch(text)
        if address and address[1].casefold() == self._at.repo.casefold():
            return address[2]
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise NotFound(f"{issue!r} is no issue of {self._at.repo}", "write its number: 123 or #123")
        return str(int(match[1]))

    async def get(self, issue: str) -> Issue:
        """Return an issue with its comments."""
        http = await self._at.http()
        path = f"{await self._root()}/{self._number(issue)}"
        data = (await http.get(path)).data
        notes = await http.pages(f"{path}/notes?sort=asc&per_page=100") if data.get("user_notes_count") else []
        comments = [note for note in notes if not note.get("system")]
        await self._members.learn(
            http, await self._at.project(), [data.get("author"), *(note.get("author") for note in comments)]
        )
        our_login = (
            await self._at.login() if any(split_mark(str(note.get("body") or ""))[1] for note in comments) else ""
        )
        return self._issue(data, [self._comment(note, our_login) for note in comments])

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[Issue]:
        """Return the issues with all these labels, newest first."""
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
        items = await http.pages(f"{await self._root()}?{urlencode(query)}")
        await self._members.learn(http, await self._at.project(), [item.get("author") for item in items])
        return [self._issue(item) for item in items]

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> Issue:
        """Create an issue."""
        http = await self._at.http()
        fields = {"title": title[:LONGEST_TITLE], "description": cut_to_limit(body), "labels": ",".join(labels)}
        answer = await http.call("POST", await self._root(), fields)
        return self._issue(answer.data)

    async def change(self, issue: str, change: IssueChange) -> None:
        """Apply a change to an issue by one request; what is already so stays."""
        http = await self._at.http()
        state_label = self._labels.get(change.state or "")
        added_labels = list(dict.fromkeys([*change.add_labels, *([state_label] if state_label else [])]))
        other_state_labels = [label for label in self._labels.values() if label != state_label]
        outdated_labels = (
            other_state_labels if change.state and (state_label or change.state in ("open", "closed")) else []
        )
        removed_labels = [
            label for label in dict.fromkeys([*change.remove_labels, *outdated_labels]) if label not in added_labels
        ]
        values: dict[str, Any] = {
            "title": change.title,
            "description": change.body,
            "state_event": {"open": "reopen", "closed": "close"}.get(change.state or ""),
            "add_labels": ",".join(added_labels) or None,
            "remove_labels": ",".join(removed_labels) or None,
            "assignee_ids": await self._assignee_ids(change.assignee),
        }
        fields = {key: value for key, value in values.items() if value is not None}
        if fields:
            await http.call("PUT", f"{await self._root()}/{self._number(issue)}", fields, safe=True)

    async def _assignee_ids(self, assignee: str | None) -> Sequence[int] | None:
        """Return the ids for a new assignee, or None for no change.

        `@me` is the token's account; "" and `none` remove the assignee, which is `[0]` in GitLab's API.
        """
        if assignee is None:
            return None
        if assignee in ("", "none"):
            return [0]
        name = await self._at.login() if assignee == "@me" else assignee.removeprefix("@")
        user_id = await self._at.person(name)
        if user_id is None:
            raise UsageError(f"GitLab has no user {name}", "write the name that his page has in its address")
        return [user_id]

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Post a comment once and return its id; if it was already posted, return that one's id."""
        http, our_login = await self._at.http(), await self._at.login()
        path = f"{await self._root()}/{self._number(issue)}/notes"
        for note in await http.pages(f"{path}?per_page=100"):
            if has_mark(str(note.get("body")), key) and is_same_login(
                our_login, str((note.get("author") or {}).get("username"))
            ):
                return str(note["id"])
        answer = await http.call("POST", path, {"body": with_mark(text, key)})
        return str(answer.data["id"])

    def _issue(self, data: Mapping[str, Any], comments: Sequence[TrackerComment] = ()) -> Issue:
        """Return an issue from its REST data."""
        body = str(data.get("description") or "")
        assignee = next(iter(data.get("assignees") or []), None) or {}
        labels = [item if isinstance(item, str) else str(item.get("name")) for item in data.get("labels") or []]
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
            attachments=self._attachments(data, body, *(item.body for item in comments)),
            updated_at=parse_time(data.get("updated_at")),
        )

    def _attachments(self, data: Mapping[str, Any], *texts: str) -> tuple[str, ...]:
        """Return the addresses of images and files in the texts, each once. An uploaded file is named by its path in the project."""
        addresses = (next(filter(None, match.groups())) for text in texts for match in _ATTACHED.finditer(text))
        project_url = f"{self._at.place.web}/-/project/{data.get('project_id')}"
        return tuple(
            dict.fromkeys(
                project_url + address if address.startswith("/uploads/") else address for address in addresses
            )
        )

    def _comment(self, note: Mapping[str, Any], our_login: str) -> TrackerComment:
        """Return a comment from its REST data. One by our account with our mark has the author kind `agent`."""
        body, mark = split_mark(str(note.get("body") or ""))
        commenter = self._members.author(note.get("author"))
        if mark and is_same_login(our_login, commenter.name):
            commenter = replace(commenter, kind="agent")
        return TrackerComment(str(note.get("id")), commenter, body, parse_time(note.get("created_at")))
