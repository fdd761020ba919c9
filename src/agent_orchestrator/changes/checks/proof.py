"""Proves a project's set-up and checks in a clean checkout of its base branch: what is configured, or what was detected.

`ao init` tries what `config/ecosystems` detected until something works, and writes that; `ao init --check` runs what is configured. The
checks run through `changes/checks`, so their results on the base branch are known when the first session is checked.
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
from agent_orchestrator.changes.checks import Checks, CheckSpec, Result
from agent_orchestrator.changes.checks.outcome import Outcome
from agent_orchestrator.config.detection import Commands, detect_commands
from agent_orchestrator.config.detection.proposal import candidate_json, candidates_digest, drift, missing_keys
from agent_orchestrator.config.detection.repository import default_branch
from agent_orchestrator.config.edit_commands import set_commands
from agent_orchestrator.config.effective import ProjectConfig
from agent_orchestrator.config.projects.projects import NOWHERE, Projects
from agent_orchestrator.errors import AoError, Conflict, NotFound, UsageError
from agent_orchestrator.plugins.workspaces.contents import exclude_made
from agent_orchestrator.protocols.host import Host
from agent_orchestrator.sessions.environment import agent_environment
from agent_orchestrator.sessions.plugins import Plugins

BEAT = 1.0
"""Seconds between two reports of what is being run."""
TIMEOUT = 1800.0
"""Seconds that a detected command may take."""
LISTED = 20
"""Failing tests that are named."""
_LONGEST_REASON = 160
_DONE = ("success", "flaky", "failure")


@dataclass(slots=True)
class _Running:
    """What is being run just now."""

    attempt: int = 1
    of: int = 1
    command: str = ""
    since: float = 0.0

    def begin(self, command: str) -> None:
        self.command, self.since = command, time.monotonic()

    def json(self) -> dict[str, Any]:
        seconds = round(time.monotonic() - self.since, 1)
        return {"command": self.command, "seconds": seconds, "attempt": self.attempt, "of": self.of}


@dataclass(slots=True)
class _Tried:
    """What one way of setting up and testing came to."""

    set_up: tuple[str, ...]
    commands: dict[str, str]
    """Check → command."""
    candidate: Commands | None = None
    results: dict[str, Result] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def reason(self) -> str:
        """Why it is not proven; "" if it is."""
        if why := next((why for result in self.results.values() if (why := _obstacle(result))), ""):
            return why
        counted = [result.outcome for result in self.results.values() if result.outcome.counts]
        if counted and not any(outcome.executed for outcome in counted):
            return "no test was executed"
        if counted and all(outcome.none_passes for outcome in counted if outcome.executed):
            failed = sum(outcome.executed for outcome in counted)
            first = next((message for outcome in counted for message in outcome.failures.values() if message), "")
            return f"none of {failed} tests passes" + (f" ({first[:_LONGEST_REASON]})" if first else "")
        if any(result.state in ("success", "flaky") or result.outcome.executed for result in self.results.values()):
            return ""
        return next((result.summary.partition("\n")[0] for result in self.results.values()), "nothing was run")

    @property
    def green(self) -> bool:
        return not self.reason and all(result.state in ("success", "flaky") for result in self.results.values())

    @property
    def is_enough(self) -> bool:
        """Whether no other way need be tried: it passes, or fails in no more tests than pass."""
        failed = sum(result.outcome.counts.failed for result in self.results.values() if result.outcome.counts)
        return self.green or (not self.reason and failed <= self.passed)

    @property
    def passed(self) -> int:
        return sum(result.outcome.counts.passed for result in self.results.values() if result.outcome.counts)


class Proofs:
    """The proofs of a home's projects."""

    def __init__(self, host: Host, plugins: Plugins, projects: Projects, checks: Checks) -> None:
        self.host = host
        self.plugins = plugins
        self.projects = projects
        self.checks = checks

    async def proposal(self, project_id: str) -> dict[str, Any] | None:
        """What was detected for keys that are not set, or that nobody has confirmed; none if there is nothing to propose."""
        project = self.plugins.project(project_id)
        keys = self._open_keys(project)
        found = await self._proposed(project, keys)
        if not found:
            return None
        return {
            "keys": list(keys),
            "commands": self.projects.proposed_commands(project),
            "candidates": [candidate_json(one) for one in found],
            "digest": candidates_digest(found, project.path),
        }

    async def _proposed(self, project: ProjectConfig, keys: Sequence[str]) -> list[Commands]:
        """What was detected and would set one of these keys."""
        found = await self._detected(project) if keys else []
        return [one for one in found if (one.set_up and "postCreate" in keys) or (one.test and "ci" in keys)]

    async def drift(self, project: ProjectConfig) -> list[str]:
        """Return where a project's configuration and its files differ."""
        return drift(project, await self._detected(project), project.path)

    async def checkup(self) -> list[dict[str, Any]]:
        """For `ao doctor`: the projects whose configuration and files differ. Reads files only."""
        from agent_orchestrator.base.health import finding

        found = []
        for project in self.projects.config.projects():
            if project.path.is_dir() and (differs := await self.drift(project)):
                name = f"set-up of {project.id}"
                how = "ao init --check" if project.ci or project.post_create else "ao init"
                found.append(finding(name, "warning", "; ".join(differs), f"{how} {project.path}"))
        return found

    async def prove(
        self, project_id: str, detected: str | None = None, *, run: bool = True
    ) -> AsyncIterator[dict[str, Any]]:
        """Prove a project: `running` each second, at last `proof`.

        With `detected`, the digest of a proposal, its candidates are tried until one works, and that one is written and trusted; without
        `run` the first one is, and nothing is run.
        """
        running = _Running()
        work = asyncio.ensure_future(
            self._prove_detected(project_id, detected, running, run=run)
            if detected is not None
            else self._prove_configured(project_id, running)
        )
        told = ""
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=BEAT if told or not running.command else 0.05)
                if running.command and not work.done():
                    told = running.command
                    yield {"running": running.json()}
            yield {"proof": await work}
        finally:
            work.cancel()
            await asyncio.wait({work})

    # -- what is configured --------------------------------------------------------------------------------------------

    async def _prove_configured(self, project_id: str, running: _Running) -> dict[str, Any]:
        project = self.plugins.in_force(project_id)
        await self.projects.check_trust(project, None, ci=True)
        differs = await self.drift(project)
        if not project.ci and not project.post_create:
            raise NotFound(
                f"{project_id} has neither postCreate nor ci" + (f" ({'; '.join(differs)})" if differs else ""),
                "ao init detects and proves them, or set them: "
                f"ao config set projects.{project_id}.ci.command 'make test'",
            )
        base, commit = await self._base(project)
        tried = _Tried(project.post_create, {name: check.command for name, check in project.ci.items()})
        timeouts = {name: check.timeout for name, check in project.ci.items()}
        await self._run(project, base, commit, tried, running, timeouts)
        return {**self._proof(project, base, commit, [tried], tried), "drift": differs, "written": None}

    # -- what was detected ---------------------------------------------------------------------------------------------

    async def _prove_detected(self, project_id: str, digest: str, running: _Running, *, run: bool) -> dict[str, Any]:
        project = self.plugins.in_force(project_id)
        keys = self._open_keys(project)
        candidates = await self._proposed(project, keys)
        if not candidates or candidates_digest(candidates, project.path) != digest:
            raise Conflict(f"what was detected for {project_id} changed since it was shown", "read it again: ao init")
        if not self.projects.is_proposed(project):
            await self.projects.check_trust(project, None, ci=True)
        base, commit = await self._base(project)
        if not run:
            best = self._try_of(project, keys, candidates[0])
            if candidates[0].lint and "ci" in keys:
                best.commands["lint"] = candidates[0].lint
            written = await self._write(project, keys, best)
            return {**self._proof(project, base, commit, [], best), "drift": [], "written": str(written)}
        tries: list[_Tried] = []
        running.of = len(candidates)
        for running.attempt, candidate in enumerate(candidates, 1):
            tried = self._try_of(project, keys, candidate)
            tries.append(tried)
            await self._run(project, base, commit, tried, running, {})
            if tried.is_enough:
                break
        best = _best(tries)
        if best.candidate and best.candidate.lint and "ci" in keys and not best.reason:
            await self._prove_lint(project, base, commit, best, running)
        written = await self._write(project, keys, best)
        proof = self._proof(self.plugins.project(project_id), base, commit, tries, best)
        return {**proof, "drift": [], "written": str(written)}

    def _try_of(self, project: ProjectConfig, keys: Sequence[str], candidate: Commands) -> _Tried:
        """What is proven of a candidate: keys that are set stay as they are."""
        set_up = candidate.set_up if "postCreate" in keys else project.post_create
        if "ci" in keys:
            name = "test" if candidate.lint else "default"
            commands = {name: candidate.test} if candidate.test else {}
        else:
            commands = {name: check.command for name, check in project.ci.items()}
        return _Tried(set_up, commands, candidate)

    async def _prove_lint(
        self, project: ProjectConfig, base: str, commit: str, tried: _Tried, running: _Running
    ) -> None:
        """Keep the lint command where it passes on the base branch; say why it is left out otherwise."""
        assert tried.candidate is not None and tried.candidate.lint is not None
        lint = tried.candidate.lint
        running.begin(lint)
        spec = self._spec(project, base, commit, "lint", lint, tried.set_up)
        result = await self.checks.verdict(spec, again=True, command=running.begin)
        if result.state in ("success", "flaky"):
            tried.commands["lint"], tried.results["lint"] = lint, result
            return
        why = _obstacle(result) or f"it fails on {base} ({_count(result)})"
        tried.left_out.append(f"lint {lint}: {why}")

    async def _write(self, project: ProjectConfig, keys: Sequence[str], best: _Tried) -> Path:
        file = project.file
        assert file is not None
        set_up = best.set_up if "postCreate" in keys else None
        checks = best.commands if "ci" in keys else None
        set_commands(file, project.id, set_up, checks, self.projects.config.environ, project.path)
        await self.projects.trust(str(project.path), NOWHERE, preview=False)
        return file

    # -- one run -------------------------------------------------------------------------------------------------------

    async def _run(
        self,
        project: ProjectConfig,
        base: str,
        commit: str,
        tried: _Tried,
        running: _Running,
        timeouts: Mapping[str, float],
    ) -> None:
        """Run the set-up from scratch, then every check; without one, the set-up alone."""
        await self.plugins.here.login_ready.wait()
        for name, command in (tried.commands or {"set-up": "true"}).items():
            scratch = not tried.results
            running.begin(tried.set_up[0] if scratch and tried.set_up else command)
            spec = self._spec(project, base, commit, name, command, tried.set_up, timeouts.get(name), scratch=scratch)
            result = await self.checks.verdict(spec, again=True, command=running.begin)
            if result.state == "cancelled":
                raise Conflict("the proof was cancelled", "start it again: ao init --check")
            tried.results[name] = result
            if scratch and result.set_up_seconds and result.exit_code is None and result.obstacle:
                break  # the set-up itself failed
        if not tried.reason:
            left = [path for result in tried.results.values() for path in result.left]
            await self._exclude(project, left)

    def _spec(
        self,
        project: ProjectConfig,
        base: str,
        commit: str,
        name: str,
        command: str,
        set_up: tuple[str, ...],
        timeout: float | None = None,
        *,
        scratch: bool = False,
    ) -> CheckSpec:
        env = agent_environment(self.plugins.here.login, project.env, {})
        return CheckSpec(
            project=project.id,
            repo=project.path,
            commit=commit,
            name=name,
            command=command,
            timeout=timeout or TIMEOUT,
            env={key: value for key, value in env.items() if not key.startswith(("AO_", "GIT_"))},
            copy=project.copy,
            symlinks=project.symlinks,
            post_create=set_up,
            base=base,
            from_scratch=scratch,
        )

    async def _exclude(self, project: ProjectConfig, left: Sequence[str]) -> None:
        """Keep `git status` clean of what set-ups and tests are known to make."""
        layout = await asyncio.to_thread(find_layout, project.path)
        if layout is not None and left:
            with contextlib.suppress(OSError, AoError):  # the proof holds all the same
                await exclude_made(Git(self.host, project.path), layout, left)

    async def _base(self, project: ProjectConfig) -> tuple[str, str]:
        git = Git(self.host, project.path)
        name = project.default_branch or await asyncio.to_thread(default_branch, project.path) or ""
        commit = await git.resolve(f"refs/heads/{name}") if name else None
        if commit is None:
            commit = await git.resolve("HEAD")
        if commit is None:
            raise UsageError(f"{project.path} has no commit yet", "make one: git commit")
        return name or "HEAD", commit

    async def _detected(self, project: ProjectConfig) -> list[Commands]:
        return await asyncio.to_thread(detect_commands, project.path)

    def _open_keys(self, project: ProjectConfig) -> tuple[str, ...]:
        """The keys that a proposal may set: those that are missing, and those that nobody has confirmed."""
        if project.file is None or not project.file.is_relative_to(project.path):
            return ()
        return ("postCreate", "ci") if self.projects.is_proposed(project) else missing_keys(project)

    # -- what is said --------------------------------------------------------------------------------------------------

    def _proof(
        self, project: ProjectConfig, base: str, commit: str, tries: Sequence[_Tried], best: _Tried
    ) -> dict[str, Any]:
        seconds = max((result.set_up_seconds for result in best.results.values()), default=0.0)
        said = sorted(best.results.values(), key=lambda result: not _obstacle(result))
        return {
            "project": project.id,
            "base": base,
            "commit": commit,
            "proven": not best.reason,
            "reason": best.reason,
            "summary": next((result.summary for result in said if result.summary), "") if best.reason else "",
            "setUp": {"commands": list(best.set_up), "seconds": round(seconds, 1)},
            "checks": [_check_json(name, command, best.results.get(name)) for name, command in best.commands.items()],
            "tried": [_tried_json(one) for one in tries],
            "leftOut": best.left_out,
        }


def _best(tries: Sequence[_Tried]) -> _Tried:
    """The first that passes, with as many tests as any other that works; else the first that works; else the first of all."""
    works = [one for one in tries if not one.reason]
    most = max((one.passed for one in works), default=0)
    green = [one for one in works if one.green and one.passed >= most]
    return (green or sorted(works, key=lambda one: -one.passed) or list(tries))[0]


def _obstacle(result: Result) -> str:
    """Why a run says nothing about the project's tests; "" if it does."""
    if result.obstacle:
        return result.obstacle
    if result.state not in _DONE:
        return result.summary.partition("\n")[0] or result.state
    return ""


def _count(result: Result) -> str:
    number = len(result.outcome.failures) or 1
    return f"{number} {'failure' if number == 1 else 'failures'}"


def _check_json(name: str, command: str, result: Result | None) -> dict[str, Any]:
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
        "failures": [{"name": test, "message": text} for test, text in list(outcome.failures.items())[:LISTED]],
    }


def _tried_json(tried: _Tried) -> dict[str, Any]:
    return {
        "ecosystem": tried.candidate.ecosystem if tried.candidate else "",
        "setUp": list(tried.set_up),
        "test": next(iter(tried.commands.values()), None),
        "proven": not tried.reason,
        "reason": tried.reason,
    }
