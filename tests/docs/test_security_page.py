"""The tests that the threat model names exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@cache
def named_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_every_named_test_exists(file: str, test: str) -> None:
    assert test in named_in(file)


def test_every_attacker_has_defences_with_tests() -> None:
    model = PAGE.partition("## Threat model")[2].partition("\n## ")[0]
    attackers = re.split(r"^### ", model, flags=re.MULTILINE)[1:]
    assert len(attackers) == 8 and len(NAMED) > 40
    for attacker in attackers:
        rows = [line for line in attacker.splitlines() if line.startswith("| ") and "---" not in line][1:]
        assert rows and all("`tests/" in row for row in rows), attacker.splitlines()[0]
