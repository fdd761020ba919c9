"""`ao import`: take over another orchestrator's configuration."""

from __future__ import annotations

import os
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, is_interactive, json_option, read_text
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
    can_ask_now, is_shown = not (dry_run or as_json) and is_interactive(), False
    result = ao.post("/api/config/import", {**body, "dryRun": True})
    kept_count = sum(entry["outcome"] == "kept" for entry in result["entries"])
    if kept_count and can_ask_now and not replace:
        _show_result(result)
        body["replace"] = click.confirm(f"Replace what {result['file']} says about {out.plural(kept_count, 'key')}?")
        is_shown = not body["replace"]
        result = result if is_shown else ao.post("/api/config/import", {**body, "dryRun": True})
    if result["digest"] and can_ask_now and not yes:
        if not is_shown:
            _show_result(result)
        if not click.confirm(f"{result['source']} is not your own. Let {result['file']} run and open that?"):
            raise Denied("nothing was written", f"{result['file']} is as it was")
        yes = is_shown = True
    if not dry_run:
        result = ao.post("/api/config/import", {**body, "digest": result["digest"]} if yes else body)
    if as_json:
        out.print_json(result)
        return
    if not is_shown:
        _show_result(result)
    print(_summary_text(result, dry_run))


def _show_result(result: dict[str, Any]) -> None:
    print(f"{result['source']} is a configuration of {result['kind']}.")
    rows = [(entry["outcome"], entry["key"], entry["to"] or "-", entry["note"]) for entry in result["entries"]]
    if rows:
        header, *lines = out.table(("", "KEY", "IS HERE", "NOTE"), rows, shrink=3)
        print(header)
        for line, row in zip(lines, rows, strict=True):
            print(out.paint(line[: len(row[0])], _COLOURS[row[0]]) + line[len(row[0]) :])
    for warning in result["warnings"]:
        out.print_note(warning)
    if result["commands"]:
        print(f"With it {result['file']} may run or open:")
        out.print_lines(f"  {out.one_line(entry)}" for entry in result["commands"])


def _summary_text(result: dict[str, Any], dry_run: bool) -> str:
    if result["itself"]:
        return f"{result['file']} is the configuration here and loads as it is: nothing was written."
    if dry_run:
        return f"{result['file']} would be:\n\n{out.clean(result['text']).rstrip()}"
    return f"{result['file']} is written." if result["written"] else f"{result['file']} says all of it already."
