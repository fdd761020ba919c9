"""`ao open`: a session in a terminal of one's own, in the editor or in the browser."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import SESSION, Failures, client, editor, scope, scope_options, session_path
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError, Conflict, Missing, NotFound, UsageError


@click.command("open")
@click.argument("sessions", metavar="[S...]", nargs=-1, type=SESSION)
@click.option("--terminal", "target", flag_value="terminal", help="Its terminal in a new window or tab (the default).")
@click.option("--editor", "target", flag_value="editor", help="Its workspace in your editor.")
@click.option("--browser", "target", flag_value="browser", help="Its page of the dashboard.")
@click.option("--all", "everything", is_flag=True, help="Every session whose agent runs, each in a window of its own.")
@scope_options
@click.option("--print", "only_print", is_flag=True, help="Print what would be run, and open nothing.")
def open_session(
    sessions: tuple[str, ...],
    target: str | None,
    everything: bool,
    project: str | None,
    all_projects: bool,
    only_print: bool,
) -> int:
    """Open a session in a terminal, an editor or the browser.

    Which terminal: `terminal` in the configuration, otherwise the one that you sit at. Your editor: $VISUAL, $EDITOR or code.
    """
    if bool(sessions) == everything:
        raise UsageError("name sessions, or say --all", "ao status lists them")
    if (project or all_projects) and not everything:
        raise UsageError("-p and -A say which sessions --all means", "ao open --all -A")
    ao = client()
    query = scope(project, all_projects)
    named = [one["id"] for one in ao.get("/api/sessions", query)["sessions"]] if everything else sessions
    failures = Failures()
    found = []
    for name in named:
        try:
            found.append(ao.get(session_path(name, "/window")))
        except AoError as error:
            failures.tell(error)
    if everything:
        found = [one for one in found if one["live"]]
        if not found:
            raise NotFound("no session has a running agent", "ao status shows them")
    if target == "editor":
        for one in found:
            try:
                failures.code = failures.code or _edit(one, only_print)
            except AoError as error:
                failures.tell(error)
        return failures.code
    if target == "browser":
        for one in found:
            one["terminal"] = {"plugin": "web"}
    _show(ao, found, failures, only_print)
    return failures.code


def _show(ao: Client, found: Sequence[dict[str, Any]], failures: Failures, only_print: bool) -> None:
    """By plugins, in a process that may load them; each says what came of it."""
    import subprocess

    windows = []
    for one in found:
        if not one["live"] and one["terminal"]["plugin"] != "web":
            session = one["session"]
            failures.tell(
                Conflict(
                    f"{session} has no running agent",
                    f"see its page: ao open {session} --browser; bring it back: ao restore {session}",
                )
            )
            continue
        windows.append({**one, "command": attach_command(ao.home, one["session"])})
    if not windows:
        return
    argv = [
        sys.executable,
        "-P",
        "-m",
        "agent_orchestrator.plugins.terminals.show",
        *(["--print"] if only_print else []),
    ]
    asked = json.dumps({"windows": windows})
    done = subprocess.run(argv, input=asked, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    for one in said:
        for line in one.get("runs", ()):
            print(line)
        if problem := one.get("problem"):
            error = AoError(problem["text"], problem["remedy"])
            error.exit_code = int(problem["exitCode"])
            failures.tell(error)
        elif not only_print:
            print(f"{out.clean(one['session'])}: opened in {out.clean(one['terminal'])}")
    if len(said) < len(windows):
        raise AoError("what opens windows has ended early", "AO_DEBUG=1 ao open … shows why; use ao attach meanwhile")


def attach_command(home: str, session: str) -> list[str]:
    """`ao attach` as any terminal can run it: a terminal that runs already has an environment of its own."""
    own = [sys.executable, "-P", "-m", "agent_orchestrator", "attach", session]
    return own if os.name == "nt" or "AO_HOME" not in os.environ else ["env", f"AO_HOME={home}", *own]


def _edit(found: Mapping[str, Any], only_print: bool) -> int:
    import shlex

    session, where = found["session"], found["workspacePath"]
    if not where:
        raise NotFound(f"{session} has no workspace", f"`ao restore {session}` brings it back")
    if found["node"]:
        raise UsageError(
            f"the workspace of {session} is on node {found['node']}",
            f"see its change: ao diff {session}; its terminal: ao open {session}",
        )
    if named := editor():
        return _run([*shlex.split(named), where], only_print)
    return _run([_need("code", remedy=f"set EDITOR, or go there: cd {shlex.quote(where)}"), where], only_print)


def _need(program: str, remedy: str) -> str:
    import shutil

    if found := shutil.which(program):
        return found
    raise Missing(f"$VISUAL and $EDITOR are not set, and {program} is not installed", remedy)


def _run(argv: Sequence[str], only_print: bool) -> int:
    import shlex
    import subprocess

    if only_print:
        print(shlex.join(argv))
        return 0
    try:
        return subprocess.run(argv, check=False).returncode
    except OSError as error:
        raise Missing(f"{argv[0]} cannot be run: {error.strerror}", "check that it is installed") from None
