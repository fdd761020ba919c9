"""The walks of docs/architecture.md: each step names a function that is there, and that an earlier step or the outbox leads to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "agent_orchestrator"
MAX_FILES = {
    "A check fails, and the agent gets a message": 20,
    "`ao new`, until the agent runs": 22,
    "A webhook of GitHub, until the change is merged": 18,
}
_ROW = re.compile(r"\| (?P<how>[^|]+) \| `(?P<file>[\w/]+\.py)` \| (?P<functions>[^|]+) \| [^|]*\|")
_KIND = re.compile(r"(call|effect|event|route|rows)(?: `([\w-]+)`)?")


@dataclass(frozen=True)
class Step:
    """One row: how control gets there, the file, and the functions in the order in which they are called."""

    how: str
    file: str
    functions: tuple[str, ...]


def read_walks() -> dict[str, list[Step]]:
    """Return the steps of each walk by its heading."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("\n## Three walks\n")[2].partition("\n## ")[0]
    walks = {}
    for part in section.split("\n### ")[1:]:
        heading, _, table = part.partition("\n")
        rows = [match for line in table.splitlines() if (match := _ROW.fullmatch(line.strip()))]
        walks[heading] = [
            Step(row["how"], row["file"], tuple(re.findall(r"`([\w.]+)`", row["functions"]))) for row in rows
        ]
    return walks


@cache
def functions_of(file: str) -> dict[str, ast.AST]:
    """Return the functions and methods of a module by qualified name."""

    def definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + statement.name, statement
            elif isinstance(statement, ast.ClassDef):
                yield from definitions(statement.body, f"{prefix}{statement.name}.")

    return dict(definitions(ast.parse((SOURCE / file).read_bytes()).body))


def names_in(node: ast.AST) -> set[str]:
    """Return all names and attributes that a piece of code uses."""
    parts = list(ast.walk(node))
    return {part.id for part in parts if isinstance(part, ast.Name)} | {
        part.attr for part in parts if isinstance(part, ast.Attribute)
    }


@cache
def effect_tables() -> str:
    """Return the source of all functions that say which function carries out which kind of intent."""
    return "\n".join(
        ast.unparse(node)
        for path in SOURCE.rglob("*.py")
        if "effects" in path.read_text()
        for name, node in functions_of(str(path.relative_to(SOURCE))).items()
        if name.endswith(("effects", "effects_of"))
    )


@pytest.mark.parametrize("heading", MAX_FILES)
def test_a_walk_passes_few_files(heading: str) -> None:
    files = {step.file for step in read_walks()[heading]}
    assert 10 < len(files) <= MAX_FILES[heading], sorted(files)


@pytest.mark.parametrize("heading", MAX_FILES)
def test_a_file_is_entered_at_most_twice(heading: str) -> None:
    files = [step.file for step in read_walks()[heading]]
    entered = [file for file, before in zip(files, [None, *files], strict=False) if file != before]
    assert not {file for file in entered if entered.count(file) > 2}, "once on the way in, once on the way out"


@pytest.mark.parametrize("heading", MAX_FILES)
def test_every_step_is_in_the_code_and_follows_from_an_earlier_one(heading: str) -> None:
    reachable: set[str] = set()
    for number, step in enumerate(read_walks()[heading], 1):
        definitions = functions_of(step.file)
        missing = [name for name in step.functions if name not in definitions]
        assert not missing, f"step {number}: {step.file} has no {missing}"
        match = _KIND.fullmatch(step.how)
        assert match, f"step {number}: {step.how}"
        first = step.functions[0].rpartition(".")[2]
        source = (SOURCE / step.file).read_text()
        if match[1] == "call" and number > 1 and first != "__call__":
            assert first in reachable, f"step {number}: no earlier step uses {first}"
        elif match[1] == "effect":
            assert re.search(rf"'{match[2]}': .*?\b{first}\b", effect_tables()), f"step {number}: no effect {match[2]}"
        elif match[1] == "event":
            assert re.search(rf"\be\.{match[2]}\b", source), f"step {number}: {step.file} does not name {match[2]}"
        elif match[1] == "route":
            assert "router" in ast.unparse(definitions[step.functions[0]]).partition("def ")[0], f"step {number}"
        elif match[1] == "rows":
            assert f"on_rows(self.{first})" in source or f"on(self.{first}" in source, f"step {number}"
        for name in step.functions:
            assert name == step.functions[0] or name.rpartition(".")[2] in reachable, (
                f"step {number}: nothing uses {name}"
            )
            reachable |= names_in(definitions[name]) | (
                {"_write_forever"} if name == "Flow.append" else set()
            )  # its task
