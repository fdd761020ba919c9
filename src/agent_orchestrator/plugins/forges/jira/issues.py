"""Issues at Jira, of one project: Atlassian's cloud (REST 3) and servers of one's own (REST 2).

A project's statuses have categories; by these an issue is moved with whatever transitions its workflow offers: work that begins goes
to one `in progress`, work in review to one whose name speaks of a review, merged work to a `done` one. `tracker: {plugin: jira, url:
…, project: APP, states: {inReview: Checking}}` names others. What we say bears our key: as a property of the comment in the cloud,
in an anchor that nobody sees on servers.
"""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from agent_orchestrator.errors import AoError, NotFound, UsageError
from agent_orchestrator.plugins.forges.jira.document_format import addresses, from_adf, to_adf
from agent_orchestrator.plugins.forges.jira.host import JiraHost
from agent_orchestrator.plugins.forges.shared.rate_limits import lines, longest_wait
from agent_orchestrator.protocols.forge import Access, Author, Issue, IssueChange, Lack, TrackerComment
from agent_orchestrator.protocols.host import Host

PAGE = 100
MOST_PAGES = 50
MOST_ASKED = 20
"""People of whom one reading asks whether they belong to the project."""
MEMBERS_FOR = 600.0
"""Seconds for which that is remembered."""
MOST_LISTED = 1_000
"""Comments whose properties are asked for at once."""
LONGEST_TEXT = 30_000
LONGEST_TITLE = 250
PROPERTY = "ao.said"
_FIELDS = ("summary", "description", "status", "labels", "assignee", "reporter", "attachment", "created", "updated")
_CATEGORIES = {"open": "new", "in_progress": "indeterminate", "in_review": "indeterminate", "closed": "done"}
_RANK = {"new": 0, "indeterminate": 1, "done": 2}
_KEYS = {"open": "open", "in_progress": "inProgress", "in_review": "inReview", "closed": "closed"}
_MOST_STEPS = 4
_REVIEW = re.compile(r"\breview", re.IGNORECASE)
_ID = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-(\d{1,9})")
_NUMBER = re.compile(r"#?(\d{1,9})")
_ADDRESS = re.compile(r"https?://\S+/(?:browse|issues)/([A-Za-z][A-Za-z0-9_]*-\d{1,9})(?:[/?#].*)?")
_SELECTED = re.compile(r"https?://\S+[?&]selectedIssue=([A-Za-z][A-Za-z0-9_]*-\d{1,9})(?:[&#].*)?")
_ANCHOR = re.compile(r"\{anchor:ao-([0-9a-f]{32})\}\s*\Z")


_NEEDED = {
    "BROWSE_PROJECTS": "to read issues",
    "CREATE_ISSUES": "to make issues (ao issue new)",
    "EDIT_ISSUES": "to label issues",
    "ASSIGN_ISSUES": "to take issues",
    "TRANSITION_ISSUES": "to move issues as the work goes on",
    "ADD_COMMENTS": "to link pull requests",
}
"""The permissions that we need, and what for."""


@dataclass(frozen=True, slots=True)
class Status:
    """A status of a project's workflow."""

    name: str
    category: str
    """`new`, `indeterminate` or `done`."""


@dataclass(frozen=True, slots=True)
class Transition:
    """A way out of a status."""

    id: str
    to: Status


class JiraIssues:
    """The issues of one project."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._at = JiraHost(config, clock)
        states = config.get("states") or {}
        if not isinstance(states, Mapping):
            raise UsageError("tracker.states is no map", "for example states: {inReview: In Review}")
        self._states = {state: str(states[key]) for state, key in _KEYS.items() if states.get(key)}
        self._kind = str(config.get("issueType") or "Task")
        self._clock = clock
        self._myself: str | None = None
        self._members: dict[str, tuple[float, str]] = {}

    @property
    def repo(self) -> str:
        """What webhooks name it by: the project's key."""
        return self._at.project

    def pause(self) -> float:
        """Seconds that background reading should wait."""
        return longest_wait(self._at.opened)

    def budget(self) -> Sequence[str]:
        """What is left of the site's grants."""
        return lines(self._at.opened)

    async def access(self) -> Access:
        """Who we are, and what we may do in the project."""
        me = await self._at.get("myself")
        query = urlencode({"projectKey": self._at.project, "permissions": ",".join(_NEEDED)})
        may = (await self._at.get(f"mypermissions?{query}")).get("permissions") or {}
        lacks = [key for key in _NEEDED if not (may.get(key) or {}).get("havePermission")]
        return Access(
            Author(str(me.get("displayName") or _account(me))),
            f"project {self._at.project}",
            tuple(_lack(key, self._at.project) for key in lacks),
        )

    async def get(self, issue: str) -> Issue:
        """One issue with its comments."""
        key = self._name(issue)
        data = await self._at.get(f"issue/{key}?{urlencode({'fields': ','.join(_FIELDS)})}")
        if str(data["key"]).partition("-")[0] != self._at.project:
            raise NotFound(f"{key} has moved to another project, as {data['key']}", "name an issue of this project")
        comments = await self._comments(key)
        us = await self._us() if comments else ""
        ours = await self._ours(comments, us)
        trust = await self._trust([data["fields"].get("reporter"), *(one.get("author") for one in comments)])
        return self._issue(data, trust, [_comment(one, ours, trust) for one in comments])

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[Issue]:
        """Issues with all these labels, the newest first."""
        wanted = [f"project = {_quoted(self._at.project)}", *(f"labels = {_quoted(label)}" for label in labels)]
        if state != "all":
            wanted.append(f"statusCategory {'=' if state == 'closed' else '!='} Done")
        if assignee:
            person = None if assignee == "@me" else await self._person(assignee)
            mine = "= currentUser()" if assignee == "@me" else f"= {_quoted(person)}" if person else "is EMPTY"
            wanted.append(f"assignee {mine}")
        if since:  # times of JQL are of the reader's zone and know no seconds: minutes ago are the same everywhere
            wanted.append(f"updated >= -{max(1, math.ceil((self._clock() - since) / 60.0) + 1)}m")
        found = await self._search(" AND ".join(wanted) + " ORDER BY created DESC, key DESC")
        trust = await self._trust([(one.get("fields") or {}).get("reporter") for one in found])
        issues = [self._issue(one, trust) for one in found]
        return [issue for issue in issues if issue.updated_at >= since]

    async def _search(self, jql: str) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        asked: dict[str, Any] = {"jql": jql, "fields": list(_FIELDS), "maxResults": PAGE}
        for _ in range(MOST_PAGES):
            path = "search/jql" if self._at.cloud else "search"
            page = (await self._at.call("POST", path, asked, safe=True)).data
            issues = page.get("issues") or []
            found += issues
            if self._at.cloud:
                token = page.get("nextPageToken")
                if page.get("isLast") or not token:
                    break
                asked["nextPageToken"] = token
            else:
                if not issues or len(found) >= int(page.get("total") or 0):
                    break
                asked["startAt"] = len(found)
        return found

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> Issue:
        """Make an issue."""
        fields = {
            "project": {"key": self._at.project},
            "issuetype": {"name": self._kind},
            "summary": _title(title),
            "labels": [_label(label) for label in labels],
        }
        if body.strip():
            fields["description"] = self._written(body)
        try:
            made = (await self._at.call("POST", "issue", {"fields": fields})).data
        except UsageError as error:
            wanted = f"check project ({self._at.project}) and issueType ({self._kind}) in the configuration"
            raise UsageError(error.text, error.remedy or wanted) from None
        return await self.get(str(made["key"]))

    async def change(self, issue: str, change: IssueChange) -> None:
        """Change an issue; what is so already stays."""
        key = self._name(issue)
        fields: dict[str, Any] = {}
        if change.title is not None:
            fields["summary"] = _title(change.title)
        if change.body is not None:
            fields["description"] = self._written(change.body)
        add = list(dict.fromkeys(map(_label, change.add_labels)))
        gone = [
            label for label in dict.fromkeys(change.remove_labels) if label not in add and not re.search(r"\s", label)
        ]
        steps = [*({"add": label} for label in add), *({"remove": label} for label in gone)]
        body = {
            name: value
            for name, value in (("fields", fields), ("update", {"labels": steps} if steps else None))
            if value
        }
        if body:
            await self._at.call("PUT", f"issue/{key}", body, safe=True)
        if change.assignee is not None:
            person = await self._person(change.assignee)
            await self._at.call("PUT", f"issue/{key}/assignee", {self._who: person}, safe=True)
        if change.state is not None:
            await self._move(key, change.state)

    async def _move(self, key: str, wanted: str) -> None:
        """On to a state, by as many transitions as it takes."""
        seen: set[str] = set()
        for _ in range(_MOST_STEPS):
            data = await self._at.get(f"issue/{key}?fields=status")
            now = _status(data["fields"]["status"])
            if settled(now, wanted, self._states):
                return
            seen.add(now.name.casefold())
            offered = (await self._at.get(f"issue/{key}/transitions")).get("transitions") or []
            ways = [Transition(str(one["id"]), _status(one.get("to") or {})) for one in offered]
            step = next_step(now, ways, wanted, self._states, frozenset(seen))
            if step is None:
                return
            await self._at.call("POST", f"issue/{key}/transitions", {"transition": {"id": step.id}})
        data = await self._at.get(f"issue/{key}?fields=status")
        if not settled(_status(data["fields"]["status"]), wanted, self._states):
            raise UsageError(f"{key} did not become {wanted} by {_MOST_STEPS} transitions", _remedy(wanted))

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Say something, once."""
        name = self._name(issue)
        us = await self._us()
        mark = key if self._at.cloud else _digest(key)
        ours = await self._ours(await self._comments(name, newest=True), us)
        if known := next((number for number, its in ours.items() if its == mark), None):
            return known
        said: dict[str, Any] = {"body": self._written(text)}
        if self._at.cloud:
            said["properties"] = [{"key": PROPERTY, "value": {"key": key}}]
        else:
            said["body"] += f"\n\n{{anchor:ao-{mark}}}"
        made = await self._at.call("POST", f"issue/{name}/comment", said)
        return str(made.data["id"])

    async def _comments(self, key: str, *, newest: bool = False) -> Sequence[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        order = "-created" if newest else "created"
        for _ in range(MOST_PAGES):
            query = urlencode({"startAt": len(found), "maxResults": PAGE, "orderBy": order})
            page = await self._at.get(f"issue/{key}/comment?{query}")
            comments = page.get("comments") or []
            found += comments
            if not comments or len(found) >= int(page.get("total") or 0):
                break
        return found

    async def _ours(self, comments: Sequence[Mapping[str, Any]], us: str) -> Mapping[str, str]:
        """Which of these comments we made, and with which key, or on servers its digest. Only our own account's can be ours."""
        mine = [one for one in comments if _account(one.get("author")) == us]
        if not self._at.cloud:
            return {str(one["id"]): found[1] for one in mine if (found := _ANCHOR.search(str(one.get("body"))[-200:]))}
        ids = [int(one["id"]) for one in mine]
        keys: dict[str, str] = {}
        for start in range(0, len(ids), MOST_LISTED):
            asked = {"ids": ids[start : start + MOST_LISTED]}
            page = (await self._at.call("POST", "comment/list?expand=properties", asked, safe=True)).data
            for one in page.get("values") or []:
                if key := _key_of(one):
                    keys[str(one["id"])] = key
        return keys

    def _name(self, issue: str) -> str:
        """An issue's key, from any way to write it."""
        text, own = issue.strip(), self._at.project
        address = _ADDRESS.fullmatch(text) or _SELECTED.fullmatch(text)
        if number := _NUMBER.fullmatch(text):
            return f"{own}-{int(number[1])}"
        found = _ID.fullmatch(address[1] if address else text)
        if found is None or found[1].upper() != own:
            shown = (
                f"{found[0].upper()} is no issue of the project {own}" if found else f"{issue!r} is no issue of Jira"
            )
            raise NotFound(shown, f"write its key: {own}-123")
        return f"{own}-{int(found[2])}"

    @property
    def _who(self) -> str:
        """How this site names people."""
        return "accountId" if self._at.cloud else "name"

    async def _us(self) -> str:
        if self._myself is None:
            self._myself = _account(await self._at.get("myself"))
        return self._myself

    async def _person(self, name: str) -> str | None:
        """Somebody's account; `@me`: ours; empty or `none`: nobody."""
        if name in ("", "none"):
            return None
        if name == "@me":
            return await self._us()
        text = name.removeprefix("@")
        asked = {"project": self._at.project, "maxResults": "50", "query" if self._at.cloud else "username": text}
        people = await self._at.get(f"user/assignable/search?{urlencode(asked)}")
        fitting = [_account(one) for one in people if text.casefold() in _names(one)]
        hidden = not fitting and len(people) == 1 and "@" in text  # an address that is not shown finds its owner too
        if hidden:
            fitting = [_account(people[0])]
        if len(set(fitting)) != 1:
            how = "several people are" if fitting else "nobody who may be assigned is"
            raise UsageError(f"{how} called {name}", "write the full name, the e-mail address or the account's id")
        return fitting[0]

    async def _trust(self, people: Sequence[Any]) -> Mapping[str, str]:
        """Who may write to the project: those whom its issues can be given to. Of a few people at a time, and seldom."""
        now, asked = self._clock(), 0
        found: dict[str, str] = {}
        for account in dict.fromkeys(filter(None, map(_account, people))):
            at, known = self._members.get(account, (0.0, "unknown"))
            if now - at > MEMBERS_FOR and asked < MOST_ASKED:
                asked += 1
                known = await self._belongs(account)
                self._members[account] = now, known
            found[account] = known
        return found

    async def _belongs(self, account: str) -> str:
        how = "accountId" if self._at.cloud else "username"
        try:
            people = await self._at.get(
                f"user/assignable/search?{urlencode({'project': self._at.project, how: account})}"
            )
        except AoError as error:
            if error.retryable:
                raise
            return "unknown"  # this token may not browse people
        return "yes" if account in map(_account, people) else "no"

    def _written(self, text: str) -> Any:
        cut = text.rstrip() if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT].rstrip() + "\n\n… (cut)"
        return to_adf(cut) if self._at.cloud else cut

    def _issue(
        self, data: Mapping[str, Any], trust: Mapping[str, str], comments: Sequence[TrackerComment] = ()
    ) -> Issue:
        fields = data.get("fields") or {}
        key, described = str(data["key"]), fields.get("description")
        files = [str(one.get("content")) for one in fields.get("attachment") or [] if one.get("content")]
        assignee = fields.get("assignee") or {}
        return Issue(
            id=key,
            title=str(fields.get("summary") or ""),
            body=from_adf(described),
            url=f"{self._at.url}/browse/{quote(key)}",
            state="closed" if _status(fields.get("status") or {}).category == "done" else "open",
            labels=tuple(map(str, fields.get("labels") or [])),
            assignee=(assignee.get("displayName") if self._at.cloud else assignee.get("name")) or None,
            author=_author(fields.get("reporter"), trust),
            comments=tuple(comments),
            attachments=tuple(dict.fromkeys([*files, *addresses(described)])),
            updated_at=_when(fields.get("updated")),
        )


def settled(now: Status, wanted: str, names: Mapping[str, str]) -> bool:
    """Is an issue where it shall be?"""
    if wanted not in _KEYS:
        raise UsageError(f"{wanted!r} is no state", f"one of {', '.join(_KEYS)}")
    if wanted in names:
        return now.name.casefold() == names[wanted].casefold()
    if wanted == "in_review":
        return _is_review(now, names)
    return now.category == _CATEGORIES[wanted] and not (wanted == "in_progress" and _is_review(now, names))


def next_step(
    now: Status, ways: Sequence[Transition], wanted: str, names: Mapping[str, str], seen: frozenset[str]
) -> Transition | None:
    """The transition to take; none: it stays where it is, for lack of a status that speaks of a review."""
    direct = next((way for way in ways if settled(way.to, wanted, names)), None)
    if direct is not None:
        return direct
    if wanted == "in_review" and wanted not in names:
        if now.category == "indeterminate":
            return None
        return next((way for way in ways if way.to.category == "indeterminate"), None)
    aim, at = _RANK[_CATEGORIES[wanted]], _RANK.get(now.category, 1)
    nearer = [
        way
        for way in ways
        if way.to.name.casefold() not in seen and min(at, aim) <= _RANK.get(way.to.category, 1) <= max(at, aim)
    ]
    if not nearer:
        offered = ", ".join(way.to.name for way in ways) or "nothing"
        raise UsageError(f"no transition leads from {now.name} to {wanted}: Jira offers {offered}", _remedy(wanted))
    return min(nearer, key=lambda way: abs(_RANK.get(way.to.category, 1) - aim))


def _remedy(wanted: str) -> str:
    return f"name a status in tracker.states.{_KEYS[wanted]}, or allow the transition in the project's workflow"


def _is_review(status: Status, names: Mapping[str, str]) -> bool:
    named = names.get("in_review")
    if named:
        return status.name.casefold() == named.casefold()
    return status.category == "indeterminate" and bool(_REVIEW.search(status.name))


def _status(data: Mapping[str, Any]) -> Status:
    return Status(str(data.get("name") or ""), str((data.get("statusCategory") or {}).get("key") or "indeterminate"))


def _comment(data: Mapping[str, Any], ours: Mapping[str, str], trust: Mapping[str, str]) -> TrackerComment:
    who = _author(data.get("author"), trust)
    if str(data["id"]) in ours:
        who = Author(who.name, "agent", who.write_access)
    body = from_adf(data.get("body"))
    if anchor := _ANCHOR.search(body):
        body = body[: anchor.start()].rstrip()
    return TrackerComment(str(data["id"]), who, body, _when(data.get("created")))


def _key_of(comment: Mapping[str, Any]) -> str:
    """The key that a comment was made with, in its properties."""
    for one in comment.get("properties") or []:
        value = one.get("value") if isinstance(one, Mapping) and one.get("key") == PROPERTY else None
        if isinstance(value, Mapping) and isinstance(value.get("key"), str):
            return str(value["key"])
    return ""


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _author(data: Any, trust: Mapping[str, str]) -> Author:
    if not isinstance(data, Mapping):
        return Author("somebody", "person", "no")
    kind = "bot" if data.get("accountType") == "app" else "person"
    name = str(data.get("displayName") or data.get("name") or "somebody")
    access = trust.get(_account(data), "unknown")
    if access != "yes" and name != _account(data):
        name = f"{name} ({_account(data)})"  # anybody may call himself like somebody who is trusted
    return Author(name, kind, access)


def _account(data: Any) -> str:
    """Who it is, for this site: an account's id, or on servers a name."""
    return str(data.get("accountId") or data.get("name") or data.get("key") or "") if isinstance(data, Mapping) else ""


def _names(data: Mapping[str, Any]) -> set[str]:
    return {str(data.get(name) or "").casefold() for name in ("accountId", "displayName", "emailAddress", "name")}


def _label(label: str) -> str:
    if not label or re.search(r"\s", label):
        raise UsageError(f"{label!r} is no label of Jira", "its labels have no spaces")
    return label


def _lack(key: str, project: str) -> Lack:
    remedy = f"have it granted in the permissions of the project {project}"
    return Lack(f"we lack the permission {key}", _NEEDED[key], remedy, vital=key == "BROWSE_PROJECTS")


def _title(title: str) -> str:
    return " ".join(title.split())[:LONGEST_TITLE]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _when(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
    except (ValueError, OverflowError):
        return 0.0
