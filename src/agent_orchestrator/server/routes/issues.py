"""Routes for the local tracker: issues, their labels, comments and dependencies; and the backlog."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response
from fastapi import Path as InPath

from agent_orchestrator.config.projects.projects import CommandContext
from agent_orchestrator.core.authors import TextAuthor, is_trusted_text
from agent_orchestrator.errors import UsageError
from agent_orchestrator.server.access.caller import Caller
from agent_orchestrator.server.access.request_context import resolve_listed_project
from agent_orchestrator.server.dependencies import (
    IdempotencyKey,
    ProjectName,
    TheContext,
    TheIdentity,
    TheServices,
    actor_name,
)
from agent_orchestrator.server.schema import requests
from agent_orchestrator.server.schema.openapi import as_json, responds_with, router_for
from agent_orchestrator.server.services import Services
from agent_orchestrator.sessions.creation.issue_task import find_issue

router = router_for("issues", "/api")

Number = Annotated[int, InPath(ge=1, description="The issue's number in its project.")]


async def _project(services: TheServices, context: TheContext, project: ProjectName = None) -> str:
    """Return the id of the project that a request is about."""
    return await _resolve_project(services, context, project)


async def _caller(services: TheServices, context: TheContext, identity: TheIdentity) -> Caller:
    """Return the caller with its services."""
    return Caller(services, identity, context)


TheProject = Annotated[str, Depends(_project)]
TheCaller = Annotated[Caller, Depends(_caller)]


async def _resolve_project(
    services: Services, context: CommandContext, project: str | None, *, adopt: bool = False
) -> str:
    """Return the id of the project that is meant; raise UsageError if none is."""
    project_id = await services.projects.resolve(context, project, adopt=adopt)
    if project_id is None:
        raise UsageError("no project is named", "name one: -p P, or ?project=P; `ao projects` lists them")
    return project_id


@router.get("/issues", responses=responds_with("Issues"))
async def list_issues(
    services: TheServices,
    context: TheContext,
    caller: TheCaller,
    project: ProjectName = None,
    everything: Annotated[bool, Query(alias="all", description="All projects.")] = False,
    label: Annotated[list[str] | None, Query(description="Only those with this label; may be repeated.")] = None,
    state: Annotated[Literal["open", "closed", "all"], Query(description="Which ones.")] = "open",
    upcoming: Annotated[
        bool,
        Query(
            alias="next", description="Open ones in the order they would be taken up; `waitingFor` says why not yet."
        ),
    ] = False,
) -> Response:
    """List issues, by number."""
    scope = await resolve_listed_project(services, context, project, everything)
    rows = (
        services.issues.list_in_start_order(scope, labels=label or ())
        if upcoming
        else services.issues.list(scope, labels=label or (), state=state)
    )
    visible_rows = [_visible_issue(caller, row, row["number"]) for row in rows]
    return as_json({"issues": visible_rows, "unread": services.webhooks.issue_sync.unreadable_trackers(scope)})


def _visible_issue(caller: Caller, row: dict[str, Any], number: int) -> dict[str, Any]:
    """Return an issue as the caller may see it: agents get no texts that wait for a person's approval."""
    if not caller.identity.is_agent:
        return row
    issue, projects = find_issue(caller.services.issues.flow, row["project"], number), caller.services.projects
    if "comments" not in row or caller.approval_reason_for(issue):
        return caller.visible_row(issue, row)
    trusted_authors = projects.trusted_authors(issue.project)
    pairs = zip(row["comments"], issue.comments, strict=True)
    return row | {"comments": [comment for comment, source in pairs if is_trusted_text(source, trusted_authors)]}


@router.post("/issues", status_code=201, responses=responds_with("Issue", 201))
async def open_issue(
    services: TheServices,
    context: TheContext,
    caller: TheCaller,
    body: requests.NewIssue,
    project: ProjectName = None,
    key: IdempotencyKey = None,
) -> Response:
    """Open an issue.

    Issues and pull requests of a project are numbered together."""
    project_id = await _resolve_project(services, context, body.project_id or project, adopt=True)
    words, by = _authorship(caller, body), actor_name(caller.identity)
    text = caller.tracker_text(body.body)
    issue = await services.issues.create(project_id, body.title, text, body.labels, body.after, words, key, by=by)
    return as_json(issue, 201)


@router.get("/issues/{number}", responses=responds_with("Issue"))
async def get_issue(services: TheServices, caller: TheCaller, project: TheProject, number: Number) -> Response:
    """One issue."""
    return as_json(_visible_issue(caller, services.issues.get(project, number), number))


@router.patch("/issues/{number}", responses=responds_with("Issue"))
async def change_issue(
    services: TheServices,
    caller: TheCaller,
    project: TheProject,
    number: Number,
    body: requests.IssueChange,
    key: IdempotencyKey = None,
) -> Response:
    """Change an issue: title, text, state, assignee, dependencies."""
    changed = await services.issues.change(
        project,
        number,
        title=body.title,
        body=caller.tracker_text(body.body) if body.body else body.body,
        state=body.state,
        assignee=(body.assignee or "") if "assignee" in body.model_fields_set else None,
        after=body.after,
        key=key,
    )
    return as_json(_visible_issue(caller, changed, number))


@router.post("/issues/{number}/comments", status_code=201, responses=responds_with("Issue", 201))
async def comment_on_issue(
    services: TheServices,
    caller: TheCaller,
    project: TheProject,
    number: Number,
    body: requests.NewComment,
    key: IdempotencyKey = None,
) -> Response:
    """Say something about an issue."""
    issue = await services.issues.comment(
        project, number, caller.tracker_text(body.body), _authorship(caller, body), key
    )
    return as_json(_visible_issue(caller, issue, number), 201)


def _authorship(caller: Caller, body: requests.AuthoredText) -> TextAuthor:
    """Return the author of a text: as the body says for people; an agent's texts are its own."""
    return body.text_author(caller.identity.name) if caller.session is None else TextAuthor(caller.name)


@router.post("/issues/{number}/labels", responses=responds_with("Issue"))
async def label_issue(
    services: TheServices,
    caller: TheCaller,
    project: TheProject,
    number: Number,
    body: requests.NewLabels,
    key: IdempotencyKey = None,
) -> Response:
    """Add labels to an issue."""
    return as_json(_visible_issue(caller, await services.issues.label(project, number, body.labels, key), number))


@router.delete("/issues/{number}/labels/{label:path}", responses=responds_with("Issue"))
async def unlabel_issue(
    services: TheServices,
    caller: TheCaller,
    project: TheProject,
    number: Number,
    label: str,
    key: IdempotencyKey = None,
) -> Response:
    """Take a label off an issue."""
    return as_json(_visible_issue(caller, await services.issues.unlabel(project, number, label, key), number))


@router.get("/backlog", responses=responds_with("Backlog"))
async def list_backlog(
    services: TheServices,
    context: TheContext,
    caller: TheCaller,
    project: ProjectName = None,
    everything: Annotated[bool, Query(alias="all", description="All projects.")] = False,
) -> Response:
    """List the open issues in the order that they would be started, by which profile, and why not yet.

    `ready`: it may be started now; with `autoAssign` it is, otherwise on request.
    """
    scope = await resolve_listed_project(services, context, project, everything)
    entries = [_visible_issue(caller, row, row["issue"]) for row in services.backlog.list(scope)]
    return as_json({"entries": entries, "unread": services.webhooks.issue_sync.unreadable_trackers(scope)})
