"""Which tools a project has, by its own files: what it configures, depends on, or runs as its checks.

A tool is looked for at the repository's top; one that is not there, in the folders directly below. A check (`ci`) that runs a known tool
says how it is run here. A check that runs anything else is taken only where no tool was found at all: it may well run the others.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.safe_files import read_plain
from agent_orchestrator.services.fixer.commands import recognised, resolved
from agent_orchestrator.services.fixer.model import Tool

_PASSED_OVER = {"node_modules", "vendor", "dist", "build", "target", "site-packages", "third_party"}
_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*")
_LISTED = 2_000
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


def detect(top: Path, ci: Sequence[str] = ()) -> list[Tool]:
    """The tools of the project in this folder."""
    here = _look(top)
    scripts = scripts_of(top)
    named = [
        Tool(kind, resolved(command, scripts)) for command in ci if (kind := recognised(command, scripts)) != "command"
    ]
    known = {tool.kind for tool in named}
    found = named + [tool for tool in _tools(here, "") if tool.kind not in known]
    known = {tool.kind for tool in found}
    for child in _below(top):
        found += [tool for tool in _tools(_look(child), child.name) if tool.kind not in known]
    if not found:
        found = [Tool("command", command) for command in dict.fromkeys(ci)]
    return sorted(
        dict.fromkeys(found), key=lambda tool: (ORDER.index(tool.kind) if tool.kind in ORDER else 99, tool.folder)
    )


def given(top: Path, commands: Sequence[str]) -> list[Tool]:
    """The tools that these commands run."""
    scripts = scripts_of(top)
    return [Tool(recognised(command, scripts), resolved(command, scripts)) for command in dict.fromkeys(commands)]


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
    return [Tool(kind, command, name) for kind, find in finders.items() if (command := find(folder))]


def _python(folder: _Folder, program: str) -> str:
    """The program as it is found here: in the project's own environment, by what manages it, else on the path."""
    for place in (".venv", "venv"):
        if (folder.path / place / "bin" / program).exists():
            return f"{place}/bin/{program}"
    if folder.has("uv.lock") and program in folder.wanted:
        return f"uv run {program}"
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
    configured = _table(folder, "tool", "ruff") is not None or folder.has("ruff.toml", ".ruff.toml")
    return f"{_python(folder, 'ruff')} check" if configured or "ruff" in folder.wanted else ""


def _mypy(folder: _Folder) -> str:
    table = _table(folder, "tool", "mypy")
    ini = folder.has("mypy.ini", ".mypy.ini") or folder.mentions("setup.cfg", "[mypy]")
    if table is None and not ini and "mypy" not in folder.wanted:
        return ""
    names = ("files", "packages", "modules")
    said = any(name in table for name in names) if isinstance(table, dict) else False
    said = said or any(
        re.search(r"(?m)^(?:files|packages|modules)\s*=", _text(folder.path / file))
        for file in ("mypy.ini", ".mypy.ini", "setup.cfg")
    )
    return _python(folder, "mypy") + ("" if said else " .")


def _npx(folder: _Folder, program: str, rest: str = "") -> str:
    for text in (folder.package.get("scripts") or {}).values():
        if isinstance(text, str) and recognised(text) == program and text.split()[0].rpartition("/")[2] == program:
            rest = text.partition(" ")[2] or rest
            break
    return f"npx --no-install {program} {rest}".strip()


def _eslint(folder: _Folder) -> str:
    configured = folder.like("eslint.config.*", ".eslintrc*") or "eslintConfig" in folder.package
    return _npx(folder, "eslint", ".") if folder.package and (configured or "eslint" in folder.wanted) else ""


def _tsc(folder: _Folder) -> str:
    return _npx(folder, "tsc") if folder.has("tsconfig.json") and "typescript" in folder.wanted else ""


def _jest(folder: _Folder) -> str:
    configured = "jest" in folder.wanted or "jest" in folder.package or folder.like("jest.config.*")
    return _npx(folder, "jest") if folder.package and configured else ""


def _vitest(folder: _Folder) -> str:
    return _npx(folder, "vitest", "run") if "vitest" in folder.wanted or folder.like("vitest.config.*") else ""


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
