"""The merge queue of one base branch of one repository.

It carries out what `plan.py` plans and plans again after each step. It stores nothing: facts say who is to merge,
the checks' results what was checked, and Git what has merged. After a crash the same changes join again and the queue
is as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import find_layout, read_ref
from agent_orchestrator.changes import merge
from agent_orchestrator.changes.checks.assessment import Assessment
from agent_orchestrator.changes.merge import BuiltMerge, Conflicted
from agent_orchestrator.changes.merge_queue.plan import (
    BuildCheckState,
    Ordering,
    QueuedChange,
    QueuePlan,
    QueuePosition,
    plan_queue,
)
from agent_orchestrator.core.events import CheckFinished
from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols import Clock, Timer
from agent_orchestrator.protocols.host import Host

RETRY_BLOCKED_AFTER = 3.0
"""Seconds after which a merge that a checkout blocked is tried again."""
MAX_BASE_MOVES = 5
"""Number of base moves during the queue's work after which the first change shows that it waits for the base to stop moving."""


@dataclass(frozen=True, slots=True)
class FailedQueueCheck:
    """A check that does not pass."""

    check: str
    assessment: Assessment
    event: CheckFinished
    """The event that records it."""


@dataclass(frozen=True, slots=True)
class RejectedChange:
    """The change fails a check on top of these other changes, which pass."""

    failed: FailedQueueCheck
    ahead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WithdrawnChange:
    """The change was removed from the queue."""


QueueOutcome = merge.CompletedMerge | Conflicted | merge.MovedBranch | RejectedChange | WithdrawnChange


@dataclass(eq=False, slots=True)
class Ticket:
    """A change in the queue, with the future of its outcome."""

    entry: QueuedChange
    spec: merge.MergeSpec
    outcome: asyncio.Future[QueueOutcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    wait_reason: str = ""
    """The last reported reason for waiting."""


RunChecks = Callable[[Ticket, BuiltMerge, Callable[[], None]], Awaitable[FailedQueueCheck | None]]
"""Runs the checks of a built merge; calls the given function when a check failed once and runs again."""
ReportWait = Callable[[Ticket, str], None]
"""Called with what a change waits for; "" if it waits for nothing any more."""
ConflictsBySession = Callable[[], Mapping[str, frozenset[str]]]
"""Returns session → the sessions that it is predicted to conflict with."""


class BaseQueue:
    """The merge queue of one base branch."""

    def __init__(
        self,
        host: Host,
        clock: Clock,
        repo: Path,
        base: str,
        check: RunChecks,
        report_wait: ReportWait,
        max_checks: Callable[[], int],
        predicted_conflicts: ConflictsBySession = dict,
        workspaces: Callable[[], Collection[Path]] = tuple,
        on_cycle: Callable[[], None] | None = None,
    ) -> None:
        """Create an empty queue.

        `check` runs the checks of a built merge, `max_checks` returns how many may run side by side, `clashes` returns the
        predicted conflicts, `workspaces` those of agents, none of which keeps the base from moving; `on_cycle` is called
        after each cycle, when the plan may have changed.
        """
        self._host = host
        self._clock = clock
        self._repo = repo
        self._branch = base
        self._check = check
        self._report_wait = report_wait
        self._max_checks = max_checks
        self._predicted_conflicts = predicted_conflicts
        self._workspaces = workspaces
        self._on_cycle = on_cycle
        self._tickets: dict[str, Ticket] = {}
        self._paused: set[str] = set()
        self._builds: dict[tuple[QueuedChange, str], BuiltMerge | Conflicted] = {}
        self._check_states: dict[str, BuildCheckState] = {}
        self._failures: dict[str, FailedQueueCheck] = {}
        self._base_head = ""
        self._base_moves = 0
        self._building: asyncio.Task[None] | None = None
        self._merging: tuple[str, asyncio.Task[None]] | None = None
        self._checking: dict[str, asyncio.Task[None]] = {}
        self._cancelled_checks: set[asyncio.Task[None]] = set()
        self._postponed_commit: str | None = None
        self._timer: Timer | None = None
        self._is_cycle_scheduled = False
        self._is_closed = False
        self.plan = QueuePlan()

    def is_merging(self, session: str) -> bool:
        """Return whether the session's change is being merged at this moment."""
        return self._merging is not None and self._merging[0] == session

    async def read_base_head(self) -> None:
        """Read the base branch's head from Git; to be called before a change joins."""
        head = await Git(self._host, self._repo).resolve(f"refs/heads/{self._branch}")
        if head and self._merging is None:
            self._base_head = head

    async def join(self, ticket: Ticket) -> QueueOutcome:
        """Add a change to the queue, wait for its outcome, and return it."""
        if not self._tickets:
            self._base_moves = 0
        self._tickets[ticket.entry.session] = ticket
        self.schedule_cycle()
        try:
            return await ticket.outcome
        finally:
            self._remove(ticket)
            self.schedule_cycle()

    async def pause(self, session: str) -> None:
        """Do not begin to merge the change until it is resumed or settled; wait for the end of an attempt that has begun."""
        self._paused.add(session)
        if self._merging is not None and self._merging[0] == session:
            await asyncio.wait([self._merging[1]])

    def resume(self, session: str) -> None:
        """Allow a paused change to merge again; also called when it is gone."""
        self._paused.discard(session)
        self.schedule_cycle()

    def remove(self, session: str, outcome: QueueOutcome) -> bool:
        """Remove a change from the queue with this outcome.

        Return False if it is not in the queue, or if it is being merged, which decides its outcome.
        """
        ticket = self._tickets.get(session)
        if ticket is None or self.is_merging(session):
            return False
        self._finish(ticket, outcome)
        return True

    def schedule_cycle(self) -> None:
        """Schedule a cycle, because something may have changed."""
        if not self._is_cycle_scheduled and not self._is_closed:
            self._is_cycle_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_cycle)

    async def close(self) -> None:
        """Begin nothing more, finish a running merge, cancel everything else, and cancel all tickets."""
        self._is_closed = True
        if self._timer:
            self._timer.cancel()
        tasks = {*self._cancelled_checks, *self._checking.values(), *([self._building] if self._building else [])}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *([self._merging[1]] if self._merging else []), return_exceptions=True)
        for ticket in list(self._tickets.values()):
            ticket.outcome.cancel()

    # -- one cycle -----------------------------------------------------------------------------------------------------

    def _run_cycle(self) -> None:
        """Run one cycle: read the heads, plan, drop what cannot merge, and start checks, a build or a merge."""
        self._is_cycle_scheduled = False
        if self._is_closed:
            return
        if self._merging is None:
            self._read_heads()
        self._make_plan()
        while drops := self.plan.dropped_positions:
            for place in drops:
                self._drop(place)
            self._make_plan()
        self._discard_unused()
        self._report_waits()
        self._update_checks()
        if self.plan.build and self._building is None:
            entry, base = self.plan.build
            self._building = self._start_task(self._build(self._tickets[entry.session], base))
        next_merge = self.plan.merge
        if (
            next_merge
            and self._merging is None
            and isinstance(next_merge.built, BuiltMerge)
            and next_merge.built.commit != self._postponed_commit
        ):
            ticket = self._tickets[next_merge.entry.session]
            self._merging = next_merge.entry.session, self._start_task(self._merge(ticket, next_merge.built))
        if self._on_cycle:
            self._on_cycle()

    def _make_plan(self) -> None:
        """Plan the next steps for all changes that are not paused."""
        entries = [ticket.entry for session, ticket in self._tickets.items() if session not in self._paused]
        wishes = Ordering(self._predicted_conflicts(), self.plan.built_entries)
        self.plan = plan_queue(entries, self._base_head, self._builds, self._check_states, self._max_checks(), wishes)

    def _read_heads(self) -> None:
        """Read the heads of the base and of all branches from the files of refs.

        What those files do not show, the merge itself finds out.
        """
        layout = find_layout(self._repo)
        base_head = read_ref(layout.common, f"refs/heads/{self._branch}") if layout else None
        if layout is None or base_head is None:
            return
        self._base_moves += base_head != self._base_head
        self._base_head = base_head
        for ticket in list(self._tickets.values()):
            head = read_ref(layout.common, f"refs/heads/{ticket.spec.branch}")
            if head != ticket.spec.head:
                self._finish(ticket, merge.MovedBranch(head))

    def _drop(self, place: QueuePosition) -> None:
        """Finish a change that conflicts with the base or fails a check through its own fault."""
        ticket = self._tickets[place.entry.session]
        if isinstance(place.built, Conflicted):
            self._finish(ticket, place.built)
        elif place.built is not None:
            self._finish(ticket, RejectedChange(self._failures[place.built.commit], place.ahead))

    def _discard_unused(self) -> None:
        """Discard builds and results that the plan does not use. The checks keep their results by content."""
        used_commits = {place.built.commit for place in self.plan.positions if isinstance(place.built, BuiltMerge)}
        planned_keys = {(place.entry, place.base_commit) for place in self.plan.positions}
        keys_on_base = {(place.entry, self._base_head) for place in self.plan.positions}
        self._builds = {key: build for key, build in self._builds.items() if key in planned_keys | keys_on_base}
        self._check_states = {
            commit: verdict for commit, verdict in self._check_states.items() if commit in used_commits
        }
        self._failures = {commit: failure for commit, failure in self._failures.items() if commit in used_commits}

    def _report_waits(self) -> None:
        """Report for each change what it waits for."""
        for position, place in enumerate(self.plan.positions):
            ticket = self._tickets[place.entry.session]
            if place.state == "clashing" and isinstance(place.built, Conflicted):
                files = ", ".join(place.built.files[:5])
                self._update_wait_reason(ticket, f"{', '.join(place.ahead)}, with which it conflicts in {files}")
            elif place.state != "green":
                is_base_unstable = position == 0 and self._base_moves >= MAX_BASE_MOVES
                self._update_wait_reason(ticket, f"{self._branch} to come to rest" if is_base_unstable else "")

    def _update_wait_reason(self, ticket: Ticket, reason: str) -> None:
        """Report what a change waits for, if that is not what was last reported."""
        if ticket.wait_reason != reason:
            ticket.wait_reason = reason
            self._report_wait(ticket, reason)

    def _update_checks(self) -> None:
        """Cancel checks that the plan does not need any more, and start those it needs."""
        needed_checks = self.plan.positions_to_check
        for commit in [commit for commit in self._checking if commit not in needed_checks]:
            task = self._checking.pop(commit)
            task.cancel()
            self._cancelled_checks.add(task)
            task.add_done_callback(self._cancelled_checks.discard)
        for commit, place in needed_checks.items():
            if commit not in self._checking:
                self._check_states.setdefault(commit, "running")
                ticket = self._tickets[place.entry.session]
                assert isinstance(place.built, BuiltMerge)
                self._checking[commit] = self._start_task(self._run_checks(ticket, place.built))

    # -- background tasks ----------------------------------------------------------------------------------------------

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a background task."""
        return asyncio.get_running_loop().create_task(work)

    async def _build(self, ticket: Ticket, base: str) -> None:
        """Build the merge of a change on a commit."""
        try:
            self._builds[ticket.entry, base] = await merge.build_merge(self._host, ticket.spec, base)
        except Exception as error:  # the caller that waits for the merge gets it
            self._fail(ticket, error)
        finally:
            self._building = None
            self.schedule_cycle()

    async def _run_checks(self, ticket: Ticket, built: BuiltMerge) -> None:
        """Run the checks of a built merge and keep the verdict, unless the plan dropped that build meanwhile."""

        def doubt() -> None:
            """Mark the build as doubtful, because a check failed once."""
            if self._check_states.get(built.commit) == "running":
                self._check_states[built.commit] = "doubtful"
                self.schedule_cycle()

        own_task = asyncio.current_task()
        try:
            failed = await self._check(ticket, built, doubt)
        except Exception as error:
            self._fail(ticket, error)
        else:
            if self._checking.get(built.commit) is own_task:
                self._check_states[built.commit] = "bad" if failed else "good"
                if failed:
                    self._failures[built.commit] = failed
        finally:
            if self._checking.get(built.commit) is own_task:
                del self._checking[built.commit]
            self.schedule_cycle()

    async def _merge(self, ticket: Ticket, built: BuiltMerge) -> None:
        """Move the base branch to a built merge and finish the change."""
        try:
            outcome = await merge.merge(self._host, ticket.spec, built, workspaces=self._workspaces())
        except Exception as error:
            self._fail(ticket, error)
        else:
            match outcome:
                case merge.CompletedMerge():
                    self._base_head, self._base_moves = outcome.commit, 0
                    self._finish(ticket, outcome)
                case merge.MovedBranch():
                    self._finish(ticket, outcome)
                case merge.Blocked():
                    self._postpone_merge(built.commit)
                    self._update_wait_reason(ticket, outcome.reason)
                case merge.MovedBase(None):
                    self._fail(ticket, NotFound(f"the branch {self._branch} is gone", "name a branch that exists"))
                case merge.MovedBase(base_head):
                    if base_head == built.base_before:
                        self._builds.clear()  # the built commit is gone from the repository
                    self._base_head = base_head or self._base_head
        finally:
            self._merging = None
            self.schedule_cycle()

    def _postpone_merge(self, commit: str) -> None:
        """Do not merge this commit for LOOK_AGAIN seconds, because a checkout is in the way."""
        self._postponed_commit = commit
        if self._timer:
            self._timer.cancel()
        self._timer = self._clock.call_later(RETRY_BLOCKED_AFTER, self._resume_merge)

    def _resume_merge(self) -> None:
        """Allow the postponed commit to merge again."""
        self._postponed_commit = None
        self.schedule_cycle()

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def _finish(self, ticket: Ticket, outcome: QueueOutcome) -> None:
        """Finish a change with an outcome."""
        if not ticket.outcome.done():
            ticket.outcome.set_result(outcome)
        self._remove(ticket)
        self.schedule_cycle()

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        """Finish a change with an error, which its waiting caller gets."""
        if not ticket.outcome.done():
            ticket.outcome.set_exception(error)
        self._remove(ticket)

    def _remove(self, ticket: Ticket) -> None:
        """Remove a change from the queue, unless a newer ticket of its session has replaced it."""
        if self._tickets.get(ticket.entry.session) is ticket:
            del self._tickets[ticket.entry.session]
