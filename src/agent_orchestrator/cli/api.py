"""`ao api`: send a request to any route of the HTTP API from the shell."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Callable

import click

from agent_orchestrator.base.http_client import CompleteResponse
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, read_text
from agent_orchestrator.errors import UsageError

_ROUTE_ROOTS = ("/api/", "/healthz", "/openapi.json", "/metrics")


@click.command()
@click.argument(
    "method", metavar="METHOD", type=click.Choice(["GET", "POST", "PUT", "PATCH", "DELETE"], case_sensitive=False)
)
@click.argument("path", metavar="PATH")
@click.option("-d", "--data", metavar="JSON", help="The body: JSON, @FILE, or `-` for standard input.")
@click.option("-H", "--header", "headers", metavar="NAME:VALUE", multiple=True, help="A header; may be repeated.")
def api(method: str, path: str, data: str | None, headers: tuple[str, ...]) -> int:
    """Send one request to the daemon's HTTP API.

    PATH with or without `/api`: `ao api GET sessions`. Prints the answer's body as it comes; on a terminal, what would
    steer that is escaped.
    """
    with client().stream(
        method.upper(), full_path(path), _data(data), headers=_headers(headers), timeout=600.0, check=False
    ) as stream:
        body, write_chunk = b"", _terminal_printer() if sys.stdout.isatty() else _write_raw
        while chunk := stream.read_chunk():
            write_chunk(chunk)
            body = chunk if stream.status < 400 else body + chunk
        if body and not body.endswith(b"\n"):
            print()
        if stream.status >= 400:
            error = CompleteResponse(stream.status, stream.headers, body).to_error()
            out.print_note(str(error))
            return error.exit_code
    return 0


def _write_raw(chunk: bytes) -> None:
    """Write bytes unchanged to standard output."""
    sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


def _terminal_printer() -> Callable[[bytes], None]:
    """Return a function that prints chunks of text with terminal control characters escaped, across chunk borders."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(chunk: bytes) -> None:
        print(out.escape_json(decoder.decode(chunk)), end="", flush=True)

    return show


def full_path(path: str) -> str:
    """Return the full path of a route: `sessions` and `/sessions` become `/api/sessions`."""
    if not path.isprintable() or " " in path or not path:
        raise UsageError(f"{path!r} is not a path", "percent-encode spaces and control characters")
    rooted = path if path.startswith("/") else f"/{path}"
    return rooted if rooted.startswith(_ROUTE_ROOTS) else f"/api{rooted}"


def _data(data: str | None) -> bytes | None:
    if data is None:
        return None
    text = read_text("-") if data == "-" else read_text(data[1:]) if data.startswith("@") else data
    try:
        json.loads(text)
    except ValueError as error:
        raise UsageError(f"the body is not JSON: {error}", 'quote it for the shell: -d \'{"content": "hi"}\'') from None
    return text.encode()


def _headers(headers: tuple[str, ...]) -> dict[str, str]:
    parsed = {}
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or not header.isprintable():
            raise UsageError(f"{header!r} is not a header", "write it as NAME:VALUE")
        parsed[name.strip()] = value.strip()
    return parsed
