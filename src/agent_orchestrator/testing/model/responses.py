"""OpenAI Responses, used by Codex, and by Goose with newer models."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent_orchestrator.testing.model import openai
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
    BoundCall,
    ErrorAnswer,
    ProviderAnswer,
    StreamEvent,
    split_words,
)


class OpenAIResponses:
    """`POST /v1/responses`."""

    protocol = "responses"

    def read(self, body: Mapping[str, Any], path: str) -> ParsedBody:  # noqa: ARG002
        entries = [ConversationEntry("system", text) for text in texts_of(body.get("instructions"))]
        raw_input = body.get("input", [])
        items: list[Any] = [{"role": "user", "content": raw_input}] if isinstance(raw_input, str) else raw_input
        tools = list(_tools(body.get("tools") or []))
        for item in items:
            entries += _entries(item)
            if item.get("type") == "additional_tools":
                tools += _tools(item.get("tools") or [])
        text_format = (body.get("text") or {}).get("format") or {}
        return ParsedBody(
            tuple(entries),
            tuple(tools),
            body.get("model", ""),
            bool(body.get("stream")),
            body.get("prompt_cache_key") or "",
            text_format.get("schema"),
        )

    def to_object(self, answer: ProviderAnswer) -> Mapping[str, Any]:
        return {**_head(answer), "status": "completed", "output": list(_items(answer)), "usage": _usage(answer)}

    def to_stream(self, answer: ProviderAnswer) -> Iterator[StreamEvent]:
        numbers = itertools.count()

        def frame(kind: str, data: Mapping[str, Any], *, text: bool = False) -> StreamEvent:
            return StreamEvent({"type": kind, "sequence_number": next(numbers), **data}, kind, text)

        yield frame("response.created", {"response": _head(answer)})
        yield frame("response.in_progress", {"response": _head(answer)})
        for index, item in enumerate(_items(answer)):
            position = {"item_id": item["id"], "output_index": index}
            yield frame("response.output_item.added", {"output_index": index, "item": _started(item)})
            if item["type"] == "message":
                part = item["content"][0]
                position |= {"content_index": 0}
                yield frame("response.content_part.added", {**position, "part": {**part, "text": ""}})
                for piece in split_words(part["text"]):
                    yield frame("response.output_text.delta", {**position, "delta": piece}, text=True)
                yield frame("response.output_text.done", {**position, "text": part["text"]})
                yield frame("response.content_part.done", {**position, "part": part})
            elif item["type"] == "function_call":
                yield frame("response.function_call_arguments.delta", {**position, "delta": item["arguments"]})
                yield frame("response.function_call_arguments.done", {**position, "arguments": item["arguments"]})
            yield frame("response.output_item.done", {"output_index": index, "item": item})
        yield frame("response.completed", {"response": self.to_object(answer)})

    def error(self, failure: HttpFailure, now: float) -> ErrorAnswer:
        return openai.error_answer(failure, now)


def _entries(item: Mapping[str, Any]) -> Iterator[ConversationEntry]:
    kind = item.get("type", "message")
    role = item.get("role")
    if kind == "message":
        if role == "assistant":
            yield ConversationEntry("assistant", text_of(item.get("content")))
        else:
            for text in texts_of(item.get("content")):
                yield ConversationEntry("user" if role == "user" else "system", text)
    elif kind.endswith("_output"):
        output = item.get("output")
        yield ConversationEntry("result", text_of(output) or compact(output))
    elif kind.endswith("_call"):
        yield ConversationEntry("call", str(item.get("arguments") or item.get("input") or ""), item.get("name") or kind)


def _tools(definitions: Iterable[Mapping[str, Any]], namespace: str = "") -> Iterator[OfferedTool]:
    for tool in definitions:
        if tool.get("type") == "namespace":
            yield from _tools(tool.get("tools") or [], tool.get("name", ""))
        elif "name" in tool:
            yield OfferedTool(tool["name"], tool.get("parameters") or {}, tool.get("type") == "custom", namespace)


def _head(answer: ProviderAnswer) -> dict[str, Any]:
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": int(time.time()),
        "model": answer.model,
        "status": "in_progress",
        "output": [],
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": False,
        "tool_choice": "auto",
        "tools": [],
    }


def _items(answer: ProviderAnswer) -> Iterator[dict[str, Any]]:
    if answer.text or not answer.calls:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        head = {"type": "message", "id": f"msg_{answer.id}", "role": "assistant", "status": "completed"}
        yield {**head, "content": content}
    for call in answer.calls:
        yield _call(call)


def _call(call: BoundCall) -> dict[str, Any]:
    fields = {"call_id": f"call_{call.id}", "name": call.name, "status": "completed"}
    if call.namespace:
        fields["namespace"] = call.namespace
    elif mcp := re.fullmatch(
        r"(mcp__\w+?)__(\w+)", call.name
    ):  # Codex keeps such tools in namespaces and offers them on request
        fields |= {"namespace": mcp[1], "name": mcp[2]}
    if isinstance(call.arguments, str):
        return {"type": "custom_tool_call", "id": f"ctc_{call.id}", **fields, "input": call.arguments}
    return {"type": "function_call", "id": f"fc_{call.id}", **fields, "arguments": compact(call.arguments)}


def _started(item: Mapping[str, Any]) -> dict[str, Any]:
    empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {}
    empty |= {name: "" for name in ("arguments", "input") if name in item}
    return {**item, "status": "in_progress", **empty}


def _usage(answer: ProviderAnswer) -> dict[str, Any]:
    sent = openai.input_tokens(answer.usage)
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": answer.usage.cache_read},
        "output_tokens": answer.usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sent + answer.usage.output,
    }
