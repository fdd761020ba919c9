"""A terminal in the browser: the delay of an echoed key compared with a plain terminal, and the effect of 50 MB of output."""

from __future__ import annotations

import fcntl
import http.client
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.board.browser import drawing_delays, open_board
from benchmarks.fleet import ProgressReports
from benchmarks.measure import Figure, cpu_seconds, quantile, resident_megabytes
from tests.browser.person import Person, new_context

RUNTIMES = ("tmux", "process")
KEYS = 120
KEY_INTERVAL_SECONDS = 0.1
MEGABYTES = 50
LAST_LINES = [*map(str, range(1, 21)), "the last line"]
FLOOD = (
    f"[[sh: yes 'the quick brown fox jumps over the lazy dog, again and again' 2>/dev/null | head -c {MEGABYTES}000000;"
    " echo; seq 1 20; echo the last 'li'ne]]"
)
CHANGES_PER_SECOND = 5.0
TIMEOUT = 300.0
_TAKE_TERMINAL = (
    "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)

RECORD_ECHOES = """
window.echoes = [];
let pressed = 0, known = 0;
const rows = () => document.querySelector(".xterm-rows");
const count = () => (rows()?.textContent ?? "").split("z").length - 1;
addEventListener("keydown", (event) => { known = count(); pressed = event.timeStamp; }, true);
new MutationObserver(() => {
  if (!pressed || count() <= known) return;
  const since = pressed;
  pressed = 0;
  const channel = new MessageChannel();
  channel.port1.onmessage = () => window.echoes.push(performance.now() - since);
  channel.port2.postMessage(0);
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""A script that records the milliseconds from each press of `z` until one more was drawn."""

RECORD_GAPS = """
window.gaps = [];
let before = performance.now();
setInterval(() => { const now = performance.now(); window.gaps.push(now - before); before = now; }, 10);
"""
"""A script that records the milliseconds between the ticks of a 10 ms timer."""

READ_ROWS = '() => [...document.querySelectorAll(".xterm-rows > div")].map((row) => row.textContent.trimEnd())'


def measure_typing(box: Sandbox, browser: Any) -> Iterator[Figure]:
    """Measure echoed keys in the browser and in a plain terminal attached to the same session, in turns."""
    for runtime in RUNTIMES:
        session = _start_session(box, f"typing-{runtime}", runtime)
        with (
            _open_terminal(box, browser, session, RECORD_ECHOES) as (person, size),
            PlainTerminal(box, session, size) as plain,
        ):
            bare = []
            for _ in range(KEYS):
                person.page.keyboard.press("z")
                time.sleep(KEY_INTERVAL_SECONDS)  # whoever asks the page meanwhile makes it slower
                bare.append(plain.echo_time(b"Y"))
                time.sleep(KEY_INTERVAL_SECONDS)
            person.page.wait_for_function("(count) => window.echoes.length >= count", arg=KEYS)
            ours = [milliseconds / 1e3 for milliseconds in person.page.evaluate("() => window.echoes")]
        our_p95, plain_p95 = quantile(ours, 0.95), quantile(bare, 0.95)
        note = (
            f"p95 {our_p95 * 1e3:.1f} ms, a plain terminal's {plain_p95 * 1e3:.1f} ms; "
            f"p50 {quantile(ours, 0.5) * 1e3:.1f} and {quantile(bare, 0.5) * 1e3:.1f} ms"
        )
        yield Figure(
            f"key → drawn, over a plain terminal's, {runtime} (p95)", (our_p95 - plain_p95) * 1e3, 30, "ms", note=note
        )


class PlainTerminal:
    """A plain terminal that runs the runtime's attach command."""

    def __init__(self, box: Sandbox, session: str, size: tuple[int, int]) -> None:
        command = box.request("GET", f"/api/sessions/{session}/attach")
        self._terminal, slave = os.openpty()
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        env = {**box.env, "TERM": "xterm-256color", "COLORTERM": "truecolor", **command["env"]}
        argv = [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, *command["argv"]]
        self._process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
        os.close(slave)

    def __enter__(self) -> PlainTerminal:
        while self._read(1.0):  # the screen as it was
            pass
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGHUP)
        os.close(self._terminal)
        self._process.wait(10)

    def echo_time(self, key: bytes) -> float:
        """Press a key; return the seconds until its echo."""
        while self._read(0):  # discard earlier output
            pass
        begun = time.perf_counter()
        os.write(self._terminal, key)
        output = b""
        while key not in output:
            output += self._read(10) or b"?" + key
        return time.perf_counter() - begun

    def _read(self, timeout: float) -> bytes:
        ready, _, _ = select.select([self._terminal], [], [], timeout)
        return os.read(self._terminal, 1 << 16) if ready else b""


def measure_flood(box: Sandbox, browser: Any, changes: ProgressReports) -> Iterator[Figure]:
    """Measure while an agent prints 50 MB, with one viewer of its terminal and another of the board."""
    pid = box.daemon_pid()
    assert pid is not None
    for runtime in RUNTIMES:
        session = _start_session(box, f"flood-{runtime}", runtime)
        viewer = Person(box, new_context(browser))
        open_board(viewer)
        with _open_terminal(box, browser, session, RECORD_GAPS) as (person, _), _HealthProbe(box) as probe:
            before, cpu, begun = _count_turns(box, session), cpu_seconds(pid), time.monotonic()
            box.request("POST", f"/api/sessions/{session}/message", {"content": FLOOD})
            with changes.write_in_background(CHANGES_PER_SECOND) as times:
                box.wait_until(lambda s=session, n=before: _count_turns(box, s) > n, "the last line", TIMEOUT)  # type: ignore[misc]
                print_seconds = time.monotonic() - begun
                person.page.wait_for_function(
                    f"() => ({READ_ROWS})().includes('{LAST_LINES[-1]}')", timeout=TIMEOUT * 1e3
                )
                cpu, shown_seconds = cpu_seconds(pid) - cpu, time.monotonic() - begun
            answers = probe.seconds
            gaps = person.page.evaluate("() => window.gaps")
            person.page.wait_for_timeout(500)
            rows = [row for row in person.page.evaluate(READ_ROWS) if row]
            delays = drawing_delays(viewer, times)
        viewer.close()
        title = f"{MEGABYTES} MB printed, {runtime}"
        note = f"p99 {quantile(gaps, 0.99):.0f} ms; printed in {print_seconds:.1f} s, all of it shown after {shown_seconds:.1f} s"
        yield Figure(f"{title}: the page's longest pause", max(gaps), 500, "ms", note=note)
        note = f"p50 {quantile(answers, 0.5) * 1e3:.1f} ms, worst of {len(answers)} {max(answers) * 1e3:.0f} ms"
        yield Figure(f"{title}: `GET /healthz` meanwhile (p95)", quantile(answers, 0.95) * 1e3, 100, "ms", note=note)
        note = f"worst of {len(delays)} {max(delays) * 1e3:.0f} ms"
        yield Figure(f"{title}: change → on another's board (p95)", quantile(delays, 0.95) * 1e3, 300, "ms", note=note)
        note = f"the daemon used {cpu:.1f} s of CPU time meanwhile, and has {resident_megabytes(pid):.0f} MB"
        yield Figure(f"{title}: lines of the last screen that are wrong", _wrong_lines(rows), 0, "lines", note=note)


class _HealthProbe:
    """Requests the daemon's health repeatedly during the block."""

    def __init__(self, box: Sandbox) -> None:
        self.seconds: list[float] = []
        self._address = urlsplit(str(box.client().info()["url"]))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_requests)

    def __enter__(self) -> _HealthProbe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send_requests(self) -> None:
        line = http.client.HTTPConnection(self._address.netloc)
        while not self._stop.wait(0.02):
            begun = time.perf_counter()
            line.request("GET", "/healthz")
            line.getresponse().read()
            self.seconds.append(time.perf_counter() - begun)
        line.close()


def _wrong_lines(rows: Sequence[str]) -> int:
    """Return the number of wrong lines above the agent's prompt; the line below it is tmux's status."""
    expected = [*LAST_LINES, ">"]
    lines = [row.strip() for row in rows]
    end = len(lines) - lines[::-1].index(">") if ">" in lines else 0
    last = lines[max(0, end - len(expected)) : end]
    return sum(a != b for a, b in zip(expected, last, strict=False)) + len(expected) - len(last)


def _count_turns(box: Sandbox, session: str) -> int:
    """Return how many turns the agent has ended, read from its spool to put no load on the daemon."""
    return (box.home.session(session) / "spool.1.jsonl").read_text().count('"idle"')


def _start_session(box: Sandbox, name: str, runtime: str) -> str:
    """Start a session whose agent waits for input; return its id."""
    box.request("POST", "/api/sessions", {"name": name, "prompt": "[[say: ready]]", "runtime": runtime})
    session = f"app-{name}"
    box.wait_until(lambda: box.session(session)["status"] == "idle", f"{name} to be ready", 60)
    return session


@contextmanager
def _open_terminal(box: Sandbox, browser: Any, session: str, script: str) -> Iterator[tuple[Person, tuple[int, int]]]:
    """Yield a person with the focus in a session's terminal, and the terminal's size."""
    person = Person(box, new_context(browser))
    try:
        sizes: list[Mapping[str, list[str]]] = []
        person.page.on("websocket", lambda line: sizes.append(parse_qs(urlsplit(line.url).query)))
        person.sign_in("operator")
        person.page.add_init_script(script)
        person.go(f"/sessions/{session}/terminal")
        person.page.locator('[data-terminal="open"]').wait_for()
        person.page.locator(".xterm-helper-textarea").focus()
        person.page.wait_for_timeout(500)
        yield person, (int(sizes[-1]["columns"][0]), int(sizes[-1]["rows"][0]))
    finally:
        person.close()
