"""Threads that read from the daemon: the live state of all sessions, and the screen of one session's terminal."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from agent_orchestrator.base.http_client import ConnectionBroken, StreamedResponse
from agent_orchestrator.cli.common import session_path
from agent_orchestrator.cli.top.board_state import BoardState
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, Unreachable

RECONNECT_INTERVAL = 0.5
"""Seconds between two attempts to connect to the daemon."""
SILENCE_LIMIT = 45.0
"""Seconds of silence after which the connection counts as broken; the daemon sends a sign of life every 15."""
SCREEN_INTERVAL = 1.0
"""Seconds between two reads of the screen of a running session."""
_WAIT_SECONDS = 0.5


class BoardFeed(threading.Thread):
    """Follows the state of all sessions, across restarts of the daemon. It notifies once of changes until `latest` is called."""

    def __init__(self, ao: DaemonClient, notify: Callable[[], None]) -> None:
        super().__init__(name="ao-top-feed", daemon=True)
        self._ao = ao
        self._notify = notify
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._fleet = BoardState()
        self._unreachable_reason = ""
        self._is_notified = False

    def latest(self) -> tuple[BoardState, str]:
        """Return the current state, and why the daemon cannot be reached; empty if it can."""
        with self._lock:
            self._is_notified = False
            return self._fleet, self._unreachable_reason

    def end(self) -> None:
        """Stop listening."""
        self._ended.set()

    def run(self) -> None:
        """Listen until `end` is called."""
        while not self._ended.is_set():
            try:
                with self._ao.stream("GET", "/api/live", headers={"Accept": "text/event-stream"}) as stream:
                    self._listen(stream)
                self._update(self._fleet, "it ended")
            except AoError as error:
                self._update(self._fleet, "it is not running" if isinstance(error, Unreachable) else str(error))
            except (ValueError, LookupError, TypeError) as error:
                self._update(self._fleet, f"what it tells cannot be read ({type(error).__name__}: {error})")
            self._ao.close()
            self._ended.wait(RECONNECT_INTERVAL)
        self._ao.close()

    def _listen(self, stream: StreamedResponse) -> None:
        silent_seconds = 0.0
        stream.set_timeout(_WAIT_SECONDS)
        while not self._ended.is_set():
            try:
                event = stream.read_event()
            except TimeoutError:
                silent_seconds += _WAIT_SECONDS
                if silent_seconds >= SILENCE_LIMIT:
                    raise ConnectionBroken("nothing was heard for a while") from None
                continue
            silent_seconds = 0.0
            if event is None:
                return
            if event.type == "live":
                self._update(self._fleet.with_frame(json.loads(event.data)), "")

    def _update(self, fleet: BoardState, away: str) -> None:
        with self._lock:
            is_same = fleet is self._fleet and away == self._unreachable_reason
            self._fleet, self._unreachable_reason = fleet, away
            must_notify, self._is_notified = not (is_same or self._is_notified), self._is_notified or not is_same
        if must_notify:
            self._notify()


class ScreenPoller(threading.Thread):
    """Reads one session's screen: at once after a change of session, then periodically while its agent runs."""

    def __init__(self, ao: DaemonClient, show: Callable[[str, str], None]) -> None:
        super().__init__(name="ao-top-look", daemon=True)
        self._ao = ao
        self._show = show
        self._wake = threading.Event()
        self._session: str | None = None
        self._is_live = False
        self._ended = False

    def watch(self, session: str | None, *, is_live: bool) -> None:
        """Watch this session; `is_live` if its agent runs."""
        is_new = session != self._session or (self._is_live and not is_live)
        self._session, self._is_live = session, is_live
        if is_new:
            self._wake.set()

    def end(self) -> None:
        """Stop polling."""
        self._ended = True
        self._wake.set()

    def run(self) -> None:
        """Poll until `end` is called."""
        while not self._ended:
            self._wake.clear()
            if (session := self._session) is not None:
                try:
                    text = self._ao.request("GET", session_path(session, "/screen"), timeout=10.0).text
                except Unreachable:
                    self._ao.close()
                except AoError as error:
                    self._show(session, str(error))
                else:
                    self._show(session, text)
            self._wake.wait(SCREEN_INTERVAL if self._is_live else None)
        self._ao.close()
