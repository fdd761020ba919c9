"""Which tools a project has, and how each is asked for a report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_orchestrator.services.fixer.commands import asking, recognised
from agent_orchestrator.services.fixer.detect import detect, given
from agent_orchestrator.services.fixer.model import Tool


def project(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


def kinds(top: Path, *ci: str) -> list[tuple[str, str, str]]:
    return [(tool.kind, tool.command, tool.folder) for tool in detect(top, ci)]


def test_python_projects(tmp_path: Path) -> None:
    pyproject = '[project]\nname = "a"\n[dependency-groups]\ndev = ["ruff>=0.4", "mypy"]\n[tool.pytest.ini_options]\n'
    top = project(tmp_path, {"pyproject.toml": pyproject})
    assert kinds(top) == [("ruff", "ruff check", ""), ("mypy", "mypy .", ""), ("pytest", "pytest", "")]
    project(top, {"mypy.ini": "[mypy]\nfiles = src\n", ".venv/bin/mypy": "", "uv.lock": ""})
    assert kinds(top) == [("ruff", "uv run ruff check", ""), ("mypy", ".venv/bin/mypy", ""), ("pytest", "pytest", "")]


def test_tests_alone_are_enough_for_pytest(tmp_path: Path) -> None:
    assert kinds(project(tmp_path, {"tests/test_a.py": "def test_a(): ..."})) == [("pytest", "pytest", "")]


def test_node_projects(tmp_path: Path) -> None:
    package = {
        "scripts": {"lint": "eslint src --max-warnings 0", "test": "vitest"},
        "devDependencies": {"eslint": "9", "typescript": "5", "vitest": "3"},
    }
    top = project(tmp_path, {"package.json": json.dumps(package), "tsconfig.json": "{}"})
    assert kinds(top) == [
        ("eslint", "npx --no-install eslint src --max-warnings 0", ""),
        ("tsc", "npx --no-install tsc", ""),
        ("vitest", "npx --no-install vitest run", ""),
    ]
    project(top, {"package.json": json.dumps({"devDependencies": {"jest": "30"}})})
    assert kinds(top) == [("jest", "npx --no-install jest", "")]


def test_go_and_cargo_and_what_is_in_folders_below(tmp_path: Path) -> None:
    files = {
        "go.mod": "module a",
        "core/Cargo.toml": "[package]",
        "web/package.json": '{"devDependencies": {"jest": "1"}}',
    }
    files |= {"tools/go.mod": "module b", "node_modules/x/package.json": '{"devDependencies": {"eslint": "1"}}'}
    assert kinds(project(tmp_path, files)) == [
        ("jest", "npx --no-install jest", "web"),
        ("go", "go test ./...", ""),
        ("cargo", "cargo test", "core"),
    ]


def test_checks_say_how_a_tool_is_run_here(tmp_path: Path) -> None:
    top = project(tmp_path, {"pyproject.toml": "[tool.ruff]\n[tool.pytest.ini_options]\n"})
    assert kinds(top, "uv run pytest -q tests", "make docs") == [
        ("ruff", "ruff check", ""),
        ("pytest", "uv run pytest -q tests", ""),
    ]
    (top / "pyproject.toml").unlink()
    assert kinds(top, "make test") == [("command", "make test", "")]
    assert kinds(top) == []


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("pytest", "pytest"),
        ("FOO=1 python3 -m pytest -q", "pytest"),
        ("poetry run mypy src", "mypy"),
        (".venv/bin/ruff check src", "ruff"),
        ("ruff format --check", "command"),
        ("npx eslint .", "eslint"),
        ("go test ./...", "go"),
        ("go vet ./...", "command"),
        ("cargo test", "cargo"),
        ("pytest && ruff check", "command"),
        ("pytest > log", "command"),
        ("make pytest", "command"),
        ("echo 'unclosed", "command"),
    ],
)
def test_a_command_is_recognised_only_where_it_is_simple(command: str, kind: str) -> None:
    assert recognised(command) == kind


def test_scripts_of_package_json_are_looked_through(tmp_path: Path) -> None:
    top = project(tmp_path, {"package.json": '{"scripts": {"test": "vitest --ui", "lint": "eslint ."}}'})
    assert given(top, ["npm test", "npm run lint"]) == [Tool("vitest", "vitest --ui"), Tool("eslint", "eslint .")]


@pytest.mark.parametrize(
    ("tool", "asked"),
    [
        (
            Tool("pytest", "pytest -q --tb=no"),
            "pytest -q -o junit_family=xunit1 --junitxml=R --continue-on-collection-errors --tb=short",
        ),
        (Tool("ruff", "ruff check --fix src"), "ruff check --output-format json --no-fix src"),
        (Tool("mypy", "uv run mypy src"), "uv run mypy --output json src"),
        (Tool("eslint", "npx eslint . --fix"), "npx eslint . -f json"),
        (Tool("tsc", "tsc -p ."), "tsc -p . --noEmit --pretty false"),
        (Tool("jest", "jest --watch"), "jest --json --outputFile=R"),
        (Tool("vitest", "vitest --reporter dot"), "vitest run --reporter=json --outputFile=R"),
        (Tool("go", "go test -v ./..."), "go test -json ./..."),
        (Tool("cargo", "cargo test -q --all"), "cargo test --no-fail-fast --message-format json --all"),
        (Tool("command", "make test | tee log"), "make test | tee log"),
    ],
)
def test_each_tool_is_asked_for_a_report(tool: Tool, asked: str) -> None:
    assert asking(tool, "R")[0].command == asked
