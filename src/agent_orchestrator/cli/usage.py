"""`ao usage`: tokens and dollars."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option, scope, scope_options
from agent_orchestrator.errors import UsageError


@click.command()
@click.option(
    "--by",
    type=click.Choice(["session", "project", "agent", "model", "day"]),
    default="session",
    show_default=True,
    help="What to add up by.",
)
@click.option(
    "--since", metavar="WHEN", help="Only from this day on: 2026-11-15, today, or 7d for the last seven days."
)
@scope_options
@json_option
def usage(by: str, since: str | None, project: str | None, all_projects: bool, as_json: bool) -> int:
    """Show the tokens and dollars that agents used.

    Dollars are the agent's own figure where it has one, otherwise by the list prices of its model; `-` where neither is known.
    Calls of `gh` and `glab` by agents themselves spend the forge's budget, which the daemon shares with them.
    """
    query = {**scope(project, all_projects), "by": by, **({"since": day_of(since)} if since else {})}
    answer = client().get("/api/usage", query)
    if as_json:
        out.print_json(answer)
        return 0
    rows = answer["rows"]
    if not rows:
        print("Nothing was used yet.")
        return 0
    table = [_row(each["key"], each) for each in rows]
    if len(rows) > 1:
        table.append(_row("total", answer["total"]))
    out.show(out.table((by.upper(), "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "USD", "GH CALLS"), table))
    return 0


def day_of(text: str) -> str:
    """A day as the API wants it."""
    today = datetime.now(UTC).date()
    if text == "today":
        return today.isoformat()
    if days := re.fullmatch(r"(\d{1,4})d", text):
        return (today - timedelta(days=int(days[1]) - 1)).isoformat()
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date().isoformat()
    except ValueError:
        raise UsageError(f"--since {text} is no day", "for example 2026-11-15, today or 7d") from None


def _row(name: str, used: dict[str, Any]) -> tuple[str, ...]:
    usd = used["usd"]
    numbers = [f"{used[key]:,}" for key in ("input", "output", "cacheRead", "cacheWrite")]
    dollars = "-" if usd is None else f"${usd:.2f}" if usd >= 0.01 else f"${usd:.4f}"
    return (name, *numbers, dollars, f"{used['forgeCalls']:,}")
