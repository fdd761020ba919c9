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
    found = client().get("/api/reactions", {"project": project, "session": session})
    if as_json:
        out.print_json(found)
        return
    header: tuple[str, ...] = ("RULE", "TRIGGER", "DOES", "BOUNDS", *(("NOW",) if session else ()))
    out.show(out.table(header, [_row(each, with_state=bool(session)) for each in found["rules"]], shrink=3))


@reactions.command("test")
@click.argument("trigger", metavar="TRIGGER")
@session_argument
@json_option
def test(trigger: str, session: str, as_json: bool) -> None:
    """Show what the rules of TRIGGER would do for a session now, without doing it.

    What would be sent is shown with the session's own facts; where there are none yet, sample values stand in, and it says so.
    """
    found = client().post(session_path(session, "/reactions/test"), {"trigger": trigger})
    if as_json:
        out.print_json(found)
        return
    if not found["rules"]:
        print(f"No rule follows {trigger}. One would be: reactions: {{{trigger}: {{action: notify}}}}")
        return
    for each in found["rules"]:
        out.show(_tested(each, found["session"]))


def _tested(each: Rule, session: str) -> list[str]:
    lines = [out.paint(f"rule {each['rule']}: {each['action']}, to {out.one_line(each['to'])}", "bold")]
    if each["holds"] is False:
        lines.append(f"  {session} is not in that state now.")
    if each["sample"]:
        lines.append(f"  Sample values stand in for: {', '.join(each['sample'])}.")
    if each["condition"]:
        lines.append(
            f"  Its condition {each['condition']} {'holds' if each['applies'] else 'does not hold: nothing would be done'}."
        )
    if each["exhausted"]:
        lines.append(f"  Its attempts are used up ({each['attempt'] - 1}): a person would be called.")
    else:
        after = f", after {out.duration(each['after'])}" if each["after"] else ", at once"
        lines.append(
            f"  It would be attempt {each['attempt']}{after}{'; offered to you first' if each['offered'] else ''}."
        )
    if each["heldFor"]:
        lines.append(f"  It would wait for your word: {out.one_line(each['heldFor'])}.")
    if each["problem"]:
        lines.append(f"  {out.one_line(each['problem'])}")
    if each["command"]:
        lines.append(f"  $ {out.one_line(each['command'][-1])}")
    if each["text"]:
        lines += [f"  | {line}" for line in out.clean(each["text"]).splitlines()]
    return lines


def _row(rule: Rule, *, with_state: bool) -> tuple[str, ...]:
    row = (rule["name"], rule["trigger"], _does(rule), _bounds(rule))
    return (*row, _state(rule)) if with_state else row


def _does(rule: Rule) -> str:
    what = str(rule["action"])
    if rule["agent"]:
        what += f" {rule['agent']}"
    if rule["priority"]:
        what += f" ({rule['priority']})"
    return what if rule["auto"] else f"offers {what}"


def _bounds(rule: Rule) -> str:
    parts = [f"retries {rule['retries']}"] if rule["retries"] is not None else []
    parts += [f"escalateAfter {rule['escalateAfter']}"] if rule["escalateAfter"] is not None else []
    lasting = rule["delay"] or rule["threshold"]
    parts += [f"after {out.duration(lasting)}"] if lasting else []
    parts += [f"if {rule['condition']}"] if rule["condition"] else []
    return ", ".join(parts) or "-"


def _state(rule: Rule) -> str:
    if rule["escalated"]:
        return f"you were called, after {out.plural(rule['attempts'], 'attempt')}"
    if rule["attempts"]:
        return out.plural(rule["attempts"], "attempt")
    return "holds" if rule["holds"] else "-"
