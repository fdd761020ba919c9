"""Repair of what sessions have in Git: their folders, their worktrees' registration, their branches."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

from agent_orchestrator.base.files.safe import create_file
from agent_orchestrator.base.git.commands import REF_ABSENT, Git
from agent_orchestrator.base.git.refs import find_layout, read_symbolic_head
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.rescue.manifest import checkpoint_ref, rescue_ref, restored_ref

_ABANDONED_LOCK_SECONDS = 600.0
"""Seconds after which a lock file that no process uses counts as left over."""
_LOCK_NAMES = ("index.lock", "HEAD.lock")
"""Git's lock files that are checked."""


async def repair_workspaces(repair: Repair, host: Host, sessions: dict[str, SessionFacts]) -> None:
    """Check and repair every session that is to have a workspace on this machine."""
    findings_before = len(repair.findings)
    local_sessions = [facts for facts in sessions.values() if not facts.stopped and not facts.remote]
    for facts in local_sessions:
        private = repair.home.session(facts.id)
        is_missing = facts.launch is not None and not private.is_dir()
        action = "made anew; what its terminal showed is lost"
        if is_missing and repair.report_repair(facts.id, f"its folder {private} is gone", action):
            private.mkdir(mode=0o700, parents=True)
        if facts.workspace is None or not facts.workspace.present:
            continue
        try:
            await _repair_workspace(repair, host, facts, Path(facts.workspace.path))
        except (AoError, OSError) as error:
            repair.report(facts.id, "failed", str(error), f"look at {facts.workspace.path}")
    if len(repair.findings) == findings_before:
        repair.report("workspaces", "ok", f"{len(local_sessions)} sessions that are not stopped")


async def _repair_workspace(repair: Repair, host: Host, facts: SessionFacts, path: Path) -> None:
    """Repair one session's branch and workspace; a missing workspace is only reported."""
    repo = Path(facts.spec.repo)
    git = Git(host, repo)
    main = find_layout(repo)
    if main is None:
        repair.report(facts.id, "failed", f"its repository {repo} is gone", "bring it back to where it was")
        return
    await _restore_branch(repair, git, facts)
    if not path.is_dir():
        saved = await _describe_saved(git, facts)
        commands = f"`ao stop {facts.id}`, then `ao restore {facts.id}`"
        remains = f"its branch {facts.branch} is there" + (f", and {saved[0]}" if saved else "")
        repair.report(
            facts.id, "warning", f"its workspace {path} is gone; {remains}", f"{commands} makes it anew from these"
        )
        return
    layout = find_layout(path)
    if layout is None and facts.workspace is not None and facts.workspace.shared:
        await _register_worktree(repair, git, facts, path, main.common)
    elif layout is not None:
        _remove_locks(repair, host, facts, path, layout.git_dir)


async def _restore_branch(repair: Repair, git: Git, facts: SessionFacts) -> None:
    """Restore a missing branch at the commit where it was last seen, or at the session's saved work."""
    if not facts.branch or await git.branch_exists(facts.branch):
        return
    for commit, source in await _candidates(git, facts):
        problem = f"its branch {facts.branch} is gone from {git.repo}"
        if repair.report_repair(facts.id, problem, f"made anew at {commit[:12]}, {source}"):
            await git.update_ref(f"refs/heads/{facts.branch}", commit, REF_ABSENT, "ao doctor --repair")
        return
    remedy = (
        f"git -C {shlex.quote(str(git.repo))} fsck --lost-found, then git branch {shlex.quote(facts.branch)} COMMIT"
    )
    repair.report(facts.id, "failed", f"its branch {facts.branch} is gone, and so is its last commit", remedy)


async def _candidates(git: Git, facts: SessionFacts) -> list[tuple[str, str]]:
    """Return existing commits that a branch can be restored at, best first, with where each comes from."""
    candidates = [(facts.head, "where it was last seen"), (facts.published_head, "where it was last seen")]
    candidates += [(await git.resolve(f"{ref}^"), f"saved as {ref}") for ref, _ in await _saved_refs(git, facts)]
    candidates += [(facts.workspace.base_commit if facts.workspace else None, "where it began")]
    return [(commit, source) for commit, source in candidates if commit and await git.resolve(commit)]


async def _saved_refs(git: Git, facts: SessionFacts) -> list[tuple[str, str]]:
    """Return the session's refs with saved work, and their commits."""
    refs = [ref_of(facts.id) for ref_of in (rescue_ref, checkpoint_ref, restored_ref)]
    commits = await git.refs(*refs)
    return [(ref, commits[ref]) for ref in refs if ref in commits]


async def _describe_saved(git: Git, facts: SessionFacts) -> list[str]:
    """Return descriptions of the session's saved work."""
    return [f"work saved as {ref}" for ref, _ in await _saved_refs(git, facts)]


async def _register_worktree(repair: Repair, git: Git, facts: SessionFacts, path: Path, common: Path) -> None:
    """Register a worktree that the repository has lost; its files are not touched, its index is read from HEAD if missing."""
    pointer = path / ".git"
    entry = Path(facts.workspace.git_dir) if facts.workspace else common / "worktrees" / path.name
    if entry.parent != common / "worktrees":
        repair.report(facts.id, "failed", f"{path} has lost its repository", f"save its files, then ao stop {facts.id}")
        return
    if not repair.report_repair(facts.id, f"{git.repo} does not know the worktree {path} any more", "made known again"):
        return
    if os.path.lexists(pointer):
        repair.back_up_limited(pointer)
    is_new = not (entry / "HEAD").is_file()
    if entry.exists():
        repair.back_up_limited(entry)
    entry.mkdir(parents=True, exist_ok=True)
    _replace_file(entry / "commondir", "../..\n")
    _replace_file(entry / "gitdir", f"{pointer}\n")
    if is_new or read_symbolic_head(entry) is None:
        _replace_file(entry / "HEAD", f"ref: refs/heads/{facts.branch}\n")
    _replace_file(pointer, f"gitdir: {entry}\n")
    if not (entry / "index").is_file():
        await Git(git.host, path).run("read-tree", "HEAD")


def _replace_file(path: Path, text: str) -> None:
    """Write a file, replacing whatever an agent may have put at its path."""
    with create_file(path) as file:
        file.write(os.fsencode(text))


def _remove_locks(repair: Repair, host: Host, facts: SessionFacts, path: Path, git_dir: Path) -> None:
    """Put aside old lock files; report those that may be in use."""
    for lock in (git_dir / name for name in _LOCK_NAMES):
        try:
            age = time.time() - lock.stat().st_mtime
        except FileNotFoundError:
            continue
        if age < _ABANDONED_LOCK_SECONDS or host.users_of(path):
            repair.report(facts.id, "warning", f"{lock} is held", "if no Git command runs there, remove it")
        elif repair.report_repair(facts.id, f"{lock} was left {age / 60:.0f} minutes ago", "put aside"):
            repair.move_to_backup(lock)
