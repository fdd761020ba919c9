"""`ao orchestrator`: the coordinating agent of a project."""

from __future__ import annotations

from typing import Any

import click

from agent_orchestrator.base.http_client import with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import AGENT, client, is_interactive, json_option, project_option, read_text
from agent_orchestrator.cli.sessions.new import wait_for
from agent_orchestrator.cli.sessions.workspace import attach_to
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, UsageError

ROUTE = "/api/orchestrator"
START_TIMEOUT = 120.0


@click.command()
@click.argument("goal", metavar="[GOAL...]", nargs=-1)
@project_option
@click.option("--agent", metavar="A", type=AGENT, help="A profile, else an agent; otherwise as configured.")
@click.option("--model", metavar="M", help="The agent's model.")
@click.option("--attach", is_flag=True, help="Show its terminal; started if need be.")
@click.option("--stop", is_flag=True, help="Stop it; its conversation is kept.")
@json_option
def orchestrator(
    goal: tuple[str, ...],
    project: str | None,
    agent: str | None,
    model: str | None,
    attach: bool,
    stop: bool,
    as_json: bool,
) -> None:
    """Give a goal to the project's coordinating agent, or see how it stands.

    It plans, starts and steers other agents and reports; it is told what happens and need not be asked to look. With a GOAL (`-` reads
    it from standard input), or with --agent, --model or --attach, it is started if it does not run. It merges, reviews, answers
    questions and edits files only where `coordinator.may` says so.
    """
    text = (read_text("-") if goal == ("-",) else " ".join(goal)).strip()
    if attach and (as_json or not is_interactive()):
        raise UsageError("--attach needs a terminal", "leave it out; `ao logs -f` follows without one")
    if stop and (text or attach or agent or model):
        raise UsageError("--stop goes alone", "stop it first, then start it with what you want")
    if goal and not text:
        raise UsageError("the goal is empty", "say what is to be achieved")
    ao = client()
    if stop:
        state = ao.request("DELETE", with_query(ROUTE, {"project": project}), timeout=START_TIMEOUT).json()
    elif text or attach or agent or model:
        state = start_coordinator(ao, {"projectId": project, "goal": text or None, "agent": agent, "model": model})
    else:
        state = ao.get(ROUTE, {"project": project})
    if as_json:
        out.print_json(state)
    elif not attach:
        _show(state, stopped=stop)
    if attach:
        attach_to(ao, str(state["session"]["id"]))


def start_coordinator(ao: DaemonClient, request: dict[str, Any]) -> dict[str, Any]:
    """Start the coordinating agent if it does not run, send it the request, and wait until it runs; raise AoError if it fails."""
    body = {key: value for key, value in request.items() if value is not None}
    state = dict(ao.post(ROUTE, body, timeout=START_TIMEOUT))
    state["session"] = session = wait_for(ao, state["session"])
    if session["status"] == "failed":
        raise AoError(f"{session['id']} could not be started: {session['why']}", f"see ao why {session['id']}")
    return state


def _show(state: dict[str, Any], *, stopped: bool) -> None:
    session = state["session"]
    if session is None:
        print(f'{state["project"]} has no coordinating agent. Start it: ao orchestrator "what is to be achieved"')
        return
    if stopped:
        print(f"{session['id']} is stopped; its conversation is kept. Go on with it: ao orchestrator GOAL")
        return
    print(f"{session['id']}: {session['status']}, {out.one_line(session['why'])}")
    if state["message"]:
        print(
            f"  the goal is {state['message']['state']}; watch it: ao attach {session['id']}, ao logs -f {session['id']}"
        )
        return
    if state["goal"]:
        print(f"  last asked for: {out.one_line(state['goal'])}")
    if state["said"]:
        print(f"  last said: {out.one_line(state['said'])}")
    digest_time = state["digest"]["lastAt"]
    print(f"  last told of news: {digest_time or 'never'}{', more is due' if state['digest']['pending'] else ''}")
