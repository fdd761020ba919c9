"""Jira's document format beside plain text with Markdown's simplest signs. Pure.

Jira's cloud has no texts but trees of nodes. What people wrote becomes Markdown that an agent can read; what we write becomes
paragraphs, headings, lists, code and links. Nodes that are not known give their text, or their address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

DEEPEST = 40
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_BULLET = re.compile(r"\s*[-*+]\s+(\S.*)")
_NUMBERED = re.compile(r"\s*(\d{1,9})[.)]\s+(\S.*)")
_INLINE = re.compile(
    r"`(?P<code>[^`\n]+)`"
    r"|\[(?P<text>[^\[\]\n]+)\]\((?P<to>https?://[^\s)]+)\)"
    r"|\*\*(?P<strong>[^*\n]+)\*\*"
    r"|(?P<url>https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?])"
)
_MARKS = {"strong": "**", "em": "_", "strike": "~~"}
_LISTED = ("bulletList", "orderedList", "taskList", "decisionList")


def to_adf(text: str) -> dict[str, Any]:
    """A text as a document."""
    return {"type": "doc", "version": 1, "content": _blocks(text.replace("\r\n", "\n").split("\n"))}


def _blocks(lines: Sequence[str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.lstrip().startswith("```"):
            end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == "```"), len(lines))
            blocks.append(_code("\n".join(lines[at + 1 : end]), line.strip()[3:].strip()))
            at = end + 1
        elif heading := _HEADING.fullmatch(line):
            content = _inline(heading[2])
            blocks.append({"type": "heading", "attrs": {"level": len(heading[1])}, "content": content})
            at += 1
        elif _BULLET.fullmatch(line) or _NUMBERED.fullmatch(line):
            kind = _BULLET if _BULLET.fullmatch(line) else _NUMBERED
            items = []
            while at < len(lines) and (found := kind.fullmatch(lines[at])):
                items.append(found)
                at += 1
            blocks.append(_list(items, numbered=kind is _NUMBERED))
        else:
            end = at + 1
            while end < len(lines) and lines[end].strip() and not _begins(lines[end]):
                end += 1
            content = []
            for number, part in enumerate(lines[at:end]):
                content += ([{"type": "hardBreak"}] if number else []) + _inline(part)
            blocks.append({"type": "paragraph", "content": content})
            at = end
    return blocks


def _begins(line: str) -> bool:
    """Does another block begin with this line?"""
    return line.lstrip().startswith("```") or any(one.fullmatch(line) for one in (_HEADING, _BULLET, _NUMBERED))


def _code(text: str, language: str) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "codeBlock"}
    if language:
        block["attrs"] = {"language": language}
    if text:
        block["content"] = [{"type": "text", "text": text}]
    return block


def _list(items: Sequence[re.Match[str]], *, numbered: bool) -> dict[str, Any]:
    content = [
        {"type": "listItem", "content": [{"type": "paragraph", "content": _inline(item[item.re.groups])}]}
        for item in items
    ]
    if numbered:
        return {"type": "orderedList", "attrs": {"order": int(items[0][1])}, "content": content}
    return {"type": "bulletList", "content": content}


def _inline(line: str) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = []
    at = 0
    for found in _INLINE.finditer(line):
        nodes += _text(line[at : found.start()])
        if found["code"]:
            nodes += _text(found["code"], {"type": "code"})
        elif found["strong"]:
            nodes += _text(found["strong"], {"type": "strong"})
        else:
            to = found["to"] or found["url"]
            nodes += _text(found["text"] or found["url"], {"type": "link", "attrs": {"href": to}})
        at = found.end()
    return nodes + _text(line[at:])


def _text(text: str, mark: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    if not text:
        return []
    return [{"type": "text", "text": text, "marks": [mark]} if mark else {"type": "text", "text": text}]


def from_adf(document: Any) -> str:
    """A document as a text; a text stays one."""
    if isinstance(document, str):
        return document
    return re.sub(r"\n{3,}", "\n\n", _block(document, 0)).strip("\n") if isinstance(document, Mapping) else ""


def addresses(document: Any) -> list[str]:
    """Where pictures and cards in a document lead to."""
    found: list[str] = []

    def look(node: Any, depth: int) -> None:
        if not isinstance(node, Mapping) or depth > DEEPEST:
            return
        url = _attrs(node).get("url")
        if node.get("type") in ("media", "mediaInline", "inlineCard", "blockCard", "embedCard") and isinstance(
            url, str
        ):
            found.append(url)
        for inner in _content(node):
            look(inner, depth + 1)

    look(document, 0)
    return found


def _block(node: Mapping[str, Any], depth: int) -> str:
    """A node that stands on lines of its own, and ends with an empty one."""
    if depth > DEEPEST:
        return ""
    kind, inner = str(node.get("type")), _content(node)
    if kind in ("paragraph", "heading"):
        text = "".join(_within(one, depth) for one in inner)
        level = _attrs(node).get("level")
        sign = "#" * level + " " if kind == "heading" and isinstance(level, int) and 0 < level < 7 else ""
        return f"{sign}{text}\n\n"
    if kind == "codeBlock":
        language = _attrs(node).get("language")
        text = "".join(str(one.get("text", "")) for one in inner)
        return f"```{language if isinstance(language, str) else ''}\n{text}\n```\n\n"
    if kind in _LISTED:
        return "".join(_item(kind, node, place, one, depth) for place, one in enumerate(inner)) + "\n"
    if kind == "blockquote":
        text = "".join(_block(one, depth + 1) for one in inner).strip("\n")
        return "\n".join(f"> {line}".rstrip() for line in text.split("\n")) + "\n\n"
    if kind == "rule":
        return "---\n\n"
    if kind == "tableRow":
        cells = ("".join(_block(cell, depth + 1) for cell in _content(one)) for one in inner)
        return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |\n"
    if inner:
        end = "\n" if kind == "table" else ""
        return "".join(_block(one, depth + 1) for one in inner) + end
    text = _within(node, depth)
    return f"{text}\n\n" if text else ""


def _item(kind: str, parent: Mapping[str, Any], place: int, node: Mapping[str, Any], depth: int) -> str:
    first = _attrs(parent).get("order")
    number = (first if isinstance(first, int) else 1) + place
    sign = f"{number}. " if kind == "orderedList" else "- "
    if kind == "taskList":
        sign += "[x] " if _attrs(node).get("state") == "DONE" else "[ ] "
    if kind in ("taskList", "decisionList"):
        text = "".join(_within(one, depth + 1) for one in _content(node))
    else:
        text = "".join(_block(one, depth + 1) for one in _content(node))
    lines = [line for line in text.strip("\n").split("\n") if line.strip()] or [""]
    return sign + ("\n" + " " * 2).join(lines) + "\n"


def _within(node: Mapping[str, Any], depth: int) -> str:
    """A node within a line."""
    if depth > DEEPEST:
        return ""
    kind, attrs = node.get("type"), _attrs(node)
    if kind == "text":
        return _marked(str(node.get("text", "")), node.get("marks"))
    if kind == "hardBreak":
        return "\n"
    if kind == "date":
        return str(attrs.get("timestamp") or "")
    for field in ("url", "text", "shortName", "alt", "title"):
        if isinstance(attrs.get(field), str) and attrs[field]:
            return str(attrs[field])
    return "".join(_within(one, depth + 1) for one in _content(node))


def _marked(text: str, marks: Any) -> str:
    for mark in marks if isinstance(marks, list) else ():
        kind = mark.get("type") if isinstance(mark, Mapping) else None
        if kind == "code":
            text = f"`{text}`"
        elif kind == "link":
            to = _attrs(mark).get("href")
            text = text if to == text or not isinstance(to, str) else f"[{text}]({to})"
        elif kind in _MARKS:
            text = f"{_MARKS[kind]}{text}{_MARKS[kind]}"
    return text


def _content(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = node.get("content")
    return [one for one in content if isinstance(one, Mapping)] if isinstance(content, list) else []


def _attrs(node: Mapping[str, Any]) -> Mapping[str, Any]:
    attrs = node.get("attrs")
    return attrs if isinstance(attrs, Mapping) else {}
