"""Measures what fails in the checkout it is run in, and judges it where it is told what is to be fixed.

    python -P -m agent_orchestrator.services.fixer.verify SPEC.json

The daemon runs it as a check. `SPEC.json` says which tools (none: they are found), how long each may take, where to write the report,
and for a verification the report of the base and the failures that are to go. Exit code 0: measured, or fixed; 1: not fixed; 2: it
could not be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agent_orchestrator import locking
from agent_orchestrator.errors import AoError, Temporary
from agent_orchestrator.host import LocalHost
from agent_orchestrator.odd import ODD
from agent_orchestrator.plain import writable
from agent_orchestrator.redaction import with_texts
from agent_orchestrator.services.checks import junit
from agent_orchestrator.services.checks.results import write_atomically
from agent_orchestrator.services.fixer import detect, guards
from agent_orchestrator.services.fixer.commands import PARSERS, TEST_TOOLS, Asking, asking
from agent_orchestrator.services.fixer.judging import Reason, Target, doubtful, judge, reconciled
from agent_orchestrator.services.fixer.model import Measured, Report, Tool, as_json, report_from, tool_from
from agent_orchestrator.services.fixer.parsing.common import Found, Said

_UNKNOWN_OPTION = "unrecognized arguments"


@dataclass(frozen=True, slots=True)
class Spec:
    """What is to be measured."""

    output: Path
    """Where the report is written to."""
    cache: Path
    """For what tools keep for the next time."""
    tools: tuple[Tool, ...] | None = None
    """None: find them."""
    commands: tuple[str, ...] = ()
    """Instead: what these run."""
    ci: tuple[str, ...] = ()
    timeout: float = 1800.0
    """Seconds that a tool may take."""
    before: Path | None = None
    """The report of the base."""
    targets: tuple[Target, ...] = ()


def spec_json(spec: Spec) -> dict[str, Any]:
    """As it is written to its file."""
    return {
        "output": str(spec.output),
        "cache": str(spec.cache),
        "tools": None if spec.tools is None else [asdict(tool) for tool in spec.tools],
        "commands": list(spec.commands),
        "ci": list(spec.ci),
        "timeout": spec.timeout,
        "before": str(spec.before) if spec.before else None,
        "targets": [asdict(target) for target in spec.targets],
    }


def spec_from(data: Mapping[str, Any]) -> Spec:
    """What `spec_json` wrote."""
    return Spec(
        output=Path(data["output"]),
        cache=Path(data["cache"]),
        tools=None if data["tools"] is None else tuple(tool_from(tool) for tool in data["tools"]),
        commands=tuple(data["commands"]),
        ci=tuple(data["ci"]),
        timeout=float(data["timeout"]),
        before=Path(data["before"]) if data["before"] else None,
        targets=tuple(Target(**target) for target in data["targets"]),
    )


async def measure(top: Path, spec: Spec) -> Report:
    """Run every tool, one after the other."""
    host = LocalHost()
    tools = spec.tools
    if tools is None:
        tools = tuple(detect.given(top, spec.commands) if spec.commands else detect.detect(top, spec.ci))
    found: list[Measured] = []
    for number, tool in enumerate(tools, 1):
        _say(f"{number}/{len(tools)} {tool.name} …")
        one = await _run(host, top, tool, spec)
        found.append(one)
        _say(f"  {_told(one)}")
    listing = await host.run(["git", "ls-files", "-z"], cwd=top)
    files = [name for name in os.fsdecode(listing.out).split("\0") if name]
    return Report(tuple(found), guards.silenced(top, files), guards.settings(top, files))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _told(one: Measured) -> str:
    tests = f" of {len(one.tests)} tests" if one.tests else ""
    return (
        f"cannot be run: {one.problem}" if one.problem else f"{len(one.failures)} wrong{tests} in {one.seconds:.1f} s"
    )


async def _run(host: LocalHost, top: Path, tool: Tool, spec: Spec) -> Measured:
    began = time.monotonic()
    scripts = detect.scripts_of(top / tool.folder)
    with tempfile.TemporaryDirectory(prefix="ao-fix-") as scratch:
        report = str(Path(scratch) / "report")
        ways = asking(tool, report, scripts)
        for number, way in enumerate(ways):
            try:
                said = await _said(host, top, tool, way, spec)
            except AoError as error:
                problem = f"it did not finish within {spec.timeout:g} s" if isinstance(error, Temporary) else error.text
                return Measured(tool, problem=problem, seconds=time.monotonic() - began)
            if number + 1 < len(ways) and said.code == 2 and _UNKNOWN_OPTION in said.err:
                continue  # a version that does not know this way
            break
        found = read(said)
    return Measured(
        tool,
        problem=found.problem,
        failures=() if found.problem else tuple(found.failures),
        tests={} if found.problem else found.tests,
        hidden=() if found.problem else tuple(dict.fromkeys(found.hidden)),
        seconds=round(time.monotonic() - began, 3),
    )


def read(said: Said) -> Found:
    """What a tool said. What it wrote is of its own making: where it makes no sense, that is the tool's problem."""
    try:
        found = PARSERS["command" if said.code in (126, 127) else said.tool.kind](said)
    except ODD as error:
        return Found(problem=f"what it wrote is of no known shape ({type(error).__name__})")
    tests = {writable(name): state for name, state in found.tests.items()}
    return replace(with_texts(found, writable), tests=tests)


async def _said(host: LocalHost, top: Path, tool: Tool, way: Asking, spec: Spec) -> Said:
    folder = top / tool.folder
    since = time.time_ns() - 20_000_000
    argv = ["/bin/sh", "-c", way.command]
    done = await host.run(argv, cwd=folder, env=_environment(folder, spec), timeout=spec.timeout)
    reports = [Path(way.report)] if way.report else []
    if tool.kind == "command":
        reports = junit.find_reports(top, since)
    code = done.code if done.code >= 0 else 128 - done.code
    out, err = done.out.decode(errors="replace"), done.err.decode(errors="replace")
    return Said(tool, code, out, err, str(top), tuple(file for file in reports if file.is_file()))


def _environment(folder: Path, spec: Spec) -> dict[str, str]:
    """Ours, with the project's own programs first, no colours, and a place for what may be kept for the next time."""
    env = dict(os.environ)
    own = [folder / ".venv" / "bin", folder / "venv" / "bin", folder / "node_modules" / ".bin"]
    path = [str(place) for place in own if place.is_dir()]
    env["PATH"] = os.pathsep.join([*path, env.get("PATH", os.defpath)])
    env.update(NO_COLOR="1", TERM="dumb", PYTHONDONTWRITEBYTECODE="1")
    env.setdefault("MYPY_CACHE_DIR", str(spec.cache / "mypy"))
    for name in ("FORCE_COLOR", "PY_COLORS", "PYTEST_ADDOPTS", "PYTHONSAFEPATH"):
        env.pop(name, None)
    return env


async def _looked_twice(top: Path, spec: Spec, report: Report, names: set[str]) -> Report:
    """Run tests again that speak against the fix: what passes then fails by chance."""
    again = [one for one in report.tools if one.tool.name in names and one.tool.kind in (*TEST_TOOLS, "command")]
    if not again:
        return report
    _say("once more, for what fails by chance:")
    second = await measure(top, replace(spec, tools=tuple(one.tool for one in again)))
    known = {one.tool: one for one in second.tools}
    tools = tuple(reconciled(one, known[one.tool]) if one.tool in known else one for one in report.tools)
    return replace(report, tools=tools)


def verdict(reasons: list[Reason]) -> str:
    """What the agent is told."""
    return "\n".join(["", "not fixed:", *(reason.text for reason in reasons)])


@contextlib.contextmanager
def own_cache(folder: Path) -> Iterator[Path]:
    """A place that no other measurement uses at the same time, and that a later one finds again."""
    number = 0
    while True:
        number += 1
        place = folder / str(number)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (place / "lock").open("a") as lock:
            if not locking.take(lock):
                continue
            yield place
            return


async def main(file: Path) -> int:
    """Do what the file says, in the working directory."""
    given = spec_from(json.loads(file.read_bytes()))
    with own_cache(given.cache) as cache:
        return await _done(Path.cwd(), replace(given, cache=cache))


async def _done(top: Path, spec: Spec) -> int:
    report = await measure(top, spec)
    if spec.before is not None:
        before = report_from(json.loads(spec.before.read_bytes()))
        report = await _looked_twice(top, spec, report, doubtful(before, report, spec.targets))
    write_atomically(spec.output, as_json(report))
    if spec.before is None:
        return 0
    reasons = judge(before, report, spec.targets)
    if not reasons:
        _say(f"fixed: {len(spec.targets)} failures are gone, and there are no new ones")
        return 0
    _say(verdict(reasons))
    return 1


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main(Path(sys.argv[1]))))
    except (OSError, ValueError, KeyError, IndexError, AoError) as error:
        _say(f"error: it could not be measured: {error}")
        sys.exit(2)
