"""All pages with content: on desktop and phone, light and dark, accessible, and without errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from agent_orchestrator.testing.sandbox import Sandbox
from tests.browser.fleet import HOLD, ISSUE
from tests.browser.person import Person

Visit = Callable[..., Person]
TIMEOUT_MS = 30_000
EXPECTED_TEXTS = {
    "/": ["Which colour shall it have?", "tests fails", "2 checks pass"],
    "/queue": ["Merge queue"],
    "/plan": ["Paint the bench", "Queued", ISSUE],
    "/usage": ["$0.70 in all", "sessions begun", "app-works"],
    "/projects": ["agent-orchestrator.yaml", "8 sessions"],
    "/settings": ["demo", "ci-failed", "What people were told", "New token for"],
    "/sessions/app-asks": ["Which colour shall it have?", "What happened"],
    "/nowhere": ["There is no such page"],
    "/sessions/app-nobody": ["There is no session app-nobody"],
}


@pytest.mark.parametrize("appearance", [{}, {"phone": True, "dark": True}], ids=["desk, light", "phone, dark"])
def test_every_page_shows_its_content_accessibly(fleet: Sandbox, visit: Visit, appearance: dict[str, Any]) -> None:
    person = visit(fleet, **appearance)
    page = person.page
    for path, texts in EXPECTED_TEXTS.items():
        person.go(path)
        for text in texts:
            if person.phone and text == "tests fails":
                person.card("Break the teapot", "Working")
            elif person.phone and text == "2 checks pass":
                person.card("Build a bench", "In review")
            elif person.phone and text == "What happened":
                continue  # it is a separate tab there
            expect(page.get_by_text(text).or_(page.get_by_label(text)).first).to_be_visible(timeout=TIMEOUT_MS)
        assert person.accessibility_violations() == [], path
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"{path} is wider than the window"
    assert person.browser_errors == []


def _rule_events(fleet: Sandbox) -> list[str]:
    """Return the types of events that rules caused for a session."""
    kinds = ("reacted", "notified", "message-queued", "escalated", "action-offered")
    return [event["type"] for event in fleet.events("app-teapot") if event["type"] in kinds]


def test_trying_a_rule_changes_nothing(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    before = _rule_events(fleet)
    person.go("/settings")
    rule = page.get_by_role("listitem").filter(has_text=re.compile("^ci-failed"))
    rule.get_by_role("button", name="Try").click()
    dialog = page.get_by_role("dialog", name="What ci-failed would do")
    dialog.get_by_label("For the session").select_option("app-teapot")
    expect(dialog.get_by_role("region", name="ci-failed")).to_contain_text("notify")
    assert person.accessibility_violations() == []
    assert _rule_events(fleet) == before
    assert person.browser_errors == []


def test_an_issue_of_the_backlog_is_started(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    person.go("/plan")
    backlog = page.get_by_role("region", name="Backlog")
    backlog.get_by_role("listitem").filter(has_text=ISSUE).get_by_role("button", name="Start now").click()
    expect(page.get_by_role("region", name="Tasks").get_by_role("link", name=ISSUE)).to_be_visible(timeout=TIMEOUT_MS)
    expect(backlog.get_by_role("listitem").filter(has_text=ISSUE)).to_have_count(0)
    assert person.browser_errors == []


def test_a_token_is_created_shown_once_and_revoked(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    person.go("/settings")
    access = page.get_by_role("region", name="Access")
    access.get_by_label("New token for").fill("Ada's phone")
    access.get_by_role("button", name="Make").click()
    expect(access.get_by_role("status")).to_contain_text("Copy it now")
    mine = access.get_by_role("listitem").filter(has_text="Ada's phone")
    expect(mine).to_contain_text("viewer")
    mine.get_by_role("button", name="Revoke").click()
    expect(mine).to_have_count(0)
    assert person.browser_errors == []


def test_the_queue_shows_its_entries_and_removes_one(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    person.go("/queue")
    expect(page.get_by_text("Nothing waits to land")).to_be_visible()
    hold = fleet.user_home / HOLD
    hold.touch()
    try:
        for name in ("fence", "bench"):
            fleet.request("POST", f"/api/sessions/app-{name}/merge")
        lane = page.get_by_role("region", name="onto main")
        entry = lane.get_by_role("listitem").filter(has_text="Build a bench")
        expect(entry).to_contain_text("checking", timeout=TIMEOUT_MS)
        assert person.accessibility_violations() == []
        entry.get_by_role("button", name="Take out").click()
        expect(entry).to_have_count(0)
    finally:
        hold.unlink()
    refused = page.get_by_role("region", name="Turned away")
    expect(refused.get_by_role("listitem").filter(has_text="Build a bench")).to_contain_text(
        "called-off", timeout=TIMEOUT_MS
    )
    assert person.browser_errors == []
