"""`ao fix`: start, follow, list and stop runs that fix failing checks."""

from __future__ import annotations

import shlex
import sys
import time
from typing import Any

import click

from agent_orchestrator.base.http_client import quote, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import AGENT, FIX, client, json_option, project_query, scope_options
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import UsageError

Json = dict[str, Any]

POLL_INTERVAL = 0.5
"""Seconds between two polls of a run that is followed."""
MAX_REASON_WIDTH = 60
"""Columns of a cause's reason in the table; `ao fix F --json` and `ao why` have all of it."""
DEFAULT_ROUNDS = 3
_SUCCESS_STATES = ("green", "measured")


@click.command()
@click.argument("run", metavar="[F]", required=False, type=FIX)
@click.option(
    "--command",
    "commands",
    metavar="CMD",
    multiple=True,
    help="Run this beside the configured checks, instead of tools that are found; may be repeated.",
)
@click.option(
    "--max-rounds",
    metavar="N",
    type=click.IntRange(1, 20),
    default=DEFAULT_ROUNDS,
    show_default=True,
    help="How many rounds agents are started in.",
)
@click.option("--max-agents", metavar="N", type=click.IntRange(1), help="How many of its agents may work at once.")
@click.option("--agent", metavar="A", type=AGENT, help="Profile or agent; absent: the project's.")
@click.option("--model", metavar="M", help="Model; absent: the agent's own.")
@click.option("--base", metavar="B", help="The branch that is to become green; absent: the default branch.")
@click.option("--no-merge", is_flag=True, help="Leave what is verified for your review; nothing is merged.")
@click.option("--dry-run", is_flag=True, help="Only show what fails, by cause.")
@click.option("--no-wait", is_flag=True, help="Return at once.")
@click.option("--list", "listing", is_flag=True, help="List the runs.")
@click.option("--stop", metavar="F", type=FIX, help="End a run; its agents are stopped, their work is saved.")
@scope_options
@json_option
def fix(
    run: str | None,
    commands: tuple[str, ...],
    max_rounds: int,
    max_agents: int | None,
    agent: str | None,
    model: str | None,
    base: str | None,
    no_merge: bool,
    dry_run: bool,
    no_wait: bool,
    listing: bool,
    stop: str | None,
    project: str | None,
    all_projects: bool,
    as_json: bool,
) -> int:
    """Have failing tests and lint errors fixed: one agent per cause, verified, merged.

    Runs the configured checks on the base branch, then the project's other tests and linters, groups what fails by likely cause, gives
    each cause to an agent, verifies each fix in a clean checkout (its failures gone, no new ones, no test lost, nothing silenced) and
    merges it through the merge queue. Then it measures again. `ao fix F1` follows a run. Exit code 0: nothing fails.
    """
    ao = client()
    if listing:
        _show_list(ao, project_query(project, all_projects), as_json)
        return 0
    if all_projects:
        raise UsageError("-A is for --list", "fix one project at a time: -p P")
    if stop:
        return _report_result(ao.request("DELETE", _path(stop)).json(), as_json)
    if run:
        if commands or max_agents or agent or model or base or no_merge or dry_run:
            raise UsageError(f"{run} has begun already", f"follow it: ao fix {run}; end it: ao fix --stop {run}")
        run_data = ao.get(_path(run))
    else:
        request: Json = {
            "base": base,
            "commands": list(commands),
            "maxRounds": max_rounds,
            "maxAgents": max_agents,
            "agent": agent,
            "model": model,
            "merge": not no_merge,
            "dryRun": dry_run,
        }
        run_data = ao.post(
            with_query("/api/fixes", {"project": project}), {k: v for k, v in request.items() if v is not None}
        )
    if no_wait and not dry_run:
        if as_json:
            out.print_json(run_data)
        else:
            print(f"{run_data['id']} is running. Follow it: ao fix {run_data['id']}")
        return 0
    try:
        run_data = _wait_until_ended(ao, run_data, quiet=as_json)
    except KeyboardInterrupt:
        out.print_note(
            f"{run_data['id']} continues in the background. Follow it: ao fix {run_data['id']}; end it: ao fix --stop {run_data['id']}"
        )
        raise
    if as_json and run_data["dryRun"]:
        run_data["failures"] = ao.get(_path(run_data["id"], "/failures"))["groups"]
    return _report_result(run_data, as_json, _repeat_command(run, run_data))


def _repeat_command(run: str | None, run_data: Json) -> str:
    """Return the command that fixes what a dry run has shown, with the same options."""
    return shlex.join(["ao", "fix", *(_options_of(run_data) if run else _command_line_options())])


def _options_of(run_data: Json) -> list[str]:
    """Return the command-line options of a run that an earlier command started."""
    values = [
        ("-p", run_data["project"]),
        ("--base", run_data["base"]),
        *(("--command", command) for command in run_data["commands"]),
    ]
    values += [("--agent", run_data["agent"]), ("--model", run_data["model"]), ("--max-agents", run_data["maxAgents"])]
    values += [("--max-rounds", run_data["maxRounds"])] if run_data["maxRounds"] != DEFAULT_ROUNDS else []
    arguments = [word for option, value in values if value for word in (option, str(value))]
    return arguments if run_data["merge"] else [*arguments, "--no-merge"]


def _command_line_options() -> list[str]:
    """Return the options given on the command line, without those that only affect output."""
    context = click.get_current_context()
    arguments: list[str] = []
    for option in context.command.params:
        value = context.params.get(option.name or "")
        is_given = context.get_parameter_source(option.name or "") == click.core.ParameterSource.COMMANDLINE
        if not is_given or not isinstance(option, click.Option) or option.name in ("dry_run", "no_wait", "as_json"):
            continue
        for item in value if isinstance(value, tuple) else (value,):
            arguments += [option.opts[0]] if option.is_flag else [option.opts[0], str(item)]
    return arguments


def _path(run: str, suffix: str = "") -> str:
    return f"/api/fixes/{quote(run)}{suffix}"


def _wait_until_ended(ao: DaemonClient, run_data: Json, *, quiet: bool) -> Json:
    """Poll the run until it ends and print each progress line once; return the ended run."""
    printed: set[str] = set()
    while True:
        if not quiet:
            for line in _progress_lines(run_data):
                if line not in printed:
                    printed.add(line)
                    print(out.one_line(line), file=sys.stderr, flush=True)
        if run_data["ended"]:
            return run_data
        time.sleep(POLL_INTERVAL)
        run_data = ao.get(_path(run_data["id"]))


def _progress_lines(run_data: Json) -> list[str]:
    lines = []
    if not run_data["rounds"] and run_data["progress"]:
        lines.append(f"{run_data['id']}: {run_data['progress']}")
    for round_ in run_data["rounds"]:
        if run_data["state"] == "failed" and not round_["total"]:
            continue
        causes = out.plural(len(round_["groups"]), "cause")
        failures = out.plural(round_["total"], "failure")
        lines.append(f"round {round_['number']}: {failures}, {causes} on {run_data['base']} at {round_['commit'][:8]}")
        lines += [f"  {tool}: {why}" for tool, why in round_["problems"].items()]
        if run_data["dryRun"]:
            continue
        for group in round_["groups"]:
            if group["session"]:
                lines.append(f"  {group['session']}: {group['title']} ({out.plural(group['count'], 'failure')})")
            if (
                group["session"]
                and group["status"] in ("needs_input", "blocked", "stuck", "interrupted")
                and not group["outcome"]
            ):
                lines.append(f"  {group['session']} needs you: {group['why']}")
            if group["session"] and group["status"] == "ci_failed" and not group["outcome"]:
                lines.append(f"  {group['session']}: its fix did not pass; the reasons were sent to the agent")
            if group["outcome"] and group["outcome"] != "later":
                commit = f" as {group['commit'][:8]}" if group["commit"] else ""
                why = f": {group['reason']}" if group["reason"] else ""
                lines.append(f"  {group['session'] or group['title']} {_outcome_text(group['outcome'])}{commit}{why}")
    return lines


def _report_result(run_data: Json, as_json: bool, repeat_command: str = "ao fix") -> int:
    if as_json:
        out.print_json(run_data)
    else:
        out.print_lines(_result_lines(run_data, repeat_command))
    return 0 if run_data["state"] == "green" or (run_data["state"] in _SUCCESS_STATES and not run_data["after"]) else 1


def _result_lines(run_data: Json, repeat_command: str) -> list[str]:
    """Return tables of failures before and after, by tool and by cause, and a summary line."""
    lines: list[str] = []
    if run_data["tools"]:
        header = ("TOOL", "BEFORE", "AFTER") if not run_data["dryRun"] else ("TOOL", "FAILURES")
        rows = [_tool_row(tool, run_data["dryRun"]) for tool in run_data["tools"]]
        rows.append(
            ("all", _number_text(run_data["before"]))
            if run_data["dryRun"]
            else ("all", _number_text(run_data["before"]), _number_text(run_data["after"]))
        )
        lines += out.table(header, rows)
    groups = [(round_, group) for round_ in run_data["rounds"] for group in round_["groups"]]
    if groups and run_data["dryRun"]:
        rows = [
            (str(group["count"]), group["title"], ", ".join(group["tools"]), ", ".join(group["files"][:3]))
            for _, group in groups
        ]
        lines += ["", *out.table(("FAILURES", "CAUSE", "TOOLS", "FILES"), rows, shrink=1)]
    elif groups:
        rows = [_group_row(run_data, round_, group) for round_, group in groups]
        lines += ["", *out.table(("ROUND", "CAUSE", "BEFORE", "AFTER", "SESSION", "RESULT", "COMMIT"), rows, shrink=1)]
    return [*lines, *([""] if lines else []), _summary_line(run_data, repeat_command)]


def _tool_row(tool: Json, is_dry_run: bool) -> out.Row:
    if tool["problem"]:
        problem = "not set up" if tool["problem"].startswith("environment not set up") else "cannot be run"
        return (tool["name"], problem) if is_dry_run else (tool["name"], _number_text(tool["before"]), problem)
    return (
        (tool["name"], _number_text(tool["before"]))
        if is_dry_run
        else (tool["name"], _number_text(tool["before"]), _number_text(tool["after"]))
    )


def _group_row(run_data: Json, round_: Json, group: Json) -> out.Row:
    outcome = group["outcome"]
    after = "0" if outcome == "landed" else str(group["count"])
    result = _outcome_text(outcome) or (
        ("stopped" if run_data["state"] == "stopped" else "left") if run_data["ended"] else group["status"] or "waits"
    )
    return (
        str(round_["number"]),
        group["title"],
        str(group["count"]),
        after,
        group["session"] or "-",
        f"{result}: {out.truncate(out.one_line(group['reason']), MAX_REASON_WIDTH)}" if group["reason"] else result,
        (group["commit"] or "-")[:8],
    )


def _outcome_text(outcome: str | None) -> str:
    return "merged" if outcome == "landed" else outcome or ""


def _number_text(value: int | None) -> str:
    return "-" if value is None else str(value)


def _summary_line(run_data: Json, repeat_command: str) -> str:
    rounds = out.plural(max(0, len(run_data["rounds"]) - 1), "round")
    before, after, reason = run_data["before"], run_data["after"], run_data["reason"]
    sentences = {
        "green": f"Nothing fails on {run_data['base']}."
        if not before
        else f"{before} → 0 in {rounds}: {run_data['base']} is green.",
        "left": f"{before} → {after}: {reason}",
        "review": f"{reason}",
        "measured": f"Fix them: {repeat_command}",
        "not_set_up": reason,
        "stopped": f"{run_data['id']} was stopped; its agents' work is saved: ao status",
        "failed": f"{run_data['id']} failed: {reason}",
    }
    return out.one_line(
        sentences.get(run_data["state"]) or f"{run_data['id']} is running: {run_data['progress'] or run_data['state']}"
    )


def _show_list(ao: DaemonClient, query: dict[str, str | int | None], as_json: bool) -> None:
    runs = ao.get(with_query("/api/fixes", query))
    if as_json:
        out.print_json(runs)
        return
    rows = [
        (
            run_data["id"],
            run_data["project"],
            run_data["base"],
            f"{_number_text(run_data['before'])} → {_number_text(run_data['after'])}",
            run_data["state"],
            out.age(run_data["createdAt"]),
        )
        for run_data in runs["fixes"]
    ]
    lines = out.table(("RUN", "PROJECT", "BASE", "FAILURES", "STATE", "AGE"), rows)
    out.print_lines(lines if rows else ["No runs yet. Start one: ao fix"])
