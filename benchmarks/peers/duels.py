"""The duels: each peer and ours do the same things, one after the other, with the same agent."""

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

from benchmarks.measure import Duel, LeftOut, Result, in_turns, number, timed
from benchmarks.peers.adapter import Adapter, load, words
from benchmarks.peers.environment import OutOfTime, Place

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "peers"
MANY = 20
TURNS = 7
LIMIT = 60.0
LIMIT_MANY = 120.0
LIMIT_INSTALL = 240.0
WATCHED = 30.0
QUIET = 1.0  # whatever is still done about the last thing is not what is measured next
WHOLE = 360.0

COLD = "cold start (`--version`)"
SPAWN = "spawn → agent runs"
SPAWNS = f"{MANY} spawns at once → all run"
STATUS = f"status of {MANY}"
SEND = "send → received"
EXIT = "exit → shown"
CALLS = f"programs started a minute, {MANY} idle"
MEMORY = f"resident memory, {MANY} sessions"
UNITS = {CALLS: "a minute", MEMORY: "MB"}
WHY = {
    COLD: "a bare Python that imports click computes as long as ours",
    STATUS: "most of ours is the command's own start",
    SEND: "0.6 s of ours is the pause between paste and Enter, without which programs drop it",
    EXIT: "most of ours is the start of the command that shows it",
    MEMORY: "nearly all of ours is there before the first session: Python and the libraries",
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What something costs; None: it was not done within the limit."""

    value: float | None
    note: str = ""


Costs = dict[str, Cost]


def peers(folder: Path) -> Iterator[Result]:
    """Each peer that can be had here, beside ours."""
    yield from duels(folder, [load(path) for path in sorted(HERE.glob("*.toml")) if path.stem != "ours"])


def duels(folder: Path, others: Sequence[Adapter]) -> Iterator[Result]:
    """The peers' costs over ours; a peer that cannot be had, or breaks, is left out and named."""
    latest = time.monotonic() + WHOLE
    known: dict[str, Mapping[str, str]] = {}
    able: list[Adapter] = []
    ours = load(HERE / "ours.toml")
    for one in (ours, *others):
        known[one.name] = values = _values(one)
        if lack := had(one, values):
            yield LeftOut(one.name, lack)
        else:
            able.append(one)
    if ours not in able or len(able) == 1:
        return
    costs: dict[str, Costs] = {one.name: {} for one in able}
    for name, cost in cold_starts(able, known, folder).items():
        costs[name][COLD] = cost
    for stage in (a_few, many):
        for place, one in enumerate(list(able)):
            try:
                with Place(one, folder / f"{stage.__name__}-{place}", known[one.name], latest) as here:
                    here.start(LIMIT)
                    stage(here, costs[one.name])
            except (OSError, OutOfTime, subprocess.SubprocessError) as error:
                if one is ours:
                    raise
                yield LeftOut(f"{one.name}, the rest", str(error).splitlines()[0])
                able.remove(one)
    for one in others:
        for case, theirs in costs.get(one.name, {}).items():
            if case in costs[ours.name]:
                yield duel(case, costs[ours.name][case], one.name, theirs)


def duel(case: str, ours: Cost, peer: str, theirs: Cost) -> Duel:
    """Two costs of the same thing."""
    note = "; ".join(f"{name} {cost.note}" for name, cost in (("peer", theirs), ("ours", ours)) if cost.note)
    return Duel(case, ours.value, peer, theirs.value, note, UNITS.get(case, "s"), WHY.get(case, ""))


def had(adapter: Adapter, values: Mapping[str, str]) -> str:
    """Install a peer if it is not there yet; what keeps it from being played, or nothing."""
    if adapter.checkout and not values["checkout"]:
        return f"not asked for: {adapter.checkout}=/path/to/its/checkout has it played"
    if lacking := [name for name in adapter.needs if not shutil.which(name)]:
        return f"there is no {', '.join(lacking)} here"
    there = Path(words([adapter.installed], values)[0]) if adapter.installed else None
    if there is None or there.exists():
        return ""
    if not adapter.install:
        return f"there is no {there}: build it first"
    for command in adapter.install:
        try:
            subprocess.run(words(command, values), check=True, capture_output=True, text=True, timeout=LIMIT_INSTALL)
        except (OSError, subprocess.SubprocessError) as error:
            shutil.rmtree(values["venv"], ignore_errors=True)
            said = error.stderr.strip().splitlines() if isinstance(error, subprocess.CalledProcessError) else []
            return f"it cannot be installed: {said[-1] if said else f'{type(error).__name__}, {error}'}"
    return ""


def _values(adapter: Adapter) -> dict[str, str]:
    return {
        "python": sys.executable,
        "ours": str(Path(sys.executable).parent),
        "here": str(HERE),
        "venv": str(CACHE / adapter.name),
        "checkout": os.environ.get(adapter.checkout, "") if adapter.checkout else "",
    }


# -- what is played --------------------------------------------------------------------------------------------------------


def cold_starts(able: Sequence[Adapter], known: Mapping[str, Mapping[str, str]], home: Path) -> Costs:
    """Each one's `--version`, in turns; what it has to write when it is run for the first time is not counted."""
    commands = {one.name: words(one.commands["version"], known[one.name]) for one in able if "version" in one.commands}
    env = {**os.environ, "HOME": str(home)}
    works = {
        name: partial(subprocess.run, command, env=env, capture_output=True, text=True, check=True)
        for name, command in commands.items()
    }
    said = {name: work().stdout.strip().partition("\n")[0] for name, work in works.items()}
    costs = {name: _median(row) for name, row in zip(works, in_turns(TURNS, *works.values()), strict=True)}
    return {name: replace(cost, note=f"{said[name]}, {cost.note}") for name, cost in costs.items()}


def a_few(place: Place, costs: Costs) -> None:
    """One session after the other: until its agent runs, until it has heard a message, until its end is shown."""
    rows: dict[str, list[float | None]] = {SPAWN: [], SEND: [], EXIT: []}
    for index in range(3):
        name = f"few{index}"
        rows[SPAWN].append(spawn(place, [name], LIMIT))
        if rows[SPAWN][-1] is not None:
            session = place.session(name)
            for turn in range(2) if "send" in place.adapter.commands and None not in rows[SEND] else ():
                time.sleep(QUIET)
                rows[SEND].append(send(place, session, f"token-{name}-{turn}", LIMIT))
            if place.adapter.alive and None not in rows[EXIT]:
                rows[EXIT].append(end(place, session, place.notes("started")[-1]["pid"], LIMIT))
        costs.update({case: _median(row) for case, row in rows.items() if row})
        if rows[SPAWN][-1] is None:
            return


def many(place: Place, costs: Costs) -> None:
    """Twenty sessions: until all run, what a list costs, and what they cost while nothing happens."""
    spawned = spawn(place, [f"many{index}" for index in range(MANY)], LIMIT_MANY)
    running = len(place.notes("started"))
    costs[SPAWNS] = Cost(spawned, "" if spawned is not None else f"{running} of {MANY} within {LIMIT_MANY:g} s")
    if spawned is None:
        return
    time.sleep(5 * QUIET)
    if "list" in place.adapter.commands:
        costs[STATUS] = _median([timed(lambda: place.run("list")) for _ in range(5)])
    if place.server is not None:
        with place.counting() as calls:
            time.sleep(WATCHED)
            costs[CALLS] = Cost(calls() * 60 / WATCHED, f"counted for {WATCHED:g} s")
        costs[MEMORY] = Cost(place.memory())


def spawn(place: Place, names: Sequence[str], limit: float) -> float | None:
    """Seconds from the command until the agents of all these sessions run."""
    before = len(place.notes("started"))
    begun = time.monotonic()
    asked = [place.begin("spawn", name=name) for name in names]
    try:
        place.until(lambda: len(place.notes("started")) >= before + len(names), limit, "agents to run")
        place.until(lambda: all(one.poll() is not None for one in asked), limit, "commands to end")
    except TimeoutError:
        if len(place.notes("started")) < before + len(names):
            return None
    finally:
        _ended(asked)
    return max(float(note["at"]) for note in place.notes("started")[before:]) - begun


def send(place: Place, session: str, text: str, limit: float) -> float | None:
    """Seconds from the command until the agent has heard the message; one that is refused is sent again."""
    begun = time.monotonic()

    def heard() -> list[float]:
        return [float(note["at"]) for note in place.notes("heard") if text in note["text"]]

    while (left := begun + limit - time.monotonic()) > 0:
        asked = place.begin("send", name=session, text=text)
        try:
            place.until(lambda: heard() or asked.poll(), left, "a message to be heard")  # noqa: B023
            place.until(lambda: asked.poll() is not None, left, "the command to end")  # noqa: B023
        except TimeoutError:
            pass
        finally:
            _ended([asked])
        if found := heard():
            return found[0] - begun
    return None


def end(place: Place, session: str, pid: int, limit: float) -> float | None:
    """Seconds from the agent's end until its list does not show the agent as running any more."""
    place.until(lambda: place.shows_alive(session), limit, f"{session} to be listed as running")
    begun = time.monotonic()
    os.kill(pid, 9)
    try:
        place.until(lambda: not place.shows_alive(session), limit, f"the end of {session} to be shown")
    except TimeoutError:
        return None
    return time.monotonic() - begun


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for one in processes:
        if one.poll() is None:
            one.kill()
            one.wait()


def _median(row: Sequence[float | None]) -> Cost:
    """Of a row with something that never came, never."""
    done = [one for one in row if one is not None]
    if len(done) < len(row):
        return Cost(None, f"not within {LIMIT:g} s")
    return Cost(statistics.median(done), f"{number(min(done))} – {number(max(done))} of {len(done)}")
