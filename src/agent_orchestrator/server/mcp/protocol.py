"""The MCP protocol with the official library: lists, calls and reads. The only module that imports it.

Every request is answered by a server made for its caller, and is complete in itself: no state is kept between requests, so that a
restarted daemon can answer the next one.
"""

from __future__ import annotations

import json
import traceback
from functools import cache
from typing import Any

import structlog
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp_types import Tool as ListedTool
from starlette.types import Receive, Send
from starlette.types import Scope as RequestScope

from agent_orchestrator import __version__
from agent_orchestrator.errors import AoError, NotFound
from agent_orchestrator.server.access.caller import Caller
from agent_orchestrator.server.mcp import action_tools, fleet_tools, plan_tools, resources, worker_tools
from agent_orchestrator.server.mcp.tools import Tool, find_tool, tools_for
from agent_orchestrator.server.schema import problems

RESOURCE_NOT_FOUND = -32002

log = structlog.get_logger(__name__)

_TOOL_MODULES = (worker_tools, fleet_tools, action_tools, plan_tools)
"""The modules that define the tools; importing them registers the tools."""

_ABOUT = "Agent Orchestrator: a fleet of coding agents, each in its own Git worktree and on its own branch."
_INSTRUCTIONS = f"""{_ABOUT} A session is one agent at one task. spawn_session starts one, list_sessions and why tell how they stand, \
get_diff and get_log show what they did, send_message steers them. Landing goes through the merge queue."""
_WORKER_INSTRUCTIONS = f"""{_ABOUT} You are the agent of one session. report_progress and report_done tell people how far you are; \
ask_person asks them; who_touches tells which other sessions are at your files."""


def server_for(caller: Caller) -> Server[Any]:
    """Return the server with the tools and resources of this caller."""

    async def list_tools(_ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        _page_start(params, most=0)
        return ListToolsResult(tools=[_listed_tool(tool) for tool in tools_for(caller)])

    async def call_tool(_ctx: Any, params: CallToolRequestParams) -> CallToolResult:
        return await _call(caller, params.name, params.arguments or {})

    async def list_resources(_ctx: Any, params: PaginatedRequestParams | None) -> ListResourcesResult:
        page, next_start = resources.list_page(caller, _page_start(params))
        listed = [
            Resource(uri=address, name=name, description=kind.about, mime_type=kind.media_type)
            for address, kind, name in page
        ]
        return ListResourcesResult(resources=listed, next_cursor=None if next_start is None else str(next_start))

    async def list_templates(_ctx: Any, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        _page_start(params, most=0)
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(
                    uri_template=kind.address, name=kind.name, description=kind.about, mime_type=kind.media_type
                )
                for kind in resources.kinds_for(caller)
                if "{id}" in kind.address
            ]
        )

    async def read_resource(_ctx: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        address = str(params.uri)
        try:
            text, kind = await resources.read(caller, address)
        except NotFound as error:
            raise MCPError(RESOURCE_NOT_FOUND, str(error), {"uri": address[:400]}) from None
        except AoError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None
        return ReadResourceResult(contents=[TextResourceContents(uri=address, mime_type=kind, text=text)])

    is_worker = caller.session is not None and not caller.is_coordinator
    return Server(
        "agent-orchestrator",
        version=__version__,
        title="Agent Orchestrator",
        instructions=_WORKER_INSTRUCTIONS if is_worker else _INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )


async def answer_request(caller: Caller, limit: int, scope: RequestScope, receive: Receive, send: Send) -> None:
    """ToolAnswer one HTTP request."""
    manager = StreamableHTTPSessionManager(
        server_for(caller), json_response=True, stateless=True, max_request_body_size=limit
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


@cache
def _listed_tool(tool: Tool) -> ListedTool:
    """Return a tool as the protocol lists it."""
    return ListedTool(
        name=tool.name,
        description=tool.about,
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema(),
        annotations=ToolAnnotations(
            title=tool.name.replace("_", " ").capitalize(),
            read_only_hint=tool.is_read_only,
            destructive_hint=tool.is_destructive,
            idempotent_hint=tool.is_read_only or tool.is_idempotent,
            open_world_hint=False,
        ),
    )


async def _call(caller: Caller, name: str, arguments: dict[str, Any]) -> CallToolResult:
    """Call a tool; errors are returned to the caller as one line."""
    try:
        tool = find_tool(caller, name)
    except AoError as error:
        raise MCPError(INVALID_PARAMS, str(error)) from None
    try:
        answer = await tool.call(caller, arguments)
    except AoError as error:
        return _error_result(problems.error_document(error))
    except Exception as error:
        # As text: a renderer that shows local variables would write secrets into the log.
        log.error("a tool failed", tool=name, traceback="".join(traceback.format_exception(error)))
        return _error_result(problems.unexpected_error_document())
    text = json.dumps(answer, ensure_ascii=False).encode(errors="replace").decode()
    return CallToolResult(content=[TextContent(text=text)], structured_content=json.loads(text))


def _error_result(problem: dict[str, Any]) -> CallToolResult:
    """Return an error as the result of a tool, in one line."""
    text = f"{problem['detail']}: {problem['remedy']}" if problem["remedy"] else problem["detail"]
    return CallToolResult(content=[TextContent(text=" ".join(text.split()))], is_error=True)


def _page_start(params: PaginatedRequestParams | None, most: int = 10**6) -> int:
    """Return where a page begins, from its cursor; raise MCPError for a cursor that is not valid."""
    cursor = params.cursor if params else None
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 8 and int(cursor) <= most):
        raise MCPError(INVALID_PARAMS, "there is no such page: begin without a cursor")
    return int(cursor)
