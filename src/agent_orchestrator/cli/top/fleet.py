"""What the board knows, and which sessions stand where. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_orchestrator.cli.sessions.board import COLUMNS, Session, seen_at

Question = dict[str, Any]

_QUIET = ("idle", "exited")
_SEARCHED = ("id", "title", "status", "project", "branch", "agent", "profile", "issue", "node")
_FIELDS = {"status": "status", "project": "project", "agent": "agent", "column": "column"}


@dataclass
class Fleet:
    """How things stand, by the frames of the daemon's stream."""

    sessions: dict[str, Session] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    overview: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    """Everything has arrived once."""

    def after(self, frame: Mapping[str, Any]) -> Fleet:
        """The same after a frame: all of it, or what changed."""
        kept = {} if frame.get("complete") else self.sessions
        return Fleet(
            kept | {str(each["id"]): each for each in frame.get("sessions") or ()},
            self.questions if frame.get("questions") is None else list(frame["questions"]),
            self.overview if frame.get("overview") is None else dict(frame["overview"]),
            self.ready or bool(frame.get("complete")),
        )

    def asked(self, session: str) -> list[Question]:
        """What a session asks, oldest first."""
        return [each for each in self.questions if each.get("session") == session]


@dataclass(frozen=True)
class Card:
    """A session as it stands on the board."""

    session: Session
    quiet: bool
    """It waits for a look, and calls nobody."""

    @property
    def id(self) -> str:
        """The session's."""
        return str(self.session["id"])


Columns = dict[str, list[Card]]


@dataclass(frozen=True)
class Filter:
    """Which sessions are shown: all whose words are found, `status:`, `project:`, `agent:` and `column:` in that field alone."""

    text: str = ""
    project: str | None = None
    """The project that the command is about; none: all of them."""

    def takes(self, session: Session) -> bool:
        """Whether a session is shown."""
        if self.project is not None and session.get("project") != self.project:
            return False
        return all(_has(session, word) for word in self.text.lower().split())


def _has(session: Session, word: str) -> bool:
    name, colon, rest = word.partition(":")
    if colon and name in _FIELDS:
        value = str(session.get(_FIELDS[name]) or "").lower()
        return value.replace(" ", "").startswith(rest)
    return any(word in str(session.get(key) or "").lower() for key in _SEARCHED)


def arranged(fleet: Fleet, wanted: Filter) -> Columns:
    """The columns with their cards in order: who waits longest first, quiet ones last, and what is done newest first."""
    asking = {each.get("session") for each in fleet.questions}
    columns: Columns = {title: [] for title in COLUMNS}
    for session in fleet.sessions.values():
        if wanted.takes(session):
            column = session.get("column")
            quiet = session.get("status") in _QUIET and session["id"] not in asking
            columns[column if column in COLUMNS else "Working"].append(Card(session, quiet))
    for cards in columns.values():
        cards.sort(key=lambda card: (str(card.session.get("createdAt")), card.id))
    columns["Needs you"].sort(key=lambda card: (card.quiet, seen_at(card.session)))
    columns["Done"].sort(key=lambda card: str(card.session.get("updatedAt")), reverse=True)
    return columns


def chosen(columns: Columns, before: str | None, last: Sequence[str]) -> str | None:
    """The session that is selected: the same one wherever it went; the one that took its place if it is gone; else the first."""
    order = [card.id for cards in columns.values() for card in cards]
    if before in order or not order:
        return before if order else None
    if before in last:
        at = last.index(before)
        nearest = [*last[at + 1 :], *reversed(last[:at])]
        return next((each for each in nearest if each in order), order[0])
    return order[0]


def moved(columns: Columns, selected: str | None, across: int, down: int) -> str | None:
    """The session that is so many columns and cards away; it stays within what there is."""
    full = [[card.id for card in cards] for cards in columns.values() if cards]
    place = next(((x, ids.index(selected)) for x, ids in enumerate(full) if selected in ids), None)
    if place is None:
        return full[0][0] if full else None
    x, y = place
    to = min(max(x + across, 0), len(full) - 1)
    if across:
        return full[to][min(y, len(full[to]) - 1)] if to != x else selected
    return full[x][min(max(y + down, 0), len(full[x]) - 1)]
