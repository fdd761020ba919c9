"""Issues of one project at Jira: Atlassian's cloud (REST 3) and self-managed servers (REST 2).

The statuses of a project have categories. An issue is moved by them, with the transitions that its workflow offers: work that begins
goes to a status of the category `in progress`, work in review to one whose name contains "review", merged work to one of the category
`done`. `tracker: {plugin: jira, url: …, project: APP, states: {inReview: Checking}}` names other statuses. Our comments have a key: in
the cloud as a property of the comment, on servers in an invisible anchor.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from agent_orchestrator.errors import AoError, NotFound, UsageError
from agent_orchestrator.plugins.forges.jira.document_format import from_adf, media_urls, to_adf
from agent_orchestrator.plugins.forges.jira.host import JiraHost
from agent_orchestrator.plugins.forges.shared.rate_limit_report import background_pause, rate_limit_lines
from agent_orchestrator.plugins.forges.shared.timestamps import parse_time
from agent_orchestrator.protocols.forge import (
    Access,
    Author,
    IssueChange,
    MissingPermission,
    Tracker,
    TrackerComment,
    TrackerIssue,
)
from agent_orchestrator.protocols.host import Host

PAGE_SIZE = 100
"""Items per page."""
MAX_PAGES = 50
"""Pages that are read of one listing."""
MAX_ACCESS_REQUESTS = 20
"""People whose write access one reading requests."""
ACCESS_CACHE_SECONDS = 600.0
"""Seconds for which write access is remembered."""
MAX_COMMENTS_PER_REQUEST = 1_000
"""Comments whose properties one request reads."""
MAX_BODY_LENGTH = 30_000
"""Characters of a body that are posted."""
MAX_TITLE_LENGTH = 250
"""Characters of a title that are posted."""
KEY_PROPERTY = "ao.said"
"""The property of a comment that has our key."""
_FIELDS = ("summary", "description", "status", "labels", "assignee", "reporter", "attachment", "created", "updated")
"""The fields of an issue that are read."""
_CATEGORIES = {"open": "new", "in_progress": "indeterminate", "in_review": "indeterminate", "closed": "done"}
"""The category of statuses by our state."""
_RANK = {"new": 0, "indeterminate": 1, "done": 2}
"""The order of the categories in a workflow."""
_CONFIG_KEYS = {"open": "open", "in_progress": "inProgress", "in_review": "inReview", "closed": "closed"}
"""The key in `tracker.states` by our state."""
_MAX_TRANSITIONS = 4
"""Transitions by which an issue is moved at most."""
_REVIEW = re.compile(r"\breview", re.IGNORECASE)
"""A word in a status's name that makes it a status of work in review."""
_ISSUE_KEY = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-(\d{1,9})")
_NUMBER = re.compile(r"#?(\d{1,9})")
_ADDRESS = re.compile(r"https?://\S+/(?:browse|issues)/([A-Za-z][A-Za-z0-9_]*-\d{1,9})(?:[/?#].*)?")
_SELECTED_ISSUE = re.compile(r"https?://\S+[?&]selectedIssue=([A-Za-z][A-Za-z0-9_]*-\d{1,9})(?:[&#].*)?")
_ANCHOR = re.compile(r"\{anchor:ao-([0-9a-f]{32})\}\s*\Z")
"""The invisible anchor at the end of our comments on servers."""


_PERMISSIONS = {
    "BROWSE_PROJECTS": "to read issues",
    "CREATE_ISSUES": "to make issues (ao issue new)",
    "EDIT_ISSUES": "to label issues",
    "ASSIGN_ISSUES": "to take issues",
    "TRANSITION_ISSUES": "to move issues as the work goes on",
    "ADD_COMMENTS": "to link pull requests",
}
"""The permissions that we need, each with its purpose."""


@dataclass(frozen=True, slots=True)
class JiraStatus:
    """A status of a project's workflow."""

    name: str
    category: str
    """The category: `new`, `indeterminate` or `done`."""


@dataclass(frozen=True, slots=True)
class JiraTransition:
    """A transition that leads from an issue's status to another one."""

    id: str
    to: JiraStatus


class JiraIssues(Tracker):
    """The issues of one project."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._jira = JiraHost(config, clock)
        states = config.get("states") or {}
        if not isinstance(states, Mapping):
            raise UsageError("tracker.states is no map", "for example states: {inReview: In Review}")
        self._states = {state: str(states[key]) for state, key in _CONFIG_KEYS.items() if states.get(key)}
        self._issue_type = str(config.get("issueType") or "Task")
        self._clock = clock
        self._own_account: str | None = None
        self._access: dict[str, tuple[float, str]] = {}

    @property
    def repo(self) -> str:
        """The project's key, by which webhooks name the project."""
        return self._jira.project_key

    def pause(self) -> float:
        """Return how many seconds background reading should wait."""
        return background_pause(self._jira.current_client)

    def budget(self) -> Sequence[str]:
        """Return one line per rate limit of the site."""
        return rate_limit_lines(self._jira.current_client)

    async def access(self) -> Access:
        """Return the token's account and the permissions that it lacks in the project."""
        account = await self._jira.get("myself")
        query = urlencode({"projectKey": self._jira.project_key, "permissions": ",".join(_PERMISSIONS)})
        permissions = (await self._jira.get(f"mypermissions?{query}")).get("permissions") or {}
        missing = [key for key in _PERMISSIONS if not (permissions.get(key) or {}).get("havePermission")]
        return Access(
            Author(str(account.get("displayName") or _account_id(account))),
            f"project {self._jira.project_key}",
            tuple(_missing_permission(key, self._jira.project_key) for key in missing),
        )

    async def get(self, issue: str) -> TrackerIssue:
        """Return an issue with its comments. Raise `NotFound` if it has moved to another project."""
        key = self._issue_key(issue)
        data = await self._jira.get(f"issue/{key}?{urlencode({'fields': ','.join(_FIELDS)})}")
        if str(data["key"]).partition("-")[0] != self._jira.project_key:
            raise NotFound(f"{key} has moved to another project, as {data['key']}", "name an issue of this project")
        comments = await self._comments(key)
        our_account = await self._our_account() if comments else ""
        our_comments = await self._our_comments(comments, our_account)
        write_access = await self._write_access_of(
            [data["fields"].get("reporter"), *(comment.get("author") for comment in comments)]
        )
        return self._issue(data, write_access, [_comment(comment, our_comments, write_access) for comment in comments])

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[TrackerIssue]:
        """Return the issues with all these labels, newest first."""
        conditions = [
            f"project = {_quote_jql(self._jira.project_key)}",
            *(f"labels = {_quote_jql(label)}" for label in labels),
        ]
        if state != "all":
            conditions.append(f"statusCategory {'=' if state == 'closed' else '!='} Done")
        if assignee:
            account = None if assignee == "@me" else await self._account_of(assignee)
            condition = (
                "= currentUser()" if assignee == "@me" else f"= {_quote_jql(account)}" if account else "is EMPTY"
            )
            conditions.append(f"assignee {condition}")
        if since:  # JQL's times are in the reader's time zone, without seconds; "minutes ago" is the same in every zone
            conditions.append(f"updated >= -{max(1, math.ceil((self._clock() - since) / 60.0) + 1)}m")
        items = await self._search(" AND ".join(conditions) + " ORDER BY created DESC, key DESC")
        write_access = await self._write_access_of([(item.get("fields") or {}).get("reporter") for item in items])
        issues = [self._issue(item, write_access) for item in items]
        return [issue for issue in issues if issue.updated_at >= since]

    async def _search(self, jql: str) -> Sequence[Mapping[str, Any]]:
        """Return all issues that a JQL query matches."""
        items: list[Mapping[str, Any]] = []
        request: dict[str, Any] = {"jql": jql, "fields": list(_FIELDS), "maxResults": PAGE_SIZE}
        for _ in range(MAX_PAGES):
            path = "search/jql" if self._jira.is_cloud else "search"
            page = (await self._jira.call("POST", path, request, safe=True)).data
            issues = page.get("issues") or []
            items += issues
            if self._jira.is_cloud:
                token = page.get("nextPageToken")
                if page.get("isLast") or not token:
                    break
                request["nextPageToken"] = token
            else:
                if not issues or len(items) >= int(page.get("total") or 0):
                    break
                request["startAt"] = len(items)
        return items

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> TrackerIssue:
        """Create an issue."""
        fields = {
            "project": {"key": self._jira.project_key},
            "issuetype": {"name": self._issue_type},
            "summary": _fit_title(title),
            "labels": [_validate_label(label) for label in labels],
        }
        if body.strip():
            fields["description"] = self._to_body(body)
        try:
            created = (await self._jira.call("POST", "issue", {"fields": fields})).data
        except UsageError as error:
            remedy = f"check project ({self._jira.project_key}) and issueType ({self._issue_type}) in the configuration"
            raise UsageError(error.text, error.remedy or remedy) from None
        return await self.get(str(created["key"]))

    async def change(self, issue: str, change: IssueChange) -> None:
        """Apply a change to an issue; what is already so stays."""
        key = self._issue_key(issue)
        fields: dict[str, Any] = {}
        if change.title is not None:
            fields["summary"] = _fit_title(change.title)
        if change.body is not None:
            fields["description"] = self._to_body(change.body)
        added_labels = list(dict.fromkeys(map(_validate_label, change.add_labels)))
        removed_labels = [
            label
            for label in dict.fromkeys(change.remove_labels)
            if label not in added_labels and not re.search(r"\s", label)
        ]
        label_updates = [*({"add": label} for label in added_labels), *({"remove": label} for label in removed_labels)]
        body = {
            name: value
            for name, value in (("fields", fields), ("update", {"labels": label_updates} if label_updates else None))
            if value
        }
        if body:
            await self._jira.call("PUT", f"issue/{key}", body, safe=True)
        if change.assignee is not None:
            account = await self._account_of(change.assignee)
            await self._jira.call("PUT", f"issue/{key}/assignee", {self._person_field: account}, safe=True)
        if change.state is not None:
            await self._move(key, change.state)

    async def _move(self, key: str, state: str) -> None:
        """Move an issue to a state by up to `_MAX_TRANSITIONS` transitions.

        Raise `UsageError` if its workflow does not lead there.
        """
        visited: set[str] = set()
        for _ in range(_MAX_TRANSITIONS):
            data = await self._jira.get(f"issue/{key}?fields=status")
            current = _status(data["fields"]["status"])
            if is_in_state(current, state, self._states):
                return
            visited.add(current.name.casefold())
            offered = (await self._jira.get(f"issue/{key}/transitions")).get("transitions") or []
            transitions = [JiraTransition(str(item["id"]), _status(item.get("to") or {})) for item in offered]
            transition = next_transition(current, transitions, state, self._states, frozenset(visited))
            if transition is None:
                return
            await self._jira.call("POST", f"issue/{key}/transitions", {"transition": {"id": transition.id}})
        data = await self._jira.get(f"issue/{key}?fields=status")
        if not is_in_state(_status(data["fields"]["status"]), state, self._states):
            raise UsageError(f"{key} did not become {state} by {_MAX_TRANSITIONS} transitions", _remedy(state))

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Post a comment once and return its id; if it was already posted, return that one's id."""
        issue_key = self._issue_key(issue)
        our_account = await self._our_account()
        mark = key if self._jira.is_cloud else _digest(key)
        our_comments = await self._our_comments(await self._comments(issue_key, newest_first=True), our_account)
        if existing := next(
            (comment_id for comment_id, comment_mark in our_comments.items() if comment_mark == mark), None
        ):
            return existing
        request: dict[str, Any] = {"body": self._to_body(text)}
        if self._jira.is_cloud:
            request["properties"] = [{"key": KEY_PROPERTY, "value": {"key": key}}]
        else:
            request["body"] += f"\n\n{{anchor:ao-{mark}}}"
        answer = await self._jira.call("POST", f"issue/{issue_key}/comment", request)
        return str(answer.data["id"])

    async def _comments(self, key: str, *, newest_first: bool = False) -> Sequence[Mapping[str, Any]]:
        """Return all comments of an issue, oldest first unless `newest_first`."""
        items: list[Mapping[str, Any]] = []
        order = "-created" if newest_first else "created"
        for _ in range(MAX_PAGES):
            query = urlencode({"startAt": len(items), "maxResults": PAGE_SIZE, "orderBy": order})
            page = await self._jira.get(f"issue/{key}/comment?{query}")
            comments = page.get("comments") or []
            items += comments
            if not comments or len(items) >= int(page.get("total") or 0):
                break
        return items

    async def _our_comments(self, comments: Sequence[Mapping[str, Any]], our_account: str) -> Mapping[str, str]:
        """Return the ids of our comments, each with its key, or on servers the key's digest.

        A comment is ours only if our account wrote it.
        """
        own_comments = [comment for comment in comments if _account_id(comment.get("author")) == our_account]
        if not self._jira.is_cloud:
            return {
                str(comment["id"]): match[1]
                for comment in own_comments
                if (match := _ANCHOR.search(str(comment.get("body"))[-200:]))
            }
        ids = [int(comment["id"]) for comment in own_comments]
        keys: dict[str, str] = {}
        for start in range(0, len(ids), MAX_COMMENTS_PER_REQUEST):
            request = {"ids": ids[start : start + MAX_COMMENTS_PER_REQUEST]}
            page = (await self._jira.call("POST", "comment/list?expand=properties", request, safe=True)).data
            for comment in page.get("values") or []:
                if key := _comment_key(comment):
                    keys[str(comment["id"])] = key
        return keys

    def _issue_key(self, issue: str) -> str:
        """Return an issue's key from any notation of it, or raise `NotFound`."""
        text, project = issue.strip(), self._jira.project_key
        address = _ADDRESS.fullmatch(text) or _SELECTED_ISSUE.fullmatch(text)
        if number := _NUMBER.fullmatch(text):
            return f"{project}-{int(number[1])}"
        match = _ISSUE_KEY.fullmatch(address[1] if address else text)
        if match is None or match[1].upper() != project:
            problem = (
                f"{match[0].upper()} is no issue of the project {project}"
                if match
                else f"{issue!r} is no issue of Jira"
            )
            raise NotFound(problem, f"write its key: {project}-123")
        return f"{project}-{int(match[2])}"

    @property
    def _person_field(self) -> str:
        """The field by which this site identifies people."""
        return "accountId" if self._jira.is_cloud else "name"

    async def _our_account(self) -> str:
        """Return the id of the token's account, read once."""
        if self._own_account is None:
            self._own_account = _account_id(await self._jira.get("myself"))
        return self._own_account

    async def _account_of(self, name: str) -> str | None:
        """Return the account that a name stands for: `@me` is the token's account, "" or `none` is None.

        Raise `UsageError` if no account or several have this name.
        """
        if name in ("", "none"):
            return None
        if name == "@me":
            return await self._our_account()
        text = name.removeprefix("@")
        parameters = {
            "project": self._jira.project_key,
            "maxResults": "50",
            "query" if self._jira.is_cloud else "username": text,
        }
        people = await self._jira.get(f"user/assignable/search?{urlencode(parameters)}")
        matches = [_account_id(person) for person in people if text.casefold() in _names_of(person)]
        # a search for an email finds its owner although Jira hides the address
        is_hidden_email = not matches and len(people) == 1 and "@" in text
        if is_hidden_email:
            matches = [_account_id(people[0])]
        if len(set(matches)) != 1:
            problem = "several people are" if matches else "nobody who may be assigned is"
            raise UsageError(f"{problem} called {name}", "write the full name, the e-mail address or the account's id")
        return matches[0]

    async def _write_access_of(self, people: Sequence[Any]) -> Mapping[str, str]:
        """Return the write access of people: those to whom issues can be assigned may write.

        At most `MAX_ACCESS_REQUESTS` accounts are requested per call, and each once in `ACCESS_CACHE_SECONDS`.
        """
        now, requests = self._clock(), 0
        access: dict[str, str] = {}
        for account in dict.fromkeys(filter(None, map(_account_id, people))):
            read_at, account_access = self._access.get(account, (0.0, "unknown"))
            if now - read_at > ACCESS_CACHE_SECONDS and requests < MAX_ACCESS_REQUESTS:
                requests += 1
                account_access = await self._write_access_of_account(account)
                self._access[account] = now, account_access
            access[account] = account_access
        return access

    async def _write_access_of_account(self, account: str) -> str:
        """Request the write access of an account; `unknown` if the token may not browse people."""
        field = "accountId" if self._jira.is_cloud else "username"
        try:
            people = await self._jira.get(
                f"user/assignable/search?{urlencode({'project': self._jira.project_key, field: account})}"
            )
        except AoError as error:
            if error.retryable:
                raise
            return "unknown"  # the token may not browse people
        return "yes" if account in map(_account_id, people) else "no"

    def _to_body(self, text: str) -> Any:
        """Return a text as the site stores it: a document in the cloud, text on servers. It is cut to `MAX_BODY_LENGTH`."""
        cut = text.rstrip() if len(text) <= MAX_BODY_LENGTH else text[:MAX_BODY_LENGTH].rstrip() + "\n\n… (cut)"
        return to_adf(cut) if self._jira.is_cloud else cut

    def _issue(
        self, data: Mapping[str, Any], write_access: Mapping[str, str], comments: Sequence[TrackerComment] = ()
    ) -> TrackerIssue:
        """Return an issue from its REST data."""
        fields = data.get("fields") or {}
        key, description = str(data["key"]), fields.get("description")
        files = [
            str(attachment.get("content")) for attachment in fields.get("attachment") or [] if attachment.get("content")
        ]
        assignee = fields.get("assignee") or {}
        return TrackerIssue(
            id=key,
            title=str(fields.get("summary") or ""),
            body=from_adf(description),
            url=f"{self._jira.url}/browse/{quote(key)}",
            state="closed" if _status(fields.get("status") or {}).category == "done" else "open",
            labels=tuple(map(str, fields.get("labels") or [])),
            assignee=(assignee.get("displayName") if self._jira.is_cloud else assignee.get("name")) or None,
            author=_author(fields.get("reporter"), write_access),
            comments=tuple(comments),
            attachments=tuple(dict.fromkeys([*files, *media_urls(description)])),
            updated_at=parse_time(fields.get("updated")),
        )


def is_in_state(now: JiraStatus, state: str, names: Mapping[str, str]) -> bool:
    """Return whether an issue is in the wanted state. Raise `UsageError` if there is no such state."""
    if state not in _CONFIG_KEYS:
        raise UsageError(f"{state!r} is no state", f"one of {', '.join(_CONFIG_KEYS)}")
    if state in names:
        return now.name.casefold() == names[state].casefold()
    if state == "in_review":
        return _is_review(now, names)
    return now.category == _CATEGORIES[state] and not (state == "in_progress" and _is_review(now, names))


def next_transition(
    now: JiraStatus, ways: Sequence[JiraTransition], state: str, names: Mapping[str, str], visited: frozenset[str]
) -> JiraTransition | None:
    """Return the next transition toward the wanted state.

    Return None if the issue stays in progress because no status is for reviews. Raise `UsageError` if no transition leads nearer.
    """
    direct = next((transition for transition in ways if is_in_state(transition.to, state, names)), None)
    if direct is not None:
        return direct
    if state == "in_review" and state not in names:
        if now.category == "indeterminate":
            return None
        return next((transition for transition in ways if transition.to.category == "indeterminate"), None)
    target_rank, current_rank = _RANK[_CATEGORIES[state]], _RANK.get(now.category, 1)
    nearer = [
        transition
        for transition in ways
        if transition.to.name.casefold() not in visited
        and min(current_rank, target_rank) <= _RANK.get(transition.to.category, 1) <= max(current_rank, target_rank)
    ]
    if not nearer:
        offered = ", ".join(transition.to.name for transition in ways) or "nothing"
        raise UsageError(f"no transition leads from {now.name} to {state}: Jira offers {offered}", _remedy(state))
    return min(nearer, key=lambda transition: abs(_RANK.get(transition.to.category, 1) - target_rank))


def _remedy(state: str) -> str:
    """Return the remedy for a state that the workflow does not lead to."""
    return f"name a status in tracker.states.{_CONFIG_KEYS[state]}, or allow the transition in the project's workflow"


def _is_review(status: JiraStatus, names: Mapping[str, str]) -> bool:
    """Return whether a status is the one for work in review."""
    configured = names.get("in_review")
    if configured:
        return status.name.casefold() == configured.casefold()
    return status.category == "indeterminate" and bool(_REVIEW.search(status.name))


def _status(data: Mapping[str, Any]) -> JiraStatus:
    """Return a status from its REST data."""
    return JiraStatus(
        str(data.get("name") or ""), str((data.get("statusCategory") or {}).get("key") or "indeterminate")
    )


def _comment(
    data: Mapping[str, Any], our_comments: Mapping[str, str], write_access: Mapping[str, str]
) -> TrackerComment:
    """Return a comment from its REST data, without our anchor. One of ours has the author kind `agent`."""
    commenter = _author(data.get("author"), write_access)
    if str(data["id"]) in our_comments:
        commenter = Author(commenter.name, "agent", commenter.write_access)
    body = from_adf(data.get("body"))
    if anchor := _ANCHOR.search(body):
        body = body[: anchor.start()].rstrip()
    return TrackerComment(str(data["id"]), commenter, body, parse_time(data.get("created")))


def _comment_key(comment: Mapping[str, Any]) -> str:
    """Return the key in a comment's properties, or ""."""
    for comment_property in comment.get("properties") or []:
        value = (
            comment_property.get("value")
            if isinstance(comment_property, Mapping) and comment_property.get("key") == KEY_PROPERTY
            else None
        )
        if isinstance(value, Mapping) and isinstance(value.get("key"), str):
            return str(value["key"])
    return ""


def _digest(key: str) -> str:
    """Return the digest of a key that fits in an anchor."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _author(data: Any, write_access: Mapping[str, str]) -> Author:
    """Return an author with the write access that is known."""
    if not isinstance(data, Mapping):
        return Author("somebody", "person", "no")
    kind = "bot" if data.get("accountType") == "app" else "person"
    name = str(data.get("displayName") or data.get("name") or "somebody")
    access = write_access.get(_account_id(data), "unknown")
    if access != "yes" and name != _account_id(data):
        name = f"{name} ({_account_id(data)})"  # display names are not unique: a stranger could choose the name of a trusted person
    return Author(name, kind, access)


def _account_id(data: Any) -> str:
    """Return the id by which this site identifies a person: an account id, or on servers a name."""
    return str(data.get("accountId") or data.get("name") or data.get("key") or "") if isinstance(data, Mapping) else ""


def _names_of(data: Mapping[str, Any]) -> set[str]:
    """Return the names and ids of a person, for comparison without case."""
    return {str(data.get(field) or "").casefold() for field in ("accountId", "displayName", "emailAddress", "name")}


def _validate_label(label: str) -> str:
    """Return a label, or raise `UsageError` if Jira does not allow it."""
    if not label or re.search(r"\s", label):
        raise UsageError(f"{label!r} is no label of Jira", "its labels have no spaces")
    return label


def _missing_permission(key: str, project: str) -> MissingPermission:
    """Return the lack of a permission."""
    remedy = f"have it granted in the permissions of the project {project}"
    return MissingPermission(f"we lack the permission {key}", _PERMISSIONS[key], remedy, vital=key == "BROWSE_PROJECTS")


def _fit_title(title: str) -> str:
    """Return a title on one line, cut to `MAX_TITLE_LENGTH`."""
    return " ".join(title.split())[:MAX_TITLE_LENGTH]


def _quote_jql(text: str) -> str:
    """Return a text as a JQL string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
