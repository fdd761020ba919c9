"""Gemini's generateContent, used by Gemini CLI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_orchestrator.testing.model.conversation import ConversationEntry, OfferedTool, ParsedBody, compact, texts_of
from agent_orchestrator.testing.model.replies import HttpFailure
from agent_orchestrator.testing.model.wire_format import (
    ErrorAnswer,
    ProviderAnswer,
    StreamEvent,
    retry_headers,
    split_words,
)

_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_DETAIL = "type.googleapis.com/google.rpc."


class GenerateContent:
    """`POST /v1beta/models/MODEL:generateContent` and `:streamGenerateContent`."""

    protocol = "gemini"

    def read(self, body: Mapping[str, Any], path: str) -> ParsedBody:
        entries = [
            ConversationEntry("system", text) for text in texts_of((body.get("systemInstruction") or {}).get("parts"))
        ]
        for content in body.get("contents", []):
            entries += _entries(content)
        declared = [f for tool in body.get("tools") or [] for f in tool.get("functionDeclarations") or []]
        settings = body.get("generationConfig") or {}
        wants_json = settings.get("responseMimeType") == "application/json"
        schema = settings.get("responseJsonSchema") or settings.get("responseSchema") or {}
        return ParsedBody(
            tuple(entries),
            tuple(OfferedTool(f["name"], f.get("parametersJsonSchema") or f.get("parameters") or {}) for f in declared),
            path.rpartition("/")[2].partition(":")[0],
            ":streamGenerateContent" in path,
            json_schema=schema if wants_json else None,
        )

    def to_object(self, answer: ProviderAnswer) -> Mapping[str, Any]:
        parts: list[Mapping[str, Any]] = [{"text": answer.text}] if answer.text or not answer.calls else []
        return _chunk(answer, [*parts, *_calls(answer)], last=True)

    def to_stream(self, answer: ProviderAnswer) -> Iterator[StreamEvent]:
        parts = [*({"text": piece} for piece in split_words(answer.text)), *_calls(answer)] or [{"text": ""}]
        for number, part in enumerate(parts, 1):
            yield StreamEvent(_chunk(answer, [part], last=number == len(parts)), text="text" in part)

    def error(self, failure: HttpFailure, now: float) -> ErrorAnswer:
        headers = retry_headers(failure, now)
        status = _ERRORS.get(failure.status, "INTERNAL")
        details: list[Mapping[str, Any]] = []
        message = failure.message or f"scripted error {failure.status}"
        if failure.limit_ends is not None:
            message = failure.message or "You exceeded your current quota, please check your plan and billing details."
            quota = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel", "quotaMetric": "generate_requests"}
            details.append({"@type": f"{_DETAIL}QuotaFailure", "violations": [quota]})
        if wait := headers.get("retry-after"):
            details.append({"@type": f"{_DETAIL}RetryInfo", "retryDelay": f"{wait}s"})
        body = {"code": failure.status, "message": message, "status": status, "details": details}
        return ErrorAnswer(failure.status, {"error": body}, headers)


def _entries(content: Mapping[str, Any]) -> Iterator[ConversationEntry]:
    role = "assistant" if content.get("role") == "model" else "user"
    for part in content.get("parts") or []:
        if "functionCall" in part:
            yield ConversationEntry(
                "call", compact(part["functionCall"].get("args")), part["functionCall"].get("name", "")
            )
        elif "functionResponse" in part:
            yield ConversationEntry("result", compact(part["functionResponse"].get("response")))
        elif part.get("text") and not part.get("thought"):
            yield ConversationEntry("assistant" if role == "assistant" else "user", part["text"])


def _calls(answer: ProviderAnswer) -> list[Mapping[str, Any]]:
    return [{"functionCall": {"name": call.name, "args": call.arguments}} for call in answer.calls]


def _chunk(answer: ProviderAnswer, parts: list[Mapping[str, Any]], *, last: bool = False) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if last:
        candidate["finishReason"] = "STOP"
    usage = answer.usage
    sent = usage.input + usage.cache_read + usage.cache_write
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": sent,
            "candidatesTokenCount": usage.output,
            "cachedContentTokenCount": usage.cache_read,
            "totalTokenCount": sent + usage.output,
        },
        "modelVersion": answer.model,
        "responseId": answer.id,
    }
