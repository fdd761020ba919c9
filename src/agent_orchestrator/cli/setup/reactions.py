"""`ao reactions`: the rules in force, and what one would do."""

from __future__ import annotations

from typing import Any

import click

from agent_orchestrator.cli import out
from agent_orchestrator.cli.common import SESSION, client, json_option, project_option, session_argument, session_path

Rule = dict[str, Any]


@click.group()
def reactions() -> None:
    """Show the reaction rules in force, and what one would do."""


@reactions.command("list")
@click.argument("session", metavar="[S]", required=False, type=SESSION)
@project_option
@json_option
def list_(session: str | None, project: str | None, as_json: bool) -> None:
    """List the rules in force here, or those of a session and how far each is.

    They come from the defaults, with the configuration's `reactions` over them field by field.
    """
    answer = client().get("/api/reactions", {"project": project, "session": session})
    if as_json:
        out.print_json(answer)
        return
    header: tuple[str, ...] = ("RULE", "TRIGGER", "DOES", "BOUNDS", *(("NOW",) if session else ()))
    out.print_lines(
        out.table(header, [_rule_row(rule, with_state=bool(session)) for rule in answer["rules"]], shrink=3)
    )


@reactions.command("test")
@click.argument("trigger", metavar="TRIGGER")
@session_argument
@json_option
def test(trigger: str, session: str, as_json: bool) -> None:
    """Show what the rules of TRIGGER would do for a session now, without doing it.

    What would be sent is shown with the session's own facts; where there are none yet, sample values stand in, and it says so.
    """
    answer = client().post(session_path(session, "/reactions/test"), {"trigger": trigger})
    if as_json:
        out.print_json(answer)
        return
    if not answer["rules"]:
        print(f"No rule follows {trigger}. One would be: reactions: {{{trigger}: {{action: notify}}}}")
        return
    for rule in answer["rules"]:
        out.print_lines(_test_lines(rule, answer["session"]))


def _test_lines(rule: Rule, session: str) -> list[str]:
    lines = [out.paint(f"rule {rule['rule']}: {rule['action']}, to {out.one_line(rule['to'])}", "bold")]
    if rule["holds"] is False:
        lines.append(f"  {session} is not in that state now.")
    if rule["sample"]:
        lines.append(f"  Sample values stand in for: {', '.join(rule['sample'])}.")
    if rule["condition"]:
        lines.append(
            f"  Its condition {rule['condition']} {'holds' if rule['applies'] else 'does not hold: nothing would be done'}."
        )
    if rule["exhausted"]:
        lines.append(f"  Its attempts are used up ({rule['attempt'] - 1}): a person would be called.")
    else:
        after = f", after {out.duration(rule['after'])}" if rule["after"] else ", at once"
        lines.append(
            f"  It would be attempt {rule['attempt']}{after}{'; offered to you first' if rule['offered'] else ''}."
        )
    if rule["heldFor"]:
        lines.append(f"  It would wait for your word: {out.one_line(rule['heldFor'])}.")
    if rule["problem"]:
        lines.append(f"  {out.one_line(rule['problem'])}")
    if rule["command"]:
        lines.append(f"  $ {out.one_line(rule['command'][-1])}")
    if rule["text"]:
        lines += [f"  | {line}" for line in out.clean(rule["text"]).splitlines()]
    return lines


def _rule_row(rule: Rule, *, with_state: bool) -> tuple[str, ...]:
    row = (rule["name"], rule["trigger"], _action_text(rule), _bounds_text(rule))
    return (*row, _state_text(rule)) if with_state else row


def _action_text(rule: Rule) -> str:
    text = str(rule["action"])
    if rule["agent"]:
        text += f" {rule['agent']}"
    if rule["priority"]:
        text += f" ({rule['priority']})"
    return text if rule["auto"] else f"offers {text}"


def _bounds_text(rule: Rule) -> str:
    parts = [f"retries {rule['retries']}"] if rule["retries"] is not None else []
    parts += [f"escalateAfter {rule['escalateAfter']}"] if rule["escalateAfter"] is not None else []
    delay = rule["delay"] or rule["threshold"]
    parts += [f"after {out.duration(delay)}"] if delay else []
    parts += [f"if {rule['condition']}"] if rule["condition"] else []
    return ", ".join(parts) or "-"


def _state_text(rule: Rule) -> str:
    if rule["escalated"]:
        return f"you were called, after {out.plural(rule['attempts'], 'attempt')}"
    if rule["attempts"]:
        return out.plural(rule["attempts"], "attempt")
    return "holds" if rule["holds"] else "-"
