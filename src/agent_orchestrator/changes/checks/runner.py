"""Runs checks: each content once, as many at a time as the project allows, and says what came of them."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent_orchestrator.base.files.safe import new_file
from agent_orchestrator.base.git.commands import Git
from agent_orchestrator.base.home import Home
from agent_orchestrator.changes.checks import junit, summary
from agent_orchestrator.changes.checks.checkout import Asked, Checkout, Checkouts, alone, find, made_at
from agent_orchestrator.changes.checks.log import Log
from agent_orchestrator.changes.checks.missing import missing_environment
from agent_orchestrator.changes.checks.outcome import Outcome, both
from agent_orchestrator.changes.checks.process import Ended, execute
from agent_orchestrator.changes.checks.results import Result, Results, State
from agent_orchestrator.changes.checks.runners import LOOKED_AT, read_outcome
from agent_orchestrator.changes.checks.slots import Places
from agent_orchestrator.changes.checks.spec import CheckSpec, Limits, digest
from agent_orchestrator.errors import AoError
from agent_orchestrator.protocols import Clock, Report
from agent_orchestrator.protocols.host import Host

Started = Callable[[str], None]
"""Told the tree when the check leaves the queue and begins."""
Command = Callable[[str], None]
"""Called with each command, of the set-up and the check itself, when it begins."""

_CLOCK_TICK = 20_000_000
"""Nanoseconds; what was written this shortly before the command may bear its starting time."""
_FORMAT = 2
"""Raised when results have to be made anew: those of an earlier format are not used."""
_NOT_STARTED = (126, 127)
"""Exit codes of a command that could not be run."""


class _SetUpFailed(Exception):
    """A set-up command failed."""

    def __init__(self, command: str, ended: Ended) -> None:
        super().__init__(command)
        self.command = command
        self.ended = ended


@dataclass(slots=True)
class _Flight:
    """A check that waits or runs, and who wants to know."""

    key: str
    tree: str
    task: asyncio.Task[Result] | None = None
    waiters: int = 0
    ending: bool = False
    cancelled: bool = False
    running: bool = False
    output: list[Report] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    command: str = ""

    def report(self, line: str) -> None:
        for output in self.output:
            output(line)

    def run(self, command: str) -> None:
        self.command = command
        for told in self.commands:
            told(command)

    def begin(self) -> None:
        self.running = True
        for started in self.started:
            started(self.tree)


class Checks:
    """The checks of a home."""

    def __init__(self, home: Home, host: Host, clock: Clock = time.time, limits: Limits | None = None) -> None:
        self._host = host
        self._clock = clock
        self._limits = limits or Limits()
        self._results = Results(home.path / "checks" / "results")
        self._checkouts = Checkouts(home.path / "checks" / "work", host, self._limits)
        self._flights: dict[tuple[str, str, str], _Flight] = {}
        self._places: dict[str, Places] = {}

    async def run(
        self,
        spec: CheckSpec,
        output: Report | None = None,
        *,
        again: bool = False,
        started: Started | None = None,
        command: Command | None = None,
    ) -> Result:
        """Run a check, or tell what is known of the same content; `again`: run it whatever is known.

        A check that is under way already is joined. Raises `NotFound` for a commit that is not there, and other errors when no checkout
        can be made; what the command does is never an error. Cancelled, it kills what it started.
        """
        asked = await find(self._host, spec)
        key = _key(spec, asked)
        place = (spec.project, asked.tree, spec.name)
        while (flight := self._flights.get(place)) and (flight.ending or flight.key != key):
            assert flight.task is not None
            await asyncio.wait({flight.task})
        if flight is None:
            known = None if again else self._results.read(*place, key)
            if known is not None:
                return known
            flight = self._flights[place] = _Flight(key, asked.tree)
            flight.task = asyncio.create_task(self._fly(spec, asked, flight))
            flight.task.add_done_callback(lambda _: self._flights.pop(place))
        return await self._joined(flight, spec, output, started, command)

    async def verdict(
        self,
        spec: CheckSpec,
        output: Report | None = None,
        *,
        again: bool = False,
        started: Started | None = None,
        command: Command | None = None,
        doubted: Callable[[], None] | None = None,
    ) -> Result:
        """Run a check, and once more where it fails: one that passes then is `flaky`. `doubted` is told before the second run."""
        first = await self.run(spec, output, again=again, started=started, command=command)
        if first.state != "failure" or first.runs > 1 or first.obstacle or spec.own:
            return first
        if doubted:
            doubted()
        spec = replace(spec, from_scratch=False)
        second = await self.run(spec, output, again=True, started=started, command=command)
        if second.state not in ("success", "failure"):
            return second
        second = replace(second, runs=2, set_up_seconds=first.set_up_seconds, left=first.left)
        if second.state == "success":
            confirmed = replace(second, state="flaky", summary=first.summary)
        else:
            confirmed = replace(second, outcome=both(first.outcome, second.outcome))
        self._remember(spec, _key(spec, await find(self._host, spec)), confirmed)
        return confirmed

    async def known(self, spec: CheckSpec) -> Result | None:
        """What is known of this content, without running anything."""
        asked = await find(self._host, spec)
        return self._results.read(spec.project, asked.tree, spec.name, _key(spec, asked))

    def executed_before(self, spec: CheckSpec) -> int:
        """Return how many tests the last run of this command that executed any had, at whatever commit."""
        return self._results.executed(spec.project, spec.command)

    async def state(self, spec: CheckSpec) -> str:
        """What is known of this content in a word: a result's state, `running` or `unknown`."""
        asked = await find(self._host, spec)
        if (spec.project, asked.tree, spec.name) in self._flights:
            return "running"
        known = self._results.read(spec.project, asked.tree, spec.name, _key(spec, asked))
        return known.state if known else "unknown"

    def cancel(self, project: str, tree: str, name: str) -> bool:
        """End a check that waits or runs; whoever waits for it gets `cancelled`. False: there is none."""
        flight = self._flights.get((project, tree, name))
        if flight is None or flight.task is None or flight.ending:
            return False
        flight.ending = flight.cancelled = True
        return flight.task.cancel()

    def log_path(self, project: str, tree: str, name: str) -> Path:
        """Where the output of a check's last run on a tree is, also while it runs."""
        return self._results.log(project, tree, name)

    async def recover(self) -> None:
        """After a daemon's death: end what it left running, remove the checkouts it used, forget what is old."""
        await self._checkouts.recover()
        await asyncio.to_thread(self._results.forget_before, self._clock() - self._limits.results_age)

    # -- one run -------------------------------------------------------------------------------------------------------

    async def _joined(
        self,
        flight: _Flight,
        spec: CheckSpec,
        output: Report | None,
        started: Started | None,
        command: Command | None,
    ) -> Result:
        assert flight.task is not None
        flight.waiters += 1
        if output:
            flight.output.append(output)
        if started:
            flight.started.append(started)
            if flight.running:
                started(flight.tree)
        if command:
            flight.commands.append(command)
            if flight.command:
                command(flight.command)
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not flight.cancelled or not flight.task.done() or (task and task.cancelling()):
                raise
            log = self.log_path(spec.project, flight.tree, spec.name)
            return Result("cancelled", flight.tree, None, 0.0, log, "it was cancelled", at=self._clock())
        finally:
            flight.waiters -= 1
            if output:
                flight.output.remove(output)
            if not flight.waiters and not flight.task.done():
                flight.ending = True
                flight.task.cancel()
                await asyncio.wait({flight.task})

    async def _fly(self, spec: CheckSpec, asked: Asked, flight: _Flight) -> Result:
        async with self._places.setdefault(spec.project, Places()).one(spec.parallel):
            flight.begin()
            try:
                with Log(self.log_path(spec.project, asked.tree, spec.name), self._limits, flight.report) as log:
                    result = await self._result(spec, asked, log, flight.run)
            except OSError as error:
                raise AoError(
                    f"check {spec.name} could not be run: {error.strerror or error}",
                    "free some disk space, or see whether $AO_HOME may be written",
                ) from None
            self._remember(spec, flight.key, result)
            return result

    def _remember(self, spec: CheckSpec, key: str, result: Result) -> None:
        # A result that cannot be written down is still a result: the content is tested again when asked for again.
        with contextlib.suppress(OSError):
            self._results.write(spec.project, spec.name, key, result)
            self._results.note_executed(spec.project, spec.command, result.outcome.executed)

    async def _result(self, spec: CheckSpec, asked: Asked, log: Log, running: Command) -> Result:
        took = 0.0
        env = {"CI": "1", "GIT_TERMINAL_PROMPT": "0", **spec.env}

        async def command(text: str, beside: Path, limit: float) -> Ended:
            running(text)
            return await execute(
                self._host, text, beside=beside, env=env, timeout=limit, grace=self._limits.grace, log=log
            )

        async def set_up(beside: Path) -> None:
            nonlocal took
            for text in spec.post_create:
                log.section()
                log.say(f"$ {text}")
                ended = await command(text, beside, self._limits.set_up)
                took += ended.seconds
                if ended.code != 0 or ended.timed_out:
                    raise _SetUpFailed(text, ended)

        at = await made_at(spec, asked)
        try:
            try:
                checkout = await self._checkouts.take(spec, asked, at, set_up, log.say)
            except _SetUpFailed:
                if at.commit == asked.commit:
                    raise
                log.say(f"the set-up fails on {spec.base}: it is made at this commit")
                checkout = await self._checkouts.take(spec, asked, alone(asked), set_up, log.say)
        except _SetUpFailed as error:
            said = f"the set-up {_quoted(error.command)} {_how(error.ended, self._limits.set_up)}"
            told = await asyncio.to_thread(_told, said, log, Path())
            failed = self._made("failure", asked, spec, replace(error.ended, code=None), told, obstacle=said)
            return replace(failed, set_up_seconds=took)
        try:
            log.section()
            began = checkout.beside / "began"
            with new_file(began):  # its time is when the command begins
                pass
            env["PYTEST_ADDOPTS"] = _with_report(env.get("PYTEST_ADDOPTS", ""), checkout.pytest_report)
            ended = await command(spec.command, checkout.beside, spec.timeout)
            result = await self._judged(spec, asked, checkout, ended, began.stat().st_mtime_ns, log)
            left = await Git(self._host, checkout.tree).untracked() if spec.from_scratch else ()
            return replace(result, set_up_seconds=took, left=left)
        finally:
            await asyncio.shield(self._checkouts.give_back(spec, checkout))

    async def _judged(
        self, spec: CheckSpec, asked: Asked, checkout: Checkout, ended: Ended, since: int, log: Log
    ) -> Result:
        output = await asyncio.to_thread(log.end, LOOKED_AT)
        reports = await self._reports(checkout, since)
        code = None if ended.timed_out else ended.code
        outcome = await asyncio.to_thread(read_outcome, output, reports, exit_code=code, top=checkout.tree)
        state: State = "timed_out" if ended.timed_out else "success" if ended.code == 0 else "failure"
        told, obstacle = "", ""
        if state != "success":
            said = f"{_quoted(spec.command)} {_how(ended, spec.timeout)}"
            told = await asyncio.to_thread(_told, said, log, checkout.tree)
        if state == "failure":
            obstacle = await asyncio.to_thread(missing_environment, output, outcome, exit_code=code)
            obstacle = obstacle or (said if _is_killed(ended) or ended.code in _NOT_STARTED else "")
        return self._made(state, asked, spec, ended, told, outcome, obstacle)

    async def _reports(self, checkout: Checkout, since: int) -> list[Path]:
        """The JUnit files that the command wrote; not those that the commit contains."""
        reports = await asyncio.to_thread(junit.find_reports, checkout.tree, since)
        doubtful = [str(file) for file in reports if file.stat().st_mtime_ns <= since + _CLOCK_TICK]
        if doubtful:
            listed = ("ls-files", "-z", "--full-name", "--", *doubtful)
            own = (await Git(self._host, checkout.tree).run(*listed, env={"GIT_LITERAL_PATHSPECS": "1"})).text.split(
                "\0"
            )
            tracked = {checkout.tree / name for name in own if name}
            reports = [file for file in reports if file not in tracked]
        ours = checkout.pytest_report
        return reports or ([ours] if ours.is_file() and ours.stat().st_mtime_ns >= since else [])

    def _made(
        self,
        state: State,
        asked: Asked,
        spec: CheckSpec,
        ended: Ended,
        told: str,
        outcome: Outcome | None = None,
        obstacle: str = "",
    ) -> Result:
        log = self.log_path(spec.project, asked.tree, spec.name)
        said = outcome or Outcome()
        return Result(state, asked.tree, ended.code, ended.seconds, log, told, said, obstacle, at=self._clock())


def _key(spec: CheckSpec, asked: Asked) -> str:
    return digest(_FORMAT, spec.command, asked.set_up)


def _with_report(options: str, file: Path) -> str:
    """Return pytest's options from the environment with a report for us; options that the command gives override it."""
    return f"{options} -o junit_family=xunit1 --junitxml={shlex.quote(str(file))}".strip()


def _is_killed(ended: Ended) -> bool:
    return ended.code is None or ended.code > 128


def _quoted(command: str) -> str:
    line = summary.plain(command).strip().partition("\n")[0]
    return f"`{line[:160]}…`" if len(line) > 160 or "\n" in command.strip() else f"`{line}`"


def _how(ended: Ended, limit: float) -> str:
    if ended.timed_out:
        return f"did not finish within {limit:g} s and was stopped"
    if ended.code is None:
        return "was killed"
    if ended.code == 127:
        return "ended with exit code 127: a command was not found"
    if ended.code == 126:
        return "ended with exit code 126: a command cannot be executed"
    with contextlib.suppress(ValueError):
        if ended.code > 128:
            return f"was killed by {signal.Signals(ended.code - 128).name}"
    return f"ended with exit code {ended.code}"


def _told(how: str, log: Log, tree: Path) -> str:
    """One line that says how it ended, and what its output says about why; paths as they are in the repository."""
    output = log.end(summary.LOOKED_AT)
    for place in {str(tree), str(tree.resolve())} if tree.parts else ():
        output = output.replace(f"{place}/", "")
    if log.problem:
        how += f"; its output could not be kept: {log.problem}"
    room = summary.LONGEST - len(how.encode(errors="replace")) - 1
    return f"{how}\n{summary.relevant(output, room)}".rstrip("\n")
