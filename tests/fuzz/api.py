"""Schemathesis on the daemon's own OpenAPI document: `python -m tests.fuzz.api --minutes 5 [--seed 1] [--only /api/plans]`.

Each operation is asked with data that fit its description and with such that do not, over TCP by each role and over the Unix socket.
No answer is a fault of ours; status, content type and body are as described; every error is a problem document; and who shows no token,
or has too low a role, gets nothing. Needs the packages of `requirements/fuzz.lock`, which `make fuzz` puts into `.cache/fuzz`.
"""

from __future__ import annotations

import argparse
import random
import re
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.run import FOUND
from tests.fuzz.world import Answer, World, is_problem, world

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
LEFT_OUT = {
    "POST /api/shutdown": "ends the daemon",
    "POST /api/sessions/{id}/run": "runs what it is told to",
    "PUT /api/config/value": "writes the file that it is told to",
    "GET /api/live": "has no end; its client is tried in tests/integration/server",
    "GET /api/sessions/{id}/wait": "answers when something happens",
    "DELETE /api/sessions": "stops everything there is to look at",
}
"""What is not asked, and why."""
ENDLESS = ("follow", "stream", "wait", "timeout")
"""Parameters that make an answer wait."""
NAMES = {
    "id": ("app-ask", "app-work", "app-later", "ask", "nobody"),
    "number": ("1", "#1", "GH-1", "99"),
    "plan": ("1", "p-1"),
    "projectId": ("app", "hub", "nowhere"),
    "project": ("app", "hub", "nowhere"),
    "session": ("app-ask", "app-work"),
}
"""Things that there are, so that not all is lost in `not found`."""
EACH = 6
"""Requests of one kind for one operation before it is the next one's turn."""


def is_for_all(method: str, path: str) -> bool:
    """What needs no token: health, signing in, and what forges sign."""
    return (method, path) in (("GET", "/healthz"), ("POST", "/api/login")) or path.startswith(
        ("/api/webhooks/", "/answer/")
    )


def main() -> int:
    """Ask for so long; 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", default="", metavar="PATH")
    told = parser.parse_args()
    with world() as there, relay(there.socket) as unix:
        return Asking(there, unix, told.seed).run(told.minutes * 60, told.only)


class Asking:
    """One run."""

    def __init__(self, there: World, unix: str, number: int) -> None:
        self.world, self.unix, self.number = there, unix, number
        self.random = random.Random(number)
        self.asked: Counter[str] = Counter()
        self.wrong: dict[str, str] = {}

    def run(self, seconds: float, only: str) -> int:
        """Each operation in turn, until the time is up."""
        document = requests.get(f"{self.world.url}/openapi.json", headers=self.shown("admin"), timeout=30).json()
        schema = schemathesis.openapi.from_dict(document)
        operations = [found.ok() for found in schema.get_all_operations()]
        operations = [one for one in operations if one.label not in LEFT_OUT and only in one.label]
        say(f"seed {self.number}: {len(operations)} operations; left out: {', '.join(LEFT_OUT)}")
        self.unknown(document)
        end, round_ = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            round_ += 1
            for operation in operations:
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    if time.monotonic() < end and f"{mode.value} {operation.label}" not in self.wrong:
                        self.explore(operation, mode, self.number + round_)
        say(f"{sum(self.asked.values())} requests: {', '.join(f'{k} {v}' for k, v in sorted(self.asked.items()))}")
        say(f"{len(self.wrong)} wrong: {', '.join(self.wrong)}" if self.wrong else "nothing wrong")
        return 1 if self.wrong else 0

    def explore(self, operation: Any, mode: Any, number: int) -> None:
        """A few requests to one operation."""
        last: list[Any] = []

        def check(case: Any) -> None:
            last[:] = [case]
            self.ask(case)

        try:
            strategy = operation.as_strategy(generation_mode=mode)
            test = settings(
                max_examples=EACH,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate, Phase.shrink),
                report_multiple_bugs=False,
            )(seed(number)(given(case=strategy)(check)))
            test()
        except (Exception, BaseExceptionGroup) as error:
            if not last:  # nothing can be made that does not fit: the operation takes nothing
                return
            self.wrong[f"{mode.value} {operation.label}"] = str(error)
            self.tell(last[0], error)

    def ask(self, case: Any) -> None:
        """One request, by somebody; what is wrong with the answer is raised."""
        for place in (case.path_parameters, case.query, case.body):
            if isinstance(place, dict):
                for name in set(place) & set(NAMES):
                    if self.random.random() < 0.7:
                        chosen = self.random.choice(NAMES[name])
                        place[name] = quote(chosen) if place is case.path_parameters else chosen
                for name in ENDLESS:
                    place.pop(name, None)
        role = self.random.choice(("admin", "admin", "operator", "viewer", "unix", None))
        base = self.unix if role == "unix" else self.world.url
        headers = {**{name: str(value) for name, value in (case.headers or {}).items()}, **self.shown(role)}
        case.headers = {}
        try:
            response = case.call(base_url=base, headers=headers, timeout=30)
        except (UnicodeEncodeError, requests.exceptions.InvalidHeader):
            return  # cannot be sent at all
        self.asked[role or "nobody"] += 1
        answer = Answer(response.status_code, {k: v[0] for k, v in response.headers.items()}, response.content)
        path = case.formatted_path
        if role is None and not is_for_all(case.method, path):
            assert answer.status in (401, 403, 404, 405, 414), f"nobody was answered {answer}"
        if role == "viewer" and case.method not in ("GET", "HEAD") and path not in ("/api/logout", "/api/login"):
            assert answer.status >= 400 or path.startswith("/api/webhooks/"), f"a viewer was answered {answer}"
        if answer.status >= 400:
            assert is_problem(answer), answer
        case.validate_response(response, checks=CHECKS)
        self.world.sound()

    def unknown(self, document: dict[str, Any]) -> None:
        """Nobody gets anything without a token, and nobody with one that was made up."""
        for path, operations in document["paths"].items():
            there = re.sub(r"{[^}]+}", "app-ask", path)
            for method in operations:
                if is_for_all(method.upper(), there):
                    continue
                for headers in ({}, {"Authorization": "Bearer aot_made_up"}, {"Cookie": "ao_session=x"}):
                    answer = self.world.ask(method.upper(), there, b"{}", headers, None)
                    assert answer.status == 401 and is_problem(answer), (method, path, answer)

    def shown(self, role: str | None) -> dict[str, str]:
        """What a role shows."""
        return {"Authorization": f"Bearer {self.world.tokens[role]}"} if role in self.world.tokens else {}

    def tell(self, case: Any, error: BaseException) -> None:
        """What was asked, what is wrong, and how to keep it."""
        sent = requests.Request(**case.as_transport_kwargs(base_url="http://x")).prepare()
        body = sent.body.encode() if isinstance(sent.body, str) else sent.body if isinstance(sent.body, bytes) else b""
        place = FOUND / "requests" / f"{case.operation.method}-{abs(hash((sent.path_url, body))) % 10**8}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(f"{case.method} {sent.path_url}\n".encode() + body)
        say(f"\n{case.operation.label}: {error}\nKeep it: cp {place} tests/fuzz/corpora/requests/\n")


@contextmanager
def relay(path: Path) -> Iterator[str]:
    """An address that leads to a Unix socket."""
    listening = socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(str(path))
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=carry, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


def say(text: str) -> None:
    """Tell people."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
