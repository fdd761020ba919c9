"""Pull requests of the local forge, carried out: opened as draft, made ready, checked, compared with the base, landed.

Each function is an effect (see `lifecycle.py`). Landing is one at a time a project: merged onto the base's head, checked at that very
tree, and only then is the base moved there, by compare-and-swap.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import Check
from agent_orchestrator.errors import AoError
from agent_orchestrator.flow import events as e
from agent_orchestrator.flow.effects import Again, Effect
from agent_orchestrator.flow.engine import Change, Flow
from agent_orchestrator.flow.events import Event
from agent_orchestrator.flow.facts import SessionFacts
from agent_orchestrator.flow.pull import GOOD, PullRequest
from agent_orchestrator.flow.reactions import Intent
from agent_orchestrator.git import Git
from agent_orchestrator.home import Home
from agent_orchestrator.host import Host
from agent_orchestrator.services import landing
from agent_orchestrator.services.checks import Checks, CheckSpec, Result
from agent_orchestrator.services.lifecycle import Lifecycle
from agent_orchestrator.services.plugins import Plugins
from agent_orchestrator.services.projects import Projects

TRIES = 5
"""How often a landing is built anew when the base moves under it."""
LOOK_AGAIN = 3.0
MOST_LEFT = 100
"""Uncommitted files that a landing names."""


class Pulls:
    """The effects of pull requests."""

    def __init__(
        self,
        flow: Flow,
        home: Home,
        host: Host,
        plugins: Plugins,
        projects: Projects,
        lifecycle: Lifecycle,
        checks: Checks,
    ) -> None:
        self.flow = flow
        self.home = home
        self.host = host
        self.plugins = plugins
        self.projects = projects
        self.lifecycle = lifecycle
        self.checks = checks
        self.numbering = asyncio.Lock()
        self._landing: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._running: dict[str, list[tuple[str, str, str, str]]] = defaultdict(list)
        flow.on_change.append(self._on_change)

    def effects(self) -> dict[str, Effect]:
        """By kind of intent."""
        return {
            "open-pr": Effect(self.open),
            "ready-pr": Effect(self.ready),
            "check": Effect(self.check),
            "compare": Effect(self.compare),
            "land": Effect(self.land),
        }

    def _event(self, facts: SessionFacts, body: e.Body, key: str, source: str = "forge") -> Event:
        return Event(body, self.flow.clock(), source, key, facts.project, facts.id)

    # -- opening -------------------------------------------------------------------------------------------------------

    async def open(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Give the branch a pull request, with the next free number."""
        facts = self.flow.sessions[intent.session]
        async with self.numbering:
            body = e.PrOpened(next_number(self.flow, facts.project), facts.spec.title, facts.base)
            await self.flow.append(self._event(facts, body, f"{intent.key}:done"))
        return []

    async def ready(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """The agent is done: no draft any more."""
        facts = self.flow.sessions[intent.session]
        return [self._event(facts, e.PrReady(), f"{intent.key}:done")]

    async def compare(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Does the change still go together with its base?"""
        facts = self.flow.sessions[intent.session]
        head, base_head = facts.head or "", facts.base_head or ""
        prediction = landing.Prediction(self.host, Path(facts.spec.repo), self._work(facts))
        files = await prediction.conflicts_with(head, facts.pr.base if facts.pr else facts.base)
        return [self._event(facts, e.ConflictsSeen(head, base_head, tuple(files)), f"{intent.key}:done", "git")]

    def _work(self, facts: SessionFacts) -> Path:
        work = self.home.path / "landing" / facts.id
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        return work

    # -- checks --------------------------------------------------------------------------------------------------------

    async def check(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Run the checks that are due at this commit; each result is told as it comes."""
        facts = self.flow.sessions[intent.session]
        pr, head = facts.pr, facts.head or ""
        assert pr is not None
        project = self.plugins.project(facts.project)
        if not project.ci:
            return [self._event(facts, e.ChecksSettled(head, none=True), f"{intent.key}:done", "checks")]
        due = {name: check for name, check in project.ci.items() if _is_due(check, pr)}
        if not due:
            by_hand = [] if pr.draft else [e.ChecksByHand(head)]
            return [self._event(facts, body, f"{intent.key}:by-hand", "checks") for body in by_hand]
        results = await asyncio.gather(
            *(self._run(facts, project, name, one, head, intent.key) for name, one in due.items())
        )
        wanted = {name for name, check in project.ci.items() if check.on != "manual" or pr.asked}
        if wanted <= set(due) and "cancelled" not in results:
            return [self._event(facts, e.ChecksSettled(head), f"{intent.key}:done", "checks")]
        return []

    async def _run(
        self, facts: SessionFacts, project: ProjectConfig, name: str, check: Check, head: str, key: str
    ) -> str:
        """Run one, and tell what came of it; returns its state."""
        try:
            body = await self._result(facts, project, name, check, head, key)
        except AoError as error:
            if error.retryable:
                raise
            body = e.CheckFinished(name, head, "failure", f"it could not be run: {error}", on_base=True, broken=True)
        events = [self._event(facts, body, f"{key}:{name}:finished", "checks")]
        if body.on_base:
            events.append(self._notice(facts, body))
        await self.flow.append(*events)
        return body.state

    async def _result(
        self, facts: SessionFacts, project: ProjectConfig, name: str, check: Check, head: str, key: str
    ) -> e.CheckFinished:
        spec = self.check_spec(facts, project, name, check, head)
        again = bool(facts.pr and facts.pr.asked)

        def started(tree: str) -> None:
            self._running[facts.id].append((head, facts.project, tree, name))
            running = e.CheckStarted(name, head, str(self.checks.log_path(facts.project, tree, name)))
            telling.append(
                asyncio.ensure_future(
                    self.flow.append(self._event(facts, running, f"{key}:{name}:{tree}:runs", "checks"))
                )
            )

        telling: list[asyncio.Future[list[Event]]] = []
        await self.flow.append(self._event(facts, e.CheckStarted(name, head), f"{key}:{name}:started", "checks"))
        await self.projects.check_trust(project, None, ci=True)
        result = await self.checks.verdict(spec, again=again, started=started)
        await asyncio.gather(*telling)
        on_base = result.state == "failure" and await self._fails_without_it(facts, spec, result)
        tests = result.tests
        return e.CheckFinished(
            name,
            head,
            result.state,
            summary="" if result.state == "success" else result.summary,
            log=str(result.log),
            tree=result.tree,
            passed=tests.passed if tests else None,
            failed=tests.failed if tests else None,
            on_base=on_base,
            broken=on_base and not result.about_content,
        )

    def _notice(self, facts: SessionFacts, body: e.CheckFinished) -> Event:
        """A person is told once for each commit of the base: no agent's change mends it."""
        how = body.summary.partition("\n")[0]
        told = f"{how}; it is run again by: ao checks {facts.id} --run" if body.broken else f"it fails there too: {how}"
        where = f"{facts.project}:{body.name}:{facts.base_head}"
        notice = e.Notified(
            "ci-failed",
            f"the check {body.name} cannot be run" if body.broken else f"the check {body.name} fails on {facts.base}",
            told,
            "urgent" if body.broken else "warning",
        )
        return self._event(facts, notice, f"base-fails:{where}:{body.broken}", "checks")

    async def _fails_without_it(self, facts: SessionFacts, spec: CheckSpec, result: Result) -> bool:
        """Does the check fail on the base too: as it is now, or as it was where the branch left it?"""
        if not facts.base_head:
            return False
        left = await Git(self.host, spec.repo).merge_base(spec.commit, facts.base_head)
        commits = dict.fromkeys(commit for commit in (facts.base_head, left) if commit)
        for commit in commits:
            if await self.checks.base_fails(spec, commit, result):
                return True
        return False

    def check_spec(
        self, facts: SessionFacts, project: ProjectConfig, name: str, check: Check, commit: str
    ) -> CheckSpec:
        """One check of one commit, with the project's set-up."""
        env = {
            key: value
            for key, value in self.lifecycle.environment(facts).items()
            if not key.startswith(("AO_", "GIT_"))
        }
        return CheckSpec(
            project=facts.project,
            repo=Path(facts.spec.repo),
            commit=commit,
            name=name,
            command=check.command,
            timeout=check.timeout,
            env=env,
            copy=project.copy,
            symlinks=project.symlinks,
            post_create=project.post_create,
            base=facts.base,
            parallel=check.parallel,
        )

    def _on_change(self, changes: Sequence[Change]) -> None:
        """A check of a commit that is not the head any more is not worth its end."""
        for change in changes:
            if isinstance(change.event.body, e.HeadMoved) and change.after is not None:
                for head, project, tree, name in self._running.pop(change.after.id, []):
                    if head != change.after.head:
                        self.checks.cancel(project, tree, name)

    # -- landing -------------------------------------------------------------------------------------------------------

    async def land(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Land the change, if it is good on top of the base as it is now; what cannot be done is told as a refusal."""
        try:
            return await self._land(intent)
        except AoError as error:
            if error.retryable:
                raise
            refused = e.LandingFailed(str(error), "error")
            return [self._event(self.flow.sessions[intent.session], refused, f"{intent.key}:failed")]

    async def _land(self, intent: Intent) -> Sequence[Event]:
        facts = self.flow.sessions[intent.session]
        async with self._landing[facts.project]:
            facts = self.flow.sessions[intent.session]
            if facts.pr is None or facts.pr.landing is None:
                return []
            spec = self.landing_spec(facts)
            if earlier := await landing.find_landing(self.host, spec):
                return await self._landed(facts, intent, earlier.commit, earlier.base_before)
            if facts.head != spec.head:
                return self._moved(facts, intent, facts.head)
            for _ in range(TRIES):
                built = await landing.build(self.host, spec)
                if isinstance(built, landing.Conflicted):
                    return self._conflicted(facts, intent, built)
                if refusal := await self._refusal(facts, built):
                    return [self._event(facts, e.LandingFailed(refusal, "checks"), f"{intent.key}:failed")]
                outcome = await landing.land(self.host, spec, built)
                match outcome:
                    case landing.Landed():
                        return await self._landed(facts, intent, outcome.commit, outcome.base_before)
                    case landing.Waits():
                        raise Again(LOOK_AGAIN, *self._waits(facts, outcome.reason))
                    case landing.BranchMoved():
                        return self._moved(facts, intent, outcome.now)
        raise Again(LOOK_AGAIN, *self._waits(facts, "the base branch to come to rest"))

    def landing_spec(self, facts: SessionFacts) -> landing.LandingSpec:
        """What is to land, and how."""
        assert facts.pr is not None
        strategy = facts.pr.landing.strategy if facts.pr.landing else "squash"
        closes = f"Closes #{facts.spec.issue}\n\n" if facts.spec.issue else ""
        return landing.LandingSpec(
            session=facts.id,
            repo=Path(facts.spec.repo),
            branch=facts.branch,
            head=(facts.pr.landing.head if facts.pr.landing else None) or facts.head or "",
            base=facts.pr.base,
            strategy=cast("landing.Strategy", strategy),
            title=f"{facts.pr.title} (#{facts.pr.number})",
            body=f"{closes}{facts.done or ''}".strip(),
            work=self._work(facts),
        )

    async def _refusal(self, facts: SessionFacts, built: landing.Built) -> str:
        """Why what would be on the base is not good; nothing: it is, or a person forced it."""
        assert facts.pr is not None and facts.pr.landing is not None
        project = self.plugins.project(facts.project)
        if facts.pr.landing.force or built.up_to_date or not project.ci:
            return ""
        await self.projects.check_trust(project, None, ci=True)
        runs = (
            self.checks.verdict(self.check_spec(facts, project, name, check, built.commit))
            for name, check in project.ci.items()
        )
        for name, result in zip(project.ci, await asyncio.gather(*runs), strict=True):
            spec = self.check_spec(facts, project, name, project.ci[name], built.commit)
            if result.state not in GOOD and not (
                result.about_content and await self.checks.base_fails(spec, built.base_before, result)
            ):
                why = result.summary.partition("\n")[0] or result.state
                return f"the check {name} fails on top of {facts.pr.base}: {why}"
        return ""

    def _conflicted(self, facts: SessionFacts, intent: Intent, built: landing.Conflicted) -> list[Event]:
        files = ", ".join(built.files[:5])
        seen = e.ConflictsSeen(facts.head or "", built.base_before, built.files)
        failed = e.LandingFailed(f"it conflicts with {facts.base} in {files}", "conflict")
        return [
            self._event(facts, failed, f"{intent.key}:failed"),
            self._event(facts, e.BaseMoved(built.base_before), f"{intent.key}:base", "git"),
            self._event(facts, seen, f"{intent.key}:conflicts", "git"),
        ]

    def _waits(self, facts: SessionFacts, reason: str) -> list[Event]:
        if facts.pr and facts.pr.landing and facts.pr.landing.waits == reason:
            return []
        return [self._event(facts, e.LandingWaits(reason), f"landing-waits:{facts.id}:{self.flow.clock():.3f}")]

    async def _left(self, facts: SessionFacts) -> tuple[str, ...]:
        """What is in its workspace, not committed, and so does not land."""
        place = facts.place
        if place is None or not place.present or not Path(place.path).is_dir():
            return ()
        try:
            changes = await Git(self.host, Path(place.path)).status()
        except AoError:
            return ()  # nobody knows; what is there is saved before the workspace goes
        names = {os.fsencode(change.path).decode(errors="replace") for change in changes}
        return tuple(sorted(names)[:MOST_LEFT])

    def _moved(self, facts: SessionFacts, intent: Intent, now: str | None) -> list[Event]:
        """The branch is not where it was when it was checked: nothing lands, and where it is now is what counts."""
        reason = "its branch moved meanwhile; what is there now was not checked" if now else "its branch is gone"
        events = [self._event(facts, e.LandingFailed(reason, "moved"), f"{intent.key}:failed")]
        if now and facts.place and facts.place.shared and now != facts.head:
            events.insert(0, self._event(facts, e.HeadMoved(now), f"{intent.key}:head", "git"))
        return events

    async def _landed(self, facts: SessionFacts, intent: Intent, commit: str, before: str) -> list[Event]:
        assert facts.pr is not None
        left = await self._left(facts)
        how = facts.pr.landing.strategy if facts.pr.landing else "squash"
        keep = bool(facts.pr.landing and not facts.pr.landing.delete_after)
        head = facts.pr.landing.head if facts.pr.landing else facts.head or ""
        body = e.PrMerged(commit, before, head, how, keep_branch=keep, left=left)
        events = [self._event(facts, body, f"{intent.key}:done")]
        issue = self.flow.home.issues.get(f"{facts.project}#{facts.spec.issue}")
        if issue and issue.state == "open":
            closed = e.IssueChanged(issue.number, state="closed")
            events.append(Event(closed, self.flow.clock(), "forge", f"{intent.key}:issue", facts.project))
        return events

    async def forget_branch(self, facts: SessionFacts) -> str:
        """After a landing: remove the branch, once all of it is provably on the base; says what became of it."""
        if facts.pr is None or facts.pr.state != "merged" or facts.pr.keep_branch:
            return ""
        try:
            cleaned = await landing.cleanup(self.host, self.landing_spec(facts))
        except AoError as error:
            return f"branch {facts.branch} stays: {error.text}"
        if not cleaned.deleted:
            return f"branch {facts.branch} stays: {cleaned.reason}"
        return f"branch {facts.branch} is removed; its commits are kept as {cleaned.kept}"


def next_number(flow: Flow, project: str) -> int:
    """Issues and pull requests of a project are numbered together."""
    numbers = [issue.number for issue in flow.home.issues.values() if issue.project == project]
    numbers += [facts.pr.number for facts in flow.sessions.values() if facts.pr and facts.project == project]
    return max(numbers, default=0) + 1


def _is_due(check: Check, pr: PullRequest) -> bool:
    return bool(pr.asked) or check.on == "commit" or (check.on == "done" and not pr.draft)
