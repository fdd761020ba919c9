"""The daemon as the Python API speaks with it: the command line's own client, in threads, so that no event loop ever waits."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from agent_orchestrator.base.http_client import error_of, quote, with_query
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError, Unreachable

Result = TypeVar("Result")
Json = dict[str, Any]
Query = Mapping[str, str | int | None]

PATIENCE = 60.0
"""Seconds that a stream of events does without the daemon: one that restarts is back before."""

_TICK = 0.5
"""Seconds after which a reader looks whether it is still wanted."""


class TimedOut(AoError, TimeoutError):
    """What was waited for did not happen in time."""

    category = "timed-out"


class Link:
    """One user's daemon; started when it is needed and does not run."""

    def __init__(
        self, home: str | os.PathLike[str] | None = None, folder: str | os.PathLike[str] | None = None
    ) -> None:
        """`home`: `$AO_HOME`; `folder`: where requests come from, if not from the working directory."""
        self.home = home
        self._headers = {} if folder is None else {"X-AO-Cwd": quote(str(Path(folder).absolute()))}

    async def get(self, path: str, query: Query | None = None) -> Any:
        """GET a JSON document."""
        return await self.request("GET", with_query(path, query))

    async def post(self, path: str, body: object = None, *, timeout: float = 60.0) -> Any:
        """POST a JSON document and return the one that is answered."""
        return await self.request("POST", path, {} if body is None else body, timeout=timeout)

    async def request(self, method: str, path: str, body: object = None, *, timeout: float = 60.0) -> Any:
        """Ask for a JSON document; errors come as those of `errors.py`."""

        def ask() -> Any:
            with Client(self.home) as client:
                return client.request(method, path, body, headers=self._headers, timeout=timeout).json()

        return await _in_thread(ask)

    async def look(self, path: str) -> Any:
        """GET a JSON document; a daemon that is away is waited for, not started: it may be restarting, or was shut down."""

        def ask() -> Any:
            with Client(self.home, start=False) as client:
                return client.request("GET", path, headers=self._headers).json()

        end = time.monotonic() + PATIENCE
        while True:
            try:
                return await _in_thread(ask)
            except Unreachable:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.2)

    async def text(self, path: str) -> str:
        """GET a text."""

        def ask() -> str:
            with Client(self.home) as client:
                return client.request("GET", path, headers=self._headers).text

        return await _in_thread(ask)

    async def started(self, session: str) -> Json:
        """Wait until a session's agent runs, it failed, or it is clear that it must wait; returns the session."""
        stop = threading.Event()

        def ask() -> Json:
            while True:
                with Client(self.home) as client:
                    try:
                        last = _last_line(client, f"/api/sessions/{quote(session)}/wait", stop)
                    except Unreachable:
                        last = {}
                    if "problem" in last:
                        raise error_of(last["problem"])
                    if "session" in last or stop.is_set():
                        return dict(last.get("session") or {})

        try:
            return await _in_thread(ask)
        finally:
            stop.set()

    async def sequence(self) -> int:
        """The number of the newest event."""
        newest = (await self.get("/api/events", {"limit": 1}))["events"]
        return int(newest[-1]["seq"]) if newest else 0

    async def follow(
        self, after: int, *, session: str | None = None, project: str | None = None
    ) -> AsyncGenerator[Json | None, None]:
        """Events after a number without end, across restarts of the daemon; none: the stream begins, or begins again."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Json | AoError | None]()
        path = with_query("/api/events", {"session": session, "project": project})

        def tell(item: Json | AoError | None) -> None:
            try:
                loop.call_soon_threadsafe(queue.put_nowait, item)
            except RuntimeError:  # the loop is closed: nobody listens any more
                stop.set()

        stop = threading.Event()
        reader = threading.Thread(target=self._read, args=(path, after, tell, stop), name="ao-events", daemon=True)
        reader.start()
        try:
            while True:
                item = await queue.get()
                if isinstance(item, AoError):
                    raise item
                yield item
        finally:
            stop.set()

    def _read(
        self, path: str, after: int, tell: Callable[[Json | AoError | None], None], stop: threading.Event
    ) -> None:
        last, heard = after, time.monotonic()
        while not stop.is_set():
            try:
                with Client(self.home, start=False) as client:
                    headers = {**self._headers, "Accept": "text/event-stream", "Last-Event-ID": str(last)}
                    with client.stream("GET", path, headers=headers) as stream:
                        tell(None)
                        stream.wait(_TICK)
                        while not stop.is_set():
                            heard = time.monotonic()
                            try:
                                event = stream.event()
                            except TimeoutError:
                                continue
                            if event is None:
                                break
                            last = int(event.id)
                            tell(json.loads(event.data))
            except Unreachable as error:
                if time.monotonic() > heard + PATIENCE:
                    tell(error)
                    return
            except AoError as error:
                tell(error)
                return
            stop.wait(0.1)


def _last_line(client: Client, path: str, stop: threading.Event) -> Json:
    """Read an answer of JSON lines to its end, or until nobody wants it any more."""
    last: Json = {}
    with client.stream("GET", path) as stream:
        stream.wait(_TICK)
        while not stop.is_set():
            try:
                line = stream.line()
            except TimeoutError:
                continue
            if line is None:
                break
            last = json.loads(line) if line else last
    return last


async def _in_thread(call: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(_threads(), call)


@cache
def _threads() -> ThreadPoolExecutor:
    """Enough of them that a few slow requests (a stop that saves much) hold nobody else up."""
    return ThreadPoolExecutor(32, thread_name_prefix="ao")
