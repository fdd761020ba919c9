"""`ao status`: what runs, how far it is, what needs you and since when."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import SESSION, client, json_option, scope, scope_options, session_path
from agent_orchestrator.client import Client
from agent_orchestrator.errors import Unreachable

Session = dict[str, Any]

COLUMNS = ("Needs you", "Working", "In review", "Ready to merge", "Done")
_STYLES = {
    "Needs you": ("bold", "yellow"),
    "Working": ("bold", "blue"),
    "In review": ("bold", "cyan"),
    "Ready to merge": ("bold", "green"),
    "Done": ("dim",),
}
_HEADER = ("SESSION", "STATUS", "SEEN", "PROGRESS", "BRANCH", "AGENT")
_DONE_SHOWN = 10


@click.command()
@click.argument("session", metavar="[S]", required=False, type=SESSION)
@click.option("-w", "--watch", is_flag=True, help="Follow: draw it anew at every change.")
@click.option("--done", is_flag=True, help="Show all that are done, not only the last ten.")
@scope_options
@json_option
def status(
    session: str | None, watch: bool, done: bool, project: str | None, all_projects: bool, as_json: bool
) -> None:
    """What runs, how far it is, and what needs you.

    Without S all sessions of the project here, those that need you first; with S one session in detail.
    """
    ao = client()
    if watch:
        _watch(ao, session, scope(project, all_projects), done)
        return
    if session is not None:
        found = ao.get(session_path(session))
        out.print_json(found) if as_json else out.show(detail_lines(found))
        return
    answer = ao.get("/api/sessions", **scope(project, all_projects))
    out.print_json(answer) if as_json else out.show(board_lines(answer["sessions"], done))


def board_lines(sessions: Sequence[Session], all_done: bool = False) -> list[str]:
    """All sessions, grouped by column."""
    if not sessions:
        return ['No sessions here. Start one: ao new "what is to be done"']
    groups = {title: [each for each in sessions if each.get("column") == title] for title in COLUMNS}
    groups["Needs you"].sort(key=lambda each: (each["status"] in ("idle", "exited"), seen_at(each)))
    groups["Done"].sort(key=lambda each: str(each.get("updatedAt") or ""), reverse=True)
    hidden = 0 if all_done else max(0, len(groups["Done"]) - _DONE_SHOWN)
    if hidden:
        del groups["Done"][_DONE_SHOWN:]
    rows = {each["id"]: _row(each) for group in groups.values() for each in group}
    widths = out.columns_for([_HEADER, *rows.values()], shrink=4, indent=2)
    lines = [out.paint("  " + out.line(_HEADER, widths), "dim")]
    for title, group in groups.items():
        if not group:
            continue
        lines.append(out.paint(f"{title} ({len(group) + (hidden if title == 'Done' else 0)})", *_STYLES[title]))
        for each in group:
            lines.append("  " + out.line(rows[each["id"]], widths))
            if waits := waiting_text(each):
                lines.append(out.fit(f"      {waits}", out.width()))
    if hidden:
        lines.append(f"  … {hidden} more: ao status --done")
    return [*lines, "", *footer_lines(groups["Needs you"])]


def _row(session: Session) -> out.Row:
    title = session.get("title") or ""
    cells = (
        session["id"],
        session["status"],
        evidence_text(session),
        progress_text(session) or title,
        session.get("branch"),
        session.get("agent"),
    )
    return [out.one_line(cell or "-") for cell in cells]


def seen_at(session: Session) -> str:
    """When the evidence for its status was seen."""
    return str((session.get("evidence") or {}).get("at") or session.get("updatedAt") or "")


def evidence_text(session: Session) -> str:
    """What the status rests on, and how old that is."""
    source = (session.get("evidence") or {}).get("source")
    return " ".join(part for part in (out.age(seen_at(session)), f"({source})" if source else "") if part)


def progress_text(session: Session) -> str:
    """`3/5 steps (60 %), 41 tests passing, $0.42`."""
    progress, usage = session.get("progress") or {}, session.get("usage") or {}
    parts = []
    done, total = progress.get("done"), progress.get("total")
    if done is not None and total:
        parts.append(f"{done}/{total} steps ({round(100 * done / total)} %)")
    if progress.get("step") and not parts:
        parts.append(str(progress["step"]))
    if progress.get("testsPassed") is not None:
        parts.append(f"{progress['testsPassed']} tests passing")
    if usage.get("usd"):
        parts.append(f"${usage['usd']:.2f}")
    return ", ".join(parts)


def waiting_text(session: Session) -> str:
    """What it waits for, or what it asks, verbatim."""
    text = session.get("waitingFor")
    if not text or session.get("column") == "Done":
        return ""
    text = out.one_line(text)
    return (
        f"asks: {text}"
        if session["status"] in ("needs_input", "blocked")
        else f"waits: {text}"
        if session["status"] == "queued"
        else text
    )


def footer_lines(needing: Sequence[Session]) -> list[str]:
    """What needs you, and the next command."""
    lines = []
    asking = [each for each in needing if each["status"] in ("needs_input", "blocked")]
    if asking:
        lines.append(f"{out.plural(len(asking), 'session')} {'asks' if len(asking) == 1 else 'ask'} you: ao answer")
    for each in needing:
        if each["status"] == "interrupted":
            lines.append(f"{each['id']} was interrupted: ao restore {each['name']}")
        elif each["status"] in ("failed", "stuck", "conflicted", "ci_failed", "changes_requested"):
            lines.append(f"{each['id']} is {each['status']}: ao why {each['name']}")
    unread = [each for each in needing if each["status"] in ("idle", "exited")]
    if unread:
        lines.append(
            f"{out.plural(len(unread), 'session')} finished a turn: ao diff {unread[0]['name']}, ao send {unread[0]['name']} TEXT"
        )
    return lines or ["Nothing needs you."]


def detail_lines(session: Session) -> list[str]:
    """One session in detail."""
    pr = session.get("pr") or {}
    checks = ", ".join(f"{check['name']} {check['state']}" for check in pr.get("checks") or ())
    pairs = [
        ("Title", session.get("title")),
        ("Status", f"{session['status']} ({session.get('column')})"),
        ("Activity", f"{session.get('activity') or 'unknown'}, seen {evidence_text(session) or 'never'}"),
        ("Asks" if session["status"] in ("needs_input", "blocked") else "Waits for", session.get("waitingFor")),
        ("Progress", progress_text(session)),
        ("Step", (session.get("progress") or {}).get("step")),
        ("Project", session.get("project")),
        ("Issue", session.get("issue")),
        ("Branch", " from ".join(part for part in (session.get("branch"), session.get("base")) if part)),
        ("Head", session.get("head")),
        ("Workspace", session.get("workspacePath")),
        (
            "Agent",
            " ".join(
                str(part)
                for part in (session.get("agent"), session.get("profile") and f"({session['profile']})")
                if part
            ),
        ),
        (
            "Runtime",
            " ".join(
                str(part)
                for part in (
                    session.get("runtime"),
                    session.get("pid") and f"pid {session['pid']}",
                    session.get("node"),
                )
                if part
            ),
        ),
        ("Exit code", session.get("exitCode")),
        (
            "Pull request",
            pr
            and f"#{pr.get('number')} {pr.get('state')}, review {pr.get('review')}, mergeable {pr.get('mergeable')} {pr.get('url') or ''}",
        ),
        ("Checks", checks),
        ("Attempts", ", ".join(f"{trigger} {count}" for trigger, count in (session.get("attempts") or {}).items())),
        ("Created", session.get("createdAt")),
    ]
    lines = [out.paint(session["id"], "bold")]
    lines += [f"  {label:<13} {out.one_line(value)}" for label, value in pairs if value not in (None, "", {})]
    return lines + next_lines(session)


def next_lines(session: Session) -> list[str]:
    """The commands that come next for this session."""
    name, state = session["name"], session["status"]
    if state in ("needs_input", "blocked"):
        return ["", f"  ao answer {name}    ao attach {name}"]
    if state in ("stopped", "interrupted", "failed", "exited"):
        return ["", f"  ao restore {name}    ao logs {name}    ao why {name}"]
    if state in ("merged", "closed"):
        return ["", f"  ao logs {name}    ao events {name}"]
    return ["", f"  ao attach {name}    ao send {name} TEXT    ao diff {name}"]


def _watch(ao: Client, session: str | None, query: dict[str, str | int | None], done: bool) -> None:
    """Draw at once, at every event, and once in a while for the ages' sake."""
    last_id = ""
    while True:
        try:
            headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
            _draw(ao, session, query, done)
            with ao.stream("GET", "/api/events", headers=headers) as stream:
                while True:
                    stream.wait(20.0)
                    try:
                        event = stream.event()
                        if event is None:
                            break
                        last_id = event.id or last_id
                        stream.wait(0.1)
                        while (event := stream.event()) is not None:  # a burst is drawn once
                            last_id = event.id or last_id
                    except TimeoutError:
                        pass
                    _draw(ao, session, query, done)
        except Unreachable as lost:
            out.note(f"{lost.text}; connecting again")
            ao.close()
            ao.ensure()


def _draw(ao: Client, session: str | None, query: dict[str, str | int | None], done: bool) -> None:
    if session is not None:
        lines = detail_lines(ao.get(session_path(session)))
    else:
        lines = board_lines(ao.get("/api/sessions", **query)["sessions"], done)
    if sys.stdout.isatty():
        body = "".join(f"{each}\033[K\n" for each in lines)
        sys.stdout.write(f"\033[H{body}\033[J")
        sys.stdout.flush()
    else:
        print("\n".join(lines), end="\n\n", flush=True)
