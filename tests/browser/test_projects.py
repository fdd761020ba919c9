"""A person adds a repository in the dashboard, sees the detected set-up, trusts it with one click, and reads the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from agent_orchestrator.testing.sandbox import Sandbox
from tests.browser.person import Person

TIMEOUT_MS = 60_000
MAKEFILE = "test:\n\tpython3 sums.py\n"
SUMS = """\
import unittest

class Sums(unittest.TestCase):
    def test_one(self): pass
    def test_two(self): pass

if __name__ == "__main__":
    unittest.main(verbosity=2)
"""


def add(shop: Sandbox, person: Person) -> Any:
    """Add a repository with two passing tests in the dashboard and return the dialog that opens."""
    repo = shop.folder / "sums"
    repo.mkdir()
    (repo / "Makefile").write_text(MAKEFILE)
    (repo / "sums.py").write_text(SUMS)
    shop.git("init", "-q", "-b", "main", cwd=repo)
    shop.git("add", ".", cwd=repo)
    shop.git("commit", "-q", "-m", "start", cwd=repo)
    person.go("/projects")
    person.page.get_by_role("button", name="Add a repository").click()
    person.page.get_by_label("Folder on the daemon's machine").fill(str(repo))
    person.page.get_by_role("button", name="Add", exact=True).click()
    dialog = person.page.get_by_role("dialog", name="Set-up and tests of sums")
    expect(dialog.get_by_text("make test", exact=True)).to_be_visible(timeout=TIMEOUT_MS)
    expect(dialog.get_by_text("with your rights")).to_be_visible()
    return dialog


def test_the_detected_set_up_is_trusted_and_proven_by_one_click(shop: Sandbox, visit: Callable[..., Person]) -> None:
    person = visit(shop)
    dialog = add(shop, person)
    assert person.accessibility_violations() == []
    dialog.get_by_role("button", name="Trust and prove").click()
    expect(dialog.get_by_text("2 passed")).to_be_visible(timeout=TIMEOUT_MS)
    assert person.accessibility_violations() == []
    dialog.get_by_role("button", name="Close").last.click()
    card = person.page.get_by_role("article", name="sums")
    expect(card.get_by_role("button", name="Prove set-up and checks")).to_be_visible(timeout=TIMEOUT_MS)
    expect(card.get_by_text("commands not trusted")).not_to_be_visible()
    assert person.browser_errors == []


def test_a_postponed_set_up_is_trusted_and_proven_later(shop: Sandbox, visit: Callable[..., Person]) -> None:
    person = visit(shop)
    add(shop, person).get_by_role("button", name="Not now").click()
    page = person.page
    card = page.get_by_role("article", name="sums")
    expect(card.get_by_text("commands not trusted")).to_be_visible(timeout=TIMEOUT_MS)
    card.get_by_role("button", name="See what it wants to run").click()
    trust = page.get_by_role("dialog", name="Commands that came with sums")
    expect(trust.get_by_text("make test")).to_be_visible(timeout=TIMEOUT_MS)
    trust.get_by_role("button", name="Trust them").click()
    expect(card.get_by_text("commands not trusted")).not_to_be_visible(timeout=TIMEOUT_MS)
    card.get_by_role("button", name="Prove set-up and checks").click()
    proving = page.get_by_role("dialog", name="Prove sums")
    proving.get_by_role("button", name="Prove", exact=True).click()
    expect(proving.get_by_text("2 passed")).to_be_visible(timeout=TIMEOUT_MS)
    assert person.browser_errors == []
