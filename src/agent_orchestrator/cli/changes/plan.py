"""`ao plan`: make a plan from a goal, show, edit, apply and discard plans."""

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
    editor_command,
    is_interactive,
    json_option,
    project_query,
    read_text,
    scope_options,
)
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, Conflict, UsageError

Plan = dict[str, Any]

_ID = re.compile(r"[Pp][0-9]+")
_UNFINISHED_STATES = ("planning", "applying")
_POLL_INTERVAL = 0.3
_UNCHANGEABLE = {
    "applying": "wait until it is applied, then change its issues: ao issues",
    "applied": "change its issues: ao issues",
    "discarded": "ask for another: ao plan GOAL",
}
"""States in which a plan cannot be changed any more, and what to do instead."""
_DROPPED_COLUMNS = ("EFFORT", "LABELS", "FILES", "PROFILE", "AFTER")
"""Columns that are left out on a narrow terminal, in this order; `AFTER` is in the graph too."""
_MIN_TITLE_WIDTH = 32
"""Columns of the title before other columns are left out."""


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
    _check_options(options)
    is_existing = len(words) == 1 and _ID.fullmatch(words[0])
    if len(words) > 1 and all(_ID.fullmatch(word) for word in words):
        raise UsageError("one plan at a time", f"ao plan {words[0]}")
    if not words and not options["from_issues"]:
        if option := next((name for name in ("edit", "apply_it", "discard", "agent", "model") if options[name]), None):
            raise UsageError(
                f"--{option.removesuffix('_it')} of which plan?",
                "give a goal, --from-issues, or a plan's id: ao plan P3",
            )
        return _list(ao, project, all_projects, as_json)
    if is_existing:
        if option := next((name for name in ("from_issues", "agent", "model") if options[name]), None):
            raise UsageError(f"--{option.replace('_', '-')} is for a new plan", f"leave it out, or {words[0]}")
        plan: Plan = ao.get(_path(words[0]))
    else:
        if options["discard"]:
            raise UsageError("--discard of which plan?", "give its id: ao plan P3 --discard")
        plan = _request_plan(ao, words, project, options)
    return _process(ao, plan, as_json, options, new=not is_existing)


def _check_options(options: dict[str, Any]) -> None:
    if options["discard"] and (options["edit"] or options["apply_it"]):
        raise UsageError("--discard goes with neither --edit nor --apply", "give one of them")
    for name in ("no_start", "max_parallel"):
        if options[name] and not options["apply_it"]:
            raise UsageError(f"--{name.replace('_', '-')} goes with --apply", "add --apply")


def _path(name: str, rest: str = "") -> str:
    return f"/api/plans/{quote(name)}{rest}"


# -- asking ------------------------------------------------------------------------------------------------------------


def _request_plan(ao: DaemonClient, words: tuple[str, ...], project: str | None, options: dict[str, Any]) -> Plan:
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
    plan: Plan = ao.post("/api/plans", {key: value for key, value in body.items() if value})
    return _wait_until_done(ao, plan, f"{plan['id']} is being planned by {plan['agent']}")


def _wait_until_done(ao: DaemonClient, plan: Plan, action: str) -> Plan:
    """Poll a plan until it is planned or applied and return it; Ctrl-C leaves it running in the background."""
    state, printed = plan["state"], ""
    if state not in _UNFINISHED_STATES:  # it was done before this asked for it, by a request that is repeated
        return plan
    is_terminal = sys.stderr.isatty()
    if not is_terminal:
        print(f"  {action}", file=sys.stderr, flush=True)
    started = time.monotonic()
    try:
        while plan["state"] == state:
            line = f"  {action}, {out.duration(int(time.monotonic() - started))}"
            line += f": {out.one_line(plan['progress'])}" if plan["progress"] else ""
            if is_terminal and line != printed:
                print(f"\r\033[K{out.truncate(line, out.terminal_width() - 1)}", end="", file=sys.stderr, flush=True)
                printed = line
            time.sleep(_POLL_INTERVAL)
            plan = ao.get(_path(plan["id"]))
    except KeyboardInterrupt:
        _clear_line(is_terminal)
        out.print_note(f"{plan['id']} goes on: see ao plan {plan['id']}; ao plan {plan['id']} --discard ends it")
        raise
    _clear_line(is_terminal)
    return plan


def _clear_line(is_terminal: bool) -> None:
    if is_terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _process(ao: DaemonClient, plan: Plan, as_json: bool, options: dict[str, Any], *, new: bool) -> int:
    if options["discard"]:
        plan = ao.request("DELETE", _path(plan["id"])).json()
    else:
        if not new and plan["state"] == "planning" and (options["edit"] or options["apply_it"]):
            plan = _wait_until_done(ao, plan, f"{plan['id']} is being planned by {plan['agent']}")
        if plan["state"] == "failed" and (new or options["apply_it"]) and not options["edit"]:
            return _show_failure(plan, as_json)
        if options["edit"] and plan["state"] in _UNCHANGEABLE:
            raise Conflict(f"{plan['id']} is {plan['state']}, and cannot be changed", _UNCHANGEABLE[plan["state"]])
        if options["edit"]:
            plan = _edit(ao, plan)
        if options["apply_it"]:
            plan = _apply(ao, plan, options)
    if as_json:
        out.print_json(plan)
    else:
        out.print_lines(_plan_lines(plan))
    return 1 if options["apply_it"] and plan["state"] != "applied" else 0


def _show_failure(plan: Plan, as_json: bool) -> int:
    if as_json:
        out.print_json(plan)
    out.print_note(f"{plan['id']} failed: {plan['error']}")
    return 1


# -- changing ----------------------------------------------------------------------------------------------------------


def _edit(ao: DaemonClient, plan: Plan) -> Plan:
    """Edit the plan as YAML and return it; an invalid text can be edited again, else its file is kept."""
    import tempfile

    command = editor_command()
    if not command:
        raise UsageError("there is no editor to open", "set EDITOR, or change it by `ao api PUT /plans/ID`")
    text = ao.request("GET", with_query(_path(plan["id"]), {"as": "yaml"})).text
    descriptor, path = tempfile.mkstemp(prefix=f"ao-{plan['id'].lower()}-", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    while True:
        _open_editor(command, path)
        try:
            changed = read_text(path)
            if changed != text:
                plan = ao.request("PUT", _path(plan["id"]), {"text": changed}).json()
        except AoError as error:
            out.print_note(str(error))
            if is_interactive() and click.confirm("Open the editor again?", default=True, err=True):
                continue
            raise Conflict(f"{plan['id']} was not changed", f"what you wrote is kept in {path}") from None
        os.unlink(path)
        return plan


def _open_editor(command: str, path: str) -> None:
    import shlex
    import subprocess

    try:
        code = subprocess.run([*shlex.split(command), path], check=False).returncode
    except OSError as error:
        os.unlink(path)
        raise UsageError(f"the editor {command} cannot be run: {error.strerror}", "set EDITOR") from None
    if code:
        raise UsageError(f"the editor {command} ended with {code}", f"nothing was changed; the text is in {path}")


def _apply(ao: DaemonClient, plan: Plan, options: dict[str, Any]) -> Plan:
    body = {"start": not options["no_start"], "groupLimit": options["max_parallel"]}
    plan = ao.post(_path(plan["id"], "/apply"), body)
    if plan["state"] == "applying":
        plan = _wait_until_done(ao, plan, f"{plan['id']} is being applied")
    if plan["state"] != "applied" and plan["error"]:
        raise Conflict(f"{plan['id']} was not applied: {plan['error']}", f"correct it: ao plan {plan['id']} --edit")
    return plan


# -- showing -----------------------------------------------------------------------------------------------------------


def _list(ao: DaemonClient, project: str | None, all_projects: bool, as_json: bool) -> int:
    answer = ao.get("/api/plans", project_query(project, all_projects))
    if as_json:
        out.print_json(answer)
        return 0
    rows = [
        (
            plan["id"],
            plan["project"],
            plan["state"],
            _task_count(plan),
            out.age(plan["updatedAt"]),
            plan["error"] if plan["state"] == "failed" else plan["goal"] or "the open issues",
        )
        for plan in answer["plans"]
    ]
    lines = out.table(("PLAN", "PROJECT", "STATE", "TASKS", "AGE", "GOAL"), rows, shrink=5)
    out.print_lines(lines if rows else ['There is no plan. Make one: ao plan "what is to be reached"'])
    return 0


def _task_count(plan: Plan) -> str:
    done = sum(task["status"] == "done" for task in plan["tasks"])
    return f"{done}/{len(plan['tasks'])}" if plan["state"] == "applied" else str(len(plan["tasks"]) or "-")


def _plan_lines(plan: Plan) -> list[str]:
    head = out.paint(f"{plan['id']} {plan['state']}", "bold")
    columns = out.terminal_width() - len(plan["id"]) - len(plan["state"]) - 3
    lines = [f"{head}  {out.truncate(out.one_line(plan['goal'] or 'the open issues'), columns)}"]
    if plan["state"] == "planning":
        return [*lines, f"  {out.one_line(plan['progress'] or 'it is being planned')}"]
    applied = plan["state"] == "applied"
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
    if plan["tasks"]:
        rows: list[out.Row] = [[out.one_line(cell) for cell in _row(task, applied)] for task in plan["tasks"]]
        empty = [name for index, name in enumerate(header) if all(row[index] == "-" for row in rows)]
        drop = sorted(_DROPPED_COLUMNS, key=lambda name: name not in empty)
        header, rows = out.drop_columns(header, rows, drop, shrink="TITLE", min_width=_MIN_TITLE_WIDTH)
        lines += ["", *out.table(header, rows, shrink=1)]
    if len(plan["tasks"]) > 1:
        lines += ["", *_stage_lines(plan["tasks"])]
    lines += ["", *(f"note: {out.one_line(note)}" for note in plan["notes"])] if plan["notes"] else []
    lines += ["", f"not applied: {out.one_line(plan['error'])}"] if plan["error"] and plan["state"] == "draft" else []
    return [*lines, "", *_next_commands(plan)]


def _row(task: dict[str, Any], applied: bool) -> out.Row:
    files = ", ".join(task["files"][:3]) + (" …" if len(task["files"]) > 3 else "")
    issue = str(task["issueKey"] or task["issue"] or "")
    issue_name = f"#{issue}" if issue.isdigit() else issue
    row = (
        task["id"],
        f"{task['title']} ({issue_name})" if issue_name and not applied else task["title"],
        task["effort"],
        ", ".join(task["dependencies"]) or "-",
        ", ".join(task["labels"]) or "-",
        task["profile"] or "-",
        files or "-",
    )
    return (*row, issue_name or "-", task["status"] or "-") if applied else row


def _stage_lines(tasks: list[dict[str, Any]]) -> list[str]:
    """Return the stages of tasks that can run in parallel, one line each: `1  t1  t2`, then `2  t3 ← t1, t2`."""
    depth: dict[str, int] = {}
    remaining = list(tasks)
    while remaining:
        ready = next((task for task in remaining if all(name in depth for name in task["dependencies"])), remaining[0])
        remaining.remove(ready)
        depth[ready["id"]] = max((depth.get(name, 0) + 1 for name in ready["dependencies"]), default=1)
    lines, stages = [], max(depth.values())
    for stage in range(1, stages + 1):
        stage_tasks = [task for task in tasks if depth[task["id"]] == stage]
        labels = [
            task["id"] + (f" ← {', '.join(task['dependencies'])}" if task["dependencies"] else "")
            for task in stage_tasks
        ]
        lines += [
            f"  {'' if index else stage:<2} {line}"
            for index, line in enumerate(_join_in_lines(labels, out.terminal_width() - 5))
        ]
    return [f"{'in one step' if stages == 1 else f'in {stages} steps, those of one at the same time'}:", *lines]


def _join_in_lines(words: list[str], columns: int) -> list[str]:
    """Join the labels side by side into as many lines as they need."""
    lines = [words[0]]
    for word in words[1:]:
        if out.display_width(lines[-1]) + 3 + out.display_width(word) <= columns:
            lines[-1] += f"   {word}"
        else:
            lines.append(word)
    return lines


def _next_commands(plan: Plan) -> list[str]:
    name = plan["id"]
    match plan["state"]:
        case "draft":
            return [f"  ao plan {name} --edit    ao plan {name} --apply    ao plan {name} --discard"]
        case "applied":
            return ["  ao status    ao backlog"]
        case "failed":
            return [f"  {out.one_line(plan['error'])}"]
    return []
