"""Issues at GitHub: github.com and an enterprise's own hosts.

GitHub knows only open and closed. That work has begun, or is in review, is told by labels, if the project names them:
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
from agent_orchestrator.plugins.forges.github.comment_marks import (
    LONGEST_TITLE,
    already_said,
    fitting,
    marked,
    unmarked,
)
from agent_orchestrator.plugins.forges.github.host import GitHubHost
from agent_orchestrator.plugins.forges.github.people import same, when
from agent_orchestrator.plugins.forges.github.permissions import Rights, Speaks
from agent_orchestrator.plugins.forges.github.token_access import ISSUES, access
from agent_orchestrator.plugins.forges.shared.http import Http
from agent_orchestrator.plugins.forges.shared.rate_limits import lines, longest_wait
from agent_orchestrator.protocols.forge import Access, Issue, IssueChange, TrackerComment
from agent_orchestrator.protocols.host import Host

_NUMBER = re.compile(r"(?:#|GH-)?(\d{1,12})", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^/\s]+/([^/\s]+/[^/\s]+)/(?:issues|pull)/(\d{1,12})(?:[/?#].*)?", re.IGNORECASE)
_ATTACHED = re.compile(
    r"!\[[^\]]{0,300}\]\((https?://[^\s)]+)"
    r"|<img\b[^<>]*?\bsrc=[\"'](https?://[^\"'\s]+)"
    r"|(https?://[^\s)\"'<>]{0,300}?(?:/user-attachments/|/files/\d+/|user-images\.githubusercontent\.com/)[^\s)\"'<>]*)"
)
_STATES = {"in_progress": "inProgress", "in_review": "inReview"}


class GitHubIssues:
    """The issues of one repository."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        self._at = GitHubHost(config, host, "tracker", clock)
        self._rights = Rights(clock)
        labels = config.get("labels") or {}
        if not isinstance(labels, Mapping):
            raise UsageError("tracker.labels is no map", "for example labels: {inProgress: doing, inReview: reviewing}")
        self._labels = {state: str(labels[key]) for state, key in _STATES.items() if labels.get(key)}

    def pause(self) -> float:
        """Seconds that background reading should wait."""
        return longest_wait(self._at.opened)

    def budget(self) -> Sequence[str]:
        """What is left of the host's grants."""
        return lines(self._at.opened)

    async def access(self) -> Access:
        """Who we are, and what the token lets us do."""
        return await access(self._at, self._at.place.repo, ISSUES)

    @property
    def _root(self) -> str:
        return f"repos/{self._at.place.repo}/issues"

    def _number(self, issue: str) -> str:
        """An issue's number, from any way to write it."""
        text = issue.strip()
        address = _ADDRESS.fullmatch(text)
        if address and address[1].casefold() == self._at.place.repo.casefold():
            return address[2]
        found = _NUMBER.fullmatch(text)
        if found is None:
            raise NotFound(f"{issue!r} is no issue of {self._at.place.repo}", "write its number: 123, #123 or GH-123")
        return str(int(found[1]))

    async def get(self, issue: str) -> Issue:
        """One issue with its comments."""
        http = await self._at.http()
        number = self._number(issue)
        data = (await http.get(f"{self._root}/{number}")).data
        if data.get("pull_request"):
            raise NotFound(f"#{number} is a pull request", f"take it over by ao new --pr {number}")
        comments = await http.pages(f"{self._root}/{number}/comments?per_page=100") if data.get("comments") else []
        us = await self._at.login() if any(unmarked(str(one.get("body") or ""))[1] for one in comments) else ""
        await self._learn(http, [data, *comments])
        return self._issue(data, [self._comment(one, us) for one in comments])

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[Issue]:
        """Issues with all these labels, the newest first; pull requests are none."""
        query = {"state": state, "sort": "created", "direction": "desc", "per_page": "100"}
        if labels:
            query["labels"] = ",".join(labels)
        if assignee:
            query["assignee"] = await self._at.login() if assignee == "@me" else assignee.removeprefix("@")
        if since:
            query["since"] = datetime.fromtimestamp(since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        http = await self._at.http()
        found = await http.pages(f"{self._root}?{urlencode(query)}")
        issues = [one for one in found if not one.get("pull_request")]
        await self._learn(http, issues)
        return [self._issue(one) for one in issues]

    async def _learn(self, http: Http, said: Sequence[Mapping[str, Any]]) -> None:
        """Ask what those who said this may do."""
        people = [Speaks(one.get("user"), one.get("author_association")) for one in said]
        await self._rights.learn(http, self._at.place.repo, people)

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> Issue:
        """Make an issue."""
        http = await self._at.http()
        given = {"title": title[:LONGEST_TITLE], "body": fitting(body), "labels": list(labels)}
        answer = await http.call("POST", self._root, given)
        with suppress(Temporary):  # it is made: whoever tried again would make another
            await self._learn(http, [answer.data])
        return self._issue(answer.data)

    async def change(self, issue: str, change: IssueChange) -> None:
        """Change an issue; what is so already stays."""
        http = await self._at.http()
        path = f"{self._root}/{self._number(issue)}"
        new = {key: value for key, value in (("title", change.title), ("body", change.body)) if value is not None}
        if change.state in ("open", "closed"):
            new["state"] = change.state
        if change.state == "closed":
            new["state_reason"] = "completed"
        if new:
            await http.call("PATCH", path, new, safe=True)
        wanted = self._labels.get(change.state or "")
        if change.state and (wanted or change.state in ("open", "closed")):
            others = [label for label in self._labels.values() if label != wanted]
        else:
            others = []
        add = list(dict.fromkeys([*change.add_labels, *([wanted] if wanted else [])]))
        if add:
            await http.call("POST", f"{path}/labels", {"labels": add}, safe=True)
        for label in dict.fromkeys([*change.remove_labels, *others]):
            if label not in add:
                await http.call("DELETE", f"{path}/labels/{quote(label, safe='')}", safe=True, allow=(404,))
        if change.assignee is not None:
            await self._assign(path, change.assignee)

    async def _assign(self, path: str, assignee: str) -> None:
        """Give it to one person; `@me`: to ourselves; empty or `none`: to nobody."""
        http = await self._at.http()
        name = await self._at.login() if assignee == "@me" else assignee.removeprefix("@")
        now = [str(one.get("login")) for one in (await http.get(path)).data.get("assignees") or []]
        wanted = [] if name in ("", "none") else [name]
        others = [login for login in now if not any(same(login, one) for one in wanted)]
        if wanted and not any(same(login, name) for login in now):
            answer = await http.call("POST", f"{path}/assignees", {"assignees": wanted}, safe=True)
            given = [str(one.get("login")) for one in (answer.data or {}).get("assignees") or []]
            if not any(same(login, name) for login in given):
                raise UsageError(
                    f"GitHub does not assign {path.rpartition('/')[2]} to {name}",
                    "only who may see to it can be assigned",
                )
        if others:  # last: who cannot be assigned takes nobody's place
            await http.call("DELETE", f"{path}/assignees", {"assignees": others}, safe=True)

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Say something, once."""
        http = await self._at.http()
        path = f"{self._root}/{self._number(issue)}/comments"
        said = await already_said(http, path, key, await self._at.login())
        if said is not None:
            return said
        answer = await http.call("POST", path, {"body": marked(text, key)})
        return str(answer.data["node_id"])

    def _issue(self, data: Mapping[str, Any], comments: Sequence[TrackerComment] = ()) -> Issue:
        body = str(data.get("body") or "")
        assignee = data.get("assignee") or next(iter(data.get("assignees") or []), None) or {}
        labels = [one if isinstance(one, str) else str(one.get("name")) for one in data.get("labels") or []]
        attached = _attachments(body, *(one.body for one in comments))
        return Issue(
            id=str(data["number"]),
            title=str(data.get("title") or ""),
            body=body,
            url=data.get("html_url"),
            state="closed" if data.get("state") == "closed" else "open",
            labels=tuple(labels),
            assignee=assignee.get("login"),
            author=self._rights.author(data.get("user"), data.get("author_association")),
            comments=tuple(comments),
            attachments=attached,
            updated_at=when(data.get("updated_at")),
        )

    def _comment(self, data: Mapping[str, Any], us: str) -> TrackerComment:
        body, mark = unmarked(str(data.get("body") or ""))
        who = self._rights.author(data.get("user"), data.get("author_association"))
        if mark and same(us, who.name):
            who = type(who)(who.name, "agent", who.write_access)
        return TrackerComment(str(data.get("node_id") or data.get("id")), who, body, when(data.get("created_at")))


def _attachments(*texts: str) -> tuple[str, ...]:
    """Addresses of pictures and files in the texts, each once."""
    found = (next(filter(None, match.groups())) for text in texts for match in _ATTACHED.finditer(text))
    return tuple(dict.fromkeys(found))
