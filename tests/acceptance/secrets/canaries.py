"""Secrets that are planted everywhere, and the search for them in everything that the daemon wrote, showed or started.

A canary is a secret of its own for each place that it comes from, so that a leak names its source. Half of them are known to the daemon by
their value, the others only by their shape. Scripts put the latter together when they run: no file holds them whole.
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

KNOWN = ("daemon", "login", "project", "profile", "forge", "webhook", "other")
"""Values without a shape: from the daemon's environment, the login shell's, `env` of a project, a profile and another project, a forge's
token and a webhook's secret in the configuration."""
SHAPED = {
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
"""Tokens that nobody told the daemon: in an issue, an agent's output, its spool, its commit, a check's output, a person's message and
task, a forge's error, and the login shell's environment under a harmless name."""
_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz23456789"
_LONG = {"github_pat_": 82, "npm_": 36}

OF_THE_AGENT = re.compile(
    r"worktrees/.*|checks/.*/tree/.*|sessions/[^/]+/(terminal\.log|spool\.\d+\.jsonl).*|(token|token\.secret)"
)
"""What is not ours, below `$AO_HOME`: agents' workspaces, their terminals' and their spools' raw bytes."""


def made() -> dict[str, str]:
    """A canary for each place."""
    found = {name: f"{_letters(10)}+{_letters(14)}" for name in KNOWN}
    found |= {name: start + _letters(_LONG.get(start, 36)) for name, start in SHAPED.items()}
    return {**found, "remote": f"{_letters(9)}~{_letters(9)}"}


def _letters(count: int) -> str:
    return "a7Q" + "".join(secrets.choice(_LETTERS) for _ in range(count - 3))


def found_in(canaries: dict[str, str], data: bytes | str, where: str) -> list[str]:
    """Which canaries are in some data, and where: as they are, or as JSON or an address writes them."""
    raw = data if isinstance(data, bytes) else data.encode(errors="replace")
    return [
        f"{name}: {where}"
        for name, value in canaries.items()
        if any(form.encode() in raw for form in {value, json.dumps(value)[1:-1], quote(value, safe="")})
    ]


def in_files(canaries: dict[str, str], home: Path) -> Iterator[str]:
    """Everything below `$AO_HOME` that is ours: the database with its journal, logs, task files, results."""
    found = sorted(Path(folder, name) for folder, _, names in os.walk(home) for name in names)
    for file in found:
        name = str(file.relative_to(home))
        if not file.is_symlink() and not OF_THE_AGENT.fullmatch(name):
            yield from found_in(canaries, name, "the name of a file")
            with contextlib.suppress(FileNotFoundError):  # the daemon goes on, and removes what it does not need
                if file.is_file():
                    yield from found_in(canaries, file.read_bytes(), f"file {name}")


def in_routes(canaries: dict[str, str], box: Sandbox) -> Iterator[str]:
    """Every GET route of the OpenAPI, for every session, issue, check …"""
    document = box.request("GET", "/openapi.json")
    sessions = [one["id"] for one in box.sessions()]
    for path, methods in sorted(document["paths"].items()):
        if "get" not in methods or path.endswith("/environment"):
            continue
        for address in sorted(set(_addresses(path, sessions, box))):
            yield from found_in(canaries, _fetched(box, address), f"GET {address}")


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
                known = box.request("GET", f"/api/sessions/{session}/messages")["messages"]
                messages = [one["messageId"] for one in known]
            for message in messages:
                yield re.sub(r"\{[a-z]+\}", "1", filled.replace("{message}", message)) + query


def _fetched(box: Sandbox, address: str, patience: float = 0.25) -> bytes:
    """The whole answer, head included; of an endless one, what comes at once."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(box.home.socket("daemon.sock")))
        head = f"GET {address} HTTP/1.1\r\nHost: ao\r\nX-AO-Cwd: {quote(str(box.repo))}\r\nConnection: close\r\n\r\n"
        line.sendall(head.encode())
        line.settimeout(60)
        answer = b""
        try:
            while piece := line.recv(1 << 16):
                answer += piece
                if b"text/event-stream" in answer or b"chunked" in answer[:2000]:
                    line.settimeout(patience)
        except TimeoutError:
            pass
    assert answer.startswith(b"HTTP/1.1 "), address
    return answer


def in_commands(canaries: dict[str, str], box: Sandbox) -> Iterator[str]:
    """What people read: every command that shows something, in words and as JSON."""
    session = "app-work"
    shown = [
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
    for argv in shown:
        for more in ([], ["--json"]):
            done = box.ao(*argv, *more, check=False)
            yield from found_in(canaries, done.stdout + done.stderr, f"ao {' '.join([*argv, *more])}")
    for argv in (["logs", session, "--raw"], ["config", "validate"], ["api", "GET", "/sessions"], ["audit"]):
        done = box.ao(*argv, check=False)
        yield from found_in(canaries, done.stdout + done.stderr, f"ao {' '.join(argv)}")
    log = box.folder / "replayed.jsonl"
    log.write_text(box.ao("events", session, "--json").stdout)
    done = box.ao("events", "--replay", str(log), check=False)
    yield from found_in(canaries, done.stdout + done.stderr, "ao events --replay")


GITS_OWN = re.compile(r"\S*git[ -]remote-http ")
"""Git's own way with an address that has a password in it."""


class Watching:
    """Looks at every process of a sandbox, again and again: its command line, and what it was started with."""

    def __init__(self, box: Sandbox, canaries: dict[str, str], mine: dict[str, set[str]]) -> None:
        self.found: set[str] = set()
        self.seen: set[str] = set()
        """Whose processes were seen: sessions by their id, and `a check`."""
        self._box, self._canaries, self._mine = box, canaries, mine
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watching:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            for pid in self._box.processes():
                try:
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    environ = Path(f"/proc/{pid}/environ").read_bytes()
                except OSError:
                    continue
                told = command.replace(b"\0", b" ").decode(errors="replace")[:60]
                if not GITS_OWN.match(told):
                    self.found.update(found_in(self._canaries, command, f"the command line of {told}"))
                self._look_inside(environ, told)

    def _look_inside(self, environ: bytes, told: str) -> None:
        """An agent, a check, a set-up command: has what its own project and profile give it."""
        variables = dict(one.partition(b"=")[::2] for one in environ.split(b"\0") if one)
        session, check = variables.get(b"AO_SESSION", b"").decode(), b"AO_CHECK" in variables
        if not session and not check:
            return  # the daemon itself, its Git, its holders
        self.seen.add(session or "a check")
        mine = self._mine["app" if check else variables[b"AO_PROJECT"].decode()]
        others = {name: value for name, value in self._canaries.items() if name not in mine}
        self.found.update(found_in(others, environ, f"the environment of {session or 'a check'} ({told})"))


class FailingForge:
    """A GitHub that refuses everything, with a secret in its words; keeps what it was sent, but for the token that is its own."""

    def __init__(self, words: str) -> None:
        self.sent: list[bytes] = []
        forge = self

        class Handler(BaseHTTPRequestHandler):
            def _refuse(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                del self.headers["Authorization"]
                forge.sent.append(f"{self.path}\n{self.headers}".encode() + self.rfile.read(length))
                body = json.dumps({"message": f"Validation failed: {words}"}).encode()
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


def split(value: str) -> str:
    """A canary for a shell script, put together only when it runs."""
    middle = len(value) // 2
    return f"'{value[:5]}''{value[5:middle]}''{value[middle:]}'"


def daemon_environment(canaries: dict[str, str]) -> dict[str, str]:
    """What the daemon is started with."""
    return {
        "DAEMON_SECRET": canaries["daemon"],
        "HOOK_SECRET": canaries["webhook"],
        "FORGE_TOKEN": canaries["forge"],
        "PATH": os.environ["PATH"],
    }
