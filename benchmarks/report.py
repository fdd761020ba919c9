"""A run on paper: as JSON that can be read back, as a Markdown table, and as the generated part of a page."""

from __future__ import annotations

import json
import math
import os
import platform
import sqlite3
import subprocess
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from agent_orchestrator import __version__
from benchmarks.measure import HEAD, Duel, Figure, Growth, LeftOut, Result, number

BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"
KINDS: dict[str, type[Any]] = {"figure": Figure, "growth": Growth, "duel": Duel, "left out": LeftOut}


@dataclass(slots=True)
class Played:
    """One case as it went."""

    case: str
    load: float
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)
    failed: str = ""


@dataclass(slots=True)
class Run:
    """All cases of one run, and the machine that they ran on."""

    begun: str
    machine: dict[str, str]
    versions: dict[str, str]
    cases: list[Played] = field(default_factory=list)

    @property
    def results(self) -> list[Result]:
        """Of all cases."""
        return [result for case in self.cases for result in case.results]

    @property
    def missed(self) -> list[str]:
        """What is not as it must be, and the cases that could not be played to their end."""
        names = [result.name for result in self.results if not result.holds]
        return names + [f"{case.case} (failed: {case.failed})" for case in self.cases if case.failed]

    @property
    def short(self) -> list[str]:
        """What is as it must be, but not as it is hoped to be."""
        return [result.name for result in self.results if result.holds and result.stretches is False]

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(case.seconds for case in self.cases)


def machine() -> dict[str, str]:
    """What the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "processor": _processor(),
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }


def versions() -> dict[str, str]:
    """Of what is measured and of what it is measured with."""
    return {
        "agent-orchestrator": __version__,
        "Python": platform.python_version(),
        "Git": _said("git", "--version").removeprefix("git version "),
        "tmux": _said("tmux", "-V").removeprefix("tmux "),
        "SQLite": sqlite3.sqlite_version,
    }


def to_json(run: Run) -> str:
    """All of a run; `from_json` reads it back."""
    cases = [
        {
            "case": case.case,
            "load": case.load,
            "seconds": round(case.seconds, 2),
            "failed": case.failed,
            "results": [_plain(result) for result in case.results],
        }
        for case in run.cases
    ]
    whole = {
        "begun": run.begun,
        "seconds": round(run.seconds, 1),
        "machine": run.machine,
        "versions": run.versions,
        "missed": run.missed,
        "short": run.short,
        "cases": cases,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str) -> Run:
    """A run that was written before."""
    whole = json.loads(text)
    cases = [
        Played(one["case"], one["load"], one["seconds"], [_result(result) for result in one["results"]], one["failed"])
        for one in whole["cases"]
    ]
    return Run(whole["begun"], whole["machine"], whole["versions"], cases)


def to_markdown(run: Run) -> str:
    """Machine, table, and what is missed."""
    rows = [result.row() for result in run.results]
    parts = [told(run), "\n".join([HEAD, *rows])]
    for title, names in (("missed", run.missed), ("as it must be, short of stretch", run.short)):
        parts += [f"{title}: {', '.join(names)}"] if names else []
    return "\n\n".join(parts) + "\n"


def told(run: Run) -> str:
    """Machine and versions, and of a run that was played how long it took and under which load, in a paragraph."""
    where = run.machine
    tools = ", ".join(f"{name} {version}" for name, version in run.versions.items() if version)
    text = f"{run.begun}, {where['cores']} cores ({where['processor']}), {where['memory']}, {where['system']}; {tools}."
    if not run.cases:
        return text
    loads = [case.load for case in run.cases]
    cases = "1 case" if len(run.cases) == 1 else f"{len(run.cases)} cases"
    minutes = f"{text} {cases} in {number(run.seconds / 60)} minutes"
    return f"{minutes}; load before a case {number(min(loads))} to {number(max(loads))}."


def write_page(page: Path, run: Run, pictures: list[Path]) -> None:
    """Put table and pictures between the marks of a page."""
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{page} needs the lines {BEGIN} and {END}, once each: put them where the table belongs")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    shown = [f"![{_caption(one)}]({os.path.relpath(one, page.parent)})" for one in pictures]
    page.write_text(f"{before}{BEGIN}\n\n" + "\n\n".join([to_markdown(run).strip(), *shown]) + f"\n\n{END}{after}")


def _caption(picture: Path) -> str:
    return picture.stem.removeprefix("bench-").replace("-", " ").capitalize()


def _plain(result: Result) -> dict[str, Any]:
    kind = next(name for name, one in KINDS.items() if isinstance(result, one))
    plain: dict[str, Any] = {"kind": kind, **asdict(result), "holds": result.holds, "stretches": result.stretches}
    if isinstance(result, Growth):
        plain["fit"] = {one.name: round(getattr(result.law, one.name), 9) for one in fields(result.law)}
    if isinstance(result, Duel):
        plain["ratio"] = result.ratio
    return {key: _finite(value) for key, value in plain.items()}


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _result(plain: dict[str, Any]) -> Result:
    kind = KINDS[plain["kind"]]
    given = {one.name: plain[one.name] for one in fields(kind) if one.name in plain}
    for key in ("value", "bound"):
        if key in given:
            given[key] = float(given[key])
    if given.get("spread"):
        given["spread"] = tuple(given["spread"])
    if "points" in given:
        given["points"] = [tuple(point) for point in given["points"]]
    result: Result = kind(**given)
    return result


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names and names[0] != "unknown" else platform.machine()


def _said(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
