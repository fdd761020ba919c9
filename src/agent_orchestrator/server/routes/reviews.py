"""A session's change on its way to the base: review, checks, landing, and what people were told."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from agent_orchestrator.server import models, requests
from agent_orchestrator.server.context import (
    Key,
    ProjectName,
    SessionId,
    TheContext,
    TheIdentity,
    TheServices,
    scope_of,
)
from agent_orchestrator.server.describe import as_json, gives, gives_text
from agent_orchestrator.server.streams import Stream

router = APIRouter(prefix="/api", tags=["reviews"])

All = Annotated[bool, Query(alias="all", description="All projects.")]

_VERDICTS = {"approve": "approved", "request-changes": "changes_requested", "comment": "commented"}


@router.get("/sessions/{id}/review", responses=gives(models.PullRequestView))
async def get_review(services: TheServices, session: SessionId) -> Response:
    """A session's pull request with its failing checks, reviews and threads."""
    return as_json(services.reviews.view(session))


@router.post("/sessions/{id}/review", responses=gives(models.PullRequestView))
async def review_session(
    services: TheServices, identity: TheIdentity, session: SessionId, body: requests.NewReview, key: Key = None
) -> Response:
    """Judge a session's change, with any number of comments on lines.

    A request for changes is one message to the agent, with all comments."""
    reviewed = await services.reviews.submit(
        session,
        _VERDICTS.get(body.verdict, body.verdict),
        body.body,
        [comment.as_given() for comment in body.comments],
        key=key,
        words=body.words(identity.name),
    )
    return as_json(reviewed)


@router.post(
    "/sessions/{id}/merge",
    status_code=202,
    responses={**gives(models.Session, 202), **gives(models.Session, 200)},
)
async def merge_session(
    services: TheServices, session: SessionId, body: requests.MergeRequest | None = None, key: Key = None
) -> Response:
    """Let a session's change land, after its checks.

    Refuses what is red unless forced. With `wait`: 200 when it has landed, a 409 problem when it was refused, 202 when it still waits
    after `timeout`; the same key waits on."""
    asked = body or requests.MergeRequest.model_validate({})
    accepted = await services.reviews.merge(session, asked.strategy, force=asked.force, key=key)
    if asked.wait:
        accepted = await services.reviews.landed(session, asked.timeout)
    return as_json(accepted, 200 if accepted["status"] == "merged" else 202)


@router.post("/sessions/{id}/ready", responses=gives(models.PullRequestView))
async def make_ready(services: TheServices, session: SessionId, key: Key = None) -> Response:
    """Say that a pull request is no draft any more."""
    return as_json(await services.reviews.ready(session, key))


@router.post("/sessions/{id}/close", responses=gives(models.PullRequestView))
async def close_pull_request(services: TheServices, session: SessionId, key: Key = None) -> Response:
    """Give a change up; its branch and workspace stay."""
    return as_json(await services.reviews.close(session, key))


@router.post("/sessions/{id}/undo", status_code=201, responses=gives(models.Undone, 201))
async def undo_landing(services: TheServices, session: SessionId) -> Response:
    """Make the change that takes a landing back; it lands like any other.

    Asked again, the same change."""
    return as_json(await services.reviews.undo(session), 201)


@router.post("/sessions/{id}/checks", status_code=202, responses=gives(models.PullRequestView, 202))
async def run_checks(services: TheServices, session: SessionId, key: Key = None) -> Response:
    """Run a session's checks now, whatever is known."""
    return as_json(await services.reviews.check(session, key), 202)


@router.get("/sessions/{id}/checks/{name}/log", responses=gives_text("The whole output"))
async def get_check_log(
    request: Request,
    services: TheServices,
    session: SessionId,
    name: str,
    follow: Annotated[
        bool, Query(description="Go on until the check has ended; one that waits is waited for.")
    ] = False,
) -> Response:
    """What a check printed."""
    pieces = services.reviews.check_log(session, name, follow=follow)
    return Stream(pieces, request.app.state.closing, "text/plain; charset=utf-8")


@router.get("/queue", responses=gives(models.Queue))
async def get_queue(
    services: TheServices, context: TheContext, project: ProjectName = None, everything: All = False
) -> Response:
    """What is to land, in order."""
    return as_json({"entries": services.reviews.queue(await scope_of(services, context, project, everything))})


@router.get("/notifications", responses=gives(models.Notifications))
async def list_notifications(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    everything: All = False,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 100,
) -> Response:
    """What people were told, newest first."""
    scope = await scope_of(services, context, project, everything)
    return as_json({"notifications": await services.feed.notifications(scope, limit)})
