"""The state that the board shows, and how its sessions are arranged. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_orchestrator.cli.sessions.status_table import COLUMNS, Session, evidence_time

Question = dict[str, Any]

_QUIET_STATES = ("idle", "exited")
_SEARCHED_FIELDS = ("id", "title", "status", "project", "branch", "agent", "profile", "issue", "node")
_FIELDS = {"status": "status", "project": "project", "agent": "agent", "column": "column"}


@dataclass
class BoardState:
    """The state of all sessions, built from the frames of the daemon's stream."""

    sessions: dict[str, Session] = field(default_factory=dict)
    questions: list[Question] = field(default_factory=list)
    overview: dict[str, Any] = field(default_factory=dict)
    is_ready: bool = False
    """Whether a complete frame has arrived."""

    def with_frame(self, frame: Mapping[str, Any]) -> BoardState:
        """Return the state after a frame, which is complete or has only the changes."""
        sessions = {} if frame.get("complete") else self.sessions
        return BoardState(
            sessions | {str(item["id"]): item for item in frame.get("sessions") or ()},
            self.questions if frame.get("questions") is None else list(frame["questions"]),
            self.overview if frame.get("overview") is None else dict(frame["overview"]),
            self.is_ready or bool(frame.get("complete")),
        )

    def questions_of(self, session: str) -> list[Question]:
        """Return the questions of a session, oldest first."""
        return [question for question in self.questions if question.get("session") == session]


@dataclass(frozen=True)
class Card:
    """A session on the board."""

    session: Session
    is_quiet: bool
    """Whether it only waits to be looked at, without a question."""

    @property
    def id(self) -> str:
        """The session's id."""
        return str(self.session["id"])


Columns = dict[str, list[Card]]


@dataclass(frozen=True)
class SessionFilter:
    """Selects sessions that contain all words; `status:`, `project:`, `agent:` and `column:` search that field alone."""

    text: str = ""
    project: str | None = None
    """The project of the command, or None for all of them."""

    def matches(self, session: Session) -> bool:
        """Return whether a session is shown."""
        if self.project is not None and session.get("project") != self.project:
            return False
        return all(_matches_word(session, word) for word in self.text.lower().split())


def _matches_word(session: Session, word: str) -> bool:
    name, colon, prefix = word.partition(":")
    if colon and name in _FIELDS:
        value = str(session.get(_FIELDS[name]) or "").lower()
        return value.replace(" ", "").startswith(prefix)
    return any(word in str(session.get(key) or "").lower() for key in _SEARCHED_FIELDS)


def arrange_columns(fleet: BoardState, session_filter: SessionFilter) -> Columns:
    """Return the columns with their cards in order: longest waiting first, quiet ones last, finished ones newest first."""
    asking_sessions = {question.get("session") for question in fleet.questions}
    columns: Columns = {title: [] for title in COLUMNS}
    for session in fleet.sessions.values():
        if session_filter.matches(session):
            column = session.get("column")
            is_quiet = session.get("status") in _QUIET_STATES and session["id"] not in asking_sessions
            columns[column if column in COLUMNS else "Working"].append(Card(session, is_quiet))
    for cards in columns.values():
        cards.sort(key=lambda card: (str(card.session.get("createdAt")), card.id))
    columns["Needs you"].sort(key=lambda card: (card.is_quiet, evidence_time(card.session)))
    columns["Done"].sort(key=lambda card: str(card.session.get("updatedAt")), reverse=True)
    return columns


def choose_selection(columns: Columns, previous: str | None, last_order: Sequence[str]) -> str | None:
    """Return the selected session: the same one if it still exists, else its neighbour, else the first."""
    order = [card.id for cards in columns.values() for card in cards]
    if previous in order or not order:
        return previous if order else None
    if previous in last_order:
        index = last_order.index(previous)
        nearest = [*last_order[index + 1 :], *reversed(last_order[:index])]
        return next((name for name in nearest if name in order), order[0])
    return order[0]


def move_selection(columns: Columns, selected: str | None, across: int, down: int) -> str | None:
    """Return the session that many columns and cards away, within the bounds of the board."""
    filled = [[card.id for card in cards] for cards in columns.values() if cards]
    position = next(((x, ids.index(selected)) for x, ids in enumerate(filled) if selected in ids), None)
    if position is None:
        return filled[0][0] if filled else None
    x, y = position
    target = min(max(x + across, 0), len(filled) - 1)
    if across:
        return filled[target][min(y, len(filled[target]) - 1)] if target != x else selected
    return filled[x][min(max(y + down, 0), len(filled[x]) - 1)]
