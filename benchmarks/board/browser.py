"""People who look at the board in a browser, and when each change was drawn for them."""

from __future__ import annotations

from collections.abc import Mapping

from tests.browser.person import Person

MARKS = """
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
"""When each change was drawn, by the machine's clock."""


def look(person: Person) -> None:
    """At the board, noting each change."""
    person.page.add_init_script(MARKS)
    person.sign_in("viewer")
    person.page.locator("[data-card]").first.wait_for()


def drawn(person: Person, made: Mapping[int, float]) -> list[float]:
    """Seconds from each change until it was drawn; every one must have been."""
    person.page.wait_for_function("(wanted) => wanted.every((number) => number in window.marks)", arg=list(made))
    marks = person.page.evaluate("() => window.marks")
    return [marks[str(number)] / 1e3 - at for number, at in made.items()]
