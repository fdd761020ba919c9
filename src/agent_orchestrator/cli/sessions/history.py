"""What a session did: `ao logs`, `ao diff`, `ao events`, `ao why`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from agent_orchestrator.base.http_client import StreamedResponse, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import (
    SESSION,
    client,
    json_option,
    project_query,
    read_text,
    scope_options,
    session_argument,
    session_path,
)
from agent_orchestrator.cli.common import follow_events as follow_stream
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import UsageError

Event = dict[str, Any]

_PAGE_SIZE = 1000


@click.command()
@click.argument("session", metavar="[S]", required=False, type=SESSION)
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows, until the session ends.")
@click.option("--raw", is_flag=True, help="The terminal's bytes as they came.")
@click.option("-n", "--lines", metavar="N", type=click.IntRange(min=0), help="Only the last N lines.")
@click.option("--daemon", is_flag=True, help="The daemon's own log; with S only what is about S.")
@click.option("--json", "as_json", is_flag=True, help="With --daemon: a JSON object a line.")
def logs(session: str | None, follow: bool, raw: bool, lines: int | None, daemon: bool, as_json: bool) -> None:
    """Show what a session's agent said and did, or the daemon's own log.

    The daemon's is read from its file, whether it runs or not: the last 100 lines unless -n says otherwise.
    """
    if daemon:
        from agent_orchestrator.cli.daemon.log import show_log

        if raw:
            raise UsageError("--raw is for a session's terminal", "ao logs S --raw, or ao logs --daemon --json")
        show_log(client(start=False).log_path, session, lines, follow, as_json)
        return
    if session is None:
        raise UsageError("whose log?", "name a session: ao logs S; or the daemon's own: ao logs --daemon")
    if as_json:
        raise UsageError("--json goes with --daemon", "a session's log is text: ao logs S")
    path = with_query(session_path(session, "/log"), {"follow": follow, "raw": raw, "tail": lines})
    with client().stream("GET", path) as stream:
        if raw:
            while chunk := stream.read_chunk():
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
            return
        while (line := stream.read_line()) is not None:
            print(out.clean(line), flush=follow)


@click.command()
@session_argument
@click.option("--stat", is_flag=True, help="Only which files, and how much.")
@json_option
def diff(session: str, stat: bool, as_json: bool) -> None:
    """Show a session's change."""
    answer = client().get(session_path(session, "/diff"))
    if as_json:
        out.print_json(answer)
        return
    text: str = answer["stat"] if stat else answer["diff"]
    if sys.stdout.isatty():
        _show_in_pager(_colour_diff(out.reveal_hidden(text)))
    else:
        sys.stdout.write(text if not text or text.endswith("\n") else f"{text}\n")
    if omitted := answer.get("omitted"):
        names = ", ".join(map(out.one_line, omitted[:5])) + (
            f" and {len(omitted) - 5} more" if len(omitted) > 5 else ""
        )
        out.print_note(f"too large to be shown: {names}; see it: ao sh {session} -- git diff {answer['base']}")
    if uncommitted := answer.get("uncommitted"):
        out.print_note(f"not committed yet: {', '.join(uncommitted)}")


def _colour_diff(text: str) -> str:
    styles = {"+++": ("bold",), "---": ("bold",), "diff": ("bold",), "@@": ("cyan",), "+": ("green",), "-": ("red",)}

    def line(text_line: str) -> str:
        return out.paint(
            text_line, *next((style for start, style in styles.items() if text_line.startswith(start)), ())
        )

    return "\n".join(map(line, text.splitlines()))


def _show_in_pager(text: str) -> None:
    """Show a long text in the person's pager."""
    import os
    import shutil
    import subprocess

    pager = os.environ.get("GIT_PAGER") or os.environ.get("PAGER") or ("less -R" if shutil.which("less") else "cat")
    if pager == "cat" or not text:
        out.print_lines([text] if text else [])
        return
    process = subprocess.Popen(pager, shell=True, stdin=subprocess.PIPE, env={"LESS": "FRX"} | os.environ)
    try:
        process.communicate(f"{text}\n".encode(errors="replace"))
    except (BrokenPipeError, KeyboardInterrupt):  # the pager was left; it restores the terminal itself
        process.wait()


@click.command()
@click.argument("session", metavar="[S]", required=False, type=SESSION)
@click.option("-f", "--follow", is_flag=True, help="Go on as events come.")
@click.option("-n", "--lines", metavar="N", type=click.IntRange(min=0), help="Only the last N.")
@click.option("--after", metavar="SEQ", type=click.IntRange(min=0), default=0, help="Only those after this number.")
@click.option(
    "--replay",
    metavar="FILE",
    help="Run a recorded log (`ao events --json`) through today's rules; `-` reads standard input.",
)
@scope_options
@json_option
def events(
    session: str | None,
    follow: bool,
    lines: int | None,
    after: int,
    replay: str | None,
    project: str | None,
    all_projects: bool,
    as_json: bool,
) -> None:
    """Show the event log, follow it, or replay one.

    With --replay nothing is done: it prints what would have been done.
    """
    ao = client()
    if replay is not None:
        _show_replay(ao, read_events(read_text(replay), replay), project, as_json)
        return
    query: dict[str, str | int | None] = {"project": project_query(project, all_projects)["project"]}
    path = "/api/events"
    if session is not None:
        query["session"] = ao.get(session_path(session))["id"]
    last_seq = after
    recorded: Iterable[Event] = _recorded_events(ao, path, query, after)
    if lines is not None:
        all_events = list(recorded)
        last_seq = all_events[-1]["seq"] if all_events else after
        recorded = all_events[len(all_events) - min(lines, len(all_events)) :]
    for event in recorded:
        last_seq = event["seq"]
        _show_event(event, as_json)
    if follow:
        _follow(ao, with_query(path, query), last_seq, as_json)


def _recorded_events(ao: DaemonClient, path: str, query: dict[str, str | int | None], after: int) -> Iterator[Event]:
    while True:
        page: list[Event] = ao.get(path, query | {"after": after or None, "limit": _PAGE_SIZE})["events"]
        yield from page
        if len(page) < _PAGE_SIZE:
            return
        after = page[-1]["seq"]


def _follow(ao: DaemonClient, path: str, last_seq: int, as_json: bool) -> None:
    """Follow the events for ever, across restarts of the daemon, each exactly once."""

    def show(stream: StreamedResponse) -> None:
        nonlocal last_seq
        while (received := stream.read_event()) is not None:
            event = json.loads(received.data)
            if event["seq"] > last_seq:
                last_seq = event["seq"]
                _show_event(event, as_json)
                sys.stdout.flush()

    sys.stdout.flush()
    follow_stream(ao, path, show, str(last_seq))


def _show_event(event: Event, as_json: bool) -> None:
    if as_json:
        out.print_json_line(event)
        return
    data = " ".join(
        f"{key}={_short_text(value)}"
        for key, value in (event.get("data") or {}).items()
        if value not in (None, "", [], {})
    )
    time = str(event.get("time") or "")[:19].replace("T", " ")
    text = f"{event['seq']:>6}  {time}  {event['type']:<24} {event.get('session') or event.get('project') or '-'}  {out.one_line(data)}"
    print(out.truncate(text.rstrip(), out.terminal_width()))


def _short_text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return out.truncate(out.one_line(text), 80)


def read_events(text: str, file: str) -> list[Event]:
    """Return the events of a recorded log, one JSON object per line; raise UsageError for an invalid line."""
    events = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict) or "type" not in event:
            raise UsageError(f"{file} line {number} is not an event", "give a log as `ao events --json` prints it")
        events.append(event)
    return events


def _show_replay(ao: DaemonClient, recorded: Sequence[Event], project: str | None, as_json: bool) -> None:
    steps: Iterable[dict[str, Any]] = ao.post(
        "/api/events/replay", {"events": list(recorded), "project": project}, timeout=600.0
    )["steps"]
    for step in steps:
        if as_json:
            out.print_json_line(step)
            continue
        kind, session = out.one_line(step["type"]), out.one_line(step.get("session") or "-")
        print(f"{step.get('seq') or '-':>6}  {kind:<24} {session}  {step.get('status') or '-'}")
        for intent in step.get("intents") or ():
            fields = " ".join(
                f"{key}={_short_text(value)}"
                for key, value in intent.items()
                if key != "kind" and value not in (None, "", [], {})
            )
            print(f"        would {intent['kind']} {fields}".rstrip())


@click.command()
@session_argument
@json_option
def why(session: str, as_json: bool) -> None:
    """Explain a session's status and last reactions.

    Shows the facts, the evidence and the rules behind them.
    """
    answer = client().get(session_path(session, "/why"))
    if as_json:
        out.print_json(answer)
        return
    out.print_lines(out.clean(line) for line in answer["lines"])
