"""The nodes of the cluster: `ao nodes`, `ao drain`."""

from __future__ import annotations

import json
from typing import Any

import click

from agent_orchestrator.base.http_client import error_from_problem, quote
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import NODE, client, json_option
from agent_orchestrator.errors import AoError


@click.group(invoke_without_command=True)
@json_option
@click.pass_context
def nodes(ctx: click.Context, as_json: bool) -> None:
    """List the machines of the cluster.

    Shows their state, their load, what is not reserved there yet, and the sessions that live there.
    """
    if ctx.invoked_subcommand is not None:
        return
    answer = client().get("/api/nodes")
    if as_json:
        out.print_json(answer)
        return
    rows = [_row(node) for node in answer["nodes"]]
    if rows:
        out.print_lines(out.table(("NODE", "STATE", "LABELS", "LOAD", "FREE CPUS", "FREE MEMORY", "SESSIONS"), rows))
    else:
        print("No nodes. Let a machine join: ao nodes add NAME; for a Ray cluster set cluster.address in config.yaml.")


@nodes.command("add")
@click.argument("name", metavar="NAME")
@json_option
def add(name: str, as_json: bool) -> None:
    """Let a machine join by hand: prints the command to be run there, with its token, which is shown this once."""
    node = client().post("/api/nodes", {"name": name})
    if as_json:
        out.print_json(node)
        return
    out.print_note(f"run this on {name}; the token is not shown again, and is revoked by: ao token revoke {name}")
    print(node["command"])


@click.command()
@click.argument("node", metavar="NODE", type=NODE)
@click.option("--undo", is_flag=True, help="It may get sessions again; those on their way go on.")
@click.option("--now", "at_once", is_flag=True, help="Interrupt turns instead of waiting for their end.")
@click.option("--no-wait", is_flag=True, help="Return at once, not when no session is left there.")
@json_option
def drain(node: str, undo: bool, at_once: bool, no_wait: bool, as_json: bool) -> int:
    """Move all sessions away from a machine of the cluster, and give it no new ones.

    Turns are waited for (ten minutes at most; --now interrupts them), work is saved, and each session goes on on another machine with its
    conversation. It goes on when this command is ended.
    """
    ao, path = client(), f"/api/nodes/{quote(node)}/drain"
    answer = ao.post(path, {"undo": undo, "now": at_once})
    if not undo and not no_wait:
        answer = _follow(ao, path, answer, quiet=as_json)
    if as_json:
        out.print_json(answer)
    elif undo:
        print(f"{node} may get sessions again.")
    elif answer["left"]:
        print(f"{node} gets no new sessions; {len(answer['left'])} are leaving: {_names(answer)}.")
    else:
        print(f"{node} is drained: no session lives there. Undo: ao drain {node} --undo")
    return 0


def _follow(ao: Any, path: str, answer: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    reported: dict[str, str] = {}
    if not answer["left"]:
        return answer
    with ao.stream("GET", path) as stream:
        while (line := stream.read_line()) is not None:
            message = json.loads(line) if line.strip() else answer
            if "problem" in message:
                raise error_from_problem(message["problem"])
            answer = message
            for session in answer["left"]:
                if not quiet and reported.get(session["session"]) != session["waits"]:
                    out.print_note(f"{session['session']} waits for {session['waits']}")
                    reported[session["session"]] = session["waits"]
            if not quiet:
                for name in reported.keys() - {session["session"] for session in answer["left"]}:
                    del reported[name]
                    out.print_note(f"{name} has left")
    if not answer["node"]["draining"]:
        raise AoError("the node is not being drained any more", "somebody took it back")
    return answer


def _names(answer: dict[str, Any]) -> str:
    return ", ".join(session["session"] for session in answer["left"])


def _row(node: dict[str, Any]) -> tuple[str, ...]:
    state = node["state"] + (f": {node['reason']}" if node["reason"] else "")
    colours = {"ready": "green", "draining": "yellow"}
    labels = " ".join(f"{key}={value}" for key, value in sorted(node["labels"].items()))
    load = "-" if node["load"] is None else f"{node['load']:.2f}"
    return (
        node["name"],
        out.paint(state, colours.get(node["state"], "red")),
        labels or "-",
        load,
        f"{node['freeCpus']:g} of {node['cpus']:g}",
        f"{_size(node['freeMemory'])} of {_size(node['memory'])}",
        ", ".join(node["sessions"]) or "-",
    )


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GB"
