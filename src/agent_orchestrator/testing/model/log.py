"""The log of requests and answers, with which tests compare an agent's state and the delivery of messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from agent_orchestrator.testing.model.conversation import ModelRequest
from agent_orchestrator.testing.model.replies import ScriptedReply

Outcome = Literal["open", "answered", "failed", "dropped", "left"]


@dataclass(slots=True)
class Exchange:
    """A request and its outcome; `left` means that the agent disconnected first."""

    request: ModelRequest
    reply: ScriptedReply
    outcome: Outcome = "open"
    ended: float | None = None
    """Unix time of the last byte."""
    held: str | None = None
    """The name by which `release` ends its wait, or None if it does not wait."""

    @property
    def ends_turn(self) -> bool:
        """Whether this answer ends the agent's turn."""
        return self.outcome == "answered" and not self.reply.calls

    def as_json(self) -> dict[str, Any]:
        """Return the exchange for logs, without the request's body."""
        request = self.request
        return {
            "number": request.number,
            "at": request.at,
            "ended": self.ended,
            "outcome": self.outcome,
            "held": self.held,
            "protocol": request.protocol,
            "path": request.path,
            "model": request.model,
            "session": request.session,
            "folder": request.folder,
            "side": request.is_side_request,
            "users": request.user_messages,
            "results": request.tool_results,
            "tools": sorted(request.tools),
            "reply": asdict(self.reply),
        }


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message of the user that reached the model."""

    at: float
    session: str
    text: str


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """A turn, from the first request for a message to the last byte of the answer without tool calls."""

    session: str
    began: float
    ended: float | None


def arrivals(exchanges: Iterable[Exchange]) -> Iterator[Arrival]:
    """Yield each message once, although agents send the whole conversation each time."""
    threads_by_session: dict[str, list[tuple[str, ...]]] = {}
    for exchange in exchanges:
        request = exchange.request
        if request.is_side_request:
            continue
        threads = threads_by_session.setdefault(request.session, [])
        common = max((_common_length(thread, request.user_messages) for thread in threads), default=0)
        for text in request.user_messages[common:]:
            yield Arrival(request.at, request.session, text)
        threads.append(request.user_messages)


def turns(exchanges: Iterable[Exchange]) -> list[ModelTurn]:
    """Return the turns by start; a turn whose answer failed or was abandoned ends when the next message arrives."""
    turns: list[ModelTurn] = []
    open_turns: dict[str, tuple[float, int, float | None]] = {}
    for exchange in exchanges:
        request = exchange.request
        if request.is_side_request:
            continue
        before = open_turns.get(request.session)
        if before is not None and before[2] is not None and len(request.user_messages) != before[1]:
            turns.append(ModelTurn(request.session, before[0], before[2]))
            before = None
        began = request.at if before is None else before[0]
        if exchange.ends_turn:
            open_turns.pop(request.session, None)
            turns.append(ModelTurn(request.session, began, exchange.ended))
        else:
            broken = exchange.ended if exchange.outcome in ("failed", "dropped", "left") else None
            open_turns[request.session] = (began, len(request.user_messages), broken)
    turns += [ModelTurn(session, began, None) for session, (began, _, _) in open_turns.items()]
    return sorted(turns, key=lambda turn: turn.began)


def _common_length(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    count = 0
    for first_item, second_item in zip(first, second, strict=False):
        if first_item != second_item:
            break
        count += 1
    return count
