"""Delivery of messages and answers through OpenCode's server."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.agents.opencode import connection, server_calls
from agent_orchestrator.plugins.agents.opencode.plugin import OpenCode
from agent_orchestrator.plugins.agents.shared.loopback_client import LoopbackClient
from agent_orchestrator.protocols import (
    Delivered,
    NotReady,
    Permission,
)
from tests.unit.plugins.agents.opencode.server import HOME_PAGE, SESSION, SimulatedOpenCode, make_launch

pytestmark = pytest.mark.anyio


async def test_a_message_delivered_repeatedly_is_one_message(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path
) -> None:
    run = make_launch(tmp_path, server)
    for _ in range(3):
        assert await agent.deliver(run, "m-1", "--help\n/init 日本", interrupt=False) == Delivered()
    assert [message["parts"][0]["text"] for message in server.messages] == ["--help\n/init 日本"]
    assert server.paths() == [f"/session/{SESSION}/prompt_async"]
    assert await agent.deliver(run, "m-2", "another", interrupt=False) == Delivered()
    assert [message["info"]["id"] for message in server.messages] == sorted(
        message["info"]["id"] for message in server.messages
    )


async def test_a_lost_message_is_delivered_again_under_its_id(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_calls, "STORE_TIMEOUT", 0.1)
    run, server.forgets = make_launch(tmp_path, server), 1
    assert isinstance(await agent.deliver(run, "m-1", "text", interrupt=False), NotReady)
    assert await agent.deliver(run, "m-1", "text", interrupt=False) == Delivered()
    ids = {body["messageID"] for _, path, body in server.requests if path.endswith("prompt_async")}
    assert len(ids) == 1 and len(server.messages) == 1


async def test_the_first_message_begins_one_conversation_and_shows_it(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_calls, "MAX_SHOW_ATTEMPTS", 1)
    blank = make_launch(tmp_path, server, None, "\n \n")
    assert isinstance(await agent.deliver(blank, "m-1", "text", interrupt=False), NotReady), "nothing is shown yet"
    run = make_launch(tmp_path, server, None, HOME_PAGE, memo={"model": "openai/gpt-5", "agent": "plan"})
    for message in ("m-1", "m-2"):
        assert await agent.deliver(run, message, "text", interrupt=False) == Delivered()
    assert server.paths().count("/session") == 1
    assert ("POST", "/tui/select-session", {"sessionID": SESSION}) in server.requests
    body = next(body for _, path, body in server.requests if path.endswith("prompt_async"))
    assert body["agent"] == "plan" and body["model"] == {"providerID": "openai", "modelID": "gpt-5"}


async def test_a_conversation_selected_by_a_person_stays_selected(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path
) -> None:
    server.session = {"id": SESSION, "agent": "build", "model": {"id": "other", "providerID": "p"}}
    run = make_launch(tmp_path, server, memo={"model": "openai/gpt-5", "agent": "plan"})
    await agent.deliver(run, "m-1", "text", interrupt=False)
    body = next(body for _, path, body in server.requests if path.endswith("prompt_async"))
    assert body["agent"] == "build" and "model" not in body


async def test_an_interrupting_message_stops_the_turn_first(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path
) -> None:
    run = make_launch(tmp_path, server)
    await agent.deliver(run, "m-1", "instead", interrupt=True)
    assert server.paths() == [f"/session/{SESSION}/abort", f"/session/{SESSION}/prompt_async"]
    assert not connection.load_connection(tmp_path).interrupting


@pytest.mark.parametrize(
    ("count", "text", "answers"),
    [
        (1, "duckdb,\nplease", [["duckdb,\nplease"]]),
        (2, "duckdb\nyes", [["duckdb"], ["yes"]]),
        (2, "as you like", [["as you like"], []]),
    ],
)
async def test_a_question_is_answered_once(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path, count: int, text: str, answers: list[list[str]]
) -> None:
    run = make_launch(tmp_path, server)
    server.questions = [{"id": "que_1", "sessionID": SESSION, "questions": [{"question": "?"}] * count}]
    for _ in range(2):
        assert await agent.deliver(run, "m-1", text, interrupt=False) == Delivered()
    assert [body for method, path, body in server.requests if (method, path) == ("POST", "/question/que_1/reply")] == [
        {"answers": answers}
    ]
    assert not server.messages, "and not told once more as a message"


async def test_a_message_is_held_while_the_server_does_not_answer(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = NotReady("opencode does not answer yet")
    no_server = make_launch(tmp_path, server, memo={"port": "1"})
    assert await agent.deliver(no_server, "m-1", "text", interrupt=False) == held
    server.password = "another"
    assert await agent.deliver(make_launch(tmp_path, server), "m-1", "text", interrupt=False) == held


@pytest.mark.parametrize(("decision", "reply"), [("allow", "once"), ("always", "once"), ("deny", "reject")])
async def test_a_permission_is_answered_by_its_id(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path, decision: str, reply: str
) -> None:
    run = make_launch(tmp_path, server)
    server.permissions = [{"id": "per_1"}]
    assert await agent.answer(run, Permission("bash", "rm x", request="per_1"), decision, "why") == ()
    expected = {"reply": reply, "message": "why"} if decision == "deny" else {"reply": reply}
    assert server.requests == [("POST", "/permission/per_1/reply", expected)]


async def test_a_permission_that_was_answered_in_the_terminal_is_answered(
    agent: OpenCode, server: SimulatedOpenCode, tmp_path: Path
) -> None:
    run = make_launch(tmp_path, server)
    assert await agent.answer(run, Permission("bash", "rm x", request="per_9"), "allow", "") == ()
    assert await agent.answer(run, Permission("bash", "rm x"), "allow", "") is None


async def test_a_silent_server_is_not_awaited(server: SimulatedOpenCode) -> None:
    door, server.silent = LoopbackClient(server.port, "opencode", server.password), {"/session/status", "/event"}
    with pytest.raises(Temporary):
        await door.call("GET", "/session/status", within=0.05)
    with pytest.raises(Temporary):
        async with contextlib.aclosing(door.events("/event", first=0.05, silence=60)) as events:
            await anext(events)
