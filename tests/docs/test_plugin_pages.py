"""The pages for plugin authors show the exact code that `ao plugins new` writes.

tests/acceptance/plugins/test_plugin_packages.py runs that code.
"""

from __future__ import annotations

import re
import textwrap
import tomllib

import pytest

from agent_orchestrator.cli import scaffold
from agent_orchestrator.config.projects.plugin_registry import SLOTS
from tests.docs.pages import ROOT, blocks

FOLDER = ROOT / "docs" / "plugins"
NAMES = {slot: f"my-{slot}" for slot in SLOTS} | {"scm": "my-forge", "terminal": "my-xterm"}


def test_every_slot_has_a_page() -> None:
    linked = set(re.findall(r"\]\((\w+)\.md\)", (FOLDER / "README.md").read_text()))
    assert linked == {page.stem for page in FOLDER.glob("*.md")} - {"README"} == set(SLOTS)


@pytest.mark.parametrize("slot", SLOTS)
def test_shown_code_is_in_the_new_package(slot: str) -> None:
    files = scaffold.files(slot, NAMES[slot])
    files_of_blocks = [_holding(block.text, files) for block in blocks(FOLDER / f"{slot}.md", "python")]
    assert all(files_of_blocks), f"{slot}.md shows code that is not in the package"
    assert {name.partition("_")[0] for name in files_of_blocks} == {"ao", "tests/test"}, (
        "it shows the plugin, and its tests"
    )


def _holding(text: str, files: dict[str, str]) -> str:
    """Return the file that contains these lines at any indentation, or ""."""
    forms = [textwrap.indent(text, pad) for pad in ("", "    ", "        ")]
    return next((name for name, file in files.items() if any(form in file for form in forms)), "")


@pytest.mark.parametrize("slot", SLOTS)
def test_shown_configuration_is_that_of_the_new_package(slot: str) -> None:
    configuration = "".join(block.text for block in blocks(FOLDER / f"{slot}.md", "yaml")).replace('"', "")
    assert all(line in configuration for line in scaffold.usage(slot, NAMES[slot]).splitlines())


def test_the_shown_conftest_is_that_of_the_new_package() -> None:
    (block,) = blocks(FOLDER / "README.md", "python")
    assert scaffold.files("agent", "x")["tests/conftest.py"] == block.text


def test_the_metadata_of_a_new_package_names_the_plugin() -> None:
    for slot in SLOTS:
        metadata = tomllib.loads(scaffold.files(slot, "my-own")["pyproject.toml"])
        (entry,) = metadata["project"]["entry-points"][f"agent_orchestrator.{slot}"].items()
        module, _, kind = entry[1].partition(":")
        assert entry[0] == "my-own"
        assert f"class {kind}" in scaffold.files(slot, "my-own")[f"{module}.py"]
