"""An agent's request, independent of the provider: the conversation so far and the offered tools.

Agents add their own text to user messages (the date, the folder, reminders). It is removed, so that `ModelRequest.user_messages` is what a
person typed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

_OWN_TAGS = (
    "system-reminder|environment_context|session_context|info-msg|user_instructions|permissions instructions|"
    "collaboration_mode|skills_instructions|current_datetime|reminder|ide_context|turn_context|task-notification"
)
_OWN_BLOCK = re.compile(rf"\s*(?:<({_OWN_TAGS})>.*</\1>\s*)+", re.DOTALL)
_OWN_BEGINNING = re.compile(rf"\s*<({_OWN_TAGS})>.*?</\1>\s*", re.DOTALL)
_OWN_END = re.compile(r"\s*<(system_notification|reminder|system_reminder)>.*?</\1>\s*\Z", re.DOTALL)
_OWN_SENTENCE = re.compile(
    r"\s*(?:# AGENTS\.md instructions|This is the (?:Qwen Code|Gemini CLI)\. We are setting up the context|Tool loaded\.\s*\Z)"
)
INTERRUPTION_NOTICE = re.compile(r"\s*(?:\[Request interrupted by user|<turn_aborted>|<interrupted>)")
_MID_TURN_MESSAGE = re.compile(
    r"The user sent a new message while you were working:\n(.*?)\n\nThis is how Claude Code surfaces.*", re.DOTALL
)
_FOLDER_PATTERNS = (
    re.compile(r"[Ww]orking directory: *`?([^\s`]+)"),
    re.compile(r"<cwd>(.+?)</cwd>"),
    re.compile(r"working in the directory: *(\S+)"),
    re.compile(r"Workspace Directories:\*\*\s*-\s*(\S+)"),
    re.compile(r"(?i)current working directory(?: is)?:? *`?(/[^\s`]+)"),
)
_SIDE_REQUEST = re.compile(
    r"title generator|concise, single-line task title|generates? (?:a )?(?:concise|short)[^.]{0,40}(?:title|commit message)"
    r"|[Gg]enerate a (?:concise|short|brief)[^.]{0,60}title|[Gg]enerates? concise, one-line Git commit messages"
    r"|memory extraction subagent|\[SUGGESTION MODE|[Aa]nalyze if this message indicates a new conversation topic"
)


@dataclass(frozen=True, slots=True)
class ConversationEntry:
    """A piece of the conversation."""

    role: Literal["system", "user", "assistant", "call", "result"]
    text: str = ""
    name: str = ""
    """The name of the tool, for a call."""


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the agent offers. With `free_text` it takes text instead of arguments."""

    name: str
    schema: Mapping[str, Any] = field(default_factory=dict)
    free_text: bool = False
    namespace: str = ""

    @property
    def properties(self) -> Mapping[str, Any]:
        """Its arguments by name."""
        properties = self.schema.get("properties")
        return properties if isinstance(properties, Mapping) else {}


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A parsed request body."""

    entries: tuple[ConversationEntry, ...]
    tools: tuple[OfferedTool, ...] = ()
    model: str = ""
    stream: bool = False
    session: str = ""
    """The session as the agent names it, or ""."""
    json_schema: Mapping[str, Any] | None = None
    """The schema of the answer, if the agent requires JSON."""
    deferred: frozenset[str] = frozenset()
    """Tools that the agent offers only after a search for them."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request of an agent."""

    number: int
    at: float
    """Unix time of its arrival."""
    protocol: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    entries: tuple[ConversationEntry, ...]
    tools: Mapping[str, OfferedTool]
    model: str
    is_streamed: bool
    session: str
    folder: str
    is_side_request: bool
    """Whether the agent made it for itself: a title, a commit message."""
    json_schema: Mapping[str, Any] | None
    deferred_tools: frozenset[str]

    @property
    def user_messages(self) -> tuple[str, ...]:
        """The user's messages of this conversation, oldest first."""
        return tuple(
            entry.text for entry in self.entries if entry.role == "user" and not INTERRUPTION_NOTICE.match(entry.text)
        )

    @property
    def last_user_message(self) -> str:
        """The user's last message."""
        return self.user_messages[-1] if self.user_messages else ""

    @property
    def tool_results(self) -> tuple[str, ...]:
        """The tool results since the user's last message."""
        results: list[str] = []
        for entry in self.entries:
            if entry.role == "user":
                results.clear()
            elif entry.role == "result":
                results.append(entry.text)
        return tuple(results)


def build_request(
    reading: ParsedBody,
    *,
    number: int,
    at: float,
    protocol: str,
    path: str,
    headers: Mapping[str, str],
    body: Mapping[str, Any],
) -> ModelRequest:
    """Build the request from the parsed body."""
    prompt_text = "\n".join(entry.text for entry in reading.entries if entry.role in ("system", "user"))
    folder = next((match[1] for pattern in _FOLDER_PATTERNS if (match := pattern.search(prompt_text))), "")
    has_result_schema = protocol == "responses" and bool(
        reading.tools
    )  # a turn whose final answer must match the schema
    entries = tuple(_as_typed(reading.entries))
    first = next((entry.text[:80] for entry in entries if entry.role == "user"), "")
    return ModelRequest(
        number=number,
        at=at,
        protocol=protocol,
        path=path,
        headers=headers,
        body=body,
        entries=entries,
        tools={tool.name: tool for tool in reading.tools},
        model=reading.model,
        is_streamed=reading.stream,
        session=reading.session or _session(headers) or folder or first,
        folder=folder,
        is_side_request=(reading.json_schema is not None and not has_result_schema)
        or _SIDE_REQUEST.search(prompt_text) is not None,
        json_schema=reading.json_schema,
        deferred_tools=reading.deferred,
    )


def _as_typed(entries: Iterable[ConversationEntry]) -> Iterable[ConversationEntry]:
    for entry in entries:
        if entry.role == "system":
            continue
        if entry.role != "user" or INTERRUPTION_NOTICE.match(entry.text):
            yield entry
            continue
        if _OWN_BLOCK.fullmatch(entry.text) or _OWN_SENTENCE.match(entry.text):
            continue
        opening = _OWN_BEGINNING.match(entry.text)
        text = _OWN_END.sub("", entry.text[opening.end() :] if opening else entry.text)
        if midturn := _MID_TURN_MESSAGE.fullmatch(text):
            text = midturn[1]
        if text.strip():
            yield ConversationEntry("user", text)


def _session(headers: Mapping[str, str]) -> str:
    for name in ("x-claude-code-session-id", "session_id", "x-session-id", "x-session-affinity", "x-opencode-session"):
        if headers.get(name):
            return headers[name]
    return ""


def text_of(content: object) -> str:
    """Return the text of a provider's content: a string, a block or a list of blocks."""
    return "\n".join(texts_of(content))


def texts_of(content: object) -> list[str]:
    """Return the texts of a provider's content, block by block."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else [content]
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, Mapping) and isinstance(block.get("text"), str):
            texts.append(block["text"])
    return texts


def compact(value: object) -> str:
    """Return a value as compact JSON, as the providers write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
