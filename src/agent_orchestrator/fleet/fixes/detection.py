"""Which tools are run: those that are configured, then those of the project's own files that these do not cover.

A tool that is found by itself is run in the project's own scope: by its lint command, by what its configuration names, by a script of
package.json; never over everything. It is looked for at the repository's top; one that is not there, in the folders directly below.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import read_plain
from agent_orchestrator.config.detection import detect_commands
from agent_orchestrator.config.detection.commands import ACTIVATED
from agent_orchestrator.fleet.fixes.mentions import full_text, mentioned
from agent_orchestrator.fleet.fixes.model import CI, FOUND, GIVEN, LINT, Tool
from agent_orchestrator.fleet.fixes.tools import TEST_TOOLS, recognised

_PASSED_OVER = {"node_modules", "vendor", "dist", "build", "target", "site-packages", "third_party"}
_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*")
_LISTED = 2_000
_LINTERS = frozenset(
    {"ruff", "mypy", "flake8", "black", "isort", "pylint", "pyright", "pycodestyle", "pydocstyle", "bandit"}
)
_TESTS = re.compile(
    r"(?i)(?:^|[\s/:_.-])(?:run_?)?tests?(?:$|[\s.:_-])|\b(?:unittest|tox|nox|mocha|ava|tape|ctest|spec)\b"
)
"""A command that runs tests, by its words."""
ORDER = ("ruff", "eslint", "mypy", "tsc", "pytest", "jest", "vitest", "go", "cargo")
"""Quick ones first."""


@dataclass(slots=True)
class _Folder:
    """What a folder's files say."""

    path: Path
    pyproject: Mapping[str, Any] = field(default_factory=dict)
    package: Mapping[str, Any] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    """Names of packages that it depends on."""

    def has(self, *names: str) -> bool:
        return any((self.path / name).is_file() for name in names)

    def like(self, *patterns: str) -> bool:
        return any(next(self.path.glob(pattern), None) is not None for pattern in patterns)

    def mentions(self, file: str, text: str) -> bool:
        return text in _text(self.path / file)


def configured(top: Path, ci: Sequence[str], commands: Sequence[str] = ()) -> list[Tool]:
    """Return the tools that the configured checks run, then those of the commands named for this run."""
    scripts = scripts_of(top)
    sources = dict.fromkeys(commands, GIVEN) | dict.fromkeys(ci, CI)
    return [Tool(recognised(text, scripts), text, source=sources[text]) for text in dict.fromkeys((*ci, *commands))]


def found(top: Path, known: Sequence[Tool], *, tested: bool) -> list[Tool]:
    """Return the tools of the project that the known ones do not cover. `tested`: those were seen to run tests."""
    here = _look(top)
    texts = [full_text(top, tool.command, scripts_of(top)) for tool in known]
    covered = {tool.kind for tool in known} | {kind for text in texts for kind in mentioned(text, ORDER)}
    tested = tested or not covered.isdisjoint(TEST_TOOLS) or any(_TESTS.search(text) for text in texts)
    taken = {tool.command for tool in known}
    tools = [tool for tool in _by_commands(top, covered, tested) if tool.command not in taken]
    covered |= {kind for tool in tools for kind in mentioned(full_text(top, tool.command, scripts_of(top)), ORDER)}
    covered |= {tool.kind for tool in tools}
    if tested or not covered.isdisjoint(TEST_TOOLS):
        covered |= TEST_TOOLS
    mine = [tool for tool in _tools(here, "") if tool.kind not in covered]
    covered |= {tool.kind for tool in mine}
    for child in _below(top):
        mine += [tool for tool in _tools(_look(child), child.name) if tool.kind not in covered]
    return sorted(dict.fromkeys([*tools, *mine]), key=_rank)


def _rank(tool: Tool) -> tuple[int, str]:
    return ORDER.index(tool.kind) if tool.kind in ORDER else len(ORDER), tool.folder


def _by_commands(top: Path, covered: Iterable[str], tested: bool) -> list[Tool]:
    """The project's own lint command, and its test command if no tests are run yet."""
    ways = detect_commands(top)
    lint = _in_place(top, next((way.lint for way in ways if way.lint), ""))
    test = _in_place(top, next((way.test for way in ways if way.test), ""))
    scripts = scripts_of(top)
    tools = []
    if lint:
        tool = Tool(recognised(lint, scripts), lint, source=LINT)
        runs = {tool.kind, *mentioned(full_text(top, lint, scripts), ORDER)} - {"command"}
        if (not runs or not runs <= set(covered)) and _is_own(top, lint):
            tools.append(tool)
    if test and not tested:
        tools.append(Tool(recognised(test, scripts), test, source=FOUND))
    return tools


def _in_place(top: Path, command: str) -> str:
    """The command for this set-up: with the environment that it was found with, only if that is there."""
    there = (top / ".venv" / "bin" / "activate").exists()
    return command if there else command.removeprefix(ACTIVATED)


def scripts_of(top: Path) -> dict[str, str]:
    """The scripts of package.json."""
    scripts = _json(top / "package.json").get("scripts")
    return {str(name): str(text) for name, text in scripts.items()} if isinstance(scripts, dict) else {}


def _below(top: Path) -> list[Path]:
    markers = ("package.json", "pyproject.toml", "go.mod", "Cargo.toml", "setup.cfg")
    try:
        children = sorted(child for child in top.iterdir() if child.is_dir() and not child.is_symlink())
    except OSError:
        return []
    return [
        child
        for child in children[:_LISTED]
        if child.name not in _PASSED_OVER
        and not child.name.startswith(".")
        and any((child / marker).is_file() for marker in markers)
    ]


def _look(path: Path) -> _Folder:
    folder = _Folder(path, _toml(path / "pyproject.toml"), _json(path / "package.json"))
    for key in ("dependencies", "devDependencies"):
        folder.wanted |= set(folder.package.get(key) or ())
    project = folder.pyproject.get("project") or {}
    listed = [*(project.get("dependencies") or ())]
    for extra in (project.get("optional-dependencies") or {}, folder.pyproject.get("dependency-groups") or {}):
        for group in extra.values():
            listed += group if isinstance(group, list) else []
    poetry = ((folder.pyproject.get("tool") or {}).get("poetry")) or {}
    for group in (poetry, *((poetry.get("group") or {}).values())):
        listed += [*(group.get("dependencies") or ()), *(group.get("dev-dependencies") or ())]
    for file in sorted(path.glob("*requirements*.txt")):
        try:
            listed += _text(file).splitlines()
        except OSError:
            continue
    folder.wanted |= {
        match[0].lower() for one in listed if isinstance(one, str) and (match := _NAME.match(one.strip()))
    }
    return folder


def _tools(folder: _Folder, name: str) -> list[Tool]:
    finders = {"pytest": _pytest, "ruff": _ruff, "mypy": _mypy, "eslint": _eslint, "tsc": _tsc} | {
        "jest": _jest,
        "vitest": _vitest,
        "go": lambda one: "go test ./..." if one.has("go.mod") else "",
        "cargo": lambda one: "cargo test" if one.has("Cargo.toml") else "",
    }
    return [
        Tool(kind, command, name, FOUND if kind in TEST_TOOLS else LINT)
        for kind, find in finders.items()
        if (command := find(folder)) and _is_own(folder.path, command)
    ]


def _is_own(folder: Path, command: str) -> bool:
    """Whether a Python linter is the project's, where it has an environment of its own: another version judges differently."""
    places = [at for place in (".venv", "venv") if (at := folder / place / "bin").is_dir()]
    programs = {words[0] for part in re.split(r"&&|;", command) if (words := part.split())} & _LINTERS
    return not places or all(any((at / program).exists() for at in places) for program in programs)


def _python(folder: _Folder, program: str) -> str:
    """The program as it is found here: in the project's own environment, by what manages it, else on the path."""
    for place in (".venv", "venv"):
        if (folder.path / place / "bin" / program).exists():
            return f"{place}/bin/{program}"
    for lock, manager in (("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pdm.lock", "pdm")):
        if folder.has(lock) and program in folder.wanted:
            return f"{manager} run {program}"
    return program


def _table(folder: _Folder, *names: str) -> Any:
    table: Any = folder.pyproject
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table


def _pytest(folder: _Folder) -> str:
    configured = (
        _table(folder, "tool", "pytest") is not None
        or folder.has("pytest.ini", ".pytest.ini", "conftest.py")
        or folder.mentions("tox.ini", "[pytest]")
        or folder.mentions("setup.cfg", "[tool:pytest]")
        or "pytest" in folder.wanted
    )
    tests = folder.like("test_*.py", "tests/test_*.py", "tests/*/test_*.py", "test/test_*.py", "tests/*_test.py")
    return _python(folder, "pytest") if configured or tests else ""


def _ruff(folder: _Folder) -> str:
    """Where its configuration says which files are meant."""
    said = _table(folder, "tool", "ruff", "include") or any(
        _toml(folder.path / file).get("include") for file in ("ruff.toml", ".ruff.toml")
    )
    return f"{_python(folder, 'ruff')} check" if said else ""


def _mypy(folder: _Folder) -> str:
    """Where its configuration says which files are meant."""
    table = _table(folder, "tool", "mypy")
    names = ("files", "packages", "modules")
    said = any(name in table for name in names) if isinstance(table, dict) else False
    said = said or any(
        re.search(r"(?ms)^\[mypy\](?:(?!^\[).)*?^(?:files|packages|modules)\s*=", _text(folder.path / file))
        for file in ("mypy.ini", ".mypy.ini", "setup.cfg")
    )
    return _python(folder, "mypy") if said else ""


def _npx(folder: _Folder, program: str) -> str:
    """The program as a script of package.json runs it, alone or among others."""
    for text in (folder.package.get("scripts") or {}).values():
        for part in re.split(r"&&|;", text) if isinstance(text, str) else ():
            words = part.split()
            if words and words[0].rpartition("/")[2] == program and recognised(part) == program:
                return " ".join(["npx --no-install", program, *words[1:]])
    return ""


def _eslint(folder: _Folder) -> str:
    return _npx(folder, "eslint")


def _tsc(folder: _Folder) -> str:
    command = _npx(folder, "tsc")
    return f"{command} --noEmit" if command and not re.search(r"\s(?:-b|--build|--noEmit)\b", command) else command


def _jest(folder: _Folder) -> str:
    configured = "jest" in folder.wanted or "jest" in folder.package or folder.like("jest.config.*")
    return _npx(folder, "jest") or "npx --no-install jest" if folder.package and configured else ""


def _vitest(folder: _Folder) -> str:
    configured = "vitest" in folder.wanted or folder.like("vitest.config.*")
    return _npx(folder, "vitest") or "npx --no-install vitest run" if configured else ""


def _text(file: Path) -> str:
    try:
        return read_plain(file).decode(errors="replace")
    except OSError:
        return ""


def _toml(file: Path) -> Mapping[str, Any]:
    try:
        return tomllib.loads(_text(file))
    except tomllib.TOMLDecodeError:
        return {}


def _json(file: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(_text(file) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
