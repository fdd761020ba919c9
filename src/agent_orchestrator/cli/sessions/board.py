"""Sessions as a person reads them: the board of all, and one in detail."""

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
_BRANCH = 4
_ROOM_FOR_TITLE = 24
"""So much, or a fifth of the line: a long title is cut before another column has to go."""
_ASKING = ("needs_input", "blocked")
_WAITING = {"needs_input": "Asks", "blocked": "Asks", "failed": "Remedy"}
_EXPLAINED = ("failed", "stuck", "conflicted", "ci_failed", "changes_requested")
_RED = ("failure", "timed_out", "cancelled")
"""No session is that far with a check that is red by its own change: it would be `ci_failed`."""
_DONE_SHOWN = 10
_UNTAKEN_SHOWN = 5
NOTHING = "Nothing needs you."


def board_lines(
    sessions: Sequence[Session], all_done: bool = False, backlog: Sequence[dict[str, Any]] = ()
) -> list[str]:
    """All sessions, grouped by column; and issues that are to be taken by themselves, and are not yet."""
    untaken = [each for each in backlog if each.get("auto") and not each.get("session")]
    if not sessions:
        none = ['No sessions here. Start one: ao new "what is to be done"']
        return [*_untaken_lines(untaken), "", *_needing_issues(untaken)] if untaken else none
    groups = {title: [each for each in sessions if _column(each) == title] for title in COLUMNS}
    groups["Needs you"].sort(key=lambda each: (each["status"] in ("idle", "exited"), seen_at(each)))
    groups["Done"].sort(key=lambda each: str(each.get("updatedAt") or ""), reverse=True)
    hidden = 0 if all_done else max(0, len(groups["Done"]) - _DONE_SHOWN)
    if hidden:
        del groups["Done"][_DONE_SHOWN:]
    shown = [each for group in groups.values() for each in group]
    rows = {each["id"]: _row(each) for each in shown}
    header: out.Row = _HEADER
    if any(each.get("pr") for each in shown):
        header = (*_HEADER[:_BRANCH], "PULL REQUEST", *_HEADER[_BRANCH:])
        for each in shown:
            rows[each["id"]].insert(_BRANCH, pull_text(each) or "-")
    header, fitting = out.fitting(header, [*rows.values()], ("BRANCH", "AGENT", "SEEN"), shrink="BRANCH", indent=2)
    rows = {name: list(row) for name, row in zip(rows, fitting, strict=True)}
    gives_way = header.index("BRANCH" if "BRANCH" in header else "PROGRESS")
    widths = out.columns_for([header, *fitting], shrink=gives_way, indent=2)
    lines = [out.paint("  " + out.line(header, widths), "dim")]
    for title, group in groups.items():
        if not group:
            continue
        lines.append(out.paint(f"{title} ({len(group) + (hidden if title == 'Done' else 0)})", *COLUMNS[title]))
        for each in group:
            lines.append("  " + out.line(rows[each["id"]], widths))
            if waits := waiting_text(each):
                lines.append(out.fit(f"      {waits}", out.width()))
    if hidden:
        lines.append(f"  … {hidden} more: ao status --done")
    lines += _untaken_lines(untaken)
    stuck = _needing_issues(untaken)
    footer = footer_lines(groups["Needs you"], groups["In review"] + groups["Ready to merge"])
    footer = stuck if stuck and footer == [NOTHING] else [*stuck, *footer]
    return [*lines, "", *footer, *_collision_lines(shown)]


def _untaken_lines(entries: Sequence[dict[str, Any]]) -> list[str]:
    """Issues that wait to be taken, each with the reason."""
    if not entries:
        return []
    lines = [out.paint(f"Not taken yet ({len(entries)})", "bold")]
    several = len({each["project"] for each in entries}) > 1
    for each in sorted(entries, key=lambda one: not one["needsYou"])[:_UNTAKEN_SHOWN]:
        name = each["id"] if several else f"#{each['key']}" if str(each["key"]).isdigit() else each["key"]
        lines.append(out.fit(f"  {name}  {out.one_line(each['title'])}", out.width()))
        if each["reasons"]:
            lines.append(out.fit(f"      {out.one_line('; '.join(each['reasons']))}", out.width()))
    more = len(entries) - _UNTAKEN_SHOWN
    return [*lines, *([f"  … {more} more: ao backlog"] if more > 0 else [])]


def _needing_issues(entries: Sequence[dict[str, Any]]) -> list[str]:
    count = sum(each["needsYou"] for each in entries)
    return [f"{out.plural(count, 'issue')} {'waits' if count == 1 else 'wait'} for you: ao backlog"] if count else []


def unread_lines(found: dict[str, Any]) -> list[str]:
    """Forges and trackers that cannot be read: what they know is not known here."""
    return [
        out.paint(
            f"{each['name']} of {each['project']} cannot be read for {out.age(each['since'])}: {out.one_line(each['why'])}",
            "yellow",
        )
        for each in found.get("unread") or ()
    ]


def untold_lines(found: dict[str, Any]) -> list[str]:
    """Notifiers that do not work: nobody is told by them."""
    return [
        out.paint(
            f"{each['notifier']} tells nobody for {out.age(each['since'])}: {out.one_line(each['why'])}; try it: ao notify test",
            "yellow",
        )
        for each in found.get("untold") or ()
    ]


def _collision_lines(sessions: Sequence[Session]) -> list[str]:
    """That some will not merge with each other."""
    pairs = {
        tuple(sorted((each["id"], other["session"])))
        for each in sessions
        for other in each.get("collides") or ()
        if other["kind"] == "text"
    }
    if not pairs:
        return []
    first = " and ".join(min(pairs))
    more = f", and {out.plural(len(pairs) - 1, 'more pair')}" if len(pairs) > 1 else ""
    return [f"{first} will conflict{more}: ao conflicts"]


def _column(session: Session) -> str:
    column = session.get("column")
    return column if column in COLUMNS else "Working"


def _row(session: Session) -> list[str]:
    title = out.fit(out.one_line(session.get("title") or ""), max(_ROOM_FOR_TITLE, out.width() // 5))
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
    """`3/5 steps (60 %), 41 tests passing, $0.42`; where tests fail: `257 passed, 40 failed`."""
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


def _checks_text(checks: list[dict[str, Any]], base: object, *, merged: bool) -> str:
    """What the checks of a pull request say together; those of a merged one are from before it was checked with its base."""
    red = [check for check in checks if check["state"] in _RED]
    own = [check for check in red if not check.get("onBase")]
    if own:
        new, known = (sum(check.get(key) or 0 for check in own) for key in ("new", "known"))
        compared = f" ({f'{new} new, ' if new else ''}{known} known on {base})" if known else ""
        return f"red{' before' if merged else ''}: {_names(own)}{compared}"
    if lacking := [check for check in checks if check["state"] == "not_set_up"]:
        return f"not set up: {_names(lacking)}"
    if any(check["state"] in ("queued", "running") for check in checks):
        return "checks run"
    return f"known on {base}: {_names(red)}" if red else "green"


def _names(checks: list[dict[str, Any]]) -> str:
    return " ".join(str(check["name"]) for check in checks)


def pull_text(session: Session) -> str:
    """`#12 draft`, `#12 green, approved`, `#12 red: lint (1 new, 3 known on main)`, `#12 known on main: lint`, `#12 not set up: test`."""
    pr = session.get("pr")
    if not pr:
        return ""
    parts = [] if pr.get("state") == "open" else [str(pr.get("state"))]
    if checks := pr.get("checks"):
        parts.append(_checks_text(checks, session.get("base"), merged=pr.get("state") == "merged"))
    if pr.get("mergeable") == "no":
        parts.append("conflicts")
    if pr.get("review") in ("approved", "changes_requested"):
        parts.append(str(pr["review"]).replace("_", " "))
    return out.one_line(f"#{pr.get('number')} {', '.join(parts)}")


def waiting_text(session: Session) -> str:
    """What it waits for, or what it asks, verbatim."""
    text = out.one_line(
        session.get("waitingFor") or (session.get("why") if session["status"] in _EXPLAINED else "") or ""
    )
    if not text or session.get("column") == "Done":
        return ""
    if session["status"] == "interrupted" and session.get("why"):
        return f"{out.one_line(session['why']).rstrip('.')}; waits for {text}"
    if session["status"] in _ASKING:
        return f"asks: {text}"
    return f"waits for {text}" if session.get("waitingFor") and session["status"] != "failed" else text


def collides_text(session: Session) -> str:
    """`with app-b in a.txt; with app-c in b.txt (same place)`."""
    found = []
    for each in session.get("collides") or ():
        where = f" in {', '.join(each['files'])}" if each["files"] else ""
        mark = " (same place)" if each["kind"] == "overlap" else ""
        found.append(f"with {each['session']}{where}{mark}")
    return "; ".join(found)


_NEXT_OF_CHANGE = (("mergeable", "may land", "ao merge"), ("review_pending", "to review", "ao review"))


def footer_lines(needing: Sequence[Session], reviewed: Sequence[Session] = ()) -> list[str]:
    """What needs you, and the next command."""
    lines = []
    asking = [each for each in needing if each["status"] in _ASKING]
    if held := sum(each.get("held") or 0 for each in needing):
        lines.append(f"{out.plural(held, 'message')} {'waits' if held == 1 else 'wait'} for your word: ao answer")
    if asking:
        lines.append(f"{out.plural(len(asking), 'session')} {'asks' if len(asking) == 1 else 'ask'} you: ao answer")
    for each in needing:
        if each["status"] == "interrupted":
            lines.append(f"{each['id']} was interrupted: {_next_of_interrupted(each)}")
        elif each["status"] in _EXPLAINED:
            lines.append(f"{each['id']} is {each['status']}: ao why {each['id']}")
    quiet = [each for each in needing if each["status"] in ("idle", "exited")]
    resting = [each["id"] for each in quiet if each.get("waitingFor") == "a message"]
    if resting:
        waits = "waits" if len(resting) == 1 else "wait"
        lines.append(f"{out.plural(len(resting), 'session')} {waits} for a message: ao send {resting[0]} TEXT")
    if unread := [each["id"] for each in quiet if each["id"] not in resting]:
        lines.append(
            f"{out.plural(len(unread), 'session')} finished a turn: ao diff {unread[0]}, ao send {unread[0]} TEXT"
        )
    for status, what, command in _NEXT_OF_CHANGE:
        if found := [each["id"] for each in reviewed if each["status"] == status]:
            lines.append(f"{out.plural(len(found), 'change')} {what}: {command} {found[0]}")
    return lines or [NOTHING]


def _next_of_interrupted(session: Session) -> str:
    """An agent that is there yet is told to go on; one that is gone is brought back."""
    id_ = session["id"]
    return f"ao attach {id_}, ao send {id_} TEXT" if session.get("pid") else f"ao restore {id_}"


def detail_lines(session: Session) -> list[str]:
    """One session in detail."""
    progress = session.get("progress") or {}
    pairs = [
        ("Title", session.get("title")),
        ("Status", f"{session['status']} ({session.get('column')})"),
        ("Why", session.get("why")),
        ("Activity", f"{session.get('activity') or 'unknown'}, seen {evidence_text(session) or 'never'}"),
        (_WAITING.get(session["status"], "Waits for"), session.get("waitingFor")),
        ("Progress", progress_text(session)),
        ("Step", progress.get("step")),
        ("Project", session.get("project")),
        ("Issue", session.get("issue")),
        ("Branch", _joined(session.get("branch"), session.get("base") and f"from {session['base']}")),
        ("Head", session.get("head")),
        ("Workspace", session.get("workspacePath")),
        ("Agent", _joined(session.get("agent"), session.get("profile") and f"({session['profile']})")),
        (
            "Runtime",
            _joined(session.get("runtime"), session.get("pid") and f"pid {session['pid']}", session.get("node")),
        ),
        ("Exit code", session.get("exitCode")),
        *_pull_request(session.get("pr") or {}),
        ("Collides", collides_text(session)),
        ("Attempts", ", ".join(f"{trigger} {count}" for trigger, count in (session.get("attempts") or {}).items())),
        *(("Note", note) for note in session.get("notes") or ()),
        ("Created", session.get("createdAt")),
    ]
    lines = [f"  {label:<13} {out.one_line(value)}" for label, value in pairs if value not in (None, "")]
    output = [f"  | {line}" for line in out.clean(session.get("lastOutput") or "").splitlines()[-10:]]
    return [out.paint(session["id"], "bold"), *lines, *output, "", next_line(session)]


def _joined(*parts: object) -> str:
    return " ".join(str(part) for part in parts if part)


def _pull_request(pr: dict[str, Any]) -> list[tuple[str, object]]:
    if not pr:
        return []
    state = f"#{pr.get('number')} {pr.get('state')}, review {pr.get('review')}, mergeable {pr.get('mergeable')}"
    checks = ", ".join(f"{check['name']} {check['state']}" for check in pr.get("checks") or ())
    return [("Pull request", _joined(state, pr.get("url"))), ("Checks", checks)]


def back(session: Session) -> str:
    """How a landing is taken back: what landed at a forge, there."""
    return (session.get("pr") or {}).get("url") or f"ao undo {session['id']}"


def next_line(session: Session) -> str:
    """The commands that come next for this session."""
    id_, state = session["id"], session["status"]
    if state in _ASKING or session.get("held"):
        return f"  ao answer {id_}    ao attach {id_}"
    if state == "interrupted" and session.get("pid"):
        return f"  ao attach {id_}    ao send {id_} TEXT    ao why {id_}"
    if state in ("stopped", "interrupted", "failed", "exited"):
        return f"  ao restore {id_}    ao logs {id_}    ao why {id_}"
    if state == "merged":
        return f"  ao logs {id_}    ao events {id_}    {back(session)}"
    if state == "closed":
        return f"  ao logs {id_}    ao events {id_}"
    if state in ("ci_failed", "conflicted", "changes_requested"):
        return f"  ao review {id_}    ao checks {id_}    ao why {id_}    ao send {id_} TEXT"
    if state in ("review_pending", "pr_open", "ci_running"):
        return f"  ao review {id_}    ao diff {id_}    ao merge {id_}    ao send {id_} TEXT"
    if state in ("approved", "mergeable"):
        return f"  ao merge {id_}    ao review {id_}    ao diff {id_}"
    return f"  ao attach {id_}    ao send {id_} TEXT    ao diff {id_}"
