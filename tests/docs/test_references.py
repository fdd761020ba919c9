"""Plugins and slots are documented: on the generated page, and on pages written by hand."""

from __future__ import annotations

import re

import pytest

from agent_orchestrator.config.projects.plugin_registry import BUILTIN_PLUGINS, SLOTS
from agent_orchestrator.testing.plugin_reference import reference
from tests.docs.pages import HANDWRITTEN_PAGES, ROOT

PLUGINS = ROOT / "docs" / "reference" / "plugins.md"
ABOUT = {
    "runtime": ("docs/docker.md", "docs/troubleshooting.md", "docs/how-to.md"),
    "agent": tuple(str(page.relative_to(ROOT)) for page in HANDWRITTEN_PAGES if page.parent.name == "agents"),
    "workspace": ("docs/workspaces.md",),
    "tracker": ("docs/github.md", "docs/gitlab.md", "docs/linear.md", "docs/jira.md"),
    "scm": ("docs/github.md", "docs/gitlab.md"),
    "notifier": ("docs/notifiers.md",),
    "terminal": ("docs/terminals.md",),
}
"""The pages about the plugins of a slot."""


def test_the_page_of_plugins_is_current() -> None:
    assert PLUGINS.read_text() == reference(), "run `make reference`"


def test_the_page_lists_every_slot_and_plugin() -> None:
    parts = re.split(r"^## `(\w+)`$", PLUGINS.read_text(), flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert set(sections) == set(SLOTS)
    for slot, plugins in BUILTIN_PLUGINS.items():
        assert set(re.findall(r"^\| `([a-z][\w-]*)` \| \S", sections[slot], re.MULTILINE)) == set(plugins)


@pytest.mark.parametrize("slot", BUILTIN_PLUGINS)
def test_every_plugin_is_documented_on_a_page_of_its_slot(slot: str) -> None:
    text = "".join((ROOT / page).read_text() for page in ABOUT[slot])
    undocumented = [
        name for name in BUILTIN_PLUGINS[slot] if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    ]
    assert undocumented == []
