"""`ao mcp`: the daemon's MCP server for clients that speak over standard input and output. A bridge: each line is one HTTP request.

What the daemon cannot be asked is told as the answer to that very request; the next one finds it, or starts it, anew.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import click

from agent_orchestrator.base.http_client import Answer
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import SESSION
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError, UsageError

SERVER = "agent-orchestrator"
LONGEST_LINE = 1 << 22
AT_ONCE = 16
"""Requests that are asked at the same time; the next line is read when one of them is answered."""
TIMEOUT = 600.0
LEAVE_WITHIN = 10.0
"""Seconds that requests have to be answered once standard input has ended."""
_VERSION = "io.modelcontextprotocol/protocolVersion"
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose requests say in their head what they are about."""


@click.command()
@click.option("--session", metavar="S", type=SESSION, help="Be the agent of this session: its tools, and no others.")
@click.option(
    "--print-config",
    "client_kind",
    metavar="[claude|codex|json]",
    type=click.Choice(["claude", "codex", "json"]),
    is_flag=False,
    flag_value="json",
    help="Print what adds it to a client, and do nothing else.",
)
def mcp(session: str | None, client_kind: str | None) -> None:
    """Serve tools and resources to an MCP client, over standard input and output.

    The tools are for whoever runs this: an agent that has its token in AO_TOKEN gets those of its own session,
    a coordinator's those for its project, a person all of them. The daemon is started if it does not run.
    """
    if client_kind is not None:
        click.echo(_config(client_kind, session))
        return
    token = os.environ.get("AO_TOKEN")
    if token and session and session != os.environ.get("AO_SESSION"):
        raise UsageError("AO_TOKEN says who this is already", "leave --session out")
    headers = {"Accept": "application/json, text/event-stream"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    elif session:
        headers["X-AO-Session"] = session
    if sys.stdin.isatty():
        out.note("this speaks MCP with a program; `ao mcp --print-config claude` tells how to add it to one")
    Bridge(headers).run()


class Bridge:
    """Lines in, requests to the daemon, answers out as they come."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers
        self._version = ""
        """The protocol's version, as the handshake settled it."""
        self._writing = threading.Lock()
        self._room = threading.Semaphore(AT_ONCE)
        self._asking: set[threading.Thread] = set()

    def run(self) -> None:
        """Until standard input ends."""
        while line := sys.stdin.buffer.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                while line and not line.endswith(b"\n"):
                    line = sys.stdin.buffer.readline(1 << 20)
                self._say(_error(None, -32600, f"a message has at most {LONGEST_LINE} bytes"))
            elif line.strip():
                self._room.acquire()
                thread = threading.Thread(target=self._bring, args=(line,), daemon=True)
                self._asking.add(thread)
                thread.start()
        end = time.monotonic() + LEAVE_WITHIN
        for thread in list(self._asking):
            thread.join(max(0.0, end - time.monotonic()))

    def _bring(self, line: bytes) -> None:
        try:
            self._ask(line)
        finally:
            self._asking.discard(threading.current_thread())
            self._room.release()

    def _ask(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._say(_error(None, -32700, "this is not JSON"))
            return
        is_request = isinstance(message, dict) and "id" in message and "method" in message
        id_ = message["id"] if is_request else None
        try:
            with Client() as ao:
                answer = ao.request(
                    "POST",
                    "/mcp",
                    line.strip(),
                    headers=self._head(message),
                    timeout=TIMEOUT,
                    check=False,
                    repeat=False,
                )
        except AoError as error:
            if is_request:
                self._say(_error(id_, -32603, str(error)))
            else:
                out.note(str(error))
            return
        self._tell(message, id_, is_request, answer)

    def _tell(self, message: Any, id_: Any, is_request: bool, answer: Answer) -> None:
        if answer.status == 202:
            return
        said = _rpc(answer)
        if said is None:
            error = answer.error() if answer.status >= 400 else AoError("the daemon's answer makes no sense")
            said = _error(id_, -32603, str(error))
        if said.get("id") is None:
            said["id"] = id_
        if is_request or said["id"] is not None or "error" in said:
            if is_request and message["method"] == "initialize" and isinstance(said.get("result"), dict):
                self._version = str(said["result"].get("protocolVersion") or "")
            self._say(said)

    def _head(self, message: Any) -> dict[str, str]:
        """What a message says of itself in its request's head."""
        params = _inside(message, "params")
        method = str(message.get("method") or "") if isinstance(message, dict) else ""
        if isinstance(version := _inside(params, "_meta").get(_VERSION), str):
            head = {"MCP-Protocol-Version": _field(version), "Mcp-Method": _field(method)}
            if isinstance(name := params.get(_NAMED.get(method, "")), str):
                head["Mcp-Name"] = _field(name)
            return self._headers | head
        known = self._version and method != "initialize"
        return self._headers | ({"MCP-Protocol-Version": _field(self._version)} if known else {})

    def _say(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._writing:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError:  # nobody listens any more
                os._exit(0)


def _rpc(answer: Answer) -> dict[str, Any] | None:
    try:
        found = json.loads(answer.body)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "jsonrpc" in found else None


def _inside(data: Any, key: str) -> dict[str, Any]:
    """An object within an object; an empty one where there is none."""
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _error(id_: Any, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": text}}


def _field(text: str) -> str:
    """A text as a header's value, as the protocol writes what is not plain."""
    plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?")
    if plain:
        return text
    from base64 import b64encode

    return f"=?base64?{b64encode(text.encode(errors='replace')).decode()}?="


def _config(kind: str, session: str | None) -> str:
    argv = [*_program(), "mcp", *(["--session", session] if session else [])]
    env = {"AO_HOME": os.path.abspath(os.path.expanduser(os.environ["AO_HOME"]))} if os.environ.get("AO_HOME") else {}
    if kind == "claude":
        import shlex

        given = [part for name, value in env.items() for part in ("--env", f"{name}={value}")]
        return shlex.join(["claude", "mcp", "add", SERVER, *given, "--", *argv])
    if kind == "codex":
        lines = [f"[mcp_servers.{SERVER}]", f"command = {json.dumps(argv[0])}", f"args = {json.dumps(argv[1:])}"]
        if env:
            lines.append("env = {" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items()) + "}")
        return "\n".join(lines)
    entry = {"command": argv[0], "args": argv[1:]} | ({"env": env} if env else {})
    return json.dumps({"mcpServers": {SERVER: entry}}, indent=2)


def _program() -> list[str]:
    """How this very program is called."""
    called = os.path.abspath(sys.argv[0])
    if os.path.basename(called) == "ao" and os.access(called, os.X_OK):
        return [called]
    return [sys.executable, "-P", "-m", "agent_orchestrator"]
