"""The board as lines of text: columns side by side where there is room, one list where there is not. Pure.

Whatever others wrote is cleaned and put into `Text` as it is: nothing of it is taken for markup or obeyed by the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.text import Text

from agent_orchestrator.cli import out
from agent_orchestrator.cli.sessions.board import COLUMNS, Session, progress_text, pull_text, seen_at, waiting_text
from agent_orchestrator.cli.top.fleet import Card, Columns, Fleet, Question

WIDE = 110
"""Columns of the terminal from which on those of the board stand side by side."""
_CARD = 4
"""Lines of a card, with the empty one below it."""
_LONGEST_NAME = 30
_STYLES = {title: " ".join(style) for title, style in COLUMNS.items()}


@dataclass
class Drawn:
    """Lines, and which session is at which place of them."""

    lines: list[Text] = field(default_factory=list)
    places: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Line, first and last column, session."""
    more: str = ""
    """What of a list is not seen."""

    def at(self, x: int, y: int) -> str | None:
        """The session that is shown there."""
        return next((who for line, first, last, who in self.places if line == y and first <= x <= last), None)


def scrolled(offset: int, index: int | None, room: int, count: int) -> int:
    """How far a list is scrolled so that the line `index` is seen, moved as little as can be."""
    if index is not None:
        offset = min(max(offset, index - room + 1), index)
    return max(0, min(offset, count - room))


def board(
    columns: Columns, selected: str | None, size: tuple[int, int], now: datetime, offsets: dict[str, int]
) -> Drawn:
    """The whole board; `offsets` keeps how far each column is scrolled."""
    width, height = size
    if width >= WIDE:
        return _side_by_side(columns, selected, width, height, now, offsets)
    return _one_list(columns, selected, width, height, now, offsets)


def _mark(card: Card) -> str:
    """`!` calls you, `·` is quiet."""
    return "·" if card.quiet else "!" if card.session.get("column") == "Needs you" else " "


def _names(columns: Columns) -> dict[str, str]:
    """Short names, as long as there is only one project."""
    cards = [card for each in columns.values() for card in each]
    several = len({card.session.get("project") for card in cards}) > 1
    return {card.id: out.one_line(card.id if several else card.session.get("name") or card.id) for card in cards}


def what(card: Card) -> str:
    """The most telling thing about a session, in one line."""
    session = card.session
    found = (
        session.get("says") if card.quiet else "",
        waiting_text(session),
        pull_text(session),
        progress_text(session),
        session.get("says"),
        session.get("title"),
    )
    return next((out.one_line(each) for each in found if each), "")


def _one_list(
    columns: Columns, selected: str | None, width: int, height: int, now: datetime, offsets: dict[str, int]
) -> Drawn:
    names = _names(columns)
    longest = min(max(map(out.cells, names.values()), default=0), _LONGEST_NAME, max(8, width // 3))
    states = max((len(str(card.session["status"])) for cards in columns.values() for card in cards), default=0)
    rows = [(title, card) for title, cards in columns.items() if cards for card in (None, *cards)]
    index = next((place for place, (_, card) in enumerate(rows) if card is not None and card.id == selected), None)
    offset = scrolled(offsets.get("list", 0), index, height, len(rows))
    if offset and offset == index and height > 1 and rows[offset - 1][1] is None:
        offset -= 1  # with the heading that it stands below
    offsets["list"] = offset
    drawn = Drawn()
    for line, (title, card) in enumerate(rows[offset : offset + height]):
        if card is None:
            drawn.lines.append(Text(f"{title} ({len(columns[title])})", _STYLES[title]))
            continue
        name = out.pad(out.fit(names[card.id], longest), longest)
        age = out.age(seen_at(card.session), now)
        head = f"{_mark(card)} {name}  {out.one_line(card.session['status']):<{states}}  {age:>6}  "
        style = "reverse" if card.id == selected else "dim" if card.quiet or title == "Done" else ""
        drawn.lines.append(Text(_filled(head + what(card), width), style))
        drawn.places.append((line, 0, width, card.id))
    above, below = (sum(card is not None for _, card in part) for part in (rows[:offset], rows[offset + height :]))
    drawn.more = _unseen(above, below)
    return drawn


def _side_by_side(
    columns: Columns, selected: str | None, width: int, height: int, now: datetime, offsets: dict[str, int]
) -> Drawn:
    names = _names(columns)
    each = (width - len(columns) + 1) // len(columns)
    drawn = Drawn([Text() for _ in range(height)])
    for number, (title, cards) in enumerate(columns.items()):
        room = max(1, (height - 1) // _CARD)
        index = next((place for place, card in enumerate(cards) if card.id == selected), None)
        offset = offsets[title] = scrolled(offsets.get(title, 0), index, room, len(cards))
        lines = [Text(_filled(f"{title} ({len(cards)})", each), _STYLES[title])]
        for card in cards[offset : offset + room]:
            first = number * (each + 1)
            drawn.places += [(len(lines) + row, first, first + each, card.id) for row in range(_CARD - 1)]
            lines += _card(card, names[card.id], each, now, selected=card.id == selected)
        if (more := _unseen(offset, len(cards) - offset - room)) and len(lines) > 1:
            lines[-1] = Text(_filled(f"  … {more}", each), "dim")
        for row in range(height):
            if number:
                drawn.lines[row].append("│", "dim")
            drawn.lines[row].append_text(lines[row] if row < len(lines) else Text(" " * each))
    return drawn


def _card(card: Card, name: str, width: int, now: datetime, *, selected: bool) -> list[Text]:
    session = card.session
    age = out.age(seen_at(session), now)
    rows = (f"{_mark(card)} {name}", f"  {out.one_line(session['status'])}, {age}", f"  {what(card)}")
    plain = "reverse" if selected else ""
    faint = plain or "dim"
    styles = (plain or ("dim" if card.quiet else "bold"), plain or ("dim" if card.quiet else ""), faint)
    lines = [Text(_filled(row, width), style) for row, style in zip(rows, styles, strict=True)]
    return [*lines, Text(" " * width)]


def _unseen(above: int, below: int) -> str:
    return ", ".join(filter(None, (f"{above} above" if above else "", f"{below} below" if below > 0 else "")))


def keys(hints: Sequence[str], width: int) -> Text:
    """As many of the hints as there is room for."""
    line = ""
    for hint in hints:
        longer = f"{line}  {hint}" if line else hint
        if out.cells(longer) > width:
            break
        line = longer
    return Text(line, "dim")


def rule(more: str, width: int) -> Text:
    """The line between board and terminal, with what is not seen of the board."""
    begin = f"── {more} " if more else ""
    return Text(out.fit(begin + "─" * (width - len(begin)), width), "dim")


def _filled(text: str, width: int) -> str:
    return out.pad(out.fit(text, width), width)


def header(fleet: Fleet, shown: Columns, project: str | None, wanted: str, away: str, width: int) -> Text:
    """The first line: what is shown, how much is at work, and whether the daemon is there."""
    parts = ["ao top", out.one_line(project or "all projects")]
    if wanted:
        parts.append(f"filter: {out.one_line(wanted)}")
    if fleet.ready:
        limit = fleet.overview.get("limit")
        active = fleet.overview.get("active") or 0
        parts.append(f"{active}{f' of {limit}' if limit else ''} at work")
        calling = sum(not card.quiet for card in shown["Needs you"])
        parts.append(f"{calling} need{'s' if calling == 1 else ''} you" if calling else "nothing calls you")
        if usd := (fleet.overview.get("today") or {}).get("usd"):
            parts.append(f"${usd:.2f} today")
    if away:
        gone = f" the daemon is away: {out.one_line(away)}. Waiting for it (ao start)"
        return Text(_filled(gone, width), "bold reverse red")
    return Text(_filled("  ".join(parts), width), "bold")


def preview(
    session: Session, asked: Sequence[Question], screen: str | None, size: tuple[int, int], now: datetime
) -> list[Text]:
    """One session: who it is, what it waits for, and the end of what its terminal shows."""
    width, height = size
    about = (
        session["id"],
        session["status"],
        f"seen {out.age(seen_at(session), now)} ago",
        session.get("branch"),
        session.get("profile") or session.get("agent"),
        pull_text(session),
        progress_text(session),
    )
    line = "  ".join(out.one_line(each) for each in about if each)
    lines = [Text(out.fit(line, width), "bold")]
    if session.get("title"):
        lines.append(Text(out.fit(out.one_line(session["title"]), width)))
    lines += [Text(out.fit(f"? {_asked(each)}", width), "yellow") for each in asked[:3]]
    if not asked and (waits := waiting_text(session)):
        lines.append(Text(out.fit(waits, width), "yellow"))
    room = height - len(lines)
    rest = screen_lines(screen or "")[-room:] if room > 0 else []
    return [*lines[:height], *(Text(out.fit(each, width), "dim") for each in rest)]


def _asked(question: Mapping[str, object]) -> str:
    return out.one_line(str(question.get("text")).replace("\n", " ⏎ "))


def lines_of(text: object) -> list[str]:
    """Text from outside as lines that can be drawn: no tabs, nothing for the terminal to obey."""
    return [out.clean(line.expandtabs(8)) for line in str(text).splitlines()]


def screen_lines(text: str) -> list[str]:
    """What a terminal shows, without the empty lines at its end and long empty stretches in it."""
    kept: list[str] = []
    for line in map(str.rstrip, lines_of(text)):
        if line or (kept and kept[-1]):
            kept.append(line)
    return kept[:-1] if kept and not kept[-1] else kept
