"""What was asked and answered: the truth that an agent's state, and the delivery of messages, are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from agent_orchestrator.testing.model.conversation import Request
from agent_orchestrator.testing.model.replies import Reply

Outcome = Literal["open", "answered", "failed", "dropped", "left"]


@dataclass(slots=True)
class Exchange:
    """A request and what became of it: `left` means that the agent hung up first."""

    request: Request
    reply: Reply
    outcome: Outcome = "open"
    ended: float | None = None
    """Unix time of the last byte."""
    held: str | None = None
    """The name it waits to be released by."""

    @property
    def ends_turn(self) -> bool:
        """Whether the agent's turn is over with this answer."""
        return self.outcome == "answered" and not self.reply.calls

    def as_json(self) -> dict[str, Any]:
        """For logs, without the body."""
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
            "side": request.side,
            "users": request.users,
            "results": request.results,
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
class Turn:
    """From the first request for a message to the last byte of the answer that needs no more tools."""

    session: str
    began: float
    ended: float | None


def arrivals(exchanges: Iterable[Exchange]) -> Iterator[Arrival]:
    """Each message once, though agents send the whole conversation each time."""
    known: dict[str, list[tuple[str, ...]]] = {}
    for exchange in exchanges:
        request = exchange.request
        if request.side:
            continue
        threads = known.setdefault(request.session, [])
        common = max((_common(thread, request.users) for thread in threads), default=0)
        for text in request.users[common:]:
            yield Arrival(request.at, request.session, text)
        threads.append(request.users)


def turns(exchanges: Iterable[Exchange]) -> list[Turn]:
    """The turns in order of their beginning; one whose answer failed or was left ends when the next message comes."""
    found: list[Turn] = []
    begun: dict[str, tuple[float, int, float | None]] = {}
    for exchange in exchanges:
        request = exchange.request
        if request.side:
            continue
        before = begun.get(request.session)
        if before is not None and before[2] is not None and len(request.users) != before[1]:
            found.append(Turn(request.session, before[0], before[2]))
            before = None
        began = request.at if before is None else before[0]
        if exchange.ends_turn:
            begun.pop(request.session, None)
            found.append(Turn(request.session, began, exchange.ended))
        else:
            broken = exchange.ended if exchange.outcome in ("failed", "dropped", "left") else None
            begun[request.session] = (began, len(request.users), broken)
    found += [Turn(session, began, None) for session, (began, _, _) in begun.items()]
    return sorted(found, key=lambda turn: turn.began)


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
