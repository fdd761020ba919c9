"""Commands that act on a session: `ao send`, `ao stop`, `ao restore`."""

from __future__ import annotations

from typing import Any

import click

from agent_orchestrator.base.http_client import quote, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import (
    SESSION,
    DaemonName,
    Failures,
    client,
    json_option,
    project_option,
    read_argument,
    session_argument,
    session_path,
)
from agent_orchestrator.cli.sessions.new import report_failed_start, started_lines, wait_for
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, UsageError

STOP_TIMEOUT = 600.0
"""Seconds until a stop is given up; saving a large workspace takes long."""


@click.command()
@session_argument
@click.argument("text", metavar="TEXT...", nargs=-1)
@click.option("--file", metavar="F", help="Read the message from a file, `-` from standard input.")
@click.option("--wait", is_flag=True, help="Return when the agent has taken it up.")
@click.option(
    "--timeout", metavar="SECONDS", type=float, default=600.0, show_default=True, help="How long --wait waits."
)
@click.option("--interrupt", is_flag=True, help="Stop the agent's turn first.")
@json_option
def send(
    session: str, text: tuple[str, ...], file: str | None, wait: bool, timeout: float, interrupt: bool, as_json: bool
) -> int:
    """Send a message to a session's agent.

    Several words need no quotes; `-` reads standard input. It is delivered once, in order, when the agent can take it.
    """
    ao = client()
    content = read_argument(text, file, "message")
    message = ao.post(session_path(session, "/message"), {"content": content, "interrupt": interrupt})
    if wait:
        message = _wait_for_delivery(ao, session, message["messageId"], timeout)
    state, reason = message["state"], message.get("reason")
    if as_json:
        out.print_json({"messageId": message["messageId"], "state": state})
    else:
        print(f"{state}: message {message['messageId']} to {session}{f' ({out.one_line(reason)})' if reason else ''}")
    if state == "failed":
        return 1
    if wait and state not in ("acknowledged", "delivered"):
        raise AoError(
            f"message {message['messageId']} is still {state} after {timeout:g} s",
            f"it stays in the inbox; see `ao status {session}`",
        )
    return 0


def _wait_for_delivery(ao: DaemonClient, session: str, message_id: str, timeout: float) -> dict[str, Any]:
    """Poll a message until its state is final. An answer before the requested time is final too."""
    import time

    path = session_path(session, f"/messages/{quote(message_id)}")
    deadline = time.monotonic() + timeout
    while True:
        requested_at = time.monotonic()
        seconds = max(1, min(30, round(deadline - requested_at)))
        message: dict[str, Any] = ao.get(path, {"wait": seconds}, timeout=seconds + 30.0)
        now = time.monotonic()
        is_final = message["state"] in ("acknowledged", "failed") or (
            message["state"] == "delivered" and now < requested_at + seconds - 0.2
        )
        if is_final or now >= deadline:
            return message


@click.command()
@click.argument("sessions", metavar="S...", nargs=-1, type=SESSION)
@project_option
@click.option("--all", "everything", is_flag=True, help="All sessions of the project given by -p.")
@click.option("--keep", is_flag=True, help="Keep the workspaces.")
@json_option
def stop(sessions: tuple[str, ...], project: str | None, everything: bool, keep: bool, as_json: bool) -> int:
    """Stop sessions; everything unsaved is saved first.

    The workspace is removed once all in it is safe, and you are told where everything went and how to undo it.
    """
    if not sessions and not everything:
        raise UsageError(
            "ao stop needs a session",
            "`ao stop S...` or `ao stop -p P --all` stops sessions, `ao shutdown` stops the daemon",
        )
    if everything and (sessions or not project):
        raise UsageError("--all stops all sessions of one project", "give it with -p P and without session names")
    ao, failures = client(), Failures()
    stopped: list[dict[str, Any]] = []
    if everything:
        path = with_query("/api/sessions", {"project": project, "keep": keep})
        stopped = ao.request("DELETE", path, timeout=STOP_TIMEOUT).json()["stopped"]
    for session in sessions:
        try:
            path = with_query(session_path(session), {"keep": keep})
            stopped.append(ao.request("DELETE", path, timeout=STOP_TIMEOUT).json())
        except AoError as error:
            if len(sessions) == 1:
                raise
            failures.report(error)
    if as_json:
        out.print_json({"stopped": stopped})
    else:
        for stopped_session in stopped:
            _show_stopped(stopped_session)
        if everything and not stopped:
            print(f"No session of {project} runs.")
    return failures.code


def _show_stopped(stopped: dict[str, Any]) -> None:
    session = stopped["session"]
    print(f"{session['id']} {session['status']}")
    out.print_lines(f"  {out.one_line(line)}" for line in stopped.get("saved") or ())
    if undo := stopped.get("undo"):
        print(f"  undo: {undo}")


@click.command()
@click.argument("session", metavar="S", type=DaemonName("any", "session"))
@click.option("--no-wait", is_flag=True, help="Return at once, not when the agent runs.")
@json_option
def restore(session: str, no_wait: bool, as_json: bool) -> int:
    """Bring a stopped, crashed or interrupted session back.

    It gets the same branch, the same work and the same conversation.
    """
    ao = client()
    restored = ao.post(session_path(session, "/restore"), timeout=STOP_TIMEOUT)
    if not no_wait:
        restored = wait_for(ao, restored)
    has_failed = restored["status"] == "failed"
    if has_failed:
        report_failed_start(restored)
    if as_json:
        out.print_json(restored)
    elif not has_failed:
        out.print_lines(started_lines(restored))
    return int(has_failed)
