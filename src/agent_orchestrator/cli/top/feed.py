"""What the daemon tells, heard by threads of their own: how things stand, and what one session's terminal shows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from agent_orchestrator.base.http_client import Broken, Stream
from agent_orchestrator.cli.common import session_path
from agent_orchestrator.cli.top.fleet import Fleet
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError, Unreachable

AGAIN = 0.5
"""Seconds after which a daemon that is away is looked for again."""
HEARTBEAT = 45.0
"""Seconds of silence after which the line counts as dead; the daemon gives a sign of life every 15."""
LOOK = 1.0
"""Seconds after which the terminal of a session that runs is looked at again."""
_STEP = 0.5


class Feed(threading.Thread):
    """Follows the board, across restarts of the daemon. It tells that there is news, once until `news` is taken."""

    def __init__(self, ao: Client, tell: Callable[[], None]) -> None:
        super().__init__(name="ao-top-feed", daemon=True)
        self._ao = ao
        self._tell = tell
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._fleet = Fleet()
        self._away = ""
        self._told = False

    def news(self) -> tuple[Fleet, str]:
        """How things stand, and why the daemon is away; empty: it is there."""
        with self._lock:
            self._told = False
            return self._fleet, self._away

    def end(self) -> None:
        """Stop listening."""
        self._ended.set()

    def run(self) -> None:
        """Listen until told to end."""
        while not self._ended.is_set():
            try:
                with self._ao.stream("GET", "/api/live", headers={"Accept": "text/event-stream"}) as stream:
                    self._listen(stream)
                self._change(self._fleet, "it ended")
            except AoError as error:
                self._change(self._fleet, "it is not running" if isinstance(error, Unreachable) else str(error))
            except (ValueError, LookupError, TypeError) as error:
                self._change(self._fleet, f"what it tells cannot be read ({type(error).__name__}: {error})")
            self._ao.close()
            self._ended.wait(AGAIN)
        self._ao.close()

    def _listen(self, stream: Stream) -> None:
        silent = 0.0
        stream.wait(_STEP)
        while not self._ended.is_set():
            try:
                event = stream.event()
            except TimeoutError:
                silent += _STEP
                if silent >= HEARTBEAT:
                    raise Broken("nothing was heard for a while") from None
                continue
            silent = 0.0
            if event is None:
                return
            if event.type == "live":
                self._change(self._fleet.after(json.loads(event.data)), "")

    def _change(self, fleet: Fleet, away: str) -> None:
        with self._lock:
            same = fleet is self._fleet and away == self._away
            self._fleet, self._away = fleet, away
            tell, self._told = not (same or self._told), self._told or not same
        if tell:
            self._tell()


class Look(threading.Thread):
    """Looks at one session's terminal: at once when another one is chosen, then again and again while its agent runs."""

    def __init__(self, ao: Client, show: Callable[[str, str], None]) -> None:
        super().__init__(name="ao-top-look", daemon=True)
        self._ao = ao
        self._show = show
        self._news = threading.Event()
        self._session: str | None = None
        self._again = False
        self._ended = False

    def at(self, session: str | None, *, again: bool) -> None:
        """Look at this one; `again`: its agent runs."""
        fresh = session != self._session or (self._again and not again)
        self._session, self._again = session, again
        if fresh:
            self._news.set()

    def end(self) -> None:
        """Stop looking."""
        self._ended = True
        self._news.set()

    def run(self) -> None:
        """Look until told to end."""
        while not self._ended:
            self._news.clear()
            if (session := self._session) is not None:
                try:
                    text = self._ao.request("GET", session_path(session, "/screen"), timeout=10.0).text
                except Unreachable:
                    self._ao.close()
                except AoError as error:
                    self._show(session, str(error))
                else:
                    self._show(session, text)
            self._news.wait(LOOK if self._again else None)
        self._ao.close()
