"""Tokens for the HTTP API and the dashboard: `ao token new, list, revoke`."""

from __future__ import annotations

import click

from agent_orchestrator.base.http_client import quote
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option

_COLUMNS = ("id", "kind", "name", "role", "createdAt", "expiresAt")


@click.group()
def token() -> None:
    """Make, list and revoke tokens; list and end the browsers that are signed in."""


@token.command("new")
@click.argument("name", metavar="NAME")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    default="operator",
    show_default=True,
    help="What it may do.",
)
@json_option
def new(name: str, role: str, as_json: bool) -> None:
    """Make a token; it is shown this once."""
    token_ = client().post("/api/tokens", {"name": name, "role": role})
    if as_json:
        out.print_json(token_)
        return
    out.print_note(f"{role} token {token_['id']} for {name}; it is not shown again")
    print(token_["token"])


@token.command("list")
@json_option
def list_tokens(as_json: bool) -> None:
    """List the tokens, without their secrets, and the browsers that are signed in."""
    answer = client().get("/api/tokens")
    if as_json:
        out.print_json(answer)
        return
    rows = [tuple(token_.get(key) or "-" for key in _COLUMNS) for token_ in answer["tokens"]]
    if rows:
        out.print_lines(out.table(("ID", "KIND", "NAME", "ROLE", "CREATED", "EXPIRES"), rows))
    else:
        print("No tokens. Make one: ao token new NAME")


@token.command("revoke")
@click.argument("token_id", metavar="ID")
def revoke(token_id: str) -> None:
    """Make a token worthless, and sign out the browsers that signed in with it.

    ID is a token's id or name, or the id of a browser that is signed in.
    """
    client().request("DELETE", f"/api/tokens/{quote(token_id)}")
    print(f"{token_id} is revoked.")
