"""Read pull requests: at once after a webhook, otherwise by a poll that costs nothing while nothing changes.

There is one loop per project with open pull requests at a forge. Each loop reads and records in sequence, so that
events are recorded in the order in which they were read.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import structlog

from agent_orchestrator.changes import merge
from agent_orchestrator.changes.checks.summary import MAX_SEARCHED_BYTES, relevant_output
from agent_orchestrator.changes.forge_sync.backoff import next_pause
from agent_orchestrator.changes.forge_sync.connections import ForgeConnections
from agent_orchestrator.changes.forge_sync.outages import Outages, error_line
from agent_orchestrator.changes.forge_sync.poll_interval import (
    PULL_REQUEST_POLL_INTERVAL,
    WEBHOOK_POLL_INTERVAL,
    poll_interval,
    sends_webhooks,
)
from agent_orchestrator.changes.forge_sync.pull_request_events import merges_other_commit, pull_request_news
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.pull_request import FAILED_STATES
from agent_orchestrator.core.signals import BaseChecksRead, ConfigurationReloaded
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Timer
from agent_orchestrator.protocols.forge import SCM, Hint, KnownPullRequest, PullRequestCheck, PullRequestState
from agent_orchestrator.sessions.part import Core, Part

HINT_BATCH_SECONDS = 0.1
"""Seconds in which hints are collected before reading."""
MAX_FAILURE_PAUSE = 600.0
"""Longest pause in seconds after failures."""
POLLS_AFTER_HINT = 2
"""Polls that are made after a hint about an unknown commit: only every other poll asks for the checks of commits that no
session waits for."""
MAX_REREADS = 5
"""Number of times that a pull request is read again because the forge's answer was incomplete."""

log = structlog.get_logger()

ForgeKey = tuple[str, str]
"""A project and the forge that serves it."""


class PullRequestSync(Part):
    """Keeps the facts about pull requests at forges up to date."""

    def __init__(self, core: Core, repositories: ForgeConnections, outages: Outages) -> None:
        super().__init__(core)
        self.connections = repositories
        self.outages = outages
        self.problems: dict[ForgeKey, str] = {}
        """Why a project's forge cannot be read."""
        self._loops: dict[ForgeKey, asyncio.Task[None]] = {}
        self._wake: defaultdict[ForgeKey, asyncio.Event] = defaultdict(asyncio.Event)
        self._numbers_to_read: defaultdict[ForgeKey, set[int]] = defaultdict(set)
        self.incomplete_reasons: dict[str, str] = {}
        """What a forge does not report about a session's pull request, although it was read again."""
        self._read_at: dict[str, float] = {}
        self._reread_counts: dict[str, int] = {}
        self._last_webhook_at: dict[ForgeKey, float] = {}
        self._polls_due: dict[ForgeKey, int] = {}
        """Number of polls that are due although webhooks come."""
        self._polled_at: dict[ForgeKey, float] = {}
        self._poll_timers: dict[ForgeKey, Timer] = {}
        self._last_action_seq: dict[str, int] = {}
        """The event number of the last action from here on a session's pull request; what was read before that is read again."""
        self._is_running = False
        self.on_signal(ConfigurationReloaded, self._restart_failed)

    def start(self) -> None:
        """Start reading the open pull requests, and those that are opened later."""
        self._is_running = True
        self.on(self._read_changed, e.PrOpened, e.WorkPushed, e.PrReady, e.ThreadSettled)
        self.on(self._poll_awaited, e.MergeRequested)
        for facts in self.flow.sessions.values():
            if _is_watched(facts):
                self.request_read(facts)

    def _restart_failed(self, _signal: ConfigurationReloaded) -> None:
        """Restart reading after a configuration change: a forge that failed may be readable now."""
        for place in [failed_place for failed_place in self.problems if failed_place in self._loops]:
            self._loops.pop(place).cancel()
            self._wake_loop(place)

    async def close(self) -> None:
        """Stop reading."""
        self._is_running = False
        for timer in self._poll_timers.values():
            timer.cancel()
        await super().close()

    def _read_changed(self, changes: Sequence[FactsChange]) -> None:
        """Read a pull request after it was opened, pushed to, made ready, or had a thread settled by a person."""
        for change in changes:
            after = change.after
            is_read_already = isinstance(change.event.body, e.ThreadSettled) and change.event.source != "person"
            if after and not is_read_already and _is_watched(after):
                self._last_action_seq[after.id] = change.event.seq
                self.request_read(after)

    def _poll_awaited(self, changes: Sequence[FactsChange]) -> None:
        """Poll when a merge is requested, because a webhook about its checks may have been missed."""
        for change in changes:
            if change.after and _is_watched(change.after):
                self._wake_loop((change.after.project, change.after.spec.scm))

    # -- what to read --------------------------------------------------------------------------------------------------

    def request_read(self, facts: SessionFacts) -> None:
        """Read a session's pull request soon."""
        assert facts.pr is not None
        place = (facts.project, facts.spec.scm)
        self._numbers_to_read[place].add(facts.pr.number)
        self._wake_loop(place)

    def handle_hint(self, name: str, hint: Hint, projects: Collection[str]) -> None:
        """Read the pull requests that a webhook for these projects is about.

        A hint about a commit of no session leads to a poll.
        """
        places_to_poll: set[ForgeKey] = set()
        is_of_place: dict[ForgeKey, bool] = {}
        for facts in self.flow.sessions.values():
            place = (facts.project, facts.spec.scm)
            if facts.spec.scm != name or facts.project not in projects or not _is_watched(facts):
                continue
            if place not in is_of_place:
                is_of_place[place] = self._is_in_repository(place, hint.repo)
            if not is_of_place[place]:
                continue
            self._last_webhook_at[place] = self.clock()
            has_targets = hint.pulls or hint.heads or hint.branches or hint.issues
            if not has_targets or _is_about_session(hint, facts):  # a hint without targets is about everything
                self.request_read(facts)
            elif hint.heads:
                places_to_poll.add(place)
        for place in places_to_poll:
            self._poll_soon(place)

    def _poll_soon(self, place: ForgeKey) -> None:
        """Poll after a hint about a commit of no session, of the base perhaps, no sooner than a poll is due without webhooks."""
        self._polls_due[place] = POLLS_AFTER_HINT
        if place in self._poll_timers:
            return
        delay = self._polled_at.get(place, 0.0) + self._interval(place) - self.clock()
        self._poll_timers[place] = self.clock.call_later(max(0.0, delay), partial(self._poll_now, place))

    def _poll_now(self, place: ForgeKey) -> None:
        """Wake the loop of a project's forge."""
        del self._poll_timers[place]
        self._wake_loop(place)

    def _is_in_repository(self, place: ForgeKey, repo: str) -> bool:
        """Return whether a hint about this repository is about the project's repository."""
        try:
            return not repo or self.connections.forge(*place).repo.casefold() == repo.casefold()
        except AoError:
            return False

    def _wake_loop(self, place: ForgeKey) -> None:
        """Wake the loop of a project's forge, and start it if it does not run."""
        self._wake[place].set()
        if self._is_running and (place not in self._loops or self._loops[place].done()):
            self._loops[place] = self.spawn(self._run_loop(place), name=f"forge {place}")

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _run_loop(self, place: ForgeKey) -> None:
        """Read a project's pull requests as long as any is watched."""
        pause, began = 0.0, self.clock()
        while any(self._watched_sessions(place)):
            try:
                scm = await self.connections.trusted_forge(*place)
                overdue = self.clock() - max(began, self._polled_at.get(place, 0.0)) >= WEBHOOK_POLL_INTERVAL
                if overdue or not self._numbers_to_read[place]:
                    self._polled_at[place] = self.clock()
                    self._mark_for_reading(place, await scm.changed(self._known_pulls(place)))
                    self._polls_due[place] = max(0, self._polls_due.get(place, 0) - 1)
                    self._report_bases(place[0], scm)
                await self.read_marked(place, scm)
                self.problems.pop(place, None)
                await self.outages.record_success(*place, "pulls")
                pause = 0.0
            except Exception as error:
                pause = min(
                    self._next_pause(place, pause, error), await self.outages.record_failure(*place, "pulls", error)
                )
                if self.problems.get(place) != error_line(error):
                    log.warning("a forge cannot be read", project=place[0], forge=place[1], error=error_line(error))
                self.problems[place] = error_line(error)
            await self._sleep(place, pause)
        await self.outages.stop_watching(*place, "pulls")

    def _report_bases(self, project: str, scm: SCM) -> None:
        """Emit the checks of the base branches, if the forge reports them."""
        if bases := scm.bases():
            self.emit(BaseChecksRead(project, bases))

    def _next_pause(self, place: ForgeKey, pause: float, error: Exception) -> float:
        """Return the pause after a failure; the first one is no longer than that between two polls."""
        try:
            project = self.core.settings.project(place[0])
            first = min(
                PULL_REQUEST_POLL_INTERVAL,
                self.connections.poll_interval(project, project.scm, PULL_REQUEST_POLL_INTERVAL),
            )
        except AoError:
            first = PULL_REQUEST_POLL_INTERVAL
        return next_pause(pause, first, MAX_FAILURE_PAUSE, error, self.clock())

    async def _sleep(self, place: ForgeKey, pause: float) -> None:
        """Wait until the next poll is due or a pull request is to be read."""
        try:
            async with asyncio.timeout(pause or self._interval(place)):
                await self._wake[place].wait()
        except TimeoutError:
            return
        await asyncio.sleep(pause or self._gather_seconds(place))
        self._wake[place].clear()

    def _gather_seconds(self, place: ForgeKey) -> float:
        """Return the seconds in which hints are collected: more while the host's rate limit is short, to save requests."""
        try:
            scm = self.connections.forge(*place)
        except AoError:
            return HINT_BATCH_SECONDS
        return min(max(HINT_BATCH_SECONDS, scm.pause()), PULL_REQUEST_POLL_INTERVAL)

    def _interval(self, place: ForgeKey) -> float:
        """Return the seconds until the next poll: more while webhooks come, or while the host's rate limit is short.

        While a merge is requested, webhooks do not replace polls: one that was missed would hold the merge for long.
        """
        has_hooks = sends_webhooks(self._last_webhook_at.get(place, 0.0), self.clock())
        has_hooks = has_hooks and not self._numbers_to_read[place] and not self._polls_due.get(place)
        has_hooks = has_hooks and not any(
            facts.pr and facts.pr.merge_request for facts in self._watched_sessions(place)
        )
        try:
            scm, project = self.connections.forge(*place), self.core.settings.project(place[0])
            interval = poll_interval(
                self.connections, project, project.scm, PULL_REQUEST_POLL_INTERVAL, has_hooks=has_hooks
            )
        except AoError:
            return WEBHOOK_POLL_INTERVAL
        return max(interval, scm.pause())

    def _watched_sessions(self, place: ForgeKey) -> Iterable[SessionFacts]:
        """Return the sessions of a project's forge whose pull requests are watched."""
        return (
            facts
            for facts in list(self.flow.sessions.values())
            if (facts.project, facts.spec.scm) == place and _is_watched(facts)
        )

    def _known_pulls(self, place: ForgeKey) -> list[KnownPullRequest]:
        """Return what is known of the watched pull requests, for a poll to compare."""
        return [
            KnownPullRequest(
                pr.number, pr.permanent_id, facts.head or "", _is_settled(facts), self._read_at.get(facts.id, 0.0)
            )
            for facts in self._watched_sessions(place)
            if (pr := facts.pr)
        ]

    def _mark_for_reading(self, place: ForgeKey, hint: Hint) -> None:
        """Mark the pull requests that a poll's result is about as to be read."""
        self._numbers_to_read[place] |= {
            facts.pr.number for facts in self._watched_sessions(place) if facts.pr and _is_about_session(hint, facts)
        }

    async def read_marked(self, place: ForgeKey, scm: SCM) -> None:
        """Read the pull requests that are marked, and record what is new.

        Raises `AoError` if one could not be recorded, after the others were.
        """
        numbers = self._numbers_to_read.pop(place, set())
        sessions = {
            facts.pr.permanent_id: facts.id
            for facts in self._watched_sessions(place)
            if facts.pr and facts.pr.number in numbers
        }
        if not sessions:
            return
        try:
            last_seq = self.flow.seq
            pulls = await scm.read(list(sessions))
            failure: AoError | None = None
            for pull in pulls:
                try:
                    await self._record_news(scm, sessions[pull.id], pull, last_seq)
                except AoError as error:  # the others are recorded nevertheless
                    failure = error
            if failure:
                raise failure
        except BaseException:
            self._numbers_to_read[place] |= numbers
            raise
        unread_by_node = {pull.id: pull.unread for pull in pulls}
        for node, session in sessions.items():
            self._check_completeness(place, session, unread_by_node.get(node, ("itself",)))

    def _check_completeness(self, place: ForgeKey, session: str, unread: Sequence[str]) -> None:
        """Mark a pull request that was read incompletely to be read again, a few times; after that it waits for the next change."""
        facts = self.flow.sessions[session]
        attempts = self._reread_counts.pop(session, 0)
        self.incomplete_reasons.pop(session, None)
        if not unread or facts.pr is None:
            return
        self._reread_counts[session] = attempts + 1
        self._read_at[session] = self.clock()
        self.incomplete_reasons[session] = f"pull request #{facts.pr.number} is not told whole: {', '.join(unread)}"
        if attempts < MAX_REREADS:
            self._numbers_to_read[place].add(facts.pr.number)

    def describe_incomplete(self, project: str) -> list[str]:
        """Return what the project's forge does not report, as texts for people."""
        return [
            text for session, text in self.incomplete_reasons.items() if self.flow.sessions[session].project == project
        ]

    async def _record_news(self, scm: SCM, session: str, pull: PullRequestState, last_seq: int) -> None:
        """Record what is new about a pull request.

        If an action from here was recorded after `last_seq`, the answer may be older than it and is dropped.
        """
        self._read_at[session] = self.clock()
        if merges_other_commit(self.flow.sessions[session], pull):
            await scm.cancel_merge(pull)
        pull = await self._with_logs(scm, self.flow.sessions[session], pull)
        conflicts = await self._conflicting_files(self.flow.sessions[session], pull) if pull.mergeable == "no" else ()
        if self._last_action_seq.get(session, 0) > last_seq:
            return
        facts = self.flow.sessions[session]
        now = self.clock()
        events = [
            Event(body, now, facts.spec.scm, f"{pull.id}:{facts.seq}:{number}", facts.project, session)
            for number, body in enumerate(pull_request_news(facts, pull, conflicts))
        ]
        if events:
            await self.flow.append(*events)

    async def _conflicting_files(self, facts: SessionFacts, pull: PullRequestState) -> tuple[str, ...]:
        """Return the files in conflict, or none if the repository here does not have both commits."""
        work = self.home.path / "landing" / facts.id
        try:
            return await merge.BaseConflicts(self.host, Path(facts.spec.repo), work).conflicts_with(
                pull.head, pull.base
            )
        except AoError:
            return ()

    async def _with_logs(self, scm: SCM, facts: SessionFacts, pull: PullRequestState) -> PullRequestState:
        """Return the pull request with the output of checks that failed since the last read."""
        known_states = {run.name: (run.head, run.state) for run in facts.pr.checks.values()} if facts.pr else {}
        checks = []
        for check in pull.checks:
            is_new_failure = (
                check.state in FAILED_STATES and check.job and known_states.get(check.name) != (pull.head, check.state)
            )
            checks.append(await self._with_log(scm, facts, check) if is_new_failure else check)
        return replace(pull, checks=tuple(checks))

    async def _with_log(self, scm: SCM, facts: SessionFacts, check: PullRequestCheck) -> PullRequestCheck:
        """Return a check with its output stored in a file; without it if it cannot be read."""
        try:
            output = await scm.log(check.job or "", MAX_SEARCHED_BYTES)
        except AoError as error:
            log.info("a check's output cannot be read", session=facts.id, check=check.name, error=str(error))
            return check
        folder = self.home.session(facts.id) / "forge-logs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = folder / f"{_file_name(check.id)}.log"
        await asyncio.to_thread(file.write_bytes, output)
        summary = relevant_output(output.decode(errors="replace")) or check.summary
        return replace(check, summary=summary, log=str(file))


def _is_watched(facts: SessionFacts) -> bool:
    """Return whether a session's pull request is read.

    One that was closed may be reopened as long as its session is not stopped.
    """
    pr = facts.pr
    if not facts.has_remote_forge or pr is None or not pr.permanent_id:
        return False
    return pr.state == "open" or (pr.state == "closed" and not facts.stopped)


def _is_settled(facts: SessionFacts) -> bool:
    """Return whether a pull request is not open, or all checks of its head have ended."""
    return facts.pr is not None and (facts.pr.state != "open" or facts.pr.settled_head == facts.head)


def _is_about_session(hint: Hint, facts: SessionFacts) -> bool:
    """Return whether a hint is about a session's pull request, commit or branches."""
    pr = facts.pr
    if pr is None:
        return False
    heads, branches = set(hint.heads), set(hint.branches)
    return (
        pr.number in hint.pulls
        or bool(heads & {facts.head, facts.pushed_head})
        or bool(branches & {facts.branch, pr.base})
    )


def _file_name(text: str) -> str:
    """Return a text as a safe file name."""
    return "".join(letter if letter.isalnum() else "-" for letter in text)[:80]
