"""`ao top` with a real daemon, agent and terminal."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pyte
import pytest

from agent_orchestrator.testing.sandbox import Sandbox

TIMEOUT = 90.0


class Terminal:
    """A terminal with `ao top` in it."""

    def __init__(self, box: Sandbox, columns: int = 80, rows: int = 24) -> None:
        self.box = box
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.written = b""
        self._ours, theirs = os.openpty()
        self._size(columns, rows)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agent_orchestrator", "top"],
            cwd=box.repo,
            env=box.env | {"TERM": "xterm-256color"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def shows(self, *words: str, keys: str = "") -> None:
        """Read until all of these are on the screen, and press keys meanwhile."""
        self.until(lambda: all(word in self.text for word in words), f"{words}", keys)

    def until(self, holds: Callable[[], bool], what: str, keys: str = "") -> None:
        """Read output until a condition holds, so that no writer blocks."""

        def is_reached() -> bool:
            if keys:
                self.press(keys)
            while select.select([self._ours], [], [], 0.05)[0]:
                try:
                    piece = os.read(self._ours, 1 << 16)
                except OSError:  # it has ended
                    break
                self.written += piece
                self._stream.feed(piece)
            return holds()

        try:
            self.box.wait_until(is_reached, what, TIMEOUT)
        except TimeoutError as error:
            raise AssertionError(f"{self.text}\n{error}") from None

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        os.close(self._ours)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Sandbox]:
    with Sandbox(tmp_path) as box:
        box.repository()
        box.start()
        yield box


@pytest.fixture
def terminal(box: Sandbox) -> Iterator[Terminal]:
    box.ao("new", "--name", "ask", "[[say: hello]] [[ask: Which database?]] [[done: took {answer}]]")
    box.wait_until(lambda: box.session("ask")["status"] == "needs_input")
    terminal = Terminal(box)
    yield terminal
    terminal.close()


def test_sessions_are_answered_attached_stopped_and_the_daemon_restarted(box: Sandbox, terminal: Terminal) -> None:
    terminal.shows("1 needs you", "! ask", "demo agent on feature/ask", "  hello")
    terminal.press("/")
    terminal.shows("words, status:")
    terminal.press("ask")
    terminal.shows("filter: ask", "! ask")
    terminal.press("\r")
    terminal.shows("! ask")
    terminal.press("a")
    terminal.shows("app-ask asks (question")
    terminal.press("postgres\r")
    terminal.shows("app-ask: answered", "done: took postgres", "· ask", "nothing calls you")

    terminal.written = b""
    terminal.press("\r")
    terminal.until(lambda: any(event["type"] == "terminal-taken" for event in box.events("app-ask")), "the attach")
    terminal.shows("ao top", "back from app-ask", keys="\x1d")
    leave, enter = (terminal.written.find(code) for code in (b"\x1b[?1049l", b"\x1b[?1049h"))
    assert 0 <= leave < enter, "the terminal is the session's as it was before the board"

    box.stop(signal.SIGKILL)
    terminal.shows("the daemon is away")
    box.start()
    terminal.shows("the daemon is back", "Needs you (1)")

    terminal.press("x")
    terminal.shows("Stop app-ask?")
    terminal.press("y")
    terminal.shows("app-ask stopped; undo: ao restore", "Done (1)")
    terminal.press("q")
    assert terminal.process.wait(60) == 0


def test_the_screen_of_a_session_is_served(box: Sandbox) -> None:
    box.ao("new", "--name", "say", "[[say: hello]] [[ask: Well?]]")
    box.wait_until(lambda: box.session("say")["status"] == "needs_input")

    def screen() -> str:
        with box.client() as ao:
            return ao.request("GET", "/api/sessions/app-say/screen").text

    box.wait_until(lambda: "Well?" in screen())
    assert "\x1b" not in screen()
    box.ao("stop", "say")
    assert "  hello" in screen() and "Well?" in screen()


def test_the_project_of_the_current_folder_is_named(box: Sandbox) -> None:
    box.ao("new", "--name", "say", "[[say: hello]]")
    assert box.json("projects")["here"] == "app"
    assert box.ao("projects", "--json", cwd=box.folder).stdout.endswith('"here":null}\n')
