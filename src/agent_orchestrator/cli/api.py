"""`ao api`: any route of the HTTP API, from the shell."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Callable

import click

from agent_orchestrator.base.http_client import Answer
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, read_text
from agent_orchestrator.errors import UsageError

_ROOTS = ("/api/", "/healthz", "/openapi.json", "/metrics")


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
        body, show = b"", _shown() if sys.stdout.isatty() else _as_it_is
        while piece := stream.chunk():
            show(piece)
            body = piece if stream.status < 400 else body + piece
        if body and not body.endswith(b"\n"):
            print()
        if stream.status >= 400:
            error = Answer(stream.status, stream.headers, body).error()
            out.note(str(error))
            return error.exit_code
    return 0


def _as_it_is(piece: bytes) -> None:
    """For a program: byte for byte."""
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


def _shown() -> Callable[[bytes], None]:
    """For a person: what would steer the terminal is escaped, also where it comes in two pieces."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(piece: bytes) -> None:
        print(out.escaped(decoder.decode(piece)), end="", flush=True)

    return show


def full_path(path: str) -> str:
    """A route as it is served: `sessions` and `/sessions` are `/api/sessions`."""
    if not path.isprintable() or " " in path or not path:
        raise UsageError(f"{path!r} is not a path", "percent-encode spaces and control characters")
    rooted = path if path.startswith("/") else f"/{path}"
    return rooted if rooted.startswith(_ROOTS) else f"/api{rooted}"


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
    found = {}
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or not header.isprintable():
            raise UsageError(f"{header!r} is not a header", "write it as NAME:VALUE")
        found[name.strip()] = value.strip()
    return found
