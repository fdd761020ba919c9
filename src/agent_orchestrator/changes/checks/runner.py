"""Run checks (`Checks`): each content once, as many at the same time as the project allows, and return their results."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent_orchestrator.base.files.safe import create_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.home import Home
from agent_orchestrator.changes.checks import junit, summary
from agent_orchestrator.changes.checks.checkout import (
    Checkout,
    Checkouts,
    ResolvedCommit,
    choose_set_up_commit,
    isolated_set_up,
    resolve_commit,
)
from agent_orchestrator.changes.checks.log import Log
from agent_orchestrator.changes.checks.missing_environment import missing_environment
from agent_orchestrator.changes.checks.outcome import Outcome, common_failures
from agent_orchestrator.changes.checks.process import ProcessResult, run_command
from agent_orchestrator.changes.checks.results import CheckResult, Results, ResultState
from agent_orchestrator.changes.checks.runners import MAX_READ_BYTES, read_outcome
from agent_orchestrator.changes.checks.slots import Slots
from agent_orchestrator.changes.checks.spec import CheckSpec, Limits, digest
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import LineCallback
from agent_orchestrator.protocols.host import Host

OnStart = Callable[[str], None]
"""Called with the tree when the check leaves the queue and starts."""
OnCommand = Callable[[str], None]
"""Called with each command, of the set-up and of the check itself, when it starts."""

_CLOCK_TICK_NS = 20_000_000
"""Nanoseconds: a file written this shortly before the command may carry the command's start time, because file times are coarse."""
_RESULT_FORMAT = 2
"""Version of the stored results. Raise it to discard results of an earlier format and run the checks again."""
_CANNOT_RUN_CODES = (126, 127)
"""Exit codes of a command that could not be run."""


class _SetUpFailed(Exception):
    """A set-up command failed."""

    def __init__(self, command: str, ended: ProcessResult) -> None:
        super().__init__(command)
        self.command = command
        self.ended = ended


@dataclass(slots=True)
class _SharedRun:
    """A check that waits or runs, with the callbacks of everyone who waits for its result."""

    key: str
    tree: str
    task: asyncio.Task[CheckResult] | None = None
    waiters: int = 0
    ending: bool = False
    cancelled: bool = False
    running: bool = False
    output_listeners: list[LineCallback] = field(default_factory=list)
    start_listeners: list[OnStart] = field(default_factory=list)
    command_listeners: list[OnCommand] = field(default_factory=list)
    command: str = ""

    def report(self, line: str) -> None:
        """Pass an output line to every waiting caller."""
        for output in self.output_listeners:
            output(line)

    def begin_command(self, command: str) -> None:
        """Record the command that starts now and pass it to every waiting caller."""
        self.command = command
        for on_command in self.command_listeners:
            on_command(command)

    def mark_running(self) -> None:
        """Mark the check as running and notify every waiting caller."""
        self.running = True
        for started in self.start_listeners:
            started(self.tree)


class Checks:
    """Runs the checks of a home and remembers their results."""

    def __init__(
        self, home: Home, host: Host, clock: Callable[[], float] = time.time, limits: Limits | None = None
    ) -> None:
        self._host = host
        self._clock = clock
        self._limits = limits or Limits()
        self._results = Results(home.path / "checks" / "results")
        self._checkouts = Checkouts(home.path / "checks" / "work", host, self._limits)
        self._runs: dict[tuple[str, str, str], _SharedRun] = {}
        self._slots: dict[str, Slots] = {}

    async def run(
        self,
        spec: CheckSpec,
        output: LineCallback | None = None,
        *,
        again: bool = False,
        started: OnStart | None = None,
        command: OnCommand | None = None,
    ) -> CheckResult:
        """Run a check, or return the stored result of the same content; with `again`, always run it.

        A check that already waits or runs is joined. Raises `NotFound` for a commit that does not exist, and other errors if no checkout
        can be made; a command that fails is a result, not an error. Cancelling the last waiting caller kills the command.
        """
        resolved = await resolve_commit(self._host, spec)
        key = _result_key(spec, resolved)
        check_id = (spec.project, resolved.tree, spec.name)
        while (check_run := self._runs.get(check_id)) and (check_run.ending or check_run.key != key):
            assert check_run.task is not None
            await asyncio.wait({check_run.task})
        if check_run is None:
            stored_result = None if again else self._results.read(*check_id, key)
            if stored_result is not None:
                return stored_result
            check_run = self._runs[check_id] = _SharedRun(key, resolved.tree)
            check_run.task = asyncio.create_task(self._execute(spec, resolved, check_run))
            check_run.task.add_done_callback(lambda _: self._runs.pop(check_id))
        return await self._join(check_run, spec, output, started, command)

    async def stored_result(self, spec: CheckSpec) -> CheckResult | None:
        """Return the stored result for this content, or None; nothing is run."""
        resolved = await resolve_commit(self._host, spec)
        return self._results.read(spec.project, resolved.tree, spec.name, _result_key(spec, resolved))

    async def store_result(self, spec: CheckSpec, result: CheckResult) -> None:
        """Store a result for this content, in place of the one that is stored."""
        self._save_result(spec, _result_key(spec, await resolve_commit(self._host, spec)), result)

    def last_executed_count(self, spec: CheckSpec) -> int:
        """Return how many tests the last run of this command that executed any had, at whatever commit."""
        return self._results.executed_count(spec.project, spec.command)

    async def state(self, spec: CheckSpec) -> str:
        """Return what is known about this content in one word: the state of the stored result, `running` or `unknown`."""
        resolved = await resolve_commit(self._host, spec)
        if (spec.project, resolved.tree, spec.name) in self._runs:
            return "running"
        stored_result = self._results.read(spec.project, resolved.tree, spec.name, _result_key(spec, resolved))
        return stored_result.state if stored_result else "unknown"

    def cancel(self, project: str, tree: str, name: str) -> bool:
        """Cancel a check that waits or runs; its callers get the result `cancelled`. Return False if there is no such check."""
        check_run = self._runs.get((project, tree, name))
        if check_run is None or check_run.task is None or check_run.ending:
            return False
        check_run.ending = check_run.cancelled = True
        return check_run.task.cancel()

    def log_path(self, project: str, tree: str, name: str) -> Path:
        """Return the file with the output of a check's last run on a tree, which also grows while it runs."""
        return self._results.log(project, tree, name)

    async def recover(self) -> None:
        """Clean up after a daemon that was killed: end processes that it left, remove checkouts in use, delete old results."""
        await self._checkouts.recover()
        await asyncio.to_thread(self._results.remove_unused_since, self._clock() - self._limits.max_result_age)

    # -- one run -------------------------------------------------------------------------------------------------------

    async def _join(
        self,
        check_run: _SharedRun,
        spec: CheckSpec,
        output: LineCallback | None,
        started: OnStart | None,
        command: OnCommand | None,
    ) -> CheckResult:
        """Wait for a check's result with these callbacks; the last caller that is cancelled cancels the check."""
        assert check_run.task is not None
        check_run.waiters += 1
        if output:
            check_run.output_listeners.append(output)
        if started:
            check_run.start_listeners.append(started)
            if check_run.running:
                started(check_run.tree)
        if command:
            check_run.command_listeners.append(command)
            if check_run.command:
                command(check_run.command)
        try:
            return await asyncio.shield(check_run.task)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not check_run.cancelled or not check_run.task.done() or (task and task.cancelling()):
                raise
            log = self.log_path(spec.project, check_run.tree, spec.name)
            return CheckResult("cancelled", check_run.tree, None, 0.0, log, "it was cancelled", at=self._clock())
        finally:
            check_run.waiters -= 1
            if output:
                check_run.output_listeners.remove(output)
            if not check_run.waiters and not check_run.task.done():
                check_run.ending = True
                check_run.task.cancel()
                await asyncio.wait({check_run.task})

    async def _execute(self, spec: CheckSpec, resolved: ResolvedCommit, check_run: _SharedRun) -> CheckResult:
        """Wait for a slot, run the check and save its result. Raises `AoError` on an `OSError`, for example a full disk."""
        async with self._slots.setdefault(spec.project, Slots()).acquire(spec.parallel):
            check_run.mark_running()
            try:
                with Log(self.log_path(spec.project, resolved.tree, spec.name), self._limits, check_run.report) as log:
                    result = await self._run_in_checkout(spec, resolved, log, check_run.begin_command)
            except OSError as error:
                raise AoError(
                    f"check {spec.name} could not be run: {error.strerror or error}",
                    "free some disk space, or see whether $AO_HOME may be written",
                ) from None
            self._save_result(spec, check_run.key, result)
            return result

    def _save_result(self, spec: CheckSpec, key: str, result: CheckResult) -> None:
        """Save a result and its number of executed tests."""
        # A result that cannot be saved is still returned: the next request tests the content again.
        with contextlib.suppress(OSError):
            self._results.write(spec.project, spec.name, key, result)
            self._results.store_executed_count(spec.project, spec.command, result.outcome.executed_count)

    async def _run_in_checkout(
        self, spec: CheckSpec, resolved: ResolvedCommit, log: Log, on_command: OnCommand
    ) -> CheckResult:
        """Make a checkout, run the set-up where needed and then the check's command in it, and return the result."""
        set_up_seconds = 0.0
        env = {"CI": "1", "GIT_TERMINAL_PROMPT": "0", **spec.env}

        async def run_in_folder(command: str, folder: Path, timeout: float) -> ProcessResult:
            on_command(command)
            return await run_command(
                self._host, command, folder=folder, env=env, timeout=timeout, grace=self._limits.kill_timeout, log=log
            )

        async def set_up(folder: Path) -> None:
            nonlocal set_up_seconds
            for command in spec.post_create:
                log.begin_section()
                log.add_line(f"$ {command}")
                process_result = await run_in_folder(command, folder, self._limits.set_up_timeout)
                set_up_seconds += process_result.seconds
                if process_result.code != 0 or process_result.timed_out:
                    raise _SetUpFailed(command, process_result)

        set_up_at = await choose_set_up_commit(spec, resolved)
        try:
            try:
                checkout = await self._checkouts.acquire(spec, resolved, set_up_at, set_up, log.add_line)
            except _SetUpFailed:
                if set_up_at.commit == resolved.commit:
                    raise
                log.add_line(f"the set-up fails on {spec.base}: it is made at this commit")
                checkout = await self._checkouts.acquire(
                    spec, resolved, isolated_set_up(resolved), set_up, log.add_line
                )
        except _SetUpFailed as error:
            reason = (
                f"the set-up {_quote_command(error.command)} {_exit_text(error.ended, self._limits.set_up_timeout)}"
            )
            failure_summary = await asyncio.to_thread(_failure_summary, reason, log, Path())
            failed_result = self._make_result(
                "failure", resolved, spec, replace(error.ended, code=None), failure_summary, obstacle=reason
            )
            return replace(failed_result, set_up_seconds=set_up_seconds)
        try:
            log.begin_section()
            start_file = checkout.folder / "began"
            with create_file(start_file):  # its modification time is the command's start
                pass
            env["PYTEST_ADDOPTS"] = _pytest_options(env.get("PYTEST_ADDOPTS", ""), checkout.pytest_report)
            process_result = await run_in_folder(spec.command, checkout.folder, spec.timeout)
            result = await self._read_result(
                spec, resolved, checkout, process_result, start_file.stat().st_mtime_ns, log
            )
            leftovers = await Git(self._host, checkout.tree).untracked() if spec.from_scratch else ()
            return replace(result, set_up_seconds=set_up_seconds, left=leftovers)
        finally:
            await asyncio.shield(self._checkouts.release(spec, checkout))

    async def _read_result(
        self,
        spec: CheckSpec,
        resolved: ResolvedCommit,
        checkout: Checkout,
        process_result: ProcessResult,
        since_ns: int,
        log: Log,
    ) -> CheckResult:
        """Return the result of a command that has ended, read from its exit code, output and reports."""
        output = await asyncio.to_thread(log.tail, MAX_READ_BYTES)
        reports = await self._find_written_reports(checkout, since_ns)
        exit_code = None if process_result.timed_out else process_result.code
        outcome = await asyncio.to_thread(read_outcome, output, reports, exit_code=exit_code, top=checkout.tree)
        state: ResultState = (
            "timed_out" if process_result.timed_out else "success" if process_result.code == 0 else "failure"
        )
        failure_summary, obstacle = "", ""
        if state != "success":
            reason = f"{_quote_command(spec.command)} {_exit_text(process_result, spec.timeout)}"
            failure_summary = await asyncio.to_thread(_failure_summary, reason, log, checkout.tree)
        if state == "failure":
            obstacle = await asyncio.to_thread(missing_environment, output, outcome, exit_code=exit_code)
            obstacle = obstacle or (
                reason if _is_killed(process_result) or process_result.code in _CANNOT_RUN_CODES else ""
            )
        return self._make_result(state, resolved, spec, process_result, failure_summary, outcome, obstacle)

    async def _find_written_reports(self, checkout: Checkout, since_ns: int) -> list[Path]:
        """Return the JUnit files that the command wrote, without those that the commit contains."""
        reports = await asyncio.to_thread(junit.find_reports, checkout.tree, since_ns)
        doubtful_reports = [str(file) for file in reports if file.stat().st_mtime_ns <= since_ns + _CLOCK_TICK_NS]
        if doubtful_reports:
            arguments = ("ls-files", "-z", "--full-name", "--", *doubtful_reports)
            tracked_names = (
                await Git(self._host, checkout.tree).run(*arguments, env={"GIT_LITERAL_PATHSPECS": "1"})
            ).text.split("\0")
            tracked = {checkout.tree / name for name in tracked_names if name}
            reports = [file for file in reports if file not in tracked]
        own_report = checkout.pytest_report
        return reports or ([own_report] if own_report.is_file() and own_report.stat().st_mtime_ns >= since_ns else [])

    def _make_result(
        self,
        state: ResultState,
        resolved: ResolvedCommit,
        spec: CheckSpec,
        process_result: ProcessResult,
        failure_summary: str,
        outcome: Outcome | None = None,
        obstacle: str = "",
    ) -> CheckResult:
        """Return a result that ended now."""
        log = self.log_path(spec.project, resolved.tree, spec.name)
        final_outcome = outcome or Outcome()
        return CheckResult(
            state,
            resolved.tree,
            process_result.code,
            process_result.seconds,
            log,
            failure_summary,
            final_outcome,
            obstacle,
            at=self._clock(),
        )


def _result_key(spec: CheckSpec, resolved: ResolvedCommit) -> str:
    """Return the key of a stored result: it changes with the command, the set-up and the format."""
    return digest(_RESULT_FORMAT, spec.command, resolved.set_up)


def _pytest_options(options: str, file: Path) -> str:
    """Return pytest's options from the environment plus a report for us; options given in the command override it."""
    return f"{options} -o junit_family=xunit1 --junitxml={shlex.quote(str(file))}".strip()


def _is_killed(process_result: ProcessResult) -> bool:
    """Return whether the command was killed by a signal."""
    return process_result.code is None or process_result.code > 128


def _quote_command(command: str) -> str:
    """Return the first line of a command in backquotes, at most 160 characters."""
    line = summary.strip_escapes(command).strip().partition("\n")[0]
    return f"`{line[:160]}…`" if len(line) > 160 or "\n" in command.strip() else f"`{line}`"


def _exit_text(process_result: ProcessResult, timeout: float) -> str:
    """Return how a command ended, in words that follow its name."""
    if process_result.timed_out:
        return f"did not finish within {timeout:g} s and was stopped"
    if process_result.code is None:
        return "was killed"
    if process_result.code == 127:
        return "ended with exit code 127: a command was not found"
    if process_result.code == 126:
        return "ended with exit code 126: a command cannot be executed"
    with contextlib.suppress(ValueError):
        if process_result.code > 128:
            return f"was killed by {signal.Signals(process_result.code - 128).name}"
    return f"ended with exit code {process_result.code}"


def _failure_summary(reason: str, log: Log, tree: Path) -> str:
    """Return a summary: one line with `reason`, then the relevant part of the output, with paths relative to the repository."""
    output = log.tail(summary.MAX_SEARCHED_BYTES)
    for folder in {str(tree), str(tree.resolve())} if tree.parts else ():
        output = output.replace(f"{folder}/", "")
    if log.problem:
        reason += f"; its output could not be kept: {log.problem}"
    remaining_bytes = summary.MAX_SUMMARY_BYTES - len(reason.encode(errors="replace")) - 1
    return f"{reason}\n{summary.relevant_output(output, remaining_bytes)}".rstrip("\n")


async def run_confirmed(
    checks: Checks,
    spec: CheckSpec,
    *,
    again: bool = False,
    started: OnStart | None = None,
    command: OnCommand | None = None,
    doubted: Callable[[], None] | None = None,
) -> CheckResult:
    """Run a check, and once more if it fails: if it passes then, it is `flaky`. `doubted` is called before the second run.

    A stored result is not confirmed again. Raises what `Checks.run` raises.
    """
    first = await checks.run(spec, again=again, started=started, command=command)
    if first.state != "failure" or first.runs > 1 or first.obstacle or spec.never_compared:
        return first
    if doubted:
        doubted()
    spec = replace(spec, from_scratch=False)
    second = await checks.run(spec, again=True, started=started, command=command)
    if second.state not in ("success", "failure"):
        return second
    second = replace(second, runs=2, set_up_seconds=first.set_up_seconds, left=first.left)
    if second.state == "success":
        confirmed = replace(second, state="flaky", summary=first.summary)
    else:
        confirmed = replace(second, outcome=common_failures(first.outcome, second.outcome))
    await checks.store_result(spec, confirmed)
    return confirmed
