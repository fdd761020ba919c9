"""Conflicts seen before they happen: looks when branches move or files in workspaces change, and tells each collision once.

Pushed, not polled: a commit is told by the flow, a changed file by the kernel. Changes that come together are one look (`debounce.py`), and
while nothing changes nothing is done.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.files.watch import Watch
from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.base.home import Home
from agent_orchestrator.base.text.globs import covered, is_glob
from agent_orchestrator.changes.conflicts.debounce import Pace
from agent_orchestrator.changes.conflicts.merge_order import Names, words
from agent_orchestrator.changes.conflicts.model import Branch, Pair
from agent_orchestrator.changes.conflicts.prediction import Outlook
from agent_orchestrator.changes.conflicts.snapshot import read_branch
from agent_orchestrator.changes.conflicts.workspace_watch import WorkspaceWatch, room
from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import DAEMON
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.reactions import CHANGELESS
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols.host import Host

_TURNS = (e.AgentTurnEnded, e.AgentDone, e.AgentExited, e.AgentActivity)
"""What says, where not every file is watched, that files may have changed."""
_LISTINGS = 8

log = structlog.get_logger()


def branch_of(facts: SessionFacts) -> Branch | None:
    """A session's live branch; none: it has ended, or has no branch yet."""
    over = facts.stopped or facts.wanted == "stop" or (facts.pr is not None and facts.pr.state != "open")
    if over or facts.place is None or facts.spec.kind in CHANGELESS:
        return None
    return Branch(
        session=facts.id,
        base=facts.pr.base if facts.pr else facts.base,
        head=_there(facts) if facts.remote else facts.head,
        start=facts.place.base_commit,
        workspace=Path(facts.place.path) if facts.place.present and not facts.remote else None,
        since=facts.created_at,
    )


def _there(facts: SessionFacts) -> str | None:
    """What is here of a session that lives on a node: its last checkpoint, or its commits where these are newer."""
    known = facts.published or (facts.place.base_commit if facts.place else None)
    checkpoint = facts.checkpoint
    return checkpoint.commit if checkpoint is not None and checkpoint.head == (facts.published or facts.head) else known


@dataclass(slots=True)
class _Ground:
    """One repository, and what is waiting to be looked at there."""

    project: str
    repo: Path
    outlook: Outlook
    pace: Pace = field(default_factory=Pace)
    stale: set[str] = field(default_factory=set)
    """Sessions whose files may be others than at the last look."""
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None


class Conflicts:
    """Which sessions will collide, and on what."""

    def __init__(self, flow: Flow, home: Home, host: Host, watch: Watch) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.watch = watch
        self._grounds: dict[tuple[str, str], _Ground] = {}
        self._watches: dict[str, WorkspaceWatch] = {}
        self._listings: dict[tuple[str, str], list[str]] = {}
        self._one_listing = asyncio.Lock()
        self._names_at: dict[str, Names] = {}
        """Commit → its files, by what texts call them."""
        self._named: dict[str, tuple[str | None, frozenset[str]]] = {}
        """Session → the files that its task names, and the base's commit that they were looked for in."""
        self._room = room()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Watch the branches that live, and those to come."""
        self.flow.on_change.append(self._on_change)
        for facts in self.flow.sessions.values():
            if branch_of(facts):
                self._follow(facts)
        for ground in self._grounds.values():
            if len(self._branches(ground)) > 1:
                self._changed(ground)

    def close(self) -> None:
        """Look no more."""
        for ground in self._grounds.values():
            if ground.timer:
                ground.timer.cancel()
        for watched in self._watches.values():
            watched.close()
        for task in self._tasks:
            task.cancel()

    # -- asking --------------------------------------------------------------------------------------------------------

    def known(self, project: str | None) -> tuple[Pair, ...]:
        """The collisions of a project (none: of all) as of the last look."""
        grounds = [one for one in self._grounds.values() if project in (None, one.project)]
        return tuple(pair for ground in grounds for pair in ground.outlook.pairs)

    async def pairs(self, project: str | None, *, fresh: bool) -> list[Mapping[str, Any]]:
        """The same for people; `fresh`: after a look at whatever has changed."""
        if fresh:
            self.watch.catch_up()
            for ground in [one for one in self._grounds.values() if project in (None, one.project)]:
                await self._look_for_somebody(ground)
        return [pair.json() for pair in self.known(project)]

    async def _look_for_somebody(self, ground: _Ground) -> None:
        try:
            try:
                await self._look(ground, all_unwatched=True)
            except AoError:  # a workspace that was removed in the midst of it is not there at the next look
                await self._look(ground, all_unwatched=True)
        except GitFailed as error:
            raise Temporary(f"collisions cannot be looked for: {error.text}", "try again") from None

    async def expected(self, sessions: Sequence[SessionFacts]) -> dict[str, frozenset[str]]:
        """The files that each is about: those that its plan and its task name, and those that it has changed."""
        bases = {(facts.spec.repo, facts.base) for facts in sessions}
        commits = {(repo, base): _tip(Path(repo), base) for repo, base in bases}
        named: dict[str, tuple[str | None, frozenset[str]]] = {}
        for facts in sessions:
            commit, known = commits[facts.spec.repo, facts.base], self._named.get(facts.id)
            fresh = known is not None and known[0] == commit
            named[facts.id] = known if known and fresh else (commit, await self._names(facts, commit))
        self._named = named
        return {facts.id: named[facts.id][1] | await self._touched(facts, named[facts.id][0]) for facts in sessions}

    async def _names(self, facts: SessionFacts, commit: str | None) -> frozenset[str]:
        """What a session is about by the words of others; a file that is not there yet may be meant too."""
        text, globs = f"{facts.spec.title}\n{facts.spec.prompt}", [one for one in facts.spec.files if is_glob(one)]
        exact = frozenset(one.removeprefix("./") for one in facts.spec.files if not is_glob(one))
        if commit is None or not (globs or words(text)):
            return exact
        try:
            names = self._names_at.get(commit)
            if names is None:
                names = Names(await self._listing(Path(facts.spec.repo), commit, "--name-only"))
                while len(self._names_at) >= _LISTINGS:
                    self._names_at.pop(next(iter(self._names_at)))
                self._names_at[commit] = names
        except AoError:
            return exact
        meant = await asyncio.to_thread(covered, globs, names.files) if globs else frozenset()
        return exact | names.named(text) | meant

    async def _touched(self, facts: SessionFacts, base: str | None) -> frozenset[str]:
        branch = branch_of(facts)
        ground = self._grounds.get((facts.project, facts.spec.repo))
        try:
            return await ground.outlook.changed(branch, base) if branch and ground and base else frozenset()
        except AoError:
            return frozenset()

    async def _listing(self, repo: Path, commit: str, *options: str) -> list[str]:
        """All files, or folders, of a commit."""
        key = (commit, " ".join(options))
        async with self._one_listing:  # at a start all sessions ask at once, and most for the same
            if key not in self._listings:
                done = await Git(self.host, repo).run("ls-tree", "-r", "-z", *options, commit)
                while len(self._listings) >= _LISTINGS:
                    self._listings.pop(next(iter(self._listings)))
                self._listings[key] = [name for name in os.fsdecode(done.out).split("\0") if name]
            return self._listings[key]

    # -- noticing ------------------------------------------------------------------------------------------------------

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if change.after is None or change.after is change.before:
                continue
            before = branch_of(change.before) if change.before else None
            after = branch_of(change.after)
            watched = self._watches.get(change.after.id)
            if after is None:
                if before is not None:
                    self._over(change.after)
            elif before != after:
                self._moved(change.after, before, after)
            elif watched and not watched.complete and isinstance(change.event.body, _TURNS):
                self._touch(change.after.id)

    def _moved(self, facts: SessionFacts, before: Branch | None, after: Branch) -> None:
        if before is None or before.workspace != after.workspace:
            self._follow(facts)
        if before is not None or after.head != after.start:
            self._changed(self._ground(facts))

    def _follow(self, facts: SessionFacts) -> None:
        """Watch its workspace; what is in it is not known yet."""
        ground = self._ground(facts)
        ground.stale.add(facts.id)
        if watched := self._watches.pop(facts.id, None):
            watched.close()
        branch = branch_of(facts)
        if branch and branch.workspace:
            used = sum(map(len, self._watches.values()))
            git = Git(self.host, branch.workspace)
            watched = WorkspaceWatch(self.watch, git, lambda: self._touch(facts.id), self._room - used)
            self._watches[facts.id] = watched
            self._spawn(self._open(watched, branch.head))

    async def _open(self, watched: WorkspaceWatch, head: str | None) -> None:
        try:
            await watched.open(await self._listing(watched.git.repo, head, "-d", "--name-only") if head else ())
        except AoError as error:
            log.info("a workspace cannot be watched", workspace=str(watched.git.repo), error=str(error))

    def _over(self, facts: SessionFacts) -> None:
        if watched := self._watches.pop(facts.id, None):
            watched.close()
        ground = self._ground(facts)
        ground.stale.discard(facts.id)
        if any(facts.id in pair.sides for pair in ground.outlook.pairs):
            self._changed(ground)

    def _touch(self, session: str) -> None:
        ground = self._ground(self.flow.sessions[session])
        ground.stale.add(session)
        self._changed(ground)

    def _ground(self, facts: SessionFacts) -> _Ground:
        key = (facts.project, facts.spec.repo)
        ground = self._grounds.get(key)
        if ground is None:
            repo = Path(facts.spec.repo)
            layout = find_layout(repo)
            work = self.home.path / "conflicts" / facts.project / str(len(self._grounds))
            outlook = Outlook(self.host, layout.common if layout else repo, work)
            ground = self._grounds[key] = _Ground(facts.project, repo, outlook)
        return ground

    def _branches(self, ground: _Ground) -> list[Branch]:
        here = (
            facts
            for facts in self.flow.sessions.values()
            if facts.project == ground.project and facts.spec.repo == str(ground.repo)
        )
        return [branch for facts in here if (branch := branch_of(facts))]

    # -- looking -------------------------------------------------------------------------------------------------------

    def _changed(self, ground: _Ground) -> None:
        loop = asyncio.get_running_loop()
        ground.pace.changed(loop.time())
        self._arm(ground)

    def _arm(self, ground: _Ground) -> None:
        """Have one timer for the next look, if one is due."""
        if ground.timer is None and not ground.looking.locked() and (due := ground.pace.due) is not None:
            ground.timer = asyncio.get_running_loop().call_at(due, self._due, ground)

    def _due(self, ground: _Ground) -> None:
        ground.timer = None
        due = ground.pace.due
        if due is not None and due > asyncio.get_running_loop().time():
            self._arm(ground)  # it changed again meanwhile
        elif due is not None:
            self._spawn(self._look_by_itself(ground))

    async def _look_by_itself(self, ground: _Ground) -> None:
        try:
            await self._look(ground)
        except AoError as error:
            log.info("conflicts cannot be predicted", project=ground.project, error=str(error))

    async def _look(self, ground: _Ground, *, all_unwatched: bool = False) -> None:
        try:
            async with ground.looking:
                await self._look_alone(ground, all_unwatched)
        finally:
            self._arm(ground)

    async def _look_alone(self, ground: _Ground, all_unwatched: bool) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        ground.pace.began()
        branches = self._branches(ground)
        stale, ground.stale = ground.stale, set()
        if all_unwatched:
            stale |= {branch.session for branch in branches if not self._is_watched(branch.session)}
        try:
            if len(branches) > 1 or ground.outlook.pairs:
                await self._follow_folders(stale)
                await ground.outlook.look(branches, stale)
            else:
                ground.stale |= stale
            await self._record(ground)
        except BaseException:
            ground.stale |= stale
            raise
        finally:
            ground.pace.ended(loop.time(), loop.time() - begun)

    def _is_watched(self, session: str) -> bool:
        watched = self._watches.get(session)
        return watched is not None and watched.complete

    async def _follow_folders(self, sessions: Iterable[str]) -> None:
        """Watch new folders before their files are read: what comes later is told."""
        watches = [watched for session in sessions if (watched := self._watches.get(session))]
        await asyncio.gather(*(watched.follow() for watched in watches))

    async def _record(self, ground: _Ground) -> None:
        """Tell what is new and what is over; the facts know what was told."""
        now = self.flow.clock()
        told: list[Event] = []
        for facts in list(self.flow.sessions.values()):
            if facts.project == ground.project and facts.spec.repo == str(ground.repo):
                pairs = {pair.a: pair for pair in ground.outlook.pairs if pair.b == facts.id}
                for body in news(facts, pairs):
                    key = f"{body.type}:{facts.id}:{body.other}:{now:.6f}"
                    told.append(Event(body, now, "conflicts", key, facts.project, facts.id, actor=DAEMON))
        if told:
            await self.flow.append(*told)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _tip(repo: Path, branch: str) -> str | None:
    """The newest commit of a branch."""
    layout = find_layout(repo)
    return read_branch(layout.common, branch) if layout else None


def news(facts: SessionFacts, pairs: Mapping[str, Pair]) -> list[e.ConflictPredicted | e.ConflictCleared]:
    """What is to be told of a session's collisions with elder ones: new ones, those with more in them, those with less. Pure."""
    bodies: list[e.ConflictPredicted | e.ConflictCleared] = []
    for other, pair in pairs.items():
        known = facts.collisions.get(other)
        more = (
            known is None or (pair.kind == "text" and known.kind != "text") or not set(pair.files) <= set(known.files)
        )
        if more:
            bodies.append(e.ConflictPredicted(other, pair.files, pair.kind))
        elif known is not None and (known.kind, set(known.files)) != (pair.kind, set(pair.files)):
            bodies.append(e.ConflictCleared(other, pair.files, pair.kind))
    return bodies + [e.ConflictCleared(other) for other in facts.collisions if other not in pairs]
