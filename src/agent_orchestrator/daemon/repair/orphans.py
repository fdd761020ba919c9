"""Finds what is left of sessions that have no record: their workspaces, and their saved work in repositories."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import find_layout, read_symbolic_head
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.daemon.repair.files import read_content
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.host import Host

_SAVED_KINDS = ("rescue", "checkpoint", "restored")
"""Kinds of refs below `refs/ao/` with saved work."""


async def report_orphans(repair: Repair, host: Host, sessions: dict[str, SessionFacts]) -> None:
    """Report everything that no session in the log owns, each with the command that restores it."""
    owned_paths = {str(Path(facts.spec.path)) for facts in sessions.values()}
    repos = {Path(facts.spec.repo) for facts in sessions.values()}
    for path in sorted(_workspaces(repair)):
        layout = find_layout(path)
        if layout is not None:
            repos.add(layout.common.parent if layout.common.name == ".git" else layout.common)
        if str(path) in owned_paths:
            continue
        branch = (read_symbolic_head(layout.git_dir) or "").removeprefix("refs/heads/") if layout else ""
        git_command = f"git -C {shlex.quote(str(path))}"
        command = f"{git_command} status"
        if branch and layout is not None:
            owner = shlex.quote(str(layout.common.parent))
            command = (
                f"{git_command} add -A && {git_command} commit -m 'Found work'; cd {owner} && git worktree remove {shlex.quote(str(path))}"
                f" && ao new --branch {shlex.quote(branch)} TASK"
            )
        description = f"a workspace that no session owns: {path}{f' on branch {branch}' if branch else ''}"
        repair.report("found", "warning", description, command)
    for repo in sorted(repo for repo in repos if find_layout(repo) is not None):
        await _report_saved_work(repair, Git(host, repo), sessions.keys())


def _workspaces(repair: Repair) -> set[Path]:
    """Return all workspaces of the home, including those elsewhere that a session's private folder names."""
    paths = {path for path in repair.home.worktrees.glob("*/*") if path.is_dir()}
    for record in repair.home.sessions.glob("*/workspace.json"):
        try:
            path = Path(json.loads(read_content(record))["path"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if path.is_dir():
            paths.add(path)
    return paths


async def _report_saved_work(repair: Repair, git: Git, session_ids: Iterable[str]) -> None:
    """Report saved work in a repository whose session is not in `session_ids`."""
    try:
        refs = await git.refs(*(f"refs/ao/{kind}" for kind in _SAVED_KINDS))
    except AoError as error:
        repair.report("found", "warning", str(error))
        return
    owned = {session.replace(".", "%2E") for session in session_ids} | set(session_ids)
    for ref in sorted(refs):
        session = ref.rpartition("/")[2]
        if session not in owned:
            folder, quoted_ref = shlex.quote(str(git.repo)), shlex.quote(ref)
            command = f"git -C {folder} branch {shlex.quote(session)} {quoted_ref}   # or look: git -C {folder} show --stat {quoted_ref}"
            repair.report("found", "warning", f"saved work of {session} in {git.repo}: {ref}", command)
