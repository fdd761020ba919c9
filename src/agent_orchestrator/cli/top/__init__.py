"""`ao top`: a live board of all sessions in the whole terminal, with keys for all actions on a session."""

from __future__ import annotations

import os

import click

from agent_orchestrator.cli.common import client, is_interactive, project_query, scope_options
from agent_orchestrator.errors import NotFound, UsageError


@click.command()
@scope_options
def top(project: str | None, all_projects: bool) -> int:
    """Show the board on the whole terminal, and steer sessions by keys.

    Follows what happens, shows the chosen session's terminal, and works over SSH and in small terminals. `?` lists the keys: attach,
    send, answer, diff, approve, request changes, merge, stop, restore, open, filter.
    """
    project_query(project, all_projects)
    if not is_interactive() or os.environ.get("TERM") == "dumb":
        raise UsageError(
            "ao top needs a terminal that can be drawn on",
            "`ao status` shows the same without one, `ao status -w` follows it",
        )
    answer = client().get("/api/projects")
    names = [str(each["id"]) for each in answer["projects"]]
    if project is not None and project not in names:
        remedy = f"known: {', '.join(names)}" if names else "add one: ao add-project PATH"
        raise NotFound(f"no project {project}", remedy)
    from agent_orchestrator.cli.top.app import Top

    board = Top(None if all_projects else project or answer.get("here"))
    board.run()
    if board.defect is not None:
        raise board.defect
    return 0
