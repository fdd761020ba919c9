"""Text from outside as plain text: what a terminal would obey or a reader would not see is taken out. Pure.

Whatever others wrote goes through here before it is kept, shown, sent or typed.
"""

from __future__ import annotations

import json
import re
import unicodedata

UNSEEN = (
    "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u206f"
    "\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a\\U000e0000-\\U000e0fff"
)
"""Characters that nobody sees but a program reads, as the inside of a character class: directions, zero widths, fillers, tags. What
joins letters (U+200C, U+200D) stays."""
LONGEST_LINE = 500
INTERPRETED = re.compile(r"""[`$;|&<>"'\\#*?()\x00-\x1f\x7f-\x9f\u2028\u2029]""")
"""What a shell or tmux would not take for itself in a path."""

_NOT_TEXT = re.compile(
    r"\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b\n]*\x1b\\"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, the brackets of a paste
    r"|\x1b[ -/]*[0-~]?"
    rf"|[\x00-\x08\x0b-\x1f\x7f-\x9f{UNSEEN}]"
)
_LINE_END = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MENTION = re.compile(r"(?<![\w.])@(?=\w)")
_CLOSING = re.compile(
    r"\b((?:clos|fix|resolv|implement)(?:e[sd]?|ing|s|ed)?)(?=:?\s+(?:\S*#\d|GH-\d|https?://|[A-Z][A-Z0-9]+-\d))",
    re.IGNORECASE,
)
_COMMAND = re.compile(r"^([ \t>]*/)(?=[a-z][\w-]*(?![\w/.-]))", re.IGNORECASE | re.MULTILINE)
"""A line that GitLab, or a bot, does in the name of who wrote it: `/approve`, `/merge`. A path is none."""
_NO_CHECKS = re.compile(
    r"(\[)(?=(?:skip|no|ci|actions?)[ -](?:ci|actions?|skip)\])|(\*)(?=\*\*NO_CI\*)|^(s)(?=kip-checks:)",
    re.IGNORECASE | re.MULTILINE,
)
"""By these words in a commit's message its checks are not run."""


def clean_text(text: str) -> str:
    """Strip what a terminal would obey or a reader would not see: only text, line feeds and tabs stay."""
    text = _LINE_END.sub("\n", text)
    return _LONE_SURROGATE.sub("\ufffd", _NOT_TEXT.sub("", text))


def writable(text: str) -> str:
    """The same with a mark for each half of a character that was cut in two: no file, no database and no terminal takes one."""
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """The same as one line of at most so many characters."""
    line = " ".join(clean_text(text).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def without_orders(text: str) -> str:
    """Words of others for a forge: nobody is called by them, no issue closed, nothing done in our name and no check left out. It reads
    the same; U+200C stands inside the word."""
    text = _NO_CHECKS.sub(lambda found: f"{found[0]}\u200c", without_commands(text))
    return _MENTION.sub("@\u200c", _CLOSING.sub(lambda found: f"{found[1][0]}\u200c{found[1][1:]}", text))


def without_commands(text: str) -> str:
    """No line of it is a command to the forge."""
    return _COMMAND.sub("\\1\u200c", text)


def file_name(path: str) -> str:
    """A file's name as one word: what would look like anything else is written as in JSON."""
    short = path if len(path) <= LONGEST_LINE else f"{path[:LONGEST_LINE]}…"
    return short if short == clean_text(short) and short.isprintable() and " " not in short else json.dumps(short)


def is_seen(character: str) -> bool:
    """Is it shown as what it is: no control character, none that is invisible or turns the direction of text?"""
    if character == " ":
        return True
    return unicodedata.category(character)[0] not in "CZ" and character not in _EMPTY


_EMPTY = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters by their category, and yet nothing is seen of them."""


def visible(text: str) -> str:
    """A text in which every character is seen: others are written as their number. Two texts never look the same for it."""
    return "".join(
        character
        if character in "\n\t" or (is_seen(character) and character not in "⟦⟧")
        else f"⟦U+{ord(character):04X}⟧"
        for character in text
    )
