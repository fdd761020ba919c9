"""A small repository with thirty failures of eight causes, found by pytest, ruff and mypy, and an agent that can fix each cause.

The agent is the scripted one: `FIX_SCRIPT` reads its task and applies the change for the cause named in the task's first line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_orchestrator.testing.sandbox import Sandbox

FILES = {
    "pyproject.toml": """\
[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
addopts = "-p no:unraisableexception -p no:threadexception"

[tool.ruff]
include = ["shop/**/*.py", "tests/**/*.py"]
lint.select = ["E4", "E7", "E9", "F"]

[tool.mypy]
files = ["shop"]
disallow_untyped_defs = true
""",
    "shop/__init__.py": "",
    # 1: five tests raise at one line
    "shop/prices.py": """\
def mean(prices: list[float]) -> float:
    return sum(prices) / (len(prices) - len(prices))


def highest(prices: list[float]) -> float:
    return max(prices) - mean(prices)
""",
    "tests/test_prices.py": """\
from shop.prices import highest, mean


def test_mean_of_one() -> None:
    assert mean([2.0]) == 2.0


def test_mean_of_two() -> None:
    assert mean([1.0, 3.0]) == 2.0


def test_highest() -> None:
    assert highest([1.0, 3.0]) == 1.0
""",
    "tests/test_report.py": """\
from shop.prices import mean


class TestReport:
    def test_first(self) -> None:
        assert round(mean([1.0, 2.0]), 1) == 1.5

    def test_second(self) -> None:
        assert mean([0.0, 0.0]) == 0.0
""",
    # 2: five tests get a wrong result of one function
    "shop/text.py": """\
def slug(title: str) -> str:
    return title.lower().replace(" ", "_")
""",
    "tests/test_text.py": """\
import pytest

from shop.text import slug


@pytest.mark.parametrize("title, expected", [("A B", "a-b"), ("Big Red Car", "big-red-car"), ("x y", "x-y")])
def test_slug(title: str, expected: str) -> None:
    assert slug(title) == expected


def test_slug_of_a_word() -> None:
    assert slug("Word") == "word"


def test_slug_of_a_name() -> None:
    assert slug("Ann Lee") == "ann-lee"


def test_slug_of_a_place() -> None:
    found = slug("New York")
    assert found == "new-york"
""",
    # 3: a name is missing: two tests and the type checker complain
    "shop/orders.py": """\
def place(name: str) -> str:
    return f"placed {name}"
""",
    "shop/api.py": """\
def undo(name: str) -> str:
    from shop.orders import cancel

    return str(cancel(name))


def undo_all(names: list[str]) -> list[str]:
    from shop.orders import cancel

    return [str(cancel(name)) for name in names]
""",
    "tests/test_api.py": """\
from shop.api import undo, undo_all


def test_undo() -> None:
    assert undo("tea") == "cancelled tea"


def test_undo_all() -> None:
    assert undo_all(["tea"]) == ["cancelled tea"]
""",
    # 4: four tests raise at one line
    "shop/settings.py": """\
DEFAULTS = {"colour": "red"}


def setting(name: str, given: dict[str, str]) -> str:
    return given[name]
""",
    "tests/test_settings.py": """\
import pytest

from shop.settings import setting


@pytest.mark.parametrize("given", [{}, {"size": "1"}, {"other": "2"}])
def test_default(given: dict[str, str]) -> None:
    assert setting("colour", given) == "red"


def test_given() -> None:
    assert setting("colour", {"colour": "blue"}) == "blue"


def test_default_beside_others() -> None:
    assert setting("colour", {"a": "b", "c": "d"}) == "red"
""",
    # 5: four unused imports in two files
    "shop/stock.py": """\
import json
import os


def left(items: dict[str, int]) -> int:
    return sum(items.values())
""",
    "shop/tax.py": """\
import math
import re


def tax(amount: float) -> float:
    return amount * 0.2
""",
    # 6: three comparisons to None
    "shop/users.py": """\
def known(name: str | None) -> bool:
    return name != None


def unknown(name: str | None) -> bool:
    return name == None


def both(first: str | None, second: str | None) -> bool:
    return known(first) and second != None
""",
    # 7: three type errors in one file
    "shop/models.py": """\
def number(text: str) -> int:
    return text


def total(parts: list[int]) -> int:
    return str(sum(parts))


def label(count: int) -> str:
    return count
""",
    # 8: two functions without types
    "shop/legacy.py": """\
def double(value):
    return value + value


def triple(value):
    return value + value + value
""",
    "tests/test_fine.py": """\
from shop.users import known
from shop.tax import tax


def test_known() -> None:
    assert known("ann")


def test_tax() -> None:
    assert tax(10.0) == 2.0
""",
}

CAUSES: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "mean": ("shop/prices.py:2", [("shop/prices.py", "(len(prices) - len(prices))", "len(prices)")]),
    "slug": ("slug()", [("shop/text.py", '" ", "_"', '" ", "-"')]),
    "cancel": (
        "cancel is missing",
        [
            (
                "shop/orders.py",
                'f"placed {name}"\n',
                'f"placed {name}"\n\n\ndef cancel(name: str) -> str:\n    return f"cancelled {name}"\n',
            )
        ],
    ),
    "setting": ("shop/settings.py:5", [("shop/settings.py", "given[name]", "given.get(name) or DEFAULTS[name]")]),
    "imports": (
        "F401",
        [("shop/stock.py", "import json\nimport os\n\n\n", ""), ("shop/tax.py", "import math\nimport re\n\n\n", "")],
    ),
    "none": ("E711", [("shop/users.py", "!= None", "is not None"), ("shop/users.py", "== None", "is None")]),
    "models": (
        "shop/models.py",
        [
            ("shop/models.py", "return text", "return int(text)"),
            ("shop/models.py", "return str(sum(parts))", "return sum(parts)"),
            ("shop/models.py", "return count", "return str(count)"),
        ],
    ),
    "legacy": ("shop/legacy.py", [("shop/legacy.py", "(value):", "(value: int) -> int:")]),
}
"""Cause → words of its title, and the changes that fix it: file, old text, new text."""

SEEDED = {"pytest": 16, "ruff": 7, "mypy": 7}
"""The number of failures by tool."""

FIX_SCRIPT = """\
import json, os, pathlib
causes = json.loads(pathlib.Path({causes!r}).read_text())
title = pathlib.Path(os.environ["AO_TASK_FILE"]).read_text().partition("\\n")[0]
for name, (words, changes) in causes.items():
    if words in title:
        for file, old, new in changes:
            path = pathlib.Path(file)
            path.write_text(path.read_text().replace(old, new))
        break
"""

CONFIG = """\
defaults: {{agent: mender, runtime: process}}
orchestrator: {{maxParallelAgents: 8}}
project:
  env: {{PATH: {path!r}, PYTEST_DISABLE_PLUGIN_AUTOLOAD: "1"}}
reactions:
  ci-failed: {{backoff: 50ms, retries: 2, escalateAfter: 2}}
agents:
  mender:
    tool: demo
    script: {script}
"""


def seed(
    box: Sandbox,
    script: str | None = None,
    causes: Sequence[str] = tuple(CAUSES),
    *,
    name: str = "app",
    extra: str = "",
) -> Path:
    """Create the repository with failures of these causes and an agent with this script; without one, the agent fixes its task's cause."""
    repo = box.repository(name, config="")
    files = dict(FILES)
    for cause, (_, changes) in CAUSES.items():
        for file, old, new in changes if cause not in causes else ():
            files[file] = files[file].replace(old, new)
    for file, text in files.items():
        (repo / file).parent.mkdir(exist_ok=True)
        (repo / file).write_text(text)
    box.git("add", *FILES)
    box.git("commit", "-q", "-m", "the shop")
    (box.folder / "causes.json").write_text(json.dumps(CAUSES))
    fix_program = box.folder / "mend.py"
    fix_program.write_text(FIX_SCRIPT.format(causes=str(box.folder / "causes.json")))
    agent_script = script or "[[sh: MEND]] [[commit: mend]] [[done: mended]]"
    agent_script = agent_script.replace("MEND", f"{sys.executable} {fix_program}")
    path = f"{Path(sys.executable).parent}:{box.env['PATH']}"
    (repo / "agent-orchestrator.yaml").write_text(CONFIG.format(path=path, script=json.dumps(agent_script)) + extra)
    return repo
