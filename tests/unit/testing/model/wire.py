"""Requests in the formats of agents, and parsing of every provider's responses."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PROTOCOLS = ("anthropic", "chat", "responses", "gemini")
SHELL_SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SHELL = {"bash": SHELL_SCHEMA}

ChatEntry = tuple[str, str]
"""Role ("user", "assistant", "call" or "result") and content."""


@dataclass(frozen=True)
class ModelAnswer:
    """A response, independent of the provider."""

    text: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    usage: tuple[int, int, int] = (0, 0, 0)
    """All tokens sent, those of them from the cache, and those received."""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    error: Any = None


def ask(
    url: str,
    protocol: str,
    conversation: str | Sequence[ChatEntry],
    *,
    tools: Mapping[str, Any] = SHELL,
    stream: bool = True,
    timeout: float = 20.0,
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, object] | None = None,
) -> ModelAnswer:
    """Send a request as an agent would, and return the parsed response."""
    talk: list[ChatEntry] = [("user", conversation)] if isinstance(conversation, str) else list(conversation)
    path, body = _request(protocol, talk, tools, stream)
    request = urllib.request.Request(
        url + path,
        json.dumps({**body, **(extra or {})}).encode(),
        {"content-type": "application/json", **(headers or {})},
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            data = answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return ModelAnswer(status=error.code, headers=dict(error.headers), error=json.loads(error.read())["error"])
    return _streamed(protocol, list(_events(data))) if stream else _whole(protocol, json.loads(data))


def _request(
    protocol: str, talk: Sequence[ChatEntry], tools: Mapping[str, Any], stream: bool
) -> tuple[str, dict[str, Any]]:
    match protocol:
        case "anthropic":
            messages = [_anthropic(who, what) for who, what in talk]
            offered = [{"name": name, "input_schema": schema} for name, schema in tools.items()]
            return "/v1/messages?beta=true", {"model": "m", "stream": stream, "messages": messages, "tools": offered}
        case "chat":
            functions = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in tools.items()]
            messages = [_chat(who, what) for who, what in talk]
            body = {"model": "m", "stream": stream, "messages": messages, "tools": functions}
            return "/v1/chat/completions", body
        case "responses":
            offered = [{"type": "function", "name": name, "parameters": schema} for name, schema in tools.items()]
            items = [_responses(who, what) for who, what in talk]
            return "/v1/responses", {"model": "m", "stream": stream, "input": items, "tools": offered}
        case _:
            verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
            declared = [{"name": name, "parametersJsonSchema": schema} for name, schema in tools.items()]
            contents = [_gemini(who, what) for who, what in talk]
            return f"/v1beta/models/m:{verb}", {"contents": contents, "tools": [{"functionDeclarations": declared}]}


def _anthropic(who: str, what: str) -> dict[str, Any]:
    match who:
        case "call":
            block = {"type": "tool_use", "id": "t", "name": what, "input": {}}
            return {"role": "assistant", "content": [block]}
        case "result":
            return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": what}]}
    return {"role": who, "content": [{"type": "text", "text": what}]}


def _chat(who: str, what: str) -> dict[str, Any]:
    match who:
        case "call":
            call = {"id": "t", "type": "function", "function": {"name": what, "arguments": "{}"}}
            return {"role": "assistant", "content": None, "tool_calls": [call]}
        case "result":
            return {"role": "tool", "tool_call_id": "t", "content": what}
    return {"role": who, "content": what}


def _responses(who: str, what: str) -> dict[str, Any]:
    match who:
        case "call":
            return {"type": "function_call", "call_id": "t", "name": what, "arguments": "{}"}
        case "result":
            return {"type": "function_call_output", "call_id": "t", "output": what}
    return {"type": "message", "role": who, "content": [{"type": "input_text", "text": what}]}


def _gemini(who: str, what: str) -> dict[str, Any]:
    match who:
        case "call":
            return {"role": "model", "parts": [{"functionCall": {"name": what, "args": {}}}]}
        case "result":
            return {"role": "user", "parts": [{"functionResponse": {"name": "t", "response": {"output": what}}}]}
    return {"role": "model" if who == "assistant" else "user", "parts": [{"text": what}]}


def _events(data: str) -> Iterator[Any]:
    for line in data.splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line[6:])


def _streamed(protocol: str, events: Sequence[Any]) -> ModelAnswer:
    """Assemble a stream as the providers' own libraries do."""
    match protocol:
        case "anthropic":
            assert [e["type"] for e in events][:1] + [e["type"] for e in events][-1:] == [
                "message_start",
                "message_stop",
            ]
            message = events[0]["message"]
            for event in events:
                if event["type"] == "content_block_start":
                    message["content"].append({**event["content_block"], "json": ""})
                elif event["type"] == "content_block_delta":
                    block, delta = message["content"][event["index"]], event["delta"]
                    block["text"] = block.get("text", "") + delta.get("text", "")
                    block["json"] += delta.get("partial_json", "")
                elif event["type"] == "message_delta":
                    message["usage"], message["stop_reason"] = event["usage"], event["delta"]["stop_reason"]
            for block in message["content"]:
                if block["type"] == "tool_use":
                    block["input"] = json.loads(block["json"])
            return _whole(protocol, message)
        case "chat":
            deltas = [choice["delta"] for event in events for choice in event["choices"]]
            text = "".join(delta.get("content") or "" for delta in deltas)
            calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
            finish = [choice["finish_reason"] for event in events for choice in event["choices"]][-1]
            choice = {"message": {"content": text, "tool_calls": calls}, "finish_reason": finish}
            return _whole(protocol, {"choices": [choice], "usage": events[-1]["usage"]})
        case "responses":
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            text = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
            whole = _whole(protocol, events[-1]["response"])
            items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
            assert events[-1]["type"] == "response.completed"
            assert items == events[-1]["response"]["output"]
            assert text == whole.text
            return whole
    parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
    assert [event["candidates"][0].get("finishReason") for event in events].count("STOP") == 1
    last = {**events[-1]["candidates"][0], "content": {"parts": parts}}
    return _whole(protocol, {**events[-1], "candidates": [last]})


def _whole(protocol: str, answer: Any) -> ModelAnswer:
    match protocol:
        case "anthropic":
            usage = answer["usage"]
            read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
            blocks = answer["content"]
            calls = tuple((block["name"], block["input"]) for block in blocks if block["type"] == "tool_use")
            assert answer["stop_reason"] == ("tool_use" if calls else "end_turn")
            text = "".join(block["text"] for block in blocks if block["type"] == "text")
            return ModelAnswer(text, calls, (usage["input_tokens"] + read + written, read, usage["output_tokens"]))
        case "chat":
            message, usage = answer["choices"][0]["message"], answer["usage"]
            functions = [call["function"] for call in message.get("tool_calls") or []]
            assert answer["choices"][0]["finish_reason"] == ("tool_calls" if functions else "stop")
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            return ModelAnswer(
                message["content"] or "",
                tuple((function["name"], json.loads(function["arguments"])) for function in functions),
                (usage["prompt_tokens"], cached, usage["completion_tokens"]),
            )
        case "responses":
            usage = answer["usage"]
            items = answer["output"]
            texts = [part["text"] for item in items if item["type"] == "message" for part in item["content"]]
            function_calls = [(i["name"], json.loads(i["arguments"])) for i in items if i["type"] == "function_call"]
            free = [(item["name"], item["input"]) for item in items if item["type"] == "custom_tool_call"]
            cached = usage["input_tokens_details"]["cached_tokens"]
            return ModelAnswer(
                "".join(texts), (*function_calls, *free), (usage["input_tokens"], cached, usage["output_tokens"])
            )
    usage = answer["usageMetadata"]
    parts = answer["candidates"][0]["content"]["parts"]
    return ModelAnswer(
        "".join(part.get("text", "") for part in parts),
        tuple((part["functionCall"]["name"], part["functionCall"]["args"]) for part in parts if "functionCall" in part),
        (usage["promptTokenCount"], usage["cachedContentTokenCount"], usage["candidatesTokenCount"]),
    )
