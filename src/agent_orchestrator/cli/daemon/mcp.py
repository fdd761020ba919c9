"""`ao mcp`: a bridge from an MCP client on standard input and output to the daemon's MCP server, one HTTP request per line.

If the daemon cannot be reached, that request gets an error; the next one connects or starts the daemon again.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import click

from agent_orchestrator.base.http_client import CompleteResponse
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import SESSION
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, UsageError

SERVER_NAME = "agent-orchestrator"
MAX_LINE_BYTES = 1 << 22
MAX_CONCURRENT_REQUESTS = 16
"""Maximum number of concurrent requests; the next line is read when one of them is answered."""
REQUEST_TIMEOUT = 600.0
SHUTDOWN_SECONDS = 10.0
"""Seconds that requests have to be answered once standard input has ended."""
_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The parameter with the name of the requested object, by method; it is sent as a header."""


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
        click.echo(_client_config(client_kind, session))
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
        out.print_note("this speaks MCP with a program; `ao mcp --print-config claude` tells how to add it to one")
    McpBridge(headers).run()


class McpBridge:
    """Reads lines, sends each as a request to the daemon, and writes answers as they arrive."""

    def __init__(self, headers: dict[str, str]) -> None:
        self._headers = headers
        self._version = ""
        """The protocol's version that the handshake agreed on."""
        self._write_lock = threading.Lock()
        self._slots = threading.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._threads: set[threading.Thread] = set()

    def run(self) -> None:
        """Handle lines until standard input ends."""
        while line := sys.stdin.buffer.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                while line and not line.endswith(b"\n"):
                    line = sys.stdin.buffer.readline(1 << 20)
                self._write(_error(None, -32600, f"a message has at most {MAX_LINE_BYTES} bytes"))
            elif line.strip():
                self._slots.acquire()
                thread = threading.Thread(target=self._handle, args=(line,), daemon=True)
                self._threads.add(thread)
                thread.start()
        end = time.monotonic() + SHUTDOWN_SECONDS
        for thread in list(self._threads):
            thread.join(max(0.0, end - time.monotonic()))

    def _handle(self, line: bytes) -> None:
        try:
            self._forward(line)
        finally:
            self._threads.discard(threading.current_thread())
            self._slots.release()

    def _forward(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            self._write(_error(None, -32700, "this is not JSON"))
            return
        is_request = isinstance(message, dict) and "id" in message and "method" in message
        id_ = message["id"] if is_request else None
        try:
            with DaemonClient() as ao:
                answer = ao.request(
                    "POST",
                    "/mcp",
                    line.strip(),
                    headers=self._request_headers(message),
                    timeout=REQUEST_TIMEOUT,
                    check=False,
                    repeat=False,
                )
        except AoError as error:
            if is_request:
                self._write(_error(id_, -32603, str(error)))
            else:
                out.print_note(str(error))
            return
        self._relay(message, id_, is_request, answer)

    def _relay(self, message: Any, id_: Any, is_request: bool, answer: CompleteResponse) -> None:
        if answer.status == 202:
            return
        reply = _parse_rpc(answer)
        if reply is None:
            error = answer.to_error() if answer.status >= 400 else AoError("the daemon's answer makes no sense")
            reply = _error(id_, -32603, str(error))
        if reply.get("id") is None:
            reply["id"] = id_
        if is_request or reply["id"] is not None or "error" in reply:
            if is_request and message["method"] == "initialize" and isinstance(reply.get("result"), dict):
                self._version = str(reply["result"].get("protocolVersion") or "")
            self._write(reply)

    def _request_headers(self, message: Any) -> dict[str, str]:
        """Return the headers of a message's request."""
        params = _nested_object(message, "params")
        method = str(message.get("method") or "") if isinstance(message, dict) else ""
        if isinstance(version := _nested_object(params, "_meta").get(_VERSION_KEY), str):
            head = {"MCP-Protocol-Version": _header_value(version), "Mcp-Method": _header_value(method)}
            if isinstance(name := params.get(_NAME_PARAMETERS.get(method, "")), str):
                head["Mcp-Name"] = _header_value(name)
            return self._headers | head
        is_negotiated = self._version and method != "initialize"
        return self._headers | ({"MCP-Protocol-Version": _header_value(self._version)} if is_negotiated else {})

    def _write(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._write_lock:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError:  # the client has gone
                os._exit(0)


def _parse_rpc(answer: CompleteResponse) -> dict[str, Any] | None:
    try:
        reply = json.loads(answer.body)
    except ValueError:
        return None
    return reply if isinstance(reply, dict) and "jsonrpc" in reply else None


def _nested_object(data: Any, key: str) -> dict[str, Any]:
    """Return an object within an object, or an empty one if it is missing."""
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _error(id_: Any, code: int, text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": text}}


def _header_value(text: str) -> str:
    """Return a text as a header's value, encoded as the protocol requires if it is not plain."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?")
    if is_plain:
        return text
    from base64 import b64encode

    return f"=?base64?{b64encode(text.encode(errors='replace')).decode()}?="


def _client_config(kind: str, session: str | None) -> str:
    argv = [*_own_command(), "mcp", *(["--session", session] if session else [])]
    env = {"AO_HOME": os.path.abspath(os.path.expanduser(os.environ["AO_HOME"]))} if os.environ.get("AO_HOME") else {}
    if kind == "claude":
        import shlex

        env_options = [part for name, value in env.items() for part in ("--env", f"{name}={value}")]
        return shlex.join(["claude", "mcp", "add", SERVER_NAME, *env_options, "--", *argv])
    if kind == "codex":
        lines = [f"[mcp_servers.{SERVER_NAME}]", f"command = {json.dumps(argv[0])}", f"args = {json.dumps(argv[1:])}"]
        if env:
            lines.append("env = {" + ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items()) + "}")
        return "\n".join(lines)
    entry = {"command": argv[0], "args": argv[1:]} | ({"env": env} if env else {})
    return json.dumps({"mcpServers": {SERVER_NAME: entry}}, indent=2)


def _own_command() -> list[str]:
    """Return the command line that runs this program."""
    path = os.path.abspath(sys.argv[0])
    if os.path.basename(path) == "ao" and os.access(path, os.X_OK):
        return [path]
    return [sys.executable, "-P", "-m", "agent_orchestrator"]
