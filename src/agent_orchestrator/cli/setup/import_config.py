"""Coming from another orchestrator: `ao import`."""

from __future__ import annotations

import os
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, interactive, json_option, read_text
from agent_orchestrator.errors import Denied

_COLOURS = {"taken": "green", "changed": "cyan", "dropped": "yellow", "kept": "yellow"}


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--output", metavar="FILE", help="Write to this file; absent: the configuration of the repository here.")
@click.option("--replace", is_flag=True, help="Take its values where the file here says otherwise, without asking.")
@click.option("--dry-run", is_flag=True, help="Show what would become of it, and write nothing.")
@click.option("-y", "--yes", is_flag=True, help="You have read what it would run or open: write it, whoever wrote it.")
@json_option
def import_(file: str, output: str | None, replace: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Take over another orchestrator's configuration, and say what became of each key.

    FILE: agent-orchestrator's yaml, what its `ao project get ID --json` prints, claude-squad's config.json, Vibe Kanban's profiles.json, or
    a profile of cli-agent-orchestrator. What the file here says stays, unless you say otherwise. What came with a repository is shown, and
    asked about, before it may run or open anything.
    """
    ao = client()
    path = "import.json" if file == "-" else file
    body: dict[str, Any] = {"path": os.path.abspath(path), "text": read_text(file), "replace": replace}
    if output:
        body["output"] = os.path.abspath(os.path.expanduser(output))
    asking, shown = not (dry_run or as_json) and interactive(), False
    found = ao.post("/api/config/import", {**body, "dryRun": True})
    kept = sum(each["outcome"] == "kept" for each in found["entries"])
    if kept and asking and not replace:
        _show(found)
        body["replace"] = click.confirm(f"Replace what {found['file']} says about {out.plural(kept, 'key')}?")
        shown = not body["replace"]
        found = found if shown else ao.post("/api/config/import", {**body, "dryRun": True})
    if found["digest"] and asking and not yes:
        if not shown:
            _show(found)
        if not click.confirm(f"{found['source']} is not your own. Let {found['file']} run and open that?"):
            raise Denied("nothing was written", f"{found['file']} is as it was")
        yes = shown = True
    if not dry_run:
        found = ao.post("/api/config/import", {**body, "digest": found["digest"]} if yes else body)
    if as_json:
        out.print_json(found)
        return
    if not shown:
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
    if found["commands"]:
        print(f"With it {found['file']} may run or open:")
        out.show(f"  {out.one_line(each)}" for each in found["commands"])


def _end(found: dict[str, Any], dry_run: bool) -> str:
    if found["itself"]:
        return f"{found['file']} is the configuration here and loads as it is: nothing was written."
    if dry_run:
        return f"{found['file']} would be:\n\n{out.clean(found['text']).rstrip()}"
    return f"{found['file']} is written." if found["written"] else f"{found['file']} says all of it already."
