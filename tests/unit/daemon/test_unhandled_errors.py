"""Handling of exceptions that no task awaits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent_orchestrator.daemon.__main__ import REPEATED_LOG_SECONDS, _UnhandledErrors
from agent_orchestrator.errors import Temporary


class Loop:
    """The part of an event loop that the handler uses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.faults: list[dict[str, Any]] = []

    def time(self) -> float:
        return self.now

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.faults.append(context)


def lines_logged(loop: Loop, handler: _UnhandledErrors, error: BaseException | None) -> list[str]:
    with capture_logs() as logs:
        handler(loop, {"message": "a task", "exception": error})  # type: ignore[arg-type]
    return [f"{line['log_level']} {line['error']}" for line in logs]


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), OSError(28, "No space left on device")])
def test_a_lack_of_resources_is_logged_in_one_line_and_not_repeated(error: OSError) -> None:
    loop, handler = Loop(), _UnhandledErrors()
    (line,) = lines_logged(loop, handler, error)
    assert line.startswith(f"warning {error.strerror}")
    assert lines_logged(loop, handler, error) == []
    assert len(lines_logged(loop, handler, Temporary("something else"))) == 1
    loop.now += REPEATED_LOG_SECONDS + 1
    assert len(lines_logged(loop, handler, error)) == 1
    assert loop.faults == []


@pytest.mark.parametrize("error", [ValueError("a fault of ours"), OSError(2, "No such file"), None])
def test_a_bug_is_logged_with_its_traceback(error: Exception | None) -> None:
    loop, handler = Loop(), _UnhandledErrors()
    assert lines_logged(loop, handler, error) == []
    assert [fault["exception"] for fault in loop.faults] == [error]


def test_the_handler_works_in_an_event_loop() -> None:
    async def forget() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_UnhandledErrors())
        task = loop.create_task(_full())
        await asyncio.wait([task])

    with capture_logs() as logs:
        asyncio.run(forget())
    assert [line["error"] for line in logs] == ["No space left on device: free some disk space"]


async def _full() -> None:
    raise OSError(28, "No space left on device")
