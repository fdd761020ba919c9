"""Commands inside a session: `ao attach`, `ao sh`, `ao path`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click

from agent_orchestrator.base.http_client import ConnectionBroken, error_from_problem
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import client, is_interactive, json_option, session_argument, session_path
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import NotFound, UsageError


@click.command()
@session_argument
def attach(session: str) -> None:
    """Show a session's real terminal.

    Any number may look at once, also from inside tmux. The key that leaves it again is shown first.
    """
    if not is_interactive():
        raise UsageError("ao attach needs a terminal", f"`ao logs -f {session}` follows without one")
    attach_to(client(), session)


def attach_to(ao: DaemonClient, session: str) -> NoReturn:
    """Replace this process with the session's terminal."""
    target = ao.get(session_path(session, "/attach"))
    argv, env = list(target["argv"]), dict(os.environ)
    for name in ("TMUX", "TMUX_PANE"):  # tmux refuses to run inside itself otherwise
        env.pop(name, None)
    env |= target.get("env") or {}
    detach = target.get("detach") or ("Ctrl-B D" if os.path.basename(argv[0]) == "tmux" else "")
    if detach and "TMUX" in os.environ and detach.startswith("Ctrl-B"):
        detach = f"Ctrl-B {detach}"
    if detach:
        print(f"{session}: {detach} detaches; the agent runs on.", flush=True)
    _exec(argv, env)


@click.command(context_settings={"allow_interspersed_args": False})
@session_argument
@click.argument("command", metavar="[-- CMD...]", nargs=-1, type=click.UNPROCESSED)
def sh(session: str, command: tuple[str, ...]) -> None:
    """Run a shell or a command in a session's workspace.

    It has the session's environment and ports, but not its token: who types there is you. Its exit code is passed on.
    """
    ao = client()
    environment = ao.get(session_path(session, "/environment"))
    env = _terminal_environment() | {
        name: value for name, value in (environment.get("env") or {}).items() if name != "AO_TOKEN"
    }
    arguments = [*(command[1:] if command[:1] == ("--",) else command)]
    if environment.get("node"):
        raise SystemExit(_run_on_node(ao, session, environment["node"], arguments))
    argv = arguments or [env.get("AO_SHELL") or env.get("SHELL") or "/bin/sh"]
    try:
        os.chdir(environment["cwd"])
    except OSError:
        raise NotFound(
            f"the workspace {environment['cwd']} is not there", f"`ao restore {session}` brings it back"
        ) from None
    env["PWD"] = environment["cwd"]
    _exec(argv, env)


def _terminal_environment() -> dict[str, str]:
    """Return this terminal's environment without activated virtual environments of other projects."""
    from agent_orchestrator.base import interpreter

    return interpreter.without_environments(os.environ)


def _run_on_node(ao: DaemonClient, session: str, node: str, command: Sequence[str]) -> int:
    """Run a command on the session's node, print its output and return its exit code."""
    if not command:
        raise UsageError(
            f"{session} lives on node {node}, where there is no shell for you",
            f"run commands there: ao sh {session} -- CMD; its agent's terminal: ao attach {session}",
        )
    import json

    with ao.stream("POST", session_path(session, "/run"), {"command": list(command)}) as stream:
        while (line := stream.read_line()) is not None:
            message: dict[str, Any] = json.loads(line) if line.strip() else {"output": ""}
            if "problem" in message:
                raise error_from_problem(message["problem"])
            if "code" in message:
                return int(message["code"])
            print(out.clean(message["output"]), flush=True)
    raise ConnectionBroken("in the midst of the command")


@click.command()
@session_argument
@json_option
def path(session: str, as_json: bool) -> None:
    """Print where a session's workspace is."""
    session_data = client().get(session_path(session))
    workspace = _workspace_path(session_data)
    if session_data["node"]:
        out.print_note(f"on node {session_data['node']}")
    out.print_json({"path": workspace, "node": session_data["node"]}) if as_json else print(workspace)


def _workspace_path(session: Mapping[str, object]) -> str:
    path = session.get("workspacePath")
    if not path:
        raise NotFound(f"{session['id']} has no workspace", f"`ao restore {session['name']}` brings it back")
    return str(path)


def _exec(argv: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    """Replace this process with another program; its exit code is returned."""
    sys.stdout.flush()
    try:
        if os.name == "nt":
            import subprocess

            raise SystemExit(subprocess.run(argv, env=env, check=False).returncode)
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        print(f"ao: {argv[0]} cannot be run: {error.strerror}", file=sys.stderr)
        raise SystemExit(127 if isinstance(error, FileNotFoundError) else 126) from None
