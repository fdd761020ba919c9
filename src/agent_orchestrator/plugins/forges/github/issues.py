"""Issues at GitHub: github.com and GitHub Enterprise.

GitHub knows only the states open and closed. "In progress" and "in review" are shown by labels, if the project names them:
`tracker: {plugin: github, labels: {inProgress: doing, inReview: reviewing}}`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from agent_orchestrator.errors import NotFound, Temporary, UsageError
from agent_orchestrator.plugins.forges.github.host import GitHubHost
from agent_orchestrator.plugins.forges.github.issue_comments import find_own_comment
from agent_orchestrator.plugins.forges.github.permissions import CommentAuthor, RepositoryPermissions
from agent_orchestrator.plugins.forges.github.token_access import ISSUE_PARTS, read_token_access
from agent_orchestrator.plugins.forges.shared.comment_marks import (
    MAX_TITLE_LENGTH,
    cut_to_limit,
    is_same_login,
    split_mark,
    with_mark,
)
from agent_orchestrator.plugins.forges.shared.http import ForgeHttpClient
from agent_orchestrator.plugins.forges.shared.rate_limit_report import background_pause, rate_limit_lines
from agent_orchestrator.plugins.forges.shared.timestamps import parse_time
from agent_orchestrator.protocols.forge import Access, IssueChange, Tracker, TrackerComment, TrackerIssue
from agent_orchestrator.protocols.host import Host

_NUMBER = re.compile(r"(?:#|GH-)?(\d{1,12})", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^/\s]+/([^/\s]+/[^/\s]+)/(?:issues|pull)/(\d{1,12})(?:[/?#].*)?", re.IGNORECASE)
_ATTACHMENT_URL = re.compile(
    r"!\[[^\]]{0,300}\]\((https?://[^\s)]+)"
    r"|<img\b[^<>]*?\bsrc=[\"'](https?://[^\"'\s]+)"
    r"|(https?://[^\s)\"'<>]{0,300}?(?:/user-attachments/|/files/\d+/|user-images\.githubusercontent\.com/)[^\s)\"'<>]*)"
)
_STATES = {"in_progress": "inProgress", "in_review": "inReview"}


class GitHubIssues(Tracker):
    """The issues of one repository."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        self._github = GitHubHost(config, host, "tracker", clock)
        self._permissions = RepositoryPermissions(clock)
        labels = config.get("labels") or {}
        if not isinstance(labels, Mapping):
            raise UsageError("tracker.labels is no map", "for example labels: {inProgress: doing, inReview: reviewing}")
        self._state_labels = {state: str(labels[key]) for state, key in _STATES.items() if labels.get(key)}

    def pause(self) -> float:
        """Return how many seconds background reading should wait."""
        return background_pause(self._github.current_client)

    def budget(self) -> Sequence[str]:
        """Return one line per rate limit of the host."""
        return rate_limit_lines(self._github.current_client)

    async def access(self) -> Access:
        """Return the token's account and what the token may not do."""
        return await read_token_access(self._github, self._github.address.repo, ISSUE_PARTS)

    @property
    def _issues_path(self) -> str:
        """The path of the repository's issues."""
        return f"repos/{self._github.address.repo}/issues"

    def _issue_number(self, issue: str) -> str:
        """Return an issue's number from any notation of it, or raise `NotFound`."""
        text = issue.strip()
        address = _ADDRESS.fullmatch(text)
        if address and address[1].casefold() == self._github.address.repo.casefold():
            return address[2]
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise NotFound(
                f"{issue!r} is no issue of {self._github.address.repo}", "write its number: 123, #123 or GH-123"
            )
        return str(int(match[1]))

    async def get(self, issue: str) -> TrackerIssue:
        """Return an issue with its comments. Raise `NotFound` if the number is a pull request's."""
        http = await self._github.http()
        number = self._issue_number(issue)
        data = (await http.get(f"{self._issues_path}/{number}")).data
        if data.get("pull_request"):
            raise NotFound(f"#{number} is a pull request", f"take it over by ao new --pr {number}")
        comments = (
            await http.get_pages(f"{self._issues_path}/{number}/comments?per_page=100") if data.get("comments") else []
        )
        our_login = (
            await self._github.login()
            if any(split_mark(str(comment.get("body") or ""))[1] for comment in comments)
            else ""
        )
        await self._read_permissions(http, [data, *comments])
        return self._issue(data, [self._comment(comment, our_login) for comment in comments])

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[TrackerIssue]:
        """Return the issues with all these labels, newest first, without pull requests."""
        query = {"state": state, "sort": "created", "direction": "desc", "per_page": "100"}
        if labels:
            query["labels"] = ",".join(labels)
        if assignee:
            query["assignee"] = await self._github.login() if assignee == "@me" else assignee.removeprefix("@")
        if since:
            query["since"] = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        http = await self._github.http()
        items = await http.get_pages(f"{self._issues_path}?{urlencode(query)}")
        issues = [item for item in items if not item.get("pull_request")]
        await self._read_permissions(http, issues)
        return [self._issue(item) for item in issues]

    async def _read_permissions(self, http: ForgeHttpClient, items: Sequence[Mapping[str, Any]]) -> None:
        """Read the permissions of the authors of these issues and comments."""
        people = [CommentAuthor(item.get("user"), item.get("author_association")) for item in items]
        await self._permissions.read_permissions(http, self._github.address.repo, people)

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> TrackerIssue:
        """Create an issue."""
        http = await self._github.http()
        fields = {"title": title[:MAX_TITLE_LENGTH], "body": cut_to_limit(body), "labels": list(labels)}
        answer = await http.call("POST", self._issues_path, fields)
        with suppress(Temporary):  # the issue exists: a retry would create a second one
            await self._read_permissions(http, [answer.data])
        return self._issue(answer.data)

    async def change(self, issue: str, change: IssueChange) -> None:
        """Apply a change to an issue; what is already so stays."""
        http = await self._github.http()
        path = f"{self._issues_path}/{self._issue_number(issue)}"
        fields = {key: value for key, value in (("title", change.title), ("body", change.body)) if value is not None}
        if change.state in ("open", "closed"):
            fields["state"] = change.state
        if change.state == "closed":
            fields["state_reason"] = "completed"
        if fields:
            await http.call("PATCH", path, fields, safe=True)
        state_label = self._state_labels.get(change.state or "")
        if change.state and (state_label or change.state in ("open", "closed")):
            other_state_labels = [label for label in self._state_labels.values() if label != state_label]
        else:
            other_state_labels = []
        added_labels = list(dict.fromkeys([*change.add_labels, *([state_label] if state_label else [])]))
        if added_labels:
            await http.call("POST", f"{path}/labels", {"labels": added_labels}, safe=True)
        for label in dict.fromkeys([*change.remove_labels, *other_state_labels]):
            if label not in added_labels:
                await http.call("DELETE", f"{path}/labels/{quote(label, safe='')}", safe=True, allow=(404,))
        if change.assignee is not None:
            await self._assign(path, change.assignee)

    async def _assign(self, path: str, assignee: str) -> None:
        """Assign an issue to one person; `@me` is the token's account, and "" or `none` removes all assignees."""
        http = await self._github.http()
        name = await self._github.login() if assignee == "@me" else assignee.removeprefix("@")
        current = [str(user.get("login")) for user in (await http.get(path)).data.get("assignees") or []]
        new_assignees = [] if name in ("", "none") else [name]
        former_assignees = [login for login in current if not any(is_same_login(login, user) for user in new_assignees)]
        if new_assignees and not any(is_same_login(login, name) for login in current):
            answer = await http.call("POST", f"{path}/assignees", {"assignees": new_assignees}, safe=True)
            assigned = [str(user.get("login")) for user in (answer.data or {}).get("assignees") or []]
            if not any(is_same_login(login, name) for login in assigned):
                raise UsageError(
                    f"GitHub does not assign {path.rpartition('/')[2]} to {name}",
                    "only who may see to it can be assigned",
                )
        if former_assignees:  # last: if assigning failed above, the former assignees stay
            await http.call("DELETE", f"{path}/assignees", {"assignees": former_assignees}, safe=True)

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Post a comment once and return its id; if it was already posted, return that one's id."""
        http = await self._github.http()
        path = f"{self._issues_path}/{self._issue_number(issue)}/comments"
        existing = await find_own_comment(http, path, key, await self._github.login())
        if existing is not None:
            return existing
        answer = await http.call("POST", path, {"body": with_mark(text, key)})
        return str(answer.data["node_id"])

    def _issue(self, data: Mapping[str, Any], comments: Sequence[TrackerComment] = ()) -> TrackerIssue:
        """Return an issue from its REST data."""
        body = str(data.get("body") or "")
        assignee = data.get("assignee") or next(iter(data.get("assignees") or []), None) or {}
        labels = [item if isinstance(item, str) else str(item.get("name")) for item in data.get("labels") or []]
        attachments = _attachments(body, *(item.body for item in comments))
        return TrackerIssue(
            id=str(data["number"]),
            title=str(data.get("title") or ""),
            body=body,
            url=data.get("html_url"),
            state="closed" if data.get("state") == "closed" else "open",
            labels=tuple(labels),
            assignee=assignee.get("login"),
            author=self._permissions.author(data.get("user"), data.get("author_association")),
            comments=tuple(comments),
            attachments=attachments,
            updated_at=parse_time(data.get("updated_at")),
        )

    def _comment(self, data: Mapping[str, Any], our_login: str) -> TrackerComment:
        """Return a comment from its REST data. One by our account with our mark has the author kind `agent`."""
        body, mark = split_mark(str(data.get("body") or ""))
        commenter = self._permissions.author(data.get("user"), data.get("author_association"))
        if mark and is_same_login(our_login, commenter.name):
            commenter = type(commenter)(commenter.name, "agent", commenter.write_access)
        return TrackerComment(
            str(data.get("node_id") or data.get("id")), commenter, body, parse_time(data.get("created_at"))
        )


def _attachments(*texts: str) -> tuple[str, ...]:
    """Return the addresses of images and files in the texts, each once."""
    addresses = (next(filter(None, match.groups())) for text in texts for match in _ATTACHMENT_URL.finditer(text))
    return tuple(dict.fromkeys(addresses))
