"""What other programs say in a shape that nobody foresaw: passed over and written down, never a reason to listen no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

import structlog

from agent_orchestrator.protocols import Headless, TurnLine

ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""How a reader trips over data of another shape."""

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger(__name__)


def forgiving(read: Callable[P, Iterable[T]]) -> Callable[P, list[T]]:
    """A reader of records that makes nothing of one that it trips over: read again it would be just as odd."""

    @wraps(read)
    def reading(*args: P.args, **kwargs: P.kwargs) -> list[T]:
        try:
            return list(read(*args, **kwargs))
        except ODD as error:
            log.warning("a record is of no known shape and is passed over", reader=read.__qualname__, error=repr(error))
            return []

    return reading


def read_line(agent: Headless, line: str) -> TurnLine:
    """What a line of a turn says; shown as it is where the plugin trips over it."""
    try:
        return agent.read_turn(line)
    except ODD as error:
        log.warning("a line of a turn is of no known shape", error=repr(error))
        return TurnLine(show=line)
