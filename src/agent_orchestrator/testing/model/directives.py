"""The script in the prompt: parse its directives and find the next answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from agent_orchestrator.testing.model.conversation import ModelRequest
from agent_orchestrator.testing.model.current_message import DIRECTIVE, current_message
from agent_orchestrator.testing.model.replies import (
    Action,
    EditAction,
    HttpFailure,
    JsonAction,
    ReplyUsage,
    ScriptedReply,
    ShellAction,
    State,
    TodoAction,
    ToolCall,
    WriteAction,
)
from agent_orchestrator.testing.model.tools import as_text, bind_action, sample_value

_STATE_BY_MARK: dict[str, State] = {"x": "done", ">": "in-progress", "-": "open"}
_USAGE_FIELDS = {"input": "input", "output": "output", "read": "cache_read", "written": "cache_write"}

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKETS = re.compile(r"(?<=[\[\]])(?=[\[\]])")


class BadDirective(ValueError):
    """A directive that cannot be parsed; the answer says so."""


@dataclass(frozen=True, slots=True)
class Step:
    """An answer of a script, before its action is translated to the agent's tools."""

    reply: ScriptedReply
    action: Action | None = None


def next_reply(request: ModelRequest, now: float, script: str | None = None) -> ScriptedReply:
    """Return the answer to a request by the directives in its user message, or by those of `script` instead."""
    message = current_message(request)
    try:
        replies = list(_replies(parse_script(message.text if script is None else script, now), request))
    except BadDirective as error:
        return ScriptedReply(f"Not understood: {error}")
    if message.call_count < len(replies):
        reply = replies[message.call_count]
        return reply if reply.text or reply.calls else replace(reply, text="Done.")
    return ScriptedReply("Done." if message.call_count else f"Understood: {' '.join(message.text.split())[:60]}")


def side_reply(request: ModelRequest) -> ScriptedReply:
    """Return the answer to a side request: a title, a commit message, or JSON that matches its schema."""
    if request.json_schema is not None:
        return ScriptedReply(json.dumps(sample_value(request.json_schema)))
    return ScriptedReply("Scripted change")


def parse_script(script: str, now: float = 0.0) -> list[Step]:
    """Return the steps of a script in order; text and modifiers belong to the action after them, or to the last answer.

    Raises `BadDirective`.
    """
    steps: list[Step] = []
    texts: list[str] = []
    reply = ScriptedReply()
    for name, value in DIRECTIVE.findall(script):
        try:
            if name == "say":
                texts.append(value)
            elif name in _ACTIONS:
                steps.append(Step(replace(reply, text="\n".join(texts)), _ACTIONS[name](value)))
                texts, reply = [], ScriptedReply()
            else:
                reply = _apply_modifier(reply, name, value, now)
        except (ValueError, KeyError) as error:
            raise BadDirective(f"[[{name}: {value}]] ({error})") from None
    if texts or reply != ScriptedReply():
        steps.append(Step(replace(reply, text="\n".join(texts))))
    return steps


def as_argument(value: object) -> str:
    """Return a value as JSON in which no directive begins or ends, so that directives in its texts stay inert."""
    escaped = _STRING.sub(lambda match: match[0].replace("[", r"\u005b").replace("]", r"\u005d"), json.dumps(value))
    return _BRACKETS.sub(" ", escaped)


def _replies(steps: Sequence[Step], request: ModelRequest) -> Iterator[ScriptedReply]:
    """Yield the answers, one call each; an action without a matching tool becomes text of the next answer."""
    texts: list[str] = []
    earlier: list[ToolCall] = []
    for step in steps:
        calls = bind_action(step.action, request, earlier) if step.action else []
        earlier += calls
        texts.append(step.reply.text)
        if step.action is not None and not calls:
            texts.append(as_text(step.action, request))
            if step is not steps[-1]:
                continue
        yield replace(step.reply, text="\n".join(filter(None, texts)), calls=tuple(calls[:1]))
        texts = []
        for call in calls[1:]:
            yield ScriptedReply(calls=(call,))


def _apply_modifier(reply: ScriptedReply, name: str, value: str, now: float) -> ScriptedReply:
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
            return replace(
                reply, usage=ReplyUsage(**{_USAGE_FIELDS[key]: int(figure) for key, figure in figures.items()})
            )
        case _:
            first, *options = value.split()
            times = next((int(option[1:]) for option in options if option.startswith("x")), None)
            retry = next((float(option[6:]) for option in options if option.startswith("retry=")), None)
            if name == "limit":
                return replace(reply, failure=HttpFailure(429, times=times, limit_ends=now + float(first)))
            return replace(reply, failure=HttpFailure(int(first), times=times, retry_after=retry))


def _write(value: str) -> WriteAction:
    path, _, text = value.partition("|")
    return WriteAction(path.strip(), text if text.endswith("\n") else text + "\n")


def _edit(value: str) -> EditAction:
    path, old, new = value.split("|")
    return EditAction(path.strip(), old, new)


def _todo(value: str) -> TodoAction:
    steps = (step.strip() for step in value.split(";"))
    return TodoAction(tuple((_STATE_BY_MARK[step[0]], step[1:].strip()) for step in steps if step))


def _tool(value: str) -> ToolCall:
    name, _, arguments = value.partition(" ")
    return ToolCall(name, json.loads(arguments or "{}"))


def _json(value: str) -> JsonAction:
    return JsonAction(json.loads(value))


_ACTIONS: dict[str, Callable[[str], Action]] = {
    "sh": ShellAction,
    "write": _write,
    "edit": _edit,
    "todo": _todo,
    "tool": _tool,
    "json": _json,
}
