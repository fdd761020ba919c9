"""`ao usage`: tokens and dollars."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option, project_query, scope_options
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
@click.option(
    "--release", metavar="ACCOUNT", help="Lift an account's usage limit by hand: work, or work opus for one model."
)
@scope_options
@json_option
def usage(
    by: str, since: str | None, release: str | None, project: str | None, all_projects: bool, as_json: bool
) -> int:
    """Show the tokens and dollars that agents used, accounts that met their usage limit, and budgets.

    Dollars are the agent's own figure where it has one, otherwise by the list prices of its model; `-` where neither is known.
    Calls of `gh` and `glab` by agents themselves spend the forge's budget, which the daemon shares with them.
    """
    if release is not None:
        return _release(release, as_json)
    query = {**project_query(project, all_projects), "by": by, **({"since": parse_day(since)} if since else {})}
    answer = client().get("/api/usage", query)
    if as_json:
        out.print_json(answer)
        return 0
    rows = answer["rows"]
    if not rows:
        print("Nothing was used yet.")
        _show_limits(answer)
        return 0
    table = [_row(row["key"], row) for row in rows]
    if len(rows) > 1:
        table.append(_row("total", answer["total"]))
    out.print_lines(out.table((by.upper(), "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "USD", "GH CALLS"), table))
    if any(row["usd"] is None for row in rows):
        print("USD -: the price of its model is not known; give it in $AO_HOME/prices.json")
    _show_limits(answer)
    return 0


def _release(account: str, as_json: bool) -> int:
    answer = client().request("POST", "/api/accounts/release", {"account": account}).json()
    if as_json:
        out.print_json(answer)
        return 0
    print(f"{', '.join(answer['released'])}: held no more; who waits goes on, one after the other.")
    return 0


def _show_limits(answer: dict[str, Any]) -> None:
    """Print accounts if one is limited or there are several, and budgets if there are any."""
    accounts, budgets = answer["accounts"], answer["budgets"]
    if len(accounts) > 1 or any(item["state"] != "free" for item in accounts):
        rows = [_account(item) for item in accounts]
        out.print_lines(["", *out.table(("ACCOUNT", "LIMIT", "WORKING", "WAITING"), rows)])
    if budgets:
        rows = [_budget(item) for item in budgets]
        out.print_lines(["", *out.table(("BUDGET", "SPENT", "RESERVED", "OF"), rows)])
    for name in sorted({name for item in budgets for name in item["unknown"]}):
        print(f"{name}: its use is not known, so its budgets cannot be enforced")


def _account(row: dict[str, Any]) -> tuple[str, ...]:
    guess = "" if row["resetKnown"] is not False else ", by guess"
    state = {
        "free": "none",
        "held": f"held until {row['until']}{guess}",
        "trying": "should be over: one session tries",
    }
    return (
        f"{row['account']} {row['model'] or ''}".strip(),
        state[row["state"]],
        str(row["working"]),
        str(row["waiting"]),
    )


def _budget(row: dict[str, Any]) -> tuple[str, ...]:
    def figure(value: float | None) -> str:
        return "-" if value is None else f"{value:,.0f}" if row["unit"] == "tokens" else f"${value:.2f}"

    profile_text = f" ({row['profile']})" if row["scope"] == "session" and row["profile"] else ""
    unit = " tokens" if row["unit"] == "tokens" else ""
    return (
        f"{row['name']}{profile_text}",
        figure(row["spent"]),
        figure(row["reserved"]),
        f"{figure(row['budget'])}{unit}",
    )


def parse_day(text: str) -> str:
    """Return a day in the format of the API; raise UsageError if it is invalid."""
    today = datetime.now(UTC).date()
    if text == "today":
        return today.isoformat()
    if days := re.fullmatch(r"(\d{1,4})d", text):
        return (today - timedelta(days=int(days[1]) - 1)).isoformat()
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date().isoformat()
    except ValueError:
        raise UsageError(f"--since {text} is no day", "for example 2026-11-15, today or 7d") from None


def _row(label: str, usage_: dict[str, Any]) -> tuple[str, ...]:
    usd = usage_["usd"]
    numbers = [f"{usage_[key]:,}" for key in ("input", "output", "cacheRead", "cacheWrite")]
    dollars = "-" if usd is None else f"${usd:.2f}" if usd >= 0.01 else f"${usd:.4f}"
    return (label, *numbers, dollars, f"{usage_['forgeCalls']:,}")
