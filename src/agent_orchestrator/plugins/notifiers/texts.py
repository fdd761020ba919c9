"""What notifications say, cut and escaped for whoever shows them. Pure.

Titles and messages hold words of strangers: issues, comments, logs. So control characters go, and what the receiver's markup would obey
(a mention of everybody, a link under other words) is written so that it is only read.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agent_orchestrator.protocols import Notification, NotificationAction
from agent_orchestrator.protocols.text import clean_text, one_line

_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~@:])")
_CALLING = re.compile(r"(?<!\w)@(?=\w)|<(?=[!@#&/])")


def units(text: str) -> int:
    """Its length as the strictest receivers count: a character beyond the basic plane is two."""
    return len(text) + sum(ord(character) > 0xFFFF for character in text)


def cut(text: str, most: int, escape: Callable[[str], str] = str) -> str:
    """The text, escaped, with at most so many characters; where something had to go it says so by `…`."""
    text = text.strip()
    if units(escaped := escape(text)) <= most:
        return escaped
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if units(escape(text[:middle])) < most else (low, middle - 1)
    return f"{escape(text[:low].rstrip())}…"


def title(notification: Notification, most: int, escape: Callable[[str], str] = str) -> str:
    """Its title as one line; never empty."""
    return cut(one_line(notification.title, 10_000) or "Agent Orchestrator", most, escape)


def message(notification: Notification, most: int, escape: Callable[[str], str] = str) -> str:
    """Its message without control characters."""
    return cut(clean_text(notification.message), most, escape)


def is_whole(notification: Notification, most: int, escape: Callable[[str], str] = str) -> bool:
    """Whether its message has room there as it is."""
    return units(escape(clean_text(notification.message).strip())) <= most


def about(notification: Notification) -> list[tuple[str, str]]:
    """What it is about, in few words: level, project, session, id."""
    known = [
        ("Level", notification.level),
        ("Project", notification.project or ""),
        ("Session", notification.session_id or ""),
        ("Id", notification.id),
    ]
    return [(name, one_line(value, 200)) for name, value in known if value]


def as_text(notification: Notification, most: int) -> str:
    """All of it as plain text, for receivers that know nothing else: the message, then what can be done at which address."""
    links = [f"{action.label}: {action.url}" for action in actions(notification)]
    tail = "\n".join(["", *links]) if links else ""
    if units(tail) >= most // 2:
        tail = ""
    return message(notification, most - units(tail)) + tail


def actions(notification: Notification) -> list[NotificationAction]:
    """What can be done about it: opening it first."""
    opening = [NotificationAction("open", "Open", notification.url)] if notification.url else []
    return [*opening, *notification.actions]


def for_slack(text: str) -> str:
    """For Slack's mrkdwn: what begins a mention or a link is only shown."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def for_markdown(text: str) -> str:
    """For Discord's Markdown: every character that means something is only shown."""
    return _MARKDOWN.sub(r"\\\1", text)


def for_markup(text: str) -> str:
    """For desktops, which may know a little HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def for_anybody(text: str) -> str:
    """For a receiver whose markup is not known: no word of it calls anybody. It reads the same; U+200C stands inside."""
    return _CALLING.sub(lambda found: f"{found[0]}\u200c", text)
