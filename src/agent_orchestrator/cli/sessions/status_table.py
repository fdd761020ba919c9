"""Sessions as text: the board of all sessions, and one session in detail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_orchestrator.cli import out

Session = dict[str, Any]

COLUMNS = {
    "Needs you": ("bold", "yellow"),
    "Working": ("bold", "blue"),
    "In review": ("bold", "cyan"),
    "Ready to merge": ("bold", "green"),
    "Done": ("dim",),
}
"""The columns in the order that they are shown, each with its style."""

_HEADER = ("SESSION", "STATUS", "SEEN", "PROGRESS", "BRANCH", "AGENT")
_BRANCH_INDEX = 4
_MIN_TITLE_WIDTH = 24
"""Minimum width of a title, or a fifth of the line: a long title is cut before a column is dropped."""
_ASKING_STATES = ("needs_input", "blocked")
_WAITING_LABELS = {"needs_input": "Asks", "blocked": "Asks", "failed": "Remedy"}
_EXPLAINED_STATES = ("failed", "stuck", "conflicted", "ci_failed", "changes_requested")
_FAILED_STATES = ("failure", "timed_out", "cancelled")
"""States of failed checks."""
_MAX_SHOWN_DONE = 10
_MAX_SHOWN_ISSUES = 5
NOTHING_NEEDED = "Nothing needs you."


def board_lines(
    sessions: Sequence[Session], all_done: bool = False, backlog: Sequence[dict[str, Any]] = ()
) -> list[str]:
    """Return all sessions grouped by column, and issues that will be started automatically but are still waiting."""
    waiting_issues = [session for session in backlog if session.get("auto") and not session.get("session")]
    if not sessions:
        empty_lines = ['No sessions here. Start one: ao new "what is to be done"']
        return (
            [*_waiting_issue_lines(waiting_issues), "", *_issues_needing_you_lines(waiting_issues)]
            if waiting_issues
            else empty_lines
        )
    groups = {title: [session for session in sessions if _column(session) == title] for title in COLUMNS}
    groups["Needs you"].sort(key=lambda session: (session["status"] in ("idle", "exited"), evidence_time(session)))
    groups["Done"].sort(key=lambda session: str(session.get("updatedAt") or ""), reverse=True)
    hidden_count = 0 if all_done else max(0, len(groups["Done"]) - _MAX_SHOWN_DONE)
    if hidden_count:
        del groups["Done"][_MAX_SHOWN_DONE:]
    shown_sessions = [session for group in groups.values() for session in group]
    rows = {session["id"]: _session_row(session) for session in shown_sessions}
    header: out.Row = _HEADER
    if any(session.get("pr") for session in shown_sessions):
        header = (*_HEADER[:_BRANCH_INDEX], "PULL REQUEST", *_HEADER[_BRANCH_INDEX:])
        for session in shown_sessions:
            rows[session["id"]].insert(_BRANCH_INDEX, pull_request_text(session) or "-")
    header, fitting_rows = out.drop_columns(
        header, [*rows.values()], ("BRANCH", "AGENT", "SEEN"), shrink="BRANCH", indent=2
    )
    rows = {name: list(row) for name, row in zip(rows, fitting_rows, strict=True)}
    shrinking_column = header.index("BRANCH" if "BRANCH" in header else "PROGRESS")
    widths = out.columns_for([header, *fitting_rows], shrink=shrinking_column, indent=2)
    lines = [out.paint("  " + out.table_row(header, widths), "dim")]
    for title, group in groups.items():
        if not group:
            continue
        lines.append(out.paint(f"{title} ({len(group) + (hidden_count if title == 'Done' else 0)})", *COLUMNS[title]))
        for session in group:
            lines.append("  " + out.table_row(rows[session["id"]], widths))
            if wait_text := waiting_text(session):
                lines.append(out.truncate(f"      {wait_text}", out.terminal_width()))
    if hidden_count:
        lines.append(f"  … {hidden_count} more: ao status --done")
    lines += _waiting_issue_lines(waiting_issues)
    issue_lines = _issues_needing_you_lines(waiting_issues)
    footer = footer_lines(groups["Needs you"], groups["In review"] + groups["Ready to merge"])
    footer = issue_lines if issue_lines and footer == [NOTHING_NEEDED] else [*issue_lines, *footer]
    return [*lines, "", *footer, *_conflict_lines(shown_sessions)]


def _waiting_issue_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Return the issues that wait to be started, each with the reason."""
    if not entries:
        return []
    lines = [out.paint(f"Not taken yet ({len(entries)})", "bold")]
    has_several_projects = len({entry["project"] for entry in entries}) > 1
    for entry in sorted(entries, key=lambda item: not item["needsYou"])[:_MAX_SHOWN_ISSUES]:
        name = (
            entry["id"] if has_several_projects else f"#{entry['key']}" if str(entry["key"]).isdigit() else entry["key"]
        )
        lines.append(out.truncate(f"  {name}  {out.one_line(entry['title'])}", out.terminal_width()))
        if entry["reasons"]:
            lines.append(out.truncate(f"      {out.one_line('; '.join(entry['reasons']))}", out.terminal_width()))
    hidden_count = len(entries) - _MAX_SHOWN_ISSUES
    return [*lines, *([f"  … {hidden_count} more: ao backlog"] if hidden_count > 0 else [])]


def _issues_needing_you_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    count = sum(entry["needsYou"] for entry in entries)
    return [f"{out.plural(count, 'issue')} {'waits' if count == 1 else 'wait'} for you: ao backlog"] if count else []


def unreadable_forge_lines(answer: dict[str, Any]) -> list[str]:
    """Return a warning for each forge or tracker that cannot be read."""
    return [
        out.paint(
            f"{forge['name']} of {forge['project']} cannot be read for {out.age(forge['since'])}: {out.one_line(forge['why'])}",
            "yellow",
        )
        for forge in answer.get("unread") or ()
    ]


def failing_notifier_lines(answer: dict[str, Any]) -> list[str]:
    """Return a warning for each notifier that does not work."""
    return [
        out.paint(
            f"{notifier['notifier']} tells nobody for {out.age(notifier['since'])}: {out.one_line(notifier['why'])}; "
            "try it: ao notify test",
            "yellow",
        )
        for notifier in answer.get("untold") or ()
    ]


def _conflict_lines(sessions: Sequence[Session]) -> list[str]:
    """Return a line that names sessions that cannot be merged with each other."""
    pairs = {
        tuple(sorted((session["id"], other["session"])))
        for session in sessions
        for other in session.get("collides") or ()
        if other["kind"] == "text"
    }
    if not pairs:
        return []
    first = " and ".join(min(pairs))
    others = f", and {out.plural(len(pairs) - 1, 'more pair')}" if len(pairs) > 1 else ""
    return [f"{first} will conflict{others}: ao conflicts"]


def _column(session: Session) -> str:
    column = session.get("column")
    return column if column in COLUMNS else "Working"


def _session_row(session: Session) -> list[str]:
    title = out.truncate(out.one_line(session.get("title") or ""), max(_MIN_TITLE_WIDTH, out.terminal_width() // 5))
    cells = (
        session["id"],
        session["status"],
        evidence_text(session),
        progress_text(session) or title,
        session.get("branch"),
        session.get("agent"),
    )
    return [out.one_line(cell or "-") for cell in cells]


def evidence_time(session: Session) -> str:
    """Return the time of the evidence for the session's status."""
    return str((session.get("evidence") or {}).get("at") or session.get("updatedAt") or "")


def evidence_text(session: Session) -> str:
    """Return the source of the session's status, and its age."""
    source = (session.get("evidence") or {}).get("source")
    return " ".join(part for part in (out.age(evidence_time(session)), f"({source})" if source else "") if part)


def progress_text(session: Session) -> str:
    """Return the progress: `3/5 steps (60 %), 41 tests passing, $0.42`; with failing tests `257 passed, 40 failed`."""
    progress, usage = session.get("progress") or {}, session.get("usage") or {}
    parts = []
    done, total = progress.get("done"), progress.get("total")
    if done is not None and total:
        parts.append(f"{done}/{total} steps ({round(100 * done / total)} %)")
    if progress.get("step") and not parts:
        parts.append(str(progress["step"]))
    failed = sum(check.get("failed") or 0 for check in (session.get("pr") or {}).get("checks") or ())
    if failed:
        parts.append(f"{progress.get('testsPassed') or 0} passed, {failed} failed")
    elif progress.get("testsPassed") is not None:
        parts.append(f"{out.plural(progress['testsPassed'], 'test')} passing")
    if usage.get("usd"):
        parts.append(f"${usage['usd']:.2f}")
    return ", ".join(parts)


def _check_summary(checks: list[dict[str, Any]], base: object, *, merged: bool) -> str:
    """Summarize a pull request's checks; those of a merged one ran before it was checked with its base."""
    failed = [check for check in checks if check["state"] in _FAILED_STATES]
    own_failures = [check for check in failed if not check.get("onBase")]
    if own_failures:
        new_count, known_count = (sum(check.get(key) or 0 for check in own_failures) for key in ("new", "known"))
        compared = f" ({f'{new_count} new, ' if new_count else ''}{known_count} known on {base})" if known_count else ""
        return f"red{' before' if merged else ''}: {_names(own_failures)}{compared}"
    if not_set_up := [check for check in checks if check["state"] == "not_set_up"]:
        return f"not set up: {_names(not_set_up)}"
    if any(check["state"] in ("queued", "running") for check in checks):
        return "checks run"
    return f"known on {base}: {_names(failed)}" if failed else "green"


def _names(checks: list[dict[str, Any]]) -> str:
    return " ".join(str(check["name"]) for check in checks)


def pull_request_text(session: Session) -> str:
    """Return the state: `#12 draft`, `#12 green, approved`, `#12 red: lint (1 new, 3 known on main)`, `#12 not set up: test`."""
    pr = session.get("pr")
    if not pr:
        return ""
    parts = [] if pr.get("state") == "open" else [str(pr.get("state"))]
    if checks := pr.get("checks"):
        parts.append(_check_summary(checks, session.get("base"), merged=pr.get("state") == "merged"))
    if pr.get("mergeable") == "no":
        parts.append("conflicts")
    if pr.get("review") in ("approved", "changes_requested"):
        parts.append(str(pr["review"]).replace("_", " "))
    return out.one_line(f"#{pr.get('number')} {', '.join(parts)}")


def waiting_text(session: Session) -> str:
    """Return what the session waits for, or its question."""
    text = out.one_line(
        session.get("waitingFor") or (session.get("why") if session["status"] in _EXPLAINED_STATES else "") or ""
    )
    if not text or session.get("column") == "Done":
        return ""
    if session["status"] == "interrupted" and session.get("why"):
        return f"{out.one_line(session['why']).rstrip('.')}; waits for {text}"
    if session["status"] in _ASKING_STATES:
        return f"asks: {text}"
    return f"waits for {text}" if session.get("waitingFor") and session["status"] != "failed" else text


def conflicts_text(session: Session) -> str:
    """Return the conflicts: `with app-b in a.txt; with app-c in b.txt (same place)`."""
    parts = []
    for conflict in session.get("collides") or ():
        files = f" in {', '.join(conflict['files'])}" if conflict["files"] else ""
        mark = " (same place)" if conflict["kind"] == "overlap" else ""
        parts.append(f"with {conflict['session']}{files}{mark}")
    return "; ".join(parts)


_NEXT_COMMANDS = (("mergeable", "may land", "ao merge"), ("review_pending", "to review", "ao review"))


def footer_lines(needing: Sequence[Session], reviewed: Sequence[Session] = ()) -> list[str]:
    """Return what needs the person, each with the next command."""
    lines = []
    asking_sessions = [session for session in needing if session["status"] in _ASKING_STATES]
    if held_count := sum(session.get("held") or 0 for session in needing):
        lines.append(
            f"{out.plural(held_count, 'message')} {'waits' if held_count == 1 else 'wait'} for your word: ao answer"
        )
    if asking_sessions:
        lines.append(
            f"{out.plural(len(asking_sessions), 'session')} {'asks' if len(asking_sessions) == 1 else 'ask'} you: ao answer"
        )
    for session in needing:
        if session["status"] == "interrupted":
            lines.append(f"{session['id']} was interrupted: {_commands_for_interrupted(session)}")
        elif session["status"] in _EXPLAINED_STATES:
            lines.append(f"{session['id']} is {session['status']}: ao why {session['id']}")
    quiet_sessions = [session for session in needing if session["status"] in ("idle", "exited")]
    awaiting_message = [session["id"] for session in quiet_sessions if session.get("waitingFor") == "a message"]
    if awaiting_message:
        verb = "waits" if len(awaiting_message) == 1 else "wait"
        lines.append(
            f"{out.plural(len(awaiting_message), 'session')} {verb} for a message: ao send {awaiting_message[0]} TEXT"
        )
    if finished := [session["id"] for session in quiet_sessions if session["id"] not in awaiting_message]:
        lines.append(
            f"{out.plural(len(finished), 'session')} finished a turn: ao diff {finished[0]}, ao send {finished[0]} TEXT"
        )
    for status, description, command in _NEXT_COMMANDS:
        if session_ids := [session["id"] for session in reviewed if session["status"] == status]:
            lines.append(f"{out.plural(len(session_ids), 'change')} {description}: {command} {session_ids[0]}")
    return lines or [NOTHING_NEEDED]


def _commands_for_interrupted(session: Session) -> str:
    """Return the next commands: continue the agent if it still runs, else restore the session."""
    id_ = session["id"]
    return f"ao attach {id_}, ao send {id_} TEXT" if session.get("pid") else f"ao restore {id_}"


def detail_lines(session: Session) -> list[str]:
    """Return one session in detail."""
    progress = session.get("progress") or {}
    pairs = [
        ("Title", session.get("title")),
        ("Status", f"{session['status']} ({session.get('column')})"),
        ("Why", session.get("why")),
        ("Activity", f"{session.get('activity') or 'unknown'}, seen {evidence_text(session) or 'never'}"),
        (_WAITING_LABELS.get(session["status"], "Waits for"), session.get("waitingFor")),
        ("Progress", progress_text(session)),
        ("Step", progress.get("step")),
        ("Project", session.get("project")),
        ("Issue", session.get("issue")),
        ("Branch", _join(session.get("branch"), session.get("base") and f"from {session['base']}")),
        ("Head", session.get("head")),
        ("Workspace", session.get("workspacePath")),
        ("Agent", _join(session.get("agent"), session.get("profile") and f"({session['profile']})")),
        (
            "Runtime",
            _join(session.get("runtime"), session.get("pid") and f"pid {session['pid']}", session.get("node")),
        ),
        ("Exit code", session.get("exitCode")),
        *_pull_request(session.get("pr") or {}),
        ("Collides", conflicts_text(session)),
        ("Attempts", ", ".join(f"{trigger} {count}" for trigger, count in (session.get("attempts") or {}).items())),
        *(("Note", note) for note in session.get("notes") or ()),
        ("Created", session.get("createdAt")),
    ]
    lines = [f"  {label:<13} {out.one_line(value)}" for label, value in pairs if value not in (None, "")]
    output = [f"  | {line}" for line in out.clean(session.get("lastOutput") or "").splitlines()[-10:]]
    return [out.paint(session["id"], "bold"), *lines, *output, "", next_commands_line(session)]


def _join(*parts: object) -> str:
    return " ".join(str(part) for part in parts if part)


def _pull_request(pr: dict[str, Any]) -> list[tuple[str, object]]:
    if not pr:
        return []
    state = f"#{pr.get('number')} {pr.get('state')}, review {pr.get('review')}, mergeable {pr.get('mergeable')}"
    checks = ", ".join(f"{check['name']} {check['state']}" for check in pr.get("checks") or ())
    return [("Pull request", _join(state, pr.get("url"))), ("Checks", checks)]


def undo_target(session: Session) -> str:
    """Return how to revert a merged change: at the forge, or by `ao undo`."""
    return (session.get("pr") or {}).get("url") or f"ao undo {session['id']}"


def next_commands_line(session: Session) -> str:
    """Return the next commands for this session."""
    id_, state = session["id"], session["status"]
    if state in _ASKING_STATES or session.get("held"):
        return f"  ao answer {id_}    ao attach {id_}"
    if state == "interrupted" and session.get("pid"):
        return f"  ao attach {id_}    ao send {id_} TEXT    ao why {id_}"
    if state in ("stopped", "interrupted", "failed", "exited"):
        return f"  ao restore {id_}    ao logs {id_}    ao why {id_}"
    if state == "merged":
        return f"  ao logs {id_}    ao events {id_}    {undo_target(session)}"
    if state == "closed":
        return f"  ao logs {id_}    ao events {id_}"
    if state in ("ci_failed", "conflicted", "changes_requested"):
        return f"  ao review {id_}    ao checks {id_}    ao why {id_}    ao send {id_} TEXT"
    if state in ("review_pending", "pr_open", "ci_running"):
        return f"  ao review {id_}    ao diff {id_}    ao merge {id_}    ao send {id_} TEXT"
    if state in ("approved", "mergeable"):
        return f"  ao merge {id_}    ao review {id_}    ao diff {id_}"
    return f"  ao attach {id_}    ao send {id_} TEXT    ao diff {id_}"
