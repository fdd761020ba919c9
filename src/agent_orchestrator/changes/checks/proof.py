"""Prove that a project's set-up and check commands work in a clean checkout of its base branch (`Proofs`).

Look here for `ao init`, which tries the commands that `config/detection` suggests until one candidate works and writes that one to the
configuration, and for `ao init --check`, which runs the configured commands. The checks run through `changes/checks`, so their results on
the base branch are known before the first session is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.git.refs import find_layout
from agent_orchestrator.changes.checks.outcome import Outcome
from agent_orchestrator.changes.checks.results import CheckResult
from agent_orchestrator.changes.checks.runner import Checks, run_confirmed
from agent_orchestrator.changes.checks.spec import CheckSpec
from agent_orchestrator.config.command_writer import set_commands
from agent_orchestrator.config.detection import DetectedCommands, detect_commands
from agent_orchestrator.config.detection.proposal import candidate_json, candidates_digest, describe_drift, missing_keys
from agent_orchestrator.config.detection.repository import default_branch
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.projects.projects import NO_CONTEXT
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
from agent_orchestrator.plugins.workspaces.git_exclude import exclude_tool_output
from agent_orchestrator.sessions.lifecycle.environment import agent_environment
from agent_orchestrator.sessions.part import Core

REPORT_INTERVAL = 1.0
"""Seconds between two progress reports."""
COMMAND_TIMEOUT = 1800.0
"""Seconds that a detected command may take."""
MAX_LISTED_FAILURES = 20
"""Maximum number of failing tests named in a proof."""
_MAX_REASON_LENGTH = 160
_CONCLUSIVE_STATES = ("success", "flaky", "failure")


@dataclass(slots=True)
class _CurrentCommand:
    """The command that runs at the moment, for progress reports."""

    attempt: int = 1
    attempt_count: int = 1
    command: str = ""
    since: float = 0.0

    def begin(self, command: str) -> None:
        """Set the current command and restart its clock."""
        self.command, self.since = command, time.monotonic()

    def json(self) -> dict[str, Any]:
        """Return the current command, its seconds so far and the number of the attempt."""
        seconds = round(time.monotonic() - self.since, 1)
        return {"command": self.command, "seconds": seconds, "attempt": self.attempt, "of": self.attempt_count}


@dataclass(slots=True)
class _Attempt:
    """One attempt: a set-up and check commands, with the results of running them."""

    set_up: tuple[str, ...]
    commands: dict[str, str]
    """Command by check name."""
    candidate: DetectedCommands | None = None
    results: dict[str, CheckResult] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """The reason why the commands are not proven to work, or "" if they are."""
        if obstacle := next((obstacle for result in self.results.values() if (obstacle := _obstacle(result))), ""):
            return obstacle
        outcomes = [result.outcome for result in self.results.values() if result.outcome.counts]
        if outcomes and not any(outcome.executed_count for outcome in outcomes):
            return "no test was executed"
        if outcomes and all(outcome.has_only_failures for outcome in outcomes if outcome.executed_count):
            failed = sum(outcome.executed_count for outcome in outcomes)
            first_message = next(
                (message for outcome in outcomes for message in outcome.failures.values() if message), ""
            )
            return f"none of {failed} tests passes" + (
                f" ({first_message[:_MAX_REASON_LENGTH]})" if first_message else ""
            )
        if any(
            result.state in ("success", "flaky") or result.outcome.executed_count for result in self.results.values()
        ):
            return ""
        return next((result.summary.partition("\n")[0] for result in self.results.values()), "nothing was run")

    @property
    def is_green(self) -> bool:
        """Whether the commands are proven and every check passes."""
        return not self.reason and all(result.state in ("success", "flaky") for result in self.results.values())

    @property
    def is_enough(self) -> bool:
        """Whether no other candidate needs to be tried: this one passes, or no more of its tests fail than pass."""
        failed = sum(result.outcome.counts.failed for result in self.results.values() if result.outcome.counts)
        return self.is_green or (not self.reason and failed <= self.passed)

    @property
    def passed(self) -> int:
        """The number of passed tests in all checks."""
        return sum(result.outcome.counts.passed for result in self.results.values() if result.outcome.counts)


class Proofs:
    """Proves the set-up and the checks of a home's projects."""

    def __init__(self, core: Core, checks: Checks) -> None:
        self.core = core
        self.host = core.host
        self.projects = core.projects
        self.checks = checks

    async def proposal(self, project_id: str) -> dict[str, Any] | None:
        """Return the detected commands for keys that are not set or not confirmed by a person, or None if there is nothing to propose."""
        project = self.core.settings.project(project_id)
        keys = self._proposable_keys(project)
        candidates = await self._matching_candidates(project, keys)
        if not candidates:
            return None
        return {
            "keys": list(keys),
            "commands": self.projects.proposed_commands(project),
            "candidates": [candidate_json(candidate) for candidate in candidates],
            "digest": candidates_digest(candidates, project.path),
        }

    async def _matching_candidates(self, project: ProjectConfig, keys: Sequence[str]) -> list[DetectedCommands]:
        """Return the detected candidates that would set at least one of these keys."""
        candidates = await self._detect_candidates(project) if keys else []
        return [
            candidate
            for candidate in candidates
            if (candidate.set_up and "postCreate" in keys) or (candidate.test and "ci" in keys)
        ]

    async def drift(self, project: ProjectConfig) -> list[str]:
        """Return the differences between a project's configuration and its files."""
        return describe_drift(project, await self._detect_candidates(project), project.path)

    async def health_findings(self) -> list[dict[str, Any]]:
        """Return a health finding for each project whose configuration and files differ (for `ao doctor`). Only reads files."""
        from agent_orchestrator.base.finding import finding

        findings = []
        for project in self.projects.config.projects():
            if project.path.is_dir() and (differences := await self.drift(project)):
                name = f"set-up of {project.id}"
                command = "ao init --check" if project.ci or project.post_create else "ao init"
                findings.append(finding(name, "warning", "; ".join(differences), f"{command} {project.path}"))
        return findings

    async def prove(
        self, project_id: str, detected: str | None = None, *, run: bool = True
    ) -> AsyncIterator[dict[str, Any]]:
        """Prove a project: yield `running` every second, and `proof` at the end.

        With `detected`, the digest of a proposal, its candidates are tried until one works; that one is written to the configuration and
        trusted. Without `run` the first candidate is written and nothing is run.
        """
        progress = _CurrentCommand()
        proving = asyncio.ensure_future(
            self._prove_detected(project_id, detected, progress, run=run)
            if detected is not None
            else self._prove_configured(project_id, progress)
        )
        reported_command = ""
        try:
            while not proving.done():
                await asyncio.wait(
                    {proving}, timeout=REPORT_INTERVAL if reported_command or not progress.command else 0.05
                )
                if progress.command and not proving.done():
                    reported_command = progress.command
                    yield {"running": progress.json()}
            yield {"proof": await proving}
        finally:
            proving.cancel()
            await asyncio.wait({proving})

    # -- what is configured --------------------------------------------------------------------------------------------

    async def _prove_configured(self, project_id: str, progress: _CurrentCommand) -> dict[str, Any]:
        """Run the configured set-up and checks and return the proof. Raises `NotFound` if neither is configured."""
        project = self.core.settings.checked_project(project_id)
        await self.projects.check_trust(project, None, ci=True)
        differences = await self.drift(project)
        if not project.ci and not project.post_create:
            raise NotFound(
                f"{project_id} has neither postCreate nor ci" + (f" ({'; '.join(differences)})" if differences else ""),
                "ao init detects and proves them, or set them: "
                f"ao config set projects.{project_id}.ci.command 'make test'",
            )
        base, commit = await self._resolve_base(project)
        attempt = _Attempt(project.post_create, {name: check.command for name, check in project.ci.items()})
        timeouts = {name: check.timeout for name, check in project.ci.items()}
        await self._run_checks(project, base, commit, attempt, progress, timeouts)
        return {**self._proof_json(project, base, commit, [attempt], attempt), "drift": differences, "written": None}

    # -- what was detected ---------------------------------------------------------------------------------------------

    async def _prove_detected(
        self, project_id: str, digest: str, progress: _CurrentCommand, *, run: bool
    ) -> dict[str, Any]:
        """Try the candidates of a proposal, write the best one and return the proof.

        Raises `Conflict` if the detected candidates no longer have this digest.
        """
        project = self.core.settings.checked_project(project_id)
        keys = self._proposable_keys(project)
        candidates = await self._matching_candidates(project, keys)
        if not candidates or candidates_digest(candidates, project.path) != digest:
            raise Conflict(f"what was detected for {project_id} changed since it was shown", "read it again: ao init")
        if not self.projects.is_proposed(project):
            await self.projects.check_trust(project, None, ci=True)
        base, commit = await self._resolve_base(project)
        if not run:
            best = self._attempt_for(project, keys, candidates[0])
            if candidates[0].lint and "ci" in keys:
                best.commands["lint"] = candidates[0].lint
            written = await self._write_commands(project, keys, best)
            return {**self._proof_json(project, base, commit, [], best), "drift": [], "written": str(written)}
        attempts: list[_Attempt] = []
        progress.attempt_count = len(candidates)
        for progress.attempt, candidate in enumerate(candidates, 1):
            attempt = self._attempt_for(project, keys, candidate)
            attempts.append(attempt)
            await self._run_checks(project, base, commit, attempt, progress, {})
            if attempt.is_enough:
                break
        best = _best_attempt(attempts)
        if best.candidate and best.candidate.lint and "ci" in keys and not best.reason:
            await self._prove_lint(project, base, commit, best, progress)
        written = await self._write_commands(project, keys, best)
        proof = self._proof_json(self.core.settings.project(project_id), base, commit, attempts, best)
        return {**proof, "drift": [], "written": str(written)}

    def _attempt_for(self, project: ProjectConfig, keys: Sequence[str], candidate: DetectedCommands) -> _Attempt:
        """Return the attempt for a candidate; keys outside `keys` keep their configured commands."""
        set_up = candidate.set_up if "postCreate" in keys else project.post_create
        if "ci" in keys:
            name = "test" if candidate.lint else "default"
            commands = {name: candidate.test} if candidate.test else {}
        else:
            commands = {name: check.command for name, check in project.ci.items()}
        return _Attempt(set_up, commands, candidate)

    async def _prove_lint(
        self, project: ProjectConfig, base: str, commit: str, attempt: _Attempt, progress: _CurrentCommand
    ) -> None:
        """Add the lint command to the attempt if it passes on the base branch; otherwise record why it is left out."""
        assert attempt.candidate is not None and attempt.candidate.lint is not None
        lint = attempt.candidate.lint
        progress.begin(lint)
        spec = self._check_spec(project, base, commit, "lint", lint, attempt.set_up)
        result = await run_confirmed(self.checks, spec, again=True, command=progress.begin)
        if result.state in ("success", "flaky"):
            attempt.commands["lint"], attempt.results["lint"] = lint, result
            return
        reason = _obstacle(result) or f"it fails on {base} ({_failure_count(result)})"
        attempt.left_out.append(f"lint {lint}: {reason}")

    async def _write_commands(self, project: ProjectConfig, keys: Sequence[str], attempt: _Attempt) -> Path:
        """Write the attempt's commands for these keys, trust the configuration, and return the written file."""
        file = project.file
        assert file is not None
        set_up = attempt.set_up if "postCreate" in keys else None
        checks = attempt.commands if "ci" in keys else None
        set_commands(file, project.id, set_up, checks, self.projects.config.environ, project.path)
        await self.projects.trust(str(project.path), NO_CONTEXT, preview=False)
        return file

    # -- one run -------------------------------------------------------------------------------------------------------

    async def _run_checks(
        self,
        project: ProjectConfig,
        base: str,
        commit: str,
        attempt: _Attempt,
        progress: _CurrentCommand,
        timeouts: Mapping[str, float],
    ) -> None:
        """Run the set-up from scratch, then every check, and store the results in the attempt; without checks, run the set-up alone."""
        await self.core.sites.local.login_ready.wait()
        for name, command in (attempt.commands or {"set-up": "true"}).items():
            from_scratch = not attempt.results
            progress.begin(attempt.set_up[0] if from_scratch and attempt.set_up else command)
            spec = self._check_spec(
                project, base, commit, name, command, attempt.set_up, timeouts.get(name), from_scratch=from_scratch
            )
            result = await run_confirmed(self.checks, spec, again=True, command=progress.begin)
            if result.state == "cancelled":
                raise Conflict("the proof was cancelled", "start it again: ao init --check")
            attempt.results[name] = result
            if from_scratch and result.set_up_seconds and result.exit_code is None and result.obstacle:
                break  # the set-up itself failed: every check would fail the same way
        if not attempt.reason:
            leftovers = [path for result in attempt.results.values() for path in result.left]
            await self._exclude_generated_files(project, leftovers)

    def _check_spec(
        self,
        project: ProjectConfig,
        base: str,
        commit: str,
        name: str,
        command: str,
        set_up: tuple[str, ...],
        timeout: float | None = None,
        *,
        from_scratch: bool = False,
    ) -> CheckSpec:
        """Return the specification of one check at a commit, in the environment of an agent without our own variables."""
        env = agent_environment(self.core.sites.local.login, project.env, {})
        return CheckSpec(
            project=project.id,
            repo=project.path,
            commit=commit,
            name=name,
            command=command,
            timeout=timeout or COMMAND_TIMEOUT,
            env={key: value for key, value in env.items() if not key.startswith(("AO_", "GIT_"))},
            copy=project.copy,
            symlinks=project.symlinks,
            post_create=set_up,
            base=base,
            from_scratch=from_scratch,
        )

    async def _exclude_generated_files(self, project: ProjectConfig, leftovers: Sequence[str]) -> None:
        """Exclude the files that set-ups and tests are known to generate, so that `git status` stays clean."""
        layout = await asyncio.to_thread(find_layout, project.path)
        if layout is not None and leftovers:
            with contextlib.suppress(OSError, AoError):  # the proof is valid without this
                await exclude_tool_output(Git(self.host, project.path), layout, leftovers)

    async def _resolve_base(self, project: ProjectConfig) -> tuple[str, str]:
        """Return the name and the commit of the project's base branch, or of HEAD. Raises `UsageError` if there is no commit."""
        git = Git(self.host, project.path)
        name = project.default_branch or await asyncio.to_thread(default_branch, project.path) or ""
        commit = await git.resolve(f"refs/heads/{name}") if name else None
        if commit is None:
            commit = await git.resolve("HEAD")
        if commit is None:
            raise UsageError(f"{project.path} has no commit yet", "make one: git commit")
        return name or "HEAD", commit

    async def _detect_candidates(self, project: ProjectConfig) -> list[DetectedCommands]:
        """Return the candidates that the project's files suggest, best first."""
        return await asyncio.to_thread(detect_commands, project.path)

    def _proposable_keys(self, project: ProjectConfig) -> tuple[str, ...]:
        """Return the keys that a proposal may set: those that are missing, and those that no person has confirmed."""
        if project.file is None or not project.file.is_relative_to(project.path):
            return ()
        return ("postCreate", "ci") if self.projects.is_proposed(project) else missing_keys(project)

    # -- JSON results --------------------------------------------------------------------------------------------------

    def _proof_json(
        self, project: ProjectConfig, base: str, commit: str, attempts: Sequence[_Attempt], best: _Attempt
    ) -> dict[str, Any]:
        """Return the proof as the API shows it."""
        seconds = max((result.set_up_seconds for result in best.results.values()), default=0.0)
        results = sorted(best.results.values(), key=lambda result: not _obstacle(result))
        return {
            "project": project.id,
            "base": base,
            "commit": commit,
            "proven": not best.reason,
            "reason": best.reason,
            "summary": next((result.summary for result in results if result.summary), "") if best.reason else "",
            "setUp": {"commands": list(best.set_up), "seconds": round(seconds, 1)},
            "checks": [_check_json(name, command, best.results.get(name)) for name, command in best.commands.items()],
            "tried": [_attempt_json(attempt) for attempt in attempts],
            "leftOut": best.left_out,
        }


def _best_attempt(attempts: Sequence[_Attempt]) -> _Attempt:
    """Return the best attempt.

    The first one that passes, with as many passed tests as any other that works; else the one that works with the most passed tests; else
    the first.
    """
    working_attempts = [attempt for attempt in attempts if not attempt.reason]
    most_passed = max((attempt.passed for attempt in working_attempts), default=0)
    green_attempts = [attempt for attempt in working_attempts if attempt.is_green and attempt.passed >= most_passed]
    return (green_attempts or sorted(working_attempts, key=lambda attempt: -attempt.passed) or list(attempts))[0]


def _obstacle(result: CheckResult) -> str:
    """Return why a result says nothing about the project's tests, or "" if it does."""
    if result.obstacle:
        return result.obstacle
    if result.state not in _CONCLUSIVE_STATES:
        return result.summary.partition("\n")[0] or result.state
    return ""


def _failure_count(result: CheckResult) -> str:
    """Return the number of failures with its noun: "1 failure", "3 failures"."""
    count = len(result.outcome.failures) or 1
    return f"{count} {'failure' if count == 1 else 'failures'}"


def _check_json(name: str, command: str, result: CheckResult | None) -> dict[str, Any]:
    """Return a check of the proof as the API shows it; without a result its state is `unknown`."""
    outcome = result.outcome if result else Outcome()
    counts = outcome.counts
    state = "unknown" if result is None else "not_set_up" if _obstacle(result) else result.state
    return {
        "name": name,
        "command": command,
        "state": state,
        "seconds": round(result.seconds, 1) if result else 0.0,
        "passed": counts.passed if counts else None,
        "failed": counts.failed if counts else None,
        "skipped": counts.skipped if counts else None,
        "failures": [
            {"name": test, "message": message} for test, message in list(outcome.failures.items())[:MAX_LISTED_FAILURES]
        ],
    }


def _attempt_json(attempt: _Attempt) -> dict[str, Any]:
    """Return an attempt as the API shows it."""
    return {
        "ecosystem": attempt.candidate.ecosystem if attempt.candidate else "",
        "setUp": list(attempt.set_up),
        "test": next(iter(attempt.commands.values()), None),
        "proven": not attempt.reason,
        "reason": attempt.reason,
    }
