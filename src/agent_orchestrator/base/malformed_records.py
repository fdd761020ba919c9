"""Skips and logs records of other programs that cannot be parsed, so that one malformed record does not end reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import ParamSpec, TypeVar

import structlog

from agent_orchestrator.protocols import Agent, TurnLine

PARSE_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The exceptions that a parser may raise for malformed data."""

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger(__name__)


def skip_malformed(read: Callable[P, Iterable[T]]) -> Callable[P, list[T]]:
    """Return a parser that logs and skips a record it cannot parse. It is not retried: reading it again would fail again."""

    @wraps(read)
    def parse(*args: P.args, **kwargs: P.kwargs) -> list[T]:
        try:
            return list(read(*args, **kwargs))
        except PARSE_ERRORS as error:
            log.warning("a record is of no known shape and is passed over", reader=read.__qualname__, error=repr(error))
            return []

    return parse


def parse_turn_line(agent: Agent, line: str) -> TurnLine:
    """Return the parsed line of a turn; if the plugin fails to parse it, the line is shown as it is."""
    try:
        return agent.read_turn(line)
    except PARSE_ERRORS as error:
        log.warning("a line of a turn is of no known shape", error=repr(error))
        return TurnLine(show=line)
