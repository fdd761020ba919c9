"""Formats the texts of notifications: shortened and escaped for each receiver. Pure.

Titles and messages contain text of strangers: issues, comments, logs. So control characters are removed, and what the receiver's markup
would interpret (a mention of everyone, a link behind another text) is escaped so that it is only shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from agent_orchestrator.protocols import Notification, NotificationAction
from agent_orchestrator.protocols.text import clean_text, one_line

_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~@:])")
_MENTION = re.compile(r"(?<!\w)@(?=\w)|<(?=[!@#&/])")


def utf16_length(text: str) -> int:
    """Return the text's length as the strictest receivers count it: a character beyond the basic plane is two."""
    return len(text) + sum(ord(character) > 0xFFFF for character in text)


def shorten(text: str, most: int, escape: Callable[[str], str] = str) -> str:
    """Return the text, escaped, with at most `most` characters; a shortened text ends with `…`."""
    text = text.strip()
    if utf16_length(escaped := escape(text)) <= most:
        return escaped
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if utf16_length(escape(text[:middle])) < most else (low, middle - 1)
    return f"{escape(text[:low].rstrip())}…"


def title(notification: Notification, most: int, escape: Callable[[str], str] = str) -> str:
    """Return the notification's title as one line; never empty."""
    return shorten(one_line(notification.title, 10_000) or "Agent Orchestrator", most, escape)


def message(notification: Notification, most: int, escape: Callable[[str], str] = str) -> str:
    """Return the notification's message without control characters."""
    return shorten(clean_text(notification.message), most, escape)


def is_whole(notification: Notification, most: int, escape: Callable[[str], str] = str) -> bool:
    """Return whether the whole message fits."""
    return utf16_length(escape(clean_text(notification.message).strip())) <= most


def details(notification: Notification) -> list[tuple[str, str]]:
    """Return what the notification is about, as pairs: level, project, session, id."""
    details = [
        ("Level", notification.level),
        ("Project", notification.project or ""),
        ("Session", notification.session_id or ""),
        ("Id", notification.id),
    ]
    return [(name, one_line(value, 200)) for name, value in details if value]


def as_text(notification: Notification, most: int) -> str:
    """Return the notification as plain text, for receivers without markup: the message, then its actions with their addresses."""
    links = [f"{action.label}: {action.url}" for action in actions(notification)]
    tail = "\n".join(["", *links]) if links else ""
    if utf16_length(tail) >= most // 2:
        tail = ""
    return message(notification, most - utf16_length(tail)) + tail


def actions(notification: Notification) -> list[NotificationAction]:
    """Return what can be done about the notification; opening it comes first."""
    opening = [NotificationAction("open", "Open", notification.url)] if notification.url else []
    return [*opening, *notification.actions]


def escape_slack(text: str) -> str:
    """Return the text escaped for Slack's mrkdwn: mentions and links are only shown."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escape_markdown(text: str) -> str:
    """Return the text escaped for Discord's Markdown: every special character is only shown."""
    return _MARKDOWN_SPECIAL.sub(r"\\\1", text)


def escape_markup(text: str) -> str:
    """Return the text escaped for desktops, which may support some HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def without_mentions(text: str) -> str:
    """Return the text for a receiver whose markup is unknown: it mentions no one. It reads the same; U+200C is inserted."""
    return _MENTION.sub(lambda match: f"{match[0]}\u200c", text)
