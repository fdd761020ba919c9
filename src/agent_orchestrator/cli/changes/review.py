"""A change before its merge: `ao review`, `ao checks`, `ao merge`, `ao queue`, `ao undo`."""

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
    project_query,
    read_text,
    scope_options,
    session_argument,
    session_path,
)
from agent_orchestrator.cli.sessions.status_table import undo_target
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, NotFound, UsageError

PullRequest = dict[str, Any]

_LINE_COMMENT = re.compile(r"(?P<path>[^:]+):(?P<line>[1-9]\d*):(?P<body>.+)", re.DOTALL)
_MAX_SHOWN_TESTS = 20
"""Maximum number of failing tests of a check that are listed."""
_MERGE_POLL_SECONDS = 2.0
"""Seconds after which a waiting merge prints what it waits for."""


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
        _request_agent_review(
            ao, session, agent, (read_text("-") if text == "-" else text) or "", wait=wait, as_json=as_json
        )
        return
    has_review = verdict is not None or text is not None or bool(comments)
    changed: PullRequest | None = None
    actions: list[str] = []
    if has_review:
        body = {
            "verdict": verdict or "commented",
            "body": (read_text("-") if text == "-" else text) or "",
            "comments": [_parse_comment(item) for item in comments],
        }
        changed = ao.request("POST", session_path(session, "/review"), body, headers=_agent_headers()).json()
        actions.append(
            {"approved": "approved", "changes_requested": "changes requested"}.get(verdict or "", "commented")
        )
    if resolved:
        thread_ids = [item for item in resolved if item != "all"]
        settled = {"threads": thread_ids} if len(thread_ids) == len(resolved) else {"all": True}
        changed = _post_to_forge(ao, session, "/resolve", settled, "resolved", actions)
    if people:
        action = f"{', '.join(people)} asked to look at it"
        changed = _post_to_forge(ao, session, "/request-review", {"people": list(people)}, action, actions)
    pull_request: PullRequest = changed if changed is not None else ao.get(session_path(session, "/review"))
    if as_json:
        out.print_json(pull_request)
    elif changed is not None:
        out.print_lines(f"{pull_request['session']} #{pull_request['number']}: {item}" for item in actions)
        out.print_lines(_next_commands(pull_request))
    else:
        out.print_lines(_review_lines(pull_request))
        stat = ao.get(session_path(session, "/diff"))["stat"]
        out.print_lines(f" {line}" for line in out.clean(stat).splitlines())
        out.print_lines(["", *_next_commands(pull_request)])


def _post_to_forge(
    ao: DaemonClient, session: str, path: str, body: dict[str, Any], action: str, actions: list[str]
) -> PullRequest:
    """Post an action that changes the forge, add it to `actions` with a note if it is delayed, and return the pull request."""
    answer = ao.request("POST", session_path(session, path), body, headers=_agent_headers(), timeout=60.0)
    delay_note = "; the forge cannot be reached just now, it is done as soon as it can" if answer.status == 202 else ""
    actions.append(action + delay_note)
    return dict(answer.json())


def _agent_headers() -> dict[str, str]:
    """Return the header that identifies an agent by its token; empty for a person."""
    token = os.environ.get("AO_TOKEN") if os.environ.get("AO_SESSION") else None
    return {"X-AO-Token": token} if token else {}


def _request_agent_review(ao: DaemonClient, session: str, agent: str, text: str, *, wait: bool, as_json: bool) -> None:
    reviewer = ao.post(session_path(session, "/reviewers"), {"agent": agent, "message": text})
    review: dict[str, Any] | None = None
    while wait and review is None:
        pull_request: PullRequest = ao.get(session_path(session, "/review"))
        review = next((item for item in pull_request["reviews"] if item["reviewer"] == reviewer["id"]), None)
        reviewer_state = ao.get(session_path(reviewer["id"]))
        if review is None and reviewer_state["status"] in (
            "failed",
            "exited",
            "stopped",
            "needs_input",
            "blocked",
            "interrupted",
        ):
            raise AoError(
                f"{reviewer['id']} is {reviewer_state['status']}: {reviewer_state['why']}",
                f"look at it: ao attach {reviewer['id']}",
            )
        if review is None:
            time.sleep(_MERGE_POLL_SECONDS / 4)
    if as_json:
        out.print_json({"reviewer": reviewer, "review": review})
    elif review is None:
        print(f"{reviewer['id']} reviews {session}")
        print(f"  ao status {reviewer['id']}    ao review {session}")
    else:
        print(f"{reviewer['id']}: {review['verdict'].replace('_', ' ')}")
        out.print_lines(_quote(review["body"], "  "))
        print(f"  ao review {session}")


def _parse_comment(text: str) -> dict[str, Any]:
    match = _LINE_COMMENT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no comment on a line", "write it as FILE:LINE:TEXT, such as app.py:12:Why?")
    return {"path": match["path"], "line": int(match["line"]), "body": match["body"]}


def _review_lines(pull_request: PullRequest) -> list[str]:
    head = f"{pull_request['session']}  #{pull_request['number']} {out.one_line(pull_request['title'])}"
    facts = {key: pull_request[key] for key in ("state", "base", "review", "mergeable")}
    state = "  {state}, onto {base}, review {review}, mergeable {mergeable}".format_map(facts)
    lines = [out.paint(head, "bold"), state]
    lines += (
        [f"  conflicts in {out.one_line(', '.join(pull_request['conflicts']))}"] if pull_request["conflicts"] else []
    )
    lines += [f"  did not land: {out.one_line(pull_request['refused'])}"] if pull_request["refused"] else []
    lines += _check_lines(pull_request)
    lines += (
        [f"  asked to look at it: {out.one_line(', '.join(pull_request['requested']))}"]
        if pull_request["requested"]
        else []
    )
    for review in (item for item in pull_request["reviews"] if item["verdict"] != "commented"):  # that is a thread too
        lines.append(f"  {out.author_text(review)} {review['verdict']}, {out.age(review['at'])} ago")
        lines += _quote(review["body"], "    ")
    for thread in pull_request["threads"]:
        location = f"{thread['path']}:{thread['line']}" if thread["line"] else thread["path"] or "the whole"
        state = ", resolved" if thread["resolved"] else ""
        lines.append(f"  on {out.one_line(location)} ({thread['id']}{state})")
        for review in thread["comments"]:
            lines.append(f"    {out.author_text(review)} ({review['id']}):")
            lines += _quote(review["body"], "      ")
    return [*lines, ""]


def _check_lines(pull_request: PullRequest, only: str | None = None) -> list[str]:
    explanations = {item["name"]: item for item in pull_request["failing"]}
    lines: list[str] = []
    for check in pull_request["checks"]:
        if only in (None, check["name"]):
            explanation = explanations.get(check["name"])
            lines += [f"  check {out.one_line(check['name'])}: {_check_state(check, str(pull_request['base']))}"]
            lines += _explanation(pull_request, explanation) if explanation else []
    return lines or ["  no checks"]


def _check_state(check: dict[str, Any], base: str) -> str:
    """Return a check's state with its counts: `failure, 257 passed, 40 failed (2 new, 38 known on main)`."""
    counts = [f"{check[kind]} {kind}" for kind in ("passed", "failed", "skipped") if check[kind]]
    comparison = [f"{check['new']} new"] if check["new"] and check["known"] else []
    comparison += [f"{check['known']} known on {base}"] if check["known"] else []
    state = check["state"].replace("not_set_up", "environment not set up")
    reason = f": {out.one_line(check['reason'])}" if check["reason"] else ""
    return ", ".join([state, *counts]) + (f" ({', '.join(comparison)})" if comparison else "") + reason


def _explanation(pull_request: PullRequest, check: dict[str, Any]) -> list[str]:
    """Return the failing tests by kind, the relevant output, and the command that runs it by hand."""
    rows = [("new", each["name"], each["message"]) for each in check["newFailures"]]
    known_names = set(check["knownFailures"]) - set(check["ownedFailures"])
    rows += [("to fix", name, "") for name in check["ownedFailures"]]
    rows += [("known", name, "") for name in check["knownFailures"] if name in known_names]
    rows += [("gone", name, "") for name in check["vanished"]] + [
        ("skipped", name, "") for name in check["newlySkipped"]
    ]
    lines = [
        f"    {kind:<8}{out.one_line(name)}{f': {out.one_line(message)}' if message else ''}"
        for kind, name, message in rows[:_MAX_SHOWN_TESTS]
    ]
    if len(rows) > _MAX_SHOWN_TESTS:
        lines.append(f"    and {len(rows) - _MAX_SHOWN_TESTS} more: --json lists all")
    lines += _quote(check["summary"], "    ")
    if check["remedy"]:
        lines.append(f"    {out.one_line(check['remedy'])}")
    if check["command"]:
        import shlex

        lines.append(
            f"    run it by hand: ao sh {pull_request['session']} -- sh -c {shlex.quote(out.one_line(check['command']))}"
        )
    return lines


def _quote(text: str, indent: str) -> list[str]:
    return [f"{indent}| {line}" for line in out.clean(text).splitlines()]


def _next_commands(pull_request: PullRequest) -> list[str]:
    session = pull_request["session"]
    if pull_request["state"] == "merged":
        return [f"  {pull_request.get('url') or f'ao undo {session}'}"]
    if pull_request["state"] == "closed":
        return [f"  ao restore {session}"]
    if pull_request["review"] == "approved":
        return [f"  ao merge {session}"]
    return [f"  ao diff {session}    ao review {session} --approve    ao merge {session}"]


@click.command()
@session_argument
@click.argument("check_name", metavar="[NAME]", required=False)
@click.option("--run", is_flag=True, help="Run them now, even if their results are known.")
@click.option("--log", "log_name", metavar="NAME", help="Print the whole output of this check.")
@click.option("-f", "--follow", is_flag=True, help="Print its output as it comes, until it has ended.")
@json_option
def checks(session: str, check_name: str | None, run: bool, log_name: str | None, follow: bool, as_json: bool) -> None:
    """Show a session's checks, and why they fail.

    Lists the failing tests, their counts, the relevant output, and the command that runs the check by hand. NAME shows one check. -f waits
    for a check that has not started; with only one check no name is needed.
    """
    ao = client()
    pull_request: PullRequest = (
        ao.post(session_path(session, "/checks")) if run else ao.get(session_path(session, "/review"))
    )
    if check_name is not None:
        _refuse_unknown_check(pull_request, check_name)
    if log_name is not None or follow:
        _print_log(ao, session, log_name or check_name or _only_check(pull_request), follow)
        return
    if as_json:
        shown_checks = [item for item in pull_request["checks"] if check_name in (None, item["name"])]
        explanations = [item for item in pull_request["failing"] if check_name in (None, item["name"])]
        out.print_json({"checks": shown_checks, "failing": explanations})
        return
    out.print_lines(
        [
            out.paint(f"{pull_request['session']}  #{pull_request['number']}", "bold"),
            *_check_lines(pull_request, check_name),
        ]
    )
    if failing := pull_request["failing"]:
        import shlex

        names = [shlex.quote(out.one_line(item["name"])) for item in failing]  # of strangers, at a forge
        out.print_lines(f"  ao checks {pull_request['session']} --log {log_name}" for log_name in names)


def _refuse_unknown_check(pull_request: PullRequest, name: str) -> None:
    names = [str(check["name"]) for check in pull_request["checks"]]
    if name not in names:
        remedy = f"it has {', '.join(map(out.one_line, names))}" if names else "it has none yet"
        raise NotFound(f"{pull_request['session']} has no check {out.one_line(name)}", remedy)


def _only_check(pull_request: PullRequest) -> str:
    names = [str(check["name"]) for check in pull_request["checks"]]
    if len(names) != 1:
        choices = f"one of {', '.join(names)}" if names else "its checks begin when the agent is done, or by --run"
        raise UsageError(
            f"{pull_request['session']} has {out.plural(len(names), 'check')}", f"name one: --log NAME; {choices}"
        )
    return names[0]


def _print_log(ao: DaemonClient, session: str, name: str, follow: bool) -> None:
    path = with_query(session_path(session, f"/checks/{quote(name)}/log"), {"follow": follow})
    with ao.stream("GET", path) as stream:
        while (line := stream.read_line()) is not None:
            print(out.clean(line), flush=follow)
    if follow:
        states = {check["name"]: check["state"] for check in ao.get(session_path(session, "/review"))["checks"]}
        out.print_note(f"{name}: {states.get(name) or 'not begun at the newest commit'}")


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
        return _cancel(ao, sessions, failures, as_json=as_json)
    requests: dict[str, dict[str, Any]] = {}
    merged: list[dict[str, Any]] = []
    for session in dict.fromkeys(sessions):
        body = {"strategy": strategy, "force": force, "key": uuid.uuid4().hex}
        try:
            accepted = _post_merge(ao, session, body, wait=False)
            requests[accepted["id"]] = body
            merged += [accepted] if no_wait else []
        except AoError as error:
            if len(sessions) == 1:
                raise
            failures.report(error)
    for session, body in {} if no_wait else requests.items():
        try:
            merged.append(_wait_until_merged(ao, session, body))
        except AoError as error:
            if len(sessions) == 1:
                raise
            failures.report(error)
    if as_json:
        out.print_json(merged[0] if len(sessions) == 1 else {"sessions": merged})
    else:
        for session_data in merged:
            out.print_lines([f"{session_data['id']} {session_data['status']}: {out.one_line(session_data['why'])}"])
            out.print_lines(
                [f"  undo: {undo_target(session_data)}"] if session_data["status"] == "merged" else ["  ao queue"]
            )
    return failures.code


def _cancel(ao: DaemonClient, sessions: tuple[str, ...], failures: Failures, *, as_json: bool) -> int:
    results = []
    for session in dict.fromkeys(sessions):
        try:
            results.append(dict(ao.request("DELETE", session_path(session, "/merge")).json()))
        except AoError as error:
            if len(sessions) == 1:
                raise
            failures.report(error)
    if as_json:
        out.print_json(results[0] if len(sessions) == 1 else {"sessions": results})
    else:
        out.print_lines([f"{result['id']} is not to land any more: {result['status']}" for result in results])
    return failures.code


def _post_merge(ao: DaemonClient, session: str, body: dict[str, Any], *, wait: bool) -> dict[str, Any]:
    """Request the merge; a repeated request with the same key only waits for the first one."""
    sent = {"strategy": body["strategy"], "force": body["force"], "wait": wait, "timeout": _MERGE_POLL_SECONDS}
    headers = {"Idempotency-Key": body["key"]}
    answer = ao.request(
        "POST", session_path(session, "/merge"), sent, headers=headers, timeout=_MERGE_POLL_SECONDS + 60.0
    )
    return dict(answer.json())


def _wait_until_merged(ao: DaemonClient, session: str, body: dict[str, Any]) -> dict[str, Any]:
    printed = ""
    while True:
        session_data = _post_merge(ao, session, body, wait=True)
        if session_data["status"] == "merged":
            return session_data
        reason = session_data.get("waitingFor") or _queue_position(ao, session_data)
        if reason and reason != printed:
            out.print_note(f"{session} waits to land: {reason}")
        printed = reason


def _queue_position(ao: DaemonClient, session: dict[str, Any]) -> str:
    """Return the session's position in the merge queue as text, or an empty string if it is not queued."""
    entries = ao.get("/api/queue", {"project": session["project"]})["entries"]
    own_entry = next((entry for entry in entries if entry["session"] == session["id"]), None)
    if own_entry is None:
        return ""
    queued = sum(entry["base"] == own_entry["base"] for entry in entries)
    return f"number {own_entry['position']} of {queued} in the queue, {own_entry['state']}"


@click.command()
@scope_options
@json_option
def queue(project: str | None, all_projects: bool, as_json: bool) -> None:
    """Show the merge queue: what is to land, in order.

    Each change is built on those ahead of it and checked there; TREE is what is checked. One that is predicted to collide with many
    lets others go first. Take one out: ao merge S --cancel.
    """
    answer = client().get("/api/queue", project_query(project, all_projects))
    if as_json:
        out.print_json(answer)
        return
    rows = [
        (
            str(entry["position"]),
            entry["session"],
            entry["state"],
            entry["base"],
            (entry["tree"] or "-")[:8],
            ", ".join(f"{check['name']} {check['state']}" for check in entry["checks"]) or "-",
            _wait_text(entry),
        )
        for entry in answer["entries"]
    ]
    header = ("", "SESSION", "STATE", "BASE", "TREE", "CHECKS", "WAITS FOR")
    out.print_lines(
        out.table(header, rows, shrink=6) if rows else ["Nothing is to land. Let a change land: ao merge S"]
    )


def _wait_text(entry: dict[str, Any]) -> str:
    if entry["reason"]:
        return str(entry["reason"])
    passed_by, conflicts = entry["passedBy"], entry["collides"]
    reason = f": it collides with {len(conflicts)} of the queue" if conflicts else ""
    return f"{', '.join(passed_by)}{reason}" if passed_by else "-"


@click.command()
@session_argument
@json_option
def undo(session: str, as_json: bool) -> None:
    """Take a landing back by a new change.

    It gets a branch and a pull request of its own, and lands like any other. What landed at a forge is taken back there: you are told
    where.
    """
    revert = client().post(session_path(session, "/undo"), timeout=120.0)
    if as_json:
        out.print_json(revert)
        return
    change = revert["change"]
    print(f"{change['id']} takes the landing of {revert['session']} back, on branch {out.one_line(revert['branch'])}")
    print(f"  ao diff {change['id']}    ao merge {change['id']}")
