"""The connection of the Python API to the daemon: the command line's client, run in threads so that the event loop never blocks."""

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

from agent_orchestrator.base.http_client import error_from_problem, quote, with_query
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, Unreachable

Result = TypeVar("Result")
Json = dict[str, Any]
Query = Mapping[str, str | int | None]

DAEMON_TIMEOUT = 60.0
"""Seconds for which a stream of events tolerates a missing daemon; a restart takes less."""

_POLL_SECONDS = 0.5
"""Seconds after which a reader checks whether it should stop."""


class TimedOut(AoError, TimeoutError):
    """Raised when what was waited for did not happen in time."""

    category = "timed-out"


class DaemonConnection:
    """The connection to one user's daemon, which is started if it does not run."""

    def __init__(
        self, home: str | os.PathLike[str] | None = None, folder: str | os.PathLike[str] | None = None
    ) -> None:
        """`home`: `$AO_HOME`; `folder`: the folder requests come from, if not the working directory."""
        self.home = home
        self._headers = {} if folder is None else {"X-AO-Cwd": quote(str(Path(folder).absolute()))}

    async def get(self, path: str, query: Query | None = None) -> Any:
        """GET a JSON document."""
        return await self.request("GET", with_query(path, query))

    async def post(self, path: str, body: object = None, *, timeout: float = 60.0) -> Any:
        """POST a JSON document and return the JSON document of the answer."""
        return await self.request("POST", path, {} if body is None else body, timeout=timeout)

    async def request(self, method: str, path: str, body: object = None, *, timeout: float = 60.0) -> Any:
        """Send a request and return the JSON document of the answer; errors are raised as those of `errors.py`."""

        def send() -> Any:
            with DaemonClient(self.home) as client:
                return client.request(method, path, body, headers=self._headers, timeout=timeout).json()

        return await _in_thread(send)

    async def get_if_running(self, path: str) -> Any:
        """GET a JSON document; wait for a daemon that is away instead of starting it: it may be restarting, or was shut down."""

        def send() -> Any:
            with DaemonClient(self.home, start=False) as client:
                return client.request("GET", path, headers=self._headers).json()

        end = time.monotonic() + DAEMON_TIMEOUT
        while True:
            try:
                return await _in_thread(send)
            except Unreachable:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(0.2)

    async def text(self, path: str) -> str:
        """GET a text."""

        def send() -> str:
            with DaemonClient(self.home) as client:
                return client.request("GET", path, headers=self._headers).text

        return await _in_thread(send)

    async def wait_until_started(self, session: str) -> Json:
        """Wait until a session's agent runs, it failed, or it is clear that it must wait; return the session's data."""
        stop = threading.Event()

        def wait_for_start() -> Json:
            while True:
                with DaemonClient(self.home) as client:
                    try:
                        last = _last_line(client, f"/api/sessions/{quote(session)}/wait", stop)
                    except Unreachable:
                        last = {}
                    if "problem" in last:
                        raise error_from_problem(last["problem"])
                    if "session" in last or stop.is_set():
                        return dict(last.get("session") or {})

        try:
            return await _in_thread(wait_for_start)
        finally:
            stop.set()

    async def newest_event_number(self) -> int:
        """Return the number of the newest event, or 0."""
        events = (await self.get("/api/events", {"limit": 1}))["events"]
        return int(events[-1]["seq"]) if events else 0

    async def follow_events(
        self, after: int, *, session: str | None = None, project: str | None = None
    ) -> AsyncGenerator[Json | None, None]:
        """Yield events after a number without end, across restarts of the daemon; None whenever the stream starts or restarts."""
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[Json | AoError | None]()
        path = with_query("/api/events", {"session": session, "project": project})

        def enqueue(item: Json | AoError | None) -> None:
            try:
                loop.call_soon_threadsafe(queue.put_nowait, item)
            except RuntimeError:  # the loop is closed: stop reading
                stop.set()

        stop = threading.Event()
        reader = threading.Thread(target=self._read, args=(path, after, enqueue, stop), name="ao-events", daemon=True)
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
        self, path: str, after: int, enqueue: Callable[[Json | AoError | None], None], stop: threading.Event
    ) -> None:
        """Read the stream of events in a thread, reconnecting until `stop` is set or the daemon is away for `DAEMON_TIMEOUT`."""
        last, last_contact = after, time.monotonic()
        while not stop.is_set():
            try:
                with DaemonClient(self.home, start=False) as client:
                    headers = {**self._headers, "Accept": "text/event-stream", "Last-Event-ID": str(last)}
                    with client.stream("GET", path, headers=headers) as stream:
                        enqueue(None)
                        stream.set_timeout(_POLL_SECONDS)
                        while not stop.is_set():
                            last_contact = time.monotonic()
                            try:
                                event = stream.read_event()
                            except TimeoutError:
                                continue
                            if event is None:
                                break
                            last = int(event.id)
                            enqueue(json.loads(event.data))
            except Unreachable as error:
                if time.monotonic() > last_contact + DAEMON_TIMEOUT:
                    enqueue(error)
                    return
            except AoError as error:
                enqueue(error)
                return
            stop.wait(0.1)


def _last_line(client: DaemonClient, path: str, stop: threading.Event) -> Json:
    """Read an answer of JSON lines to its end, or until `stop` is set; return the last line."""
    last: Json = {}
    with client.stream("GET", path) as stream:
        stream.set_timeout(_POLL_SECONDS)
        while not stop.is_set():
            try:
                line = stream.read_line()
            except TimeoutError:
                continue
            if line is None:
                break
            last = json.loads(line) if line else last
    return last


async def _in_thread(call: Callable[[], Result]) -> Result:
    """Run a blocking call in the thread pool and return its result."""
    return await asyncio.get_running_loop().run_in_executor(_thread_pool(), call)


@cache
def _thread_pool() -> ThreadPoolExecutor:
    """Return the shared thread pool, large enough that a few slow requests (a stop that saves much) do not block others."""
    return ThreadPoolExecutor(32, thread_name_prefix="ao")
