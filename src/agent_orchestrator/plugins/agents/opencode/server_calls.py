"""Calls to OpenCode's server: what was missed, the conversation, messages, and answers to questions."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_orchestrator.errors import Temporary
from agent_orchestrator.plugins.agents.opencode.server_events import ConversationReader
from agent_orchestrator.plugins.agents.shared.loopback_client import LoopbackClient, LoopbackResponse
from agent_orchestrator.protocols import (
    Delivered,
    Delivery,
    NotReady,
    ReportBatch,
    RunningLaunch,
)

if TYPE_CHECKING:
    pass
from agent_orchestrator.plugins.agents.opencode.connection import load_connection, save_connection

STORE_TIMEOUT = 5.0
MAX_SHOW_ATTEMPTS = 10
RECENT_MESSAGES = 50
_START_PAGE = re.compile(r"^\W*Ask anything", re.MULTILINE)


async def missed_reports(server: LoopbackClient, listener: ConversationReader) -> AsyncIterator[ReportBatch]:
    """Yield reports from the server's records for the time before its events were read."""
    conversation = listener.conversation
    if conversation is None:
        for heard in listener.read_status({}, missed=True):
            yield heard
        return
    for session in await _family(server, conversation):
        if session["id"] != conversation:
            listener.adopt(str(session["id"]))
        for message in await _messages(server, str(session["id"]), listener.reported_until(str(session["id"]))):
            for heard in listener.read_message(message.get("info") or {}):
                yield heard
            for part in message.get("parts") or ():
                listener.read_part(part)
    for heard in listener.read_todos(await _request_list(server, f"/session/{conversation}/todo")):
        yield heard
    status = (await call_server(server, "GET", "/session/status")).data or {}
    for heard in listener.read_status(status.get(conversation) or {}, missed=True):
        yield heard
    for path, read_request in (("/permission", listener.read_permission), ("/question", listener.read_question)):
        for request in await _request_list(server, path):
            for heard in read_request(request):
                yield heard


async def _family(server: LoopbackClient, conversation: str) -> list[dict[str, Any]]:
    """Return the conversation and those of its subagents, at any depth."""
    sessions: list[dict[str, Any]] = [{"id": conversation}]
    for session in sessions:
        sessions += await _request_list(server, f"/session/{session['id']}/children")
    return sessions


async def _messages(server: LoopbackClient, session: str, floor: int) -> list[dict[str, Any]]:
    """Return at least all messages of a conversation that are newer than `floor` (milliseconds); the newest `RECENT_MESSAGES` if they
    reach back far enough.
    """
    path = f"/session/{session}/message"
    recent = await _request_list(server, f"{path}?limit={RECENT_MESSAGES}")
    if len(recent) < RECENT_MESSAGES or recent[0]["info"]["time"]["created"] < floor:
        return recent
    return await _request_list(server, path)


async def ensure_conversation(server: LoopbackClient, run: RunningLaunch) -> str:
    """Return the conversation for the first message, creating or copying it once; raise `Temporary` while the terminal is empty."""
    connection = load_connection(run.private)
    if connection.conversation is None:
        if not (await run.screen()).strip():
            raise Temporary("opencode's terminal shows nothing yet")
        response = await (
            _copy_conversation(server, run, connection.adopts)
            if connection.adopts
            else call_server(server, "POST", "/session", {})
        )
        connection = replace(load_connection(run.private), conversation=str(response.data["id"]))
        save_connection(run.private, connection)
    assert connection.conversation is not None
    return connection.conversation


async def _copy_conversation(server: LoopbackClient, run: RunningLaunch, conversation: str) -> LoopbackResponse:
    """Copy a conversation that was held in another folder and move the copy to this workspace; the original would go on working there."""
    copy = await call_server(server, "POST", f"/session/{conversation}/fork", {})
    move = {"sessionID": copy.data["id"], "destination": {"directory": str(run.workspace)}}
    await call_server(server, "POST", "/experimental/control-plane/move-session", move)
    moved = await call_server(server, "GET", f"/session/{copy.data['id']}")
    if Path(moved.data["directory"]) != run.workspace:
        raise Temporary(f"opencode left the conversation in {moved.data['directory']}")
    return moved


async def show_conversation(server: LoopbackClient, run: RunningLaunch, conversation: str) -> None:
    """Make the terminal show this conversation if it shows its start page, as it does at first."""
    for _ in range(MAX_SHOW_ATTEMPTS):
        if not _START_PAGE.search(await run.screen()):
            return
        await call_server(server, "POST", "/tui/select-session", {"sessionID": conversation})
        await asyncio.sleep(0.3)


async def send_message(
    server: LoopbackClient, run: RunningLaunch, conversation: str, message: str, text: str
) -> Delivery:
    """Send a message unless it is stored already, and wait until it is stored."""
    connection = load_connection(run.private)
    message_id = connection.sent.get(message)
    if message_id is None:
        message_id = _message_id()
        save_connection(run.private, replace(connection, sent={**connection.sent, message: message_id}))
    elif await _is_stored(server, conversation, message_id):
        return Delivered()
    await _post(server, run, conversation, message_id, text)
    deadline = time.monotonic() + STORE_TIMEOUT
    while not await _is_stored(server, conversation, message_id):
        if time.monotonic() > deadline:
            return NotReady("opencode has not stored it yet")
        await asyncio.sleep(0.05)
    save_connection(run.private, replace(load_connection(run.private), interrupting=""))
    return Delivered()


async def resend_unanswered_message(server: LoopbackClient, run: RunningLaunch, listener: ConversationReader) -> None:
    """Send the newest message of ours again, under its id, that arrived while a turn was being stopped: it is in the
    conversation, but unanswered.
    """
    our_ids = load_connection(run.private).sent.values()
    stranded = {
        message_id: text for message_id, text in listener.unanswered_messages().items() if message_id in our_ids
    }
    if stranded and listener.conversation:
        message_id = max(stranded)
        await _post(server, run, listener.conversation, message_id, stranded[message_id])


async def _post(server: LoopbackClient, run: RunningLaunch, conversation: str, message_id: str, text: str) -> None:
    """Send a message under the given id, with the agent and model of the conversation or else of the launch."""
    session = (await call_server(server, "GET", f"/session/{conversation}")).data
    body: dict[str, Any] = {
        "messageID": message_id,
        "parts": [{"id": f"prt{message_id[3:]}", "type": "text", "text": text}],
    }
    if agent := session.get("agent") or run.plugin_data.get("agent"):
        body["agent"] = agent
    if not session.get("model") and run.plugin_data.get("model"):
        provider, _, model = run.plugin_data["model"].partition("/")
        body["model"] = {"providerID": provider, "modelID": model}
    await call_server(server, "POST", f"/session/{conversation}/prompt_async", body)


async def _is_stored(server: LoopbackClient, conversation: str, message_id: str) -> bool:
    """Return whether the conversation has a message of this id."""
    return (await server.call("GET", f"/session/{conversation}/message/{message_id}")).ok


async def reply_to_question(
    server: LoopbackClient, run: RunningLaunch, conversation: str, message: str, text: str
) -> bool:
    """Answer an open question with the message, and return whether it did (or had before). One line per question if the counts match."""
    delivered_id = load_connection(run.private).sent.get(message, "")
    questions = [
        question for question in await _request_list(server, "/question") if question.get("sessionID") == conversation
    ]
    if delivered_id.startswith("que") and delivered_id not in [question["id"] for question in questions]:
        return True
    if not questions or delivered_id.startswith("msg"):
        return False
    request, count = questions[0]["id"], len(questions[0]["questions"])
    connection = load_connection(run.private)
    save_connection(run.private, replace(connection, sent={**connection.sent, message: request}))
    lines = text.splitlines()
    answers = [[line] for line in lines] if len(lines) == count else [[text], *([] for _ in range(count - 1))]
    await call_server(server, "POST", f"/question/{request}/reply", {"answers": answers})
    return True


async def call_server(server: LoopbackClient, method: str, path: str, body: Any = None) -> LoopbackResponse:
    """Call the server and return its answer; raise `Temporary` for an error status."""
    answer = await server.call(method, path, body)
    if not answer.ok:
        raise Temporary(f"opencode answered {method} {path} with {answer.status}")
    return answer


async def _request_list(server: LoopbackClient, path: str) -> list[dict[str, Any]]:
    """Return the list at this path, empty if the answer is not a list."""
    data = (await call_server(server, "GET", path)).data
    return data if isinstance(data, list) else []


def _message_id() -> str:
    """Return a new message id in OpenCode's format; ids grow with time."""
    return f"msg_{(int(time.time() * 1000) * 0x1000) % (1 << 48):012x}{secrets.token_hex(7)}"
