"""The script in the prompt: parse its directives and find the next answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from agent_orchestrator.testing.model.conversation import Request
from agent_orchestrator.testing.model.progress import DIRECTIVE, current_message
from agent_orchestrator.testing.model.replies import (
    Action,
    Call,
    Edit,
    Failure,
    Json,
    Reply,
    Shell,
    State,
    Todo,
    Usage,
    Write,
)
from agent_orchestrator.testing.model.tools import as_text, bind, sample

_MARKS: dict[str, State] = {"x": "done", ">": "in-progress", "-": "open"}
_FIGURES = {"input": "input", "output": "output", "read": "cache_read", "written": "cache_write"}

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(r"(?<=[\[\]])(?=[\[\]])")


class BadDirective(ValueError):
    """A directive that cannot be parsed; the answer says so."""


@dataclass(frozen=True, slots=True)
class Step:
    """An answer of a script, before its action is translated to the agent's tools."""

    reply: Reply
    action: Action | None = None


def next_reply(request: Request, now: float, script: str | None = None) -> Reply:
    """Return the answer to a request by the directives in its user message, or by those of `script` instead."""
    message = current_message(request)
    try:
        replies = list(_replies(parse(message.text if script is None else script, now), request))
    except BadDirective as error:
        return Reply(f"Not understood: {error}")
    if message.done < len(replies):
        reply = replies[message.done]
        return reply if reply.text or reply.calls else replace(reply, text="Done.")
    return Reply("Done." if message.done else f"Understood: {' '.join(message.text.split())[:60]}")


def side_reply(request: Request) -> Reply:
    """Return the answer to a side request: a title, a commit message, or JSON that matches its schema."""
    if request.json_schema is not None:
        return Reply(json.dumps(sample(request.json_schema)))
    return Reply("Scripted change")


def parse(script: str, now: float = 0.0) -> list[Step]:
    """Return the steps of a script in order; text and modifiers belong to the action after them, or to the last answer.

    Raises `BadDirective`.
    """
    steps: list[Step] = []
    texts: list[str] = []
    reply = Reply()
    for name, value in DIRECTIVE.findall(script):
        try:
            if name == "say":
                texts.append(value)
            elif name in _ACTIONS:
                steps.append(Step(replace(reply, text="\n".join(texts)), _ACTIONS[name](value)))
                texts, reply = [], Reply()
            else:
                reply = _modified(reply, name, value, now)
        except (ValueError, KeyError) as error:
            raise BadDirective(f"[[{name}: {value}]] ({error})") from None
    if texts or reply != Reply():
        steps.append(Step(replace(reply, text="\n".join(texts))))
    return steps


def as_argument(value: object) -> str:
    """Return a value as JSON in which no directive begins or ends, so that directives in its texts stay inert."""
    escaped = _STRING.sub(lambda match: match[0].replace("[", r"\u005b").replace("]", r"\u005d"), json.dumps(value))
    return _BRACKETS.sub(" ", escaped)


def _replies(steps: Sequence[Step], request: Request) -> Iterator[Reply]:
    """Yield the answers, one call each; an action without a matching tool becomes text of the next answer."""
    texts: list[str] = []
    earlier: list[Call] = []
    for step in steps:
        calls = bind(step.action, request, earlier) if step.action else []
        earlier += calls
        texts.append(step.reply.text)
        if step.action is not None and not calls:
            texts.append(as_text(step.action, request))
            if step is not steps[-1]:
                continue
        yield replace(step.reply, text="\n".join(filter(None, texts)), calls=tuple(calls[:1]))
        texts = []
        for call in calls[1:]:
            yield Reply(calls=(call,))


def _modified(reply: Reply, name: str, value: str, now: float) -> Reply:
    match name:
        case "wait":
            return replace(reply, wait=reply.wait + float(value))
        case "slow":
            return replace(reply, slow=float(value))
        case "hang":
            return replace(reply, hang=value)
        case "stall":
            return replace(reply, stall=value)
        case "drop":
            return replace(reply, drop=True)
        case "usage":
            figures = dict(pair.split("=") for pair in value.split())
            return replace(reply, usage=Usage(**{_FIGURES[key]: int(figure) for key, figure in figures.items()}))
        case _:
            first, *options = value.split()
            times = next((int(option[1:]) for option in options if option.startswith("x")), None)
            retry = next((float(option[6:]) for option in options if option.startswith("retry=")), None)
            if name == "limit":
                return replace(reply, failure=Failure(429, times=times, limit_ends=now + float(first)))
            return replace(reply, failure=Failure(int(first), times=times, retry_after=retry))


def _write(value: str) -> Write:
    path, _, text = value.partition("|")
    return Write(path.strip(), text if text.endswith("\n") else text + "\n")


def _edit(value: str) -> Edit:
    path, old, new = value.split("|")
    return Edit(path.strip(), old, new)


def _todo(value: str) -> Todo:
    steps = (step.strip() for step in value.split(";"))
    return Todo(tuple((_MARKS[step[0]], step[1:].strip()) for step in steps if step))


def _tool(value: str) -> Call:
    name, _, arguments = value.partition(" ")
    return Call(name, json.loads(arguments or "{}"))


def _json(value: str) -> Json:
    return Json(json.loads(value))


_ACTIONS: dict[str, Callable[[str], Action]] = {
    "sh": Shell,
    "write": _write,
    "edit": _edit,
    "todo": _todo,
    "tool": _tool,
    "json": _json,
}
