"""`ao notify`: whether people can be told."""

from __future__ import annotations

from typing import Any

import click

from agent_orchestrator.base.http_client import with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option, scope, scope_options


@click.group()
def notify() -> None:
    """Try the notifiers, by which you are told."""


@notify.command("test")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@scope_options
@json_option
def test(names: tuple[str, ...], project: str | None, all_projects: bool, as_json: bool) -> int:
    """Send a test by each notifier, and say what came of it.

    Without NAME all notifiers of the project here. It is sent at once, whatever quiet hours, digest and limits say. It exits with 1 if
    one of them failed.
    """
    path = with_query("/api/notifications/test", scope(project, all_projects))
    found = client().post(path, {"names": list(names)}, timeout=300.0)
    if as_json:
        out.print_json(found)
    elif not found["notifiers"]:
        print("Nobody is told of anything here. One would be: defaults: {notifiers: [desktop]}")
    else:
        out.show(line for each in found["notifiers"] for line in _lines(each))
    return 0 if all(each["sent"] for each in found["notifiers"]) else 1


def _lines(each: dict[str, Any]) -> list[str]:
    word, colour = ("sent", "green") if each["sent"] else ("failed", "red")
    named = each["name"] if each["name"] == each["plugin"] else f"{each['name']} ({each['plugin']})"
    levels = ", ".join(each["levels"]) or "nothing: no level is routed to it"
    lines = [f"{out.paint(f'{word:<8}', colour)} {named}, told of {levels}"]
    if each["problem"]:
        lines.append(f"         {out.one_line(each['problem'])}")
    if each["remedy"]:
        lines.append(f"         {out.one_line(each['remedy'])}")
    return lines
