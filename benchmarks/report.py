"""Output of a run: JSON that can be read back, a Markdown table, and the generated part of a documentation page."""

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
from benchmarks.measure import TABLE_HEAD, Duel, Figure, Growth, Result, SkippedResult, format_number

BEGIN = "<!-- measured: begin -->"
END = "<!-- measured: end -->"
KINDS: dict[str, type[Any]] = {"figure": Figure, "growth": Growth, "duel": Duel, "left out": SkippedResult}


@dataclass(slots=True)
class CaseResult:
    """The results of one case."""

    case: str
    load: float
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)
    failed: str = ""


@dataclass(slots=True)
class BenchmarkRun:
    """All cases of one run, and the machine they ran on."""

    begun: str
    machine: dict[str, str]
    versions: dict[str, str]
    cases: list[CaseResult] = field(default_factory=list)

    @property
    def results(self) -> list[Result]:
        """Return the results of all cases."""
        return [result for case in self.cases for result in case.results]

    @property
    def missed(self) -> list[str]:
        """Return the names of results outside their bound, and of cases that failed."""
        names = [result.name for result in self.results if not result.holds]
        return names + [f"{case.case} (failed: {case.failed})" for case in self.cases if case.failed]

    @property
    def missed_goals(self) -> list[str]:
        """Return the names of results within their bound that miss the stretch goal."""
        return [result.name for result in self.results if result.holds and result.stretches is False]

    @property
    def seconds(self) -> float:
        """Return the duration of all cases."""
        return sum(case.seconds for case in self.cases)


def machine() -> dict[str, str]:
    """Return the properties of this machine that the figures depend on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "processor": _processor(),
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
    }


def versions() -> dict[str, str]:
    """Return the versions of the product and of the programs used."""
    return {
        "agent-orchestrator": __version__,
        "Python": platform.python_version(),
        "Git": _output_of("git", "--version").removeprefix("git version "),
        "tmux": _output_of("tmux", "-V").removeprefix("tmux "),
        "SQLite": sqlite3.sqlite_version,
    }


def to_json(run: BenchmarkRun) -> str:
    """Return a run as JSON, which `from_json` reads back."""
    cases = [
        {
            "case": case.case,
            "load": case.load,
            "seconds": round(case.seconds, 2),
            "failed": case.failed,
            "results": [_to_plain(result) for result in case.results],
        }
        for case in run.cases
    ]
    document = {
        "begun": run.begun,
        "seconds": round(run.seconds, 1),
        "machine": run.machine,
        "versions": run.versions,
        "missed": run.missed,
        "short": run.missed_goals,
        "cases": cases,
    }
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(text: str) -> BenchmarkRun:
    """Return the run that was written as JSON."""
    document = json.loads(text)
    cases = [
        CaseResult(
            case["case"],
            case["load"],
            case["seconds"],
            [_from_plain(result) for result in case["results"]],
            case["failed"],
        )
        for case in document["cases"]
    ]
    return BenchmarkRun(document["begun"], document["machine"], document["versions"], cases)


def to_markdown(run: BenchmarkRun) -> str:
    """Return the machine line, the table and the missed results as Markdown."""
    rows = [result.row() for result in run.results]
    parts = [machine_line(run), "\n".join([TABLE_HEAD, *rows])]
    for title, names in (("missed", run.missed), ("as it must be, short of stretch", run.missed_goals)):
        parts += [f"{title}: {', '.join(names)}"] if names else []
    return "\n\n".join(parts) + "\n"


def machine_line(run: BenchmarkRun) -> str:
    """Return a paragraph with machine and versions and, if the run has cases, its duration and the load."""
    values = run.machine
    tools = ", ".join(f"{name} {version}" for name, version in run.versions.items() if version)
    text = f"{run.begun}, {values['cores']} cores ({values['processor']}), {values['memory']}, {values['system']}; {tools}."
    if not run.cases:
        return text
    loads = [case.load for case in run.cases]
    cases = "1 case" if len(run.cases) == 1 else f"{len(run.cases)} cases"
    minutes = f"{text} {cases} in {format_number(run.seconds / 60)} minutes"
    return f"{minutes}; load before a case {format_number(min(loads))} to {format_number(max(loads))}."


def write_page(page: Path, run: BenchmarkRun, pictures: list[Path]) -> None:
    """Write the table and the pictures between the marks of a page."""
    text = page.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{page} needs the lines {BEGIN} and {END}, once each: put them where the table belongs")
    before, _, remainder = text.partition(BEGIN)
    after = remainder.partition(END)[2]
    image_links = [f"![{_caption(picture)}]({os.path.relpath(picture, page.parent)})" for picture in pictures]
    page.write_text(
        f"{before}{BEGIN}\n\n" + "\n\n".join([to_markdown(run).strip(), *image_links]) + f"\n\n{END}{after}"
    )


def _caption(picture: Path) -> str:
    return picture.stem.removeprefix("bench-").replace("-", " ").capitalize()


def _to_plain(result: Result) -> dict[str, Any]:
    kind = next(name for name, result_type in KINDS.items() if isinstance(result, result_type))
    values: dict[str, Any] = {"kind": kind, **asdict(result), "holds": result.holds, "stretches": result.stretches}
    if isinstance(result, Growth):
        values["fit"] = {item.name: round(getattr(result.law, item.name), 9) for item in fields(result.law)}
    if isinstance(result, Duel):
        values["ratio"] = result.ratio
    return {key: _finite(value) for key, value in values.items()}


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _from_plain(values: dict[str, Any]) -> Result:
    kind = KINDS[values["kind"]]
    field_values = {field_.name: values[field_.name] for field_ in fields(kind) if field_.name in values}
    for key in ("value", "bound"):
        if key in field_values:
            field_values[key] = float(field_values[key])
    if field_values.get("spread"):
        field_values["spread"] = tuple(field_values["spread"])
    if "points" in field_values:
        field_values["points"] = [tuple(point) for point in field_values["points"]]
    result: Result = kind(**field_values)
    return result


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names and names[0] != "unknown" else platform.machine()


def _output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
