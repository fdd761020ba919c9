"""Issues at Linear, of one team.

A team's workflow states have types; by these an issue is moved: work that begins goes to the first state of the type `started`, work
in review to the one whose name speaks of a review, merged work to the first `completed` one. `tracker: {plugin: linear, team: LIN,
states: {inReview: Checking}}` names others. What we say has an id that follows from its key, so that it cannot be said twice.
"""

from __future__ import annotations

import hashlib
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent_orchestrator.errors import AoError, NotFound, UsageError
from agent_orchestrator.plugins.forges.linear import graphql_documents as documents
from agent_orchestrator.plugins.forges.linear.host import LinearHost
from agent_orchestrator.plugins.forges.shared.rate_limits import lines, longest_wait
from agent_orchestrator.protocols.forge import Access, Author, Issue, IssueChange, TrackerComment
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import one_line

MOST_PAGES = 50
LONGEST_TEXT = 60_000
LONGEST_TITLE = 250
CLOSED = ("completed", "canceled", "duplicate")
_ORDER = {"open": ("unstarted", "backlog", "triage"), "in_progress": ("started",), "closed": ("completed", "canceled")}
_KEYS = {"open": "open", "in_progress": "inProgress", "in_review": "inReview", "closed": "closed"}
_REVIEW = re.compile(r"\breview", re.IGNORECASE)
_ID = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-(\d{1,9})")
_NUMBER = re.compile(r"#?(\d{1,9})")
_ADDRESS = re.compile(r"https?://[^/\s]+/[^/\s]+/issue/([A-Za-z][A-Za-z0-9_]*-\d{1,9})(?:[/?#].*)?")
_EXTERNAL, _BOT = _OTHERS = "(external)", "[bot]"
"""What the names of strangers end with who are no users of Linear."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ATTACHED = re.compile(r"!\[[^\]]{0,300}\]\((https?://[^\s)]+)|(https://uploads\.linear\.app/[^\s)\"'<>\]]+)")


@dataclass(frozen=True, slots=True)
class State:
    """A state of a team's workflow."""

    id: str
    name: str
    type: str
    position: float = 0.0


@dataclass(frozen=True, slots=True)
class Team:
    """A team and its workflow."""

    id: str
    key: str
    states: tuple[State, ...]


class LinearIssues:
    """The issues of one team."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._at = LinearHost(config, clock)
        self._named = str(config.get("team") or config.get("teamId") or "").strip()
        if not self._named:
            raise UsageError("tracker.team is missing", "write the team's key as in its issues' names: team: LIN")
        states = config.get("states") or {}
        if not isinstance(states, Mapping):
            raise UsageError("tracker.states is no map", "for example states: {inReview: In Review}")
        self._states = {state: str(states[key]) for state, key in _KEYS.items() if states.get(key)}
        self._team: Team | None = None
        self._viewer: str | None = None

    @property
    def repo(self) -> str:
        """What webhooks name it by: the team's key; empty while it is not known."""
        if self._team is not None:
            return self._team.key
        return "" if _UUID.fullmatch(self._named) else self._named.upper()

    def pause(self) -> float:
        """Seconds that background reading should wait."""
        return longest_wait(self._at.opened)

    def budget(self) -> Sequence[str]:
        """What is left of Linear's grants."""
        return lines(self._at.opened)

    async def access(self) -> Access:
        """Who we are. What a key may do is not told, so the team is read."""
        me = (await self._at.ask(documents.VIEWER))["viewer"]
        team = await self._read_team(self._which())
        return Access(Author(str(me.get("displayName") or me["id"])), f"team {team.key}, tried: reading it")

    async def get(self, issue: str) -> Issue:
        """One issue with its comments."""
        data = await self._read(documents.GET, issue)
        found = data["issue"]
        comments, page = list(found["comments"]["nodes"]), found["comments"]["pageInfo"]
        for _ in range(MOST_PAGES - 1):
            if not page["hasNextPage"]:
                break
            more = await self._at.ask(documents.MORE_COMMENTS, {"id": found["id"], "after": page["endCursor"]})
            comments += more["issue"]["comments"]["nodes"]
            page = more["issue"]["comments"]["pageInfo"]
        us = str(data["viewer"]["id"])
        said = sorted((_comment(one, us) for one in reversed(comments)), key=lambda one: one.at)
        return _issue(found, said)

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[Issue]:
        """Issues with all these labels, the newest first."""
        team = await self._workflow()
        wanted: list[dict[str, Any]] = [{"labels": {"some": {"name": {"eqIgnoreCase": label}}}} for label in labels]
        if state != "all":
            wanted.append({"state": {"type": {"in" if state == "closed" else "nin": list(CLOSED)}}})
        if assignee:
            wanted.append({"assignee": _assigned(assignee)})
        if since:
            wanted.append({"updatedAt": {"gte": datetime.fromtimestamp(since, UTC).isoformat()}})
        variables: dict[str, Any] = {"filter": {"and": [{"team": {"id": {"eq": team.id}}}, *wanted]}}
        found: list[Any] = []
        for _ in range(MOST_PAGES):
            page = (await self._at.ask(documents.LIST, variables))["issues"]
            found += page["nodes"]
            if not page["pageInfo"]["hasNextPage"]:
                break
            variables["after"] = page["pageInfo"]["endCursor"]
        issues = [_issue(one) for one in found]
        return [issue for _, issue in sorted(zip(found, issues, strict=True), key=_created, reverse=True)]

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> Issue:
        """Make an issue."""
        team = await self._workflow()
        ids = await self._label_ids(team, labels)
        given = {"teamId": team.id, "title": title[:LONGEST_TITLE], "description": _fitting(body), "labelIds": ids}
        made = await self._at.ask(documents.CREATE, {"input": given}, safe=False)
        return _issue(made["issueCreate"]["issue"])

    async def change(self, issue: str, change: IssueChange) -> None:
        """Change an issue; what is so already stays."""
        now = (await self._read(documents.STATE, issue))["issue"]
        team = await self._workflow()
        new: dict[str, Any] = {}
        if change.title is not None:
            new["title"] = change.title[:LONGEST_TITLE]
        if change.body is not None:
            new["description"] = _fitting(change.body)
        if change.state is not None:
            wanted = target(team.states, _state(now["state"]), change.state, self._states)
            new |= {"stateId": wanted.id} if wanted else {}
        has = {str(one["name"]).casefold(): str(one["id"]) for one in now["labels"]["nodes"]}
        add = [label for label in dict.fromkeys(change.add_labels) if label.casefold() not in has]
        if add:
            new["addedLabelIds"] = await self._label_ids(team, add)
        gone = {label.casefold() for label in change.remove_labels} - {label.casefold() for label in change.add_labels}
        if taken := [has[label] for label in sorted(gone) if label in has]:
            new["removedLabelIds"] = taken
        if change.assignee is not None:
            person = await self._person(change.assignee)
            if person != (now.get("assignee") or {}).get("id"):
                new["assigneeId"] = person
        if new:
            await self._at.ask(documents.UPDATE, {"id": now["id"], "input": new})

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Say something, once: its id follows from the key, and Linear takes each id but once."""
        name = await self._name(issue)
        number = said_as(name.upper(), key)
        if await self._is_said(number):
            return number
        given = {"id": number, "issueId": name, "body": _fitting(text)}
        try:
            await self._at.ask(documents.SAY, {"input": given}, safe=False)
        except AoError as error:
            if await self._is_said(number):  # it was taken, only the answer was lost, or somebody else was quicker
                return number
            if isinstance(error, NotFound):
                raise NotFound(f"Linear has no issue {name}", error.remedy) from None
            raise
        return number

    async def _is_said(self, number: str) -> bool:
        try:
            return bool((await self._at.ask(documents.COMMENT, {"id": number}))["comment"])
        except NotFound:
            return False

    async def _name(self, issue: str) -> str:
        """An issue's name as Linear knows it, from any way to write it."""
        text = issue.strip()
        address = _ADDRESS.fullmatch(text)
        found = _ID.fullmatch(address[1] if address else text)
        number = _NUMBER.fullmatch(text)
        if not found and not number:
            raise NotFound(f"{issue!r} is no issue of Linear", f"write its name: {self.repo or 'LIN'}-123")
        key = self.repo or (await self._workflow()).key
        if found and found[1].upper() != key:
            raise NotFound(f"{found[0].upper()} is no issue of the team {key}", f"write its name: {key}-123")
        return f"{key}-{int(found[2] if found else number[1] if number else 0)}"

    async def _read(self, document: str, issue: str) -> Any:
        """What a query says of an issue, as long as it is the team's."""
        name = await self._name(issue)
        try:
            data = await self._at.ask(document, {"id": name})
        except NotFound as error:
            raise NotFound(f"Linear has no issue {name}", error.remedy) from None
        now = str(data["issue"]["identifier"])
        if now.partition("-")[0] != name.partition("-")[0]:
            raise NotFound(f"{name} has moved to another team, as {now}", "name an issue of this project's team")
        return data

    async def _workflow(self) -> Team:
        """Our team, read once."""
        if self._team is None:
            self._team = await self._read_team(self._which())
        return self._team

    def _which(self) -> Mapping[str, Any]:
        by, how = ("id", "eq") if _UUID.fullmatch(self._named) else ("key", "eqIgnoreCase")
        return {by: {how: self._named}}

    async def _read_team(self, wanted: Mapping[str, Any]) -> Team:
        found = (await self._at.ask(documents.TEAM, {"filter": wanted}))["teams"]["nodes"]
        if not found:
            raise NotFound(
                f"Linear has no team {self._named}", "write the team's key as in its issues' names: team: LIN"
            )
        one = found[0]
        return Team(str(one["id"]), str(one["key"]), tuple(map(_state, one["states"]["nodes"])))

    async def _label_ids(self, team: Team, names: Sequence[str]) -> Sequence[str]:
        """Labels of the team or of all teams; what is missing is made for the team."""
        if not names:
            return []
        same = [{"name": {"eqIgnoreCase": name}} for name in names]
        here = [{"team": {"id": {"eq": team.id}}}, {"team": {"null": True}}]
        data = await self._at.ask(documents.LABELS, {"filter": {"and": [{"or": same}, {"or": here}]}})
        known: dict[str, str] = {}
        for one in sorted(data["issueLabels"]["nodes"], key=lambda one: one["team"] is not None):
            if not one["isGroup"]:
                known[str(one["name"]).casefold()] = str(one["id"])
        ids = []
        for name in dict.fromkeys(names):
            if name.casefold() not in known:
                given = {"name": name, "teamId": team.id}
                made = await self._at.ask(documents.NEW_LABEL, {"input": given}, safe=False)
                known[name.casefold()] = str(made["issueLabelCreate"]["issueLabel"]["id"])
            ids.append(known[name.casefold()])
        return ids

    async def _person(self, name: str) -> str | None:
        """Somebody's id; `@me`: ours; empty or `none`: nobody."""
        if name in ("", "none"):
            return None
        if name == "@me":
            if self._viewer is None:
                self._viewer = str((await self._at.ask(documents.VIEWER))["viewer"]["id"])
            return self._viewer
        found = (await self._at.ask(documents.USERS, {"filter": _assigned(name)}))["users"]["nodes"]
        if len(found) != 1:
            how = "several people are" if found else "nobody at Linear is"
            raise UsageError(f"{how} called {name}", "write the display name or the e-mail address")
        return str(found[0]["id"])


def target(states: Sequence[State], now: State, wanted: str, names: Mapping[str, str]) -> State | None:
    """The state that an issue is to move to; none: it may stay where it is."""
    if wanted not in _KEYS:
        raise UsageError(f"{wanted!r} is no state", f"one of {', '.join(_KEYS)}")
    ordered = sorted(states, key=lambda state: state.position)
    if wanted in names:
        found = next((state for state in ordered if state.name.casefold() == names[wanted].casefold()), None)
        if found is None:
            have = ", ".join(state.name for state in ordered)
            raise UsageError(
                f"the team has no state {names[wanted]!r}", f"tracker.states.{_KEYS[wanted]}: one of {have}"
            )
        return None if found.id == now.id else found
    reviews = [state for state in ordered if state.type == "started" and _is_review(state, names)]
    if wanted == "in_review":
        if reviews:
            return None if now.id in {state.id for state in reviews} else reviews[0]
        wanted = "in_progress"  # no state speaks of a review: it stays, or becomes, work in progress
    fitting = [state for kind in _ORDER[wanted] for state in ordered if state.type == kind and state not in reviews]
    stay = (*_ORDER[wanted], "duplicate") if wanted == "closed" else _ORDER[wanted]
    if now.type in stay and now.id not in {state.id for state in reviews}:
        return None
    if not fitting:
        raise UsageError(
            f"the team has no state of the type {_ORDER[wanted][0]}", f"set tracker.states.{_KEYS[wanted]}"
        )
    return fitting[0]


def _is_review(state: State, names: Mapping[str, str]) -> bool:
    named = names.get("in_review")
    return state.name.casefold() == named.casefold() if named else bool(_REVIEW.search(state.name))


def said_as(issue: str, key: str) -> str:
    """The id of what is said with a key: a UUID whose end tells that it is ours, whatever the key was."""
    start = hashlib.sha256(f"{issue}\0{key}".encode()).digest()[:10]
    return str(uuid.UUID(bytes=_shaped(start) + _tail(_shaped(start))))


def is_ours(number: str) -> bool:
    """Was this id made by `said_as`?"""
    try:
        raw = uuid.UUID(number).bytes
    except ValueError:
        return False
    return raw[10:] == _tail(raw[:10])


def _shaped(start: bytes) -> bytes:
    """The first ten bytes of a UUID with its version 4 and its variant, as Linear demands."""
    return start[:6] + bytes([start[6] & 0x0F | 0x40, start[7], start[8] & 0x3F | 0x80, start[9]])


def _tail(start: bytes) -> bytes:
    return hashlib.sha256(b"agent-orchestrator" + start).digest()[:6]


def _assigned(name: str) -> dict[str, Any]:
    if name == "none":
        return {"null": True}
    if name == "@me":
        return {"isMe": {"eq": True}}
    text = name.removeprefix("@")
    return {"or": [{field: {"eqIgnoreCase": text}} for field in ("displayName", "name", "email")]}


def _state(data: Mapping[str, Any]) -> State:
    return State(str(data["id"]), str(data["name"]), str(data["type"]), float(data.get("position") or 0.0))


def _issue(data: Mapping[str, Any], comments: Sequence[TrackerComment] = ()) -> Issue:
    body = str(data.get("description") or "")
    texts = (body, *(one.body for one in comments))
    written = (match[1] or match[2] for text in texts for match in _ATTACHED.finditer(text))
    linked = (str(one["url"]) for one in (data.get("attachments") or {}).get("nodes") or [])
    return Issue(
        id=str(data["identifier"]),
        title=str(data.get("title") or ""),
        body=body,
        url=data.get("url"),
        state="closed" if data["state"]["type"] in CLOSED else "open",
        labels=tuple(str(one["name"]) for one in data["labels"]["nodes"]),
        assignee=(data.get("assignee") or {}).get("displayName"),
        author=_author(data.get("creator"), data.get("botActor"), data.get("externalUserCreator")),
        comments=tuple(comments),
        attachments=tuple(dict.fromkeys([*linked, *written])),
        branch=data.get("branchName") or None,
        updated_at=_when(data.get("updatedAt")),
    )


def _comment(data: Mapping[str, Any], us: str) -> TrackerComment:
    user = data.get("user") or {}
    who = _author(data.get("user"), data.get("botActor"), data.get("externalUser"))
    if user.get("id") == us and is_ours(str(data["id"])):
        who = Author(who.name, "agent", who.write_access)
    return TrackerComment(str(data["id"]), who, str(data.get("body") or ""), _when(data.get("createdAt")))


def _author(user: Any, bot: Any, stranger: Any) -> Author:
    """Who said it: a member of the workspace may write, a guest or somebody of another service may not.

    Somebody of another service, and an app, may be called like a member: he is told apart by name. So is a guest who is called like one
    of them, or whose name has signs that nobody sees.
    """
    if isinstance(user, Mapping):
        name, kind = str(user.get("displayName") or user.get("name")), "bot" if user.get("app") else "person"
        seen = one_line(name)
        borrowed = seen != name or seen.casefold().endswith(_OTHERS)
        return (
            Author(f"{seen} (guest)" if borrowed else name, kind, "no")
            if user.get("guest")
            else Author(name, kind, "yes")
        )
    if isinstance(stranger, Mapping):
        return Author(f"{stranger.get('displayName') or stranger.get('name')} {_EXTERNAL}", "person", "no")
    if isinstance(bot, Mapping):
        return Author(f"{bot.get('name') or 'bot'}{_BOT}", "bot", "unknown")
    return Author("somebody", "person", "no")


def _created(pair: tuple[Mapping[str, Any], Issue]) -> float:
    return _when(pair[0].get("createdAt"))


def _when(text: Any) -> float:
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else 0.0
    except (ValueError, OverflowError):
        return 0.0


def _fitting(text: str) -> str:
    return text.rstrip() if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT].rstrip() + "\n\n… (cut)"
