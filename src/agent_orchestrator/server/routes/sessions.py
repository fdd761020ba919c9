"""Routes for sessions: create, read, message, answer, stop and restore them; their usage, permissions and terminals."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response, WebSocket

from agent_orchestrator.core import events as e
from agent_orchestrator.errors import AoError, Denied, UsageError
from agent_orchestrator.server.access import auth
from agent_orchestrator.server.access.caller import Caller
from agent_orchestrator.server.access.request_context import resolve_listed_project
from agent_orchestrator.server.dependencies import (
    IdempotencyKey,
    ProjectName,
    SessionId,
    TheContext,
    TheIdentity,
    TheServices,
    actor_name,
    admins_only,
    local_only,
)
from agent_orchestrator.server.schema import problems, requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, responds_with_text, router_for
from agent_orchestrator.server.services import Services
from agent_orchestrator.server.streams import EndlessResponse

router = router_for("sessions", "/api")

All = Annotated[bool, Query(alias="all", description="All projects.")]
Keep = Annotated[bool, Query(description="Leave the workspace where it is.")]


@router.get("/sessions", responses=responds_with("Sessions"))
async def list_sessions(
    services: TheServices, context: TheContext, project: ProjectName = None, everything: All = False
) -> Response:
    """List sessions, merged and stopped ones included.

    Answered with an `ETag`; plain queries are served from a prepared body."""
    body = services.sessions.list_json(await resolve_listed_project(services, context, project, everything))
    return Response(body, media_type="application/json")


@router.post("/sessions", status_code=201, responses=responds_with("Session", 201))
async def create_session(
    services: TheServices,
    identity: TheIdentity,
    context: TheContext,
    body: requests.NewSession,
    key: IdempotencyKey = None,
) -> Response:
    """Make a session for a task.

    Answers at once; wait for its agent with `GET /api/sessions/{id}/wait`.
    """
    return as_json(
        await Caller(services, identity, context).create_session(body.request(), actor_name(identity), key), 201
    )


@router.delete("/sessions", responses=responds_with("AllStopped"))
async def stop_all_sessions(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    keep: Keep = False,
    key: IdempotencyKey = None,
) -> Response:
    """Stop all sessions of a project, their work saved."""
    project_id = await services.projects.resolve(context, project)
    if project_id is None:
        raise UsageError("no project is named", "give ?project=NAME; `ao projects` lists them")
    return as_json(await services.sessions.stop_all(project_id, keep, key))


@router.get("/sessions/{id}", responses=responds_with("Session"))
async def get_session(services: TheServices, session: SessionId) -> Response:
    """One session."""
    return as_json(services.sessions.view(session))


@router.patch("/sessions/{id}", responses=responds_with("Session"))
async def reassign_session(
    services: TheServices, session: SessionId, body: requests.ChangedSession, key: IdempotencyKey = None
) -> Response:
    """Give a session to another agent, as long as it waits for its first message."""
    reassigned = await services.sessions.reassign(
        session, key, agent=body.agent, runtime=body.runtime or "", model=body.model, title=body.title or ""
    )
    return as_json(reassigned)


@router.get("/sessions/{id}/status", responses=responds_with("SessionStatus"))
async def get_session_status(services: TheServices, session: SessionId) -> Response:
    """One session in short."""
    return as_json(services.sessions.status_view(session))


@router.get(
    "/sessions/{id}/wait",
    responses=responds_with_text(
        "One JSON object a line: `output`, `state`, at last `session`", "application/x-ndjson"
    ),
)
async def wait_for_session(
    request: Request, services: TheServices, session: SessionId, until: Literal["running"] = "running"
) -> Response:
    """Follow a session until its agent runs, it failed, or it waits in the queue.

    Each line holds `output` (a line of a set-up command), `state` (what is being done) or, last, `session`. An error on the
    way is a last line with `problem`."""
    lines = _lines(services.sessions.wait(session, until=until))
    return EndlessResponse(lines, request.app.state.closing, "application/x-ndjson")


@router.delete("/sessions/{id}", responses=responds_with("Stopped"))
async def stop_session(
    services: TheServices, identity: TheIdentity, session: SessionId, keep: Keep = False, key: IdempotencyKey = None
) -> Response:
    """Stop a session; its work is saved first, and the answer says where."""
    return as_json(await services.sessions.stop(session, keep, key, actor_name(identity)))


@router.post("/sessions/{id}/restore", status_code=202, responses=responds_with("Session", 202))
async def restore_session(
    services: TheServices, identity: TheIdentity, session: SessionId, key: IdempotencyKey = None
) -> Response:
    """Bring a stopped, crashed or interrupted session back: same branch, same work, same conversation."""
    services.sessions.check_capacity(identity.session or "")
    return as_json(await services.sessions.restore(session, key), 202)


@router.post("/sessions/{id}/message", status_code=202, responses=responds_with("MessageState", 202))
async def send_message(
    services: TheServices,
    identity: TheIdentity,
    session: SessionId,
    body: requests.NewMessage,
    key: IdempotencyKey = None,
) -> Response:
    """Send a message to the agent; it is delivered once."""
    accepted = await services.inbox.send(
        session, body.content, key=key, interrupt=body.interrupt, sender=identity.name or "person"
    )
    return as_json(accepted, 202)


@router.get("/sessions/{id}/messages", responses=responds_with("Messages"))
async def list_messages(services: TheServices, session: SessionId, identity: TheIdentity) -> Response:
    """List a session's messages and their states."""
    return as_json({"messages": services.inbox.messages(session, to_agent=identity.is_agent)})


@router.get("/sessions/{id}/messages/{message}", responses=responds_with("Message"))
async def get_message(
    services: TheServices,
    session: SessionId,
    identity: TheIdentity,
    message: str,
    wait: Annotated[float | None, Query(ge=0, le=600, description="Seconds to wait for its end.")] = None,
) -> Response:
    """One message; with `wait`, as soon as it was acknowledged or failed, or time is up."""
    return as_json(await services.inbox.message(session, message, wait, to_agent=identity.is_agent))


@router.get("/questions", responses=responds_with("Questions"))
async def list_questions(
    services: TheServices, context: TheContext, project: ProjectName = None, everything: All = False
) -> Response:
    """Questions and permission requests that wait for a person, oldest first."""
    return as_json(
        {"questions": services.inbox.questions(await resolve_listed_project(services, context, project, everything))}
    )


@router.get("/sessions/{id}/prompt", responses=responds_with("Prompt"))
async def get_prompt(services: TheServices, session: SessionId) -> Response:
    """Return the agent's system prompt and its task."""
    return as_json(services.session_details.prompt(session))


@router.get("/usage", responses=responds_with("UsageTable"))
async def get_usage(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    everything: All = False,
    by: Annotated[str, Query(description="`session`, `project`, `agent`, `model` or `day`.")] = "session",
    since: Annotated[
        str | None, Query(description="Only from this UTC day on: `2026-11-15`.", pattern=r"^\d{4}-\d{2}-\d{2}$")
    ] = None,
    session: Annotated[str | None, Query(description="Only this session's.")] = None,
) -> Response:
    """Tokens and dollars, added up; which accounts met their usage limit; what is left of the budgets."""
    if session is not None:
        session_id = services.sessions.find(session, await services.projects.resolve(context, project), context.only).id
        return as_json(services.usage.report(None, by, since, session_id))
    project_id = await resolve_listed_project(services, context, project, everything)
    return as_json(services.usage.report(project_id, by, since))


@router.post("/accounts/release", responses=responds_with("ReleasedAccounts"))
async def release_account(services: TheServices, body: requests.ReleasedAccount) -> Response:
    """Lift the hold of an account that may be used again; waiting sessions continue, one after the other."""
    return as_json(await services.usage.account_limits.release(body.account))


@router.get("/sessions/{id}/usage", responses=responds_with("UsageCourse"))
async def get_session_usage(services: TheServices, session: SessionId) -> Response:
    """Return a session's cumulated usage over time, and by model."""
    return as_json(await services.usage.history(session))


@router.get("/permissions", responses=responds_with("Permissions"))
async def list_permissions(
    services: TheServices, context: TheContext, project: ProjectName = None, everything: All = False
) -> Response:
    """List the permanent permissions, by project."""
    project_id = await resolve_listed_project(services, context, project, everything)
    return as_json({"permissions": services.permissions.standing_permissions(project_id)})


@router.post("/permissions/withdraw", responses=responds_with("Permissions"))
async def withdraw_permission(services: TheServices, body: requests.WithdrawnPermission) -> Response:
    """Ask again for what was allowed for good."""
    await services.permissions.withdraw(body.project, body.tool, body.command)
    return as_json({"permissions": services.permissions.standing_permissions(body.project)})


@router.post("/sessions/{id}/answer", status_code=202, responses=responds_with("MessageState", 202))
async def answer_session(
    services: TheServices,
    identity: TheIdentity,
    session: SessionId,
    body: requests.NewAnswer,
    key: IdempotencyKey = None,
) -> Response:
    """Answer what the agent asks: with text, or with a decision on a permission it wants.

    A decision is also a person's word on a message that waits for it, or on an action that a rule offers."""
    if identity.kind == "session":
        _check_agent_answer(services, session, body)
    message_state = await services.inbox.answer(
        session,
        text=body.text,
        decision=body.decision,
        message=body.message,
        offer=body.offer,
        request=body.request,
        key=key,
        by=actor_name(identity),
    )
    return as_json(message_state, 202)


@router.get("/sessions/{id}/diff", responses=responds_with("Diff"))
async def get_diff(
    services: TheServices,
    session: SessionId,
    since: Annotated[
        str | None,
        Query(pattern="^[0-9a-f]{7,64}$", description="Only what changed since this commit of the session's branch."),
    ] = None,
) -> Response:
    """Return a session's change against its base, or since an earlier commit of it."""
    return as_json(await services.session_details.diff(session, since))


@router.get("/sessions/{id}/log", responses=responds_with_text("The transcript"))
async def get_log(
    request: Request,
    services: TheServices,
    session: SessionId,
    raw: Annotated[bool, Query(description="The terminal's bytes as they came.")] = False,
    tail: Annotated[int | None, Query(ge=0, description="Only so many lines.")] = None,
    follow: Annotated[bool, Query(description="Go on until the session ends.")] = False,
) -> Response:
    """Return a session's transcript: readable, or raw."""
    chunks = services.session_details.log(session, raw=raw, tail_lines=tail, follow=follow)
    return EndlessResponse(chunks, request.app.state.closing, "text/plain; charset=utf-8")


@router.get("/sessions/{id}/screen", responses=responds_with_text("The screen"))
async def get_screen(services: TheServices, session: SessionId) -> Response:
    """Return a terminal's screen without colours; of an agent that ended, the last lines that it showed."""
    text = await services.session_details.screen(session)
    return Response(text.encode(errors="replace"), media_type="text/plain; charset=utf-8")


@router.get("/sessions/{id}/why", responses=responds_with("Why"))
async def explain_session(services: TheServices, session: SessionId, identity: TheIdentity) -> Response:
    """Return the facts, evidence and rules behind a session's status and its last reactions; an agent gets them in words alone."""
    explanation = await services.session_details.explain_status(session)
    if identity.is_agent:
        explanation |= {"facts": {}, "effects": [], "reactions": [], "events": []}
    return as_json(explanation)


@router.get("/sessions/{id}/environment", responses=responds_with("Environment"), dependencies=[admins_only])
async def get_environment(services: TheServices, session: SessionId) -> Response:
    """Return a session's folder and environment; administrators only."""
    await services.audit.record(e.EnvironmentRead(), session)
    return as_json(await services.session_details.environment(session))


@router.post(
    "/sessions/{id}/run",
    responses=responds_with_text("One JSON object a line: `output`, at last `code`", "application/x-ndjson"),
    dependencies=[admins_only],
)
async def run_command(
    request: Request, services: TheServices, session: SessionId, body: requests.RunCommand
) -> Response:
    """Run a command in a session's workspace with its environment, on the machine where it lives; administrators only.

    Each line holds `output` (a line that it printed) or, last, `code`, its exit code. An error on the way is a last line with `problem`.
    """
    await services.audit.record(e.CommandRun(tuple(body.command)), session)
    lines = _lines(services.session_details.run(session, body.command))
    return EndlessResponse(lines, request.app.state.closing, "application/x-ndjson")


@router.get("/sessions/{id}/attach", responses=responds_with("Attach"), dependencies=[local_only])
async def get_attach_command(services: TheServices, session: SessionId) -> Response:
    """Return the command that shows a session's terminal; over the Unix socket only."""
    command = await services.session_details.attach(session)
    await services.audit.record(e.TerminalTaken("attached"), session)
    return as_json(command)


@router.get("/sessions/{id}/window", responses=responds_with("Window"), dependencies=[local_only])
async def get_window(services: TheServices, session: SessionId) -> Response:
    """Return what `ao open` opens: the session's terminal plugin, page and workspace; over the Unix socket only."""
    return as_json(services.session_details.window(session))


@router.websocket("/sessions/{id}/terminal")
async def open_terminal(
    websocket: WebSocket,
    services: TheServices,
    identity: TheIdentity,
    session: SessionId,
    columns: Annotated[int, Query(ge=1, le=1000)] = 120,
    rows: Annotated[int, Query(ge=1, le=1000)] = 40,
) -> None:
    """Open a session's terminal; viewers only watch it."""
    from agent_orchestrator.server.terminal import count_terminal, serve_terminal

    is_viewer = not auth.has_role(identity, "operator")
    with count_terminal(websocket.app.state.terminals, identity.by or identity.kind):
        command = await services.session_details.attach(session, watch=is_viewer)
        refuse = partial(websocket.app.state.refusals.record, websocket.scope) if is_viewer else None
        typed = partial(services.audit.record, e.TerminalTaken("typed"), session)
        await serve_terminal(websocket, command["argv"], command["env"], columns, rows, refuse, typed)


@router.get("/tasks", responses=responds_with("Tasks"))
async def list_tasks(services: TheServices) -> Response:
    """List the tasks; a task may have several sessions."""
    return as_json({"tasks": services.sessions.tasks()})


@router.get("/completion/{kind}", responses=responds_with_text("One a line"))
async def complete(
    services: TheServices,
    kind: Literal["sessions", "any", "projects", "agents", "plans", "fixes", "nodes"],
    prefix: str = "",
) -> Response:
    """Names that begin so, to be completed; `any`: sessions that are stopped, too."""
    return Response(
        "".join(f"{name}\n" for name in services.sessions.complete_names(kind, prefix)), media_type="text/plain"
    )


def _check_agent_answer(services: Services, session: str, body: requests.NewAnswer) -> None:
    """Raise Denied for an agent's answer that only a person may give: on held messages, offered actions, and permissions for good."""
    status = services.sessions.views.status(services.sessions.flow.sessions[session]).name
    if body.message or body.offer or body.decision == "always" or (body.decision and status != "blocked"):
        raise Denied("that is for people to say", "an agent answers questions, and allows or denies what is asked now")


async def _lines(items: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yield items as JSON lines; an error becomes a last line with `problem`."""
    try:
        async for item in items:
            yield json.dumps(item, separators=(",", ":")).encode() + b"\n"
    except AoError as error:
        yield json.dumps({"problem": problems.error_document(error)}).encode() + b"\n"
