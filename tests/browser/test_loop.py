"""The demo in the browser: answer, comment on a line, see the fix, approve, merge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from agent_orchestrator.testing.demo import ISSUES
from agent_orchestrator.testing.sandbox import Sandbox
from tests.browser.person import Person

Visit = Callable[..., Person]
TIMEOUT_MS = 30_000


def begin(box: Sandbox, *names: str) -> None:
    for name in names:
        title, body = ISSUES[name]
        number = box.request("POST", "/api/issues", {"title": title, "body": body})["number"]
        box.request("POST", "/api/sessions", {"name": name, "issue": str(number), "agent": name})


@pytest.mark.parametrize("appearance", [{}, {"phone": True}, {"dark": True}, {"phone": True, "dark": True}], ids=str)
def test_a_person_answers_reviews_and_merges(shop: Sandbox, visit: Visit, appearance: dict[str, Any]) -> None:
    person = visit(shop, **appearance)
    page = person.page
    begin(shop, "storage", "report")

    asking = person.card(ISSUES["storage"][0], "Needs you")
    expect(asking).to_contain_text("Which database shall I use?", timeout=TIMEOUT_MS)
    assert person.accessibility_violations() == []
    asking.get_by_role("textbox").fill("PostgreSQL")
    asking.get_by_role("button", name="Answer").click()
    shop.wait_until(lambda: shop.session("shop-storage")["pr"], "the agent to go on")
    assert "PostgreSQL" in shop.git("show", f"{shop.session('shop-storage')['branch']}:shop/store.py")

    title = ISSUES["report"][0]
    person.card(title, "In review").get_by_role("link", name=title).click(timeout=TIMEOUT_MS)
    page.get_by_role("link", name="Changes").click()
    page.get_by_role("button", name="Comment on shop/report.py").click()
    page.get_by_role("spinbutton", name="Line").fill("2")
    page.get_by_role("button", name="Write a comment").click()
    page.get_by_role("textbox", name="Your comment on line 2").fill("Please write the month as a word.")
    page.get_by_role("button", name="Keep").click()
    assert person.accessibility_violations() == []
    page.get_by_role("button", name="Finish the review").click()
    page.get_by_role("button", name="Request changes").click()

    expect(page.get_by_text("The month is a word now, and can be given.")).to_be_visible(timeout=TIMEOUT_MS)
    shop.wait_until(
        lambda: shop.session("shop-report")["status"] == "review_pending", "the mended change to be checked"
    )
    page.get_by_role("button", name="Review", exact=True).click()
    page.get_by_role("button", name="Approve", exact=True).click()
    person.go("/")
    person.card(title, "Ready to merge").get_by_role("button", name="Merge").click(timeout=TIMEOUT_MS)
    expect(person.card(title, "Done")).to_contain_text("Merged", timeout=TIMEOUT_MS)

    assert "November" in shop.git("show", "main:shop/report.py")
    assert person.accessibility_violations() == []
    assert person.browser_errors == []
