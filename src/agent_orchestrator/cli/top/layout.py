"""Draw the board as lines of text: columns side by side on a wide terminal, one list on a narrow one. Pure.

Untrusted text is cleaned and put into `Text` unchanged: it is neither parsed as markup nor can it control the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from rich.text import Text

from agent_orchestrator.cli import out
from agent_orchestrator.cli.sessions.status_table import (
    COLUMNS,
    Session,
    evidence_time,
    progress_text,
    pull_request_text,
    waiting_text,
)
from agent_orchestrator.cli.top.board_state import BoardState, Card, Columns, Question

MIN_WIDE_COLUMNS = 110
"""Terminal columns from which on the board's columns are drawn side by side."""
_CARD_HEIGHT = 4
"""Lines of a card, including the empty one below it."""
_MAX_NAME_WIDTH = 30
_STYLES = {title: " ".join(style) for title, style in COLUMNS.items()}


@dataclass
class Drawing:
    """Lines, and the areas of the sessions in them."""

    lines: list[Text] = field(default_factory=list)
    areas: list[tuple[int, int, int, str]] = field(default_factory=list)
    """Line, first and last column, session."""
    hidden_text: str = ""
    """How many entries of a list are not visible."""

    def session_at(self, x: int, y: int) -> str | None:
        """Return the session that is drawn at this position."""
        return next((session for line, first, last, session in self.areas if line == y and first <= x <= last), None)


def scroll_offset(offset: int, index: int | None, visible: int, count: int) -> int:
    """Return the list's scroll offset at which the line `index` is visible, moved as little as possible."""
    if index is not None:
        offset = min(max(offset, index - visible + 1), index)
    return max(0, min(offset, count - visible))


def draw_board(
    columns: Columns, selected: str | None, size: tuple[int, int], now: datetime, offsets: dict[str, int]
) -> Drawing:
    """Draw the whole board; `offsets` keeps the scroll offset of each column."""
    width, height = size
    if width >= MIN_WIDE_COLUMNS:
        return _draw_columns(columns, selected, width, height, now, offsets)
    return _draw_list(columns, selected, width, height, now, offsets)


def _card_mark(card: Card) -> str:
    """Return `!` if the session needs the person, `·` if it is quiet."""
    return "·" if card.is_quiet else "!" if card.session.get("column") == "Needs you" else " "


def _short_names(columns: Columns) -> dict[str, str]:
    """Return the names to show: short ones if there is only one project."""
    cards = [card for column_cards in columns.values() for card in column_cards]
    several = len({card.session.get("project") for card in cards}) > 1
    return {card.id: out.one_line(card.id if several else card.session.get("name") or card.id) for card in cards}


def main_text(card: Card) -> str:
    """Return the most important fact about a session, in one line."""
    session = card.session
    texts = (
        session.get("says") if card.is_quiet else "",
        waiting_text(session),
        pull_request_text(session),
        progress_text(session),
        session.get("says"),
        session.get("title"),
    )
    return next((out.one_line(each) for each in texts if each), "")


def _draw_list(
    columns: Columns, selected: str | None, width: int, height: int, now: datetime, offsets: dict[str, int]
) -> Drawing:
    names = _short_names(columns)
    name_width = min(max(map(out.display_width, names.values()), default=0), _MAX_NAME_WIDTH, max(8, width // 3))
    states = max((len(str(card.session["status"])) for cards in columns.values() for card in cards), default=0)
    rows = [(title, card) for title, cards in columns.items() if cards for card in (None, *cards)]
    index = next((number for number, (_, card) in enumerate(rows) if card is not None and card.id == selected), None)
    offset = scroll_offset(offsets.get("list", 0), index, height, len(rows))
    if offset and offset == index and height > 1 and rows[offset - 1][1] is None:
        offset -= 1  # with the heading that it stands below
    offsets["list"] = offset
    drawn = Drawing()
    for line, (title, card) in enumerate(rows[offset : offset + height]):
        if card is None:
            drawn.lines.append(Text(f"{title} ({len(columns[title])})", _STYLES[title]))
            continue
        name = out.pad(out.truncate(names[card.id], name_width), name_width)
        age = out.age(evidence_time(card.session), now)
        head = f"{_card_mark(card)} {name}  {out.one_line(card.session['status']):<{states}}  {age:>6}  "
        style = "reverse" if card.id == selected else "dim" if card.is_quiet or title == "Done" else ""
        drawn.lines.append(Text(_fit_and_pad(head + main_text(card), width), style))
        drawn.areas.append((line, 0, width, card.id))
    above, below = (sum(card is not None for _, card in part) for part in (rows[:offset], rows[offset + height :]))
    drawn.hidden_text = _hidden_text(above, below)
    return drawn


def _draw_columns(
    columns: Columns, selected: str | None, width: int, height: int, now: datetime, offsets: dict[str, int]
) -> Drawing:
    names = _short_names(columns)
    column_width = (width - len(columns) + 1) // len(columns)
    drawn = Drawing([Text() for _ in range(height)])
    for number, (title, cards) in enumerate(columns.items()):
        visible = max(1, (height - 1) // _CARD_HEIGHT)
        index = next((place for place, card in enumerate(cards) if card.id == selected), None)
        offset = offsets[title] = scroll_offset(offsets.get(title, 0), index, visible, len(cards))
        lines = [Text(_fit_and_pad(f"{title} ({len(cards)})", column_width), _STYLES[title])]
        for card in cards[offset : offset + visible]:
            first = number * (column_width + 1)
            drawn.areas += [(len(lines) + row, first, first + column_width, card.id) for row in range(_CARD_HEIGHT - 1)]
            lines += _card_lines(card, names[card.id], column_width, now, selected=card.id == selected)
        if (hidden := _hidden_text(offset, len(cards) - offset - visible)) and len(lines) > 1:
            lines[-1] = Text(_fit_and_pad(f"  … {hidden}", column_width), "dim")
        for row in range(height):
            if number:
                drawn.lines[row].append("│", "dim")
            drawn.lines[row].append_text(lines[row] if row < len(lines) else Text(" " * column_width))
    return drawn


def _card_lines(card: Card, name: str, width: int, now: datetime, *, selected: bool) -> list[Text]:
    session = card.session
    age = out.age(evidence_time(session), now)
    rows = (f"{_card_mark(card)} {name}", f"  {out.one_line(session['status'])}, {age}", f"  {main_text(card)}")
    selected_style = "reverse" if selected else ""
    detail_style = selected_style or "dim"
    styles = (
        selected_style or ("dim" if card.is_quiet else "bold"),
        selected_style or ("dim" if card.is_quiet else ""),
        detail_style,
    )
    lines = [Text(_fit_and_pad(row, width), style) for row, style in zip(rows, styles, strict=True)]
    return [*lines, Text(" " * width)]


def _hidden_text(above: int, below: int) -> str:
    return ", ".join(filter(None, (f"{above} above" if above else "", f"{below} below" if below > 0 else "")))


def key_line(hints: Sequence[str], width: int) -> Text:
    """Return as many of the hints as fit the width."""
    line = ""
    for hint in hints:
        longer = f"{line}  {hint}" if line else hint
        if out.display_width(longer) > width:
            break
        line = longer
    return Text(line, "dim")


def separator_line(more: str, width: int) -> Text:
    """Return the line between board and terminal, with the count of hidden entries."""
    begin = f"── {more} " if more else ""
    return Text(out.truncate(begin + "─" * (width - len(begin)), width), "dim")


def _fit_and_pad(text: str, width: int) -> str:
    return out.pad(out.truncate(text, width), width)


def header_line(
    fleet: BoardState, columns: Columns, project: str | None, filter_text: str, away: str, width: int
) -> Text:
    """Return the first line: the project, the number of working agents, and whether the daemon can be reached."""
    parts = ["ao top", out.one_line(project or "all projects")]
    if filter_text:
        parts.append(f"filter: {out.one_line(filter_text)}")
    if fleet.is_ready:
        limit = fleet.overview.get("limit")
        active = fleet.overview.get("active") or 0
        parts.append(f"{active}{f' of {limit}' if limit else ''} at work")
        calling = sum(not card.is_quiet for card in columns["Needs you"])
        parts.append(f"{calling} need{'s' if calling == 1 else ''} you" if calling else "nothing calls you")
        if usd := (fleet.overview.get("today") or {}).get("usd"):
            parts.append(f"${usd:.2f} today")
    if away:
        text = f" the daemon is away: {out.one_line(away)}. Waiting for it (ao start)"
        return Text(_fit_and_pad(text, width), "bold reverse red")
    return Text(_fit_and_pad("  ".join(parts), width), "bold")


def preview_lines(
    session: Session, questions: Sequence[Question], screen: str | None, size: tuple[int, int], now: datetime
) -> list[Text]:
    """Return one session: its state, what it waits for, and the end of its screen."""
    width, height = size
    details = (
        session["id"],
        session["status"],
        f"seen {out.age(evidence_time(session), now)} ago",
        session.get("branch"),
        session.get("profile") or session.get("agent"),
        pull_request_text(session),
        progress_text(session),
    )
    line = "  ".join(out.one_line(item) for item in details if item)
    lines = [Text(out.truncate(line, width), "bold")]
    if session.get("title"):
        lines.append(Text(out.truncate(out.one_line(session["title"]), width)))
    lines += [Text(out.truncate(f"? {_question_text(item)}", width), "yellow") for item in questions[:3]]
    if not questions and (wait_text := waiting_text(session)):
        lines.append(Text(out.truncate(wait_text, width), "yellow"))
    remaining = height - len(lines)
    screen_end = screen_lines(screen or "")[-remaining:] if remaining > 0 else []
    return [*lines[:height], *(Text(out.truncate(item, width), "dim") for item in screen_end)]


def _question_text(question: Mapping[str, object]) -> str:
    return out.one_line(str(question.get("text")).replace("\n", " ⏎ "))


def clean_lines(text: object) -> list[str]:
    """Return untrusted text as lines without tabs and control characters."""
    return [out.clean(line.expandtabs(8)) for line in str(text).splitlines()]


def screen_lines(text: str) -> list[str]:
    """Return a terminal's screen without the empty lines at its end and repeated empty lines."""
    kept: list[str] = []
    for line in map(str.rstrip, clean_lines(text)):
        if line or (kept and kept[-1]):
            kept.append(line)
    return kept[:-1] if kept and not kept[-1] else kept
