"""Projects and what they may use: `ao projects`, `add-project`, `remove-project`, `init`, `trust`, `agents`."""

from __future__ import annotations

import os
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import PROJECT, can_answer, client, json_option
from agent_orchestrator.cli.daemon import CLONE_TIMEOUT, project_body, show_project
from agent_orchestrator.errors import Denied, UsageError
from agent_orchestrator.wire import quote


@click.command()
@json_option
def projects(as_json: bool) -> None:
    """List the projects."""
    answer = client().get("/api/projects")
    if as_json:
        out.print_json(answer)
        return
    found = answer["projects"]
    if not found:
        print("No projects. Register one: ao start PATH")
        return
    rows = [
        (
            each["id"],
            str(each.get("sessions") or 0),
            each.get("defaultBranch") or "-",
            _trust_text(each),
            each.get("path") or "-",
        )
        for each in found
    ]
    out.show(out.table(("PROJECT", "SESSIONS", "BRANCH", "TRUSTED", "PATH"), rows, shrink=4))


def _trust_text(project: dict[str, Any]) -> str:
    return {True: "yes", False: "no"}.get(project.get("trusted"), "-")  # type: ignore[arg-type]


@click.command("add-project")
@click.argument("where", metavar="[PATH or URL]", required=False)
@json_option
def add_project(where: str | None, as_json: bool) -> None:
    """Register a repository: the one here, at a PATH, or a clone of a URL."""
    _register(where, init=False, as_json=as_json)


@click.command()
@click.argument("where", metavar="[PATH]", required=False)
@json_option
def init(where: str | None, as_json: bool) -> None:
    """Write the configuration for the repository here.

    Finds its default branch, remote, test command and the agents of this machine.
    """
    _register(where, init=True, as_json=as_json)


def _register(where: str | None, *, init: bool, as_json: bool) -> None:
    body = project_body(where)
    if body is None:
        raise UsageError(f"{os.getcwd()} is not in a Git repository", "go to one, or give its path")
    project = client().post("/api/projects", body | {"init": init}, timeout=CLONE_TIMEOUT)
    out.print_json(project) if as_json else show_project(project)


@click.command("remove-project")
@click.argument("project", metavar="P", type=PROJECT)
def remove_project(project: str) -> None:
    """Forget a project; its files stay."""
    client().request("DELETE", f"/api/projects/{quote(project)}")
    print(f"{project} is forgotten; its files stay.")


@click.command()
@click.argument("path", metavar="[PATH]", required=False)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def trust(path: str | None, yes: bool, as_json: bool) -> None:
    """Allow a repository's configuration to run its commands.

    Shows them first, and asks whoever sits at the terminal; a script that says this has said it. The trust holds for these commands as
    they are: changed ones are asked for again.
    """
    ao = client()
    where = None if path is None else os.path.abspath(os.path.expanduser(path))
    found = ao.get("/api/projects/trust", {"path": where})
    if not as_json:
        commands = found.get("commands") or []
        print(f"{found.get('project')} would run:" if commands else f"{found.get('project')} has no commands to trust.")
        out.show(f"  {out.one_line(_command_text(each))}" for each in commands)
    settled = found.get("trusted") or not found.get("commands")
    if not yes and not settled and can_answer() and not click.confirm("Trust them?", err=True):
        raise Denied("nothing was trusted", "the commands do not run")
    shown = {"digest": found.get("digest")} | ({} if where is None else {"path": where})
    trusted = ao.post("/api/projects/trust", shown)
    if as_json:
        out.print_json(trusted)
    elif found.get("commands"):
        print("Trusted already." if found.get("trusted") else "Trusted.")


def _command_text(command: object) -> str:
    if isinstance(command, dict):
        return ": ".join(str(value) for value in command.values())
    return str(command)


@click.command()
@json_option
def agents(as_json: bool) -> None:
    """List the agents and where they were found."""
    answer = client().get("/api/agents")
    if as_json:
        out.print_json(answer)
        return
    rows = [
        (each["name"], "yes" if each.get("found") else "no", each.get("version") or "-", each.get("path") or "-")
        for each in answer["agents"]
    ]
    out.show(out.table(("AGENT", "FOUND", "VERSION", "PATH"), rows, shrink=3))
    if not all(each.get("found") for each in answer["agents"]):
        print(
            "Looked for in your login shell's PATH, as it was when the daemon started; once it has changed: ao shutdown"
        )
