"""Predict conflicts when branches move or files in workspaces change, and record each conflict once (`ConflictPredictor`).

Nothing is polled: the event flow reports commits and the kernel reports changed files. Changes that come together cause one prediction
(`prediction_schedule.py`); while nothing changes, nothing runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from agent_orchestrator.base.git.commands import Git, GitFailed
from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.base.text.globs import is_glob, matching_paths
from agent_orchestrator.changes.conflicts.model import Branch, ConflictingPair
from agent_orchestrator.changes.conflicts.named_files import FileNameIndex, path_words
from agent_orchestrator.changes.conflicts.prediction_schedule import PredictionSchedule
from agent_orchestrator.changes.conflicts.repository_prediction import RepositoryPrediction
from agent_orchestrator.changes.conflicts.snapshot import read_branch_head
from agent_orchestrator.changes.conflicts.workspace_watch import WorkspaceWatch, max_watches
from agent_orchestrator.core import events as e
from agent_orchestrator.core.actor import DAEMON
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.reactions import KINDS_WITHOUT_CHANGE
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.protocols import Timer
from agent_orchestrator.sessions.part import Core, Part

_TURN_EVENTS = (e.AgentTurnEnded, e.AgentDone, e.AgentExited, e.AgentActivity)
"""Events after which files may have changed, used for workspaces that are not watched completely."""
_MAX_LISTINGS = 8

log = structlog.get_logger()


def branch_of(facts: SessionFacts) -> Branch | None:
    """Return a session's live branch, or None if the session has ended or has no branch yet."""
    is_over = facts.stopped or facts.requested_state == "stop" or (facts.pr is not None and facts.pr.state != "open")
    if is_over or facts.workspace is None or facts.spec.kind in KINDS_WITHOUT_CHANGE:
        return None
    return Branch(
        session=facts.id,
        base=facts.pr.base if facts.pr else facts.base,
        head=_commit_from_node(facts) if facts.remote else facts.head,
        start_commit=facts.workspace.base_commit,
        workspace=Path(facts.workspace.path) if facts.workspace.present and not facts.remote else None,
        created_at=facts.created_at,
    )


def _commit_from_node(facts: SessionFacts) -> str | None:
    """Return the newest local commit of a session on a node.

    That is its last checkpoint if it contains the newest work, else its published commit, else its base commit.
    """
    published_commit = facts.published_head or (facts.workspace.base_commit if facts.workspace else None)
    checkpoint = facts.checkpoint
    return (
        checkpoint.commit
        if checkpoint is not None and checkpoint.head == (facts.published_head or facts.head)
        else published_commit
    )


@dataclass(slots=True)
class _RepositoryState:
    """One repository with its prediction and the sessions whose files must be read again."""

    project: str
    repo: Path
    prediction: RepositoryPrediction
    pace: PredictionSchedule = field(default_factory=PredictionSchedule)
    stale: set[str] = field(default_factory=set)
    """Sessions whose files may have changed since the last prediction."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: Timer | None = None


class ConflictPredictor(Part):
    """Predicts which sessions conflict, and in which files."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self._repositories: dict[tuple[str, str], _RepositoryState] = {}
        self._watches: dict[str, WorkspaceWatch] = {}
        self._listings: dict[tuple[str, str], list[str]] = {}
        self._listing_lock = asyncio.Lock()
        self._names_by_commit: dict[str, FileNameIndex] = {}
        """The files of a commit, by the names that texts use for them."""
        self._task_files: dict[str, tuple[str | None, frozenset[str]]] = {}
        """For each session, the base's commit and the files in it that the session's task names."""
        self._max_watches = max_watches()

    def start(self) -> None:
        """Watch the live branches and those of future sessions."""
        self.on(self._update_changed)
        for facts in self.flow.sessions.values():
            if branch_of(facts):
                self._watch_workspace(facts)
        for repository in self._repositories.values():
            if len(self._branches(repository)) > 1:
                self._schedule_prediction(repository)

    async def close(self) -> None:
        """Stop all predictions, watches and timers; a prediction that is cancelled sets its timer again, so those come last."""
        await super().close()
        for workspace_watch in self._watches.values():
            workspace_watch.close()
        for repository in self._repositories.values():
            if repository.timer:
                repository.timer.cancel()

    # -- reading -------------------------------------------------------------------------------------------------------

    def predicted_pairs(self, project: str | None) -> tuple[ConflictingPair, ...]:
        """Return the conflicts of the last prediction, of one project or (None) of all."""
        repositories = [state for state in self._repositories.values() if project in (None, state.project)]
        return tuple(pair for repository in repositories for pair in repository.prediction.pairs)

    async def pairs(self, project: str | None, *, fresh: bool) -> list[Mapping[str, Any]]:
        """Return the conflicts as the API shows them; with `fresh`, predict again first if something changed."""
        if fresh:
            self.core.watch.catch_up()
            for repository in [state for state in self._repositories.values() if project in (None, state.project)]:
                await self._predict_with_retry(repository)
        return [pair.json() for pair in self.predicted_pairs(project)]

    async def _predict_with_retry(self, repository: _RepositoryState) -> None:
        """Predict for a waiting caller, with one retry. Raises `Temporary` if Git fails again."""
        try:
            try:
                await self._predict(repository, all_unwatched=True)
            except AoError:  # the workspace may have been removed meanwhile; then the retry does not include it
                await self._predict(repository, all_unwatched=True)
        except GitFailed as error:
            raise Temporary(f"collisions cannot be looked for: {error.text}", "try again") from None

    async def expected_files(self, sessions: Sequence[SessionFacts]) -> dict[str, frozenset[str]]:
        """Return the files that each session is about: those that its plan and its task name, and those that it changed."""
        bases = {(facts.spec.repo, facts.base) for facts in sessions}
        commits = {(repo, base): _branch_commit(Path(repo), base) for repo, base in bases}
        task_files: dict[str, tuple[str | None, frozenset[str]]] = {}
        for facts in sessions:
            commit, previous = commits[facts.spec.repo, facts.base], self._task_files.get(facts.id)
            is_current = previous is not None and previous[0] == commit
            task_files[facts.id] = (
                previous if previous and is_current else (commit, await self._expected_files(facts, commit))
            )
        self._task_files = task_files
        return {
            facts.id: task_files[facts.id][1] | await self._changed_files(facts, task_files[facts.id][0])
            for facts in sessions
        }

    async def _expected_files(self, facts: SessionFacts, commit: str | None) -> frozenset[str]:
        """Return the files that a session's plan and task name; paths in the plan count even if they do not exist yet."""
        text, globs = (
            f"{facts.spec.title}\n{facts.spec.prompt}",
            [pattern for pattern in facts.spec.files if is_glob(pattern)],
        )
        exact = frozenset(pattern.removeprefix("./") for pattern in facts.spec.files if not is_glob(pattern))
        if commit is None or not (globs or path_words(text)):
            return exact
        try:
            names = self._names_by_commit.get(commit)
            if names is None:
                names = FileNameIndex(await self._list_tree(Path(facts.spec.repo), commit, "--name-only"))
                while len(self._names_by_commit) >= _MAX_LISTINGS:
                    self._names_by_commit.pop(next(iter(self._names_by_commit)))
                self._names_by_commit[commit] = names
        except AoError:
            return exact
        glob_files = await asyncio.to_thread(matching_paths, globs, names.files) if globs else frozenset()
        return exact | names.find(text) | glob_files

    async def _changed_files(self, facts: SessionFacts, base: str | None) -> frozenset[str]:
        """Return the files that a session had changed at the last prediction, compared with the base's commit."""
        branch = branch_of(facts)
        repository = self._repositories.get((facts.project, facts.spec.repo))
        try:
            return (
                await repository.prediction.changed_paths(branch, base)
                if branch and repository and base
                else frozenset()
            )
        except AoError:
            return frozenset()

    async def _list_tree(self, repo: Path, commit: str, *options: str) -> list[str]:
        """Return all files, or folders, of a commit, depending on the options for `git ls-tree`."""
        key = (commit, " ".join(options))
        async with self._listing_lock:  # at start all sessions request a listing at once, most of them the same one
            if key not in self._listings:
                result = await Git(self.host, repo).run("ls-tree", "-r", "-z", *options, commit)
                while len(self._listings) >= _MAX_LISTINGS:
                    self._listings.pop(next(iter(self._listings)))
                self._listings[key] = [name for name in os.fsdecode(result.out).split("\0") if name]
            return self._listings[key]

    # -- changes -------------------------------------------------------------------------------------------------------

    def _update_changed(self, changes: Sequence[FactsChange]) -> None:
        """Handle changes of sessions: ended or moved branches, and turns in workspaces that are not watched completely."""
        for change in changes:
            if change.after is None or change.after is change.before:
                continue
            before = branch_of(change.before) if change.before else None
            after = branch_of(change.after)
            workspace_watch = self._watches.get(change.after.id)
            if after is None:
                if before is not None:
                    self._on_session_ended(change.after)
            elif before != after:
                self._on_branch_moved(change.after, before, after)
            elif workspace_watch and not workspace_watch.is_complete and isinstance(change.event.body, _TURN_EVENTS):
                self._mark_stale(change.after.id)

    def _on_branch_moved(self, facts: SessionFacts, before: Branch | None, after: Branch) -> None:
        """Watch a new workspace, and schedule a prediction unless the branch is new and empty."""
        if before is None or before.workspace != after.workspace:
            self._watch_workspace(facts)
        if before is not None or after.head != after.start_commit:
            self._schedule_prediction(self._repository_of(facts))

    def _watch_workspace(self, facts: SessionFacts) -> None:
        """Watch the session's workspace and mark its content as not read yet."""
        repository = self._repository_of(facts)
        repository.stale.add(facts.id)
        if workspace_watch := self._watches.pop(facts.id, None):
            workspace_watch.close()
        branch = branch_of(facts)
        if branch and branch.workspace:
            watch_count = sum(map(len, self._watches.values()))
            git = Git(self.host, branch.workspace)
            workspace_watch = WorkspaceWatch(
                self.core.watch, git, lambda: self._mark_stale(facts.id), self._max_watches - watch_count
            )
            self._watches[facts.id] = workspace_watch
            self.spawn(self._open_watch(workspace_watch, branch.head))

    async def _open_watch(self, workspace_watch: WorkspaceWatch, head: str | None) -> None:
        """Begin to watch the folders of a workspace; if that fails, the workspace is not watched."""
        try:
            await workspace_watch.open(
                await self._list_tree(workspace_watch.git.repo, head, "-d", "--name-only") if head else ()
            )
        except AoError as error:
            log.info("a workspace cannot be watched", workspace=str(workspace_watch.git.repo), error=str(error))

    def _on_session_ended(self, facts: SessionFacts) -> None:
        """Stop watching the session's workspace, and schedule a prediction if it had conflicts."""
        if workspace_watch := self._watches.pop(facts.id, None):
            workspace_watch.close()
        repository = self._repository_of(facts)
        repository.stale.discard(facts.id)
        if any(facts.id in pair.sides for pair in repository.prediction.pairs):
            self._schedule_prediction(repository)

    def _mark_stale(self, session: str) -> None:
        """Mark the session's files as changed and schedule a prediction."""
        repository = self._repository_of(self.flow.sessions[session])
        repository.stale.add(session)
        self._schedule_prediction(repository)

    def _repository_of(self, facts: SessionFacts) -> _RepositoryState:
        """Return the state of the session's repository, created on first use."""
        key = (facts.project, facts.spec.repo)
        repository = self._repositories.get(key)
        if repository is None:
            repo = Path(facts.spec.repo)
            layout = find_layout(repo)
            work = self.home.path / "conflicts" / facts.project / str(len(self._repositories))
            outlook = RepositoryPrediction(self.host, layout.common if layout else repo, work)
            repository = self._repositories[key] = _RepositoryState(facts.project, repo, outlook)
        return repository

    def _branches(self, repository: _RepositoryState) -> list[Branch]:
        """Return the live branches of a repository."""
        repository_sessions = (
            facts
            for facts in self.flow.sessions.values()
            if facts.project == repository.project and facts.spec.repo == str(repository.repo)
        )
        return [branch for facts in repository_sessions if (branch := branch_of(facts))]

    # -- predict -------------------------------------------------------------------------------------------------------

    def _schedule_prediction(self, repository: _RepositoryState) -> None:
        """Schedule a prediction for the repository."""
        repository.pace.record_change(self.clock.monotonic())
        self._set_timer(repository)

    def _set_timer(self, repository: _RepositoryState) -> None:
        """Set the timer for the next prediction, if one is due and no timer is set."""
        if repository.timer is None and not repository.lock.locked() and (due := repository.pace.due_at) is not None:
            pause = max(0.0, due - self.clock.monotonic())
            repository.timer = self.clock.call_later(pause, lambda: self._on_timer(repository))

    def _on_timer(self, repository: _RepositoryState) -> None:
        """Start a prediction, or set the timer again if changes arrived since."""
        repository.timer = None
        due = repository.pace.due_at
        if due is not None and due > self.clock.monotonic():
            self._set_timer(repository)  # another change postponed it
        elif due is not None:
            self.spawn(self._predict_in_background(repository))

    async def _predict_in_background(self, repository: _RepositoryState) -> None:
        """Predict in the background and log errors."""
        try:
            await self._predict(repository)
        except AoError as error:
            log.info("conflicts cannot be predicted", project=repository.project, error=str(error))

    async def _predict(self, repository: _RepositoryState, *, all_unwatched: bool = False) -> None:
        """Predict, one prediction at a time, and set the timer for the next one."""
        try:
            async with repository.lock:
                await self._predict_and_record(repository, all_unwatched)
        finally:
            self._set_timer(repository)

    async def _predict_and_record(self, repository: _RepositoryState, all_unwatched: bool) -> None:
        """Predict the conflicts of a repository and record them; after an error its sessions stay stale.

        With `all_unwatched`, workspaces that are not watched completely are read again too.
        """
        start_time = self.clock.monotonic()
        repository.pace.record_start()
        branches = self._branches(repository)
        stale, repository.stale = repository.stale, set()
        if all_unwatched:
            stale |= {branch.session for branch in branches if not self._is_watched(branch.session)}
        try:
            if len(branches) > 1 or repository.prediction.pairs:
                await self._watch_new_folders(stale)
                await repository.prediction.predict(branches, stale)
            else:
                repository.stale |= stale
            await self._record(repository)
        except BaseException:
            repository.stale |= stale
            raise
        finally:
            now = self.clock.monotonic()
            repository.pace.record_end(now, now - start_time)

    def _is_watched(self, session: str) -> bool:
        """Return whether every change in the session's workspace is reported."""
        workspace_watch = self._watches.get(session)
        return workspace_watch is not None and workspace_watch.is_complete

    async def _watch_new_folders(self, sessions: Iterable[str]) -> None:
        """Watch new folders before their files are read, so that later changes are reported."""
        watches = [workspace_watch for session in sessions if (workspace_watch := self._watches.get(session))]
        await asyncio.gather(*(workspace_watch.watch_new_folders() for workspace_watch in watches))

    async def _record(self, repository: _RepositoryState) -> None:
        """Record new and ended conflicts; the sessions' facts contain those recorded before."""
        now = self.clock()
        events: list[Event] = []
        for facts in list(self.flow.sessions.values()):
            if facts.project == repository.project and facts.spec.repo == str(repository.repo):
                pairs = {pair.a: pair for pair in repository.prediction.pairs if pair.b == facts.id}
                for body in conflict_events(facts, pairs):
                    key = f"{body.type}:{facts.id}:{body.other}:{now:.6f}"
                    events.append(Event(body, now, "conflicts", key, facts.project, facts.id, actor=DAEMON))
        if events:
            await self.flow.append(*events)


def _branch_commit(repo: Path, branch: str) -> str | None:
    """Return the newest commit of a branch."""
    layout = find_layout(repo)
    return read_branch_head(layout.common, branch) if layout else None


def conflict_events(
    facts: SessionFacts, pairs: Mapping[str, ConflictingPair]
) -> list[e.ConflictPredicted | e.ConflictCleared]:
    """Return the events for a session's conflicts with older sessions: new or larger ones, smaller ones and ended ones. Pure."""
    bodies: list[e.ConflictPredicted | e.ConflictCleared] = []
    for other, pair in pairs.items():
        recorded = facts.predicted_conflicts.get(other)
        is_new_or_larger = (
            recorded is None
            or (pair.kind == "text" and recorded.kind != "text")
            or not set(pair.files) <= set(recorded.files)
        )
        if is_new_or_larger:
            bodies.append(e.ConflictPredicted(other, pair.files, pair.kind))
        elif recorded is not None and (recorded.kind, set(recorded.files)) != (pair.kind, set(pair.files)):
            bodies.append(e.ConflictCleared(other, pair.files, pair.kind))
    return bodies + [e.ConflictCleared(other) for other in facts.predicted_conflicts if other not in pairs]
