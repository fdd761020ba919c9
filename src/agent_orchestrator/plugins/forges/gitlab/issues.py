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
from agent_orchestrator.plugins.forges.gitlab.host import GitLabHost
from agent_orchestrator.plugins.forges.gitlab.permissions import ProjectPermissions
from agent_orchestrator.plugins.forges.gitlab.token_access import read_token_access
from agent_orchestrator.plugins.forges.shared.comment_marks import (
    MAX_TITLE_LENGTH,
    cut_to_limit,
    has_mark,
    is_same_login,
    split_mark,
    with_mark,
)
from agent_orchestrator.plugins.forges.shared.rate_limit_report import background_pause, rate_limit_lines
from agent_orchestrator.plugins.forges.shared.timestamps import parse_time
from agent_orchestrator.protocols.forge import Access, IssueChange, Tracker, TrackerComment, TrackerIssue
from agent_orchestrator.protocols.host import Host

_NUMBER = re.compile(r"#?(\d{1,12})")
_ADDRESS = re.compile(r"https?://[^/\s]+/(\S+?)/-/(?:issues|work_items)/(\d{1,12})(?:[/?#].*)?", re.IGNORECASE)
_ATTACHMENT_URL = re.compile(
    r"\]\((/uploads/[^\s)]+)|!\[[^\]]{0,300}\]\((https?://[^\s)]+)|<img\b[^<>]*?\bsrc=[\"']([^\"'\s]+)"
)
_STATES = {"in_progress": "inProgress", "in_review": "inReview"}


class GitLabIssues(Tracker):
    """The issues of one project."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        self._gitlab = GitLabHost(config, host, "tracker", clock)
        labels = config.get("labels") or {}
        if not isinstance(labels, Mapping):
            raise UsageError("tracker.labels is no map", "for example labels: {inProgress: doing, inReview: reviewing}")
        self._state_labels = {state: str(labels[key]) for state, key in _STATES.items() if labels.get(key)}
        self._permissions = ProjectPermissions(clock)

    def pause(self) -> float:
        """Return how many seconds background reading should wait."""
        return background_pause(self._gitlab.current_client)

    def budget(self) -> Sequence[str]:
        """Return one line per rate limit of the host."""
        return rate_limit_lines(self._gitlab.current_client)

    async def access(self) -> Access:
        """Return the token's account and what the token may not do."""
        _, result = await read_token_access(self._gitlab, "to read and change issues")
        if not result.lacks:
            await self._gitlab.project_id()
        return result

    async def _issues_path(self) -> str:
        """Return the path of the project's issues."""
        return f"projects/{await self._gitlab.project_id()}/issues"

    def _issue_number(self, issue: str) -> str:
        """Return an issue's number from any notation of it, or raise `NotFound`."""
        text = issue.strip()
        address = _ADDRESS.fullmatch(text)
        if address and address[1].casefold() == self._gitlab.repo.casefold():
            return address[2]
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise NotFound(f"{issue!r} is no issue of {self._gitlab.repo}", "write its number: 123 or #123")
        return str(int(match[1]))

    async def get(self, issue: str) -> TrackerIssue:
        """Return an issue with its comments."""
        http = await self._gitlab.http()
        path = f"{await self._issues_path()}/{self._issue_number(issue)}"
        data = (await http.get(path)).data
        notes = await http.get_pages(f"{path}/notes?sort=asc&per_page=100") if data.get("user_notes_count") else []
        comments = [note for note in notes if not note.get("system")]
        await self._permissions.read_permissions(
            http, await self._gitlab.project_id(), [data.get("author"), *(note.get("author") for note in comments)]
        )
        our_login = (
            await self._gitlab.login() if any(split_mark(str(note.get("body") or ""))[1] for note in comments) else ""
        )
        return self._issue(data, [self._comment(note, our_login) for note in comments])

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[TrackerIssue]:
        """Return the issues with all these labels, newest first."""
        query = {"scope": "all", "order_by": "created_at", "sort": "desc", "per_page": "100"}
        query["state"] = {"open": "opened"}.get(state, state)
        if labels:
            query["labels"] = ",".join(labels)
        if assignee == "none":
            query["assignee_id"] = "None"
        elif assignee:
            query["assignee_username"] = await self._gitlab.login() if assignee == "@me" else assignee.removeprefix("@")
        if since:
            query["updated_after"] = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        http = await self._gitlab.http()
        items = await http.get_pages(f"{await self._issues_path()}?{urlencode(query)}")
        await self._permissions.read_permissions(
            http, await self._gitlab.project_id(), [item.get("author") for item in items]
        )
        return [self._issue(item) for item in items]

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> TrackerIssue:
        """Create an issue."""
        http = await self._gitlab.http()
        fields = {"title": title[:MAX_TITLE_LENGTH], "description": cut_to_limit(body), "labels": ",".join(labels)}
        answer = await http.call("POST", await self._issues_path(), fields)
        return self._issue(answer.data)

    async def change(self, issue: str, change: IssueChange) -> None:
        """Apply a change to an issue by one request; what is already so stays."""
        http = await self._gitlab.http()
        state_label = self._state_labels.get(change.state or "")
        added_labels = list(dict.fromkeys([*change.add_labels, *([state_label] if state_label else [])]))
        other_state_labels = [label for label in self._state_labels.values() if label != state_label]
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
            await http.call("PUT", f"{await self._issues_path()}/{self._issue_number(issue)}", fields, safe=True)

    async def _assignee_ids(self, assignee: str | None) -> Sequence[int] | None:
        """Return the ids for a new assignee, or None for no change.

        `@me` is the token's account; "" and `none` remove the assignee, which is `[0]` in GitLab's API.
        """
        if assignee is None:
            return None
        if assignee in ("", "none"):
            return [0]
        name = await self._gitlab.login() if assignee == "@me" else assignee.removeprefix("@")
        user_id = await self._gitlab.user_id(name)
        if user_id is None:
            raise UsageError(f"GitLab has no user {name}", "write the name that his page has in its address")
        return [user_id]

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Post a comment once and return its id; if it was already posted, return that one's id."""
        http, our_login = await self._gitlab.http(), await self._gitlab.login()
        path = f"{await self._issues_path()}/{self._issue_number(issue)}/notes"
        for note in await http.get_pages(f"{path}?per_page=100"):
            if has_mark(str(note.get("body")), key) and is_same_login(
                our_login, str((note.get("author") or {}).get("username"))
            ):
                return str(note["id"])
        answer = await http.call("POST", path, {"body": with_mark(text, key)})
        return str(answer.data["id"])

    def _issue(self, data: Mapping[str, Any], comments: Sequence[TrackerComment] = ()) -> TrackerIssue:
        """Return an issue from its REST data."""
        body = str(data.get("description") or "")
        assignee = next(iter(data.get("assignees") or []), None) or {}
        labels = [item if isinstance(item, str) else str(item.get("name")) for item in data.get("labels") or []]
        return TrackerIssue(
            id=str(data["iid"]),
            title=str(data.get("title") or ""),
            body=body,
            url=data.get("web_url"),
            state="closed" if data.get("state") == "closed" else "open",
            labels=tuple(labels),
            assignee=assignee.get("username"),
            author=self._permissions.author(data.get("author")),
            comments=tuple(comments),
            attachments=self._attachments(data, body, *(item.body for item in comments)),
            updated_at=parse_time(data.get("updated_at")),
        )

    def _attachments(self, data: Mapping[str, Any], *texts: str) -> tuple[str, ...]:
        """Return the addresses of images and files in the texts, each once. An uploaded file is named by its path in the project."""
        addresses = (next(filter(None, match.groups())) for text in texts for match in _ATTACHMENT_URL.finditer(text))
        project_url = f"{self._gitlab.address.web}/-/project/{data.get('project_id')}"
        return tuple(
            dict.fromkeys(
                project_url + address if address.startswith("/uploads/") else address for address in addresses
            )
        )

    def _comment(self, note: Mapping[str, Any], our_login: str) -> TrackerComment:
        """Return a comment from its REST data. One by our account with our mark has the author kind `agent`."""
        body, mark = split_mark(str(note.get("body") or ""))
        commenter = self._permissions.author(note.get("author"))
        if mark and is_same_login(our_login, commenter.name):
            commenter = replace(commenter, kind="agent")
        return TrackerComment(str(note.get("id")), commenter, body, parse_time(note.get("created_at")))
