"""The local tracker: issues, their labels, comments and dependencies."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from fastapi import Path as InPath

from agent_orchestrator.errors import UsageError
from agent_orchestrator.server import models, requests
from agent_orchestrator.server.context import Key, ProjectName, TheContext, TheIdentity, TheServices, scope_of
from agent_orchestrator.server.describe import as_json, gives
from agent_orchestrator.services import Services
from agent_orchestrator.services.projects import Context

router = APIRouter(prefix="/api", tags=["issues"])

Number = Annotated[int, InPath(ge=1, description="The issue's number in its project.")]


async def _project(services: TheServices, context: TheContext, project: ProjectName = None) -> str:
    return await _meant(services, context, project)


TheProject = Annotated[str, Depends(_project)]


async def _meant(services: Services, context: Context, project: str | None, *, adopt: bool = False) -> str:
    meant = await services.projects.resolve(context, project, adopt=adopt)
    if meant is None:
        raise UsageError("no project is named", "name one: -p P, or ?project=P; `ao projects` lists them")
    return meant


@router.get("/issues", responses=gives(models.Issues))
async def list_issues(
    services: TheServices,
    context: TheContext,
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
    scope = await scope_of(services, context, project, everything)
    found = (
        services.issues.next(scope, labels=label or ())
        if upcoming
        else services.issues.list(scope, labels=label or (), state=state)
    )
    return as_json({"issues": found, "unread": services.webhooks.tracking.unread(scope)})


@router.post("/issues", status_code=201, responses=gives(models.Issue, 201))
async def open_issue(
    services: TheServices,
    context: TheContext,
    identity: TheIdentity,
    body: requests.NewIssue,
    project: ProjectName = None,
    key: Key = None,
) -> Response:
    """Open an issue.

    Issues and pull requests of a project are numbered together."""
    meant = await _meant(services, context, body.project_id or project, adopt=True)
    words = body.words(identity.name)
    made = await services.issues.create(meant, body.title, body.body, body.labels, body.after, words, key)
    return as_json(made, 201)


@router.get("/issues/{number}", responses=gives(models.Issue))
async def get_issue(services: TheServices, project: TheProject, number: Number) -> Response:
    """One issue."""
    return as_json(services.issues.get(project, number))


@router.patch("/issues/{number}", responses=gives(models.Issue))
async def change_issue(
    services: TheServices, project: TheProject, number: Number, body: requests.IssueChange, key: Key = None
) -> Response:
    """Change an issue: title, text, state, assignee, dependencies."""
    given = body.as_given()
    if "assignee" in given:
        given["assignee"] = given["assignee"] or ""
    return as_json(await services.issues.change(project, number, **given, key=key))


@router.post("/issues/{number}/comments", status_code=201, responses=gives(models.Issue, 201))
async def comment_on_issue(
    services: TheServices,
    identity: TheIdentity,
    project: TheProject,
    number: Number,
    body: requests.NewComment,
    key: Key = None,
) -> Response:
    """Say something about an issue."""
    return as_json(await services.issues.comment(project, number, body.body, body.words(identity.name), key), 201)


@router.post("/issues/{number}/labels", responses=gives(models.Issue))
async def label_issue(
    services: TheServices, project: TheProject, number: Number, body: requests.NewLabels, key: Key = None
) -> Response:
    """Add labels to an issue."""
    return as_json(await services.issues.label(project, number, body.labels, key))


@router.delete("/issues/{number}/labels/{label:path}", responses=gives(models.Issue))
async def unlabel_issue(
    services: TheServices, project: TheProject, number: Number, label: str, key: Key = None
) -> Response:
    """Take a label off an issue."""
    return as_json(await services.issues.unlabel(project, number, label, key))


@router.get("/backlog", responses=gives(models.Backlog))
async def list_backlog(
    services: TheServices,
    context: TheContext,
    project: ProjectName = None,
    everything: Annotated[bool, Query(alias="all", description="All projects.")] = False,
) -> Response:
    """List the open issues in the order that they would be taken, by which profile, and why not yet.

    `ready`: it may be taken now; with `autoAssign` it is, otherwise when somebody asks for it."""
    scope = await scope_of(services, context, project, everything)
    return as_json({"entries": services.backlog.list(scope), "unread": services.webhooks.tracking.unread(scope)})
