"""Fixing: `ao fix`."""

from __future__ import annotations

import shlex
import sys
import time
from typing import Any

import click

from agent_orchestrator.base.http_client import quote, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import AGENT, FIX, client, json_option, scope, scope_options
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import UsageError

Json = dict[str, Any]

LOOK = 0.5
"""Seconds between two looks at a run that is followed."""
LONGEST_REASON = 60
"""Columns of why a cause came to nothing; `ao fix F --json` and `ao why` tell it all."""
DEFAULT_ROUNDS = 3
_GOOD = ("green", "measured")


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
        _show_list(ao, scope(project, all_projects), as_json)
        return 0
    if all_projects:
        raise UsageError("-A is for --list", "fix one project at a time: -p P")
    if stop:
        return _tell(ao.request("DELETE", _path(stop)).json(), as_json)
    if run:
        if commands or max_agents or agent or model or base or no_merge or dry_run:
            raise UsageError(f"{run} has begun already", f"follow it: ao fix {run}; end it: ao fix --stop {run}")
        found = ao.get(_path(run))
    else:
        wanted: Json = {
            "base": base,
            "commands": list(commands),
            "maxRounds": max_rounds,
            "maxAgents": max_agents,
            "agent": agent,
            "model": model,
            "merge": not no_merge,
            "dryRun": dry_run,
        }
        found = ao.post(
            with_query("/api/fixes", {"project": project}), {k: v for k, v in wanted.items() if v is not None}
        )
    if no_wait and not dry_run:
        if as_json:
            out.print_json(found)
        else:
            print(f"{found['id']} is running. Follow it: ao fix {found['id']}")
        return 0
    try:
        found = _follow(ao, found, quiet=as_json)
    except KeyboardInterrupt:
        out.note(
            f"{found['id']} continues in the background. Follow it: ao fix {found['id']}; end it: ao fix --stop {found['id']}"
        )
        raise
    if as_json and found["dryRun"]:
        found["failures"] = ao.get(_path(found["id"], "/failures"))["groups"]
    return _tell(found, as_json, _repeated(run, found))


def _repeated(run: str | None, found: Json) -> str:
    """Return the command that fixes what a dry run has shown, with the options that the run was given."""
    return shlex.join(["ao", "fix", *(_options_of(found) if run else _given_options())])


def _options_of(found: Json) -> list[str]:
    """Return the options of a run that was begun by an earlier command."""
    values = [("-p", found["project"]), ("--base", found["base"]), *(("--command", one) for one in found["commands"])]
    values += [("--agent", found["agent"]), ("--model", found["model"]), ("--max-agents", found["maxAgents"])]
    values += [("--max-rounds", found["maxRounds"])] if found["maxRounds"] != DEFAULT_ROUNDS else []
    words = [word for option, value in values if value for word in (option, str(value))]
    return words if found["merge"] else [*words, "--no-merge"]


def _given_options() -> list[str]:
    """Return this command's own options, but those that say how its result is shown."""
    context = click.get_current_context()
    words: list[str] = []
    for option in context.command.params:
        value = context.params.get(option.name or "")
        given = context.get_parameter_source(option.name or "") == click.core.ParameterSource.COMMANDLINE
        if not given or not isinstance(option, click.Option) or option.name in ("dry_run", "no_wait", "as_json"):
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words += [option.opts[0]] if option.is_flag else [option.opts[0], str(one)]
    return words


def _path(run: str, rest: str = "") -> str:
    return f"/api/fixes/{quote(run)}{rest}"


def _follow(ao: Client, found: Json, *, quiet: bool) -> Json:
    """Wait for the end; print each thing that happens, once."""
    told: set[str] = set()
    while True:
        if not quiet:
            for line in _news(found):
                if line not in told:
                    told.add(line)
                    print(out.one_line(line), file=sys.stderr, flush=True)
        if found["ended"]:
            return found
        time.sleep(LOOK)
        found = ao.get(_path(found["id"]))


def _news(found: Json) -> list[str]:
    lines = []
    if not found["rounds"] and found["progress"]:
        lines.append(f"{found['id']}: {found['progress']}")
    for each in found["rounds"]:
        if found["state"] == "failed" and not each["total"]:
            continue
        causes = out.plural(len(each["groups"]), "cause")
        fails = out.plural(each["total"], "failure")
        lines.append(f"round {each['number']}: {fails}, {causes} on {found['base']} at {each['commit'][:8]}")
        lines += [f"  {tool}: {why}" for tool, why in each["problems"].items()]
        if found["dryRun"]:
            continue
        for group in each["groups"]:
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
                lines.append(f"  {group['session'] or group['title']} {_shown(group['outcome'])}{commit}{why}")
    return lines


def _tell(found: Json, as_json: bool, repeated: str = "ao fix") -> int:
    if as_json:
        out.print_json(found)
    else:
        out.show(_lines(found, repeated))
    return 0 if found["state"] == "green" or (found["state"] in _GOOD and not found["after"]) else 1


def _lines(found: Json, repeated: str) -> list[str]:
    """Before → after, by tool and by cause."""
    lines: list[str] = []
    if found["tools"]:
        header = ("TOOL", "BEFORE", "AFTER") if not found["dryRun"] else ("TOOL", "FAILURES")
        rows = [_tool_row(tool, found["dryRun"]) for tool in found["tools"]]
        rows.append(
            ("all", _number(found["before"]))
            if found["dryRun"]
            else ("all", _number(found["before"]), _number(found["after"]))
        )
        lines += out.table(header, rows)
    groups = [(each, group) for each in found["rounds"] for group in each["groups"]]
    if groups and found["dryRun"]:
        rows = [
            (str(group["count"]), group["title"], ", ".join(group["tools"]), ", ".join(group["files"][:3]))
            for _, group in groups
        ]
        lines += ["", *out.table(("FAILURES", "CAUSE", "TOOLS", "FILES"), rows, shrink=1)]
    elif groups:
        rows = [_group_row(found, each, group) for each, group in groups]
        lines += ["", *out.table(("ROUND", "CAUSE", "BEFORE", "AFTER", "SESSION", "RESULT", "COMMIT"), rows, shrink=1)]
    return [*lines, *([""] if lines else []), _end(found, repeated)]


def _tool_row(tool: Json, dry: bool) -> out.Row:
    if tool["problem"]:
        what = "not set up" if tool["problem"].startswith("environment not set up") else "cannot be run"
        return (tool["name"], what) if dry else (tool["name"], _number(tool["before"]), what)
    return (
        (tool["name"], _number(tool["before"]))
        if dry
        else (tool["name"], _number(tool["before"]), _number(tool["after"]))
    )


def _group_row(found: Json, each: Json, group: Json) -> out.Row:
    outcome = group["outcome"]
    after = "0" if outcome == "landed" else str(group["count"])
    came = _shown(outcome) or (
        ("stopped" if found["state"] == "stopped" else "left") if found["ended"] else group["status"] or "waits"
    )
    return (
        str(each["number"]),
        group["title"],
        str(group["count"]),
        after,
        group["session"] or "-",
        f"{came}: {out.fit(out.one_line(group['reason']), LONGEST_REASON)}" if group["reason"] else came,
        (group["commit"] or "-")[:8],
    )


def _shown(outcome: str | None) -> str:
    return "merged" if outcome == "landed" else outcome or ""


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _end(found: Json, repeated: str) -> str:
    rounds = out.plural(max(0, len(found["rounds"]) - 1), "round")
    before, after, why = found["before"], found["after"], found["reason"]
    words = {
        "green": f"Nothing fails on {found['base']}."
        if not before
        else f"{before} → 0 in {rounds}: {found['base']} is green.",
        "left": f"{before} → {after}: {why}",
        "review": f"{why}",
        "measured": f"Fix them: {repeated}",
        "not_set_up": why,
        "stopped": f"{found['id']} was stopped; its agents' work is saved: ao status",
        "failed": f"{found['id']} failed: {why}",
    }
    return out.one_line(words.get(found["state"]) or f"{found['id']} is running: {found['progress'] or found['state']}")


def _show_list(ao: Client, query: dict[str, str | int | None], as_json: bool) -> None:
    found = ao.get(with_query("/api/fixes", query))
    if as_json:
        out.print_json(found)
        return
    rows = [
        (
            each["id"],
            each["project"],
            each["base"],
            f"{_number(each['before'])} → {_number(each['after'])}",
            each["state"],
            out.age(each["createdAt"]),
        )
        for each in found["fixes"]
    ]
    lines = out.table(("RUN", "PROJECT", "BASE", "FAILURES", "STATE", "AGE"), rows)
    out.show(lines if rows else ["No runs yet. Start one: ao fix"])
