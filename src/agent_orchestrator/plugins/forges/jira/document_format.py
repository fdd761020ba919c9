"""Convert between Jira's document format and text with simple Markdown. Pure.

Jira's cloud stores trees of nodes instead of texts. A document becomes Markdown that an agent can read; a text becomes paragraphs,
headings, lists, code and links. An unknown node is shown as its text or its URL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

MAX_NESTING = 40
"""The nesting beyond which nodes are ignored."""
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_BULLET = re.compile(r"\s*[-*+]\s+(\S.*)")
_NUMBERED = re.compile(r"\s*(\d{1,9})[.)]\s+(\S.*)")
_INLINE = re.compile(
    r"`(?P<code>[^`\n]+)`"
    r"|\[(?P<text>[^\[\]\n]+)\]\((?P<to>https?://[^\s)]+)\)"
    r"|\*\*(?P<strong>[^*\n]+)\*\*"
    r"|(?P<url>https?://[^\s<>\"')\]]*[^\s<>\"')\].,;:!?])"
)
_MARKDOWN_SIGNS = {"strong": "**", "em": "_", "strike": "~~"}
"""The Markdown signs of a mark."""
_LIST_TYPES = ("bulletList", "orderedList", "taskList", "decisionList")
"""The types of nodes whose children are list items."""


def to_adf(text: str) -> dict[str, Any]:
    """Return a text as a document."""
    return {"type": "doc", "version": 1, "content": _blocks(text.replace("\r\n", "\n").split("\n"))}


def _blocks(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return the block nodes of these lines."""
    blocks: list[dict[str, Any]] = []
    index = 0
    while index < len(lines):
        line = lines[index]
        if not line.strip():
            index += 1
        elif line.lstrip().startswith("```"):
            end = next(
                (position for position in range(index + 1, len(lines)) if lines[position].strip() == "```"), len(lines)
            )
            blocks.append(_code_block("\n".join(lines[index + 1 : end]), line.strip()[3:].strip()))
            index = end + 1
        elif heading := _HEADING.fullmatch(line):
            content = _inline_nodes(heading[2])
            blocks.append({"type": "heading", "attrs": {"level": len(heading[1])}, "content": content})
            index += 1
        elif _BULLET.fullmatch(line) or _NUMBERED.fullmatch(line):
            kind = _BULLET if _BULLET.fullmatch(line) else _NUMBERED
            items = []
            while index < len(lines) and (match := kind.fullmatch(lines[index])):
                items.append(match)
                index += 1
            blocks.append(_list_block(items, numbered=kind is _NUMBERED))
        else:
            end = index + 1
            while end < len(lines) and lines[end].strip() and not _starts_block(lines[end]):
                end += 1
            content = []
            for number, part in enumerate(lines[index:end]):
                content += ([{"type": "hardBreak"}] if number else []) + _inline_nodes(part)
            blocks.append({"type": "paragraph", "content": content})
            index = end
    return blocks


def _starts_block(line: str) -> bool:
    """Return whether a line starts a code block, a heading or a list."""
    return line.lstrip().startswith("```") or any(pattern.fullmatch(line) for pattern in (_HEADING, _BULLET, _NUMBERED))


def _code_block(text: str, language: str) -> dict[str, Any]:
    """Return a code block."""
    block: dict[str, Any] = {"type": "codeBlock"}
    if language:
        block["attrs"] = {"language": language}
    if text:
        block["content"] = [{"type": "text", "text": text}]
    return block


def _list_block(items: Sequence[re.Match[str]], *, numbered: bool) -> dict[str, Any]:
    """Return a list node from the matched lines."""
    content = [
        {"type": "listItem", "content": [{"type": "paragraph", "content": _inline_nodes(item[item.re.groups])}]}
        for item in items
    ]
    if numbered:
        return {"type": "orderedList", "attrs": {"order": int(items[0][1])}, "content": content}
    return {"type": "bulletList", "content": content}


def _inline_nodes(line: str) -> list[dict[str, Any]]:
    """Return the inline nodes of a line: text, code, bold text and links."""
    nodes: list[dict[str, Any]] = []
    position = 0
    for match in _INLINE.finditer(line):
        nodes += _text_nodes(line[position : match.start()])
        if match["code"]:
            nodes += _text_nodes(match["code"], {"type": "code"})
        elif match["strong"]:
            nodes += _text_nodes(match["strong"], {"type": "strong"})
        else:
            target = match["to"] or match["url"]
            nodes += _text_nodes(match["text"] or match["url"], {"type": "link", "attrs": {"href": target}})
        position = match.end()
    return nodes + _text_nodes(line[position:])


def _text_nodes(text: str, mark: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return a text node with an optional mark; no node for an empty text."""
    if not text:
        return []
    return [{"type": "text", "text": text, "marks": [mark]} if mark else {"type": "text", "text": text}]


def from_adf(document: Any) -> str:
    """Return a document as text; a text is returned unchanged."""
    if isinstance(document, str):
        return document
    return re.sub(r"\n{3,}", "\n\n", _block_text(document, 0)).strip("\n") if isinstance(document, Mapping) else ""


def media_urls(document: Any) -> list[str]:
    """Return the URLs of images and cards in a document."""
    urls: list[str] = []

    def collect(node: Any, depth: int) -> None:
        """Add the URLs of a node and its children."""
        if not isinstance(node, Mapping) or depth > MAX_NESTING:
            return
        url = _attributes(node).get("url")
        if node.get("type") in ("media", "mediaInline", "inlineCard", "blockCard", "embedCard") and isinstance(
            url, str
        ):
            urls.append(url)
        for child in _children(node):
            collect(child, depth + 1)

    collect(document, 0)
    return urls


def _block_text(node: Mapping[str, Any], depth: int) -> str:
    """Return the text of a block node, which ends with an empty line."""
    if depth > MAX_NESTING:
        return ""
    kind, children = str(node.get("type")), _children(node)
    if kind in ("paragraph", "heading"):
        text = "".join(_inline_text(child, depth) for child in children)
        level = _attributes(node).get("level")
        sign = "#" * level + " " if kind == "heading" and isinstance(level, int) and 0 < level < 7 else ""
        return f"{sign}{text}\n\n"
    if kind == "codeBlock":
        language = _attributes(node).get("language")
        text = "".join(str(child.get("text", "")) for child in children)
        return f"```{language if isinstance(language, str) else ''}\n{text}\n```\n\n"
    if kind in _LIST_TYPES:
        return "".join(_item_text(kind, node, position, child, depth) for position, child in enumerate(children)) + "\n"
    if kind == "blockquote":
        text = "".join(_block_text(child, depth + 1) for child in children).strip("\n")
        return "\n".join(f"> {line}".rstrip() for line in text.split("\n")) + "\n\n"
    if kind == "rule":
        return "---\n\n"
    if kind == "tableRow":
        cells = ("".join(_block_text(cell, depth + 1) for cell in _children(child)) for child in children)
        return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |\n"
    if children:
        end = "\n" if kind == "table" else ""
        return "".join(_block_text(child, depth + 1) for child in children) + end
    text = _inline_text(node, depth)
    return f"{text}\n\n" if text else ""


def _item_text(kind: str, parent: Mapping[str, Any], position: int, node: Mapping[str, Any], depth: int) -> str:
    """Return the text of a list item."""
    first_number = _attributes(parent).get("order")
    number = (first_number if isinstance(first_number, int) else 1) + position
    sign = f"{number}. " if kind == "orderedList" else "- "
    if kind == "taskList":
        sign += "[x] " if _attributes(node).get("state") == "DONE" else "[ ] "
    if kind in ("taskList", "decisionList"):
        text = "".join(_inline_text(child, depth + 1) for child in _children(node))
    else:
        text = "".join(_block_text(child, depth + 1) for child in _children(node))
    lines = [line for line in text.strip("\n").split("\n") if line.strip()] or [""]
    return sign + ("\n" + " " * 2).join(lines) + "\n"


def _inline_text(node: Mapping[str, Any], depth: int) -> str:
    """Return the text of an inline node."""
    if depth > MAX_NESTING:
        return ""
    kind, attributes = node.get("type"), _attributes(node)
    if kind == "text":
        return _apply_marks(str(node.get("text", "")), node.get("marks"))
    if kind == "hardBreak":
        return "\n"
    if kind == "date":
        return str(attributes.get("timestamp") or "")
    for field in ("url", "text", "shortName", "alt", "title"):
        if isinstance(attributes.get(field), str) and attributes[field]:
            return str(attributes[field])
    return "".join(_inline_text(child, depth + 1) for child in _children(node))


def _apply_marks(text: str, marks: Any) -> str:
    """Return a text with the Markdown signs of its marks."""
    for mark in marks if isinstance(marks, list) else ():
        kind = mark.get("type") if isinstance(mark, Mapping) else None
        if kind == "code":
            text = f"`{text}`"
        elif kind == "link":
            target = _attributes(mark).get("href")
            text = text if target == text or not isinstance(target, str) else f"[{text}]({target})"
        elif kind in _MARKDOWN_SIGNS:
            text = f"{_MARKDOWN_SIGNS[kind]}{text}{_MARKDOWN_SIGNS[kind]}"
    return text


def _children(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the child nodes."""
    content = node.get("content")
    return [child for child in content if isinstance(child, Mapping)] if isinstance(content, list) else []


def _attributes(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of a node."""
    attributes = node.get("attrs")
    return attributes if isinstance(attributes, Mapping) else {}
