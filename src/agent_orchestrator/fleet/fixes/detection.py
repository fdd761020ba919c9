"""Find the tools to run: those that are configured, then those in the project's own files that these do not cover.

Look here if a measurement runs too many or too few tools.

A tool that is found in the project's files is run in the project's own scope: by its lint command, by what its configuration names, by a
script of package.json; never over everything. It is searched for at the repository's top, and if it is not there, in the folders below it.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.base.files.safe import read_regular_file
from agent_orchestrator.config.detection import detect_commands
from agent_orchestrator.config.detection.commands import ACTIVATE_VENV
from agent_orchestrator.fleet.fixes.command_expansion import expand_command, mentioned_programs
from agent_orchestrator.fleet.fixes.model import DETECTED, FROM_CI, FROM_OPTIONS, LINTER, CheckTool
from agent_orchestrator.fleet.fixes.tools import TEST_TOOLS, tool_kind_of

_SKIPPED_FOLDERS = {"node_modules", "vendor", "dist", "build", "target", "site-packages", "third_party"}
_PACKAGE_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*")
_MAX_FOLDERS = 2_000
_PYTHON_LINTERS = frozenset(
    {"ruff", "mypy", "flake8", "black", "isort", "pylint", "pyright", "pycodestyle", "pydocstyle", "bandit"}
)
_TEST_COMMAND = re.compile(
    r"(?i)(?:^|[\s/:_.-])(?:run_?)?tests?(?:$|[\s.:_-])|\b(?:unittest|tox|nox|mocha|ava|tape|ctest|spec)\b"
)
"""Matches a command that runs tests, by its words."""
TOOL_ORDER = ("ruff", "eslint", "mypy", "tsc", "pytest", "jest", "vitest", "go", "cargo")
"""Quick tools first."""


@dataclass(slots=True)
class _Folder:
    """The configuration files of a folder."""

    path: Path
    pyproject: Mapping[str, Any] = field(default_factory=dict)
    package: Mapping[str, Any] = field(default_factory=dict)
    dependencies: set[str] = field(default_factory=set)
    """Names of packages that the project depends on."""

    def has_file(self, *names: str) -> bool:
        """Return whether one of these files exists."""
        return any((self.path / name).is_file() for name in names)

    def has_file_like(self, *patterns: str) -> bool:
        """Return whether a file matches one of these patterns."""
        return any(next(self.path.glob(pattern), None) is not None for pattern in patterns)

    def mentions(self, file: str, text: str) -> bool:
        """Return whether a file contains a text."""
        return text in _read_text(self.path / file)


def configured_tools(top: Path, ci: Sequence[str], commands: Sequence[str] = ()) -> list[CheckTool]:
    """Return the tools that the configured checks run, then those of the commands named for this run."""
    scripts = scripts_of(top)
    sources = dict.fromkeys(commands, FROM_OPTIONS) | dict.fromkeys(ci, FROM_CI)
    return [
        CheckTool(tool_kind_of(text, scripts), text, source=sources[text]) for text in dict.fromkeys((*ci, *commands))
    ]


def detect_tools(top: Path, configured: Sequence[CheckTool], *, tested: bool) -> list[CheckTool]:
    """Return the tools of the project that the known ones do not cover. `tested`: the known ones have run tests."""
    top_folder = _read_folder(top)
    texts = [expand_command(top, tool.command, scripts_of(top)) for tool in configured]
    covered = {tool.kind for tool in configured} | {
        kind for text in texts for kind in mentioned_programs(text, TOOL_ORDER)
    }
    tested = tested or not covered.isdisjoint(TEST_TOOLS) or any(_TEST_COMMAND.search(text) for text in texts)
    known_commands = {tool.command for tool in configured}
    tools = [tool for tool in _command_tools(top, covered, tested) if tool.command not in known_commands]
    covered |= {
        kind
        for tool in tools
        for kind in mentioned_programs(expand_command(top, tool.command, scripts_of(top)), TOOL_ORDER)
    }
    covered |= {tool.kind for tool in tools}
    if tested or not covered.isdisjoint(TEST_TOOLS):
        covered |= TEST_TOOLS
    further = [tool for tool in _tools_of(top_folder, "") if tool.kind not in covered]
    covered |= {tool.kind for tool in further}
    for child in _project_folders(top):
        further += [tool for tool in _tools_of(_read_folder(child), child.name) if tool.kind not in covered]
    return sorted(dict.fromkeys([*tools, *further]), key=_sort_key)


def _sort_key(tool: CheckTool) -> tuple[int, str]:
    """Return the sort key of a tool: quick ones first, then by folder."""
    return TOOL_ORDER.index(tool.kind) if tool.kind in TOOL_ORDER else len(TOOL_ORDER), tool.folder


def _command_tools(top: Path, covered: Iterable[str], tested: bool) -> list[CheckTool]:
    """Return the project's own lint command, and its test command if no tests are run yet."""
    detections = detect_commands(top)
    lint = _without_missing_activation(top, next((commands.lint for commands in detections if commands.lint), ""))
    test = _without_missing_activation(top, next((commands.test for commands in detections if commands.test), ""))
    scripts = scripts_of(top)
    tools = []
    if lint:
        tool = CheckTool(tool_kind_of(lint, scripts), lint, source=LINTER)
        kinds = {tool.kind, *mentioned_programs(expand_command(top, lint, scripts), TOOL_ORDER)} - {"command"}
        if (not kinds or not kinds <= set(covered)) and _has_own_program(top, lint):
            tools.append(tool)
    if test and not tested:
        tools.append(CheckTool(tool_kind_of(test, scripts), test, source=DETECTED))
    return tools


def _without_missing_activation(top: Path, command: str) -> str:
    """Return the command without activating an environment if that environment does not exist here."""
    has_environment = (top / ".venv" / "bin" / "activate").exists()
    return command if has_environment else command.removeprefix(ACTIVATE_VENV)


def scripts_of(top: Path) -> dict[str, str]:
    """Return the scripts of package.json."""
    scripts = _read_json(top / "package.json").get("scripts")
    return {str(name): str(text) for name, text in scripts.items()} if isinstance(scripts, dict) else {}


def _project_folders(top: Path) -> list[Path]:
    """Return the folders directly below that are projects by their files."""
    markers = ("package.json", "pyproject.toml", "go.mod", "Cargo.toml", "setup.cfg")
    try:
        children = sorted(child for child in top.iterdir() if child.is_dir() and not child.is_symlink())
    except OSError:
        return []
    return [
        child
        for child in children[:_MAX_FOLDERS]
        if child.name not in _SKIPPED_FOLDERS
        and not child.name.startswith(".")
        and any((child / marker).is_file() for marker in markers)
    ]


def _read_folder(path: Path) -> _Folder:
    """Return a folder with its configuration and the names of the packages that it depends on."""
    folder = _Folder(path, _read_toml(path / "pyproject.toml"), _read_json(path / "package.json"))
    for key in ("dependencies", "devDependencies"):
        folder.dependencies |= set(folder.package.get(key) or ())
    project = folder.pyproject.get("project") or {}
    requirements = [*(project.get("dependencies") or ())]
    for extra in (project.get("optional-dependencies") or {}, folder.pyproject.get("dependency-groups") or {}):
        for group in extra.values():
            requirements += group if isinstance(group, list) else []
    poetry = ((folder.pyproject.get("tool") or {}).get("poetry")) or {}
    for group in (poetry, *((poetry.get("group") or {}).values())):
        requirements += [*(group.get("dependencies") or ()), *(group.get("dev-dependencies") or ())]
    for file in sorted(path.glob("*requirements*.txt")):
        try:
            requirements += _read_text(file).splitlines()
        except OSError:
            continue
    folder.dependencies |= {
        match[0].lower()
        for requirement in requirements
        if isinstance(requirement, str) and (match := _PACKAGE_NAME.match(requirement.strip()))
    }
    return folder


def _tools_of(folder: _Folder, name: str) -> list[CheckTool]:
    """Return the tools that are found in one folder; `name` is the folder's name below the top."""
    finders = {"pytest": _pytest, "ruff": _ruff, "mypy": _mypy, "eslint": _eslint, "tsc": _tsc} | {
        "jest": _jest,
        "vitest": _vitest,
        "go": lambda candidate: "go test ./..." if candidate.has_file("go.mod") else "",
        "cargo": lambda candidate: "cargo test" if candidate.has_file("Cargo.toml") else "",
    }
    return [
        CheckTool(kind, command, name, DETECTED if kind in TEST_TOOLS else LINTER)
        for kind, find in finders.items()
        if (command := find(folder)) and _has_own_program(folder.path, command)
    ]


def _has_own_program(folder: Path, command: str) -> bool:
    """Return whether a Python linter is in the project's environment, if there is one: another version may report other failures."""
    environments = [
        bin_folder
        for environment_name in (".venv", "venv")
        if (bin_folder := folder / environment_name / "bin").is_dir()
    ]
    programs = {words[0] for part in re.split(r"&&|;", command) if (words := part.split())} & _PYTHON_LINTERS
    return not environments or all(
        any((bin_folder / program).exists() for bin_folder in environments) for program in programs
    )


def _python_program(folder: _Folder, program: str) -> str:
    """Return how to run a program: from the project's own environment, by its package manager, else from the path."""
    for environment in (".venv", "venv"):
        if (folder.path / environment / "bin" / program).exists():
            return f"{environment}/bin/{program}"
    for lock, manager in (("uv.lock", "uv"), ("poetry.lock", "poetry"), ("pdm.lock", "pdm")):
        if folder.has_file(lock) and program in folder.dependencies:
            return f"{manager} run {program}"
    return program


def _pyproject_table(folder: _Folder, *names: str) -> Any:
    """Return a table or value of pyproject.toml, or None if it is missing."""
    table: Any = folder.pyproject
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table


def _pytest(folder: _Folder) -> str:
    """Return the pytest command if pytest is configured or there are test files, else ""."""
    is_configured = (
        _pyproject_table(folder, "tool", "pytest") is not None
        or folder.has_file("pytest.ini", ".pytest.ini", "conftest.py")
        or folder.mentions("tox.ini", "[pytest]")
        or folder.mentions("setup.cfg", "[tool:pytest]")
        or "pytest" in folder.dependencies
    )
    has_tests = folder.has_file_like(
        "test_*.py", "tests/test_*.py", "tests/*/test_*.py", "test/test_*.py", "tests/*_test.py"
    )
    return _python_program(folder, "pytest") if is_configured or has_tests else ""


def _ruff(folder: _Folder) -> str:
    """Return the ruff command if its configuration names the files to check, else ""."""
    has_scope = _pyproject_table(folder, "tool", "ruff", "include") or any(
        _read_toml(folder.path / file).get("include") for file in ("ruff.toml", ".ruff.toml")
    )
    return f"{_python_program(folder, 'ruff')} check" if has_scope else ""


def _mypy(folder: _Folder) -> str:
    """Return the mypy command if its configuration names the files to check, else ""."""
    table = _pyproject_table(folder, "tool", "mypy")
    names = ("files", "packages", "modules")
    has_scope = any(name in table for name in names) if isinstance(table, dict) else False
    has_scope = has_scope or any(
        re.search(r"(?ms)^\[mypy\](?:(?!^\[).)*?^(?:files|packages|modules)\s*=", _read_text(folder.path / file))
        for file in ("mypy.ini", ".mypy.ini", "setup.cfg")
    )
    return _python_program(folder, "mypy") if has_scope else ""


def _script_command(folder: _Folder, program: str) -> str:
    """Return how to run a program as a script of package.json runs it, alone or among others, or "" if none does."""
    for text in (folder.package.get("scripts") or {}).values():
        for part in re.split(r"&&|;", text) if isinstance(text, str) else ():
            words = part.split()
            if words and words[0].rpartition("/")[2] == program and tool_kind_of(part) == program:
                return " ".join(["npx --no-install", program, *words[1:]])
    return ""


def _eslint(folder: _Folder) -> str:
    """Return the eslint command if a script of package.json runs it, else ""."""
    return _script_command(folder, "eslint")


def _tsc(folder: _Folder) -> str:
    """Return the tsc command if a script of package.json runs it, without output files, else ""."""
    command = _script_command(folder, "tsc")
    return f"{command} --noEmit" if command and not re.search(r"\s(?:-b|--build|--noEmit)\b", command) else command


def _jest(folder: _Folder) -> str:
    """Return the jest command if a script runs it or it is configured, else ""."""
    is_configured = "jest" in folder.dependencies or "jest" in folder.package or folder.has_file_like("jest.config.*")
    return _script_command(folder, "jest") or "npx --no-install jest" if folder.package and is_configured else ""


def _vitest(folder: _Folder) -> str:
    """Return the vitest command if a script runs it or it is configured, else ""."""
    is_configured = "vitest" in folder.dependencies or folder.has_file_like("vitest.config.*")
    return _script_command(folder, "vitest") or "npx --no-install vitest run" if is_configured else ""


def _read_text(file: Path) -> str:
    """Return the text of a file, or "" if it cannot be read."""
    try:
        return read_regular_file(file).decode(errors="replace")
    except OSError:
        return ""


def _read_toml(file: Path) -> Mapping[str, Any]:
    """Return the data of a TOML file, or an empty mapping if it cannot be read."""
    try:
        return tomllib.loads(_read_text(file))
    except tomllib.TOMLDecodeError:
        return {}


def _read_json(file: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file, or an empty mapping if it cannot be read."""
    try:
        data = json.loads(_read_text(file) or "{}")
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
