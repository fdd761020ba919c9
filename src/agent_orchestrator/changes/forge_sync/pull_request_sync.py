"""Reading pull requests: at once when a webhook says so, else by a poll that costs nothing while nothing changes.

One loop for each project that has open pull requests at a forge. Reading and telling are done by one at a time, so that what was read
first is told first.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from agent_orchestrator.base.home import Home
from agent_orchestrator.changes import merge
from agent_orchestrator.changes.checks.summary import LOOKED_AT, relevant
from agent_orchestrator.changes.forge_sync.backoff import longer
from agent_orchestrator.changes.forge_sync.connections import LOCAL, Repositories, problem
from agent_orchestrator.changes.forge_sync.outages import Outages
from agent_orchestrator.changes.forge_sync.pull_request_events import news, unpinned
from agent_orchestrator.core import events as e
from agent_orchestrator.core.engine import Change, Flow
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.pull_request import BAD
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols.forge import SCM, BaseChecks, Hint, Known, KnowsBases, Metered, PullCheck, PullState
from agent_orchestrator.protocols.host import Host

EVERY = 25.0
"""Seconds between two polls of a repository."""
WITH_HOOKS = 600.0
"""The same while its webhooks arrive."""
HOOKS_LAST = 3600.0
"""Seconds after its last webhook in which a repository counts as one that tells by itself."""
GATHER = 0.1
"""Seconds in which hints are gathered."""
LONGEST_PAUSE = 600.0
POLLS_THAT_TELL = 2
"""Every other poll alone asks for the checks of commits that no session waits for."""
MOST_AGAIN = 5
"""Times that a pull request is read again because the forge did not tell all of it."""

log = structlog.get_logger()

Place = tuple[str, str]
"""A project and the forge that serves it."""


class ForgeWatch:
    """Keeps the facts of pull requests at forges true."""

    def __init__(self, flow: Flow, home: Home, host: Host, repositories: Repositories, outages: Outages) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.repositories = repositories
        self.outages = outages
        self.problems: dict[Place, str] = {}
        """What keeps a project's forge from being read."""
        self._loops: dict[Place, asyncio.Task[None]] = {}
        self._wake: defaultdict[Place, asyncio.Event] = defaultdict(asyncio.Event)
        self._wanted: defaultdict[Place, set[int]] = defaultdict(set)
        self.incomplete: dict[str, str] = {}
        """What a forge does not tell of a session's pull request, though asked again."""
        self._read_at: dict[str, float] = {}
        self._partly: dict[str, int] = {}
        self._hooked: dict[Place, float] = {}
        self._due: dict[Place, int] = {}
        """Polls that are due although webhooks come."""
        self._polled: dict[Place, float] = {}
        self._soon: dict[Place, asyncio.TimerHandle] = {}
        self._done: dict[str, int] = {}
        """The last thing that was done from here to a session's pull request: what was read before it is read again."""
        self.on_bases: list[Callable[[str, Mapping[str, BaseChecks]], None]] = []
        """Told how a project's bases are at its forge, after every poll."""
        self._running = False

    def start(self) -> None:
        """Read all that are open, and whatever becomes of them."""
        self._running = True
        self.flow.on_change.append(self._on_change)
        for facts in self.flow.sessions.values():
            if _is_watched(facts):
                self.want(facts)

    def look(self) -> None:
        """Something was configured anew: what could not be read may be readable now."""
        for place in [one for one in self.problems if one in self._loops]:
            self._loops.pop(place).cancel()
            self._ensure(place)

    async def close(self) -> None:
        """Read no more."""
        self._running = False
        for timer in self._soon.values():
            timer.cancel()
        for task in self._loops.values():
            task.cancel()
        await asyncio.gather(*self._loops.values(), return_exceptions=True)

    def _on_change(self, changes: Sequence[Change]) -> None:
        for change in changes:
            body, after = change.event.body, change.after
            settled = isinstance(body, e.ThreadSettled) and change.event.source == "person"
            worth = settled or isinstance(body, e.PrOpened | e.WorkPushed | e.PrReady)
            if worth and after and _is_watched(after):
                self._done[after.id] = change.event.seq
                self.want(after)

    # -- what is worth reading -----------------------------------------------------------------------------------------

    def want(self, facts: SessionFacts) -> None:
        """Read a session's pull request soon."""
        assert facts.pr is not None
        place = (facts.project, facts.spec.scm)
        self._wanted[place].add(facts.pr.number)
        self._ensure(place)

    def hint(self, name: str, hint: Hint, projects: Collection[str]) -> None:
        """A webhook of these projects says what is worth reading."""
        others: set[Place] = set()
        here: dict[Place, bool] = {}
        for facts in self.flow.sessions.values():
            place = (facts.project, facts.spec.scm)
            if facts.spec.scm != name or facts.project not in projects or not _is_watched(facts):
                continue
            if place not in here:
                here[place] = self._is_of(place, hint.repo)
            if not here[place]:
                continue
            self._hooked[place] = self.flow.clock()
            named = hint.pulls or hint.heads or hint.branches or hint.issues
            if not named or _concerns(hint, facts):  # one that names nothing is about everything
                self.want(facts)
            elif hint.heads:
                others.add(place)
        for place in others:
            self._poll_soon(place)

    def _poll_soon(self, place: Place) -> None:
        """Checks of a commit that is no session's, of the base perhaps: polls tell, no sooner than they are due without webhooks."""
        self._due[place] = POLLS_THAT_TELL
        if place in self._soon:
            return
        wait = self._polled.get(place, 0.0) + self._interval(place) - self.flow.clock()
        self._soon[place] = asyncio.get_running_loop().call_later(max(0.0, wait), self._poll_now, place)

    def _poll_now(self, place: Place) -> None:
        del self._soon[place]
        self._ensure(place)

    def _is_of(self, place: Place, repo: str) -> bool:
        try:
            return not repo or self.repositories.of(*place).repo.casefold() == repo.casefold()
        except AoError:
            return False

    def _ensure(self, place: Place) -> None:
        self._wake[place].set()
        if self._running and (place not in self._loops or self._loops[place].done()):
            self._loops[place] = asyncio.get_running_loop().create_task(self._loop(place), name=f"forge {place}")

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _loop(self, place: Place) -> None:
        pause, began = 0.0, self.flow.clock()
        while any(self._sessions(place)):
            try:
                scm = await self.repositories.reach(*place)
                overdue = self.flow.clock() - max(began, self._polled.get(place, 0.0)) >= WITH_HOOKS
                if overdue or not self._wanted[place]:
                    self._polled[place] = self.flow.clock()
                    self._take(place, await scm.changed(self._known(place)))
                    self._due[place] = max(0, self._due.get(place, 0) - 1)
                    self._tell_bases(place[0], scm)
                await self.read(place, scm)
                self.problems.pop(place, None)
                await self.outages.works(*place, "pulls")
                pause = 0.0
            except Exception as error:
                pause = min(self._longer(place, pause, error), await self.outages.failed(*place, "pulls", error))
                if self.problems.get(place) != problem(error):
                    log.warning("a forge cannot be read", project=place[0], forge=place[1], error=problem(error))
                self.problems[place] = problem(error)
            await self._rest(place, pause)
        await self.outages.unwanted(*place, "pulls")

    def _tell_bases(self, project: str, scm: SCM) -> None:
        if isinstance(scm, KnowsBases):
            for tell in self.on_bases:
                tell(project, scm.bases())

    def _longer(self, place: Place, pause: float, error: Exception) -> float:
        """The next pause after a failure; the first one is no longer than that between two polls."""
        try:
            project = self.repositories.plugins.project(place[0])
            first = min(EVERY, self.repositories.interval(project, project.scm, EVERY))
        except AoError:
            first = EVERY
        return longer(pause, first, LONGEST_PAUSE, error, self.flow.clock())

    async def _rest(self, place: Place, pause: float) -> None:
        try:
            async with asyncio.timeout(pause or self._interval(place)):
                await self._wake[place].wait()
        except TimeoutError:
            return
        await asyncio.sleep(pause or self._gathering(place))
        self._wake[place].clear()

    def _gathering(self, place: Place) -> float:
        """Seconds in which hints are gathered: more while the host's grants are short, which they would use up otherwise."""
        try:
            scm = self.repositories.of(*place)
        except AoError:
            return GATHER
        return min(max(GATHER, scm.pause()), EVERY) if isinstance(scm, Metered) else GATHER

    def _interval(self, place: Place) -> float:
        """Seconds until the next poll: more while webhooks come, or while the host's grants are short."""
        told = self.flow.clock() - self._hooked.get(place, 0.0) <= HOOKS_LAST and not self._wanted[place]
        told = told and not self._due.get(place)
        try:
            scm, project = self.repositories.of(*place), self.repositories.plugins.project(place[0])
            wanted = WITH_HOOKS if told else self.repositories.interval(project, project.scm, EVERY)
        except AoError:
            return WITH_HOOKS
        return max(wanted, scm.pause() if isinstance(scm, Metered) else 0.0)

    def _sessions(self, place: Place) -> Iterable[SessionFacts]:
        return (
            facts
            for facts in list(self.flow.sessions.values())
            if (facts.project, facts.spec.scm) == place and _is_watched(facts)
        )

    def _known(self, place: Place) -> list[Known]:
        return [
            Known(pr.number, pr.node, facts.head or "", _is_settled(facts), self._read_at.get(facts.id, 0.0))
            for facts in self._sessions(place)
            if (pr := facts.pr)
        ]

    def _take(self, place: Place, hint: Hint) -> None:
        self._wanted[place] |= {
            facts.pr.number for facts in self._sessions(place) if facts.pr and _concerns(hint, facts)
        }

    async def read(self, place: Place, scm: SCM) -> None:
        """Read what is worth it, and tell what is new."""
        numbers = self._wanted.pop(place, set())
        sessions = {
            facts.pr.node: facts.id for facts in self._sessions(place) if facts.pr and facts.pr.number in numbers
        }
        if not sessions:
            return
        try:
            known = self.flow.seq
            pulls = await scm.read(list(sessions))
            failed: AoError | None = None
            for pull in pulls:
                try:
                    await self._tell(scm, sessions[pull.id], pull, known)
                except AoError as error:  # the others are told all the same
                    failed = error
            if failed:
                raise failed
        except BaseException:
            self._wanted[place] |= numbers
            raise
        found = {pull.id: pull.unread for pull in pulls}
        for node, session in sessions.items():
            self._check_whole(place, session, found.get(node, ("itself",)))

    def _check_whole(self, place: Place, session: str, unread: Sequence[str]) -> None:
        """What was not told this time is asked for again, a few times; then it waits for the next change."""
        facts = self.flow.sessions[session]
        tries = self._partly.pop(session, 0)
        self.incomplete.pop(session, None)
        if not unread or facts.pr is None:
            return
        self._partly[session] = tries + 1
        self._read_at[session] = self.flow.clock()
        self.incomplete[session] = f"pull request #{facts.pr.number} is not told whole: {', '.join(unread)}"
        if tries < MOST_AGAIN:
            self._wanted[place].add(facts.pr.number)

    def untold(self, project: str) -> list[str]:
        """What the project's forge does not tell, for people."""
        return [text for session, text in self.incomplete.items() if self.flow.sessions[session].project == project]

    async def _tell(self, scm: SCM, session: str, pull: PullState, known: int) -> None:
        """What is new; unless something was done since the last event that was known when it was asked for."""
        self._read_at[session] = self.flow.clock()
        if unpinned(self.flow.sessions[session], pull):
            await scm.call_off(pull)
        pull = await self._with_logs(scm, self.flow.sessions[session], pull)
        conflicts = await self._conflicts(self.flow.sessions[session], pull) if pull.mergeable == "no" else ()
        if self._done.get(session, 0) > known:
            return
        facts = self.flow.sessions[session]
        now = self.flow.clock()
        events = [
            Event(body, now, facts.spec.scm, f"{pull.id}:{facts.seq}:{number}", facts.project, session)
            for number, body in enumerate(news(facts, pull, conflicts))
        ]
        if events:
            await self.flow.append(*events)

    async def _conflicts(self, facts: SessionFacts, pull: PullState) -> tuple[str, ...]:
        """The files in which it conflicts, as far as the repository here knows both sides."""
        work = self.home.path / "landing" / facts.id
        try:
            return await merge.Prediction(self.host, Path(facts.spec.repo), work).conflicts_with(pull.head, pull.base)
        except AoError:
            return ()

    async def _with_logs(self, scm: SCM, facts: SessionFacts, pull: PullState) -> PullState:
        """With what the checks printed that fail anew."""
        known = {run.name: (run.head, run.state) for run in facts.pr.checks.values()} if facts.pr else {}
        checks = []
        for check in pull.checks:
            fresh = check.state in BAD and check.job and known.get(check.name) != (pull.head, check.state)
            checks.append(await self._logged(scm, facts, check) if fresh else check)
        return replace(pull, checks=tuple(checks))

    async def _logged(self, scm: SCM, facts: SessionFacts, check: PullCheck) -> PullCheck:
        try:
            output = await scm.log(check.job or "", LOOKED_AT)
        except AoError as error:
            log.info("a check's output cannot be read", session=facts.id, check=check.name, error=str(error))
            return check
        folder = self.home.session(facts.id) / "forge-logs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / f"{_file_name(check.id)}.log"
        await asyncio.to_thread(file.write_bytes, output)
        summary = relevant(output.decode(errors="replace")) or check.summary
        return replace(check, summary=summary, log=str(file))


def _is_watched(facts: SessionFacts) -> bool:
    """One that was closed may be opened again as long as its session is there."""
    pr = facts.pr
    if facts.spec.scm == LOCAL or pr is None or not pr.node:
        return False
    return pr.state == "open" or (pr.state == "closed" and not facts.stopped)


def _is_settled(facts: SessionFacts) -> bool:
    return facts.pr is not None and (facts.pr.state != "open" or facts.pr.settled == facts.head)


def _concerns(hint: Hint, facts: SessionFacts) -> bool:
    pr = facts.pr
    if pr is None:
        return False
    heads, branches = set(hint.heads), set(hint.branches)
    return (
        pr.number in hint.pulls or bool(heads & {facts.head, facts.pushed}) or bool(branches & {facts.branch, pr.base})
    )


def _file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text)[:80]
