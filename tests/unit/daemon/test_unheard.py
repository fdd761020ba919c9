"""What goes wrong in the daemon where nobody waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent_orchestrator.daemon.__main__ import LOG_AGAIN_AFTER, _UnhandledErrors
from agent_orchestrator.errors import Temporary


class Loop:
    """As much of a loop as it uses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.faults: list[dict[str, Any]] = []

    def time(self) -> float:
        return self.now

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.faults.append(context)


def told(loop: Loop, handler: _UnhandledErrors, error: BaseException | None) -> list[str]:
    with capture_logs() as logs:
        handler(loop, {"message": "a task", "exception": error})  # type: ignore[arg-type]
    return [f"{one['log_level']} {one['error']}" for one in logs]


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), OSError(28, "No space left on device")])
def test_what_the_machine_lacks_is_one_line_and_not_again_and_again(error: OSError) -> None:
    loop, handler = Loop(), _UnhandledErrors()
    (line,) = told(loop, handler, error)
    assert line.startswith(f"warning {error.strerror}")
    assert told(loop, handler, error) == []
    assert len(told(loop, handler, Temporary("something else"))) == 1
    loop.now += LOG_AGAIN_AFTER + 1
    assert len(told(loop, handler, error)) == 1
    assert loop.faults == []


@pytest.mark.parametrize("error", [ValueError("a fault of ours"), OSError(2, "No such file"), None])
def test_a_fault_of_ours_is_told_in_full(error: Exception | None) -> None:
    loop, handler = Loop(), _UnhandledErrors()
    assert told(loop, handler, error) == []
    assert [one["exception"] for one in loop.faults] == [error]


def test_it_is_what_the_daemons_loop_uses() -> None:
    async def forget() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_UnhandledErrors())
        task = loop.create_task(_full())
        await asyncio.wait([task])

    with capture_logs() as logs:
        asyncio.run(forget())
    assert [one["error"] for one in logs] == ["No space left on device: free some disk space"]


async def _full() -> None:
    raise OSError(28, "No space left on device")
