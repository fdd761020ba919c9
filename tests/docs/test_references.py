"""Whatever can be used is told of: plugins and slots on the page that is made from them, and in somebody's words."""

from __future__ import annotations

import re

import pytest

from agent_orchestrator.config.projects.plugin_registry import BUILT_IN, SLOTS
from agent_orchestrator.testing.plugin_reference import reference
from tests.docs.pages import ROOT, WRITTEN

PLUGINS = ROOT / "docs" / "reference" / "plugins.md"
ABOUT = {
    "runtime": ("docs/docker.md", "docs/troubleshooting.md", "docs/how-to.md"),
    "agent": tuple(str(page.relative_to(ROOT)) for page in WRITTEN if page.parent.name == "agents"),
    "workspace": ("docs/workspaces.md",),
    "tracker": ("docs/github.md", "docs/gitlab.md", "docs/linear.md", "docs/jira.md"),
    "scm": ("docs/github.md", "docs/gitlab.md"),
    "notifier": ("docs/notifiers.md",),
    "terminal": ("docs/terminals.md",),
}
"""Where people look for the plugins of a slot."""


def test_the_page_of_plugins_is_current() -> None:
    assert PLUGINS.read_text() == reference(), "run `make reference`"


def test_every_slot_and_plugin_is_on_it() -> None:
    parts = re.split(r"^## `(\w+)`$", PLUGINS.read_text(), flags=re.MULTILINE)[1:]
    told = dict(zip(parts[::2], parts[1::2], strict=True))
    assert set(told) == set(SLOTS)
    for slot, plugins in BUILT_IN.items():
        assert set(re.findall(r"^\| `([a-z][\w-]*)` \| \S", told[slot], re.MULTILINE)) == set(plugins)


@pytest.mark.parametrize("slot", BUILT_IN)
def test_every_plugin_is_told_of_where_people_look(slot: str) -> None:
    text = "".join((ROOT / page).read_text() for page in ABOUT[slot])
    untold = [name for name in BUILT_IN[slot] if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]
    assert untold == []
