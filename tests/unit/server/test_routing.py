"""Routes are loaded when they are asked for, by whoever comes first."""

from __future__ import annotations

import subprocess
import sys

FIRST = """
import sys, threading
from agent_orchestrator.server import route_table as routing

sys.setswitchinterval(1e-6)
together, found = threading.Barrier(8), []

def ask():
    together.wait()
    found.append(routing.routes_only())

threads = [threading.Thread(target=ask) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(len({id(one) for one in found}))
"""

SORTED = """
import sys, threading
from agent_orchestrator.server import route_table as routing

sys.setswitchinterval(1e-6)
routing.load("admin")
known, least, over = routing.routes_only().router.routes, [], threading.Event()

def look():
    while not over.is_set():
        least.append(len(known))

looking = threading.Thread(target=look)
looking.start()
routing.routes_only().openapi()
over.set()
looking.join()
print(min(least) > 2)
"""


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_those_who_are_the_first_together_have_the_same_routes() -> None:
    """A daemon loads what everybody asks for while the first one asks: into other routes it would answer nothing, ever."""
    assert printed(FIRST) == "1"


def test_routes_are_there_while_they_are_described() -> None:
    assert printed(SORTED) == "True"
