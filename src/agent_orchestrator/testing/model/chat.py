"""OpenAI Chat Completions, which most agents can use."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from agent_orchestrator.testing.model import aider, openai
from agent_orchestrator.testing.model.conversation import Entry, Reading, Tool, compact, text_of, texts_of
from agent_orchestrator.testing.model.replies import Failure
from agent_orchestrator.testing.model.wire import Answer, ErrorAnswer, Frame, pieces


class Chat:
    """`POST /v1/chat/completions`."""

    protocol = "chat"

    def read(self, body: Mapping[str, Any], path: str) -> Reading:  # noqa: ARG002
        entries: list[Entry] = []
        for message in body.get("messages", []):
            entries += _entries(message)
        functions = [tool["function"] for tool in body.get("tools") or [] if tool.get("type") == "function"]
        response_format = body.get("response_format") or {}
        return Reading(
            tuple(aider.as_typed(entries)),
            tuple(Tool(function["name"], function.get("parameters") or {}) for function in functions),
            body.get("model", ""),
            bool(body.get("stream")),
            body.get("prompt_cache_key") or "",
            (response_format.get("json_schema") or {}).get("schema"),
        )

    def whole(self, answer: Answer) -> Mapping[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.calls:
            message["tool_calls"] = _calls(answer)
        return {
            **_head(answer, "chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": _finish(answer)}],
            "usage": _usage(answer),
        }

    def frames(self, answer: Answer) -> Iterator[Frame]:
        head = _head(answer, "chat.completion.chunk")

        def frame(delta: Mapping[str, Any], *, finish: str | None = None, text: bool = False) -> Frame:
            return Frame({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, text=text)

        yield frame({"role": "assistant", "content": "" if answer.text else None})
        for piece in pieces(answer.text):
            yield frame({"content": piece}, text=True)
        for index, call in enumerate(_calls(answer)):
            yield frame({"tool_calls": [{"index": index, **call}]})
        yield frame({}, finish=_finish(answer))
        yield Frame({**head, "choices": [], "usage": _usage(answer)})
        yield Frame("[DONE]")

    def error(self, failure: Failure, now: float) -> ErrorAnswer:
        return openai.error(failure, now)


def _entries(message: Mapping[str, Any]) -> Iterator[Entry]:
    match message.get("role"):
        case "system" | "developer":
            yield Entry("system", text_of(message.get("content")))
        case "user":
            for text in texts_of(message.get("content")):
                yield Entry("user", text)
        case "assistant":
            if text := text_of(message.get("content")):
                yield Entry("assistant", text)
            for call in message.get("tool_calls") or []:
                yield Entry("call", call["function"].get("arguments", ""), call["function"].get("name", ""))
        case "tool":
            yield Entry("result", text_of(message.get("content")))


def _head(answer: Answer, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.id}", "object": kind, "created": int(time.time()), "model": answer.model}


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{call.id}",
            "type": "function",
            "function": {"name": call.name, "arguments": compact(call.arguments)},
        }
        for call in answer.calls
    ]


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> dict[str, Any]:
    sent = openai.sent(answer.usage)
    return {
        "prompt_tokens": sent,
        "completion_tokens": answer.usage.output,
        "total_tokens": sent + answer.usage.output,
        "prompt_tokens_details": {"cached_tokens": answer.usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
