"""Schemathesis on the daemon's own OpenAPI document: `python -m tests.fuzz.api --minutes 5 [--seed 1] [--only /api/plans]`.

Each operation is called with data that match its description and with data that do not, over TCP by each role and over the Unix
socket. No answer is a server error; status, content type and body are as described; every error is a problem document; and callers
without a token, or with too low a role, are refused.

It needs the packages of `requirements/fuzz.lock`, which `make fuzz` puts into `.cache/fuzz`.
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

from tests.fuzz.run import FOUND_FOLDER
from tests.fuzz.world import FuzzAnswer, FuzzWorld, is_problem, world

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXCLUDED = {
    "POST /api/shutdown": "ends the daemon",
    "POST /api/sessions/{id}/run": "runs any command",
    "PUT /api/config/value": "writes any file",
    "GET /api/live": "is endless; its client is tested in tests/integration/server",
    "GET /api/sessions/{id}/wait": "answers when something happens",
    "DELETE /api/sessions": "stops all sessions",
}
"""Excluded operations, and why."""
ENDLESS_PARAMETERS = ("follow", "stream", "wait", "timeout")
"""Parameters that delay an answer."""
PARAMETER_VALUES = {
    "id": ("app-ask", "app-work", "app-later", "ask", "nobody"),
    "number": ("1", "#1", "GH-1", "99"),
    "plan": ("1", "p-1"),
    "projectId": ("app", "hub", "nowhere"),
    "project": ("app", "hub", "nowhere"),
    "session": ("app-ask", "app-work"),
}
"""Values that exist, so that not every answer is `not found`."""
EXAMPLES_PER_OPERATION = 6
"""Requests of one kind per operation before the next operation."""


def needs_no_token(method: str, path: str) -> bool:
    """Return whether an operation needs no token: health, sign-in, and signed requests of forges."""
    return (method, path) in (("GET", "/healthz"), ("POST", "/api/login")) or path.startswith(
        ("/api/webhooks/", "/answer/")
    )


def main() -> int:
    """Run for the given time and return 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", default="", metavar="PATH")
    options = parser.parse_args()
    with world() as daemon, relay(daemon.socket) as unix:
        return ApiRun(daemon, unix, options.seed).run(options.minutes * 60, options.only)


class ApiRun:
    """A run of all operations."""

    def __init__(self, daemon: FuzzWorld, unix: str, number: int) -> None:
        self.world, self.unix, self.number = daemon, unix, number
        self.random = random.Random(number)
        self.requests_by_role: Counter[str] = Counter()
        self.failures: dict[str, str] = {}

    def run(self, seconds: float, only: str) -> int:
        """Call each operation in turn until the time is up."""
        document = requests.get(f"{self.world.url}/openapi.json", headers=self.auth_headers("admin"), timeout=30).json()
        schema = schemathesis.openapi.from_dict(document)
        operations = [result.ok() for result in schema.get_all_operations()]
        operations = [
            candidate for candidate in operations if candidate.label not in EXCLUDED and only in candidate.label
        ]
        print_line(f"seed {self.number}: {len(operations)} operations; left out: {', '.join(EXCLUDED)}")
        self.check_without_token(document)
        end, round_ = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            round_ += 1
            for operation in operations:
                for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                    if time.monotonic() < end and f"{mode.value} {operation.label}" not in self.failures:
                        self.explore(operation, mode, self.number + round_)
        print_line(
            f"{sum(self.requests_by_role.values())} requests: {', '.join(f'{k} {v}' for k, v in sorted(self.requests_by_role.items()))}"
        )
        print_line(f"{len(self.failures)} wrong: {', '.join(self.failures)}" if self.failures else "nothing wrong")
        return 1 if self.failures else 0

    def explore(self, operation: Any, mode: Any, number: int) -> None:
        """Send a few requests to one operation."""
        last: list[Any] = []

        def check(case: Any) -> None:
            last[:] = [case]
            self.ask(case)

        try:
            strategy = operation.as_strategy(generation_mode=mode)
            test = settings(
                max_examples=EXAMPLES_PER_OPERATION,
                database=None,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate, Phase.shrink),
                report_multiple_bugs=False,
            )(seed(number)(given(case=strategy)(check)))
            test()
        except (Exception, BaseExceptionGroup) as error:
            if not last:  # no invalid data exist: the operation has no parameters
                return
            self.failures[f"{mode.value} {operation.label}"] = str(error)
            self.report_failure(last[0], error)

    def ask(self, case: Any) -> None:
        """Send a request as a random role; raise if the answer is wrong."""
        for values in (case.path_parameters, case.query, case.body):
            if isinstance(values, dict):
                for name in set(values) & set(PARAMETER_VALUES):
                    if self.random.random() < 0.7:
                        chosen = self.random.choice(PARAMETER_VALUES[name])
                        values[name] = quote(chosen) if values is case.path_parameters else chosen
                for name in ENDLESS_PARAMETERS:
                    values.pop(name, None)
        role = self.random.choice(("admin", "admin", "operator", "viewer", "unix", None))
        base = self.unix if role == "unix" else self.world.url
        headers = {**{name: str(value) for name, value in (case.headers or {}).items()}, **self.auth_headers(role)}
        case.headers = {}
        try:
            response = case.call(base_url=base, headers=headers, timeout=30)
        except (UnicodeEncodeError, requests.exceptions.InvalidHeader):
            return  # cannot be sent at all
        self.requests_by_role[role or "nobody"] += 1
        answer = FuzzAnswer(response.status_code, {k: v[0] for k, v in response.headers.items()}, response.content)
        path = case.formatted_path
        if role is None and not needs_no_token(case.method, path):
            assert answer.status in (401, 403, 404, 405, 414), f"a request without a token was answered {answer}"
        if role == "viewer" and case.method not in ("GET", "HEAD") and path not in ("/api/logout", "/api/login"):
            assert answer.status >= 400 or path.startswith("/api/webhooks/"), f"a viewer was answered {answer}"
        if answer.status >= 400:
            assert is_problem(answer), answer
        case.validate_response(response, checks=CHECKS)
        self.world.assert_healthy()

    def check_without_token(self, document: dict[str, Any]) -> None:
        """Check that every operation refuses requests without a token or with an invalid one."""
        for path, operations in document["paths"].items():
            url_path = re.sub(r"{[^}]+}", "app-ask", path)
            for method in operations:
                if needs_no_token(method.upper(), url_path):
                    continue
                for headers in ({}, {"Authorization": "Bearer aot_made_up"}, {"Cookie": "ao_session=x"}):
                    answer = self.world.ask(method.upper(), url_path, b"{}", headers, None)
                    assert answer.status == 401 and is_problem(answer), (method, path, answer)

    def auth_headers(self, role: str | None) -> dict[str, str]:
        """Return the headers that authenticate a role."""
        return {"Authorization": f"Bearer {self.world.tokens[role]}"} if role in self.world.tokens else {}

    def report_failure(self, case: Any, error: BaseException) -> None:
        """Print a failed request, its error, and how to store it."""
        sent = requests.Request(**case.as_transport_kwargs(base_url="http://x")).prepare()
        body = sent.body.encode() if isinstance(sent.body, str) else sent.body if isinstance(sent.body, bytes) else b""
        file = FOUND_FOLDER / "requests" / f"{case.operation.method}-{abs(hash((sent.path_url, body))) % 10**8}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(f"{case.method} {sent.path_url}\n".encode() + body)
        print_line(f"\n{case.operation.label}: {error}\nKeep it: cp {file} tests/fuzz/corpora/requests/\n")


@contextmanager
def relay(path: Path) -> Iterator[str]:
    """Yield a TCP address that is relayed to a Unix socket."""
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


def print_line(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
