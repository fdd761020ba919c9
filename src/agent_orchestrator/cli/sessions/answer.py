"""`ao answer`: the questions and permission requests that wait for a person. `ao permissions`: what he allowed for good."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import (
    SESSION,
    client,
    interactive,
    json_option,
    scope,
    scope_options,
    session_path,
    text_of,
)
from agent_orchestrator.client.daemon_client import Client
from agent_orchestrator.errors import AoError, UsageError

Question = dict[str, Any]

_CONTEXT_LINES = 12
_KEYS = {
    "a": "allow",
    "allow": "allow",
    "y": "allow",
    "yes": "allow",
    "A": "always",
    "always": "always",
    "d": "deny",
    "deny": "deny",
    "n": "deny",
    "no": "deny",
}

_HINTS = {
    "permission": "  a allow, A always, d deny, or text; Enter skips, q ends",
    "message": "  a let it reach the agent, d refuse it; Enter skips, q ends",
    "offer": "  a have it done, d leave it; Enter skips, q ends",
}
"""What is decided, and how."""


@click.command()
@click.argument("session", metavar="[S]", required=False, type=SESSION)
@click.argument("text", metavar="[TEXT]...", nargs=-1)
@click.option(
    "--allow",
    "decision",
    flag_value="allow",
    help="Allow what it asks permission for, this once; let a message through; take what a rule offers.",
)
@click.option("--always", "decision", flag_value="always", help="Allow it from now on.")
@click.option("--deny", "decision", flag_value="deny", help="Deny it; a TEXT tells the agent why.")
@click.option(
    "--request", metavar="ID", help="Answer only what --json showed with this `request`, nothing that is asked since."
)
@scope_options
@json_option
def answer(
    session: str | None,
    text: tuple[str, ...],
    decision: str | None,
    request: str | None,
    project: str | None,
    all_projects: bool,
    as_json: bool,
) -> int:
    """Answer the questions and permission requests that wait for you.

    Without S it goes through all of them, oldest first, each with its context. With S and a TEXT or a decision it answers that
    session's question. `-` reads the text from standard input. A message with words of somebody who may not write to the repository
    waits for your word, too: --allow lets it reach the agent, --deny does not. So does an action that a rule offers
    (`auto: false`): --allow has it done.
    """
    ao = client()
    if session is not None and (text or decision):
        _post(ao, session, decision, text_of(text, None, "answer") if text else "", as_json, {"request": request})
        return 0
    questions: list[Question] = ao.get("/api/questions", scope(project, all_projects or session is not None))[
        "questions"
    ]
    if session is not None:
        wanted = ao.get(session_path(session))["id"]
        questions = [each for each in questions if session_id(each) == wanted]
    if as_json:
        out.print_json({"questions": questions})
        return 0
    if not questions:
        print("Nothing waits for you." if session is None else f"{session} asks nothing.")
        return 0
    if decision:
        asking = [each for each in questions if each.get("kind") in _HINTS]
        if len(asking) != 1:
            out.show(question_lines(questions))
            raise UsageError(f"{out.plural(len(asking), 'decision')} waiting", f"say which: ao answer S --{decision}")
        _post(ao, session_id(asking[0]), decision, "", as_json, asking[0])
        return 0
    if not interactive():
        out.show(question_lines(questions))
        raise UsageError(
            f"{out.plural(len(questions), 'question')} waiting, and no terminal to ask on",
            "answer each: ao answer S TEXT, or --allow, --always, --deny",
        )
    _go_through(ao, questions)
    return 0


@click.command()
@click.option("--withdraw", "number", metavar="N", type=click.IntRange(1), help="Ask again for the Nth of the list.")
@scope_options
@json_option
def permissions(number: int | None, project: str | None, all_projects: bool, as_json: bool) -> int:
    """Show, or take back, what you allowed agents for good, by project."""
    ao = client()
    rules = ao.get("/api/permissions", scope(project, all_projects))["permissions"]
    if number is not None:
        if number > len(rules):
            raise UsageError(f"there are {len(rules)} permissions, not {number}", "see them: ao permissions")
        ao.post("/api/permissions/withdraw", rules[number - 1])
        print(f"{rules[number - 1]['tool']}: {rules[number - 1]['command']} is asked again from now on.")
        return 0
    if as_json:
        out.print_json({"permissions": rules})
    elif rules:
        rows = [
            (str(n), each["project"], each["tool"], each["command"].replace("\n", " ⏎ "))
            for n, each in enumerate(rules, 1)
        ]
        out.show(out.table(("N", "PROJECT", "TOOL", "COMMAND"), rows))
    else:
        print("Nothing is allowed for good. ao answer S --always does so.")
    return 0


def session_id(question: Question) -> str:
    """The id of the session that asks."""
    session = question["session"]
    return str(session["id"] if isinstance(session, dict) else session)


def question_lines(questions: Sequence[Question]) -> list[str]:
    """The questions, one below the other."""
    return [
        f"{session_id(each)} ({each.get('kind')}, {out.age(each.get('since'))}): {_asked(each)}" for each in questions
    ]


def _asked(question: Question) -> str:
    """What it asks, in one line; of a command nothing disappears, not even where its lines end."""
    text = str(question.get("text"))
    return out.one_line(text.replace("\n", " ⏎ ") if question.get("kind") == "permission" else text)


def _post(
    ao: Client,
    session: str,
    decision: str | None,
    text: str,
    as_json: bool,
    question: Question,
) -> None:
    """Answer `question` as it was shown, and nothing that is asked since."""
    which = {key: question.get(key) for key in ("message", "offer", "request")}
    body = {key: value for key, value in {"decision": decision, "text": text, **which}.items() if value}
    result = ao.post(session_path(session, "/answer"), body)
    if as_json:
        out.print_json(result)
    else:
        print(f"{session}: {decision or 'answered'} ({result.get('state')})")


def _go_through(ao: Client, questions: Sequence[Question]) -> None:
    for number, question in enumerate(questions, 1):
        session = session_id(question)
        print(
            out.paint(
                f"{number}/{len(questions)}  {session}, {question.get('kind')}, since {out.age(question.get('since'))}",
                "bold",
            )
        )
        kind, context = str(question.get("kind")), list(question.get("context") or ())
        for line in context if kind in ("message", "offer") else context[-_CONTEXT_LINES:]:  # these are read as a whole
            print(out.paint(f"  | {out.one_line(line)}", "dim"))
        print(f"  {out.clean(question.get('text') or '')}")
        if reason := (question.get("permission") or {}).get("reason"):
            print(out.paint(f"  why: {out.one_line(reason)}", "dim"))
        print(_HINTS.get(kind, "  your answer; Enter skips, q ends"))
        reply = _read()
        if reply in (None, "q"):
            return
        decision = _KEYS.get(reply or "") if kind in _HINTS else None
        if not reply:
            continue
        try:
            _post(ao, session, decision, "" if decision else reply, False, question)
        except AoError as error:  # it was answered elsewhere meanwhile
            out.note(str(error))


def _read() -> str | None:
    sys.stdout.write("> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None
