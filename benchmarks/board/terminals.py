"""A terminal in the browser: how much later than in a plain one a key is echoed, and what fifty megabytes of output do to everybody."""

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
from benchmarks.board.browser import drawn, look
from benchmarks.fleet import Changes
from benchmarks.measure import Figure, cpu_seconds, resident, share
from tests.browser.person import Person, new_context

RUNTIMES = ("tmux", "process")
KEYS = 120
PAUSE = 0.1
MEGABYTES = 50
LAST = [*map(str, range(1, 21)), "the last line"]
FLOOD = (
    f"[[sh: yes 'the quick brown fox jumps over the lazy dog, again and again' 2>/dev/null | head -c {MEGABYTES}000000;"
    " echo; seq 1 20; echo the last 'li'ne]]"
)
A_SECOND = 5.0
PATIENCE = 300.0
_TAKE_TERMINAL = (
    "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)

ECHOES = """
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
"""Milliseconds from each press of `z` until one more of them was drawn."""

GAPS = """
window.gaps = [];
let before = performance.now();
setInterval(() => { const now = performance.now(); window.gaps.push(now - before); before = now; }, 10);
"""
"""Milliseconds between the ticks of a clock that is to tick every ten."""

ROWS = '() => [...document.querySelectorAll(".xterm-rows > div")].map((row) => row.textContent.trimEnd())'


def typing(box: Sandbox, browser: Any) -> Iterator[Figure]:
    """Keys in the browser and in a plain terminal that is attached to the same session, in turns."""
    for runtime in RUNTIMES:
        session = _waiting(box, f"typing-{runtime}", runtime)
        with _at_terminal(box, browser, session, ECHOES) as (person, size), Attached(box, session, size) as plain:
            bare = []
            for _ in range(KEYS):
                person.page.keyboard.press("z")
                time.sleep(PAUSE)  # whoever asks the page meanwhile makes it slower
                bare.append(plain.echoed(b"Y"))
                time.sleep(PAUSE)
            person.page.wait_for_function("(count) => window.echoes.length >= count", arg=KEYS)
            ours = [took / 1e3 for took in person.page.evaluate("() => window.echoes")]
        late, least = share(ours, 0.95), share(bare, 0.95)
        note = (
            f"p95 {late * 1e3:.1f} ms, a plain terminal's {least * 1e3:.1f} ms; "
            f"p50 {share(ours, 0.5) * 1e3:.1f} and {share(bare, 0.5) * 1e3:.1f} ms"
        )
        yield Figure(
            f"key → drawn, over a plain terminal's, {runtime} (p95)", (late - least) * 1e3, 30, "ms", note=note
        )


class Attached:
    """A plain terminal with the runtime's own attach command in it."""

    def __init__(self, box: Sandbox, session: str, size: tuple[int, int]) -> None:
        command = box.request("GET", f"/api/sessions/{session}/attach")
        self._terminal, slave = os.openpty()
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        env = {**box.env, "TERM": "xterm-256color", "COLORTERM": "truecolor", **command["env"]}
        argv = [sys.executable, "-I", "-S", "-c", _TAKE_TERMINAL, *command["argv"]]
        self._process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
        os.close(slave)

    def __enter__(self) -> Attached:
        while self._read(1.0):  # the screen as it was
            pass
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGHUP)
        os.close(self._terminal)
        self._process.wait(10)

    def echoed(self, key: bytes) -> float:
        """Press a key; seconds until it comes back."""
        while self._read(0):  # what came since
            pass
        begun = time.perf_counter()
        os.write(self._terminal, key)
        seen = b""
        while key not in seen:
            seen += self._read(10) or b"?" + key
        return time.perf_counter() - begun

    def _read(self, patience: float) -> bytes:
        ready, _, _ = select.select([self._terminal], [], [], patience)
        return os.read(self._terminal, 1 << 16) if ready else b""


def flooding(box: Sandbox, browser: Any, changes: Changes) -> Iterator[Figure]:
    """An agent prints fifty megabytes while one person looks at its terminal and another at the board."""
    pid = box.daemon_pid()
    assert pid is not None
    for runtime in RUNTIMES:
        session = _waiting(box, f"flood-{runtime}", runtime)
        looker = Person(box, new_context(browser))
        look(looker)
        with _at_terminal(box, browser, session, GAPS) as (person, _), _Asking(box) as asking:
            before, used, begun = _turns(box, session), cpu_seconds(pid), time.monotonic()
            box.request("POST", f"/api/sessions/{session}/message", {"content": FLOOD})
            with changes.meanwhile(A_SECOND) as made:
                box.until(lambda s=session, n=before: _turns(box, s) > n, "the last line", PATIENCE)  # type: ignore[misc]
                printed = time.monotonic() - begun
                person.page.wait_for_function(f"() => ({ROWS})().includes('{LAST[-1]}')", timeout=PATIENCE * 1e3)
                used, shown = cpu_seconds(pid) - used, time.monotonic() - begun
            answers = asking.took
            gaps = person.page.evaluate("() => window.gaps")
            person.page.wait_for_timeout(500)
            rows = [row for row in person.page.evaluate(ROWS) if row]
            told = drawn(looker, made)
        looker.leave()
        title = f"{MEGABYTES} MB printed, {runtime}"
        note = f"p99 {share(gaps, 0.99):.0f} ms; printed in {printed:.1f} s, all of it shown after {shown:.1f} s"
        yield Figure(f"{title}: the page's longest pause", max(gaps), 500, "ms", note=note)
        note = f"p50 {share(answers, 0.5) * 1e3:.1f} ms, worst of {len(answers)} {max(answers) * 1e3:.0f} ms"
        yield Figure(f"{title}: `GET /healthz` meanwhile (p95)", share(answers, 0.95) * 1e3, 100, "ms", note=note)
        note = f"worst of {len(told)} {max(told) * 1e3:.0f} ms"
        yield Figure(f"{title}: change → on another's board (p95)", share(told, 0.95) * 1e3, 300, "ms", note=note)
        note = f"the daemon used {used:.1f} s of CPU time meanwhile, and has {resident(pid):.0f} MB"
        yield Figure(f"{title}: lines of the last screen that are wrong", _wrong(rows), 0, "lines", note=note)


class _Asking:
    """Asks the daemon whether it is well, again and again, as long as the block lasts."""

    def __init__(self, box: Sandbox) -> None:
        self.took: list[float] = []
        self._place = urlsplit(str(box.client().info()["url"]))
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> _Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _ask(self) -> None:
        line = http.client.HTTPConnection(self._place.netloc)
        while not self._enough.wait(0.02):
            begun = time.perf_counter()
            line.request("GET", "/healthz")
            line.getresponse().read()
            self.took.append(time.perf_counter() - begun)
        line.close()


def _wrong(rows: Sequence[str]) -> int:
    """Lines that are not what was printed last, above the agent's prompt; below that, tmux has a line of its own."""
    expected = [*LAST, ">"]
    seen = [row.strip() for row in rows]
    end = len(seen) - seen[::-1].index(">") if ">" in seen else 0
    last = seen[max(0, end - len(expected)) : end]
    return sum(a != b for a, b in zip(expected, last, strict=False)) + len(expected) - len(last)


def _turns(box: Sandbox, session: str) -> int:
    """How often its agent came to the end of a turn; asked of its spool, to leave the daemon alone."""
    return (box.home.session(session) / "spool.1.jsonl").read_text().count('"idle"')


def _waiting(box: Sandbox, name: str, runtime: str) -> str:
    """A session whose agent waits for a person to type."""
    box.request("POST", "/api/sessions", {"name": name, "prompt": "[[say: ready]]", "runtime": runtime})
    session = f"app-{name}"
    box.until(lambda: box.session(session)["status"] == "idle", f"{name} to be ready", 60)
    return session


@contextmanager
def _at_terminal(box: Sandbox, browser: Any, session: str, script: str) -> Iterator[tuple[Person, tuple[int, int]]]:
    """A person with the keyboard in a session's terminal, and its size."""
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
        person.leave()
