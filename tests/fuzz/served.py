"""Targets of a running daemon: webhooks, requests of any shape, MCP, Git's protocol, terminals, and command lines."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from agent_orchestrator import cli
from tests.fuzz.target import FuzzTarget
from tests.fuzz.world import SECRET, FuzzWorld, is_problem

JSON = {"Content-Type": "application/json"}


class DaemonChecks:
    """Checks that need a daemon."""

    def __init__(self, world: FuzzWorld) -> None:
        self.world = world

    def webhooks(self, data: bytes) -> None:
        """Send sender, event and body (one per line): signed it is accepted or refused, unsigned it is refused and records nothing."""
        name, kind, body = ([*data.split(b"\n", 2), b"", b""])[:3]
        sender = name.decode("ascii", "replace").strip()
        if sender not in ("github", "gitlab", "linear", "jira"):
            sender = "github"
        event = "".join(c for c in kind.decode(errors="replace") if c.isprintable())[:50].strip() or "x"
        body = re.sub(rb'"NOW"', str(int(time.time() * 1000)).encode(), body)
        path, number = f"/api/webhooks/{sender}", hashlib.sha256(os.urandom(8)).hexdigest()
        before = self.world.events()
        for headers in ({}, sign_delivery(sender, event, number, body, "another")):
            answer = self.world.ask("POST", path, body, {**JSON, **headers}, None)
            assert answer.status == 401 and is_problem(answer), answer
        assert not self.world.forge_events(before), "an unsigned webhook had an effect"
        answer = self.world.ask(
            "POST", path, body, {**JSON, **sign_delivery(sender, event, number, body, SECRET)}, None
        )
        assert answer.status == 202 or (400 <= answer.status < 500 and is_problem(answer)), answer
        self.world.assert_healthy()

    def requests(self, data: bytes) -> None:
        """Send method, path and body: every role gets an answer below 500, and requests without a token are refused."""
        head, _, body = data.partition(b"\n")
        method, path = ([*head.decode(errors="replace").split(" ", 1), "/"])[:2]
        method = method if method in METHODS else "POST" if body else "GET"  # others are refused at once
        path = "/" + "".join(
            c if c.isascii() and c.isprintable() and c != " " else f"%{ord(c) & 255:02X}" for c in path[1:]
        )
        if re.search(r"shutdown|/run\b|follow|/live|/wait|events.*stream|config/value", path):
            return  # ends the daemon, runs any command, is endless, or writes any file
        for role in ("admin", "viewer", "unix", None):
            answer = self.world.ask(method, path, body or None, JSON, role)
            assert answer.status < 500, (role, answer)
            if answer.status >= 400 and path.startswith("/api"):
                assert is_problem(answer), (role, answer)
            if role is None and path.startswith(("/api/", "/mcp", "/git")) and not path.startswith(PATHS_WITHOUT_TOKEN):
                assert answer.status in (400, 401, 403, 404, 405, 413, 414), answer
        self.world.assert_healthy()

    def mcp(self, data: bytes) -> None:
        """Send a JSON-RPC message: every role gets a JSON-RPC answer."""
        accept = {**JSON, "Accept": "application/json, text/event-stream"}
        for role in ("admin", "viewer", "unix"):
            answer = self.world.ask("POST", "/mcp", data, accept, role)
            assert answer.status < 500, answer
            if answer.status == 200:
                assert json.loads(answer.body)["jsonrpc"] == "2.0"
        assert self.world.ask("POST", "/mcp", data, accept, None).status == 401
        self.world.assert_healthy()

    def git(self, data: bytes) -> None:
        """Send path and body as Git's client would."""
        head, _, body = data.partition(b"\n")
        path = "/git/" + re.sub(r"[^!-~]", "x", head.decode(errors="replace"))
        kind = "application/x-git-upload-pack-request" if "upload" in path else "application/x-git-receive-pack-request"
        for role in ("admin", "viewer", None):
            for method in ("GET", "POST"):
                answer = self.world.ask(
                    method,
                    path,
                    body if method == "POST" else None,
                    {"Content-Type": kind, "Git-Protocol": "version=2"},
                    role,
                )
                assert 400 <= answer.status < 500, answer  # only sessions on other machines may use it
                assert role or answer.status in (400, 401, 403, 404), answer
        self.world.assert_healthy()

    def terminal(self, data: bytes) -> None:
        """Send frames (one per line, text unless it begins with `=`) to a terminal: session and daemon continue."""
        asyncio.run(self._type(data))
        assert self.world.ask("GET", "/api/sessions/app-ask").status == 200
        self.world.assert_healthy()

    async def _type(self, data: bytes) -> None:
        query = "".join(c for c in data.split(b"\n")[0].decode("ascii", "replace") if c.isalnum() or c in "=&-.")
        address = f"ws://127.0.0.1:{self.world.port}/api/sessions/app-ask/terminal?{query}"
        for role in ("operator", "viewer"):
            auth_headers = {"Authorization": f"Bearer {self.world.tokens[role]}"}
            with contextlib.suppress(WebSocketException, ConnectionError):
                async with connect(address, additional_headers=auth_headers, open_timeout=20) as link:
                    for line in data.split(b"\n")[1:20]:
                        content = line.replace(b"\x03", b"").replace(b"\x04", b"").replace(b"\x1c", b"")
                        await link.send(content[1:] if line[:1] == b"=" else line.decode(errors="replace"))

    def command(self, data: bytes) -> None:
        """Run `ao` with these arguments: it ends with a documented exit code and an error message."""
        argv = [os.fsdecode(word) for word in data.replace(b"\n", b"\0").split(b"\0") if word][:12]
        if not argv or argv[0] in EXCLUDED_COMMANDS or any(word in EXCLUDED_OPTIONS for word in argv):
            return
        code, error_text = run_ao(argv, self.world.box.env, self.world.box.repo)
        description = f"ao {shlex.join(argv)}: {code}\n{error_text}"
        assert code in (0, 1, 2, 3, 4), description
        assert "Traceback" not in error_text and "unexpected error" not in error_text, description
        assert code in (0, 1) or len(error_text.strip().splitlines()) >= 1, description
        self.world.assert_healthy()


METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "PROPFIND", "TRACE")
PATHS_WITHOUT_TOKEN = ("/api/login", "/api/webhooks")
EXCLUDED_COMMANDS = ("shutdown", "start", "dashboard", "sh", "attach", "open", "mcp", "completion", "api")
"""Commands that would end the daemon, or start a browser, a shell, an editor or an endless conversation; `api` is `requests`."""
EXCLUDED_OPTIONS = ("-f", "--follow", "--watch", "-w", "--wait", "--edit", "--fix")


def sign_delivery(sender: str, kind: str, number: str, body: bytes, secret: str) -> dict[str, str]:
    """Return the headers of a webhook delivery."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {
        "github": {"X-GitHub-Event": kind, "X-GitHub-Delivery": number, "X-Hub-Signature-256": f"sha256={digest}"},
        "gitlab": {"X-Gitlab-Event": kind, "X-Gitlab-Token": secret, "Idempotency-Key": number},
        "linear": {"Linear-Event": kind, "Linear-Delivery": number, "Linear-Signature": digest},
        "jira": {"X-Atlassian-Webhook-Identifier": number, "X-Hub-Signature": f"sha256={digest}"},
    }[sender]


def run_ao(argv: list[str], env: dict[str, str], cwd: Path, within: float = 20.0) -> tuple[int, str]:
    """Run `ao` with these arguments in a fork; return its exit code and standard error."""
    with tempfile.TemporaryFile() as error_file, open(os.devnull, "r+b") as null_file:  # noqa: PTH123
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                os.chdir(cwd)
                os.environ.clear()
                os.environ.update({**env, "EDITOR": "true", "BROWSER": "true", "PAGER": "cat"})
                for number, file in enumerate((null_file, null_file, error_file)):
                    os.dup2(file.fileno(), number)
                sys.stdin = open(0, closefd=False)  # noqa: SIM115
                sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
                sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
                signal.alarm(int(within))
                code = cli.main(argv)
                sys.stderr.flush()
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        error_file.seek(0)
        return code, error_file.read().decode(errors="replace")


def daemon_targets(world: FuzzWorld) -> list[FuzzTarget]:
    """Return the targets of this daemon."""
    served = DaemonChecks(world)
    words = tuple(f"\0{name}\0".encode() for name in cli_words())
    checks: list[tuple[str, Callable[[bytes], None], str, tuple[bytes, ...], int]] = [
        ("webhooks", served.webhooks, "json", (b"github\n", b"gitlab\n", b"linear\n", b"jira\n"), 4),
        (
            "requests",
            served.requests,
            "json",
            (b"GET ", b"POST ", b"/api/sessions/", b"app-ask", b"%00", b"?", b"%ff"),
            4,
        ),
        ("mcp", served.mcp, "json", (), 2),
        ("git", served.git, "bytes", (b"app.git/", b"info/refs?service=git-upload-pack", b"0000", b"/.."), 1),
        ("terminal", served.terminal, "lines", (b'{"resize": [', b'{"ack": ', b"\n="), 1),
        ("command", served.command, "bytes", words, 3),
    ]
    return [FuzzTarget(name, check, shape, more, count) for name, check, shape, more, count in checks]


def cli_words() -> list[str]:
    """Return existing commands and options."""
    from agent_orchestrator.cli.app import COMMANDS

    return [*COMMANDS, "--json", "-A", "-p", "app", "--all", "app-ask", "--force", "-m", "--label", "--file", "-"]
