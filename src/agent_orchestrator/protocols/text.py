"""Converts text from outside to plain text: removes what a terminal would interpret or a reader would not see. Pure.

All text written by others goes through here before it is stored, shown, sent or typed.
"""

from __future__ import annotations

import json
import re
import unicodedata

INVISIBLE_CHARACTERS = (
    "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f"
    "\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
"""Characters that a reader does not see but a program reads, as the inside of a character class: directions, zero widths, fillers,
tags. What joins letters (U+200C, U+200D) stays."""
MAX_LINE_LENGTH = 500
SHELL_CHARACTERS = re.compile(r"""[`$;|&<>"'\\#*?()\x00-\x1f\x7f-\x9f\u2028\u2029]""")
"""Characters in a path that a shell or tmux would interpret."""

_NOT_TEXT = re.compile(
    r"\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b\n]*\x1b\\"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, the brackets of a paste
    r"|\x1b[ -/]*[0-~]?"
    rf"|[\x00-\x08\x0b-\x1f\x7f-\x9f{INVISIBLE_CHARACTERS}]"
)
_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MENTION = re.compile(r"(?<![\w.])@(?=\w)")
_ISSUE_CLOSING = re.compile(
    r"\b((?:clos|fix|resolv|implement)(?:e[sd]?|ing|s|ed)?)(?=:?\s+(?:\S*#\d|GH-\d|https?://|[A-Z][A-Z0-9]+-\d))",
    re.IGNORECASE,
)
_COMMAND = re.compile(r"^([ \t>]*/)(?=[a-z][\w-]*(?![\w/.-]))", re.IGNORECASE | re.MULTILINE)
"""A line that GitLab, or a bot, executes in the name of its author: `/approve`, `/merge`. A path is not one."""
_SKIP_CHECKS = re.compile(
    r"(\[)(?=(?:skip|no|ci|actions?)[ -](?:ci|actions?|skip)\])|(\*)(?=\*\*NO_CI\*)|^(s)(?=kip-checks:)",
    re.IGNORECASE | re.MULTILINE,
)
"""Words in a commit message that keep its checks from running."""


def clean_text(text: str) -> str:
    """Return a text without what a terminal would interpret or a reader would not see: only text, line feeds and tabs stay."""
    text = _LINE_END.sub("\n", text)
    return _LONE_SURROGATE.sub("\ufffd", _NOT_TEXT.sub("", text))


def replace_lone_surrogates(text: str) -> str:
    """Return a text with each lone surrogate replaced by U+FFFD: files, databases and terminals do not accept lone surrogates."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def one_line(text: str, most: int = MAX_LINE_LENGTH) -> str:
    """Return a text as one line of at most so many characters."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def neutralize_forge_commands(text: str) -> str:
    """Return text of others so that it causes no action at a forge: no mention notifies anyone, no issue is closed, no
    command is run in our name, no check is skipped.

    It reads the same; U+200C is inserted into the words.
    """
    text = _SKIP_CHECKS.sub(lambda match: f"{match[0]}\u200c", without_commands(text))
    return _MENTION.sub("@\u200c", _ISSUE_CLOSING.sub(lambda match: f"{match[1][0]}\u200c{match[1][1:]}", text))


def without_commands(text: str) -> str:
    """Return a text in which no line is a command to the forge."""
    return _COMMAND.sub("\\1\u200c", text)


def quote_file_name(path: str) -> str:
    """Return a file's name as one word: what would look like anything else is written as in JSON."""
    shortened = path if len(path) <= MAX_LINE_LENGTH else f"{path[:MAX_LINE_LENGTH]}…"
    return (
        shortened
        if shortened == clean_text(shortened) and shortened.isprintable() and " " not in shortened
        else json.dumps(shortened)
    )


def is_visible(character: str) -> bool:
    """Return whether a character is visible as itself: not a control character, invisible, or one that changes the direction of text."""
    if character == " ":
        return True
    return unicodedata.category(character)[0] not in "CZ" and character not in _BLANK_LETTERS


_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters by their Unicode category that are invisible nevertheless."""


def make_visible(text: str) -> str:
    """Return a text in which every character is visible: others are written as their number, so that no two different
    texts look the same because of them.
    """
    return "".join(
        character
        if character in "\n\t" or (is_visible(character) and character not in "⟦⟧")
        else f"⟦U+{ord(character):04X}⟧"
        for character in text
    )
