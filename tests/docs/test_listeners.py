"""The page of event listeners."""

from __future__ import annotations

from agent_orchestrator.testing.listeners_reference import listeners_page
from tests.docs.pages import ROOT


def test_the_page_of_listeners_is_current() -> None:
    assert (ROOT / "docs/contributing/listeners.md").read_text(encoding="utf-8") == listeners_page(), (
        "run `make reference`"
    )
