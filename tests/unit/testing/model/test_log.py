"""The log of the scripted model: messages, how often they arrived, and turns."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.model import ScriptedModel
from tests.unit.testing.model.wire import ask

AIDER_EXAMPLES = [
    ("user", "Change get_factorial() to use math.factorial"),
    ("assistant", "To make this change we need to modify `mathweb/flask/app.py`"),
    ("user", "I switched to a new code base. Please don't consider the above files or try to edit them any longer."),
    ("assistant", "Ok."),
]
AIDER_RULES = "\n\n# *SEARCH/REPLACE block* Rules:\n\nEvery *SEARCH/REPLACE block* must use this format:"


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


def test_a_repeated_message_counts_once(model: ScriptedModel) -> None:
    first = [("user", "MARK [[error: 500 x1]] [[sh: ls]]")]
    ask(model.url, "chat", first)
    ask(model.url, "chat", first)
    ask(model.url, "chat", [*first, ("call", "bash"), ("result", "")])
    done = [*first, ("call", "bash"), ("result", ""), ("assistant", "Done.")]
    ask(model.url, "chat", [*done, ("user", "next")])
    assert (model.count("MARK"), model.count("next"), model.count("never")) == (1, 1, 0)
    ask(model.url, "chat", [*done, ("user", "next"), ("assistant", "."), ("user", "MARK again")])
    assert [arrival.text for arrival in model.arrivals()] == [first[0][1], "next", "MARK again"]
    assert model.count("MARK") == 2


def test_a_withdrawn_message_does_not_duplicate_others(model: ScriptedModel) -> None:
    start = [("user", "one"), ("assistant", ".")]
    ask(model.url, "chat", [*start, ("user", "two")])
    ask(model.url, "chat", [*start, ("user", "two, but better")])
    assert [model.count(text) for text in ("one", "two", "better")] == [1, 2, 1]


def test_sessions_are_distinguished(model: ScriptedModel) -> None:
    for session in ("a", "b"):
        ask(model.url, "anthropic", "same", headers={"X-Claude-Code-Session-Id": session})
    ask(model.url, "responses", "same", extra={"prompt_cache_key": "c"})
    ask(model.url, "chat", [("system", "Working directory: /work/one\nand so on"), ("user", "same")])
    assert [request.session for request in model.requests] == ["a", "b", "c", "/work/one"]
    assert (model.count("same"), model.count("same", "a")) == (4, 1)
    assert model.requests[-1].folder == "/work/one"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<system-reminder>\nToday is Sunday.\n</system-reminder>", None),
        ("<environment_context>\n<cwd>/tmp/x</cwd>\n</environment_context>", None),
        ("<session_context>\nThis is the Gemini CLI.\n</session_context>", None),
        ("<info-msg>\nIt is late.\n</info-msg>", None),
        ("This is the Qwen Code. We are setting up the context for our chat.\nToday's date is …", None),
        ("Tool loaded.", None),
        ("<current_datetime>2026-11-15</current_datetime>\n\nreal words", "real words"),
        ("The user sent a new message while you were working:\nreal\n\nwords\n\nThis is how Claude Code surfaces …", "real\n\nwords"),
        ("  spaces, <b>tags</b> and\n\nlines \n", "  spaces, <b>tags</b> and\n\nlines \n"),
        ("hostile \x1b[201~ \u202e text", "hostile \x1b[201~ \u202e text"),
    ],
)  # fmt: skip
def test_only_typed_text_is_a_message(model: ScriptedModel, content: str, expected: str | None) -> None:
    ask(model.url, "anthropic", [("user", "before"), ("assistant", "."), ("user", content)])
    assert model.requests[-1].user_messages == (("before",) if expected is None else ("before", expected))


def test_aiders_own_text_is_removed(model: ScriptedModel) -> None:
    ask(model.url, "chat", [*AIDER_EXAMPLES, ("user", "Here are summaries of some files present in my git repository.\n"),
                            ("assistant", "Ok."), ("user", "my words" + AIDER_RULES)], tools={})  # fmt: skip
    assert model.requests[-1].user_messages == ("my words",)


def test_turns_are_recognized(model: ScriptedModel) -> None:
    talk = [("user", "[[sh: ls]] [[say: done]]")]
    ask(model.url, "chat", talk)
    (turn,) = model.turns()
    assert turn.ended is None
    ask(model.url, "chat", [*talk, ("call", "bash"), ("result", "")])
    (turn,) = model.turns()
    exchanges = model.exchanges
    assert (turn.began, turn.ended) == (exchanges[0].request.at, exchanges[1].ended)
    ask(model.url, "chat", [*talk, ("assistant", "done"), ("user", "[[error: 500]]")])
    ask(model.url, "chat", [*talk, ("assistant", "done"), ("user", "[[error: 500]]")])
    assert [turn.ended is None for turn in model.turns()] == [False, True]
    ask(model.url, "chat", [*talk, ("assistant", "done"), ("user", "[[error: 500]]"), ("user", "[[say: hi]]")])
    assert [turn.ended for turn in model.turns()][1:] == [model.exchanges[3].ended, model.exchanges[4].ended]


def test_a_timeout_shows_the_exchanges(model: ScriptedModel) -> None:
    ask(model.url, "chat", "hello")
    with pytest.raises(TimeoutError, match="hello"):
        model.wait_for(lambda exchange: exchange.outcome == "failed", timeout=0.05)


def test_exchanges_are_written_to_the_log_file(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    with ScriptedModel(log=log) as model, ThreadPoolExecutor() as pool:
        list(pool.map(lambda number: ask(model.url, "chat", f"[[say: {number}]] «ü»"), range(12)))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(line["reply"]["text"] for line in lines) == sorted(map(str, range(12)))
    assert {line["outcome"] for line in lines} == {"answered"}


def _properties(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


def _todos(text: str, *states: str) -> dict[str, Any]:
    item = {
        "type": "object",
        "properties": {text: {"type": "string"}, "status": {"enum": list(states)}},
        "required": [text, "id"],
    }
    return {"type": "object", "properties": {"todos": {"type": "array", "items": item}}}


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        (
            {"Write": _properties("file_path", "content")},
            ("Write", {"file_path": "/w/a/b.txt", "content": "text\n"}),
        ),
        ({"create": _properties("path", "file_text")}, ("create", {"path": "/w/a/b.txt", "file_text": "text\n"})),
        (
            {"apply_patch": _properties("patchText")},
            ("apply_patch", {"patchText": "*** Begin Patch\n*** Add File: a/b.txt\n+text\n*** End Patch\n"}),
        ),
        ({"bash": _properties("command")}, ("bash", {"command": "mkdir -p a && printf %s 'text\n' > a/b.txt"})),
    ],
)
def test_files_are_written_with_the_agents_own_tool_for_it(
    model: ScriptedModel, tools: dict[str, Any], expected: tuple[str, Any]
) -> None:
    talk = [("system", "Working directory: /w"), ("user", "[[write: a/b.txt|text]]")]
    assert ask(model.url, "chat", talk, tools=tools).calls == (expected,)


def test_a_file_is_read_before_it_is_edited(model: ScriptedModel) -> None:
    tools = {"Read": _properties("path"), "Edit": _properties("path", "old_string", "new_string")}
    talk = [("user", "[[edit: /f|one|two]] [[say: ok]]")]
    assert ask(model.url, "chat", talk, tools=tools).calls == (("Read", {"path": "/f"}),)
    talk += [("call", "Read"), ("result", "one")]
    edit = ("Edit", {"path": "/f", "old_string": "one", "new_string": "two"})
    assert ask(model.url, "chat", talk, tools=tools).calls == (edit,)


@pytest.mark.parametrize("blocks", [True, False])
def test_an_agent_without_tools_gets_files_as_text(model: ScriptedModel, blocks: bool) -> None:
    rules = AIDER_RULES if blocks else "\n\nTo suggest changes to a file you MUST return the entire content"
    got = ask(model.url, "chat", "[[say: Look.]] [[write: f.py|x = 1]] [[say: Done.]]" + rules, tools={})
    body = "<<<<<<< SEARCH\n=======\nx = 1\n>>>>>>> REPLACE\n" if blocks else "x = 1\n"
    assert got.text == f"Look.\nf.py\n```\n{body}```\n\nDone."


def test_the_to_do_list_uses_the_agents_own_tool(model: ScriptedModel) -> None:
    prompt = "[[todo: x one; > two; - three]]"
    ((name, arguments),) = ask(
        model.url, "chat", prompt, tools={"TodoList": _todos("title", "pending", "in_progress", "done")}
    ).calls
    assert name == "TodoList"
    assert arguments["todos"][0] == {"title": "one", "status": "done", "id": "1"}
    assert [step["status"] for step in arguments["todos"]] == ["done", "in_progress", "pending"]
    ((_, arguments),) = ask(model.url, "chat", prompt, tools={"todo__todo_write": _properties("content")}).calls
    assert arguments == {"content": "- [x] one\n- [-] two\n- [ ] three"}
    assert ask(model.url, "chat", prompt).calls == ()


def test_tasks_are_created_and_updated_one_by_one(model: ScriptedModel) -> None:
    """In Claude Code the tools are available after a search, and tasks of earlier turns have numbers."""
    system = "The following deferred tools are now available via ToolSearch. Use it:\nTaskCreate\nTaskUpdate\nWebFetch\n\nBye."
    messages: list[dict[str, Any]] = []
    tool_calls = []
    for prompt in ("[[todo: > one; - two]]", "[[todo: x one; > two; - three]]"):
        messages.append({"role": "user", "content": prompt})
        while True:
            offered = ["Bash", "ToolSearch"]
            if any("ToolSearch" in json.dumps(message) for message in messages):
                offered += ["TaskCreate", "TaskUpdate"]
            tools = [{"name": name, "input_schema": {}} for name in offered]
            answer = ask(model.url, "anthropic", "", extra={"system": system, "messages": messages, "tools": tools})
            if not answer.calls:
                break
            ((name, arguments),) = answer.calls
            tool_calls.append((name, arguments.get("subject") or (arguments.get("taskId"), arguments.get("status"))))
            use = {"type": "tool_use", "id": "t", "name": name, "input": arguments}
            messages.append({"role": "assistant", "content": [use]})
            messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]})
        messages.append({"role": "assistant", "content": "Done."})
    assert tool_calls == [
        ("ToolSearch", (None, None)),
        ("TaskCreate", "one"),
        ("TaskCreate", "two"),
        ("TaskUpdate", ("1", "in_progress")),
        ("TaskCreate", "three"),
        ("TaskUpdate", ("1", "completed")),
        ("TaskUpdate", ("2", "in_progress")),
    ]
