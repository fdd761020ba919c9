"""The written lint command checks the same files as the project's own, without the virtual environment of the set-up."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_orchestrator.config.detection import detect_commands

PYPROJECT = """[project]
name = "shop"
version = "1"
[project.optional-dependencies]
test = ["pytest", "flake8"]
"""


@pytest.mark.parametrize(
    ("ours", "written"),
    [
        ("flake8", "flake8 --extend-exclude=.venv"),
        ("flake8 .", "flake8 . --extend-exclude=.venv"),
        ("flake8 --count --max-line-length 100", "flake8 --count --max-line-length 100 --extend-exclude=.venv"),
        ("flake8 shop", "flake8 shop"),
    ],
)
def test_flake8_does_not_check_the_environment_in_the_workspace(tmp_path: Path, ours: str, written: str) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "shop.py").touch()
    (tmp_path / "test_shop.py").write_text("def test_shop():\n    import shop\n")
    workflow = tmp_path / ".github" / "workflows" / "lint.yml"
    workflow.parent.mkdir(parents=True)
    steps = f"      - run: pip install -e .[test]\n      - run: {ours}\n      - run: pytest\n"
    workflow.write_text(f"on: push\njobs:\n  lint:\n    runs-on: ubuntu-latest\n    steps:\n{steps}")
    assert detect_commands(tmp_path)[0].lint == f". .venv/bin/activate && {written}"
