"""Detection of a project's tools, and the commands that produce their reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent_orchestrator.fleet.fixes.detection import configured_tools, detect_tools
from agent_orchestrator.fleet.fixes.model import FROM_CI, CheckTool, with_unique_names
from agent_orchestrator.fleet.fixes.tools import tool_commands, tool_kind_of


def project(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


def kinds(top: Path, *ci: str) -> list[tuple[str, str, str]]:
    configured = configured_tools(top, ci)
    return [
        (tool.kind, tool.command, tool.folder) for tool in [*configured, *detect_tools(top, configured, tested=False)]
    ]


def test_tools_of_python_projects_are_detected(tmp_path: Path) -> None:
    pyproject = '[project]\nname = "a"\n[dependency-groups]\ndev = ["ruff>=0.4", "mypy"]\n[tool.pytest.ini_options]\n'
    pyproject += "[tool.ruff]\ninclude = ['src/**/*.py']\n"
    top = project(tmp_path, {"pyproject.toml": pyproject, "mypy.ini": "[mypy]\nfiles = src\n"})
    python = {("ruff", "ruff check", ""), ("mypy", "mypy", "")}
    assert python < set(kinds(top))
    project(top, {".venv/bin/mypy": "", "uv.lock": ""})
    assert {("ruff", "uv run ruff check", ""), ("mypy", ".venv/bin/mypy", "")} < set(kinds(top))


def test_a_linter_without_a_configured_scope_is_not_run(tmp_path: Path) -> None:
    pyproject = (
        "[dependency-groups]\ndev = ['ruff', 'mypy']\n[tool.ruff]\nline-length = 90\n[tool.mypy]\nstrict = true\n"
    )
    package = {"devDependencies": {"eslint": "9", "typescript": "5"}}
    files = {
        "pyproject.toml": pyproject,
        "package.json": json.dumps(package),
        "eslint.config.js": "",
        "tsconfig.json": "{}",
    }
    files["mypy.ini"] = "[mypy]\nstrict = true\n[mypy-other.*]\nfiles = x\n"
    assert not {kind for kind, _, _ in kinds(project(tmp_path, files))} & {"ruff", "mypy", "eslint", "tsc"}


def test_a_linter_outside_the_projects_environment_is_not_run(tmp_path: Path) -> None:
    """A linter on the PATH may have another version and report other errors."""
    top = project(tmp_path, {"pyproject.toml": "[tool.mypy]\nfiles = ['a.py']\n[tool.ruff]\ninclude = ['a.py']\n"})
    assert {kind for kind, _, _ in kinds(top)} == {"mypy", "ruff"}
    project(top, {".venv/bin/python": "", ".venv/bin/ruff": ""})
    assert [command for kind, command, _ in kinds(top) if kind in ("mypy", "ruff")] == [".venv/bin/ruff check"]


def test_no_second_test_runner_is_detected_beside_a_command_that_runs_tests(tmp_path: Path) -> None:
    top = project(tmp_path, {"tests/test_a.py": "", "pyproject.toml": "[tool.pytest.ini_options]\n"})
    for command in (
        "python runtests.py",
        "make test",
        "PYTHONPATH=. python manage.py test",
        "./run_tests.sh -q",
        "tox",
    ):
        assert kinds(top, command) == [("command", command, "")]
    assert len(kinds(top, "make latest")) == 2


def test_files_alone_are_enough_to_detect_pytest(tmp_path: Path) -> None:
    [(kind, command, folder)] = kinds(project(tmp_path, {"tests/test_a.py": "def test_a(): ..."}))
    assert (kind, folder) == ("pytest", "") and "pytest" in command


def test_tools_of_node_projects_are_detected(tmp_path: Path) -> None:
    package = {
        "scripts": {"style": "eslint src --max-warnings 0", "spec": "vitest", "build": "rm -rf dist && tsc -p src"},
        "devDependencies": {"eslint": "9", "typescript": "5", "vitest": "3"},
    }
    top = project(tmp_path, {"package.json": json.dumps(package), "tsconfig.json": "{}"})
    assert kinds(top) == [
        ("eslint", "npx --no-install eslint src --max-warnings 0", ""),
        ("tsc", "npx --no-install tsc -p src --noEmit", ""),
        ("vitest", "npm run spec", ""),
    ]
    project(top, {"package.json": json.dumps({"devDependencies": {"jest": "30"}})})
    assert kinds(top) == [("jest", "npx --no-install jest", "")]


def test_tools_in_subfolders_are_detected(tmp_path: Path) -> None:
    files = {"core/Cargo.toml": "[package]", "web/package.json": '{"devDependencies": {"jest": "1"}}'}
    files |= {"tools/go.mod": "module b", "node_modules/x/package.json": '{"devDependencies": {"eslint": "1"}}'}
    assert kinds(project(tmp_path, files)) == [
        ("jest", "npx --no-install jest", "web"),
        ("go", "go test ./...", "tools"),
        ("cargo", "cargo test", "core"),
    ]


def test_configured_commands_come_first_and_are_not_duplicated(tmp_path: Path) -> None:
    top = project(tmp_path, {"pyproject.toml": "[tool.ruff]\ninclude = ['src']\n[tool.pytest.ini_options]\n"})
    assert kinds(top, "uv run pytest -q tests", "make docs") == [
        ("pytest", "uv run pytest -q tests", ""),
        ("command", "make docs", ""),
        ("ruff", "ruff check", ""),
    ]
    makefile = "all: docs\ncheck: lint \\\n  test\n\nlint:\n\t@ruff check src\ntest: ; pytest -q\ndocs:\n\techo\n"
    (top / "Makefile").write_text(makefile)
    assert kinds(top, "make check") == [("command", "make check", "")]
    assert ("ruff", "ruff check", "") in kinds(top, "make docs", "pytest")
    (top / "package.json").write_text(
        json.dumps({"scripts": {"check": "npm run lint && sh test.sh", "lint": "ruff check"}})
    )
    (top / "test.sh").write_text("python -m pytest -q\n")
    assert kinds(top, "npm run check", "npm run check") == [("command", "npm run check", "")]


def test_tools_have_unique_names() -> None:
    tools = [
        CheckTool("pytest", "pytest a"),
        CheckTool("pytest", "pytest b"),
        CheckTool("ruff", "ruff check"),
        CheckTool("command", "x" * 60),
    ]
    names = [tool.name for tool in with_unique_names([*tools, CheckTool("command", "x" * 61)])]
    assert names == ["pytest a", "pytest b", "ruff", "x" * 39 + "…", "x" * 39 + "… (2)"]


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
        (". .venv/bin/activate && python -m pytest -q", "pytest"),
        ("set -e; source venv/bin/activate; mypy src", "mypy"),
        ("export A=1 && pytest", "pytest"),
        ("cd web && npx jest", "command"),
        ("uv run --extra test --frozen pytest", "pytest"),
        ("mypy src/*.py", "command"),
        ("pytest $ARGS", "command"),
        ("pytest -k 'not slow*'", "pytest"),
    ],
)
def test_a_tool_is_recognized_only_in_a_simple_command(command: str, kind: str) -> None:
    assert tool_kind_of(command) == kind


def test_package_json_scripts_run_through_their_package_manager(tmp_path: Path) -> None:
    scripts = {"test": "vitest --ui", "lint": "eslint .", "fix": "eslint --fix .", "spec": "jest", "prespec": "tsc"}
    top = project(tmp_path, {"package.json": json.dumps({"scripts": scripts})})
    tools = configured_tools(top, ["npm test", "pnpm lint", "npm run fix", "npm run spec"])
    assert tools == [
        CheckTool("vitest", "npm test", source=FROM_CI),
        CheckTool("eslint", "pnpm lint", source=FROM_CI),
        CheckTool("eslint", "npm run fix", source=FROM_CI),
        CheckTool("command", "npm run spec", source=FROM_CI),
    ]
    commands = [tool_commands(tool, "R", scripts)[0].command for tool in tools]
    assert commands == [
        "npm test --silent -- --reporter=json --outputFile=R",
        "pnpm lint -f json",
        "npm run fix",
        "npm run spec",
    ], "what changes files, or is more than its script, is run as it is"


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (
            CheckTool("pytest", "pytest -q --tb=no"),
            "pytest -q -o junit_family=xunit1 --junitxml=R --continue-on-collection-errors --tb=short",
        ),
        (CheckTool("ruff", "ruff check -q src"), "ruff check --output-format json src"),
        (CheckTool("ruff", "ruff check --exit-zero src"), "ruff check --exit-zero src"),
        (CheckTool("ruff", "set -e; ruff check src"), "set -e; ruff check --output-format json src"),
        (CheckTool("mypy", "uv run mypy src"), "uv run mypy --output json src"),
        (CheckTool("eslint", "npx eslint . --fix"), "npx eslint . --fix"),
        (CheckTool("eslint", "npx eslint ."), "npx eslint . -f json"),
        (CheckTool("tsc", "tsc -p ."), "tsc -p . --pretty false"),
        (CheckTool("jest", "jest --watch"), "jest --json --outputFile=R"),
        (CheckTool("vitest", "vitest --reporter dot"), "vitest run --reporter=json --outputFile=R"),
        (CheckTool("go", "go test -v ./..."), "go test -json ./..."),
        (CheckTool("cargo", "cargo test -q --all"), "cargo test --no-fail-fast --message-format json --all"),
        (CheckTool("command", "make test | tee log"), "make test | tee log"),
    ],
)
def test_each_tool_has_a_command_that_produces_a_report(tool: CheckTool, expected: str) -> None:
    ways = tool_commands(tool, "R")
    assert ways[0].command == expected
    assert ways[-1].plain and ways[-1].command == tool.command
