"""`ao status`: what runs, how far it is, what needs you and since when."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from agent_orchestrator.base.http_client import Stream, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import SESSION, client, follow, json_option, scope, scope_options, session_path
from agent_orchestrator.cli.sessions.board import board_lines, detail_lines, unread_lines, untold_lines
from agent_orchestrator.client.daemon_client import Client
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
    """
    ao = client()
    if since is not None:
        _look_back(ao, since, as_json, alone=session is None and not watch and not prompt)
        if as_json:
            return
    if prompt:
        _show_prompt(ao, session, as_json)
        return
    if watch:
        _watch(ao, session, scope(project, all_projects), done)
        return
    query = scope(project, all_projects)
    answer = ao.request("GET", with_query("/api/sessions", query) if session is None else session_path(session))
    if as_json:
        out.print_body(answer)
    elif session is not None:
        out.show(detail_lines(answer.json()))
    else:
        found = answer.json()
        if since is None and sys.stdout.isatty():
            from agent_orchestrator.cli.sessions.recap import news

            out.show(news(ao))
        out.show(_board(ao, found, query, done))


def _look_back(ao: Client, since: str, as_json: bool, *, alone: bool) -> None:
    from agent_orchestrator.cli.daemon.audit import moment
    from agent_orchestrator.cli.sessions.recap import recap, recap_lines

    if not alone:
        raise UsageError("--since is about all sessions", "ao status --since 8h; of one: ao events S")
    found = recap(ao, moment(since))
    if as_json:
        out.print_json(found)
        return
    out.show(recap_lines(found, f"Since {since}:") or [f"Nothing to tell since {since}.", ""])


def _board(ao: Client, found: dict[str, Any], query: dict[str, str | int | None], done: bool) -> list[str]:
    waiting = ao.get("/api/backlog", query)["entries"]
    return [*board_lines(found["sessions"], done, waiting), *unread_lines(found), *untold_lines(found)]


def _show_prompt(ao: Client, session: str | None, as_json: bool) -> None:
    if session is None:
        raise UsageError("whose prompt?", "name the session: ao status S --prompt")
    told = ao.get(session_path(session, "/prompt"))
    if as_json:
        out.print_json(told)
        return
    out.show([out.paint("How to work here (system prompt):", "bold"), *out.clean(told["system"]).splitlines()])
    out.show(["", out.paint("Task:", "bold"), *out.clean(told["prompt"] or "(none yet)").splitlines()])


def _watch(ao: Client, session: str | None, query: dict[str, str | int | None], done: bool) -> None:
    """Draw at once, at every event, and once in a while for the ages' sake."""

    def show(stream: Stream) -> None:
        _draw(ao, session, query, done)
        while _burst(stream):
            _draw(ao, session, query, done)

    follow(ao, "/api/events", show)


def _burst(stream: Stream) -> bool:
    """Wait for an event and for those right behind it, not for ever; false at the stream's end."""
    began, until = False, time.monotonic() + 20.0
    while (left := until - time.monotonic()) > 0:
        stream.wait(left)
        try:
            event = stream.event()
        except TimeoutError:
            break
        if event is None:
            return False
        until = until if began else time.monotonic() + 0.1
        began = True
    return True


def _draw(ao: Client, session: str | None, query: dict[str, str | int | None], done: bool) -> None:
    if session is not None:
        lines = detail_lines(ao.get(session_path(session)))
    else:
        lines = _board(ao, ao.get("/api/sessions", query), query, done)
    if sys.stdout.isatty():
        import shutil

        height = shutil.get_terminal_size().lines
        body = "".join(f"{each}\033[K\n" for each in lines[: height - 1])
        print(f"\033[H{body}\033[J", end="", flush=True)
    else:
        print("\n".join(lines), end="\n\n", flush=True)
