"""The official MCP client on `ao mcp` and on the daemon's TCP port, and helpers to call tools."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent, TextResourceContents

from agent_orchestrator.testing.sandbox import Sandbox

WORKER_TOOLS = {"report_progress", "ask_person", "report_done", "my_session", "who_touches", "my_messages"}
STEERING_TOOLS = {"spawn_session", "send_message", "stop_session", "create_issue", "create_plan", "apply_plan"}
EXTRA_TOOLS = {"merge_session", "review_session", "answer_session"}


def agent_token(box: Sandbox, session: str) -> str:
    """Return the token in the environment of a session's agent."""
    return str(box.request("GET", f"/api/sessions/{session}/environment")["env"]["AO_TOKEN"])


def new_session(box: Sandbox, task: str, name: str) -> str:
    """Create a session, wait until its agent has done its task and is idle, and return its id."""
    box.ao("new", task, "--name", name)
    session = f"app-{name}"
    box.wait_until(lambda: box.session(session)["activity"] in ("idle", "waiting_input"), f"{session} to be at rest")
    return session


@asynccontextmanager
async def stdio(box: Sandbox, *argv: str, mode: str = "auto", **env: str) -> AsyncIterator[Client]:
    """Yield the official client on `ao mcp`."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "agent_orchestrator", "mcp", *argv],
        env={**box.env, **env},
        cwd=str(box.repo),
    )
    async with Client(command, mode=mode, cache=None) as client:
        yield client


@asynccontextmanager
async def http(box: Sandbox, token: str, mode: str = "auto") -> AsyncIterator[Client]:
    """Yield the official client on the daemon's TCP port."""
    url = json.loads(box.home.daemon_info.read_text())["url"]
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http_client,
        Client(streamable_http_client(f"{url}/mcp", http_client=http_client), mode=mode, cache=None) as client,
    ):
        yield client


async def tool_names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def call_tool(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """Return the result of a tool call that must succeed."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result_text(result)
    assert json.loads(result_text(result)) == result.structured_content
    return dict(result.structured_content)


async def call_refused(client: Client, name: str, **arguments: Any) -> str:
    """Return the one-line error of a tool call that must fail."""
    try:
        result = await client.call_tool(name, arguments)
    except MCPError as error:
        return error.message
    assert result.is_error, result
    assert "\n" not in result_text(result)
    assert "Traceback" not in result_text(result)
    return result_text(result)


def result_text(result: Any) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def read_resource(client: Client, address: str) -> str:
    (content,) = (await client.read_resource(address)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


def last_event_source(box: Sandbox, session: str, kind: str) -> str:
    """Return the source of a session's newest event of a kind."""
    return event_sources(box, session, kind)[-1]


def event_sources(box: Sandbox, session: str, kind: str) -> list[str]:
    return [str(event["source"]) for event in box.events(session) if event["type"] == kind]
