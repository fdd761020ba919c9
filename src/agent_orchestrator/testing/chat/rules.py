"""The published rules of chat services as pure functions: a message in, its violations out.

Lengths are counted in UTF-16, the strictest way in which services count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b]")
_SLACK_CALL = re.compile(r"<[!@#]")
_DISCORD_CALL = re.compile(r"(?<!\\)@(everyone|here)|(?<!\\)<@[!&]?\d+>")
_LEVELS = ("urgent", "action", "warning", "info")


def utf16_length(text: str) -> int:
    """Return the length of a text in UTF-16 code units."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def violations(kind: str, body: Any) -> list[str]:
    """Return the violations of a message to `slack`, `discord`, `webhook`, `composio` or `openclaw`; empty if there are none."""
    if not isinstance(body, Mapping):
        return ["the body is no JSON object"]
    problems = list(_KINDS[kind](body))
    return problems + [f"a control character in {text[:40]!r}" for text in all_texts(body) if _CONTROL.search(text)]


def find_mentions(kind: str, body: Mapping[str, Any]) -> list[str]:
    """Return the texts that would mention people: `<!channel>` in Slack, `@everyone` in Discord."""
    if kind == "discord":
        if body.get("allowed_mentions") == {"parse": []}:
            return []
        return [text for text in all_texts(body) if _DISCORD_CALL.search(text)]
    return [text for text in all_texts(body) if _SLACK_CALL.search(text)]


def all_texts(value: Any) -> Iterator[str]:
    """Yield every text in a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from all_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from all_texts(inner)


def _length(what: str, text: Any, most: int, least: int = 1) -> Iterator[str]:
    if not isinstance(text, str):
        yield f"{what} is no text"
    elif not least <= utf16_length(text) <= most:
        yield f"{what} has {utf16_length(text)} characters, not {least} to {most}"


# -- Slack: https://docs.slack.dev/reference/block-kit/blocks ------------------------------------------------------------


def _slack(body: Mapping[str, Any]) -> Iterator[str]:
    yield from _length("text", body.get("text"), 40_000)
    blocks = body.get("blocks", [])
    if not isinstance(blocks, list) or len(blocks) > 50:
        yield "there are over 50 blocks"
        return
    ids = [
        element.get("action_id") for block in blocks for element in block.get("elements", []) if "action_id" in element
    ]
    if len(ids) != len(set(ids)):
        yield "an action_id is there twice"
    for block in blocks:
        check = _BLOCKS.get(block.get("type"))
        if check is None:
            yield f"there is no block {block.get('type')!r}"
        else:
            yield from check(block)


def _text_object(what: str, text: Any, most: int, kinds: tuple[str, ...]) -> Iterator[str]:
    if not isinstance(text, Mapping) or text.get("type") not in kinds:
        yield f"{what} is no {' or '.join(kinds)}"
        return
    yield from _length(what, text.get("text"), most)
    if set(text) - {"type", "text", "emoji", "verbatim"}:
        yield f"{what} has keys that nobody knows"
    if "emoji" in text and text["type"] != "plain_text":
        yield f"{what}: emoji belongs to plain_text"
    if "verbatim" in text and text["type"] != "mrkdwn":
        yield f"{what}: verbatim belongs to mrkdwn"


def _header(block: Mapping[str, Any]) -> Iterator[str]:
    yield from _text_object("a header", block.get("text"), 150, ("plain_text",))


def _section(block: Mapping[str, Any]) -> Iterator[str]:
    yield from _text_object("a section", block.get("text"), 3000, ("plain_text", "mrkdwn"))


def _context(block: Mapping[str, Any]) -> Iterator[str]:
    elements = block.get("elements", [])
    if not 1 <= len(elements) <= 10:
        yield f"a context has {len(elements)} elements, not 1 to 10"
    for element in elements:
        yield from _text_object("a context's text", element, 3000, ("plain_text", "mrkdwn"))


def _actions(block: Mapping[str, Any]) -> Iterator[str]:
    elements = block.get("elements", [])
    if not 1 <= len(elements) <= 25:
        yield f"actions have {len(elements)} elements, not 1 to 25"
    for element in elements:
        if element.get("type") != "button":
            yield f"there is no element {element.get('type')!r} here"
            continue
        yield from _text_object("a button", element.get("text"), 75, ("plain_text",))
        yield from _length("action_id", element.get("action_id"), 255)
        if "value" in element:
            yield from _length("a button's value", element["value"], 2000)
        if "url" in element:
            yield from _length("a button's url", element["url"], 3000)
        if element.get("style", "primary") not in ("primary", "danger"):
            yield f"there is no style {element['style']!r}"


_BLOCKS: Mapping[Any, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "header": _header,
    "section": _section,
    "context": _context,
    "actions": _actions,
    "divider": lambda _block: iter(()),
}


# -- Discord: https://discord.com/developers/docs/resources/webhook and …/message#embed-object-embed-limits ----------------


def _discord(body: Mapping[str, Any]) -> Iterator[str]:
    if not body.get("content") and not body.get("embeds"):
        yield "neither content nor embeds"
    if "content" in body:
        yield from _length("content", body["content"], 2000)
    if "username" in body:
        yield from _length("username", body["username"], 80)
        if re.search("discord|clyde", str(body["username"]), re.IGNORECASE):
            yield "a username that is not allowed"
    embeds = body.get("embeds", [])
    if len(embeds) > 10:
        yield "over 10 embeds"
    total = 0
    for embed in embeds:
        yield from _embed(embed)
        counted = [embed.get("title", ""), embed.get("description", ""), embed.get("footer", {}).get("text", "")]
        counted += [embed.get("author", {}).get("name", "")]
        counted += [
            text
            for embed_field in embed.get("fields", [])
            for text in (embed_field.get("name", ""), embed_field.get("value", ""))
        ]
        total += sum(map(utf16_length, counted))
    if total > 6000:
        yield f"the embeds have {total} characters together, not at most 6000"


def _embed(embed: Mapping[str, Any]) -> Iterator[str]:
    for key, most in (("title", 256), ("description", 4096)):
        if embed.get(key):
            yield from _length(key, embed[key], most)
    if "footer" in embed:
        yield from _length("footer", embed["footer"].get("text"), 2048)
    if "url" in embed and not str(embed["url"]).startswith(("http://", "https://")):
        yield "an embed's url is none of the web"
    if not 0 <= embed.get("color", 0) <= 0xFFFFFF:
        yield "a colour that is none"
    if "timestamp" in embed:
        try:
            datetime.fromisoformat(embed["timestamp"])
        except ValueError:
            yield "a timestamp that is none"
    fields = embed.get("fields", [])
    if len(fields) > 25:
        yield f"{len(fields)} fields, not at most 25"
    for field in fields:
        yield from _length("a field's name", field.get("name"), 256)
        yield from _length("a field's value", field.get("value"), 1024)


# -- ours, Composio, OpenClaw --------------------------------------------------------------------------------------------

_DOCUMENTED: Mapping[str, tuple[type, ...]] = {
    "version": (int,),
    "id": (str,),
    "title": (str,),
    "message": (str,),
    "level": (str,),
    "trigger": (str, type(None)),
    "session": (str, type(None)),
    "project": (str, type(None)),
    "time": (str,),
    "url": (str, type(None)),
    "actions": (list,),
}


def _webhook(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield violations of the schema in docs/notifiers.md."""
    if set(body) != set(_DOCUMENTED):
        yield f"other keys than the documented ones: {sorted(set(body) ^ set(_DOCUMENTED))}"
    for key, kinds in _DOCUMENTED.items():
        if not isinstance(body.get(key), kinds):
            yield f"{key} is {body.get(key)!r}"
    if body.get("level") not in _LEVELS:
        yield f"there is no level {body.get('level')!r}"
    if any(set(action) != {"name", "label", "url"} for action in body.get("actions") or ()):
        yield "an action with other keys than name, label and url"


_ARGUMENTS = {
    "SLACK_SEND_MESSAGE": {"channel", "text"},
    "DISCORDBOT_CREATE_MESSAGE": {"channel_id", "content"},
    "GMAIL_SEND_EMAIL": {"recipient_email", "subject", "body"},
}


def _composio(body: Mapping[str, Any]) -> Iterator[str]:
    tool, arguments = body.get("tool"), body.get("arguments")
    if set(body) - {"tool", "arguments", "user_id", "version", "connected_account_id"}:
        yield "keys that nobody knows"
    if not isinstance(arguments, Mapping) or set(arguments) != _ARGUMENTS.get(str(tool), set()):
        yield f"{tool} does not take these arguments"
        return
    yield from _length("user_id", body.get("user_id"), 200)
    if "content" in arguments:
        yield from _length("content", arguments["content"], 2000)


def _openclaw(body: Mapping[str, Any]) -> Iterator[str]:
    known_keys = {
        "message",
        "name",
        "agentId",
        "sessionKey",
        "wakeMode",
        "deliver",
        "channel",
        "to",
        "model",
        "thinking",
    }
    if set(body) - known_keys - {"timeoutSeconds"}:
        yield "keys that nobody knows"
    yield from _length("message", body.get("message"), 1_000_000)
    if body.get("wakeMode", "now") not in ("now", "next-heartbeat"):
        yield f"there is no wakeMode {body['wakeMode']!r}"
    if not isinstance(body.get("deliver", True), bool):
        yield "deliver is neither true nor false"


_KINDS: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "slack": _slack,
    "discord": _discord,
    "webhook": _webhook,
    "composio": _composio,
    "openclaw": _openclaw,
    "other": lambda _body: iter(()),
}
