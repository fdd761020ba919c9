"""OpenAI Chat Completions, which most agents can use."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from agent_orchestrator.testing.model import aider, openai
from agent_orchestrator.testing.model.conversation import (
    ConversationEntry,
    OfferedTool,
    ParsedBody,
    compact,
    text_of,
    texts_of,
)
from agent_orchestrator.testing.model.replies import HttpFailure
from agent_orchestrator.testing.model.wire_format import ErrorAnswer, ProviderAnswer, StreamEvent, split_words


class ChatCompletions:
    """`POST /v1/chat/completions`."""

    protocol = "chat"

    def read(self, body: Mapping[str, Any], path: str) -> ParsedBody:  # noqa: ARG002
        entries: list[ConversationEntry] = []
        for message in body.get("messages", []):
            entries += _entries(message)
        functions = [tool["function"] for tool in body.get("tools") or [] if tool.get("type") == "function"]
        response_format = body.get("response_format") or {}
        return ParsedBody(
            tuple(aider.without_aider_additions(entries)),
            tuple(OfferedTool(function["name"], function.get("parameters") or {}) for function in functions),
            body.get("model", ""),
            bool(body.get("stream")),
            body.get("prompt_cache_key") or "",
            (response_format.get("json_schema") or {}).get("schema"),
        )

    def to_object(self, answer: ProviderAnswer) -> Mapping[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.calls:
            message["tool_calls"] = _calls(answer)
        return {
            **_head(answer, "chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(answer)}],
            "usage": _usage(answer),
        }

    def to_stream(self, answer: ProviderAnswer) -> Iterator[StreamEvent]:
        head = _head(answer, "chat.completion.chunk")

        def frame(delta: Mapping[str, Any], *, finish: str | None = None, text: bool = False) -> StreamEvent:
            return StreamEvent({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, text=text)

        yield frame({"role": "assistant", "content": "" if answer.text else None})
        for piece in split_words(answer.text):
            yield frame({"content": piece}, text=True)
        for index, call in enumerate(_calls(answer)):
            yield frame({"tool_calls": [{"index": index, **call}]})
        yield frame({}, finish=_finish(answer))
        yield StreamEvent({**head, "choices": [], "usage": _usage(answer)})
        yield StreamEvent("[DONE]")

    def error(self, failure: HttpFailure, now: float) -> ErrorAnswer:
        return openai.error_answer(failure, now)


def _entries(message: Mapping[str, Any]) -> Iterator[ConversationEntry]:
    match message.get("role"):
        case "system" | "developer":
            yield ConversationEntry("system", text_of(message.get("content")))
        case "user":
            for text in texts_of(message.get("content")):
                yield ConversationEntry("user", text)
        case "assistant":
            if text := text_of(message.get("content")):
                yield ConversationEntry("assistant", text)
            for call in message.get("tool_calls") or []:
                yield ConversationEntry("call", call["function"].get("arguments", ""), call["function"].get("name", ""))
        case "tool":
            yield ConversationEntry("result", text_of(message.get("content")))


def _head(answer: ProviderAnswer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": int(time.time()), "model": answer.model}


def _calls(answer: ProviderAnswer) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{call.id}",
            "type": "function",
            "function": {"name": call.name, "arguments": compact(call.arguments)},
        }
        for call in answer.calls
    ]


def _finish(answer: ProviderAnswer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: ProviderAnswer) -> dict[str, Any]:
    sent = openai.input_tokens(answer.usage)
    return {
        "prompt_tokens": sent,
        "completion_tokens": answer.usage.output,
        "total_tokens": sent + answer.usage.output,
        "prompt_tokens_details": {"cached_tokens": answer.usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
