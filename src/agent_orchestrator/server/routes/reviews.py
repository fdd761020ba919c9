"""Routes for a session's change until it is merged: reviews, checks, merge queue, conflicts; and for notifications."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query, Request, Response

from agent_orchestrator.base.api_tokens import Identity
from agent_orchestrator.errors import Denied
from agent_orchestrator.server.access.request_context import resolve_listed_project
from agent_orchestrator.server.dependencies import (
    IdempotencyKey,
    ProjectName,
    SessionId,
    TheContext,
    TheIdentity,
    TheServices,
    actor_name,
)
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, responds_with_text, router_for
from agent_orchestrator.server.services import Services
from agent_orchestrator.server.streams import EndlessResponse

router = router_for("reviews", "/api")

All = Annotated[bool, Query(alias="all", description="All projects.")]

AgentToken = Annotated[
    str | None,
    Header(alias="X-AO-Token", description="The token of the session whose agent asks, over the Unix socket."),
]


def _calling_agent(services: Services, identity: Identity, token: str | None) -> str | None:
    """Return the session whose agent sent the request, or None for a person."""
    if identity.kind == "session":
        return identity.session
    token_identity = services.tokens.check(token) if token else None
    return token_identity.session if token_identity and token_identity.kind == "session" else None


def _require_person(services: Services, identity: Identity, token: str | None) -> None:
    """Raise Denied if an agent sent the request."""
    if _calling_agent(services, identity, token):
        raise Denied("that is for people to do", "answer in the discussion instead: the event reply in $AO_SPOOL")


_VERDICTS = {"approve": "approved", "request-changes": "changes_requested", "comment": "commented"}


@router.get("/sessions/{id}/review", responses=responds_with("PullRequestView"))
async def get_review(services: TheServices, identity: TheIdentity, session: SessionId) -> Response:
    """Return a session's pull request with its failing checks, reviews and threads; agents get no unapproved texts."""
    return as_json(services.reviews.view(session, to_agent=identity.is_agent))


@router.post("/sessions/{id}/review", responses=responds_with("PullRequestView"))
async def review_session(
    services: TheServices,
    identity: TheIdentity,
    session: SessionId,
    body: requests.NewReview,
    key: IdempotencyKey = None,
    token: AgentToken = None,
) -> Response:
    """Review a session's change, with any number of comments on lines.

    A request for changes is one message to the agent, with all comments. With a session's own token it is that agent's
    review.
    """
    if agent := _calling_agent(services, identity, token):
        return as_json(await services.agent_reviews.submit(agent, session, body.review(), key))
    reviewed = await services.reviews.submit(
        session,
        _VERDICTS.get(body.verdict, body.verdict),
        body.body,
        [comment.comment() for comment in body.comments],
        key=key,
        words=body.text_author(identity.name),
    )
    return as_json(reviewed)


@router.post("/sessions/{id}/reviewers", status_code=201, responses=responds_with("Session", 201))
async def request_agent_review(
    services: TheServices, session: SessionId, body: requests.ReviewRequest, key: IdempotencyKey = None
) -> Response:
    """Start a session in which an agent reviews a session's change; the answer is that session.

    Its review counts as an agent's: it drives the same reactions, and is approval only where the project says so.
    """
    return as_json(await services.agent_reviews.request_review(session, body.agent, body.message, key=key), 201)


@router.post(
    "/sessions/{id}/resolve",
    responses={**responds_with("PullRequestView", 200), **responds_with("PullRequestView", 202)},
)
async def resolve_threads(
    services: TheServices,
    identity: TheIdentity,
    session: SessionId,
    body: requests.Resolved,
    key: IdempotencyKey = None,
    token: AgentToken = None,
) -> Response:
    """Settle discussions of a session's change; those at a forge are resolved there.

    202: the forge could not be asked yet, and is as soon as it can. A 409 problem says what it refused."""
    _require_person(services, identity, token)
    done = await services.discussions.resolve(session, body.threads, everything=body.all, key=key)
    return as_json(services.reviews.view(session), 200 if done else 202)


@router.post(
    "/sessions/{id}/request-review",
    responses={**responds_with("PullRequestView", 200), **responds_with("PullRequestView", 202)},
)
async def request_review(
    services: TheServices,
    identity: TheIdentity,
    session: SessionId,
    body: requests.AskedPeople,
    key: IdempotencyKey = None,
    token: AgentToken = None,
) -> Response:
    """Ask people at the forge to look at a session's change.

    202: the forge could not be asked yet, and is as soon as it can. A 409 problem says whom it does not ask, and why."""
    _require_person(services, identity, token)
    done = await services.discussions.request_reviews(session, body.people, key)
    return as_json(services.reviews.view(session), 200 if done else 202)


@router.post(
    "/sessions/{id}/merge",
    status_code=202,
    responses={**responds_with("Session", 202), **responds_with("Session", 200)},
)
async def merge_session(
    services: TheServices,
    identity: TheIdentity,
    session: SessionId,
    body: requests.MergeRequest | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Merge a session's change, after its checks.

    Refuses what is red unless forced. With `wait`: 200 when it is merged, a 409 problem when it was refused, 202 when
    it still waits after `timeout`; the same key waits on.
    """
    options = body or requests.MergeRequest.model_validate({})
    accepted = await services.reviews.request_merge(
        session, options.strategy, force=options.force, key=key, by=actor_name(identity)
    )
    if options.wait:
        accepted = await services.reviews.wait_until_merged(session, options.timeout)
    return as_json(accepted, 200 if accepted["status"] == "merged" else 202)


@router.delete("/sessions/{id}/merge", responses=responds_with("Session"))
async def remove_from_queue(services: TheServices, session: SessionId, key: IdempotencyKey = None) -> Response:
    """Remove a session's change from the merge queue.

    A 409 problem where it is not queued, or is being merged this very moment.
    """
    await services.merges.withdraw_merge(session, key)
    return as_json(services.sessions.view(session))


@router.post("/sessions/{id}/ready", responses=responds_with("PullRequestView"))
async def make_ready(
    services: TheServices, session: SessionId, body: requests.ReadyPullRequest | None = None, key: IdempotencyKey = None
) -> Response:
    """Say that a pull request is no draft any more.

    A `title` is its new one at the local forge; elsewhere it keeps its own."""
    return as_json(await services.reviews.mark_ready(session, key, body.title if body else None))


@router.post("/sessions/{id}/close", responses=responds_with("PullRequestView"))
async def close_pull_request(services: TheServices, session: SessionId, key: IdempotencyKey = None) -> Response:
    """Give a change up; its branch and workspace stay."""
    return as_json(await services.reviews.close_pull_request(session, key))


@router.post("/sessions/{id}/undo", status_code=201, responses=responds_with("Undone", 201))
async def create_revert(services: TheServices, session: SessionId) -> Response:
    """Create the change that reverts a merged one; it is merged like any other.

    A repeated request returns the same change.
    """
    return as_json(await services.reviews.revert(session), 201)


@router.post("/sessions/{id}/checks", status_code=202, responses=responds_with("PullRequestView", 202))
async def run_checks(services: TheServices, session: SessionId, key: IdempotencyKey = None) -> Response:
    """Run a session's checks now, whatever is known."""
    return as_json(await services.reviews.request_checks(session, key), 202)


@router.get("/sessions/{id}/checks/{name}/log", responses=responds_with_text("The whole output"))
async def get_check_log(
    request: Request,
    services: TheServices,
    session: SessionId,
    name: str,
    follow: Annotated[
        bool, Query(description="Go on until the check has ended; one that waits is waited for.")
    ] = False,
) -> Response:
    """Return the output of a check."""
    pieces = services.reviews.check_log(session, name, follow=follow)
    return EndlessResponse(pieces, request.app.state.closing, "text/plain; charset=utf-8")


@router.get("/queue", responses=responds_with("Queue"))
async def get_queue(
    services: TheServices, context: TheContext, project: ProjectName = None, everything: All = False
) -> Response:
    """List the merge queue in order."""
    return as_json(
        {"entries": services.merge_queue.entries(await resolve_listed_project(services, context, project, everything))}
    )


@router.get("/conflicts", responses=responds_with("Pairs"))
async def list_conflicts(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    everything: All = False,
    fresh: Annotated[bool, Query(description="Look first at whatever has changed since the last look.")] = False,
) -> Response:
    """List which sessions will conflict, and in which files: `text`, they cannot be merged; `overlap`, both change the same place."""
    scope = await resolve_listed_project(services, context, project, everything)
    return as_json({"pairs": await services.conflicts.pairs(scope, fresh=fresh)})


@router.get("/notifications", responses=responds_with("Notifications"))
async def list_notifications(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    everything: All = False,
    limit: Annotated[int, Query(ge=1, le=1000, description="At most so many.")] = 100,
) -> Response:
    """List the notifications of people, newest first."""
    scope = await resolve_listed_project(services, context, project, everything)
    return as_json({"notifications": await services.feed.notifications(scope, limit)})


@router.post("/notifications/test", responses=responds_with("TriedNotifiers"))
async def test_notifiers(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    everything: All = False,
    body: requests.TriedNotifiers | None = None,
) -> Response:
    """Send a test by each notifier, or by those that are named, and say what came of it."""
    scope = await resolve_listed_project(services, context, project, everything)
    return as_json({"notifiers": await services.notifiers.run(scope, body.names if body else ())})
