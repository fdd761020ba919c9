"""Translate actions to the agent's own tools: find the tool by name and fill its arguments by its schema."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from agent_orchestrator.testing.model.conversation import ModelRequest, OfferedTool, compact
from agent_orchestrator.testing.model.current_message import current_message
from agent_orchestrator.testing.model.replies import (
    Action,
    EditAction,
    JsonAction,
    ShellAction,
    State,
    TodoAction,
    ToolCall,
    WriteAction,
)

SHELL_TOOLS = (
    "Bash", "bash", "exec_command", "shell_command", "shell", "local_shell", "run_shell_command", "Shell",
    "developer__shell", "execute_command", "run_command", "exec",
)  # fmt: skip
WRITE_TOOLS = ("Write", "write_file", "create", "write", "create_file", "apply_patch")
EDIT_TOOLS = ("Edit", "replace", "edit", "str_replace", "apply_patch")
READ_TOOLS = ("Read", "read_file", "view", "read")
STRUCTURED_OUTPUT_TOOL = "StructuredOutput"
"""Claude Code's tool for an answer that must match a schema."""
TODO_TOOLS = ("TodoWrite", "todowrite", "todo_write", "write_todos", "TodoList", "update_plan", "todo__todo_write")

_PATH_ARGUMENTS = ("file_path", "path", "filePath", "filename", "absolute_path")
_CONTENT_ARGUMENTS = ("content", "file_text", "contents", "text")
_OLD_TEXT_ARGUMENTS = ("old_string", "old_str", "oldString", "before")
_NEW_TEXT_ARGUMENTS = ("new_string", "new_str", "newString", "after")
_COMMAND_ARGUMENTS = ("command", "cmd", "script")
_STEP_ARGUMENTS = ("content", "step", "title", "subject", "description", "text")
_STATES: dict[State, tuple[str, ...]] = {
    "open": ("pending", "open", "todo"),
    "in-progress": ("in_progress", "active"),
    "done": ("completed", "done"),
}


def bind_action(action: Action, request: ModelRequest, earlier: Sequence[ToolCall] = ()) -> list[ToolCall]:
    """Return the tool calls that perform an action, in order; empty if the agent has no tool for it.

    `earlier` are the previous calls of the same script.
    """
    match action:
        case ToolCall():
            return [action]
        case ShellAction():
            return _shell(action.command, request)
        case WriteAction():
            return _write(action, request)
        case EditAction():
            return _edit(action, request)
        case TodoAction():
            return _todo(action, request, earlier)
        case JsonAction():
            return [ToolCall(STRUCTURED_OUTPUT_TOOL, action.value)] if STRUCTURED_OUTPUT_TOOL in request.tools else []


def as_text(action: Action, request: ModelRequest) -> str:
    """Return an action as text, for agents that read changes from text, such as Aider in its configured format."""
    blocks = "SEARCH/REPLACE" in compact(request.body)
    match action:
        case WriteAction(path, text) if blocks:
            return _block(path, "", text)
        case WriteAction(path, text):
            return f"{path}\n```\n{text}```\n"
        case EditAction(path, old, new):
            return _block(path, old + "\n", new + "\n")
        case ShellAction(command):
            return f"```bash\n{command}\n```\n"
        case JsonAction(value):
            return compact(value)
    return ""


def _block(path: str, old: str, new: str) -> str:
    return f"{path}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"


def _shell(command: str, request: ModelRequest) -> list[ToolCall]:
    tool = _find_tool(SHELL_TOOLS, request)
    if tool is None:
        return []
    if tool.free_text:  # Codex runs JavaScript in it, with the other tools as functions
        return [_javascript(tool, "exec_command", {"cmd": command})]
    name = _find_argument(tool, _COMMAND_ARGUMENTS) or "command"
    as_list = tool.properties.get(name, {}).get("type") == "array"
    return [_call(tool, {name: ["bash", "-lc", command] if as_list else command})]


def _write(action: WriteAction, request: ModelRequest) -> list[ToolCall]:
    tool = _find_tool(WRITE_TOOLS, request)
    patch = f"*** Begin Patch\n*** Add File: {action.path}\n{_lines('+', action.text)}*** End Patch\n"
    if tool is None:
        target = shlex.quote(action.path)
        folder = shlex.quote(str(PurePosixPath(action.path).parent))
        return _shell(f"mkdir -p {folder} && printf %s {shlex.quote(action.text)} > {target}", request)
    if tool.name == "apply_patch":
        return [_patch(tool, patch)]
    path = {_find_argument(tool, _PATH_ARGUMENTS) or "path": _absolute(action.path, request)}
    return [_call(tool, {**path, _find_argument(tool, _CONTENT_ARGUMENTS) or "content": action.text})]


def _edit(action: EditAction, request: ModelRequest) -> list[ToolCall]:
    tool = _find_tool(EDIT_TOOLS, request)
    if tool is None:
        old, new = json.dumps(action.old), json.dumps(action.new)
        code = f"import pathlib; f = pathlib.Path({json.dumps(action.path)}); f.write_text(f.read_text().replace({old}, {new}))"
        return _shell(f"python3 -c {shlex.quote(code)}", request)
    if tool.name == "apply_patch":
        lines = _lines("-", action.old) + _lines("+", action.new)
        return [_patch(tool, f"*** Begin Patch\n*** Update File: {action.path}\n@@\n{lines}*** End Patch\n")]
    path = _absolute(action.path, request)
    change = {
        _find_argument(tool, _OLD_TEXT_ARGUMENTS) or "old_string": action.old,
        _find_argument(tool, _NEW_TEXT_ARGUMENTS) or "new_string": action.new,
    }
    edit = _call(tool, {_find_argument(tool, _PATH_ARGUMENTS) or "path": path, **change})
    reader = _find_tool(READ_TOOLS, request)
    return (
        [edit] if reader is None else [_call(reader, {_find_argument(reader, _PATH_ARGUMENTS) or "path": path}), edit]
    )


def _todo(action: TodoAction, request: ModelRequest, earlier: Sequence[ToolCall]) -> list[ToolCall]:
    tool = _find_tool(TODO_TOOLS, request)
    if tool is not None:
        return [_call(tool, _list(tool, action.steps))]
    shell = _find_tool(SHELL_TOOLS, request)
    if shell is not None and shell.free_text:
        plan = [{"step": text, "status": _STATES[state][0]} for state, text in action.steps]
        return [_javascript(shell, "update_plan", {"plan": plan})]
    return list(_tasks(action.steps, request, earlier))


def _list(tool: OfferedTool, steps: Sequence[tuple[State, str]]) -> dict[str, Any]:
    """Return the arguments of a to-do tool: an array of objects if its schema has one, else text."""
    for name, schema in tool.properties.items():
        if schema.get("type") == "array":
            return {name: [_step(schema.get("items") or {}, *step, number) for number, step in enumerate(steps, 1)]}
    marks = {"open": "[ ]", "in-progress": "[-]", "done": "[x]"}
    return {
        _find_argument(tool, _CONTENT_ARGUMENTS) or "content": "\n".join(
            f"- {marks[state]} {text}" for state, text in steps
        )
    }


def _step(schema: Mapping[str, Any], state: State, text: str, number: int) -> dict[str, Any]:
    properties = schema.get("properties") or {}
    words = properties.get("status", {}).get("enum") or ()
    status = next((word for word in _STATES[state] if word in words), _STATES[state][0])
    filled: dict[str, Any] = {
        next((name for name in _STEP_ARGUMENTS if name in properties), "content"): text,
        "status": status,
    }
    others = {"id": str(number), "priority": "medium", "activeForm": text}
    return filled | {name: others.get(name, text) for name in schema.get("required") or () if name not in filled}


def _tasks(
    steps: Sequence[tuple[State, str]], request: ModelRequest, earlier: Sequence[ToolCall]
) -> Iterator[ToolCall]:
    """Yield the calls that set Claude Code's list of tasks, which are created and changed one by one and numbered from 1.

    Its task tools may have to be loaded by a search first. Calls that were already made in this turn are yielded
    again, because the caller counts them.
    """
    position = current_message(request).position
    earlier_calls = [(entry.name, entry.text) for entry in request.entries[:position] if entry.role == "call"]
    earlier_calls += [(call.name, compact(call.arguments)) for call in earlier]
    current_calls = [(entry.name, entry.text) for entry in request.entries[position:] if entry.role == "call"]
    if "TaskCreate" not in request.deferred_tools | set(request.tools):
        return
    loaded_now = any(_loads_tasks(*call) for call in current_calls) or "TaskCreate" not in request.tools
    if loaded_now and not any(_loads_tasks(*call) for call in earlier_calls):
        yield ToolCall("ToolSearch", {"query": "select:TaskCreate,TaskUpdate", "max_results": 5})
    subjects = [json.loads(text)["subject"] for name, text in earlier_calls if name == "TaskCreate"]
    states = {}
    for name, text in earlier_calls:
        if name == "TaskUpdate":
            update = json.loads(text)
            states[subjects[int(update["taskId"]) - 1]] = update["status"]
    for _, subject in steps:
        if subject not in subjects:
            subjects.append(subject)
            yield ToolCall("TaskCreate", {"subject": subject, "description": subject, "activeForm": subject})
    for state, subject in steps:
        if states.get(subject, "pending") != _STATES[state][0]:
            yield ToolCall("TaskUpdate", {"taskId": str(subjects.index(subject) + 1), "status": _STATES[state][0]})


def _loads_tasks(name: str, arguments: str) -> bool:
    return name == "ToolSearch" and "TaskCreate" in arguments


def _find_tool(names: Sequence[str], request: ModelRequest) -> OfferedTool | None:
    return next((request.tools[name] for name in names if name in request.tools), None)


def _find_argument(tool: OfferedTool, names: Sequence[str]) -> str | None:
    return next((name for name in names if name in tool.properties), None)


def _call(tool: OfferedTool, arguments: Mapping[str, Any]) -> ToolCall:
    """Return a call with all arguments that the schema requires."""
    required = {name: sample_value(tool.properties.get(name, {})) for name in tool.schema.get("required") or ()}
    return ToolCall(tool.name, {**required, **arguments})


def _patch(tool: OfferedTool, patch: str) -> ToolCall:
    return ToolCall(tool.name, patch) if tool.free_text else _call(tool, {next(iter(tool.properties), "input"): patch})


def _javascript(tool: OfferedTool, function: str, arguments: Mapping[str, Any]) -> ToolCall:
    code = f"const r = await tools.{function}({compact(arguments)}); text(r.output ?? JSON.stringify(r));"
    return ToolCall(tool.name, code)


def _lines(mark: str, text: str) -> str:
    return "".join(f"{mark}{line}\n" for line in text.splitlines())


def _absolute(path: str, request: ModelRequest) -> str:
    return path if path.startswith("/") or not request.folder else f"{request.folder}/{path}"


def sample_value(schema: Mapping[str, Any], name: str = "") -> Any:
    """Return a minimal value that matches a JSON schema."""
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return sample_value(schema[choice][0], name)
    kind = schema.get("type")
    match str(kind[0] if isinstance(kind, list) else kind).lower():
        case "object":
            properties = schema.get("properties") or {}
            return {key: sample_value(properties.get(key, {}), key) for key in schema.get("required") or properties}
        case "array":
            return [sample_value(schema.get("items") or {}, name) for _ in range(schema.get("minItems", 0))]
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 1)
    return f"scripted {re.sub('[_-]', ' ', name)}".strip()
