"""Detecting set-up, test and lint commands from a repository's files: a miniature of each ecosystem, and hostile files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.config.detection import detect_commands
from agent_orchestrator.config.detection.repository import detect_repository

MINIATURES = Path(__file__).parents[3] / "miniatures"
NAMES = sorted(path.name for path in MINIATURES.iterdir() if path.is_dir())


def expected(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((MINIATURES / name / "expected.json").read_text())
    return document


@pytest.mark.parametrize("name", NAMES)
def test_commands_of_each_ecosystem_are_detected(name: str) -> None:
    commands = expected(name)
    first = detect_commands(MINIATURES / name)[0]
    assert (first.ecosystem, list(first.set_up), first.test, first.lint) == (
        commands["ecosystem"],
        commands["setUp"],
        commands["test"],
        commands["lint"],
    )
    assert first.evidence and all((MINIATURES / name / file).is_file() for file in first.evidence)


@pytest.mark.parametrize("name", [name for name in NAMES if "runsWith" in expected(name)])
def test_the_detected_commands_succeed(name: str, tmp_path: Path) -> None:
    missing = [program for program in expected(name)["runsWith"] if shutil.which(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    checkout = tmp_path / "checkout"
    shutil.copytree(MINIATURES / name, checkout)
    detected = detect_repository(checkout)
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "CI": "1"}
    for command in (*detected.set_up, detected.test_command or "false"):
        completed = subprocess.run(
            ["sh", "-c", command], cwd=checkout, env=environ, capture_output=True, text=True, timeout=600, check=False
        )
        assert completed.returncode == 0, f"{command}\n{completed.stdout}{completed.stderr}"


HOSTILE = {
    "pyproject.toml": (
        "[tool]\na = " + "[" * 50_000,
        "project = 3\ntool = 4\ndependency-groups = 5\n",
        "[tool.tox]\nenv_list = [3]\nenv = 3",
    ),
    "package.json": (
        "{" * 50_000,
        '{"scripts": [], "main": [1], "packageManager": {}}',
        '{"scripts": {"test": ["--watch"]}}',
    ),
    "tox.ini": (
        "[tox]\nenvlist = " + "py{1-999,a}-" * 9000,
        "[testenv]\ncommands = pytest " + "{posargs:" * 7000,
        "[testenv]\ndeps = {[a]deps}\n[a]\ndeps = " + "{[a]deps}" * 7000,
    ),
    "setup.py": ("extras_require={" + "'a': ['b'" * 20_000, "extras_require = {'a': " + "(" * 100_000),
    "noxfile.py": ("x = " + "(" * 100_000, "@nox.session\ndef tests(session):\n    session.install(*" + "-" * 90_000),
    ".github/workflows/ci.yml": (
        "jobs:\n  a:\n    steps:\n" + "      - run: pytest 'a\n" * 20_000,
        "jobs:\n a:\n  steps:\n  - run: |\n" + "     \\\n" * 20_000,
    ),
    "requirements-test.txt": ("-r requirements-test.txt\n-r ../x\n" * 9000, "\0" * 90_000),
    "Makefile": ("test" * 60_000, "test: " + "a " * 90_000, "\n" * 200_000),
    "yarn.lock": ("# yarn lockfile v1 " * 200_000,),
    "CMakeLists.txt": ("add_test" * 90_000,),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_neither_stop_nor_delay_detection(name: str, tmp_path: Path) -> None:
    for number, content in enumerate(HOSTILE[name]):
        checkout = tmp_path / str(number)
        shutil.copytree(MINIATURES / "python-tox", checkout)
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(content)
        assert all(way.test or way.set_up for way in detect_commands(checkout))


def test_only_plain_files_of_the_repository_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('{"scripts": {"test": "node steal.js"}}')
    checkout = tmp_path / "place"
    checkout.mkdir()
    os.mkfifo(checkout / "Makefile")
    os.mkfifo(checkout / "tox.ini")
    (checkout / "package.json").symlink_to(secret)
    (checkout / ".github").symlink_to(tmp_path)
    (checkout / "loop").symlink_to(checkout)
    assert [way for way in detect_commands(checkout) if way.test] == []
    assert detect_commands(tmp_path / "missing") == []
