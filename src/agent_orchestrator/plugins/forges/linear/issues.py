"""Issues of one team at Linear.

The workflow states of a team have types. An issue is moved by them: work that begins goes to the first state of the type `started`,
work in review to the one whose name contains "review", merged work to the first `completed` one. `tracker: {plugin: linear, team: LIN,
states: {inReview: Checking}}` names other states. The id of our comment is derived from its key, so it cannot be posted twice.
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
from agent_orchestrator.plugins.forges.shared.rate_limit_report import background_pause, rate_limit_lines
from agent_orchestrator.plugins.forges.shared.timestamps import parse_time
from agent_orchestrator.protocols.forge import Access, Author, IssueChange, Tracker, TrackerComment, TrackerIssue
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.protocols.text import one_line

MAX_PAGES = 50
"""Pages that are read of one listing."""
MAX_BODY_LENGTH = 60_000
"""Characters of a body that are posted."""
MAX_TITLE_LENGTH = 250
"""Characters of a title that are posted."""
CLOSED_TYPES = ("completed", "canceled", "duplicate")
"""The types of states in which an issue is closed."""
_STATE_TYPES = {
    "open": ("unstarted", "backlog", "triage"),
    "in_progress": ("started",),
    "closed": ("completed", "canceled"),
}
"""The types of states for each of our states, preferred first."""
_CONFIG_KEYS = {"open": "open", "in_progress": "inProgress", "in_review": "inReview", "closed": "closed"}
"""The key in `tracker.states` by our state."""
_REVIEW = re.compile(r"\breview", re.IGNORECASE)
"""A word in a state's name that makes it a state of work in review."""
_ISSUE_ID = re.compile(r"([A-Za-z][A-Za-z0-9_]*)-(\d{1,9})")
_NUMBER = re.compile(r"#?(\d{1,9})")
_ADDRESS = re.compile(r"https?://[^/\s]+/[^/\s]+/issue/([A-Za-z][A-Za-z0-9_]*-\d{1,9})(?:[/?#].*)?")
_EXTERNAL_ENDING, _BOT_ENDING = _RESERVED_ENDINGS = "(external)", "[bot]"
"""The endings of the names of authors who are not users of Linear."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ATTACHMENT_URL = re.compile(r"!\[[^\]]{0,300}\]\((https?://[^\s)]+)|(https://uploads\.linear\.app/[^\s)\"'<>\]]+)")


@dataclass(frozen=True, slots=True)
class LinearState:
    """A state of a team's workflow."""

    id: str
    name: str
    type: str
    position: float = 0.0


@dataclass(frozen=True, slots=True)
class LinearTeam:
    """A team and its workflow."""

    id: str
    key: str
    states: tuple[LinearState, ...]


class LinearIssues(Tracker):
    """The issues of one team."""

    def __init__(self, config: Mapping[str, Any], host: Host, clock: Callable[[], float] = time.time) -> None:
        del host  # nothing of this machine is needed
        self._linear = LinearHost(config, clock)
        self._configured_team = str(config.get("team") or config.get("teamId") or "").strip()
        if not self._configured_team:
            raise UsageError("tracker.team is missing", "write the team's key as in its issues' names: team: LIN")
        states = config.get("states") or {}
        if not isinstance(states, Mapping):
            raise UsageError("tracker.states is no map", "for example states: {inReview: In Review}")
        self._states = {state: str(states[key]) for state, key in _CONFIG_KEYS.items() if states.get(key)}
        self._team: LinearTeam | None = None
        self._viewer_id: str | None = None

    @property
    def repo(self) -> str:
        """The team's key, by which webhooks name it; "" while only the team's id is known."""
        if self._team is not None:
            return self._team.key
        return "" if _UUID.fullmatch(self._configured_team) else self._configured_team.upper()

    def pause(self) -> float:
        """Return how many seconds background reading should wait."""
        return background_pause(self._linear.current_client)

    def budget(self) -> Sequence[str]:
        """Return one line per rate limit of Linear."""
        return rate_limit_lines(self._linear.current_client)

    async def access(self) -> Access:
        """Return the token's account. Linear does not list what a key may do, so the team is read as a test."""
        viewer = (await self._linear.query(documents.VIEWER))["viewer"]
        team = await self._read_team(self._team_filter())
        return Access(Author(str(viewer.get("displayName") or viewer["id"])), f"team {team.key}, tried: reading it")

    async def get(self, issue: str) -> TrackerIssue:
        """Return an issue with its comments."""
        data = await self._read_issue(documents.GET_ISSUE, issue)
        issue_data = data["issue"]
        comments, page = list(issue_data["comments"]["nodes"]), issue_data["comments"]["pageInfo"]
        for _ in range(MAX_PAGES - 1):
            if not page["hasNextPage"]:
                break
            next_page = await self._linear.query(
                documents.MORE_COMMENTS, {"id": issue_data["id"], "after": page["endCursor"]}
            )
            comments += next_page["issue"]["comments"]["nodes"]
            page = next_page["issue"]["comments"]["pageInfo"]
        our_id = str(data["viewer"]["id"])
        issue_comments = sorted(
            (_comment(comment, our_id) for comment in reversed(comments)), key=lambda comment: comment.at
        )
        return _issue(issue_data, issue_comments)

    async def list(
        self, *, labels: Sequence[str] = (), state: str = "open", assignee: str | None = None, since: float = 0.0
    ) -> list[TrackerIssue]:
        """Return the issues with all these labels, newest first."""
        team = await self._our_team()
        conditions: list[dict[str, Any]] = [{"labels": {"some": {"name": {"eqIgnoreCase": label}}}} for label in labels]
        if state != "all":
            conditions.append({"state": {"type": {"in" if state == "closed" else "nin": list(CLOSED_TYPES)}}})
        if assignee:
            conditions.append({"assignee": _assignee_filter(assignee)})
        if since:
            conditions.append({"updatedAt": {"gte": datetime.fromtimestamp(since, UTC).isoformat()}})
        variables: dict[str, Any] = {"filter": {"and": [{"team": {"id": {"eq": team.id}}}, *conditions]}}
        items: list[Any] = []
        for _ in range(MAX_PAGES):
            page = (await self._linear.query(documents.LIST_ISSUES, variables))["issues"]
            items += page["nodes"]
            if not page["pageInfo"]["hasNextPage"]:
                break
            variables["after"] = page["pageInfo"]["endCursor"]
        issues = [_issue(item) for item in items]
        return [issue for _, issue in sorted(zip(items, issues, strict=True), key=_created_at, reverse=True)]

    async def create(self, title: str, body: str = "", labels: Sequence[str] = ()) -> TrackerIssue:
        """Create an issue."""
        team = await self._our_team()
        label_ids = await self._label_ids(team, labels)
        fields = {
            "teamId": team.id,
            "title": title[:MAX_TITLE_LENGTH],
            "description": _fit_text(body),
            "labelIds": label_ids,
        }
        created = await self._linear.query(documents.CREATE_ISSUE, {"input": fields}, safe=False)
        return _issue(created["issueCreate"]["issue"])

    async def change(self, issue: str, change: IssueChange) -> None:
        """Apply a change to an issue; what is already so stays."""
        current = (await self._read_issue(documents.GET_ISSUE_FIELDS, issue))["issue"]
        team = await self._our_team()
        fields: dict[str, Any] = {}
        if change.title is not None:
            fields["title"] = change.title[:MAX_TITLE_LENGTH]
        if change.body is not None:
            fields["description"] = _fit_text(change.body)
        if change.state is not None:
            new_state = target_state(team.states, _state(current["state"]), change.state, self._states)
            fields |= {"stateId": new_state.id} if new_state else {}
        label_ids = {str(item["name"]).casefold(): str(item["id"]) for item in current["labels"]["nodes"]}
        added_labels = [label for label in dict.fromkeys(change.add_labels) if label.casefold() not in label_ids]
        if added_labels:
            fields["addedLabelIds"] = await self._label_ids(team, added_labels)
        unwanted_labels = {label.casefold() for label in change.remove_labels} - {
            label.casefold() for label in change.add_labels
        }
        if removed_ids := [label_ids[label] for label in sorted(unwanted_labels) if label in label_ids]:
            fields["removedLabelIds"] = removed_ids
        if change.assignee is not None:
            person = await self._user_id(change.assignee)
            if person != (current.get("assignee") or {}).get("id"):
                fields["assigneeId"] = person
        if fields:
            await self._linear.query(documents.UPDATE_ISSUE, {"id": current["id"], "input": fields})

    async def comment(self, issue: str, text: str, key: str) -> str:
        """Post a comment once and return its id. The id follows from the key, and Linear accepts each id only once."""
        issue_name = await self._issue_name(issue)
        comment_id = comment_id_of(issue_name.upper(), key)
        if await self._comment_exists(comment_id):
            return comment_id
        fields = {"id": comment_id, "issueId": issue_name, "body": _fit_text(text)}
        try:
            await self._linear.query(documents.CREATE_COMMENT, {"input": fields}, safe=False)
        except AoError as error:
            # it was posted: the answer was lost, or another process posted it first
            if await self._comment_exists(comment_id):
                return comment_id
            if isinstance(error, NotFound):
                raise NotFound(f"Linear has no issue {issue_name}", error.remedy) from None
            raise
        return comment_id

    async def _comment_exists(self, comment_id: str) -> bool:
        """Return whether there is a comment with this id."""
        try:
            return bool((await self._linear.query(documents.GET_COMMENT, {"id": comment_id}))["comment"])
        except NotFound:
            return False

    async def _issue_name(self, issue: str) -> str:
        """Return an issue's identifier from any notation of it, or raise `NotFound`."""
        text = issue.strip()
        address = _ADDRESS.fullmatch(text)
        match = _ISSUE_ID.fullmatch(address[1] if address else text)
        number = _NUMBER.fullmatch(text)
        if not match and not number:
            raise NotFound(f"{issue!r} is no issue of Linear", f"write its name: {self.repo or 'LIN'}-123")
        key = self.repo or (await self._our_team()).key
        if match and match[1].upper() != key:
            raise NotFound(f"{match[0].upper()} is no issue of the team {key}", f"write its name: {key}-123")
        return f"{key}-{int(match[2] if match else number[1] if number else 0)}"

    async def _read_issue(self, document: str, issue: str) -> Any:
        """Return a query's data about an issue. Raise `NotFound` if the issue is not the team's."""
        name = await self._issue_name(issue)
        try:
            data = await self._linear.query(document, {"id": name})
        except NotFound as error:
            raise NotFound(f"Linear has no issue {name}", error.remedy) from None
        current_name = str(data["issue"]["identifier"])
        if current_name.partition("-")[0] != name.partition("-")[0]:
            raise NotFound(
                f"{name} has moved to another team, as {current_name}", "name an issue of this project's team"
            )
        return data

    async def _our_team(self) -> LinearTeam:
        """Return our team and its workflow, read once."""
        if self._team is None:
            self._team = await self._read_team(self._team_filter())
        return self._team

    def _team_filter(self) -> Mapping[str, Any]:
        """Return the filter for the configured team, by its id or key."""
        field, comparison = ("id", "eq") if _UUID.fullmatch(self._configured_team) else ("key", "eqIgnoreCase")
        return {field: {comparison: self._configured_team}}

    async def _read_team(self, team_filter: Mapping[str, Any]) -> LinearTeam:
        """Return a team, or raise `NotFound`."""
        teams = (await self._linear.query(documents.TEAM, {"filter": team_filter}))["teams"]["nodes"]
        if not teams:
            raise NotFound(
                f"Linear has no team {self._configured_team}", "write the team's key as in its issues' names: team: LIN"
            )
        team = teams[0]
        return LinearTeam(str(team["id"]), str(team["key"]), tuple(map(_state, team["states"]["nodes"])))

    async def _label_ids(self, team: LinearTeam, names: Sequence[str]) -> Sequence[str]:
        """Return the ids of labels of the team or of all teams. Missing labels are created for the team."""
        if not names:
            return []
        name_filters = [{"name": {"eqIgnoreCase": name}} for name in names]
        team_filters = [{"team": {"id": {"eq": team.id}}}, {"team": {"null": True}}]
        data = await self._linear.query(
            documents.LABELS, {"filter": {"and": [{"or": name_filters}, {"or": team_filters}]}}
        )
        ids_by_name: dict[str, str] = {}
        for label in sorted(data["issueLabels"]["nodes"], key=lambda label: label["team"] is not None):
            if not label["isGroup"]:
                ids_by_name[str(label["name"]).casefold()] = str(label["id"])
        ids = []
        for name in dict.fromkeys(names):
            if name.casefold() not in ids_by_name:
                fields = {"name": name, "teamId": team.id}
                created = await self._linear.query(documents.CREATE_LABEL, {"input": fields}, safe=False)
                ids_by_name[name.casefold()] = str(created["issueLabelCreate"]["issueLabel"]["id"])
            ids.append(ids_by_name[name.casefold()])
        return ids

    async def _user_id(self, name: str) -> str | None:
        """Return the id of a user: `@me` is the token's user, "" or `none` is None.

        Raise `UsageError` if no user or several have this name.
        """
        if name in ("", "none"):
            return None
        if name == "@me":
            if self._viewer_id is None:
                self._viewer_id = str((await self._linear.query(documents.VIEWER))["viewer"]["id"])
            return self._viewer_id
        users = (await self._linear.query(documents.USERS, {"filter": _assignee_filter(name)}))["users"]["nodes"]
        if len(users) != 1:
            problem = "several people are" if users else "nobody at Linear is"
            raise UsageError(f"{problem} called {name}", "write the display name or the e-mail address")
        return str(users[0]["id"])


def target_state(
    states: Sequence[LinearState], now: LinearState, state_name: str, names: Mapping[str, str]
) -> LinearState | None:
    """Return the state that an issue is to move to, or None if it can stay.

    Raise `UsageError` if the team has no such state.
    """
    if state_name not in _CONFIG_KEYS:
        raise UsageError(f"{state_name!r} is no state", f"one of {', '.join(_CONFIG_KEYS)}")
    ordered = sorted(states, key=lambda state: state.position)
    if state_name in names:
        configured = next((state for state in ordered if state.name.casefold() == names[state_name].casefold()), None)
        if configured is None:
            state_names = ", ".join(state.name for state in ordered)
            raise UsageError(
                f"the team has no state {names[state_name]!r}",
                f"tracker.states.{_CONFIG_KEYS[state_name]}: one of {state_names}",
            )
        return None if configured.id == now.id else configured
    reviews = [state for state in ordered if state.type == "started" and _is_review(state, names)]
    if state_name == "in_review":
        if reviews:
            return None if now.id in {state.id for state in reviews} else reviews[0]
        state_name = "in_progress"  # no state is for reviews: the issue stays, or becomes, work in progress
    candidates = [
        state for kind in _STATE_TYPES[state_name] for state in ordered if state.type == kind and state not in reviews
    ]
    accepted_types = (*_STATE_TYPES[state_name], "duplicate") if state_name == "closed" else _STATE_TYPES[state_name]
    if now.type in accepted_types and now.id not in {state.id for state in reviews}:
        return None
    if not candidates:
        raise UsageError(
            f"the team has no state of the type {_STATE_TYPES[state_name][0]}",
            f"set tracker.states.{_CONFIG_KEYS[state_name]}",
        )
    return candidates[0]


def _is_review(state: LinearState, names: Mapping[str, str]) -> bool:
    """Return whether a state is the one for work in review."""
    configured = names.get("in_review")
    return state.name.casefold() == configured.casefold() if configured else bool(_REVIEW.search(state.name))


def comment_id_of(issue: str, key: str) -> str:
    """Return the id of a comment with a key: a UUID whose end shows that it is ours, for any key."""
    start = hashlib.sha256(f"{issue}\0{key}".encode()).digest()[:10]
    return str(uuid.UUID(bytes=_uuid_start(start) + _id_check(_uuid_start(start))))


def is_our_comment_id(number: str) -> bool:
    """Return whether an id was made by `comment_id_of`."""
    try:
        raw = uuid.UUID(number).bytes
    except ValueError:
        return False
    return raw[10:] == _id_check(raw[:10])


def _uuid_start(start: bytes) -> bytes:
    """Return the first ten bytes of a UUID with version 4 and its variant, as Linear requires."""
    return start[:6] + bytes([start[6] & 0x0F | 0x40, start[7], start[8] & 0x3F | 0x80, start[9]])


def _id_check(start: bytes) -> bytes:
    """Return the last six bytes of our ids, which follow from the first ten."""
    return hashlib.sha256(b"agent-orchestrator" + start).digest()[:6]


def _assignee_filter(name: str) -> dict[str, Any]:
    """Return the filter for the assignee with this name."""
    if name == "none":
        return {"null": True}
    if name == "@me":
        return {"isMe": {"eq": True}}
    text = name.removeprefix("@")
    return {"or": [{field: {"eqIgnoreCase": text}} for field in ("displayName", "name", "email")]}


def _state(data: Mapping[str, Any]) -> LinearState:
    """Return a state from its data."""
    return LinearState(str(data["id"]), str(data["name"]), str(data["type"]), float(data.get("position") or 0.0))


def _issue(data: Mapping[str, Any], comments: Sequence[TrackerComment] = ()) -> TrackerIssue:
    """Return an issue from its data."""
    body = str(data.get("description") or "")
    texts = (body, *(item.body for item in comments))
    text_addresses = (match[1] or match[2] for text in texts for match in _ATTACHMENT_URL.finditer(text))
    attachment_urls = (str(item["url"]) for item in (data.get("attachments") or {}).get("nodes") or [])
    return TrackerIssue(
        id=str(data["identifier"]),
        title=str(data.get("title") or ""),
        body=body,
        url=data.get("url"),
        state="closed" if data["state"]["type"] in CLOSED_TYPES else "open",
        labels=tuple(str(item["name"]) for item in data["labels"]["nodes"]),
        assignee=(data.get("assignee") or {}).get("displayName"),
        author=_author(data.get("creator"), data.get("botActor"), data.get("externalUserCreator")),
        comments=tuple(comments),
        attachments=tuple(dict.fromkeys([*attachment_urls, *text_addresses])),
        branch=data.get("branchName") or None,
        updated_at=parse_time(data.get("updatedAt")),
    )


def _comment(data: Mapping[str, Any], our_id: str) -> TrackerComment:
    """Return a comment from its data. One by our user with an id of ours has the author kind `agent`."""
    user = data.get("user") or {}
    commenter = _author(data.get("user"), data.get("botActor"), data.get("externalUser"))
    if user.get("id") == our_id and is_our_comment_id(str(data["id"])):
        commenter = Author(commenter.name, "agent", commenter.write_access)
    return TrackerComment(str(data["id"]), commenter, str(data.get("body") or ""), parse_time(data.get("createdAt")))


def _author(user: Any, bot: Any, external_user: Any) -> Author:
    """Return an author: a member of the workspace may write; a guest or a user of another service may not.

    A user of another service or an app may have the name of a member, so their names get an ending. A guest whose name has such an ending,
    or invisible characters, is marked as a guest.
    """
    if isinstance(user, Mapping):
        name, kind = str(user.get("displayName") or user.get("name")), "bot" if user.get("app") else "person"
        visible_name = one_line(name)
        is_misleading = visible_name != name or visible_name.casefold().endswith(_RESERVED_ENDINGS)
        return (
            Author(f"{visible_name} (guest)" if is_misleading else name, kind, "no")
            if user.get("guest")
            else Author(name, kind, "yes")
        )
    if isinstance(external_user, Mapping):
        return Author(
            f"{external_user.get('displayName') or external_user.get('name')} {_EXTERNAL_ENDING}", "person", "no"
        )
    if isinstance(bot, Mapping):
        return Author(f"{bot.get('name') or 'bot'}{_BOT_ENDING}", "bot", "unknown")
    return Author("somebody", "person", "no")


def _created_at(pair: tuple[Mapping[str, Any], TrackerIssue]) -> float:
    """Return when the issue of this pair was created."""
    return parse_time(pair[0].get("createdAt"))


def _fit_text(text: str) -> str:
    """Return a text cut to `MAX_BODY_LENGTH`."""
    return text.rstrip() if len(text) <= MAX_BODY_LENGTH else text[:MAX_BODY_LENGTH].rstrip() + "\n\n… (cut)"
