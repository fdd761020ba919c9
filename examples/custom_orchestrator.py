"""A program with a planner of its own: a goal becomes tests, code and documentation, each in a session of its own.

    python examples/custom_orchestrator.py "Add a login page"

The code waits until the tests have landed, the documentation for the code. What its agent is done with lands after its checks.
`AO_EXAMPLE_AGENT` names the agent that does the work.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

from agent_orchestrator import OrchestratorAgent, Piece, Plan, Result, Session, SessionManager, Task


class CustomOrchestrator(OrchestratorAgent):
    """Plans without asking a model, and says itself who does what under which name."""

    async def breakdown_goal(self, goal: str) -> Sequence[Piece]:
        """Return the parts of a goal; `deps` are the titles of those that come before."""
        tests, code, docs = (f"{goal}: {part}" for part in ("tests", "code", "docs"))
        return [
            Piece(tests, f"Write the tests for: {goal}", effort="small"),
            Piece(code, f"Make the tests pass for: {goal}", deps=[tests], effort="medium"),
            Piece(docs, f"Document: {goal}", deps=[code], effort="small"),
        ]

    async def plan(self, goal: str | None = None) -> Plan:
        """Tasks with ids, in place of the built-in planner's."""
        parts = await self.breakdown_goal(goal or "Work on the open issues")
        tasks = [
            Task(
                id=self.generate_id(),
                title=part.title,
                description=part.description,
                dependencies=part.deps,
                estimated_effort=part.effort,
            )
            for part in parts
        ]
        return Plan(tasks, goal=goal)

    def select_agent(self, task: Task) -> str:
        """Who does a task: here one for all of them."""
        del task
        return os.environ.get("AO_EXAMPLE_AGENT", "claude-code")

    async def spawn(self, task: Task | str, on_complete: Any = None, **options: Any) -> Session:
        """Return a session for a task. What else the task says (its text, its dependencies) is added."""
        del on_complete, options
        title = task if isinstance(task, str) else task.title
        return await SessionManager().create(
            project_id=self.project_id,
            name=self.to_session_name(title),
            issue=None if isinstance(task, str) else task.id,
            branch=self.to_branch_name(title),
            agent=None if isinstance(task, str) else self.select_agent(task),
            workspace="worktree",
        )


async def main(goal: str) -> None:
    """Plan it, have it done, and say what came of it."""
    async with CustomOrchestrator() as orchestrator:

        async def land(result: Result) -> None:
            """Give the word that a change may land."""
            if result.success:
                await orchestrator.create_pr(result.session, auto_merge=True)

        for result in await orchestrator.run(goal, on_complete=land):
            print(result.session.id, result.session.branch, result.session.status)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or "Add a login page"))
