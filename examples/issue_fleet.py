"""A program that has every open issue worked on, in steps: a worktree each, an agent in it, a pull request when it is done.

    python examples/issue_fleet.py

What fails in CI goes back to its agent. `AO_EXAMPLE_TOOL` names the agent, `AO_EXAMPLE_RUNTIME` its runtime.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from agent_orchestrator import AgentRuntime, Event, Orchestrator, Result, Session, Task, Worktree


async def work_on(orchestrator: Orchestrator, task: Task) -> None:
    """Give one issue to an agent."""
    worktree = await orchestrator.create_worktree(issue_id=task.issue_id, base_branch="main")
    agent = await orchestrator.spawn_agent(
        worktree_path=worktree.path,
        runtime=AgentRuntime(os.environ.get("AO_EXAMPLE_RUNTIME", AgentRuntime.TMUX)),
        tool=os.environ.get("AO_EXAMPLE_TOOL", "claude-code"),
        context=task.description,
        on_complete=open_pull_request_at_end(orchestrator, worktree, task.title),
    )
    orchestrator.on_ci_failure(agent.id, send_failed_checks_to(agent))


def open_pull_request_at_end(
    orchestrator: Orchestrator, worktree: Worktree, title: str
) -> Callable[[Result], Awaitable[None]]:
    """Return the handler for the end of an agent: it opens a pull request."""

    async def open_pr(result: Result) -> None:
        if result.success:
            pull = await orchestrator.create_pr(worktree=worktree, title=title, auto_merge=False)
            print(f"#{pull.number} {title}")

    return open_pr


def send_failed_checks_to(agent: Session) -> Callable[[Event], Awaitable[None]]:
    """Return the handler for failed checks: it sends their output to the agent."""

    async def fix(failure: Event) -> None:
        await agent.resume(message=f"CI failed: {failure.logs}", max_retries=3)

    return fix


async def main() -> None:
    """Work on the project of the working directory; `tracker={"type": "github", "repo": "myorg/myrepo"}` would name another."""
    async with Orchestrator(max_parallel_agents=3) as orchestrator:
        plan = await orchestrator.plan()
        for task in plan.tasks:
            await work_on(orchestrator, task)
        await orchestrator.wait(until="idle")


if __name__ == "__main__":
    asyncio.run(main())
