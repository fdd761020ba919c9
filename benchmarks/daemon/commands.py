"""The time of a command and of an API answer, with 0, 50 and 500 sessions."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.client import HTTPConnection
from benchmarks.measure import Figure, Growth, Result, quantile, ratios, time_in_turns, timed

AO = str(Path(sys.executable).with_name("ao"))
BARE_IMPORTS = [sys.executable, "-c", "import click, socket, json"]
EMPTY_PROGRAM = [sys.executable, "-c", "pass"]
RUN_COUNT = 15
ANSWER_COUNT = 100
PRECISION_MS = 1.0
"""Milliseconds below which differences do not count."""


class CommandTimes:
    """Times of commands and answers at each number of sessions."""

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.commands: list[tuple[float, float]] = []
        self.lists: list[tuple[float, float]] = []
        self.singles: list[tuple[float, float]] = []

    def measure(self, size: int, with_figure: bool) -> Iterator[Result]:
        """Measure `ao status`, the list and one session, with so many sessions."""
        ours, imports = time_in_turns(RUN_COUNT, partial(self._run, [AO, "status"]), partial(self._run, BARE_IMPORTS))
        self.commands.append((size, _ms(ours)))
        if with_figure:
            note = f"{_ms(ours):.0f} ms ÷ {_ms(imports):.0f} ms"
            ratio, spread = ratios(ours, imports)
            yield Figure(
                f"`ao status`, {size} sessions ÷ bare imports", ratio, 2, note=note, stretch=1.5, spread=spread
            )
        with HTTPConnection.unix(self.box) as line:
            self.lists.append((size, self._answer_time(line, "/api/sessions?all=1")))
            if size:
                self.singles.append((size, self._answer_time(line, f"/api/sessions/{self.box.sessions()[0]['id']}")))

    def versions(self) -> Iterator[Result]:
        """Measure commands that need no daemon: `ao --version` and completion."""
        ours, imports, nothing = time_in_turns(
            RUN_COUNT, *(partial(self._run, command) for command in ([AO, "--version"], BARE_IMPORTS, EMPTY_PROGRAM))
        )
        ratio, spread = ratios(ours, imports)
        note = f"{_ms(ours):.0f} ms ÷ {_ms(imports):.0f} ms; `python -c pass` {_ms(nothing):.0f} ms"
        yield Figure("`ao --version` ÷ bare imports", ratio, 1.5, note=note, stretch=1.2, spread=spread)
        script = subprocess.run(
            [AO, "completion", "bash"], env=self.box.env, capture_output=True, text=True, check=True
        )
        file = self.box.folder / "completion.bash"
        file.write_text(f"{script.stdout}COMP_WORDS=(ao attach a) COMP_CWORD=2\n_ao\n")
        tab, nothing = time_in_turns(
            RUN_COUNT, partial(self._run, ["bash", str(file)]), partial(self._run, EMPTY_PROGRAM)
        )
        ratio, spread = ratios(tab, nothing)
        note = f"{_ms(tab):.0f} ms ÷ {_ms(nothing):.0f} ms, bash and the script's loading included"
        yield Figure("a Tab in bash ÷ `python -c pass`", ratio, 1, note=note, stretch=0.5, spread=spread)

    def growth(self) -> Iterator[Result]:
        """Yield the growth of all times."""
        yield Growth("`ao status`", "sessions", self.commands, "ms", "linear")
        yield Growth("`GET /api/sessions` answered", "sessions", self.lists, "ms", "linear")
        yield Growth(
            "`GET /api/sessions/{id}` answered", "sessions", self.singles, "ms", "constant", floor=PRECISION_MS
        )

    def _answer_time(self, line: HTTPConnection, path: str) -> float:
        """Return the milliseconds of an answer, as the lower quartile: other load only adds to it."""
        return quantile([timed(partial(line.get, path)) for _ in range(ANSWER_COUNT)], 0.25) * 1e3

    def _run(self, command: Sequence[str]) -> None:
        subprocess.run(command, cwd=self.box.repo, env=self.box.env, stdout=subprocess.DEVNULL, check=True)


def _ms(times: Sequence[float]) -> float:
    return statistics.median(times) * 1e3
