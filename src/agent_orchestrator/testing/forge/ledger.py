"""The log of requests to a test forge with their cost, and the faults that a test has ordered."""

from __future__ import annotations

import re
import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LoggedRequest:
    """A logged request."""

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
    """Its cost in points of its kind's rate limit: 0 for a 304."""
    agent: str = ""


@dataclass
class OrderedFault:
    failure: int | str
    remaining: int
    path: str = ""
    method: str = ""
    retry_after: int | None = None
    seconds: float = 0.0
    field_name: str = ""
    reset: float | None = None
    login: str = ""

    def matches(self, method: str, path: str, login: str) -> bool:
        return bool(
            self.remaining > 0
            and (not self.method or self.method == method)
            and (not self.login or self.login == login)
            and (not self.path or re.search(self.path, path))
        )


@dataclass
class Ledger:
    requests: list[LoggedRequest] = field(default_factory=list)
    faults: list[OrderedFault] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def clear(self) -> None:
        self.requests.clear()

    def counts(self, since: int = 0) -> Counter[str]:
        """Count requests by kind and status: `rest`, `rest 200`, `rest 304`, `graphql`, `graphql points`, `rest points`, `git`, …"""
        counts: Counter[str] = Counter()
        for request in self.requests[since:]:
            counts[request.kind] += 1
            counts[f"{request.kind} {request.status}"] += 1
            counts[f"{request.kind} points"] += request.points
            if request.conditional:
                counts["conditional"] += 1
        return counts

    def use_fault(self, method: str, path: str, login: str) -> OrderedFault | None:
        """Return the fault that applies to this request and count it as used, or None."""
        with self._lock:
            for fault in self.faults:
                if fault.matches(method, path, login):
                    fault.remaining -= 1
                    return fault
        return None
