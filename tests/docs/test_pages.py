"""The pages are correct: links work, blocks parse, and named files, functions, commands and statuses exist."""

from __future__ import annotations

import ast
import os
import re
from functools import cache
from pathlib import Path

import pytest

from agent_orchestrator.cli.app import COMMANDS
from agent_orchestrator.config.load import load_file
from agent_orchestrator.core.events import EVENT_KINDS, Unknown
from agent_orchestrator.core.status import BOARD_COLUMNS, QUIET_STATUSES
from agent_orchestrator.testing.events_reference import reference
from tests.docs.pages import HANDWRITTEN_PAGES, PACKAGE, PAGES, ROOT, Block, anchors, blocks, page_path, prose

CONCEPTS = ROOT / "docs" / "concepts.md"
EVENTS = ROOT / "docs" / "reference" / "events.md"


def test_the_main_pages_exist() -> None:
    expected = "README.md CONTRIBUTING.md CHANGELOG.md docs/index.md docs/quickstart.md docs/reference/commands.md"
    assert set(expected.split()) <= {page_path(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=page_path)
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{target} is not there"
        assert linked.is_relative_to(ROOT), f"{target} is outside the project"
        assert not anchor or anchor in anchors(linked), f"{target}: no such heading"


def test_every_page_is_linked_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    unreached = [page for page in PAGES if page.parent != ROOT and page.name != "index.md"]
    assert [page_path(page) for page in unreached if page_path(page).removeprefix("docs/") not in index] == []


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page, "python")], ids=str)
def test_python_blocks_parse(block: Block) -> None:
    ast.parse(block.text, str(block))


@pytest.mark.parametrize("block", [block for page in PAGES for block in blocks(page, "yaml")], ids=str)
def test_yaml_blocks_are_valid_configuration(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "agent-orchestrator.yaml"
    file.write_text(block.text)
    named = dict.fromkeys(re.findall(r"\$\{(\w+)\}", block.text), "x")
    assert load_file(file, {**os.environ, **named}).warnings == ()


@pytest.mark.parametrize("page", PAGES, ids=page_path)
def test_pages_contain_no_local_paths(page: Path) -> None:
    assert re.findall(r"/(?:work|root|home/\w+|Users/\w+)/\S*|/tmp/ao-\S*", page.read_text()) == []


@pytest.mark.parametrize("page", HANDWRITTEN_PAGES, ids=page_path)
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets |= set(re.findall(r"^  ([a-z-]+)\)", (ROOT / "scripts" / "suite").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= targets


def test_the_readme_names_the_two_commands() -> None:
    assert {"make demo", "make test"} <= set(re.findall(r"^make \w+", (ROOT / "README.md").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", HANDWRITTEN_PAGES, ids=page_path)
def test_commands_exist(page: Path) -> None:
    named = set(re.findall(r"(?:`|^|\$\()ao ([a-z][a-z-]*)", page.read_text(), re.MULTILINE))
    assert named <= set(COMMANDS)


@pytest.mark.parametrize("page", HANDWRITTEN_PAGES, ids=page_path)
def test_files_of_the_package_exist(page: Path) -> None:
    for named in re.findall(r"`((?:[\w]+/)*\w+\.py)`", page.read_text()):
        assert (PACKAGE / named).exists() or (ROOT / named).exists(), f"{named} is not there"


def test_functions_in_the_concepts_table_exist() -> None:
    stops = re.findall(r"^\| \d+ \| `([^`]+)` \| `([^`]+)` \|", CONCEPTS.read_text(), re.MULTILINE)
    assert len(stops) > 20
    for file, function in stops:
        assert function in _functions(PACKAGE / file), f"{file} has no {function}"


# The page about upgrading names what was.
@pytest.mark.parametrize("page", [page for page in HANDWRITTEN_PAGES if page.name != "upgrading.md"], ids=page_path)
def test_methods_exist(page: Path) -> None:
    named = set(re.findall(r"`([A-Z][a-z]\w+\.[a-z_]+)`", page.read_text()))
    assert not named or named <= _all_functions()


@cache
def _all_functions() -> set[str]:
    return {function for file in PACKAGE.rglob("*.py") for function in _functions(file)}


def _functions(file: Path) -> set[str]:
    """Return the functions of a file, methods as `Class.method`."""
    names = set()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, kinds):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, kinds)}
    return names


@pytest.mark.parametrize(
    "symptom",
    [
        "tmux is not found",
        "The worktree, the branch or the session exists already",
        "An agent does not respond",
        "The port is in use",
        "GitHub or GitLab says no",
        "Conflicts with the base branch",
    ],
)
def test_common_problems_are_in_troubleshooting(symptom: str) -> None:
    assert f"\n## {symptom}\n" in (ROOT / "docs" / "troubleshooting.md").read_text()


def test_every_status_is_listed_with_its_column() -> None:
    table = CONCEPTS.read_text().partition("## Statuses")[2].partition("\n## ")[0]
    documented: dict[str, str] = {}
    for statuses, column in re.findall(r"^\| ((?:`\w+` ?)+)\| ([^|]+?) \|", table, re.MULTILINE):
        documented |= dict.fromkeys(re.findall(r"\w+", statuses), column)
    assert documented == {
        status: f"{column}, quiet" if status in QUIET_STATUSES else column for status, column in BOARD_COLUMNS.items()
    }


def test_the_page_of_events_is_current() -> None:
    assert EVENTS.read_text() == reference(), (
        "run `python -m agent_orchestrator.testing.events_reference docs/reference/events.md`"
    )


def test_every_kind_of_event_is_explained() -> None:
    explained = re.findall(r"^### `([a-z-]+)`\n\n\w", EVENTS.read_text(), re.MULTILINE)
    assert sorted(explained) == sorted(kind for kind, body in EVENT_KINDS.items() if body is not Unknown)
