"""Recognize whether the end of an agent's turn asks a person a question. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right

MAX_QUESTION_LENGTH = 2000
"""Longest question that is returned, in characters from its end."""

_FENCE = "```"
_AFTER_QUESTION = '*_`")]\u201d\u2019'
_POLITE_OFFER = re.compile(
    r"(anything else|any(thing)? (more|further|other)|let me know|feel free|want me to (also|further|continue)|is there anything)",
    re.IGNORECASE,
)
"""A polite offer at the end of finished work is not a question that the work waits for."""


def find_question(text: str) -> str:
    """Return the question that a turn's text ends with, or "" if it ends without one."""
    prose = _without_code(text).strip()
    paragraphs = [part.strip() for part in re.split(r"\n[ \t]*\n", prose) if part.strip()]
    if not paragraphs:
        return ""
    paragraph = _question_paragraph(paragraphs)
    if paragraph is None or _POLITE_OFFER.search(_last_sentence(paragraph)):
        return ""
    return paragraph[-MAX_QUESTION_LENGTH:]


def _without_code(text: str) -> str:
    """Return the text without its fenced code blocks; a block that is not closed counts as text."""
    lines = text.split("\n")
    closing = [number for number, line in enumerate(lines) if line.rstrip(" ") == _FENCE]
    prose: list[str] = []
    skip_until = 0
    for number, line in enumerate(lines):
        if number < skip_until:
            continue
        closing_index = bisect_right(closing, number) if line.startswith(_FENCE) else len(closing)
        if closing_index < len(closing):
            skip_until = closing[closing_index] + 1
            prose.append("")
        else:
            prose.append(line)
    return "\n".join(prose)


def _question_paragraph(paragraphs: list[str]) -> str | None:
    """Return the last paragraph if it asks a question, together with the one before it if it only lists choices, or None."""
    last = paragraphs[-1]
    if _is_question(last):
        return last
    lines = last.splitlines()
    list_items = [line for line in lines if re.match(r"\s*([-*+]|\d+[.)]|[a-zA-Z][.)])\s", line)]
    if len(list_items) == len(lines) and len(paragraphs) > 1 and _is_question(paragraphs[-2]):
        return f"{paragraphs[-2]}\n\n{last}"
    first_line = lines[0] if lines else ""
    return last if len(list_items) == len(lines) - 1 and list_items and _is_question(first_line) else None


def _is_question(paragraph: str) -> bool:
    """Return whether a paragraph ends with a question mark, ignoring closing quotes and markup."""
    end = len(paragraph)
    while end and (paragraph[end - 1].isspace() or paragraph[end - 1] in _AFTER_QUESTION):
        end -= 1
    return paragraph.endswith(("?", "\uff1f", "\u061f"), 0, end)


def _last_sentence(paragraph: str) -> str:
    """Return the last sentence of a paragraph."""
    return re.split(r"(?<=[.!?])\s+", paragraph.strip())[-1]
