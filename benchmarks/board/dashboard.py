"""The dashboard in a real Chromium on a real daemon with fifty sessions: how soon it is there, and how soon it tells of a change."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from benchmarks.board.browser import drawn, look
from benchmarks.board.terminals import flooding, typing
from benchmarks.board.viewers import following
from benchmarks.fleet import SIZE, Changes, gathered
from benchmarks.measure import Figure, cpu_seconds, share
from tests.browser.person import Person, chromium, launch_browser, new_context

LOADS = 9
VIEWERS = 5
CHANGES = 150
A_SECOND = 10.0

AT_FIRST = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("[data-card]")) return;
  observer.disconnect();
  requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => { window.firstCard = performance.now(); };
    channel.port2.postMessage(0);
  });
}).observe(document, { subtree: true, childList: true });
"""
"""When the first card was drawn, in milliseconds since the navigation began."""

LOADED = """
() => performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation")).map((one) => ({
  path: new URL(one.name).pathname, size: one.encodedBodySize, asked: one.requestStart, there: one.responseEnd,
}))
"""


def dashboard(folder: Path) -> Iterator[Figure]:
    """All of it; without Chromium, Playwright or tmux nothing."""
    missing = _missing()
    if missing:
        print(f"dashboard: left out, there is no {missing}: `make test-browser` brings it", file=sys.stderr)
        return
    with Sandbox(folder / "box", "tmux") as box, launch_browser(chromium()) as browser:
        working = gathered(box)
        yield from painting(box, browser)
        changes = Changes(box, working)
        yield from telling(box, browser, changes)
        yield from typing(box, browser)
        yield from flooding(box, browser, changes)
        yield from following(box, changes, 100, 300)


def _missing() -> str:
    """What is not here and needed."""
    found = {
        "Playwright": importlib.util.find_spec("playwright"),
        "Chromium": chromium(),
        "tmux": have_tmux(),
    }
    return next((name for name, there in found.items() if not there), "")


def painting(box: Sandbox, browser: Any) -> Iterator[Figure]:
    """From the beginning of the navigation until the first card is drawn, each time in a browser that knows nothing yet."""
    pid = box.daemon_pid()
    assert pid is not None
    _painted(box, browser)  # the daemon has compressed its files once
    used = cpu_seconds(pid)
    loads = [_painted(box, browser) for _ in range(LOADS)]
    used = (cpu_seconds(pid) - used) / LOADS
    took = [first for first, _ in loads]
    waits = statistics.median(_waited(files, first) for first, files in loads)
    note = f"worst {max(took):.2f} s; {waits * 1e3:.0f} ms of it files were waited for; the daemon computed {used * 1e3:.0f} ms"
    yield Figure(f"first card drawn, {SIZE} sessions (median of {LOADS})", statistics.median(took), 1, "s", note=note)
    shell = {one["path"]: one["size"] for one in loads[-1][1] if one["path"].endswith((".js", ".css"))}
    note = f"{len(shell)} files; all that the board loads"
    yield Figure("scripts and styles of the board, compressed", sum(shell.values()) / 1e3, 150, "kB", note=note)
    heavy = [path for path in shell if "/terminal-" in path or "/changes-" in path]
    yield Figure("of these for terminal or diff", len(heavy), 0, "files")


def _painted(box: Sandbox, browser: Any) -> tuple[float, list[dict[str, Any]]]:
    """Seconds to the first card, and what was loaded by the time that all is quiet."""
    context = new_context(browser)
    try:
        link, _, code = box.request("POST", "/api/login-links", {"role": "viewer"})["url"].partition("#login=")
        context.request.post(f"{link}api/login", data={"code": code})
        page = context.new_page()
        page.add_init_script(AT_FIRST)
        page.goto(link, wait_until="commit")
        first = float(page.wait_for_function("() => window.firstCard").json_value()) / 1e3
        page.wait_for_timeout(500)
        return first, page.evaluate(LOADED)
    finally:
        context.close()


def _waited(files: list[dict[str, Any]], until: float) -> float:
    """Seconds before that moment in which some file was on its way."""
    total = reached = 0.0
    for asked, there in sorted((one["asked"] / 1e3, min(one["there"] / 1e3, until)) for one in files):
        total += max(0.0, there - max(asked, reached))
        reached = max(reached, there)
    return total


def telling(box: Sandbox, browser: Any, changes: Changes) -> Iterator[Figure]:
    """From a line in an agent's spool until it is drawn on the card, by every one of five people who look."""
    people = [Person(box, new_context(browser)) for _ in range(VIEWERS)]
    try:
        for person in people:
            look(person)
        made = changes.make_all(CHANGES, A_SECOND)
        took = [each for person in people for each in drawn(person, made)]
    finally:
        for person in people:
            person.leave()
    note = f"p50 {share(took, 0.5) * 1e3:.0f} ms, worst of {len(took)} {max(took) * 1e3:.0f} ms; {A_SECOND:g} changes a second"
    title = f"change → on the card, {SIZE} sessions, {VIEWERS} viewers (p95)"
    yield Figure(title, share(took, 0.95) * 1e3, 300, "ms", note=note)
