"""What is there of sessions that no record speaks of: their folders, and what was saved of them in repositories."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import find_layout, read_symbolic_head
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.daemon.repair.files import content
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.host import Host

_SAVED = ("rescue", "checkpoint", "restored")


async def find(repair: Repair, host: Host, sessions: dict[str, SessionFacts]) -> None:
    """Tell of everything that no session in the log owns, each with the command that brings it back."""
    known = {str(Path(facts.spec.path)) for facts in sessions.values()}
    repos = {Path(facts.spec.repo) for facts in sessions.values()}
    for path in sorted(_workspaces(repair)):
        layout = find_layout(path)
        if layout is not None:
            repos.add(layout.common.parent if layout.common.name == ".git" else layout.common)
        if str(path) in known:
            continue
        branch = (read_symbolic_head(layout.git_dir) or "").removeprefix("refs/heads/") if layout else ""
        here = f"git -C {shlex.quote(str(path))}"
        back = f"{here} status"
        if branch and layout is not None:
            owner = shlex.quote(str(layout.common.parent))
            back = (
                f"{here} add -A && {here} commit -m 'Found work'; cd {owner} && git worktree remove {shlex.quote(str(path))}"
                f" && ao new --branch {shlex.quote(branch)} TASK"
            )
        what = f"a workspace that no session owns: {path}{f' on branch {branch}' if branch else ''}"
        repair.tell("found", "warning", what, back)
    for repo in sorted(repo for repo in repos if find_layout(repo) is not None):
        await _saved(repair, Git(host, repo), sessions.keys())


def _workspaces(repair: Repair) -> set[Path]:
    found = {path for path in repair.home.worktrees.glob("*/*") if path.is_dir()}
    for record in repair.home.sessions.glob("*/workspace.json"):
        try:
            path = Path(json.loads(content(record))["path"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if path.is_dir():
            found.add(path)
    return found


async def _saved(repair: Repair, git: Git, known: Iterable[str]) -> None:
    try:
        refs = await git.refs(*(f"refs/ao/{kind}" for kind in _SAVED))
    except AoError as error:
        repair.tell("found", "warning", str(error))
        return
    mine = {session.replace(".", "%2E") for session in known} | set(known)
    for ref in sorted(refs):
        session = ref.rpartition("/")[2]
        if session not in mine:
            where, saved = shlex.quote(str(git.repo)), shlex.quote(ref)
            back = (
                f"git -C {where} branch {shlex.quote(session)} {saved}   # or look: git -C {where} show --stat {saved}"
            )
            repair.tell("found", "warning", f"saved work of {session} in {git.repo}: {ref}", back)
