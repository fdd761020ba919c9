"""Routes for the event log: read, follow and replay it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query, Request, Response

from agent_orchestrator.server.dependencies import SessionId, TheContext, TheServices
from agent_orchestrator.server.event_stream import event_stream, parse_event_id
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for

router = router_for("events", "/api")

After = Annotated[int | None, Query(ge=0, le=2**62, description="Only events after this one.")]
Limit = Annotated[int, Query(ge=1, le=10_000)]
_ANSWERS = responds_with("Events")
_ANSWERS[200]["content"] |= {"text/event-stream": {"schema": {"type": "string"}}}


@router.get("/sessions/{id}/events", responses=responds_with("Events"))
async def list_session_events(
    services: TheServices, session: SessionId, after: After = None, limit: Limit = 1000
) -> Response:
    """One session's events."""
    return as_json({"events": await services.feed.page(after, limit, session, None)})


@router.get("/events", responses=_ANSWERS)
async def list_events(
    request: Request,
    services: TheServices,
    context: TheContext,
    after: After = None,
    limit: Limit = 1000,
    session: Annotated[str | None, Query(description="Only this session's.")] = None,
    project: Annotated[str | None, Query(description="Only this project's.")] = None,
    kind: Annotated[str | None, Query(alias="type", description="Only of this type; pages only.")] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
    last_event_id: Annotated[str | None, Header(description="Go on after this event; wins over `after`.")] = None,
) -> Response:
    """Events, a page of them or, with `Accept: text/event-stream`, followed without end.

    The stream first gives what came after `Last-Event-ID` or `after`, then what happens. A reader too slow to keep up is cut
    off, and resumes where it was."""
    if session is not None:
        session = services.sessions.find(session, await services.projects.resolve(context, project)).id
    elif project is not None:
        project = await services.projects.resolve(context, project)
    if "text/event-stream" not in accept:
        return as_json({"events": await services.feed.page(after, limit, session, project, kind)})
    events = services.feed.subscribe(parse_event_id(last_event_id) if last_event_id else after)
    return event_stream(events, request.app.state.closing, session=session, project=project)


@router.post("/events/replay", responses=responds_with("Steps"))
async def replay_events(services: TheServices, context: TheContext, body: requests.Replay) -> Response:
    """Run a recorded log through today's rules, and return what would have been done. Nothing is done."""
    project = await services.projects.resolve(context, body.project)
    return as_json({"steps": await services.feed.replay(body.events, project)})
