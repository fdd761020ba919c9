"""The duels: each peer and ours do the same actions, one after the other, with the same agent."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks.measure import Duel, Result, SkippedResult, format_number, time_in_turns, timed
from benchmarks.peers.adapter import Adapter, fill_all, load
from benchmarks.peers.environment import OutOfTime, PeerEnvironment

FOLDER = Path(__file__).parent
CACHE = FOLDER.parents[1] / ".cache" / "peers"
MANY_SESSIONS = 20
TURNS = 7
TIME_LIMIT = 60.0
TIME_LIMIT_MANY = 120.0
TIME_LIMIT_INSTALL = 240.0
SAMPLE_SECONDS = 30.0
SETTLE_SECONDS = 1.0  # whatever is still done about the last thing is not what is measured next
MAX_SECONDS = 360.0

COLD_START_CASE = "cold start (`--version`)"
SPAWN_CASE = "spawn → agent runs"
SPAWN_MANY_CASE = f"{MANY_SESSIONS} spawns at once → all run"
STATUS_CASE = f"status of {MANY_SESSIONS}"
SEND_CASE = "send → received"
EXIT_CASE = "exit → shown"
PROGRAM_STARTS_CASE = f"programs started a minute, {MANY_SESSIONS} idle"
MEMORY_CASE = f"resident memory, {MANY_SESSIONS} sessions"
UNITS = {PROGRAM_STARTS_CASE: "a minute", MEMORY_CASE: "MB"}
REASONS = {
    COLD_START_CASE: "a bare Python that imports click computes as long as ours",
    STATUS_CASE: "most of ours is the command's own start",
    SEND_CASE: "0.6 s of ours is the pause between paste and Enter, without which programs drop it",
    EXIT_CASE: "most of ours is the start of the command that shows it",
    MEMORY_CASE: "nearly all of ours is there before the first session: Python and the libraries",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an action; None: it was not finished within the limit."""

    value: float | None
    note: str = ""


Costs = dict[str, Cost]


def measure_peers(folder: Path) -> Iterator[Result]:
    """Compare each available peer with ours."""
    yield from compare(folder, [load(path) for path in sorted(FOLDER.glob("*.toml")) if path.stem != "ours"])


def compare(folder: Path, others: Sequence[Adapter]) -> Iterator[Result]:
    """Yield the peers' costs compared with ours; peers that are unavailable or fail are yielded as left out."""
    deadline = time.monotonic() + MAX_SECONDS
    values_by_peer: dict[str, Mapping[str, str]] = {}
    playable: list[Adapter] = []
    ours = load(FOLDER / "ours.toml")
    for adapter in (ours, *others):
        values_by_peer[adapter.name] = values = _values(adapter)
        if problem := install_problem(adapter, values):
            yield SkippedResult(adapter.name, problem)
        else:
            playable.append(adapter)
    if ours not in playable or len(playable) == 1:
        return
    costs: dict[str, Costs] = {adapter.name: {} for adapter in playable}
    for name, cost in cold_starts(playable, values_by_peer, folder).items():
        costs[name][COLD_START_CASE] = cost
    for stage in (play_few, play_many):
        for index, adapter in enumerate(list(playable)):
            try:
                with PeerEnvironment(
                    adapter, folder / f"{stage.__name__}-{index}", values_by_peer[adapter.name], deadline
                ) as environment:
                    environment.start(TIME_LIMIT)
                    stage(environment, costs[adapter.name])
            except (OSError, OutOfTime, subprocess.SubprocessError) as error:
                if adapter is ours:
                    raise
                yield SkippedResult(f"{adapter.name}, the rest", str(error).splitlines()[0])
                playable.remove(adapter)
    for adapter in others:
        for case, theirs in costs.get(adapter.name, {}).items():
            if case in costs[ours.name]:
                yield to_duel(case, costs[ours.name][case], adapter.name, theirs)


def to_duel(case: str, ours: Cost, peer: str, theirs: Cost) -> Duel:
    """Return the duel of two costs of the same action."""
    note = "; ".join(f"{name} {cost.note}" for name, cost in (("peer", theirs), ("ours", ours)) if cost.note)
    return Duel(case, ours.value, peer, theirs.value, note, UNITS.get(case, "s"), REASONS.get(case, ""))


def install_problem(adapter: Adapter, values: Mapping[str, str]) -> str:
    """Install a peer if it is missing; return why it cannot be played, or an empty string."""
    if adapter.checkout and not values["checkout"]:
        return f"not asked for: {adapter.checkout}=/path/to/its/checkout has it played"
    if missing := [name for name in adapter.needs if not shutil.which(name)]:
        return f"there is no {', '.join(missing)} here"
    executable = Path(fill_all([adapter.installed], values)[0]) if adapter.installed else None
    if executable is None or executable.exists():
        return ""
    if not adapter.install:
        return f"there is no {executable}: build it first"
    for command in adapter.install:
        try:
            subprocess.run(
                fill_all(command, values), check=True, capture_output=True, text=True, timeout=TIME_LIMIT_INSTALL
            )
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(values["venv"], ignore_errors=True)
            error_lines = error.stderr.strip().splitlines() if isinstance(error, subprocess.CalledProcessError) else []
            return f"it cannot be installed: {error_lines[-1] if error_lines else f'{type(error).__name__}, {error}'}"
    return ""


def _values(adapter: Adapter) -> dict[str, str]:
    return {
        "python": sys.executable,
        "ours": str(Path(sys.executable).parent),
        "here": str(FOLDER),
        "venv": str(CACHE / adapter.name),
        "checkout": os.environ.get(adapter.checkout, "") if adapter.checkout else "",
    }


# -- what is played --------------------------------------------------------------------------------------------------------


def cold_starts(playable: Sequence[Adapter], values_by_peer: Mapping[str, Mapping[str, str]], home: Path) -> Costs:
    """Measure `--version` of each peer in turns, after a first run that does not count."""
    commands = {
        adapter.name: fill_all(adapter.commands["version"], values_by_peer[adapter.name])
        for adapter in playable
        if "version" in adapter.commands
    }
    env = {**os.environ, "HOME": str(home)}
    works = {
        name: partial(subprocess.run, command, env=env, capture_output=True, text=True, check=True)
        for name, command in commands.items()
    }
    version_lines = {name: work().stdout.strip().partition("\n")[0] for name, work in works.items()}
    costs = {name: _median(row) for name, row in zip(works, time_in_turns(TURNS, *works.values()), strict=True)}
    return {name: replace(cost, note=f"{version_lines[name]}, {cost.note}") for name, cost in costs.items()}


def play_few(environment: PeerEnvironment, costs: Costs) -> None:
    """Measure single sessions: until the agent runs, until it has read a message, until its end is shown."""
    rows: dict[str, list[float | None]] = {SPAWN_CASE: [], SEND_CASE: [], EXIT_CASE: []}
    for index in range(3):
        name = f"few{index}"
        rows[SPAWN_CASE].append(spawn(environment, [name], TIME_LIMIT))
        if rows[SPAWN_CASE][-1] is not None:
            session = environment.session(name)
            for turn in range(2) if "send" in environment.adapter.commands and None not in rows[SEND_CASE] else ():
                time.sleep(SETTLE_SECONDS)
                rows[SEND_CASE].append(send(environment, session, f"token-{name}-{turn}", TIME_LIMIT))
            if environment.adapter.alive and None not in rows[EXIT_CASE]:
                rows[EXIT_CASE].append(end(environment, session, environment.notes("started")[-1]["pid"], TIME_LIMIT))
        costs.update({case: _median(row) for case, row in rows.items() if row})
        if rows[SPAWN_CASE][-1] is None:
            return


def play_many(environment: PeerEnvironment, costs: Costs) -> None:
    """Measure twenty sessions: until all run, the cost of a list, and the costs while idle."""
    spawned = spawn(environment, [f"many{index}" for index in range(MANY_SESSIONS)], TIME_LIMIT_MANY)
    running = len(environment.notes("started"))
    costs[SPAWN_MANY_CASE] = Cost(
        spawned, "" if spawned is not None else f"{running} of {MANY_SESSIONS} within {TIME_LIMIT_MANY:g} s"
    )
    if spawned is None:
        return
    time.sleep(5 * SETTLE_SECONDS)
    if "list" in environment.adapter.commands:
        costs[STATUS_CASE] = _median([timed(lambda: environment.run("list")) for _ in range(5)])
    if environment.server is not None:
        with environment.count_programs() as calls:
            time.sleep(SAMPLE_SECONDS)
            costs[PROGRAM_STARTS_CASE] = Cost(calls() * 60 / SAMPLE_SECONDS, f"counted for {SAMPLE_SECONDS:g} s")
        costs[MEMORY_CASE] = Cost(environment.memory())


def spawn(environment: PeerEnvironment, names: Sequence[str], limit: float) -> float | None:
    """Return the seconds from the command until the agents of all these sessions run, or None after the limit."""
    before = len(environment.notes("started"))
    started_at = time.monotonic()
    commands = [environment.start_command("spawn", name=name) for name in names]
    try:
        environment.wait_until(lambda: len(environment.notes("started")) >= before + len(names), limit, "agents to run")
        environment.wait_until(
            lambda: all(command.poll() is not None for command in commands), limit, "commands to end"
        )
    except TimeoutError:
        if len(environment.notes("started")) < before + len(names):
            return None
    finally:
        _ended(commands)
    return max(float(note["at"]) for note in environment.notes("started")[before:]) - started_at


def send(environment: PeerEnvironment, session: str, text: str, limit: float) -> float | None:
    """Return the seconds from the command until the agent has read the message; a refused message is sent again."""
    started_at = time.monotonic()

    def read_times() -> list[float]:
        return [float(note["at"]) for note in environment.notes("heard") if text in note["text"]]

    while (remaining := started_at + limit - time.monotonic()) > 0:
        command = environment.start_command("send", name=session, text=text)
        try:
            environment.wait_until(lambda: read_times() or command.poll(), remaining, "a message to be heard")  # noqa: B023
            environment.wait_until(lambda: command.poll() is not None, remaining, "the command to end")  # noqa: B023
        except TimeoutError:
            pass
        finally:
            _ended([command])
        if times := read_times():
            return times[0] - started_at
    return None


def end(environment: PeerEnvironment, session: str, pid: int, limit: float) -> float | None:
    """Kill the agent; return the seconds until the peer's list no longer shows it as running."""
    environment.wait_until(lambda: environment.shows_alive(session), limit, f"{session} to be listed as running")
    started_at = time.monotonic()
    os.kill(pid, 9)
    try:
        environment.wait_until(lambda: not environment.shows_alive(session), limit, f"the end of {session} to be shown")
    except TimeoutError:
        return None
    return time.monotonic() - started_at


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()


def _median(row: Sequence[float | None]) -> Cost:
    """Return the median of the values, or no cost if one of them is missing."""
    values = [value for value in row if value is not None]
    if len(values) < len(row):
        return Cost(None, f"not within {TIME_LIMIT:g} s")
    return Cost(
        statistics.median(values), f"{format_number(min(values))} – {format_number(max(values))} of {len(values)}"
    )
