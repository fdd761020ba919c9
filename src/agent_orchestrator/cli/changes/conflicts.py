"""`ao conflicts`: predicted conflicts between sessions."""

from __future__ import annotations

from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option, project_query, scope_options


@click.command()
@scope_options
@json_option
def conflicts(project: str | None, all_projects: bool, as_json: bool) -> None:
    """Show which sessions will collide, and on what.

    Looks afresh, at uncommitted work too. `text`: the two cannot be merged; `overlap`: they can, and both change the same function
    or section. Lock files are left out.
    """
    conflicts_ = client().get("/api/conflicts", {**project_query(project, all_projects), "fresh": True})
    if as_json:
        out.print_json(conflicts_)
        return
    rows = [(pair["a"], pair["b"], pair["kind"], _files(pair)) for pair in conflicts_["pairs"]]
    header = ("SESSION", "AND", "KIND", "FILES")
    out.print_lines(
        out.table(header, rows, shrink=3) if rows else ["No two sessions will collide, as far as their work goes."]
    )


def _files(pair: dict[str, Any]) -> str:
    return ", ".join(pair["files"]) or "-"
