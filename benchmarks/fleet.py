"""Fifty scripted agents under one daemon, changes to them one by one, each a step that nobody else has, and people who look on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random

from agent_orchestrator.testing.sandbox import Sandbox
from tests.browser.driving import Person

SIZE = 50
CONFIG = """
defaults: {agent: demo, runtime: tmux}
orchestrator: {maxParallelAgents: 100}
"""
WORKS = "[[progress: 1/9 reading the task]] [[sleep: 7200]]"
ASKS = "[[progress: 2/9 looking around]] [[ask: Which of the two shall I take?]]"
OFFERS = "[[edit: {name}.txt|x]] [[commit: work]] [[done: worked]]"
KINDS = ((WORKS, "working", 30), (ASKS, "needs_input", 10), (OFFERS, "review_pending", 10))


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


def gathered(box: Sandbox) -> list[str]:
    """Most work, some ask, some have a pull request; returns the ids of those that work."""
    box.repository(config=CONFIG)
    box.start()
    wanted: dict[str, str] = {}
    for text, status, count in KINDS:
        for _ in range(count):
            name = f"n{len(wanted):02}"
            task = {"name": name, "title": f"Piece of work {name}", "prompt": text.format(name=name)}
            box.request("POST", "/api/sessions", task)
            wanted[f"app-{name}"] = status
    box.until(lambda: {one["id"]: one["status"] for one in box.sessions()} == wanted, f"{SIZE} sessions", 180)
    return [session for session, status in wanted.items() if status == "working"]


class Changes:
    """Steps that agents report, in turn, each with a number of its own: `mark17.` in its text."""

    def __init__(self, box: Sandbox, sessions: Sequence[str]) -> None:
        self._next = 0
        self._spools = [box.home.session(session) / "spool.1.jsonl" for session in sessions]

    def make(self) -> tuple[int, float]:
        """The next agent reports its next step; returns its number, and when."""
        number, self._next = self._next, self._next + 1
        line = json.dumps({"event": "progress", "done": number % 9, "total": 9, "step": f"mark{number}."}) + "\n"
        with self._spools[number % len(self._spools)].open("a") as spool:
            at = time.time()
            spool.write(line)
        return number, at

    def make_all(self, count: int, a_second: float) -> dict[int, float]:
        """So many, at moments of chance; returns when each was made."""
        with self.meanwhile(a_second) as made:
            while len(made) < count:
                time.sleep(0.01)
        return made

    @contextmanager
    def meanwhile(self, a_second: float) -> Iterator[dict[int, float]]:
        """One after the other as long as the block lasts; gives when each was made."""
        enough, chance = threading.Event(), Random(7)
        made: dict[int, float] = {}

        def keep_on() -> None:
            while not enough.wait(chance.expovariate(a_second)):
                number, at = self.make()
                made[number] = at

        thread = threading.Thread(target=keep_on)
        thread.start()
        try:
            yield made
        finally:
            enough.set()
            thread.join()


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
