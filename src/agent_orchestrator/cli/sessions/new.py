"""`ao new` and `ao create`: start sessions."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

import click

from agent_orchestrator.base.http_client import ConnectionBroken, error_from_problem
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import (
    AGENT,
    NODE,
    SESSION,
    Failures,
    client,
    editor_command,
    is_interactive,
    json_option,
    project_option,
    read_text,
    session_path,
)
from agent_orchestrator.client.daemon_client import MAX_ATTEMPTS, DaemonClient
from agent_orchestrator.errors import AoError, UsageError

Session = dict[str, Any]

ISSUE = re.compile(r"#?\d+|[Gg][Hh]-\d+|[A-Z][A-Z0-9]*-\d+|https?://\S+")
"""The form of an argument that names an issue; all others are the task's text."""

_TEMPLATE = """
# What is to be done? Lines that begin with # are left out; an empty text starts nothing.
"""


@click.command()
@click.argument("tasks", metavar="TASK...", nargs=-1)
@project_option
@click.option("--issue", metavar="N", help="The issue it is about: 123, #123, GH-123, LIN-3 or a URL.")
@click.option("--agent", metavar="A", type=AGENT, help="A profile, else an agent.")
@click.option("--model", metavar="M", help="The agent's model.")
@click.option("--branch", metavar="B", help="The branch's name; one that exists is continued.")
@click.option("--base", metavar="REF", help="What to start from instead of the default branch.")
@click.option("--name", metavar="S", help="The session's name instead of one made from its task.")
@click.option(
    "--after", metavar="S", multiple=True, type=SESSION, help="Start when this session has landed; may be repeated."
)
@click.option(
    "--stack", is_flag=True, help="Start on the branch of the session named by --after, and follow it when it lands."
)
@click.option("--pr", metavar="N", help="Take over a pull request: its number or its address.")
@click.option("--resume-id", metavar="ID", help="Go on with a conversation of the agent's that was begun by hand.")
@click.option("--label", "labels", metavar="L", multiple=True, help="A label for the task; may be repeated.")
@click.option("--priority", metavar="N", type=int, help="Higher goes first in the queue.")
@click.option("--runtime", metavar="R", help="Where the agent's terminal lives: tmux, process …")
@click.option("--workspace", metavar="W", help="How its folder is made: worktree or clone.")
@click.option("--node", metavar="N", type=NODE, help="The machine of the cluster to run on; implies --runtime ray.")
@click.option("--file", metavar="F", help="Read the task's text from a file, `-` from standard input.")
@click.option("--no-wait", is_flag=True, help="Return at once, not when the agent runs.")
@json_option
def new(tasks: tuple[str, ...], file: str | None, no_wait: bool, as_json: bool, **options: Any) -> int:
    """Start a session for each task.

    A TASK is text, or an issue: 123, #123, GH-123, LIN-3 or a URL. `-` reads one from standard input; without any, your editor
    opens. Returns when the agent runs, or says why it waits.
    """
    options["project_id"] = options.pop("project")
    bodies = [_request_body(task, options) for task in _tasks(tasks, file, options)]
    if len(bodies) > 1 and (
        option := next((key for key in ("name", "branch", "issue", "pr", "resume_id") if options[key]), None)
    ):
        raise UsageError(
            f"--{option.replace('_', '-')} is for one task, and {len(bodies)} were given",
            "quote a task of several words, or start them one by one",
        )
    return _start_sessions(bodies, as_json, wait=not no_wait)


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@project_option
@click.option("--agent", metavar="A", type=AGENT, help="A profile, else an agent.")
@json_option
def create(names: tuple[str, ...], project: str | None, agent: str | None, as_json: bool) -> int:
    """Make named sessions whose agent starts at its first message.

    Send that message with `ao send NAME TEXT`.
    """
    bodies = [_without_empty({"name": name, "projectId": project, "agent": agent, "defer": True}) for name in names]
    return _start_sessions(bodies, as_json, wait=False)


def _tasks(tasks: tuple[str, ...], file: str | None, options: dict[str, Any]) -> list[str]:
    """Return the tasks' texts, from the arguments, the file or an editor; one empty text if --issue or --pr names the task."""
    if file:
        if tasks:
            raise UsageError("a task is given as text and as a file", "give one of them")
        tasks = (read_text(file),)
    else:
        tasks = tuple(read_text("-") if task == "-" else task for task in tasks)
    if not tasks and (options["issue"] or options["pr"]):
        return [""]
    if not tasks:
        tasks = (_write_task(),)
    if not all(task.strip() for task in tasks):
        raise UsageError("the task is empty", "say what is to be done")
    return list(tasks)


def _write_task() -> str:
    """Return the text that the person writes in an editor."""
    command = editor_command() or "vi"
    if not is_interactive():
        raise UsageError(
            "no task given", 'say what is to be done: ao new "fix the login", or `-` to read standard input'
        )
    import shlex
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ao-") as folder:
        path = os.path.join(folder, "task.md")
        with open(path, "w", encoding="utf-8") as file:
            file.write(_TEMPLATE)
        try:
            code = subprocess.run([*shlex.split(command), path], check=False).returncode
        except OSError as error:
            raise UsageError(
                f"the editor {command} cannot be run: {error.strerror}", "set EDITOR, or give the task as text"
            ) from None
        if code:
            raise UsageError(f"the editor {command} ended with {code}", "nothing was started")
        lines = [line for line in read_text(path).splitlines() if not line.startswith("#")]
    text = "\n".join(lines).strip()
    if not text:
        raise UsageError("the task is empty", "nothing was started")
    return text


def _request_body(task: str, options: dict[str, Any]) -> dict[str, Any]:
    issue = ISSUE.fullmatch(task.strip())
    if issue and options["issue"]:
        raise UsageError(f"two issues for one session: {task} and {options['issue']}", "give one of them")
    task_field = {"issue": task.strip()} if issue else {"prompt": task}
    field_names = {"project_id": "projectId", "resume_id": "resumeId"}
    renamed = {field_names.get(key, key): value for key, value in options.items()}
    return _without_empty(renamed | _without_empty(task_field))


def _without_empty(body: dict[str, Any]) -> dict[str, Any]:
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in body.items()
        if value not in (None, "", (), False)
    }


def _start_sessions(bodies: list[dict[str, Any]], as_json: bool, *, wait: bool) -> int:
    """Request all sessions, then wait for each; a session that cannot start does not delay the others."""
    ao, failures = client(), Failures()
    sessions: list[Session] = []
    for body in bodies:
        try:
            sessions.append(ao.post("/api/sessions", body))
        except AoError as error:
            if len(bodies) == 1:
                raise
            failures.report(error)
    for index, session in enumerate(sessions):
        if wait:
            sessions[index] = session = wait_for(ao, session, prefix=len(bodies) > 1)
        if session["status"] == "failed":
            failures.code = failures.code or 1
            report_failed_start(session)
        elif not as_json:
            out.print_lines(started_lines(session))
    if as_json and (sessions or len(bodies) > 1):
        out.print_json(sessions[0] if len(bodies) == 1 else {"sessions": sessions})
    return failures.code


def wait_for(ao: DaemonClient, session: Session, *, prefix: bool = False) -> Session:
    """Wait until the session's agent runs, is queued or has failed, and print the output of its set-up meanwhile."""
    label = f"  {session['id']}: " if prefix else "  "
    printed_count = 0
    for attempts_left in reversed(range(MAX_ATTEMPTS)):
        line_number = 0
        try:
            with ao.stream("GET", session_path(session["id"], "/wait?until=running")) as stream:
                while (line := stream.read_line()) is not None:
                    message = json.loads(line) if line.strip() else {}
                    if "session" in message:
                        return dict(message["session"])
                    if "problem" in message:
                        raise error_from_problem(message["problem"])
                    line_number += 1
                    text = message.get("output") or (message.get("state") if sys.stderr.isatty() else None)
                    if text and line_number > printed_count:
                        print(label + out.clean(text), file=sys.stderr, flush=True)
        except ConnectionBroken:
            if not attempts_left:
                raise
        printed_count = max(printed_count, line_number)
    return dict(ao.get(session_path(session["id"])))


def report_failed_start(session: Session) -> None:
    """Print that a session did not start, with its agent's last output and the commands to look further."""
    for line in out.clean(session.get("lastOutput") or "").splitlines()[-5:]:
        print(f"  | {line}", file=sys.stderr)
    reason = session.get("why") or session.get("waitingFor") or "it did not start"
    out.print_note(
        f"{session['id']} failed: {reason}: ao why {session['id']}, ao logs {session['id']}, ao restore {session['id']}"
    )


def started_lines(session: Session) -> list[str]:
    """Return a new or restored session, and the next commands."""
    id_, state = session["id"], session["status"]
    wait_text = f", waits for {out.one_line(session['waitingFor'])}" if session.get("waitingFor") else ""
    head = out.paint(f"{id_} {state}", "bold")
    lines = [head + wait_text, f"  branch     {out.one_line(session.get('branch') or '-')}"]
    lines += [f"  workspace  {session['workspacePath']}"] if session.get("workspacePath") else []
    lines += [f"  note       {out.one_line(note)}" for note in session.get("notes") or ()]
    return [*lines, f"  ao send {id_} TEXT    ao status {id_}" + (f"    ao attach {id_}" if session.get("pid") else "")]
