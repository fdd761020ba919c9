"""`ao answer`: pending questions and permission requests. `ao permissions`: permissions that were given permanently."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import (
    SESSION,
    client,
    is_interactive,
    json_option,
    project_query,
    read_argument,
    scope_options,
    session_path,
)
from agent_orchestrator.client.daemon_client import DaemonClient
from agent_orchestrator.errors import AoError, UsageError

Question = dict[str, Any]

_CONTEXT_LINES = 12
_DECISION_KEYS = {
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
"""The available answers for each kind of question."""


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
        _post_answer(
            ao, session, decision, read_argument(text, None, "answer") if text else "", as_json, {"request": request}
        )
        return 0
    questions: list[Question] = ao.get("/api/questions", project_query(project, all_projects or session is not None))[
        "questions"
    ]
    if session is not None:
        wanted_id = ao.get(session_path(session))["id"]
        questions = [question for question in questions if session_id(question) == wanted_id]
    if as_json:
        out.print_json({"questions": questions})
        return 0
    if not questions:
        print("Nothing waits for you." if session is None else f"{session} asks nothing.")
        return 0
    if decision:
        decidable = [question for question in questions if question.get("kind") in _HINTS]
        if len(decidable) != 1:
            out.print_lines(question_lines(questions))
            raise UsageError(
                f"{out.plural(len(decidable), 'decision')} waiting", f"say which: ao answer S --{decision}"
            )
        _post_answer(ao, session_id(decidable[0]), decision, "", as_json, decidable[0])
        return 0
    if not is_interactive():
        out.print_lines(question_lines(questions))
        raise UsageError(
            f"{out.plural(len(questions), 'question')} waiting, and no terminal to ask on",
            "answer each: ao answer S TEXT, or --allow, --always, --deny",
        )
    _answer_each(ao, questions)
    return 0


@click.command()
@click.option("--withdraw", "number", metavar="N", type=click.IntRange(1), help="Ask again for the Nth of the list.")
@scope_options
@json_option
def permissions(number: int | None, project: str | None, all_projects: bool, as_json: bool) -> int:
    """Show, or take back, what you allowed agents for good, by project."""
    ao = client()
    rules = ao.get("/api/permissions", project_query(project, all_projects))["permissions"]
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
            (str(n), rule["project"], rule["tool"], rule["command"].replace("\n", " ⏎ "))
            for n, rule in enumerate(rules, 1)
        ]
        out.print_lines(out.table(("N", "PROJECT", "TOOL", "COMMAND"), rows))
    else:
        print("Nothing is allowed for good. ao answer S --always does so.")
    return 0


def session_id(question: Question) -> str:
    """Return the id of the session that asks."""
    session = question["session"]
    return str(session["id"] if isinstance(session, dict) else session)


def question_lines(questions: Sequence[Question]) -> list[str]:
    """Return the questions, one line each."""
    return [
        f"{session_id(question)} ({question.get('kind')}, {out.age(question.get('since'))}): {_question_text(question)}"
        for question in questions
    ]


def _question_text(question: Question) -> str:
    """Return what is asked in one line; line ends of a command stay visible."""
    text = str(question.get("text"))
    return out.one_line(text.replace("\n", " ⏎ ") if question.get("kind") == "permission" else text)


def _post_answer(
    ao: DaemonClient,
    session: str,
    decision: str | None,
    text: str,
    as_json: bool,
    question: Question,
) -> None:
    """Answer exactly this question and none that was asked later."""
    identifiers = {key: question.get(key) for key in ("message", "offer", "request")}
    body = {key: value for key, value in {"decision": decision, "text": text, **identifiers}.items() if value}
    result = ao.post(session_path(session, "/answer"), body)
    if as_json:
        out.print_json(result)
    else:
        print(f"{session}: {decision or 'answered'} ({result.get('state')})")


def _answer_each(ao: DaemonClient, questions: Sequence[Question]) -> None:
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
        reply = _read_reply()
        if reply in (None, "q"):
            return
        decision = _DECISION_KEYS.get(reply or "") if kind in _HINTS else None
        if not reply:
            continue
        try:
            _post_answer(ao, session, decision, "" if decision else reply, False, question)
        except AoError as error:  # it was answered elsewhere meanwhile
            out.print_note(str(error))


def _read_reply() -> str | None:
    sys.stdout.write("> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    return line.strip() if line else None
