"""`ao plan`: a goal becomes tasks, tasks become issues, issues are taken by agents."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

import click

from agent_orchestrator.base.http_client import quote, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import (
    AGENT,
    PLAN,
    client,
    editor,
    interactive,
    json_option,
    read_text,
    scope,
    scope_options,
)
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError, Conflict, UsageError

Plan = dict[str, Any]

_ID = re.compile(r"[Pp][0-9]+")
_UNDER_WAY = ("planning", "applying")
_LOOK_EVERY = 0.3
_FIXED = {
    "applying": "wait until it is applied, then change its issues: ao issues",
    "applied": "change its issues: ao issues",
    "discarded": "ask for another: ao plan GOAL",
}
"""States in which a plan is not changed any more, and what can be done instead."""
_GIVE_WAY = ("EFFORT", "LABELS", "FILES", "PROFILE", "AFTER")
"""Columns that a narrow terminal has no room for, the first one first; `AFTER` stands in the graph too."""
_TITLE = 32
"""Columns that a title has before others go."""


@click.command()
@click.argument("words", metavar="[GOAL... or P3]", nargs=-1, type=PLAN)
@scope_options
@click.option("--from-issues", is_flag=True, help="Plan the tracker's open issues: their order, files and profiles.")
@click.option("--edit", is_flag=True, help="Change the plan in your editor, as YAML.")
@click.option("--apply", "apply_it", is_flag=True, help="Make issues of its tasks; they are taken as there is room.")
@click.option("--no-start", is_flag=True, help="With --apply: nobody takes them by himself.")
@click.option("--max-parallel", metavar="N", type=click.IntRange(1), help="With --apply: so many agents at once.")
@click.option("--agent", metavar="A", type=AGENT, help="The profile or agent that plans.")
@click.option("--model", metavar="M", help="Its model.")
@click.option("--discard", is_flag=True, help="Discard a plan that is not applied.")
@json_option
def plan(
    words: tuple[str, ...],
    project: str | None,
    all_projects: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Make tasks of a goal, or of the open issues; show, change and apply plans.

    An agent looks at the repository and breaks the goal down: tasks with dependencies, expected files and who is to take them. Nothing
    is done about it until --apply. `ao plan` alone lists the plans, `ao plan P3` shows one, and takes --edit, --apply and
    --discard.
    """
    ao = client()
    _check(options)
    known = len(words) == 1 and _ID.fullmatch(words[0])
    if len(words) > 1 and all(_ID.fullmatch(word) for word in words):
        raise UsageError("one plan at a time", f"ao plan {words[0]}")
    if not words and not options["from_issues"]:
        if wrong := next((name for name in ("edit", "apply_it", "discard", "agent", "model") if options[name]), None):
            raise UsageError(
                f"--{wrong.removesuffix('_it')} of which plan?",
                "give a goal, --from-issues, or a plan's id: ao plan P3",
            )
        return _list(ao, project, all_projects, as_json)
    if known:
        if wrong := next((name for name in ("from_issues", "agent", "model") if options[name]), None):
            raise UsageError(f"--{wrong.replace('_', '-')} is for a new plan", f"leave it out, or {words[0]}")
        found: Plan = ao.get(_path(words[0]))
    else:
        if options["discard"]:
            raise UsageError("--discard of which plan?", "give its id: ao plan P3 --discard")
        found = _asked(ao, words, project, options)
    return _go_on(ao, found, as_json, options, new=not known)


def _check(options: dict[str, Any]) -> None:
    if options["discard"] and (options["edit"] or options["apply_it"]):
        raise UsageError("--discard goes with neither --edit nor --apply", "give one of them")
    for name in ("no_start", "max_parallel"):
        if options[name] and not options["apply_it"]:
            raise UsageError(f"--{name.replace('_', '-')} goes with --apply", "add --apply")


def _path(name: str, rest: str = "") -> str:
    return f"/api/plans/{quote(name)}{rest}"


# -- asking ------------------------------------------------------------------------------------------------------------


def _asked(ao: Client, words: tuple[str, ...], project: str | None, options: dict[str, Any]) -> Plan:
    goal = read_text("-") if words == ("-",) else " ".join(words)
    if words and not goal.strip():
        raise UsageError("the goal is empty", "say what is to be reached")
    body = {
        "projectId": project,
        "goal": goal,
        "fromIssues": options["from_issues"],
        "agent": options["agent"],
        "model": options["model"],
    }
    made: Plan = ao.post("/api/plans", {key: value for key, value in body.items() if value})
    return _watched(ao, made, f"{made['id']} is being planned by {made['agent']}")


def _watched(ao: Client, found: Plan, what: str) -> Plan:
    """Wait until it is not being planned or applied any more; whoever has enough of it may go."""
    state, shown = found["state"], ""
    if state not in _UNDER_WAY:  # it was done before this asked for it, by a request that is repeated
        return found
    live = sys.stderr.isatty()
    if not live:
        print(f"  {what}", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        while found["state"] == state:
            line = f"  {what}, {out.duration(int(time.monotonic() - began))}"
            line += f": {out.one_line(found['progress'])}" if found["progress"] else ""
            if live and line != shown:
                print(f"\r\033[K{out.fit(line, out.width() - 1)}", end="", file=sys.stderr, flush=True)
                shown = line
            time.sleep(_LOOK_EVERY)
            found = ao.get(_path(found["id"]))
    except KeyboardInterrupt:
        _clear(live)
        out.note(f"{found['id']} goes on: see ao plan {found['id']}; ao plan {found['id']} --discard ends it")
        raise
    _clear(live)
    return found


def _clear(live: bool) -> None:
    if live:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _go_on(ao: Client, found: Plan, as_json: bool, options: dict[str, Any], *, new: bool) -> int:
    if options["discard"]:
        found = ao.request("DELETE", _path(found["id"])).json()
    else:
        if not new and found["state"] == "planning" and (options["edit"] or options["apply_it"]):
            found = _watched(ao, found, f"{found['id']} is being planned by {found['agent']}")
        if found["state"] == "failed" and (new or options["apply_it"]) and not options["edit"]:
            return _failed(found, as_json)
        if options["edit"] and found["state"] in _FIXED:
            raise Conflict(f"{found['id']} is {found['state']}, and cannot be changed", _FIXED[found["state"]])
        if options["edit"]:
            found = _edited(ao, found)
        if options["apply_it"]:
            found = _applied(ao, found, options)
    if as_json:
        out.print_json(found)
    else:
        out.show(_lines(found))
    return 1 if options["apply_it"] and found["state"] != "applied" else 0


def _failed(found: Plan, as_json: bool) -> int:
    if as_json:
        out.print_json(found)
    out.note(f"{found['id']} failed: {found['error']}")
    return 1


# -- changing ----------------------------------------------------------------------------------------------------------


def _edited(ao: Client, found: Plan) -> Plan:
    """The plan as the person leaves it; what cannot be read he gets back to correct, and it is kept if he does not."""
    import tempfile

    command = editor()
    if not command:
        raise UsageError("there is no editor to open", "set EDITOR, or change it by `ao api PUT /plans/ID`")
    text = ao.request("GET", with_query(_path(found["id"]), {"as": "yaml"})).text
    descriptor, path = tempfile.mkstemp(prefix=f"ao-{found['id'].lower()}-", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    while True:
        _open(command, path)
        try:
            changed = read_text(path)
            if changed != text:
                found = ao.request("PUT", _path(found["id"]), {"text": changed}).json()
        except AoError as error:
            out.note(str(error))
            if interactive() and click.confirm("Open the editor again?", default=True, err=True):
                continue
            raise Conflict(f"{found['id']} was not changed", f"what you wrote is kept in {path}") from None
        os.unlink(path)
        return found


def _open(command: str, path: str) -> None:
    import shlex
    import subprocess

    try:
        code = subprocess.run([*shlex.split(command), path], check=False).returncode
    except OSError as error:
        os.unlink(path)
        raise UsageError(f"the editor {command} cannot be run: {error.strerror}", "set EDITOR") from None
    if code:
        raise UsageError(f"the editor {command} ended with {code}", f"nothing was changed; the text is in {path}")


def _applied(ao: Client, found: Plan, options: dict[str, Any]) -> Plan:
    body = {"start": not options["no_start"], "groupLimit": options["max_parallel"]}
    found = ao.post(_path(found["id"], "/apply"), body)
    if found["state"] == "applying":
        found = _watched(ao, found, f"{found['id']} is being applied")
    if found["state"] != "applied" and found["error"]:
        raise Conflict(f"{found['id']} was not applied: {found['error']}", f"correct it: ao plan {found['id']} --edit")
    return found


# -- showing -----------------------------------------------------------------------------------------------------------


def _list(ao: Client, project: str | None, all_projects: bool, as_json: bool) -> int:
    found = ao.get("/api/plans", scope(project, all_projects))
    if as_json:
        out.print_json(found)
        return 0
    rows = [
        (
            each["id"],
            each["project"],
            each["state"],
            _count(each),
            out.age(each["updatedAt"]),
            each["error"] if each["state"] == "failed" else each["goal"] or "the open issues",
        )
        for each in found["plans"]
    ]
    lines = out.table(("PLAN", "PROJECT", "STATE", "TASKS", "AGE", "GOAL"), rows, shrink=5)
    out.show(lines if rows else ['There is no plan. Make one: ao plan "what is to be reached"'])
    return 0


def _count(found: Plan) -> str:
    done = sum(task["status"] == "done" for task in found["tasks"])
    return f"{done}/{len(found['tasks'])}" if found["state"] == "applied" else str(len(found["tasks"]) or "-")


def _lines(found: Plan) -> list[str]:
    head = out.paint(f"{found['id']} {found['state']}", "bold")
    room = out.width() - len(found["id"]) - len(found["state"]) - 3
    lines = [f"{head}  {out.fit(out.one_line(found['goal'] or 'the open issues'), room)}"]
    if found["state"] == "planning":
        return [*lines, f"  {out.one_line(found['progress'] or 'it is being planned')}"]
    applied = found["state"] == "applied"
    header: out.Row = (
        "ID",
        "TITLE",
        "EFFORT",
        "AFTER",
        "LABELS",
        "PROFILE",
        "FILES",
        *(("ISSUE", "STATUS") if applied else ()),
    )
    if found["tasks"]:
        rows: list[out.Row] = [[out.one_line(cell) for cell in _row(task, applied)] for task in found["tasks"]]
        empty = [name for place, name in enumerate(header) if all(row[place] == "-" for row in rows)]
        drop = sorted(_GIVE_WAY, key=lambda name: name not in empty)
        header, rows = out.fitting(header, rows, drop, shrink="TITLE", least=_TITLE)
        lines += ["", *out.table(header, rows, shrink=1)]
    if len(found["tasks"]) > 1:
        lines += ["", *_graph(found["tasks"])]
    lines += ["", *(f"note: {out.one_line(note)}" for note in found["notes"])] if found["notes"] else []
    lines += (
        ["", f"not applied: {out.one_line(found['error'])}"] if found["error"] and found["state"] == "draft" else []
    )
    return [*lines, "", *_next(found)]


def _row(task: dict[str, Any], applied: bool) -> out.Row:
    files = ", ".join(task["files"][:3]) + (" …" if len(task["files"]) > 3 else "")
    issue = str(task["issueKey"] or task["issue"] or "")
    named = f"#{issue}" if issue.isdigit() else issue
    row = (
        task["id"],
        f"{task['title']} ({named})" if named and not applied else task["title"],
        task["effort"],
        ", ".join(task["dependencies"]) or "-",
        ", ".join(task["labels"]) or "-",
        task["profile"] or "-",
        files or "-",
    )
    return (*row, named or "-", task["status"] or "-") if applied else row


def _graph(tasks: list[dict[str, Any]]) -> list[str]:
    """What may run at once, a line each: `1  t1  t2`, then `2  t3 ← t1, t2`."""
    depth: dict[str, int] = {}
    left = list(tasks)
    while left:
        ready = next((task for task in left if all(name in depth for name in task["dependencies"])), left[0])
        left.remove(ready)
        depth[ready["id"]] = max((depth.get(name, 0) + 1 for name in ready["dependencies"]), default=1)
    lines, steps = [], max(depth.values())
    for level in range(1, steps + 1):
        mine = [task for task in tasks if depth[task["id"]] == level]
        drawn = [
            task["id"] + (f" ← {', '.join(task['dependencies'])}" if task["dependencies"] else "") for task in mine
        ]
        lines += [f"  {'' if place else level:<2} {line}" for place, line in enumerate(_filled(drawn, out.width() - 5))]
    return [f"{'in one step' if steps == 1 else f'in {steps} steps, those of one at the same time'}:", *lines]


def _filled(words: list[str], columns: int) -> list[str]:
    """Words side by side, in as many lines as they need."""
    lines = [words[0]]
    for word in words[1:]:
        if out.cells(lines[-1]) + 3 + out.cells(word) <= columns:
            lines[-1] += f"   {word}"
        else:
            lines.append(word)
    return lines


def _next(found: Plan) -> list[str]:
    name = found["id"]
    match found["state"]:
        case "draft":
            return [f"  ao plan {name} --edit    ao plan {name} --apply    ao plan {name} --discard"]
        case "applied":
            return ["  ao status    ao backlog"]
        case "failed":
            return [f"  {out.one_line(found['error'])}"]
    return []
