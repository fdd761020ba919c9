"""The dashboard in Chromium on a daemon with fifty sessions: time to the first card and to each shown change."""

from __future__ import annotations

import importlib.util
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from benchmarks.board.browser import drawing_delays, open_board
from benchmarks.board.terminals import measure_flood, measure_typing
from benchmarks.board.viewers import measure_viewers
from benchmarks.fleet import SIZE, ProgressReports, start_fleet
from benchmarks.measure import Figure, cpu_seconds, quantile
from tests.browser.person import Person, chromium, launch_browser, new_context

LOADS = 9
VIEWERS = 5
CHANGES = 150
CHANGES_PER_SECOND = 10.0

RECORD_FIRST_CARD = """
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
"""A script that records when the first card was drawn, in milliseconds since the navigation began."""

LOADED_FILES = """
() => performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation")).map((one) => ({
  path: new URL(one.name).pathname, size: one.encodedBodySize, asked: one.requestStart, there: one.responseEnd,
}))
"""


def measure_dashboard(folder: Path) -> Iterator[Figure]:
    """Yield all figures of the dashboard; none without Chromium, Playwright or tmux."""
    missing = _missing()
    if missing:
        print(f"dashboard: left out, there is no {missing}: `make test-browser` brings it", file=sys.stderr)
        return
    with Sandbox(folder / "box", "tmux") as box, launch_browser(chromium()) as browser:
        working = start_fleet(box)
        yield from measure_first_card(box, browser)
        changes = ProgressReports(box, working)
        yield from measure_updates(box, browser, changes)
        yield from measure_typing(box, browser)
        yield from measure_flood(box, browser, changes)
        yield from measure_viewers(box, changes, 100, 300)


def _missing() -> str:
    """Return the first requirement that is missing, or an empty string."""
    requirements = {
        "Playwright": importlib.util.find_spec("playwright"),
        "Chromium": chromium(),
        "tmux": have_tmux(),
    }
    return next((name for name, is_present in requirements.items() if not is_present), "")


def measure_first_card(box: Sandbox, browser: Any) -> Iterator[Figure]:
    """Measure from the start of the navigation until the first card is drawn, each time with an empty cache."""
    pid = box.daemon_pid()
    assert pid is not None
    _load_board(box, browser)  # the daemon has compressed its files once
    cpu = cpu_seconds(pid)
    loads = [_load_board(box, browser) for _ in range(LOADS)]
    cpu = (cpu_seconds(pid) - cpu) / LOADS
    seconds = [first_card for first_card, _ in loads]
    waits = statistics.median(_loading_seconds(files, first_card) for first_card, files in loads)
    note = f"worst {max(seconds):.2f} s; {waits * 1e3:.0f} ms of it files were waited for; the daemon computed {cpu * 1e3:.0f} ms"
    yield Figure(
        f"first card drawn, {SIZE} sessions (median of {LOADS})", statistics.median(seconds), 1, "s", note=note
    )
    sizes = {file["path"]: file["size"] for file in loads[-1][1] if file["path"].endswith((".js", ".css"))}
    note = f"{len(sizes)} files; all that the board loads"
    yield Figure("scripts and styles of the board, compressed", sum(sizes.values()) / 1e3, 150, "kB", note=note)
    unneeded = [path for path in sizes if "/terminal-" in path or "/changes-" in path]
    yield Figure("of these for terminal or diff", len(unneeded), 0, "files")


def _load_board(box: Sandbox, browser: Any) -> tuple[float, list[dict[str, Any]]]:
    """Load the board; return the seconds to the first card, and the loaded files."""
    context = new_context(browser)
    try:
        link, _, code = box.request("POST", "/api/login-links", {"role": "viewer"})["url"].partition("#login=")
        context.request.post(f"{link}api/login", data={"code": code})
        page = context.new_page()
        page.add_init_script(RECORD_FIRST_CARD)
        page.goto(link, wait_until="commit")
        first = float(page.wait_for_function("() => window.firstCard").json_value()) / 1e3
        page.wait_for_timeout(500)
        return first, page.evaluate(LOADED_FILES)
    finally:
        context.close()


def _loading_seconds(files: list[dict[str, Any]], until: float) -> float:
    """Return the seconds before that moment during which at least one file was loading."""
    total = loaded_until = 0.0
    for requested_at, received_at in sorted((file["asked"] / 1e3, min(file["there"] / 1e3, until)) for file in files):
        total += max(0.0, received_at - max(requested_at, loaded_until))
        loaded_until = max(loaded_until, received_at)
    return total


def measure_updates(box: Sandbox, browser: Any, changes: ProgressReports) -> Iterator[Figure]:
    """Measure from a line in an agent's spool until it is drawn on the card, for each of five viewers."""
    people = [Person(box, new_context(browser)) for _ in range(VIEWERS)]
    try:
        for person in people:
            open_board(person)
        times = changes.write_all(CHANGES, CHANGES_PER_SECOND)
        delays = [delay for person in people for delay in drawing_delays(person, times)]
    finally:
        for person in people:
            person.close()
    times_note = f"p50 {quantile(delays, 0.5) * 1e3:.0f} ms, worst of {len(delays)} {max(delays) * 1e3:.0f} ms"
    note = f"{times_note}; {CHANGES_PER_SECOND:g} changes a second"
    title = f"change → on the card, {SIZE} sessions, {VIEWERS} viewers (p95)"
    yield Figure(title, quantile(delays, 0.95) * 1e3, 300, "ms", note=note)
