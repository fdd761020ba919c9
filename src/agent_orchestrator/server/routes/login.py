"""Routes for signing in to the dashboard and out, and for the caller's identity."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request, Response

from agent_orchestrator.base.api_tokens import SIGN_IN_DAYS, Identity
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import rfc3339
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.access.peers import tcp_user
from agent_orchestrator.server.access.refusals import peer_of
from agent_orchestrator.server.dependencies import TheIdentity, TheServices, admins_only
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for
from agent_orchestrator.server.services import Services

router = router_for("signing in", "/api")


@router.get("/me", responses=responds_with("Me"))
async def get_me(services: TheServices, identity: TheIdentity) -> Response:
    """Who asks, and what they may do."""
    return as_json(_identity_view(services, identity))


@router.post("/login", responses=responds_with("SignedIn"))
async def sign_in(request: Request, services: TheServices, body: requests.SignIn) -> Response:
    """Sign a browser in by a one-time link's code or by a token; needs no other token.

    The answer sets a cookie that only the daemon can read; it counts only together with `page` of the answer, sent as
    the header `X-AO-Page`, or as `page` in the query of streams and WebSockets. Ten failures a minute from one address,
    then 429; on this machine each user's are counted separately.
    """
    peer = peer_of(request.scope)
    user = await asyncio.to_thread(tcp_user, request.scope.get("client"), request.scope.get("server"))
    secret, identity = services.logins.sign_in(peer, code=body.code, token=body.token, user=user)
    actor, method = auth.actor_of(identity), "link" if body.code else "token"
    signed_in = e.SignedIn(identity.id or "", identity.name or "", identity.role or "", method, peer)
    await services.audit.record(signed_in, actor=actor)
    if (previous := _signed_in(request, services)) is not None:
        services.logins.sign_out(previous)
        await services.audit.record(e.SignedOut(previous.id or "", previous.name or ""), actor=actor)
    answer = as_json({**_identity_view(services, identity), "page": services.tokens.page_proof(secret)})
    _set_cookie(request, answer, secret, SIGN_IN_DAYS * 86_400)
    return answer


@router.post("/logout", status_code=204)
async def sign_out(request: Request, services: TheServices, identity: TheIdentity) -> Response:
    """Sign this browser out; its streams and terminals end."""
    services.logins.sign_out(identity)
    if identity.kind == "login":
        await services.audit.record(e.SignedOut(identity.id or "", identity.name or ""))
    answer = Response(status_code=204)
    _set_cookie(request, answer, "", 0)
    return answer


@router.post("/login-links", status_code=201, responses=responds_with("LoginLink", 201), dependencies=[admins_only])
async def create_login_link(
    request: Request, services: TheServices, identity: TheIdentity, body: requests.NewLoginLink | None = None
) -> Response:
    """Make an address that signs in the browser that opens it: once, within two minutes. Administrators only."""
    role = body.role if body else "admin"
    code, until = services.logins.create_link(identity, role)
    await services.audit.record(e.LoginLinkMade(role))
    # In the fragment, which browsers never send.
    return as_json(
        {"url": f"{request.app.state.url or _request_url(request)}/#login={code}", "expiresAt": rfc3339(until)}, 201
    )


def _identity_view(services: Services, identity: Identity) -> dict[str, Any]:
    """Return the caller's identity and the daemon's version."""
    return {"kind": identity.kind, "role": identity.role, "name": identity.name, "version": services.version}


def _request_url(request: Request) -> str:
    """Return the address that the caller used for this server."""
    return f"{request.scope['scheme']}://{request.headers['host']}"


def _signed_in(request: Request, services: Services) -> Identity | None:
    """Return the identity that the browser is signed in as already, or None."""
    cookies = auth.sign_in_cookies(dict(request.scope["headers"]), secure=request.scope["scheme"] == "https")
    return next(filter(None, map(services.tokens.check_sign_in, cookies)), None)


def _cookie_name(request: Request) -> str:
    """Return the name of the sign-in cookie for this request."""
    return auth.cookie_name(dict(request.scope["headers"]), request.scope["scheme"] == "https")


def _set_cookie(request: Request, answer: Response, value: str, seconds: int) -> None:
    """Set the sign-in cookie for so many seconds; 0 removes it."""
    answer.set_cookie(
        _cookie_name(request),
        value,
        max_age=seconds,
        path="/",
        secure=request.scope["scheme"] == "https",
        httponly=True,
        samesite="strict",
    )
