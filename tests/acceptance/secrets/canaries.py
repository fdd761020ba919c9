"""Canary secrets for every source, and the search for them in everything that the daemon wrote, showed or started.

Each source has a different canary, so that a leak names its source. Half of them are known to the daemon by their value, the others only
by their shape. Scripts assemble the latter when they run: no file contains them completely.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent_orchestrator.testing.sandbox import Sandbox

KNOWN_BY_VALUE = ("daemon", "login", "project", "profile", "forge", "webhook", "other")
"""Values without a shape: from the daemon's environment, the login shell's, `env` of a project, a profile and another project, a forge's
token and a webhook's secret in the configuration."""
TOKEN_PREFIXES = {
    "issue": "glpat-",
    "terminal": "sk-ant-api03-",
    "spool": "ghp_",
    "commit": "xoxb-",
    "check": "lin_api_",
    "message": "github_pat_",
    "task": "gho_",
    "error": "npm_",
    "login-plain": "ghs_",
}
"""Prefixes of tokens unknown to the daemon: in an issue, an agent's output, its spool, its commit, a check's output, a person's message and
task, a forge's error, and the login shell's environment under a harmless name."""
_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz23456789"
_TOKEN_LENGTHS = {"github_pat_": 82, "npm_": 36}

AGENT_FILES = re.compile(
    r"worktrees/.*|checks/.*/tree/.*|sessions/[^/]+/(terminal\.log|spool\.\d+\.jsonl).*|(token|token\.secret)"
)
"""Files of agents below `$AO_HOME`: workspaces, and the raw bytes of terminals and spools."""


def make_canaries() -> dict[str, str]:
    """Return a canary for each source."""
    values = {name: f"{_letters(10)}+{_letters(14)}" for name in KNOWN_BY_VALUE}
    values |= {name: start + _letters(_TOKEN_LENGTHS.get(start, 36)) for name, start in TOKEN_PREFIXES.items()}
    return {**values, "remote": f"{_letters(9)}~{_letters(9)}"}


def _letters(count: int) -> str:
    return "a7Q" + "".join(secrets.choice(_LETTERS) for _ in range(count - 3))


def find_canaries(canaries: dict[str, str], data: bytes | str, description: str) -> list[str]:
    """Return which canaries occur in the data, plain or as JSON or URL encoded, each with the description of the data."""
    raw = data if isinstance(data, bytes) else data.encode(errors="replace")
    return [
        f"{name}: {description}"
        for name, value in canaries.items()
        if any(form.encode() in raw for form in {value, json.dumps(value)[1:-1], quote(value, safe="")})
    ]


def find_in_files(canaries: dict[str, str], home: Path) -> Iterator[str]:
    """Yield leaks in the daemon's files below `$AO_HOME`: the database with its journal, logs, task files and results."""
    paths = sorted(Path(folder, name) for folder, _, names in os.walk(home) for name in names)
    for file in paths:
        name = str(file.relative_to(home))
        if not file.is_symlink() and not AGENT_FILES.fullmatch(name):
            yield from find_canaries(canaries, name, "the name of a file")
            with contextlib.suppress(FileNotFoundError):  # the daemon goes on, and removes what it does not need
                if file.is_file():
                    yield from find_canaries(canaries, file.read_bytes(), f"file {name}")


def find_in_routes(canaries: dict[str, str], box: Sandbox) -> Iterator[str]:
    """Yield leaks in every GET route of the OpenAPI document, for every session, issue, check …"""
    document = box.request("GET", "/openapi.json")
    sessions = [session["id"] for session in box.sessions()]
    for path, methods in sorted(document["paths"].items()):
        if "get" not in methods or path.endswith("/environment"):
            continue
        for address in sorted(set(_addresses(path, sessions, box))):
            yield from find_canaries(canaries, _fetch(box, address), f"GET {address}")


def _addresses(path: str, sessions: list[str], box: Sandbox) -> Iterator[str]:
    names = [project["id"] for project in box.request("GET", "/api/projects")["projects"]]
    extra = {
        "/api/events": ("?limit=1000&after=0", ""),
        "/api/config/value": (
            "?key=projects",
            "?key=agents",
            "?key=projects.app.env",
            "?key=projects.app.env.APP_PASSWORD",
        ),
        "/api/sessions/{id}/log": ("", "?raw=true", "?tail=50", "?follow=true"),
        "/api/projects/trust": ("?path=" + quote(str(box.repo)),),
        "/api/sessions/{id}/events": ("?limit=1000&after=0",),
    }.get(path, ("",) if "{" in path else (*(f"?project={name}" for name in names), "?all=1"))
    for query in extra:
        for session in sessions if "{id}" in path and "sessions" in path else [""]:
            filled = (
                path.replace("{id}", session)
                .replace("{number}", "1")
                .replace("{name}", "test")
                .replace("{kind}", "sessions")
            )
            messages = [""]
            if "{message}" in filled:
                messages_of_session = box.request("GET", f"/api/sessions/{session}/messages")["messages"]
                messages = [item["messageId"] for item in messages_of_session]
            for message in messages:
                yield re.sub(r"\{[a-z]+\}", "1", filled.replace("{message}", message)) + query


def _fetch(box: Sandbox, address: str, quiet_seconds: float = 0.25) -> bytes:
    """Return the complete response with its head; of a stream, the part that arrives at once."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(box.home.socket("daemon.sock")))
        request = f"GET {address} HTTP/1.1\r\nHost: ao\r\nX-AO-Cwd: {quote(str(box.repo))}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        connection.settimeout(60)
        answer = b""
        try:
            while chunk := connection.recv(1 << 16):
                answer += chunk
                if b"text/event-stream" in answer or b"chunked" in answer[:2000]:
                    connection.settimeout(quiet_seconds)
        except TimeoutError:
            pass
    assert answer.startswith(b"HTTP/1.1 "), address
    return answer


def find_in_commands(canaries: dict[str, str], box: Sandbox) -> Iterator[str]:
    """Yield leaks in the output of every command that shows something, as text and as JSON."""
    session = "app-work"
    commands = [
        *(["status", "-A"], ["status", session], ["events"], ["events", session], ["logs", session], ["why", session]),
        *(
            ["diff", session],
            ["review", session],
            ["issues"],
            ["queue"],
            ["conflicts"],
            ["usage", "-A"],
            ["doctor"],
            ["projects"],
        ),
        *(
            ["config", "get", "projects"],
            ["config", "get", "projects.app.env"],
            ["reactions", "list"],
            ["backlog"],
            ["agents"],
        ),
    ]
    for argv in commands:
        for options in ([], ["--json"]):
            result = box.ao(*argv, *options, check=False)
            yield from find_canaries(canaries, result.stdout + result.stderr, f"ao {' '.join([*argv, *options])}")
    for argv in (["logs", session, "--raw"], ["config", "validate"], ["api", "GET", "/sessions"], ["audit"]):
        result = box.ao(*argv, check=False)
        yield from find_canaries(canaries, result.stdout + result.stderr, f"ao {' '.join(argv)}")
    log = box.folder / "replayed.jsonl"
    log.write_text(box.ao("events", session, "--json").stdout)
    result = box.ao("events", "--replay", str(log), check=False)
    yield from find_canaries(canaries, result.stdout + result.stderr, "ao events --replay")


GIT_REMOTE_HELPER = re.compile(r"\S*git[ -]remote-http ")
"""Git passes an address with its password to this helper on the command line."""


class ProcessWatcher:
    """Checks the command lines and environments of all processes of a sandbox repeatedly."""

    def __init__(self, box: Sandbox, canaries: dict[str, str], own_canaries: dict[str, set[str]]) -> None:
        self.leaks: set[str] = set()
        self.seen_processes: set[str] = set()
        """The owners of the checked processes: ids of sessions, and `a check`."""
        self._box, self._canaries, self._own_canaries = box, canaries, own_canaries
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ProcessWatcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(0.1):
            for pid in self._box.processes():
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    environ = Path(f"/proc/{pid}/environ").read_bytes()
                except OSError:
                    continue
                description = command.replace(b"\0", b" ").decode(errors="replace")[:60]
                if not GIT_REMOTE_HELPER.match(description):
                    self.leaks.update(find_canaries(self._canaries, command, f"the command line of {description}"))
                self._check_environment(environ, description)

    def _check_environment(self, environ: bytes, description: str) -> None:
        """Check that the environment of an agent, check or set-up command has only the secrets of its project and profile."""
        variables = dict(variable.partition(b"=")[::2] for variable in environ.split(b"\0") if variable)
        session, check = variables.get(b"AO_SESSION", b"").decode(), b"AO_CHECK" in variables
        if not session and not check:
            return  # the daemon itself, its Git, its holders
        self.seen_processes.add(session or "a check")
        own_canaries = self._own_canaries["app" if check else variables[b"AO_PROJECT"].decode()]
        others = {name: value for name, value in self._canaries.items() if name not in own_canaries}
        self.leaks.update(find_canaries(others, environ, f"the environment of {session or 'a check'} ({description})"))


class FailingForge:
    """A GitHub that refuses every request with a secret in its message, and records the requests without its own token."""

    def __init__(self, detail: str) -> None:
        self.sent: list[bytes] = []
        forge = self

        class Handler(BaseHTTPRequestHandler):
            def _refuse(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                del self.headers["Authorization"]
                forge.sent.append(f"{self.path}\n{self.headers}".encode() + self.rfile.read(length))
                body = json.dumps({"message": f"Validation failed: {detail}"}).encode()
                self.send_response(422)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PUT = do_PATCH = _refuse  # noqa: N815 - the library's names

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FailingForge:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def split_for_shell(value: str) -> str:
    """Return a shell expression that assembles a canary only when it runs."""
    middle = len(value) // 2
    return f"'{value[:5]}''{value[5:middle]}''{value[middle:]}'"


def daemon_environment(canaries: dict[str, str]) -> dict[str, str]:
    """Return the environment that the daemon is started with."""
    return {
        "DAEMON_SECRET": canaries["daemon"],
        "HOOK_SECRET": canaries["webhook"],
        "FORGE_TOKEN": canaries["forge"],
        "PATH": os.environ["PATH"],
    }
