"""Records what test runners and linters print: `python -m tests.unit.changes.checks.record FOLDER [NAME…]`, where FOLDER holds the tools.

FOLDER/npm has `node_modules` with mocha, tape, ava, jest, vitest, jest-junit, eslint, typescript, stylelint, standard and xo; FOLDER/py3.8,
py3.11, py3.12 and py3.13 are virtual environments, the one of 3.11 with pytest, pytest-xdist, Django, ruff, flake8 and mypy. Go, Cargo,
CMake, Meson and Perl are on the PATH. Writes `recorded/<name>/<case>.txt`: the exit code, then the output, with the paths of this machine
taken out, and what tools print of their own code in stacks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.unit.changes.checks.linters import LINTERS
from tests.unit.changes.checks.projects import FAIL, GONE, PASS, SKIP, Files
from tests.unit.changes.checks.runners import RUNNERS, RecordedRunner

RECORDED = Path(__file__).parent / "recorded"
STATES = {
    "pass": (PASS, PASS),
    "one": (FAIL, PASS),
    "two": (FAIL, FAIL),
    "skipped": (PASS, SKIP),
    "removed": (PASS, GONE),
    "red_skipped": (FAIL, SKIP),
}
LIMIT = 120
_OF_TOOLS = re.compile(
    r"^(?:# *)?\s*(?:at |❯ |[\w.<># ]+\()\S*.*(?:node_modules|node:internal|/site-packages/).*$|^<frozen "
)
_ADVICE = re.compile(r"    Jest failed to parse a file\..*?    Details:\n", re.DOTALL)


def cases(runner: RecordedRunner) -> Iterator[tuple[str, Files, str]]:
    """Yield the name, files and command of each case."""
    for name, states in STATES.items():
        yield name, runner.files(*states), runner.command
    for name, (files, command) in runner.more.items():
        yield name, {**runner.files(PASS, PASS), **files}, command or runner.command
    yield "no_runner", runner.files(PASS, PASS), runner.command


def record(name: str, case: str, files: Files, command: str, needs: str, tools: Path) -> None:
    """Run one case and store its output."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder).resolve() / "project"
        for path, text in files.items():
            if text or not path.endswith("_test.go"):
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                (top / path).write_text(text)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],
            "CI": "1",
            "GOFLAGS": "-mod=mod",
            "GOPROXY": "off",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if case == "no_runner":
            env["PATH"] = str(_bare(Path(folder), name, needs))
        elif needs == "npm":
            (top / "node_modules").symlink_to(tools / "npm" / "node_modules")
            env["PATH"] = f"{tools}/npm/node_modules/.bin:{env['PATH']}"
        elif needs:
            env["PATH"] = f"{tools}/{needs}/bin:{env['PATH']}"
        run = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=top,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )
        target = RECORDED / name
        target.mkdir(parents=True, exist_ok=True)
        text = _anonymous(run.stdout.decode(errors="replace"), top, tools)
        (target / f"{case}.txt").write_text(f"exit code {run.returncode}\n{text}")
        report = top / "report.xml"
        (target / f"{case}.xml").unlink(missing_ok=True)
        if report.exists():
            (target / f"{case}.xml").write_text(_anonymous(report.read_text(), top, tools))
        sys.stdout.write(f"{name}/{case}: exit code {run.returncode}, {len(text)} bytes\n")


def _bare(folder: Path, name: str, needs: str) -> Path:
    """Return a PATH without the runner; it has Python only if that starts the runner."""
    bare = folder / "bin"
    bare.mkdir()
    if needs.startswith("py") and not name.startswith("unittest"):
        (bare / "python").symlink_to("/usr/bin/python3")
    return bare


def _anonymous(text: str, top: Path, tools: Path) -> str:
    text = text.replace(str(top), "/code/project").replace(str(tools), "/tools").replace(str(top.parent), "/code")
    text = text.replace(os.path.relpath(tools, top), "/tools")
    text = re.sub(rf"{re.escape(os.environ['HOME'])}/\.pyenv/versions/([\d.]+)", r"/usr/python-\1", text)
    text = text.replace(os.environ["HOME"], "/home/user").replace(os.uname().nodename, "host")
    text = re.sub(r'(hostname|timestamp)="[^"]*"', r'\1="x"', text)
    text = _ADVICE.sub("    Details:\n", text)
    return "".join(line for line in text.splitlines(keepends=True) if "</" in line or not _OF_TOOLS.match(line))


def main(folder: str, *names: str) -> None:
    tools = Path(folder).resolve()
    for runner in RUNNERS:
        if not names or runner.name in names:
            for case, files, command in cases(runner):
                record(runner.name, case, files, command, runner.needs, tools)
    for linter in LINTERS:
        if not names or linter.name in names:
            for case, files in linter.cases().items():
                record(linter.name, case, files, linter.command, linter.needs, tools)


if __name__ == "__main__":
    main(*sys.argv[1:])
