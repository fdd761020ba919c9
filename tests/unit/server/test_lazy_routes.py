"""Lazy loading of routes, by concurrent threads."""

from __future__ import annotations

import subprocess
import sys

FIRST = """
import sys, threading
from agent_orchestrator.server import route_table as routing

sys.setswitchinterval(1e-6)
together, tables = threading.Barrier(8), []

def load_routes():
    together.wait()
    tables.append(routing.shared_routes())

threads = [threading.Thread(target=load_routes) for _ in range(8)]
for each in threads: each.start()
for each in threads: each.join()
print(len({id(table) for table in tables}))
"""

SORTED = """
import sys, threading
from agent_orchestrator.server import route_table as routing

sys.setswitchinterval(1e-6)
routing.load_routes("admin")
routes, least, over = routing.shared_routes().router.routes, [], threading.Event()

def count():
    while not over.is_set():
        least.append(len(routes))

counting = threading.Thread(target=count)
counting.start()
routing.shared_routes().openapi()
over.set()
counting.join()
print(min(least) > 2)
"""


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_threads_loading_routes_at_the_same_time_get_the_same_table() -> None:
    """Routes loaded into another table would never be served."""
    assert printed(FIRST) == "1"


def test_routes_stay_available_while_they_are_described() -> None:
    assert printed(SORTED) == "True"
