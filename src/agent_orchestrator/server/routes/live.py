"""Routes for the dashboard: the live board, the overview, statistics, a session's timeline and where its work is saved."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Header, Query, Request, Response

from agent_orchestrator.core.events import epoch_seconds
from agent_orchestrator.server.access.request_context import resolve_listed_project
from agent_orchestrator.server.dependencies import ProjectName, SessionId, TheContext, TheServices
from agent_orchestrator.server.event_stream import encoded_stream, parse_event_id
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for

router = router_for("live", "/api")

_FRAMES = responds_with("Live")
_FRAMES[200]["content"] |= {"text/event-stream": {"schema": {"$ref": "#/components/schemas/Live"}}}


@router.get("/live", responses=_FRAMES)
async def follow_board(
    request: Request,
    services: TheServices,
    after: Annotated[int | None, Query(ge=0, description="What changed after this frame, not all of it.")] = None,
    last_event_id: Annotated[str | None, Header(description="The same; wins over `after`.")] = None,
) -> Response:
    """Stream the board as Server-Sent Events without end.

    An event `live` has the whole board first, then what changed; a `pulse` shows that the connection is alive. A reader
    too slow to keep up is disconnected. A client that reconnects with the last event's id gets what changed since then.
    """
    last_seen = parse_event_id(last_event_id) if last_event_id else after
    return encoded_stream(services.live.follow(last_seen), request.app.state.closing)


@router.get("/overview", responses=responds_with("Overview"))
async def get_overview(services: TheServices) -> Response:
    """Return the fleet in one line: agents at work, base branches, limits, today's usage."""
    return as_json(services.live.overview())


@router.get("/stats", responses=responds_with("Stats"))
async def get_stats(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    everything: Annotated[bool, Query(alias="all", description="All projects.")] = False,
    days: Annotated[int, Query(ge=1, le=366)] = 30,
) -> Response:
    """Return statistics by day: merged changes, how long they took, how often agents were asked again, usage."""
    project_id = await resolve_listed_project(services, context, project, everything)
    return as_json(await services.stats.table(project_id, days))


@router.get("/recap", responses=responds_with("Recap"))
async def get_recap(
    services: TheServices,
    context: TheContext,
    since: Annotated[datetime, Query(description="RFC 3339, or a day.")],
    project: ProjectName = None,
    everything: Annotated[bool, Query(alias="all", description="All projects.")] = False,
) -> Response:
    """Return what happened since then, in at most seven lines: merged changes, questions, failures, limits, restarts."""
    project_id = await resolve_listed_project(services, context, project, everything)
    return as_json(await services.recap.since(epoch_seconds(since.isoformat()), project_id))


@router.get("/sessions/{id}/timeline", responses=responds_with("Timeline"))
async def get_timeline(
    services: TheServices,
    session: SessionId,
    limit: Annotated[int, Query(ge=1, le=10_000, description="At most so many entries, the newest.")] = 500,
) -> Response:
    """Return what happened to a session, in words, and its state in one sentence."""
    return as_json(await services.timelines.timeline(session, limit))


@router.get("/sessions/{id}/work", responses=responds_with("Work"))
async def get_work(services: TheServices, session: SessionId) -> Response:
    """Where a session's work is, and whether it is safe."""
    return as_json(await services.timelines.saved_work_json(session))
