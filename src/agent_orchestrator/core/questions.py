"""Does the end of a turn ask a person something? Pure."""

from __future__ import annotations

import re
from bisect import bisect_right

LONGEST = 2000

_FENCE = "```"
_AFTER_QUESTION = '*_`")]\u201d\u2019'
_POLITE = re.compile(
    r"(anything else|any(thing)? (more|further|other)|let me know|feel free|want me to (also|further|continue)|is there anything)",
    re.IGNORECASE,
)
"""An offer at the end of finished work is courtesy, not a question that work waits for."""


def question_in(text: str) -> str:
    """The question that a turn's last words end with, as it was put; nothing where it ends with none."""
    prose = _without_code(text).strip()
    paragraphs = [part.strip() for part in re.split(r"\n[ \t]*\n", prose) if part.strip()]
    if not paragraphs:
        return ""
    last = _paragraph_that_asks(paragraphs)
    if last is None or _POLITE.search(_last_sentence(last)):
        return ""
    return last[-LONGEST:]


def _without_code(text: str) -> str:
    """The text without its fenced blocks; one that nothing closes is text."""
    lines = text.split("\n")
    closing = [number for number, line in enumerate(lines) if line.rstrip(" ") == _FENCE]
    kept: list[str] = []
    at = 0
    for number, line in enumerate(lines):
        if number < at:
            continue
        after = bisect_right(closing, number) if line.startswith(_FENCE) else len(closing)
        if after < len(closing):
            at = closing[after] + 1
            kept.append("")
        else:
            kept.append(line)
    return "\n".join(kept)


def _paragraph_that_asks(paragraphs: list[str]) -> str | None:
    """The last paragraph, or the one before a closing list of choices."""
    last = paragraphs[-1]
    if _asks(last):
        return last
    lines = last.splitlines()
    listed = [line for line in lines if re.match(r"\s*([-*+]|\d+[.)]|[a-zA-Z][.)])\s", line)]
    if len(listed) == len(lines) and len(paragraphs) > 1 and _asks(paragraphs[-2]):
        return f"{paragraphs[-2]}\n\n{last}"
    first = lines[0] if lines else ""
    return last if len(listed) == len(lines) - 1 and listed and _asks(first) else None


def _asks(paragraph: str) -> bool:
    end = len(paragraph)
    while end and (paragraph[end - 1].isspace() or paragraph[end - 1] in _AFTER_QUESTION):
        end -= 1
    return paragraph.endswith(("?", "\uff1f", "\u061f"), 0, end)


def _last_sentence(paragraph: str) -> str:
    return re.split(r"(?<=[.!?])\s+", paragraph.strip())[-1]
