"""Anthropic Messages, used by Claude Code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent_orchestrator.testing.model.conversation import (
    ConversationEntry,
    OfferedTool,
    ParsedBody,
    compact,
    text_of,
    texts_of,
)
from agent_orchestrator.testing.model.replies import HttpFailure
from agent_orchestrator.testing.model.wire_format import (
    ErrorAnswer,
    ProviderAnswer,
    StreamEvent,
    retry_headers,
    split_words,
)

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_STATUSES_WITHOUT_RETRY = (400, 401, 403, 404, 413)
"""Statuses that the provider marks as not worth a retry."""
_DEFERRED_TOOLS = re.compile(r"deferred tools are now available via ToolSearch.*?:\n((?:\w+\n)+)", re.DOTALL)
_ANNOUNCING_ROLES = ("system", "user")
"""Roles whose entries announce deferred tools: some models take no system messages and get them in a user's."""
_MESSAGES = {429: "This request would exceed your rate limit.", 529: "Overloaded", 500: "Internal server error"}


class AnthropicMessages:
    """`POST /v1/messages`."""

    protocol = "anthropic"

    def read(self, body: Mapping[str, Any], path: str) -> ParsedBody:  # noqa: ARG002
        entries = [ConversationEntry("system", text) for text in texts_of(body.get("system"))]
        for message in body.get("messages", []):
            entries += _entries(message)
        output_format = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
        return ParsedBody(
            tuple(entries),
            tuple(OfferedTool(t["name"], t.get("input_schema") or {}) for t in body.get("tools") or [] if "name" in t),
            body.get("model", ""),
            bool(body.get("stream")),
            json_schema=output_format.get("schema"),
            deferred=frozenset(
                name for entry in entries if entry.role in _ANNOUNCING_ROLES for name in _deferred_tools(entry.text)
            ),
        )

    def to_object(self, answer: ProviderAnswer) -> Mapping[str, Any]:
        return {
            **_message(answer),
            "content": _content(answer),
            "stop_reason": _stop(answer),
            "usage": _usage(answer),
        }

    def to_stream(self, answer: ProviderAnswer) -> Iterator[StreamEvent]:
        def frame(kind: str, *, text: bool = False, **data: object) -> StreamEvent:
            return StreamEvent({"type": kind, **data}, kind, text)

        yield frame("message_start", message={**_message(answer), "usage": {**_usage(answer), "output_tokens": 1}})
        for index, block in enumerate(_content(answer)):
            if block["type"] == "text":
                yield frame("content_block_start", index=index, content_block={"type": "text", "text": ""})
                for piece in split_words(block["text"]):
                    delta = {"type": "text_delta", "text": piece}
                    yield frame("content_block_delta", text=True, index=index, delta=delta)
            else:
                yield frame("content_block_start", index=index, content_block={**block, "input": {}})
                delta = {"type": "input_json_delta", "partial_json": compact(block["input"])}
                yield frame("content_block_delta", index=index, delta=delta)
            yield frame("content_block_stop", index=index)
        yield frame("message_delta", delta={"stop_reason": _stop(answer), "stop_sequence": None}, usage=_usage(answer))
        yield frame("message_stop")

    def error(self, failure: HttpFailure, now: float) -> ErrorAnswer:
        headers = retry_headers(failure, now)
        message = failure.message or _MESSAGES.get(failure.status, f"scripted error {failure.status}")
        if failure.status in _STATUSES_WITHOUT_RETRY:
            headers |= {"x-should-retry": "false"}
        if failure.limit_ends is not None:
            ends = str(int(failure.limit_ends))
            message = failure.message or "This request would exceed your account's rate limit. Please try again later."
            headers |= {
                "x-should-retry": "false",
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-representative-claim": "five_hour",
                "anthropic-ratelimit-unified-reset": ends,
                "anthropic-ratelimit-unified-5h-status": "rejected",
                "anthropic-ratelimit-unified-5h-reset": ends,
                "anthropic-ratelimit-unified-5h-utilization": "1.0",
                "anthropic-ratelimit-unified-overage-status": "rejected",
                "anthropic-ratelimit-unified-overage-disabled-reason": "org_level_disabled",
            }
        kind = _ERRORS.get(failure.status, "api_error")
        body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}
        return ErrorAnswer(failure.status, body, headers)


def _entries(message: Mapping[str, Any]) -> Iterator[ConversationEntry]:
    role = message.get("role")
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for block in blocks:
        match block.get("type"):
            case "tool_use":
                yield ConversationEntry("call", compact(block.get("input")), block.get("name", ""))
            case "tool_result":
                yield ConversationEntry("result", text_of(block.get("content")))
            case "text" if role in ("user", "assistant", "system"):
                yield ConversationEntry(role, block.get("text", ""))


def _deferred_tools(text: str) -> list[str]:
    match = _DEFERRED_TOOLS.search(text + "\n")
    return match[1].split() if match else []


def _message(answer: ProviderAnswer) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _content(answer: ProviderAnswer) -> list[dict[str, Any]]:
    text = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
    calls = [
        {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.arguments}
        for call in answer.calls
    ]
    return text + calls


def _stop(answer: ProviderAnswer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _usage(answer: ProviderAnswer) -> dict[str, int]:
    return {
        "input_tokens": answer.usage.input,
        "output_tokens": answer.usage.output,
        "cache_read_input_tokens": answer.usage.cache_read,
        "cache_creation_input_tokens": answer.usage.cache_write,
    }
