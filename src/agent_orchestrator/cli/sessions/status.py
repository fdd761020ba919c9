"""`ao status`: the sessions, their progress, and what needs the person."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from agent_orchestrator.base.http_client import StreamedResponse, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import (
    SESSION,
    client,
    follow_events,
    json_option,
    project_query,
    scope_options,
    session_path,
)
from agent_orchestrator.cli.sessions.status_table import (
    board_lines,
    detail_lines,
    failing_notifier_lines,
    unreadable_forge_lines,
)
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import UsageError


@click.command()
@click.argument("session", metavar="[S]", required=False, type=SESSION)
@click.option("-w", "--watch", is_flag=True, help="Follow: draw it anew at every change.")
@click.option("--prompt", is_flag=True, help="Show what S's agent is told: how to work here, and its task.")
@click.option("--done", is_flag=True, help="Show all that are done, not only the last ten.")
@click.option("--since", metavar="WHEN", help="Say what happened since then: 8h, 90m, today, 2026-11-15T22:00.")
@scope_options
@json_option
def status(
    session: str | None,
    watch: bool,
    prompt: bool,
    done: bool,
    since: str | None,
    project: str | None,
    all_projects: bool,
    as_json: bool,
) -> None:
    """What runs, how far it is, and what needs you.

    Without S all sessions of the project here, those that need you first; with S one session in detail.

    On a terminal, after you have been away for an hour or longer, it says first what happened meanwhile, once; --since says it again.
    """  # noqa: D401 - the help text
    ao = client()
    if since is not None:
        _show_recap(ao, since, as_json, is_board=session is None and not watch and not prompt)
        if as_json:
            return
    if prompt:
        _show_prompt(ao, session, as_json)
        return
    if watch:
        _watch(ao, session, project_query(project, all_projects), done)
        return
    query = project_query(project, all_projects)
    answer = ao.request("GET", with_query("/api/sessions", query) if session is None else session_path(session))
    if as_json:
        out.print_body(answer)
    elif session is not None:
        out.print_lines(detail_lines(answer.json()))
    else:
        listing = answer.json()
        if since is None and sys.stdout.isatty():
            from agent_orchestrator.cli.sessions.recap import news_lines

            out.print_lines(news_lines(ao))
        out.print_lines(_board_lines(ao, listing, query, done))


def _show_recap(ao: DaemonClient, since: str, as_json: bool, *, is_board: bool) -> None:
    from agent_orchestrator.cli.daemon.audit import parse_time
    from agent_orchestrator.cli.sessions.recap import fetch_recap, recap_lines

    if not is_board:
        raise UsageError("--since is about all sessions", "ao status --since 8h; of one: ao events S")
    answer = fetch_recap(ao, parse_time(since))
    if as_json:
        out.print_json(answer)
        return
    out.print_lines(recap_lines(answer, f"Since {since}:") or [f"Nothing to tell since {since}.", ""])


def _board_lines(
    ao: DaemonClient, listing: dict[str, Any], query: dict[str, str | int | None], done: bool
) -> list[str]:
    backlog = ao.get("/api/backlog", query)["entries"]
    return [
        *board_lines(listing["sessions"], done, backlog),
        *unreadable_forge_lines(listing),
        *failing_notifier_lines(listing),
    ]


def _show_prompt(ao: DaemonClient, session: str | None, as_json: bool) -> None:
    if session is None:
        raise UsageError("whose prompt?", "name the session: ao status S --prompt")
    prompt = ao.get(session_path(session, "/prompt"))
    if as_json:
        out.print_json(prompt)
        return
    out.print_lines([out.paint("How to work here (system prompt):", "bold"), *out.clean(prompt["system"]).splitlines()])
    out.print_lines(["", out.paint("Task:", "bold"), *out.clean(prompt["prompt"] or "(none yet)").splitlines()])


def _watch(ao: DaemonClient, session: str | None, query: dict[str, str | int | None], done: bool) -> None:
    """Redraw at every event, and periodically because of the ages."""

    def show(stream: StreamedResponse) -> None:
        _redraw(ao, session, query, done)
        while _wait_for_events(stream):
            _redraw(ao, session, query, done)

    follow_events(ao, "/api/events", show)


def _wait_for_events(stream: StreamedResponse) -> bool:
    """Wait for an event and those right behind it, with a timeout; return False at the stream's end."""
    has_event, deadline = False, time.monotonic() + 20.0
    while (remaining := deadline - time.monotonic()) > 0:
        stream.set_timeout(remaining)
        try:
            event = stream.read_event()
        except TimeoutError:
            break
        if event is None:
            return False
        deadline = deadline if has_event else time.monotonic() + 0.1
        has_event = True
    return True


def _redraw(ao: DaemonClient, session: str | None, query: dict[str, str | int | None], done: bool) -> None:
    if session is not None:
        lines = detail_lines(ao.get(session_path(session)))
    else:
        lines = _board_lines(ao, ao.get("/api/sessions", query), query, done)
    if sys.stdout.isatty():
        import shutil

        height = shutil.get_terminal_size().lines
        body = "".join(f"{line}\033[K\n" for line in lines[: height - 1])
        print(f"\033[H{body}\033[J", end="", flush=True)
    else:
        print("\n".join(lines), end="\n\n", flush=True)
