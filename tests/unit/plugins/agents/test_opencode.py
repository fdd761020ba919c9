"""OpenCode: how it is started, what is heard of it, and how it is told something."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Temporary, UsageError
from agent_orchestrator.plugins.agents.opencode import plugin
from agent_orchestrator.plugins.agents.opencode.plugin import OpenCode
from agent_orchestrator.plugins.agents.opencode.server_events import Ears
from agent_orchestrator.plugins.agents.shared.http import Loopback
from agent_orchestrator.protocols import (
    Activity,
    AgentContext,
    AgentRun,
    Answers,
    Delivered,
    Delivers,
    Headless,
    Heard,
    Held,
    Listens,
    Permission,
)
from agent_orchestrator.protocols import reports as r
from tests.unit.plugins.agents.opencode import HOME_PAGE, SESSION, Server, a_run, record, recorded, serving

pytestmark = pytest.mark.anyio

ACTIVE, IDLE = r.ActivityReport(Activity.ACTIVE), r.ActivityReport(Activity.IDLE)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def agent() -> OpenCode:
    return OpenCode({}, LocalHost())


@pytest.fixture
def context(tmp_path: Path) -> AgentContext:
    for name in ("workspace", "private", "bin"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "opencode"
    program.write_text("#!/bin/sh\necho 1.18.33\n")
    program.chmod(0o755)
    return AgentContext(
        session="app-fix",
        project="app",
        workspace=tmp_path / "workspace",
        branch="feature/fix",
        base="main",
        prompt="Fix it\n\nBe kind.",
        task="Fix it",
        system="Be kind.",
        commands=("make test", "ruff check . && mypy"),
        task_file=tmp_path / "private" / "task.md",
        private=tmp_path / "private",
        env={"PATH": f"{tmp_path}/bin:/bin:/usr/bin", "AO_SPOOL": "spool.1.jsonl"},
    )


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as standing_in:
        yield standing_in


def test_it_can_all_that_there_is(agent: OpenCode) -> None:
    assert all(isinstance(agent, ability) for ability in (Listens, Delivers, Answers, Headless))


# -- start ---------------------------------------------------------------------------------------------------------------


async def test_the_task_is_handed_over_and_the_rules_are_a_file(agent: OpenCode, context: AgentContext) -> None:
    launch = await agent.launch(context)
    assert launch.paste == "Fix it" and launch.conversation is None
    assert launch.argv[1:] == ("--port", launch.memo["port"], "--hostname", "127.0.0.1")
    content = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])
    assert [Path(path).read_text() for path in content["instructions"]] == ["Be kind."]


async def test_the_password_is_told_to_the_agent_alone(agent: OpenCode, context: AgentContext) -> None:
    launch = await agent.launch(context)
    password = launch.env["OPENCODE_SERVER_PASSWORD"]
    assert len(password) >= 30
    assert password not in " ".join([*launch.argv, *launch.memo.values()])
    assert (context.private / "opencode.json").stat().st_mode & 0o777 == 0o600


async def test_the_same_launch_has_the_same_port_and_the_next_another(agent: OpenCode, context: AgentContext) -> None:
    first, again = await agent.launch(context), await agent.launch(context)
    later = await agent.launch(replace(context, resume="", env={**context.env, "AO_SPOOL": "spool.2.jsonl"}))
    secret = "OPENCODE_SERVER_PASSWORD"
    assert (first.memo["port"], first.env[secret]) == (again.memo["port"], again.env[secret])
    assert first.memo["port"] != later.memo["port"] and first.env[secret] != later.env[secret]


async def test_a_conversation_is_continued_with_the_message_it_is_started_for(
    agent: OpenCode, context: AgentContext
) -> None:
    (context.private / "opencode.json").write_text(json.dumps({"conversation": SESSION}))
    launch = await agent.launch(replace(context, resume=SESSION, message="go on"))
    assert launch.argv[-2:] == ("--session", SESSION) and launch.conversation == SESSION
    assert launch.paste == "go on" and "OPENCODE_CONFIG_CONTENT" in launch.env
    assert (await agent.launch(replace(context, resume=SESSION))).paste is None


async def test_a_conversation_begun_elsewhere_is_continued_here_in_a_copy(
    agent: OpenCode, context: AgentContext, server: Server
) -> None:
    launch = await agent.launch(replace(context, resume="ses_hand", message="go on"))
    assert (
        "--session" not in launch.argv and launch.conversation is None and launch.env["PWD"] == str(context.workspace)
    )
    known = json.loads((context.private / "opencode.json").read_text())
    server.password, server.session = known["password"], {"id": SESSION, "directory": "/elsewhere"}
    run = replace(a_run(context.private, server, "ses_hand"), workspace=context.workspace)
    assert isinstance(await agent.deliver(run, "m-1", "go on", interrupt=False), Held), "it would work elsewhere"
    assert not server.messages
    server.session = {"id": SESSION, "directory": str(context.workspace)}
    for message in ("m-1", "m-2"):
        assert await agent.deliver(run, message, "go on", interrupt=False) == Delivered()
    assert {one["info"]["sessionID"] for one in server.messages} == {SESSION}
    assert "/session/ses_hand/prompt_async" not in server.paths()
    later = replace(context, resume=SESSION, env={**context.env, "AO_SPOOL": "spool.2.jsonl"})
    assert (await agent.launch(later)).argv[-2:] == ("--session", SESSION)


async def test_one_that_ended_before_it_was_heard_continues_its_conversation(
    agent: OpenCode, context: AgentContext, server: Server
) -> None:
    await agent.launch(context)
    run = replace(a_run(context.private, server, None), memo={"port": str(server.port), "model": "", "agent": ""})
    server.password = json.loads((context.private / "opencode.json").read_text())["password"]
    assert await agent.deliver(run, "m-1", "Fix it", interrupt=False) == Delivered()
    later = replace(context, resume="", env={**context.env, "AO_SPOOL": "spool.2.jsonl"})
    assert (await agent.launch(later)).conversation == SESSION
    fresh = replace(later, resume=None, env={**context.env, "AO_SPOOL": "spool.3.jsonl"})
    assert (await agent.launch(fresh)).conversation is None


async def test_a_model_is_named_with_its_provider(agent: OpenCode, context: AgentContext) -> None:
    launch = await agent.launch(replace(context, model="openai/gpt-5"))
    assert json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])["model"] == "openai/gpt-5"
    with pytest.raises(UsageError, match="provider/model"):
        await agent.launch(replace(context, model="gpt-5"))


async def test_what_the_user_has_in_the_variable_is_kept(agent: OpenCode, context: AgentContext) -> None:
    own = {"instructions": ["mine.md"], "theme": "dark"}
    launch = await agent.launch(replace(context, env={**context.env, "OPENCODE_CONFIG_CONTENT": json.dumps(own)}))
    content = json.loads(launch.env["OPENCODE_CONFIG_CONTENT"])
    assert content["theme"] == "dark" and content["instructions"][0] == "mine.md" and len(content["instructions"]) == 2
    with pytest.raises(UsageError, match="OPENCODE_CONFIG_CONTENT"):
        await agent.launch(replace(context, env={**context.env, "OPENCODE_CONFIG_CONTENT": "// no"}))


OWN_RULES = {"*": "allow", "edit": "ask", "bash": {"rm *": "deny", "*": "allow"}, "webfetch": "allow"}


def decided(rules: Mapping[str, Any], tool: str, what: str) -> str:
    """As OpenCode 1.18 decides: the last rule that matches; ours are merged behind the user's, by key."""
    merged = {**OWN_RULES, **{key: value for key, value in rules.items() if key not in OWN_RULES}}
    merged |= {key: rules[key] for key in OWN_RULES if key in rules}
    found = "ask"
    for key, rule in merged.items():
        for pattern, action in {"*": rule}.items() if isinstance(rule, str) else rule.items():
            if _matches(tool, key) and _matches(what, pattern):
                found = str(action)
    return found


def _matches(text: str, pattern: str) -> bool:
    expression = re.sub(r"[.+^${}()|\[\]\\]", r"\\\g<0>", pattern).replace("*", ".*").replace("?", ".")
    if expression.endswith(" .*"):
        expression = expression[:-3] + "( .*)?"
    return re.fullmatch(expression, text, re.DOTALL) is not None


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ("default", {"edit a.py": "ask", "bash git add a": "ask", "read a.py": "allow", "mcp_delete x": "ask"}),
        ("plan", {"edit a.py": "deny", "bash ls": "ask", "read a.py": "allow", "webfetch http://x": "ask"}),
        (
            "auto-edit",
            {
                "edit a.py": "allow",
                "bash git add a": "ask",
                "bash git commit -m 'x y'": "ask",
                "bash git push": "ask",
                "bash make test": "allow",
                "bash make test -k x": "ask",
                "bash make testing": "ask",
                "bash mypy": "ask",
                "bash rm -rf x": "ask",
                "bash curl x": "ask",
                "external_directory /etc/*": "ask",
                "mcp_delete x": "ask",
                "read .env": "ask",
                "todowrite *": "allow",
                "question *": "allow",
            },
        ),
        (
            "full",
            {"edit a.py": "allow", "bash rm -rf x": "allow", "external_directory /*": "allow", "mcp_x y": "allow"},
        ),
    ],
)
async def test_permissions(
    agent: OpenCode, context: AgentContext, permissions: str, expected: Mapping[str, str]
) -> None:
    launch = await agent.launch(replace(context, permissions=permissions))
    rules = json.loads(launch.env["OPENCODE_PERMISSION"])
    assert {request: decided(rules, *request.split(" ", 1)) for request in expected} == expected
    assert ("--agent" in launch.argv) == (permissions == "plan")


async def test_with_nobody_to_ask_it_may_commit(agent: OpenCode, context: AgentContext) -> None:
    turn = agent.turn(replace(context, mode="headless"), "do it", None)
    rules = json.loads(turn.env["OPENCODE_PERMISSION"])
    for command in ("git status", "git add src/a.py b", "git add -A", "git commit -m 'x y'", 'git commit -am "x"'):
        assert decided(rules, "bash", command) == "allow", command
    for command in (
        "git add --pathspec-from-file=/etc/passwd",
        'git add --pat"h"spec-from-file=/etc/passwd',
        "git add x > /etc/y",
        "git commit -m x > y",
        "git commit -F /etc/passwd",
        "git commit -m x --pathspec-from-file=y",
        "git commit -m $(id)",
        "git diff --output=x",
        "git push",
    ):
        assert decided(rules, "bash", command) == "ask", command


async def test_what_a_person_allowed_for_good_is_not_asked(agent: OpenCode, context: AgentContext) -> None:
    allowed = (Permission("bash", "touch x"), Permission("webfetch", "https://example.invalid"))
    launch = await agent.launch(replace(context, permissions="default", allowed=allowed))
    rules = json.loads(launch.env["OPENCODE_PERMISSION"])
    assert decided(rules, "bash", "touch x") == "allow" and decided(rules, "bash", "touch y") == "ask"
    assert decided(rules, "webfetch", "https://example.invalid") == "allow"
    assert decided(rules, "webfetch", "https://other.invalid") == "ask"


# -- hearing -------------------------------------------------------------------------------------------------------------


def heard_in(section: str, ears: Ears | None = None) -> list[Heard]:
    ears = ears or Ears(None, 0, {})
    return [heard for event in recorded(section) for heard in ears.hear(event)]


def told(heard: Iterable[Heard]) -> list[r.Report]:
    """What would be recorded: the same state again, and the same key again, is nothing new."""
    found: list[r.Report] = []
    keys: set[tuple[str, int, int]] = set()
    state: r.Report | None = None
    for one in heard:
        key = (one.place, one.start, one.end)
        if one.place and key in keys:
            continue
        keys.add(key)
        for report in one.reports:
            if isinstance(report, r.ActivityReport) and report == state:
                continue
            if not isinstance(report, r.UsageReport | r.TookReport | r.ProgressReport | r.ConversationReport):
                state = report
            found.append(report)
    return found


def of(kind: type[Any], heard: Iterable[Heard]) -> list[Any]:
    return [report for report in told(heard) if isinstance(report, kind)]


def states(heard: Iterable[Heard]) -> list[r.Report]:
    kinds = (r.ActivityReport, r.TurnReport, r.PermissionReport, r.AskReport, r.LimitReport)
    return [report for report in told(heard) if isinstance(report, kinds)]


def test_a_turn_from_its_message_to_its_last_words() -> None:
    heard = heard_in("turn")
    assert told(heard)[0] == r.ConversationReport(SESSION)
    assert states(heard) == [ACTIVE, r.TurnReport("Hello.")]
    assert of(r.TookReport, heard) == [r.TookReport("once only [[say: Hello.]]")]
    usage = r.UsageReport("scripted/gpt-5", input=1200, output=50, cache_read=300, usd=0.00133)
    assert of(r.UsageReport, heard) == [usage]


def test_the_same_message_again_is_nothing_new() -> None:
    ears = Ears(None, 0, {})
    heard = heard_in("turn", ears)
    again = [one for event in recorded("again")[1:] for one in ears.hear(event)]
    assert states([*heard, *again]) == [ACTIVE, r.TurnReport("Hello."), ACTIVE, IDLE]
    assert of(r.TookReport, [*heard, *again]) == of(r.TookReport, heard)
    assert of(r.UsageReport, [*heard, *again]) == of(r.UsageReport, heard)


def test_a_permission_is_asked_and_given() -> None:
    heard = heard_in("permission")
    asked = of(r.PermissionReport, heard)
    assert [(one.tool, one.command) for one in asked] == [("bash", "touch other.txt")]
    assert asked[0].request.startswith("per_")
    assert states(heard) == [ACTIVE, asked[0], ACTIVE, r.TurnReport("Done.")]
    assert len(of(r.UsageReport, heard)) == 4


@pytest.mark.parametrize(("section", "words"), [("denied with a word", "Then not."), ("denied", "")])
def test_a_permission_is_denied(section: str, words: str) -> None:
    heard = heard_in(section)
    assert states(heard) == [ACTIVE, *of(r.PermissionReport, heard), ACTIVE, r.TurnReport(words)]


def test_its_to_do_list_is_progress() -> None:
    assert of(r.ProgressReport, heard_in("todo")) == [r.ProgressReport(1, 3, "two")]


@pytest.mark.parametrize("section", ["interrupted", "interrupted in a retry"])
def test_an_interruption_is_no_end_of_the_turn(section: str) -> None:
    found = [one for one in states(heard_in(section)) if one != ACTIVE]
    assert found[-1] == r.ActivityReport(Activity.INTERRUPTED)
    assert not of(r.TurnReport, heard_in(section))


def test_a_turn_that_is_stopped_for_a_message_is_not_shown_as_interrupted() -> None:
    assert states(heard_in("interrupted", Ears(None, 0, {}, going_on=lambda: True))) == [ACTIVE]


def test_an_error_that_is_tried_again() -> None:
    heard = heard_in("429")
    retrying = r.ActivityReport(Activity.RETRYING, "scripted error 429")
    assert states(heard) == [ACTIVE, retrying, ACTIVE, retrying, ACTIVE, r.TurnReport("at last")]


def test_an_error_that_ends_the_turn_needs_a_person() -> None:
    assert states(heard_in("401"))[-1] == r.ActivityReport(Activity.WAITING_INPUT, "scripted error 401 (HTTP 401)")


def test_a_message_that_cannot_even_be_begun_with_needs_a_person() -> None:
    found = states(heard_in("no agent"))
    assert isinstance(found[-1], r.ActivityReport) and found[-1].state == Activity.WAITING_INPUT
    assert "Agent not found" in found[-1].detail


def test_a_usage_limit_has_its_reset() -> None:
    status = next(
        e["properties"]["status"] for e in recorded("limit") if "next" in str(e.get("properties", {}).get("status"))
    )
    ahead = datetime.now(UTC).timestamp() + 3600
    ears = Ears(SESSION, 0, {})
    limit = [one for heard in ears.status({**status, "next": ahead * 1000}) for one in heard.reports]
    assert limit == [r.LimitReport(datetime.fromtimestamp(ahead, UTC))]


def test_a_question_is_asked_and_answered() -> None:
    heard = heard_in("question")
    asked = r.AskReport("Which database?\n- sqlite: small")
    assert states(heard) == [ACTIVE, asked, ACTIVE, r.TurnReport("ok")]
    assert r.TookReport("use duckdb") in told(heard)


def test_a_subagents_turn_is_not_the_agents_but_what_it_spends_counts() -> None:
    heard = heard_in("subagent")
    assert states(heard) == [ACTIVE, r.TurnReport("main done")]
    assert len(of(r.TookReport, heard)) == 1
    assert len(of(r.UsageReport, heard)) == 3


def test_messages_that_came_while_it_was_busy_are_taken_up_by_the_next_answer() -> None:
    ears = Ears(SESSION, 0, {})
    heard: list[Heard] = []
    for key, role, created in (
        ("msg_1", "user", 1),
        ("msg_2", "assistant", 2),
        ("msg_3", "user", 3),
        ("msg_4", "user", 4),
    ):
        info = {"id": key, "role": role, "sessionID": SESSION, "time": {"created": created}}
        heard += ears.message(info)
        ears.part({"id": f"prt{key}", "messageID": key, "type": "text", "text": f"text of {key}"})
        ears.part({"id": f"pra{key}", "messageID": key, "type": "text", "text": "a file", "synthetic": True})
    assert of(r.TookReport, heard) == [r.TookReport("text of msg_1")]
    heard += ears.message({"id": "msg_5", "role": "assistant", "sessionID": SESSION, "time": {"created": 5}})
    assert of(r.TookReport, heard) == [r.TookReport(f"text of msg_{number}") for number in (1, 3, 4)]


def _hear(ears: Ears, kind: str, **properties: Any) -> list[r.Report]:
    return [report for heard in ears.hear({"type": kind, "properties": properties}) for report in heard.reports]


def test_a_dialog_stays_open_whatever_else_goes_on() -> None:
    ears = Ears(SESSION, 0, {})
    for number in (1, 2):
        _hear(ears, "permission.asked", id=f"per_{number}", sessionID=SESSION, permission="bash", patterns=["x"])
    assert _hear(ears, "session.status", sessionID=SESSION, status={"type": "busy"}) == []
    second = r.PermissionReport("bash", "x", request="per_2")
    assert _hear(ears, "permission.replied", sessionID=SESSION, requestID="per_1", reply="once") == [second]
    assert _hear(ears, "permission.replied", sessionID=SESSION, requestID="per_2", reply="once") == [ACTIVE]


def test_an_end_is_told_once() -> None:
    ears = Ears(None, 0, {})
    heard_in("401", ears)
    assert _hear(ears, "session.status", sessionID=SESSION, status={"type": "idle"}) == []


def test_only_a_conversation_of_its_own_takes_the_session_along() -> None:
    ears = Ears(SESSION, 0, {})
    assert _hear(ears, "session.created", info={"id": "ses_2", "parentID": "ses_9"}) == []
    assert _hear(ears, "session.created", info={"id": "ses_3"}) == [r.ConversationReport("ses_3")]
    assert _hear(ears, "session.status", sessionID=SESSION, status={"type": "busy"}) == []
    assert _hear(ears, "session.status", sessionID="ses_3", status={"type": "busy"}) == [ACTIVE]


def test_a_message_that_is_stored_again_in_its_turn_is_not_taken_up_twice() -> None:
    ears = Ears(SESSION, 0, {})
    user = {"id": "msg_1", "role": "user", "sessionID": SESSION, "time": {"created": 1}}
    part = {"id": "prt_1", "messageID": "msg_1", "type": "text", "text": "once"}
    taken: list[Heard] = []
    for created in (2, 3):
        taken += ears.message(user)
        ears.part(part)
        answer = {"id": f"msg_{created}", "role": "assistant", "sessionID": SESSION, "time": {"created": created}}
        taken += ears.message(answer)
    assert of(r.TookReport, taken) == [r.TookReport("once")]


@pytest.mark.parametrize("section", ["turn", "permission", "denied", "subagent"])
async def test_what_was_missed_is_told_under_the_same_keys(server: Server, tmp_path: Path, section: str) -> None:
    events = recorded(section)
    server.messages = record(events)
    server.children = [
        event["properties"]["info"]
        for event in events
        if event["type"] == "session.created" and "parentID" in event["properties"]["info"]
    ]
    live = {(one.place, one.start, one.end): one.reports for one in heard_in(section) if one.place}
    missed = [one async for one in _missed(server, tmp_path)]
    assert {(one.place, one.start, one.end): one.reports for one in missed if one.place} == live


async def _missed(server: Server, private: Path, **more: Any) -> AsyncIterator[Heard]:
    run = a_run(private, server, **more)
    ears = Ears(run.conversation, float(run.memo["since"]), run.cursors, awaits=not run.memo["told"])
    async for heard in plugin._missed(Loopback(server.port, "opencode", server.password), ears):
        yield heard


async def test_what_was_told_before_is_not_told_again(server: Server, tmp_path: Path) -> None:
    server.messages = record(recorded("turn"))
    before = [one async for one in _missed(server, tmp_path)]
    cursors = {one.place: one.end + 1 for one in before if one.place}
    assert [one async for one in _missed(server, tmp_path, cursors=cursors)] == []


async def test_a_resumed_one_rests_and_what_it_spent_elsewhere_is_not_counted(server: Server, tmp_path: Path) -> None:
    server.messages = record(recorded("interrupted"))
    later = {"since": str(datetime(2027, 1, 1, tzinfo=UTC).timestamp())}
    assert told([one async for one in _missed(server, tmp_path, memo=later)]) == [IDLE]
    expecting = {**later, "told": ""}
    assert [one async for one in _missed(server, tmp_path, memo=expecting)] == []


async def test_a_dialog_that_opened_while_nobody_listened_is_seen(server: Server, tmp_path: Path) -> None:
    server.status = {SESSION: {"type": "busy"}}
    server.permissions = [
        {"id": "per_1", "sessionID": SESSION, "permission": "edit", "patterns": ["a.py"], "metadata": {}}
    ]
    assert states([one async for one in _missed(server, tmp_path)])[-1] == r.PermissionReport(
        "edit", "a.py", request="per_1"
    )


async def test_it_listens_until_the_agent_has_ended_whatever_becomes_of_the_stream(
    agent: OpenCode, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "STARTING_PAUSE", 0.01)
    run = a_run(tmp_path, server, None)
    events = recorded("turn")
    heard: list[Heard] = []
    task = asyncio.create_task(_listen(agent, run, heard))
    for number, event in enumerate(events):
        server.events.put_nowait(event)
        if number == len(events) // 2:
            await _until(lambda: server.events.empty())
            server.messages = record(events[: number + 1])
            server.status = {SESSION: {"type": "busy"}}
            server.events.put_nowait(None)  # the stream is cut
    await _until(lambda: bool(of(r.TurnReport, heard)))
    run.ended.set()
    server.events.put_nowait(None)
    await asyncio.wait_for(task, 60)
    assert states(heard) == [IDLE, ACTIVE, r.TurnReport("Hello.")]
    assert len(of(r.TookReport, heard)) == 1 and len(of(r.UsageReport, heard)) == 1


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def test_a_message_that_a_stopped_turn_left_behind_is_given_again(
    agent: OpenCode, server: Server, tmp_path: Path
) -> None:
    run = a_run(tmp_path, server)
    assert await agent.deliver(run, "m-1", "meanwhile", interrupt=False) == Delivered()
    typed = {"id": "msg_typed", "sessionID": SESSION, "role": "user", "time": {"created": 2}}
    server.messages.append({"info": typed, "parts": []})
    posted = f"/session/{SESSION}/prompt_async"
    heard: list[Heard] = []
    task = asyncio.create_task(_listen(agent, run, heard))
    await _until(lambda: server.paths().count(posted) == 2)
    assert len({body["messageID"] for _, path, body in server.asked if path == posted}) == 1
    for status in ("busy", "idle"):
        properties = {"sessionID": SESSION, "status": {"type": status}}
        server.events.put_nowait({"type": "session.status", "properties": properties})
    await _until(lambda: len(heard) == 3)
    run.ended.set()
    server.events.put_nowait(None)
    await asyncio.wait_for(task, 60)
    assert server.paths().count(posted) == 2, "it is given again once, not for ever"


async def _listen(agent: OpenCode, run: AgentRun, heard: list[Heard]) -> None:
    async for one in agent.listen(run):
        heard.append(one)  # noqa: PERF401 - looked at while it grows


# -- telling -------------------------------------------------------------------------------------------------------------


async def test_a_message_is_one_message_however_often_it_is_handed_over(
    agent: OpenCode, server: Server, tmp_path: Path
) -> None:
    run = a_run(tmp_path, server)
    for _ in range(3):
        assert await agent.deliver(run, "m-1", "--help\n/init 日本", interrupt=False) == Delivered()
    assert [one["parts"][0]["text"] for one in server.messages] == ["--help\n/init 日本"]
    assert server.paths() == [f"/session/{SESSION}/prompt_async"]
    assert await agent.deliver(run, "m-2", "another", interrupt=False) == Delivered()
    assert [one["info"]["id"] for one in server.messages] == sorted(one["info"]["id"] for one in server.messages)


async def test_one_that_was_accepted_and_lost_is_handed_over_again_under_its_id(
    agent: OpenCode, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "STORED_WITHIN", 0.1)
    run, server.forgets = a_run(tmp_path, server), 1
    assert isinstance(await agent.deliver(run, "m-1", "text", interrupt=False), Held)
    assert await agent.deliver(run, "m-1", "text", interrupt=False) == Delivered()
    ids = {body["messageID"] for _, path, body in server.asked if path.endswith("prompt_async")}
    assert len(ids) == 1 and len(server.messages) == 1


async def test_the_first_message_begins_one_conversation_and_shows_it(
    agent: OpenCode, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "SHOWN_TRIES", 1)
    blank = a_run(tmp_path, server, None, "\n \n")
    assert isinstance(await agent.deliver(blank, "m-1", "text", interrupt=False), Held), "nothing is shown yet"
    run = a_run(tmp_path, server, None, HOME_PAGE, memo={"model": "openai/gpt-5", "agent": "plan"})
    for message in ("m-1", "m-2"):
        assert await agent.deliver(run, message, "text", interrupt=False) == Delivered()
    assert server.paths().count("/session") == 1
    assert ("POST", "/tui/select-session", {"sessionID": SESSION}) in server.asked
    body = next(body for _, path, body in server.asked if path.endswith("prompt_async"))
    assert body["agent"] == "plan" and body["model"] == {"providerID": "openai", "modelID": "gpt-5"}


async def test_what_a_person_has_chosen_in_the_terminal_stays(agent: OpenCode, server: Server, tmp_path: Path) -> None:
    server.session = {"id": SESSION, "agent": "build", "model": {"id": "other", "providerID": "p"}}
    run = a_run(tmp_path, server, memo={"model": "openai/gpt-5", "agent": "plan"})
    await agent.deliver(run, "m-1", "text", interrupt=False)
    body = next(body for _, path, body in server.asked if path.endswith("prompt_async"))
    assert body["agent"] == "build" and "model" not in body


async def test_an_interrupting_message_stops_the_turn_first(agent: OpenCode, server: Server, tmp_path: Path) -> None:
    run = a_run(tmp_path, server)
    await agent.deliver(run, "m-1", "instead", interrupt=True)
    assert server.paths() == [f"/session/{SESSION}/abort", f"/session/{SESSION}/prompt_async"]
    assert not plugin._door(tmp_path).interrupting


@pytest.mark.parametrize(
    ("count", "text", "answers"),
    [
        (1, "duckdb,\nplease", [["duckdb,\nplease"]]),
        (2, "duckdb\nyes", [["duckdb"], ["yes"]]),
        (2, "as you like", [["as you like"], []]),
    ],
)
async def test_a_question_is_answered_once(
    agent: OpenCode, server: Server, tmp_path: Path, count: int, text: str, answers: list[list[str]]
) -> None:
    run = a_run(tmp_path, server)
    server.questions = [{"id": "que_1", "sessionID": SESSION, "questions": [{"question": "?"}] * count}]
    for _ in range(2):
        assert await agent.deliver(run, "m-1", text, interrupt=False) == Delivered()
    assert [body for method, path, body in server.asked if (method, path) == ("POST", "/question/que_1/reply")] == [
        {"answers": answers}
    ]
    assert not server.messages, "and not told once more as a message"


async def test_while_it_does_not_answer_a_message_is_held(
    agent: OpenCode, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held("opencode does not answer yet")
    nobody = a_run(tmp_path, server, memo={"port": "1"})
    assert await agent.deliver(nobody, "m-1", "text", interrupt=False) == held
    server.password = "another"
    assert await agent.deliver(a_run(tmp_path, server), "m-1", "text", interrupt=False) == held


@pytest.mark.parametrize(("decision", "reply"), [("allow", "once"), ("always", "once"), ("deny", "reject")])
async def test_a_permission_is_answered_by_its_id(
    agent: OpenCode, server: Server, tmp_path: Path, decision: str, reply: str
) -> None:
    run = a_run(tmp_path, server)
    server.permissions = [{"id": "per_1"}]
    assert await agent.answer(run, Permission("bash", "rm x", request="per_1"), decision, "why") == ()
    expected = {"reply": reply, "message": "why"} if decision == "deny" else {"reply": reply}
    assert server.asked == [("POST", "/permission/per_1/reply", expected)]


async def test_a_permission_that_was_answered_in_the_terminal_is_answered(
    agent: OpenCode, server: Server, tmp_path: Path
) -> None:
    run = a_run(tmp_path, server)
    assert await agent.answer(run, Permission("bash", "rm x", request="per_9"), "allow", "") == ()
    assert await agent.answer(run, Permission("bash", "rm x"), "allow", "") is None


async def test_a_server_that_does_not_answer_is_not_waited_for(server: Server) -> None:
    door, server.silent = Loopback(server.port, "opencode", server.password), {"/session/status", "/event"}
    with pytest.raises(Temporary):
        await door.call("GET", "/session/status", within=0.05)
    with pytest.raises(Temporary):
        async with contextlib.aclosing(door.events("/event", first=0.05, silence=60)) as events:
            await anext(events)


# -- without a terminal --------------------------------------------------------------------------------------------------


def test_a_turn_reads_its_prompt_from_standard_input(agent: OpenCode, context: AgentContext) -> None:
    turn = agent.turn(replace(context, model="openai/gpt-5", permissions="plan"), "--help", SESSION)
    assert turn.stdin == "--help" and "--help" not in turn.argv
    assert turn.argv[1:] == (
        *("run", "--format", "json", "--model=openai/gpt-5", "--agent", "plan", "--session", SESSION),
    )
    assert "OPENCODE_PERMISSION" in turn.env


def test_a_model_is_no_option(agent: OpenCode, context: AgentContext) -> None:
    """A repository's configuration names the model without trust; `--attach` has all that is said sent to another's server."""
    model = "--attach=http://evil.example/"
    turn = agent.turn(replace(context, model=model), "x", None)
    assert model not in turn.argv and f"--model={model}" in turn.argv


STEP = {"tokens": {"total": 1550, "input": 1200, "output": 50, "reasoning": 0, "cache": {"write": 0, "read": 300}}}
RUN: list[dict[str, Any]] = [
    {"type": "step_start", "part": {"type": "step-start"}},
    {
        "type": "tool_use",
        "part": {
            "type": "tool",
            "tool": "bash",
            "state": {
                "status": "completed",
                "input": {"command": "git add a"},
                "output": "(no output)",
                "title": "git add a",
            },
        },
    },
    {"type": "step_finish", "part": {"reason": "tool-calls", **STEP, "cost": 0.00133}},
    {"type": "step_start", "part": {"type": "step-start"}},
    {"type": "text", "part": {"type": "text", "text": "Done one"}},
    {"type": "step_finish", "part": {"reason": "stop", **STEP, "cost": 0.00133}},
]


def test_a_turns_lines_are_shown_and_reported(agent: OpenCode) -> None:
    lines = [agent.read_turn(json.dumps({"sessionID": SESSION, "timestamp": 1, **event})) for event in RUN]
    reports = [report for line in lines for report in line.reports]
    usage = r.UsageReport("", input=1200, output=50, cache_read=300, usd=0.00133)
    assert [one for one in reports if isinstance(one, r.UsageReport)] == [usage, usage]
    assert reports[0] == r.ConversationReport(SESSION) and reports[-1] == r.TurnReport("Done one")
    assert [line.show for line in lines if line.show] == ["bash: git add a\n(no output)", "Done one"]
    assert agent.read_turn("permission requested: bash (ls); auto-rejecting").show.startswith("permission requested")


def test_a_turn_that_fails_says_so(agent: OpenCode) -> None:
    error = {"name": "APIError", "data": {"message": "no such key", "statusCode": 401}}
    line = agent.read_turn(json.dumps({"type": "error", "sessionID": SESSION, "error": error}))
    assert line.reports == (r.ActivityReport(Activity.WAITING_INPUT, "no such key (HTTP 401)"),)
    assert "no such key" in line.show
