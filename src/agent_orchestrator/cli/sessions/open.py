"""`ao open`: open a session in a new terminal window, in the editor or in the browser."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import (
    SESSION,
    Failures,
    client,
    editor_command,
    project_query,
    scope_options,
    session_path,
)
from agent_orchestrator.client.daemon_client import DaemonClient
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
    query = project_query(project, all_projects)
    names = [window["id"] for window in ao.get("/api/sessions", query)["sessions"]] if everything else sessions
    failures = Failures()
    windows = []
    for name in names:
        try:
            windows.append(ao.get(session_path(name, "/window")))
        except AoError as error:
            failures.report(error)
    if everything:
        windows = [window for window in windows if window["live"]]
        if not windows:
            raise NotFound("no session has a running agent", "ao status shows them")
    if target == "editor":
        for window in windows:
            try:
                failures.code = failures.code or _open_editor(window, only_print)
            except AoError as error:
                failures.report(error)
        return failures.code
    if target == "browser":
        for window in windows:
            window["terminal"] = {"plugin": "web"}
    _open_windows(ao, windows, failures, only_print)
    return failures.code


def _open_windows(ao: DaemonClient, windows: Sequence[dict[str, Any]], failures: Failures, only_print: bool) -> None:
    """Open the windows by terminal plugins, which run in a separate process, and print each result."""
    import subprocess

    openable = []
    for window in windows:
        if not window["live"] and window["terminal"]["plugin"] != "web":
            session = window["session"]
            failures.report(
                Conflict(
                    f"{session} has no running agent",
                    f"see its page: ao open {session} --browser; bring it back: ao restore {session}",
                )
            )
            continue
        openable.append({**window, "command": attach_command(ao.home, window["session"])})
    if not openable:
        return
    argv = [
        sys.executable,
        "-P",
        "-m",
        "agent_orchestrator.plugins.terminals.show",
        *(["--print"] if only_print else []),
    ]
    request = json.dumps({"windows": openable})
    result = subprocess.run(argv, input=request, stdout=subprocess.PIPE, text=True, encoding="utf-8", check=False)
    reports = [json.loads(line) for line in result.stdout.splitlines()]
    for window in reports:
        for line in window.get("runs", ()):
            print(line)
        if problem := window.get("problem"):
            error = AoError(problem["text"], problem["remedy"])
            error.exit_code = int(problem["exitCode"])
            failures.report(error)
        elif not only_print:
            print(f"{out.clean(window['session'])}: opened in {out.clean(window['terminal'])}")
    if len(reports) < len(openable):
        raise AoError("what opens windows has ended early", "AO_DEBUG=1 ao open … shows why; use ao attach meanwhile")


def attach_command(home: str, session: str) -> list[str]:
    """Return the `ao attach` command for a terminal whose environment may differ from ours."""
    command = [sys.executable, "-P", "-m", "agent_orchestrator", "attach", session]
    return command if os.name == "nt" or "AO_HOME" not in os.environ else ["env", f"AO_HOME={home}", *command]


def _open_editor(window: Mapping[str, Any], only_print: bool) -> int:
    import shlex

    session, workspace = window["session"], window["workspacePath"]
    if not workspace:
        raise NotFound(f"{session} has no workspace", f"`ao restore {session}` brings it back")
    if window["node"]:
        raise UsageError(
            f"the workspace of {session} is on node {window['node']}",
            f"see its change: ao diff {session}; its terminal: ao open {session}",
        )
    if editor_ := editor_command():
        return _run_command([*shlex.split(editor_), workspace], only_print)
    return _run_command(
        [_require_program("code", remedy=f"set EDITOR, or go there: cd {shlex.quote(workspace)}"), workspace],
        only_print,
    )


def _require_program(program: str, remedy: str) -> str:
    import shutil

    if path := shutil.which(program):
        return path
    raise Missing(f"$VISUAL and $EDITOR are not set, and {program} is not installed", remedy)


def _run_command(argv: Sequence[str], only_print: bool) -> int:
    import shlex
    import subprocess

    if only_print:
        print(shlex.join(argv))
        return 0
    try:
        return subprocess.run(argv, check=False).returncode
    except OSError as error:
        raise Missing(f"{argv[0]} cannot be run: {error.strerror}", "check that it is installed") from None
