"""Projects and what they may use: `ao projects`, `add-project`, `remove-project`, `init`, `trust`, `agents`."""

from __future__ import annotations

import os
from typing import Any

import click

from agent_orchestrator.base.http_client import quote
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import PROJECT, can_ask, client, first_use_options, json_option
from agent_orchestrator.cli.daemon.start import CLONE_TIMEOUT, introduce_project, project_body
from agent_orchestrator.cli.setup.proof import ensure_configured_trusted, proof_lines, prove
from agent_orchestrator.errors import Denied, UsageError


@click.command()
@json_option
def projects(as_json: bool) -> None:
    """List the projects."""
    answer = client().get("/api/projects")
    if as_json:
        out.print_json(answer)
        return
    projects_ = answer["projects"]
    if not projects_:
        print("No projects. Register one: ao start PATH")
        return
    rows = [
        (
            project["id"],
            str(project.get("sessions") or 0),
            project.get("defaultBranch") or "-",
            _trust_text(project),
            project.get("path") or "-",
        )
        for project in projects_
    ]
    out.print_lines(out.table(("PROJECT", "SESSIONS", "BRANCH", "TRUSTED", "PATH"), rows, shrink=4))


def _trust_text(project: dict[str, Any]) -> str:
    return {True: "yes", False: "no"}.get(project.get("trusted"), "-")  # type: ignore[arg-type]


@click.command("add-project")
@click.argument("where", metavar="[PATH or URL]", required=False)
@first_use_options
@json_option
def add_project(where: str | None, yes: bool, no_prove: bool, as_json: bool) -> int:
    """Register a repository: the one here, at a PATH, or a clone of a URL.

    On first use agent-orchestrator.yaml is written, as `ao init` does. Of a URL's clone nothing is run before you trust it.
    """
    return _register(where, yes=yes, no_prove=no_prove, as_json=as_json)


@click.command()
@click.argument("where", metavar="[PATH]", required=False)
@first_use_options
@click.option("--check", is_flag=True, help="Prove what is configured, the set-up from scratch; writes nothing.")
@json_option
def init(where: str | None, yes: bool, no_prove: bool, check: bool, as_json: bool) -> int:
    """Detect, prove and write the configuration for the repository here.

    Finds its default branch, remote, agent, set-up, test and lint commands. On a terminal it shows them and asks once; then it runs them
    in a clean checkout of the default branch and writes what works. Without a terminal nothing is run before you trust it, by --yes or
    `ao trust`. Where a configuration exists, only a missing `postCreate` or `ci` is added. With --check it proves what is configured, at
    any time, and says where that differs from the repository's files. Exit code 1: not proven.
    """
    if check:
        if no_prove:
            raise UsageError("--check proves, --no-prove does not", "give one of them")
        return _check(where, yes=yes, as_json=as_json)
    return _register(where, yes=yes, no_prove=no_prove, as_json=as_json)


def _register(where: str | None, *, yes: bool, no_prove: bool, as_json: bool) -> int:
    body = _request_body(where)
    ao = client()
    project = ao.post("/api/projects", body | {"init": True}, timeout=CLONE_TIMEOUT)
    if as_json:
        proposal = project.get("proposal")
        proof = prove(ao, project["id"], proposal["digest"], run=not no_prove, quiet=True) if yes and proposal else None
        out.print_json(project | {"proof": proof})
        return _exit_code(proof)
    return _exit_code(introduce_project(ao, project, yes=yes, no_prove=no_prove, ask="url" not in body))


def _check(where: str | None, *, yes: bool, as_json: bool) -> int:
    ao = client()
    project = ao.post("/api/projects", _request_body(where) | {"init": False}, timeout=CLONE_TIMEOUT)
    if project.get("trusted") is False:
        ensure_configured_trusted(ao, project["path"], yes=yes)
    proof = prove(ao, project["id"], quiet=as_json)
    out.print_json(proof) if as_json else out.print_lines(proof_lines(proof))
    return _exit_code(proof)


def _request_body(where: str | None) -> dict[str, Any]:
    body = project_body(where)
    if body is None:
        raise UsageError(f"{os.getcwd()} is not in a Git repository", "go to one, or give its path")
    return body


def _exit_code(proof: dict[str, Any] | None) -> int:
    return 1 if proof and proof["tried"] and not proof["proven"] else 0


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
    folder = None if path is None else os.path.abspath(os.path.expanduser(path))
    commands_answer = ao.get("/api/projects/trust", {"path": folder})
    if not as_json:
        commands = commands_answer.get("commands") or []
        print(
            f"{commands_answer.get('project')} would run:"
            if commands
            else f"{commands_answer.get('project')} has no commands to trust."
        )
        out.print_lines(f"  {out.one_line(_command_text(command))}" for command in commands)
    is_settled = commands_answer.get("trusted") or not commands_answer.get("commands")
    if not yes and not is_settled and can_ask() and not click.confirm("Trust them?", err=True):
        raise Denied("nothing was trusted", "the commands do not run")
    agreement = {"digest": commands_answer.get("digest")} | ({} if folder is None else {"path": folder})
    trusted = ao.post("/api/projects/trust", agreement)
    if as_json:
        out.print_json(trusted)
    elif commands_answer.get("commands"):
        print("Trusted already." if commands_answer.get("trusted") else "Trusted.")


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
        (agent["name"], "yes" if agent.get("found") else "no", agent.get("version") or "-", agent.get("path") or "-")
        for agent in answer["agents"]
    ]
    out.print_lines(out.table(("AGENT", "FOUND", "VERSION", "PATH"), rows, shrink=3))
    if not all(agent.get("found") for agent in answer["agents"]):
        print(
            "Looked for in your login shell's PATH, as it was when the daemon started; once it has changed: ao shutdown"
        )
