"""The official MCP client, on `ao mcp` and on the daemon's TCP port, and what tests ask by it."""

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

OWN = {"report_progress", "ask_person", "report_done", "my_session", "who_touches", "my_messages"}
STEERING = {"spawn_session", "send_message", "stop_session", "create_issue", "create_plan", "apply_plan"}
EXTRA = {"merge_session", "review_session", "answer_session"}


def token_of(box: Sandbox, session: str) -> str:
    """The token that a session's agent has in its environment."""
    return str(box.request("GET", f"/api/sessions/{session}/environment")["env"]["AO_TOKEN"])


def new(box: Sandbox, task: str, name: str) -> str:
    """A session whose agent did its task and now waits at its prompt."""
    box.ao("new", task, "--name", name)
    session = f"app-{name}"
    box.until(lambda: box.session(session)["activity"] in ("idle", "waiting_input"), f"{session} to be at rest")
    return session


@asynccontextmanager
async def stdio(box: Sandbox, *argv: str, mode: str = "auto", **env: str) -> AsyncIterator[Client]:
    """The official client on `ao mcp`."""
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
    """The official client on the daemon's TCP port."""
    url = json.loads(box.home.info.read_text())["url"]
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as asking,
        Client(streamable_http_client(f"{url}/mcp", http_client=asking), mode=mode, cache=None) as client,
    ):
        yield client


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    """What a tool gives; what it refuses is a failure of the test."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, said(result)
    assert json.loads(said(result)) == result.structured_content
    return dict(result.structured_content)


async def refused(client: Client, name: str, **arguments: Any) -> str:
    """What a tool says when it refuses: one line."""
    try:
        result = await client.call_tool(name, arguments)
    except MCPError as error:
        return error.message
    assert result.is_error, result
    assert "\n" not in said(result)
    assert "Traceback" not in said(result)
    return said(result)


def said(result: Any) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def read(client: Client, address: str) -> str:
    (found,) = (await client.read_resource(address)).contents
    assert isinstance(found, TextResourceContents)
    return found.text


def source(box: Sandbox, session: str, kind: str) -> str:
    """Who is named as the source of a session's newest event of a kind."""
    return sources(box, session, kind)[-1]


def sources(box: Sandbox, session: str, kind: str) -> list[str]:
    return [str(event["source"]) for event in box.events(session) if event["type"] == kind]
