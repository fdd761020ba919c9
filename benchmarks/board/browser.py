"""Viewers of the board in a browser, and when each change was drawn for them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.browser.person import Person

RECORD_MARKS = """
window.marks = {};
const found = new Set();
new MutationObserver((records) => {
  const fresh = [];
  for (const { target, type, addedNodes } of records)
    for (const node of type === "characterData" ? [target] : addedNodes)
      for (const [, number] of (node.textContent ?? "").matchAll(/mark(\\d+)\\./g))
        if (!found.has(number)) { found.add(number); fresh.push(number); }
  if (!fresh.length) return;
  requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = () => { for (const number of fresh) window.marks[number] = Date.now(); };
    channel.port2.postMessage(0);
  });
}).observe(document, { subtree: true, childList: true, characterData: true });
"""
"""A script that records when each change was drawn, by the machine's clock."""


def open_board(person: Person) -> None:
    """Open the board and record when each change is drawn."""
    person.page.add_init_script(RECORD_MARKS)
    person.sign_in("viewer")
    person.page.locator("[data-card]").first.wait_for()


def drawing_delays(person: Person, times: Mapping[int, float]) -> list[float]:
    """Wait until all changes were drawn; return the seconds that each took."""
    person.page.wait_for_function("(wanted) => wanted.every((number) => number in window.marks)", arg=list(times))
    marks = person.page.evaluate("() => window.marks")
    return [marks[str(number)] / 1e3 - written_at for number, written_at in times.items()]
