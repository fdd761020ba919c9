"""One queue: the changes that are to land on one branch of one repository. Does what `next_step.py` says, and asks again after each step.

Nothing of it is stored. Who wants to land stands in the facts, what was checked in the checks' results, what has landed in Git: after a
crash the same changes join again and the queue is as it was.
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
from agent_orchestrator.changes.checks import Assessment
from agent_orchestrator.changes.merge import Built, Conflicted
from agent_orchestrator.changes.merge_queue.next_step import Entry, Place, Plan, Verdict, Wishes, plan
from agent_orchestrator.core.events import CheckFinished
from agent_orchestrator.errors import NotFound
from agent_orchestrator.protocols.host import Host

LOOK_AGAIN = 3.0
"""Seconds after which a checkout that was in the way is looked at again."""
MOVES = 5
"""How often the base moves under the queue before somebody is told."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A check that does not pass."""

    check: str
    found: Assessment
    finished: CheckFinished
    """What is recorded of it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It fails on top of these others, which pass."""

    failed: Failed
    ahead: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CalledOff:
    """It is not to land any more."""


Outcome = merge.Landed | Conflicted | merge.BranchMoved | Refused | CalledOff


@dataclass(eq=False, slots=True)
class Ticket:
    """A change in the queue, and whoever waits for what becomes of it."""

    entry: Entry
    spec: merge.LandingSpec
    done: asyncio.Future[Outcome] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    waits: str = ""
    """What was last told to be waited for."""


Check = Callable[[Ticket, Built, Callable[[], None]], Awaitable[Failed | None]]
"""Checks what was built; the function it is given is to be called when a check failed and is tried again."""
Tell = Callable[[Ticket, str], None]
"""Told what a change waits for; nothing: for nobody any more."""
Clashes = Callable[[], Mapping[str, frozenset[str]]]
"""Session → those that it is predicted to conflict with."""


class Lane:
    """The queue for one branch."""

    def __init__(
        self,
        host: Host,
        repo: Path,
        base: str,
        check: Check,
        tell: Tell,
        room: Callable[[], int],
        clashes: Clashes = dict,
    ) -> None:
        self._host = host
        self._repo = repo
        self._branch = base
        self._check = check
        self._tell = tell
        self._room = room
        self._clashes = clashes
        self._tickets: dict[str, Ticket] = {}
        self._paused: set[str] = set()
        self._builds: dict[tuple[Entry, str], Built | Conflicted] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._failures: dict[str, Failed] = {}
        self._base = ""
        self._moves = 0
        self._building: asyncio.Task[None] | None = None
        self._landing: tuple[str, asyncio.Task[None]] | None = None
        self._checking: dict[str, asyncio.Task[None]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._held: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = False
        self._closed = False
        self.plan = Plan()
        self.looked: Callable[[], None] = lambda: None
        """Told after each look, when the plan may be another."""
        self.workspaces: Callable[[], Collection[Path]] = tuple
        """Of agents, none of which keeps the base from moving."""

    def lands(self, session: str) -> bool:
        """Is it being put onto the base this very moment?"""
        return self._landing is not None and self._landing[0] == session

    async def find_base(self) -> None:
        """Ask Git where the base is; to be done before somebody joins."""
        now = await Git(self._host, self._repo).resolve(f"refs/heads/{self._branch}")
        if now and self._landing is None:
            self._base = now

    async def join(self, ticket: Ticket) -> Outcome:
        """Wait in the queue for what becomes of a change."""
        if not self._tickets:
            self._moves = 0
        self._tickets[ticket.entry.session] = ticket
        self.look()
        try:
            return await ticket.done
        finally:
            self._leave(ticket)
            self.look()

    def pause(self, session: str) -> bool:
        """Begin no landing of it until it is resumed or settled; false: it is being landed already."""
        if self.lands(session):
            return False
        self._paused.add(session)
        return True

    def resume(self, session: str) -> None:
        """It may land again, or is gone."""
        self._paused.discard(session)
        self.look()

    def settle(self, session: str, outcome: Outcome) -> bool:
        """Take a change out of the queue; false: it is not there, or is being landed, which decides."""
        ticket = self._tickets.get(session)
        if ticket is None or self.lands(session):
            return False
        self._end(ticket, outcome)
        return True

    def look(self) -> None:
        """Something may have changed."""
        if not self._due and not self._closed:
            self._due = True
            asyncio.get_running_loop().call_soon(self._look)

    async def close(self) -> None:
        """Begin nothing more: what is being landed has landed, everything else has ended, and nobody waits here any longer."""
        self._closed = True
        if self._timer:
            self._timer.cancel()
        tasks = {*self._ending, *self._checking.values(), *([self._building] if self._building else [])}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *([self._landing[1]] if self._landing else []), return_exceptions=True)
        for ticket in list(self._tickets.values()):
            ticket.done.cancel()

    # -- one look ------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._due = False
        if self._closed:
            return
        if self._landing is None:
            self._find_heads()
        self._make_plan()
        while drops := self.plan.drops:
            for place in drops:
                self._drop(place)
            self._make_plan()
        self._forget_the_rest()
        self._tell_who_waits()
        self._begin_checks()
        if self.plan.build and self._building is None:
            entry, on = self.plan.build
            self._building = self._task(self._build(self._tickets[entry.session], on))
        front = self.plan.land
        if front and self._landing is None and isinstance(front.built, Built) and front.built.commit != self._held:
            ticket = self._tickets[front.entry.session]
            self._landing = front.entry.session, self._task(self._land(ticket, front.built))
        self.looked()

    def _make_plan(self) -> None:
        entries = [ticket.entry for session, ticket in self._tickets.items() if session not in self._paused]
        wishes = Wishes(self._clashes(), self.plan.begun)
        self.plan = plan(entries, self._base, self._builds, self._verdicts, self._room(), wishes)

    def _find_heads(self) -> None:
        """Where the base and everybody's branch are now; what files do not tell, landing finds out."""
        layout = find_layout(self._repo)
        now = read_ref(layout.common, f"refs/heads/{self._branch}") if layout else None
        if layout is None or now is None:
            return
        self._moves += now != self._base
        self._base = now
        for ticket in list(self._tickets.values()):
            head = read_ref(layout.common, f"refs/heads/{ticket.spec.branch}")
            if head != ticket.spec.head:
                self._end(ticket, merge.BranchMoved(head))

    def _drop(self, place: Place) -> None:
        ticket = self._tickets[place.entry.session]
        if isinstance(place.built, Conflicted):
            self._end(ticket, place.built)
        elif place.built is not None:
            self._end(ticket, Refused(self._failures[place.built.commit], place.ahead))

    def _forget_the_rest(self) -> None:
        """Keep what the plan rests on; the checks remember by content what they found."""
        used = {place.built.commit for place in self.plan.places if isinstance(place.built, Built)}
        places = {(place.entry, place.on) for place in self.plan.places}
        alone = {(place.entry, self._base) for place in self.plan.places}
        self._builds = {key: found for key, found in self._builds.items() if key in places | alone}
        self._verdicts = {commit: verdict for commit, verdict in self._verdicts.items() if commit in used}
        self._failures = {commit: failed for commit, failed in self._failures.items() if commit in used}

    def _tell_who_waits(self) -> None:
        for number, place in enumerate(self.plan.places):
            ticket = self._tickets[place.entry.session]
            if place.state == "clashing" and isinstance(place.built, Conflicted):
                files = ", ".join(place.built.files[:5])
                self._say(ticket, f"{', '.join(place.ahead)}, with which it conflicts in {files}")
            elif place.state != "green":
                restless = number == 0 and self._moves >= MOVES
                self._say(ticket, f"{self._branch} to come to rest" if restless else "")

    def _say(self, ticket: Ticket, reason: str) -> None:
        if ticket.waits != reason:
            ticket.waits = reason
            self._tell(ticket, reason)

    def _begin_checks(self) -> None:
        wanted = self.plan.checks
        for commit in [commit for commit in self._checking if commit not in wanted]:
            task = self._checking.pop(commit)
            task.cancel()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for commit, place in wanted.items():
            if commit not in self._checking:
                self._verdicts.setdefault(commit, "running")
                ticket = self._tickets[place.entry.session]
                assert isinstance(place.built, Built)
                self._checking[commit] = self._task(self._judge(ticket, place.built))

    # -- what takes time -----------------------------------------------------------------------------------------------

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    async def _build(self, ticket: Ticket, on: str) -> None:
        try:
            self._builds[ticket.entry, on] = await merge.build(self._host, ticket.spec, on)
        except Exception as error:  # whoever asked for the landing is told
            self._fail(ticket, error)
        finally:
            self._building = None
            self.look()

    async def _judge(self, ticket: Ticket, built: Built) -> None:
        def doubt() -> None:
            if self._verdicts.get(built.commit) == "running":
                self._verdicts[built.commit] = "doubtful"
                self.look()

        mine = asyncio.current_task()
        try:
            failed = await self._check(ticket, built, doubt)
        except Exception as error:
            self._fail(ticket, error)
        else:
            if self._checking.get(built.commit) is mine:
                self._verdicts[built.commit] = "bad" if failed else "good"
                if failed:
                    self._failures[built.commit] = failed
        finally:
            if self._checking.get(built.commit) is mine:
                del self._checking[built.commit]
            self.look()

    async def _land(self, ticket: Ticket, built: Built) -> None:
        try:
            outcome = await merge.land(self._host, ticket.spec, built, workspaces=self.workspaces())
        except Exception as error:
            self._fail(ticket, error)
        else:
            match outcome:
                case merge.Landed():
                    self._base, self._moves = outcome.commit, 0
                    self._end(ticket, outcome)
                case merge.BranchMoved():
                    self._end(ticket, outcome)
                case merge.Waits():
                    self._hold(built.commit)
                    self._say(ticket, outcome.reason)
                case merge.Moved(None):
                    self._fail(ticket, NotFound(f"the branch {self._branch} is gone", "name a branch that exists"))
                case merge.Moved(now):
                    if now == built.base_before:
                        self._builds.clear()  # what was built is gone from the repository
                    self._base = now or self._base
        finally:
            self._landing = None
            self.look()

    def _hold(self, commit: str) -> None:
        """A checkout is in the way: not now."""
        self._held = commit
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(LOOK_AGAIN, self._let_go)

    def _let_go(self) -> None:
        self._held = None
        self.look()

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end(self, ticket: Ticket, outcome: Outcome) -> None:
        if not ticket.done.done():
            ticket.done.set_result(outcome)
        self._leave(ticket)
        self.look()

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        if not ticket.done.done():
            ticket.done.set_exception(error)
        self._leave(ticket)

    def _leave(self, ticket: Ticket) -> None:
        if self._tickets.get(ticket.entry.session) is ticket:
            del self._tickets[ticket.entry.session]
