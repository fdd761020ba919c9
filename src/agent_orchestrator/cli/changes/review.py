"""A change on its way to the base: `ao review`, `ao checks`, `ao merge`, `ao queue`, `ao undo`."""

from __future__ import annotations

import os
import re
import time
import uuid
from typing import Any

import click

from agent_orchestrator.base.http_client import quote, with_query
from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import (
    AGENT,
    SESSION,
    Failures,
    client,
    json_option,
    read_text,
    scope,
    scope_options,
    session_argument,
    session_path,
)
from agent_orchestrator.cli.sessions.board import back
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError, NotFound, UsageError

Pull = dict[str, Any]

_LINE = re.compile(r"(?P<path>[^:]+):(?P<line>[1-9]\d*):(?P<body>.+)", re.DOTALL)
_SHOWN_TESTS = 20
"""Failing tests of a check that are listed."""
_LOOK = 2.0
"""Seconds after which a merge that waits says what for."""


@click.command()
@session_argument
@click.option("--approve", "verdict", flag_value="approved", help="It is good: it may land.")
@click.option("--request-changes", "verdict", flag_value="changes_requested", help="The agent is to change something.")
@click.option("-m", "--message", "text", metavar="TEXT", help="What you have to say; `-` reads standard input.")
@click.option(
    "--comment", "comments", metavar="FILE:LINE:TEXT", multiple=True, help="A comment on a line; may be repeated."
)
@click.option(
    "--resolve",
    "resolved",
    metavar="THREAD",
    multiple=True,
    help="A discussion is settled: by its id or a comment's in it, or `all`; may be repeated.",
)
@click.option(
    "--request",
    "people",
    metavar="USER",
    multiple=True,
    help="Ask somebody at the forge to look at it; may be repeated.",
)
@click.option(
    "--agent", metavar="A", type=AGENT, help="Have this profile, else agent, judge it in a session of its own."
)
@click.option("--wait", is_flag=True, help="With --agent: return when it has judged.")
@json_option
def review(
    session: str,
    verdict: str | None,
    text: str | None,
    comments: tuple[str, ...],
    resolved: tuple[str, ...],
    people: tuple[str, ...],
    agent: str | None,
    wait: bool,
    as_json: bool,
) -> None:
    """See and judge a session's change, or have another agent judge it.

    Without a judgement and without comments: shows its pull request, checks, reviews and threads. All comments of one review
    reach the agent as one message. With --agent the message says what to look at in particular; the agent's judgement goes to the
    change's own agent like yours, but an approval is still for you to give, unless the project says otherwise. A discussion that
    is settled is resolved at the forge too, and its comments are not sent to the agent any more.
    """
    ao = client()
    if agent is not None:
        if verdict is not None or comments or resolved or people:
            raise UsageError(
                "--agent judges itself", "leave out --approve, --request-changes, --comment, --resolve and --request"
            )
        _by_agent(ao, session, agent, (read_text("-") if text == "-" else text) or "", wait=wait, as_json=as_json)
        return
    judged = verdict is not None or text is not None or bool(comments)
    found: Pull | None = None
    done: list[str] = []
    if judged:
        body = {
            "verdict": verdict or "commented",
            "body": (read_text("-") if text == "-" else text) or "",
            "comments": [_comment(each) for each in comments],
        }
        found = ao.request("POST", session_path(session, "/review"), body, headers=_as_agent()).json()
        done.append({"approved": "approved", "changes_requested": "changes requested"}.get(verdict or "", "commented"))
    if resolved:
        named = [each for each in resolved if each != "all"]
        settled = {"threads": named} if len(named) == len(resolved) else {"all": True}
        found = _at_forge(ao, session, "/resolve", settled, "resolved", done)
    if people:
        said = f"{', '.join(people)} asked to look at it"
        found = _at_forge(ao, session, "/request-review", {"people": list(people)}, said, done)
    shown: Pull = found if found is not None else ao.get(session_path(session, "/review"))
    if as_json:
        out.print_json(shown)
    elif found is not None:
        out.show(f"{shown['session']} #{shown['number']}: {each}" for each in done)
        out.show(_next(shown))
    else:
        out.show(_review_lines(shown))
        stat = ao.get(session_path(session, "/diff"))["stat"]
        out.show(f" {line}" for line in out.clean(stat).splitlines())
        out.show(["", *_next(shown)])


def _at_forge(ao: Client, session: str, path: str, body: dict[str, Any], said: str, done: list[str]) -> Pull:
    """Have something done, and say whether it is."""
    answer = ao.request("POST", session_path(session, path), body, headers=_as_agent(), timeout=60.0)
    later = "; the forge cannot be reached just now, it is done as soon as it can" if answer.status == 202 else ""
    done.append(said + later)
    return dict(answer.json())


def _as_agent() -> dict[str, str]:
    """What an agent's own command says: who it is. A person's says nothing."""
    token = os.environ.get("AO_TOKEN") if os.environ.get("AO_SESSION") else None
    return {"X-AO-Token": token} if token else {}


def _by_agent(ao: Client, session: str, agent: str, text: str, *, wait: bool, as_json: bool) -> None:
    reviewer = ao.post(session_path(session, "/reviewers"), {"agent": agent, "message": text})
    judged: dict[str, Any] | None = None
    while wait and judged is None:
        found: Pull = ao.get(session_path(session, "/review"))
        judged = next((each for each in found["reviews"] if each["reviewer"] == reviewer["id"]), None)
        now = ao.get(session_path(reviewer["id"]))
        if judged is None and now["status"] in ("failed", "exited", "stopped", "needs_input", "blocked", "interrupted"):
            raise AoError(
                f"{reviewer['id']} is {now['status']}: {now['why']}", f"look at it: ao attach {reviewer['id']}"
            )
        if judged is None:
            time.sleep(_LOOK / 4)
    if as_json:
        out.print_json({"reviewer": reviewer, "review": judged})
    elif judged is None:
        print(f"{reviewer['id']} reviews {session}")
        print(f"  ao status {reviewer['id']}    ao review {session}")
    else:
        print(f"{reviewer['id']}: {judged['verdict'].replace('_', ' ')}")
        out.show(_quoted(judged["body"], "  "))
        print(f"  ao review {session}")


def _comment(given: str) -> dict[str, Any]:
    found = _LINE.fullmatch(given)
    if found is None:
        raise UsageError(f"{given!r} is no comment on a line", "write it as FILE:LINE:TEXT, such as app.py:12:Why?")
    return {"path": found["path"], "line": int(found["line"]), "body": found["body"]}


def _review_lines(found: Pull) -> list[str]:
    head = f"{found['session']}  #{found['number']} {out.one_line(found['title'])}"
    state = f"  {found['state']}, onto {found['base']}, review {found['review']}, mergeable {found['mergeable']}"
    lines = [out.paint(head, "bold"), state]
    lines += [f"  conflicts in {out.one_line(', '.join(found['conflicts']))}"] if found["conflicts"] else []
    lines += [f"  did not land: {out.one_line(found['refused'])}"] if found["refused"] else []
    lines += _check_lines(found)
    lines += [f"  asked to look at it: {out.one_line(', '.join(found['requested']))}"] if found["requested"] else []
    for each in (one for one in found["reviews"] if one["verdict"] != "commented"):  # that is a thread too
        lines.append(f"  {out.author(each)} {each['verdict']}, {out.age(each['at'])} ago")
        lines += _quoted(each["body"], "    ")
    for thread in found["threads"]:
        where = f"{thread['path']}:{thread['line']}" if thread["line"] else thread["path"] or "the whole"
        state = ", resolved" if thread["resolved"] else ""
        lines.append(f"  on {out.one_line(where)} ({thread['id']}{state})")
        for each in thread["comments"]:
            lines.append(f"    {out.author(each)} ({each['id']}):")
            lines += _quoted(each["body"], "      ")
    return [*lines, ""]


def _check_lines(found: Pull, only: str | None = None) -> list[str]:
    explained = {each["name"]: each for each in found["failing"]}
    lines: list[str] = []
    for check in found["checks"]:
        if only in (None, check["name"]):
            more = explained.get(check["name"])
            lines += [f"  check {out.one_line(check['name'])}: {_check_state(check, str(found['base']))}"]
            lines += _explanation(found, more) if more else []
    return lines or ["  no checks"]


def _check_state(check: dict[str, Any], base: str) -> str:
    """Return a check's state with its counts: `failure, 257 passed, 40 failed (2 new, 38 known on main)`."""
    counts = [f"{check[kind]} {kind}" for kind in ("passed", "failed", "skipped") if check[kind]]
    compared = [f"{check['new']} new"] if check["new"] and check["known"] else []
    compared += [f"{check['known']} known on {base}"] if check["known"] else []
    state = check["state"].replace("not_set_up", "environment not set up")
    reason = f": {out.one_line(check['reason'])}" if check["reason"] else ""
    return ", ".join([state, *counts]) + (f" ({', '.join(compared)})" if compared else "") + reason


def _explanation(found: Pull, check: dict[str, Any]) -> list[str]:
    """Return the failing tests by kind, the relevant output, and the command that runs it by hand."""
    rows = [("new", each["name"], each["message"]) for each in check["newFailures"]]
    known = set(check["knownFailures"]) - set(check["ownedFailures"])
    rows += [("to fix", name, "") for name in check["ownedFailures"]]
    rows += [("known", name, "") for name in check["knownFailures"] if name in known]
    rows += [("gone", name, "") for name in check["vanished"]] + [
        ("skipped", name, "") for name in check["newlySkipped"]
    ]
    lines = [
        f"    {kind:<8}{out.one_line(name)}{f': {out.one_line(message)}' if message else ''}"
        for kind, name, message in rows[:_SHOWN_TESTS]
    ]
    if len(rows) > _SHOWN_TESTS:
        lines.append(f"    and {len(rows) - _SHOWN_TESTS} more: --json lists all")
    lines += _quoted(check["summary"], "    ")
    if check["remedy"]:
        lines.append(f"    {out.one_line(check['remedy'])}")
    if check["command"]:
        import shlex

        lines.append(
            f"    run it by hand: ao sh {found['session']} -- sh -c {shlex.quote(out.one_line(check['command']))}"
        )
    return lines


def _quoted(text: str, indent: str) -> list[str]:
    return [f"{indent}| {line}" for line in out.clean(text).splitlines()]


def _next(found: Pull) -> list[str]:
    session = found["session"]
    if found["state"] == "merged":
        return [f"  {found.get('url') or f'ao undo {session}'}"]
    if found["state"] == "closed":
        return [f"  ao restore {session}"]
    if found["review"] == "approved":
        return [f"  ao merge {session}"]
    return [f"  ao diff {session}    ao review {session} --approve    ao merge {session}"]


@click.command()
@session_argument
@click.argument("only", metavar="[NAME]", required=False)
@click.option("--run", is_flag=True, help="Run them now, even if their results are known.")
@click.option("--log", "name", metavar="NAME", help="Print the whole output of this check.")
@click.option("-f", "--follow", is_flag=True, help="Print its output as it comes, until it has ended.")
@json_option
def checks(session: str, only: str | None, run: bool, name: str | None, follow: bool, as_json: bool) -> None:
    """Show a session's checks, and why they fail.

    Lists the failing tests, their counts, the relevant output, and the command that runs the check by hand. NAME shows one check. -f waits
    for a check that has not started; with only one check no name is needed.
    """
    ao = client()
    found: Pull = ao.post(session_path(session, "/checks")) if run else ao.get(session_path(session, "/review"))
    if only is not None:
        _refuse_unknown_check(found, only)
    if name is not None or follow:
        _print_log(ao, session, name or only or _only_check(found), follow)
        return
    if as_json:
        shown = [each for each in found["checks"] if only in (None, each["name"])]
        explained = [each for each in found["failing"] if only in (None, each["name"])]
        out.print_json({"checks": shown, "failing": explained})
        return
    out.show([out.paint(f"{found['session']}  #{found['number']}", "bold"), *_check_lines(found, only)])
    if failing := found["failing"]:
        import shlex

        names = [shlex.quote(out.one_line(each["name"])) for each in failing]  # of strangers, at a forge
        out.show(f"  ao checks {found['session']} --log {name}" for name in names)


def _refuse_unknown_check(found: Pull, name: str) -> None:
    names = [str(each["name"]) for each in found["checks"]]
    if name not in names:
        known = f"it has {', '.join(map(out.one_line, names))}" if names else "it has none yet"
        raise NotFound(f"{found['session']} has no check {out.one_line(name)}", known)


def _only_check(found: Pull) -> str:
    names = [str(each["name"]) for each in found["checks"]]
    if len(names) != 1:
        some = f"one of {', '.join(names)}" if names else "its checks begin when the agent is done, or by --run"
        raise UsageError(f"{found['session']} has {out.plural(len(names), 'check')}", f"name one: --log NAME; {some}")
    return names[0]


def _print_log(ao: Client, session: str, name: str, follow: bool) -> None:
    path = with_query(session_path(session, f"/checks/{quote(name)}/log"), {"follow": follow})
    with ao.stream("GET", path) as stream:
        while (line := stream.line()) is not None:
            print(out.clean(line), flush=follow)
    if follow:
        now = {each["name"]: each["state"] for each in ao.get(session_path(session, "/review"))["checks"]}
        out.note(f"{name}: {now.get(name) or 'not begun at the newest commit'}")


@click.command()
@click.argument("sessions", metavar="S...", nargs=-1, required=True, type=SESSION)
@click.option(
    "--strategy", type=click.Choice(["squash", "merge", "rebase"]), help="How its commits get onto the base: squash."
)
@click.option("--no-wait", is_flag=True, help="Return at once, not when it has landed.")
@click.option("--force", is_flag=True, help="Land it although its checks fail; this is recorded.")
@click.option("--cancel", is_flag=True, help="Take it out of the merge queue again.")
@json_option
def merge(
    sessions: tuple[str, ...], strategy: str | None, no_wait: bool, force: bool, cancel: bool, as_json: bool
) -> int:
    """Let sessions' changes land, through the merge queue.

    Each is checked on top of those ahead of it. Your word is enough, unless the forge demands an approval. Returns when they have
    landed; one that is refused says why.
    """
    ao, failures = client(), Failures()
    if cancel:
        if strategy or no_wait or force:
            raise UsageError("--cancel goes with no other option", "ao merge S --cancel")
        return _call_off(ao, sessions, failures, as_json=as_json)
    asked: dict[str, dict[str, Any]] = {}
    landed: list[dict[str, Any]] = []
    for session in dict.fromkeys(sessions):
        body = {"strategy": strategy, "force": force, "key": uuid.uuid4().hex}
        try:
            accepted = _merge(ao, session, body, wait=False)
            asked[accepted["id"]] = body
            landed += [accepted] if no_wait else []
        except AoError as error:
            if len(sessions) == 1:
                raise
            failures.tell(error)
    for session, body in {} if no_wait else asked.items():
        try:
            landed.append(_landed(ao, session, body))
        except AoError as error:
            if len(sessions) == 1:
                raise
            failures.tell(error)
    if as_json:
        out.print_json(landed[0] if len(sessions) == 1 else {"sessions": landed})
    else:
        for each in landed:
            out.show([f"{each['id']} {each['status']}: {out.one_line(each['why'])}"])
            out.show([f"  undo: {back(each)}"] if each["status"] == "merged" else ["  ao queue"])
    return failures.code


def _call_off(ao: Client, sessions: tuple[str, ...], failures: Failures, *, as_json: bool) -> int:
    found = []
    for session in dict.fromkeys(sessions):
        try:
            found.append(dict(ao.request("DELETE", session_path(session, "/merge")).json()))
        except AoError as error:
            if len(sessions) == 1:
                raise
            failures.tell(error)
    if as_json:
        out.print_json(found[0] if len(sessions) == 1 else {"sessions": found})
    else:
        out.show([f"{each['id']} is not to land any more: {each['status']}" for each in found])
    return failures.code


def _merge(ao: Client, session: str, body: dict[str, Any], *, wait: bool) -> dict[str, Any]:
    """Ask for it; the same key again is the same word, so that asking again only waits on."""
    sent = {"strategy": body["strategy"], "force": body["force"], "wait": wait, "timeout": _LOOK}
    headers = {"Idempotency-Key": body["key"]}
    answer = ao.request("POST", session_path(session, "/merge"), sent, headers=headers, timeout=_LOOK + 60.0)
    return dict(answer.json())


def _landed(ao: Client, session: str, body: dict[str, Any]) -> dict[str, Any]:
    told = ""
    while True:
        found = _merge(ao, session, body, wait=True)
        if found["status"] == "merged":
            return found
        reason = found.get("waitingFor") or _position(ao, found)
        if reason and reason != told:
            out.note(f"{session} waits to land: {reason}")
        told = reason


def _position(ao: Client, session: dict[str, Any]) -> str:
    """Where it is in the queue."""
    entries = ao.get("/api/queue", {"project": session["project"]})["entries"]
    mine = next((each for each in entries if each["session"] == session["id"]), None)
    if mine is None:
        return ""
    queued = sum(each["base"] == mine["base"] for each in entries)
    return f"number {mine['position']} of {queued} in the queue, {mine['state']}"


@click.command()
@scope_options
@json_option
def queue(project: str | None, all_projects: bool, as_json: bool) -> None:
    """Show the merge queue: what is to land, in order.

    Each change is built on those ahead of it and checked there; TREE is what is checked. One that is predicted to collide with many
    lets others go first. Take one out: ao merge S --cancel.
    """
    found = client().get("/api/queue", scope(project, all_projects))
    if as_json:
        out.print_json(found)
        return
    rows = [
        (
            str(each["position"]),
            each["session"],
            each["state"],
            each["base"],
            (each["tree"] or "-")[:8],
            ", ".join(f"{check['name']} {check['state']}" for check in each["checks"]) or "-",
            _waits_for(each),
        )
        for each in found["entries"]
    ]
    header = ("", "SESSION", "STATE", "BASE", "TREE", "CHECKS", "WAITS FOR")
    out.show(out.table(header, rows, shrink=6) if rows else ["Nothing is to land. Let a change land: ao merge S"])


def _waits_for(entry: dict[str, Any]) -> str:
    if entry["reason"]:
        return str(entry["reason"])
    first, met = entry["passedBy"], entry["collides"]
    why = f": it collides with {len(met)} of the queue" if met else ""
    return f"{', '.join(first)}{why}" if first else "-"


@click.command()
@session_argument
@json_option
def undo(session: str, as_json: bool) -> None:
    """Take a landing back by a new change.

    It gets a branch and a pull request of its own, and lands like any other. What landed at a forge is taken back there: you are told
    where.
    """
    made = client().post(session_path(session, "/undo"), timeout=120.0)
    if as_json:
        out.print_json(made)
        return
    change = made["change"]
    print(f"{change['id']} takes the landing of {made['session']} back, on branch {out.one_line(made['branch'])}")
    print(f"  ao diff {change['id']}    ao merge {change['id']}")
