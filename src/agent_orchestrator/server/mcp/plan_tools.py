"""MCP tools for plans: create tasks for a goal, and create issues for the tasks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from agent_orchestrator.errors import NotFound, UsageError
from agent_orchestrator.server.access.caller import Caller, Scope
from agent_orchestrator.server.mcp.fleet_tools import ProjectName
from agent_orchestrator.server.mcp.tools import Arguments, ToolAnswer, tool

PlanId = Annotated[str, Field(min_length=1, max_length=20, description="A plan's id: `P3`.")]
Line = Annotated[str, Field(min_length=1, max_length=500)]
_MAX_PLANS = 50


class Task(Arguments):
    """One task of a plan."""

    id: str = Field(min_length=1, max_length=32, description="A short name within the plan, for `dependencies`.")
    title: str = Field(min_length=1, max_length=200)
    description: str = Field("", max_length=20_000, description="All that its agent must know.")
    acceptance: list[Line] = Field([], max_length=50, description="What must hold when it is done.")
    dependencies: list[Line] = Field([], max_length=50, description="Ids of tasks that must have landed before.")
    effort: Literal["small", "medium", "large"] = "medium"
    labels: list[Annotated[str, Field(min_length=1, max_length=80)]] = Field([], max_length=50)
    files: list[Line] = Field([], max_length=50, description="Files that it is expected to change; glob patterns too.")
    profile: str | None = Field(None, max_length=100, description="The profile that suits it.")
    priority: int = Field(0, ge=-1000, le=1000)
    issue: int | None = Field(None, ge=1, le=2**31, description="The issue that it is, where there is one already.")


class NewPlan(Arguments):
    """A plan to be made."""

    goal: str = Field("", max_length=20_000, description="What is wanted; absent, with no tasks: the open issues.")
    tasks: list[Task] | None = Field(None, max_length=200, description="Your own tasks; absent: an agent plans them.")
    agent: str | None = Field(None, max_length=100, description="The agent that plans; absent: the project's.")
    model: str | None = Field(None, max_length=200)
    project: ProjectName = None


class PlanQuery(Arguments):
    """One plan."""

    plan: PlanId


class ProjectQuery(Arguments):
    """One project, or all."""

    project: ProjectName = None


class Application(PlanQuery):
    """How a plan is applied."""

    start: bool = Field(True, description="Have the issues taken up by themselves as there is room.")
    group_limit: int | None = Field(None, ge=1, le=1000, description="How many of them may be worked on at once.")


class Plan(ToolAnswer):
    """A plan."""

    id: str
    project: str
    goal: str
    state: str
    tasks: list[dict[str, Any]]
    error: str | None


class Plans(ToolAnswer):
    """Plans in short."""

    plans: list[dict[str, Any]]


@tool(Scope.READ, Plans)
async def list_plans(caller: Caller, arguments: ProjectQuery) -> dict[str, Any]:
    """List the plans in short, the newest first, at most 50."""
    plans = caller.services.planner.list(await caller.resolve_project(arguments.project))
    return {
        "plans": [
            {key: plan[key] for key in ("id", "project", "goal", "state", "error")} | {"tasks": len(plan["tasks"])}
            for plan in plans[:_MAX_PLANS]
        ]
    }


@tool(Scope.READ, Plan)
async def get_plan(caller: Caller, arguments: PlanQuery) -> dict[str, Any]:
    """Return one plan: its state, its tasks, and the progress of each once it is applied."""
    return plan_view(caller, arguments.plan)


@tool(Scope.STEER, Plan)
async def create_plan(caller: Caller, arguments: NewPlan) -> dict[str, Any]:
    """Make a plan: give your own `tasks`, or only a `goal` and an agent that looks at the repository makes them.

    The latter takes minutes: its state is `planning` until it is a `draft` or has `failed`; poll it with get_plan.
    """
    if arguments.tasks is not None and not arguments.tasks:
        raise UsageError("`tasks` is empty", "give some, or leave it out")
    project = await caller.require_project(arguments.project)
    tasks = None if arguments.tasks is None else [task.model_dump() for task in arguments.tasks]
    return await caller.services.planner.create(
        project, arguments.goal, agent=arguments.agent, model=arguments.model, tasks=tasks, by=caller.name
    )


@tool(Scope.STEER, Plan, is_idempotent=True)
async def apply_plan(caller: Caller, arguments: Application) -> dict[str, Any]:
    """Make issues of a plan's tasks, with their dependencies. They are started automatically, in order, as the limits allow."""
    plan = plan_view(caller, arguments.plan)["id"]
    return await caller.services.planner.apply(
        plan, start=arguments.start, group_limit=arguments.group_limit, by=caller.name
    )


def plan_view(caller: Caller, name: str) -> dict[str, Any]:
    """Return a plan; raise NotFound if it does not exist or the caller may not see it."""
    plan = caller.services.planner.get(name)
    if caller.session is not None and plan["project"] != caller.session.project:
        raise NotFound(f"there is no plan {name}", "list_plans tells those that there are")
    return plan
