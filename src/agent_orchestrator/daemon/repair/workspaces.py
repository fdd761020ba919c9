"""What sessions have in Git: their folders, their worktrees' registration, their branches."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

from agent_orchestrator.base.files.safe import new_file
from agent_orchestrator.base.git.commands import ABSENT, Git
from agent_orchestrator.base.git.refs import find_layout, read_symbolic_head
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.daemon.repair.backup import Repair
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.rescue.manifest import checkpoint_ref, rescue_ref, restored_ref

_ABANDONED = 600.0
"""Seconds after which a lock file that no process can have is a leftover."""
_LOCKS = ("index.lock", "HEAD.lock")


async def put_in_order(repair: Repair, host: Host, sessions: dict[str, SessionFacts]) -> None:
    """Look at every session that is to have a workspace here."""
    before = len(repair.findings)
    here = [facts for facts in sessions.values() if not facts.stopped and not facts.remote]
    for facts in here:
        private = repair.home.session(facts.id)
        missing = facts.launch is not None and not private.is_dir()
        lost = "made anew; what its terminal showed is lost"
        if missing and repair.mend(facts.id, f"its folder {private} is gone", lost):
            private.mkdir(mode=0o700, parents=True)
        if facts.place is None or not facts.place.present:
            continue
        try:
            await _workspace(repair, host, facts, Path(facts.place.path))
        except (AoError, OSError) as error:
            repair.tell(facts.id, "failed", str(error), f"look at {facts.place.path}")
    if len(repair.findings) == before:
        repair.tell("workspaces", "ok", f"{len(here)} sessions that are not stopped")


async def _workspace(repair: Repair, host: Host, facts: SessionFacts, path: Path) -> None:
    repo = Path(facts.spec.repo)
    git = Git(host, repo)
    main = find_layout(repo)
    if main is None:
        repair.tell(facts.id, "failed", f"its repository {repo} is gone", "bring it back to where it was")
        return
    await _branch(repair, git, facts)
    if not path.is_dir():
        saved = await _saved(git, facts)
        back = f"`ao stop {facts.id}`, then `ao restore {facts.id}`"
        what = f"its branch {facts.branch} is there" + (f", and {saved[0]}" if saved else "")
        repair.tell(facts.id, "warning", f"its workspace {path} is gone; {what}", f"{back} makes it anew from these")
        return
    layout = find_layout(path)
    if layout is None and facts.place is not None and facts.place.shared:
        await _register(repair, git, facts, path, main.common)
    elif layout is not None:
        _locks(repair, host, facts, path, layout.git_dir)


async def _branch(repair: Repair, git: Git, facts: SessionFacts) -> None:
    """A branch that is gone comes back where it was last seen, or where the session's work was saved."""
    if not facts.branch or await git.branch_exists(facts.branch):
        return
    for commit, source in await _candidates(git, facts):
        wrong = f"its branch {facts.branch} is gone from {git.repo}"
        if repair.mend(facts.id, wrong, f"made anew at {commit[:12]}, {source}"):
            await git.update_ref(f"refs/heads/{facts.branch}", commit, ABSENT, "ao doctor --repair")
        return
    remedy = (
        f"git -C {shlex.quote(str(git.repo))} fsck --lost-found, then git branch {shlex.quote(facts.branch)} COMMIT"
    )
    repair.tell(facts.id, "failed", f"its branch {facts.branch} is gone, and so is its last commit", remedy)


async def _candidates(git: Git, facts: SessionFacts) -> list[tuple[str, str]]:
    known = [(facts.head, "where it was last seen"), (facts.published, "where it was last seen")]
    known += [(await git.resolve(f"{ref}^"), f"saved as {ref}") for ref, _ in await _refs(git, facts)]
    known += [(facts.place.base_commit if facts.place else None, "where it began")]
    return [(commit, source) for commit, source in known if commit and await git.resolve(commit)]


async def _refs(git: Git, facts: SessionFacts) -> list[tuple[str, str]]:
    refs = [make(facts.id) for make in (rescue_ref, checkpoint_ref, restored_ref)]
    found = await git.refs(*refs)
    return [(ref, found[ref]) for ref in refs if ref in found]


async def _saved(git: Git, facts: SessionFacts) -> list[str]:
    return [f"work saved as {ref}" for ref, _ in await _refs(git, facts)]


async def _register(repair: Repair, git: Git, facts: SessionFacts, path: Path, common: Path) -> None:
    """A worktree that the repository has forgotten is made known again; its files are not touched, its index is read anew."""
    pointer = path / ".git"
    entry = Path(facts.place.git_dir) if facts.place else common / "worktrees" / path.name
    if entry.parent != common / "worktrees":
        repair.tell(facts.id, "failed", f"{path} has lost its repository", f"save its files, then ao stop {facts.id}")
        return
    if not repair.mend(facts.id, f"{git.repo} does not know the worktree {path} any more", "made known again"):
        return
    if os.path.lexists(pointer):
        repair.keep_some(pointer)
    fresh = not (entry / "HEAD").is_file()
    if entry.exists():
        repair.keep_some(entry)
    entry.mkdir(parents=True, exist_ok=True)
    _write(entry / "commondir", "../..\n")
    _write(entry / "gitdir", f"{pointer}\n")
    if fresh or read_symbolic_head(entry) is None:
        _write(entry / "HEAD", f"ref: refs/heads/{facts.branch}\n")
    _write(pointer, f"gitdir: {entry}\n")
    if not (entry / "index").is_file():
        await Git(git.host, path).run("read-tree", "HEAD")


def _write(path: Path, text: str) -> None:
    """In the place of whatever an agent may have put there."""
    with new_file(path) as file:
        file.write(os.fsencode(text))


def _locks(repair: Repair, host: Host, facts: SessionFacts, path: Path, git_dir: Path) -> None:
    for lock in (git_dir / name for name in _LOCKS):
        try:
            age = time.time() - lock.stat().st_mtime
        except FileNotFoundError:
            continue
        if age < _ABANDONED or host.users_of(path):
            repair.tell(facts.id, "warning", f"{lock} is held", "if no Git command runs there, remove it")
        elif repair.mend(facts.id, f"{lock} was left {age / 60:.0f} minutes ago", "put aside"):
            repair.put_aside(lock)
