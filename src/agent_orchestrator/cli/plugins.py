"""Plugins: `ao plugins`."""

from __future__ import annotations

from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option


@click.command()
@json_option
def plugins(as_json: bool) -> None:
    """List the plugins: where each comes from, what it declares that it needs, and whether it is in force.

    Code of others runs only where a configuration that you trust names it. Listing runs none of it.
    """
    answer = client().get("/api/plugins")
    if as_json:
        out.print_json(answer)
        return
    rows = [
        (
            each.get("slot") or "?",
            each["name"],
            " ".join(filter(None, (each["origin"], each.get("version")))),
            _needs(each),
            "yes" if each["inForce"] else f"no: {each.get('problem')}",
        )
        for each in answer["plugins"]
    ]
    out.show(out.table(("SLOT", "NAME", "FROM", "NEEDS", "IN FORCE"), rows, shrink=2))


def _needs(plugin: dict[str, Any]) -> str:
    if plugin["origin"] == "built in":
        return "-"
    declared = plugin.get("permissions")
    return "undeclared" if declared is None else ", ".join(declared) or "nothing"
