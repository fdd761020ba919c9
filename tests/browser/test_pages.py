"""Every other page, with something to show: on a desk and in a hand, light and dark, open to everybody, and quiet."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from agent_orchestrator.testing.sandbox import Sandbox
from tests.browser.driving import Person
from tests.browser.fleet import HOLD, ISSUE

Visit = Callable[..., Person]
PATIENCE = 30_000
SEEN = {
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


@pytest.mark.parametrize("look", [{}, {"phone": True, "dark": True}], ids=["desk, light", "phone, dark"])
def test_every_page_shows_its_things_to_everybody(fleet: Sandbox, visit: Visit, look: dict[str, Any]) -> None:
    person = visit(fleet, **look)
    page = person.page
    for path, texts in SEEN.items():
        person.go(path)
        for text in texts:
            if person.phone and text == "tests fails":
                person.card("Break the teapot", "Working")
            elif person.phone and text == "2 checks pass":
                person.card("Build a bench", "In review")
            elif person.phone and text == "What happened":
                continue  # there it is a tab of its own
            expect(page.get_by_text(text).or_(page.get_by_label(text)).first).to_be_visible(timeout=PATIENCE)
        assert person.barriers() == [], path
        wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= wide[1], f"{path} is wider than the window"
    assert person.complaints == []


def _done(fleet: Sandbox) -> list[str]:
    """What rules did for it; agents go on meanwhile."""
    kinds = ("reacted", "notified", "message-queued", "escalated", "action-offered")
    return [one["type"] for one in fleet.events("app-teapot") if one["type"] in kinds]


def test_a_rule_is_tried_and_nothing_is_done(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    before = _done(fleet)
    person.go("/settings")
    rule = page.get_by_role("listitem").filter(has_text=re.compile("^ci-failed"))
    rule.get_by_role("button", name="Try").click()
    dialog = page.get_by_role("dialog", name="What ci-failed would do")
    dialog.get_by_label("For the session").select_option("app-teapot")
    expect(dialog.get_by_role("region", name="ci-failed")).to_contain_text("notify")
    assert person.barriers() == []
    assert _done(fleet) == before
    assert person.complaints == []


def test_an_issue_of_the_backlog_is_taken(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    person.go("/plan")
    backlog = page.get_by_role("region", name="Backlog")
    backlog.get_by_role("listitem").filter(has_text=ISSUE).get_by_role("button", name="Start now").click()
    expect(page.get_by_role("region", name="Tasks").get_by_role("link", name=ISSUE)).to_be_visible(timeout=PATIENCE)
    expect(backlog.get_by_role("listitem").filter(has_text=ISSUE)).to_have_count(0)
    assert person.complaints == []


def test_a_token_is_made_shown_once_and_revoked(fleet: Sandbox, visit: Visit) -> None:
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
    assert person.complaints == []


def test_the_queue_shows_what_is_tried_on_what_and_lets_one_out(fleet: Sandbox, visit: Visit) -> None:
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
        expect(entry).to_contain_text("checking", timeout=PATIENCE)
        assert person.barriers() == []
        entry.get_by_role("button", name="Take out").click()
        expect(entry).to_have_count(0)
    finally:
        hold.unlink()
    refused = page.get_by_role("region", name="Turned away")
    expect(refused.get_by_role("listitem").filter(has_text="Build a bench")).to_contain_text(
        "called-off", timeout=PATIENCE
    )
    assert person.complaints == []
