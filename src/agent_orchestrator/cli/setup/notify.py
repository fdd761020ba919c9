"""`ao notify`: test the notifiers."""

from __future__ import annotations

from typing import Any

import click

from agent_orchestrator.base.http_client import with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, json_option, project_query, scope_options


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
    path = with_query("/api/notifications/test", project_query(project, all_projects))
    answer = client().post(path, {"names": list(names)}, timeout=300.0)
    if as_json:
        out.print_json(answer)
    elif not answer["notifiers"]:
        print("Nobody is told of anything here. One would be: defaults: {notifiers: [desktop]}")
    else:
        out.print_lines(line for notifier in answer["notifiers"] for line in _notifier_lines(notifier))
    return 0 if all(notifier["sent"] for notifier in answer["notifiers"]) else 1


def _notifier_lines(notifier: dict[str, Any]) -> list[str]:
    state, colour = ("sent", "green") if notifier["sent"] else ("failed", "red")
    name = notifier["name"] if notifier["name"] == notifier["plugin"] else f"{notifier['name']} ({notifier['plugin']})"
    levels = ", ".join(notifier["levels"]) or "nothing: no level is routed to it"
    lines = [f"{out.paint(f'{state:<8}', colour)} {name}, told of {levels}"]
    if notifier["problem"]:
        lines.append(f"         {out.one_line(notifier['problem'])}")
    if notifier["remedy"]:
        lines.append(f"         {out.one_line(notifier['remedy'])}")
    return lines
