"""Runs blocking calls, such as access to files that an agent has created, outside the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_own_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking call in its own daemon thread, and return its result or raise its exception.

    It occupies no thread of the shared executor and does not delay the end of the process.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle_if_waiting(settle: Callable[[], None]) -> None:
        if not outcome.done():
            settle()

    def run() -> None:
        try:
            settle = partial(outcome.set_result, work(*args, **kwargs))
        except BaseException as error:
            settle = partial(outcome.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: the result is not needed any more
            loop.call_soon_threadsafe(settle_if_waiting, settle)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return await outcome
