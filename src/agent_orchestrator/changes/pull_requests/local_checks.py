"""Run the checks of pull requests that no service checks, and compare them with their base.

Each function is an effect (see `sessions/lifecycle/effects.py`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.changes import merge
from agent_orchestrator.changes.checks.assessment import (
    check_finished_event,
    check_not_started_event,
    compare_with_base,
)
from agent_orchestrator.changes.checks.ownership import task_text
from agent_orchestrator.changes.checks.required_checks import RequiredChecks
from agent_orchestrator.changes.checks.runner import Checks, run_confirmed
from agent_orchestrator.changes.checks.spec import CheckSpec
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.model import CheckSection
from agent_orchestrator.core import events as e
from agent_orchestrator.core.effects import Effect, retry_until_done
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.listeners import FactsChange
from agent_orchestrator.core.notices import NoticeGate
from agent_orchestrator.core.pull_request import PullRequest
from agent_orchestrator.core.reactions import Intent
from agent_orchestrator.errors import AoError
from agent_orchestrator.sessions.lifecycle.session_specs import SessionSpecs
from agent_orchestrator.sessions.part import Core, Part


class PullRequestChecks(Part):
    """The effects `check` and `compare`."""

    source = "forge"

    def __init__(
        self, core: Core, specs: SessionSpecs, checks: Checks, required: RequiredChecks, notices: NoticeGate
    ) -> None:
        super().__init__(core)
        self.specs = specs
        self.checks = checks
        self.required = required
        self._notices = notices
        self._running_checks: dict[str, list[tuple[str, str, str, str]]] = defaultdict(list)
        self.on(self._cancel_outdated, e.HeadMoved)

    def effects(self) -> dict[str, Effect]:
        """Return the effects by kind of intent."""
        return {
            "check": Effect(retry_until_done(self.run_checks)),
            "compare": Effect(retry_until_done(self.predict_conflicts)),
        }

    async def predict_conflicts(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Return the event that says which files of the change conflict with its base."""
        facts = self.flow.sessions[intent.session]
        head, base_head = facts.head or "", facts.base_head or ""
        prediction = merge.BaseConflicts(self.host, Path(facts.spec.repo), self._scratch_folder(facts))
        files = await prediction.conflicts_with(head, facts.pr.base if facts.pr else facts.base)
        return [self.event(facts, e.ConflictsSeen(head, base_head, tuple(files)), f"{intent.key}:done", source="git")]

    def _scratch_folder(self, facts: SessionFacts) -> Path:
        """Return the session's folder for scratch files; created if necessary."""
        work = self.home.path / "landing" / facts.id
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        return work

    # -- checks --------------------------------------------------------------------------------------------------------

    async def run_checks(self, intent: Intent, _attempts: int) -> Sequence[Event]:
        """Run the checks that are due at this commit; each result is recorded as it comes."""
        facts = self.flow.sessions[intent.session]
        pr, head = facts.pr, facts.head or ""
        assert pr is not None
        project = self.core.settings.project(facts.project)
        all_checks = self.required.for_session(facts)
        if not all_checks:
            return [self.event(facts, e.ChecksSettled(head, none=True), f"{intent.key}:done", source="checks")]
        due = {name: check for name, check in all_checks.items() if _is_due(check, pr)}
        if not due:
            by_hand = [] if pr.draft else [e.ChecksByHand(head)]
            return [self.event(facts, body, f"{intent.key}:by-hand", source="checks") for body in by_hand]
        results = await asyncio.gather(
            *(self._run_check(facts, project, name, due_check, head, intent.key) for name, due_check in due.items())
        )
        required = {name for name, check in all_checks.items() if check.on != "manual" or pr.check_request_count}
        if required <= set(due) and "cancelled" not in results:
            return [self.event(facts, e.ChecksSettled(head), f"{intent.key}:done", source="checks")]
        return []

    async def _run_check(
        self, facts: SessionFacts, project: ProjectConfig, name: str, check: CheckSection, head: str, key: str
    ) -> str:
        """Run one check, record its result, and return its state."""
        try:
            body = await self._check_result(facts, project, name, check, head, key)
        except AoError as error:
            if error.retryable:
                raise
            body = check_not_started_event(name, head, error)
        events = [self.event(facts, body, f"{key}:{name}:finished", source="checks")]
        if body.on_base and not body.fixed_since:
            events.append(self._base_failure_notice(self.flow.sessions[facts.id], body))
        await self.flow.append(*events)
        return body.state

    async def _check_result(
        self, facts: SessionFacts, project: ProjectConfig, name: str, check: CheckSection, head: str, key: str
    ) -> e.CheckFinished:
        """Run one check and return its result compared with the base."""
        await self.core.sites.local.login_ready.wait()
        spec = self.check_spec(facts, project, name, check, head)
        is_requested = bool(facts.pr and facts.pr.check_request_count)

        def on_start(tree: str) -> None:
            """Record that the check runs, and on which tree."""
            self._running_checks[facts.id].append((head, facts.project, tree, name))
            running = e.CheckStarted(name, head, str(self.checks.log_path(facts.project, tree, name)))
            recordings.append(
                asyncio.ensure_future(
                    self.flow.append(self.event(facts, running, f"{key}:{name}:{tree}:runs", source="checks"))
                )
            )

        recordings: list[asyncio.Future[list[Event]]] = []
        await self.flow.append(self.event(facts, e.CheckStarted(name, head), f"{key}:{name}:started", source="checks"))
        await self.core.projects.check_trust(project, None, ci=True)
        result = await run_confirmed(self.checks, spec, again=is_requested, started=on_start)
        base = self.flow.sessions[facts.id].base_head  # read now, because the check may have taken long
        merge_base = await Git(self.host, spec.repo).merge_base(head, base) if base else None
        assessment = await compare_with_base(self.checks, spec, result, base, merge_base)
        await asyncio.gather(*recordings)
        task = "" if spec.never_compared or self.required.fix_check(facts) else task_text(facts)
        return await check_finished_event(facts, project, assessment, name, head, check.command, task=task)

    def _base_failure_notice(self, facts: SessionFacts, body: e.CheckFinished) -> Event:
        """Return the notice that a check fails on the base too; its key makes sure that it is sent once per commit of the base."""
        failures = ", ".join(body.known[:3]) + (f" and {len(body.known) - 3} more" if len(body.known) > 3 else "")
        base_key = f"{facts.project}:{body.name}:{facts.base_head}"
        notice = e.Notified(
            "ci-failed", f"{body.name} fails on {facts.base}", f"Also fails there: {failures}", "warning"
        )
        return self.event(facts, self._notices(facts.project, notice), f"base-fails:{base_key}", source="checks")

    def check_spec(
        self, facts: SessionFacts, project: ProjectConfig, name: str, check: CheckSection, commit: str
    ) -> CheckSpec:
        """Return the specification of one check of one commit, with the project's set-up."""
        env = {
            key: value
            for key, value in self.specs.environment(facts, agent=False).items()
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
            never_compared=name in self.required.fix_check(facts),
            parallel=check.parallel,
        )

    def _cancel_outdated(self, changes: Sequence[FactsChange]) -> None:
        """Cancel checks of a commit that is not the head any more."""
        for change in changes:
            if change.after is not None:
                for head, *run_key in self._running_checks.pop(change.after.id, []):
                    if head != change.after.head and not self._is_needed(*run_key):
                        self.checks.cancel(*run_key)

    def _is_needed(self, project: str, tree: str, name: str) -> bool:
        """Return whether the same content is checked for another session, at whose head it still is."""
        return any(
            run_key == (self.flow.sessions[session].head, project, tree, name)
            for session, run_keys in self._running_checks.items()
            for run_key in run_keys
        )


def _is_due(check: CheckSection, pr: PullRequest) -> bool:
    """Return whether a check is due: it was requested, runs on every commit, or the agent is done."""
    return bool(pr.check_request_count) or check.on == "commit" or (check.on == "done" and not pr.draft)
