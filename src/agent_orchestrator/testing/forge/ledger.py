"""What was asked of the forge and what it cost, and the faults a test has ordered."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """One line of the log."""

    at: float
    kind: str
    """rest, graphql, git or download."""
    method: str
    path: str
    query: str
    status: int
    login: str
    conditional: bool
    points: int
    """What it cost of its kind's budget: 0 for a 304."""
    agent: str = ""


@dataclass
class Fault:
    what: int | str
    left: int
    path: str = ""
    method: str = ""
    retry_after: int | None = None
    seconds: float = 0.0
    field_name: str = ""
    reset: float | None = None
    login: str = ""

    def hits(self, method: str, path: str, login: str) -> bool:
        return bool(
            self.left > 0
            and (not self.method or self.method == method)
            and (not self.login or self.login == login)
            and (not self.path or re.search(self.path, path))
        )


@dataclass
class Ledger:
    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def clear(self) -> None:
        self.requests.clear()

    def counts(self, since: int = 0) -> Counter[str]:
        """How many of each: `rest`, `rest 200`, `rest 304`, `graphql`, `graphql points`, `rest points`, `git`, …"""
        found: Counter[str] = Counter()
        for request in self.requests[since:]:
            found[request.kind] += 1
            found[f"{request.kind} {request.status}"] += 1
            found[f"{request.kind} points"] += request.points
            if request.conditional:
                found["conditional"] += 1
        return found

    def fault(self, method: str, path: str, login: str) -> Fault | None:
        """The fault that strikes this request, used up by it."""
        with self._lock:
            for fault in self.faults:
                if fault.hits(method, path, login):
                    fault.left -= 1
                    return fault
        return None
