"""Coming from another orchestrator: `ao import`."""

from __future__ import annotations

import os
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, interactive, json_option, read_text

_COLOURS = {"taken": "green", "changed": "cyan", "dropped": "yellow", "kept": "yellow"}


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--output", metavar="FILE", help="Write to this file; absent: the configuration of the repository here.")
@click.option("--replace", is_flag=True, help="Take its values where the file here says otherwise, without asking.")
@click.option("--dry-run", is_flag=True, help="Show what would become of it, and write nothing.")
@json_option
def import_(file: str, output: str | None, replace: bool, dry_run: bool, as_json: bool) -> None:
    """Take over another orchestrator's configuration, and say what became of each key.

    FILE: agent-orchestrator's yaml, what its `ao project get ID --json` prints, claude-squad's config.json, Vibe Kanban's profiles.json, or
    a profile of cli-agent-orchestrator. What the file here says stays, unless you say otherwise.
    """
    ao = client()
    path = "import.json" if file == "-" else file
    body: dict[str, Any] = {"path": os.path.abspath(path), "text": read_text(file), "replace": replace}
    if output:
        body["output"] = os.path.abspath(os.path.expanduser(output))
    found = ao.post("/api/config/import", {**body, "dryRun": True})
    kept = sum(each["outcome"] == "kept" for each in found["entries"])
    asked = bool(kept and not (replace or dry_run or as_json) and interactive())
    if asked:
        _show(found)
        body["replace"] = click.confirm(f"Replace what {found['file']} says about {out.plural(kept, 'key')}?")
    if not dry_run:
        found = ao.post("/api/config/import", body)
    if as_json:
        out.print_json(found)
        return
    if not asked or body["replace"]:  # else it was just shown
        _show(found)
    print(_end(found, dry_run))


def _show(found: dict[str, Any]) -> None:
    print(f"{found['source']} is a configuration of {found['kind']}.")
    rows = [(each["outcome"], each["key"], each["to"] or "-", each["note"]) for each in found["entries"]]
    if rows:
        header, *lines = out.table(("", "KEY", "IS HERE", "NOTE"), rows, shrink=3)
        print(header)
        for line, row in zip(lines, rows, strict=True):
            print(out.paint(line[: len(row[0])], _COLOURS[row[0]]) + line[len(row[0]) :])
    for warning in found["warnings"]:
        out.note(warning)


def _end(found: dict[str, Any], dry_run: bool) -> str:
    if found["itself"]:
        return f"{found['file']} is the configuration here and loads as it is: nothing was written."
    if dry_run:
        return f"{found['file']} would be:\n\n{out.clean(found['text']).rstrip()}"
    return f"{found['file']} is written." if found["written"] else f"{found['file']} says all of it already."
