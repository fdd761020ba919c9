"""An agent that wraps a CLI: `my-agent-cli --task … --worktree … --branch …` does the task, and its exit code says how that went.

What it commits becomes the pull request. Another program than `my-agent-cli` is named by `options: {program: …}` of a profile.
"""

from __future__ import annotations

import asyncio

from agent_orchestrator import AgentConfig, AgentPlugin, Task


class CustomAgent(AgentPlugin):
    """Runs the CLI in the workspace; what it prints is the session's terminal."""

    name = "my-custom-agent"
    permissions = ("processes",)

    async def execute_task(self, task: Task, context: AgentConfig) -> str:
        """Run it to its end. An exception is failure, and stands in the session's log."""
        process = await asyncio.create_subprocess_exec(
            str(self.config.get("program", "my-agent-cli")),
            *("--task", task.description),
            *("--worktree", context.workspace_path),
            *("--branch", context.branch),
            cwd=context.workspace_path,
        )
        code = await process.wait()
        if code != 0:
            raise RuntimeError(f"Agent failed: {code}")
        return f"did: {task.title}"
