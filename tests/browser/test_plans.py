"""From a goal to merged changes in the browser; accounts, budgets and coordinators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from tests.browser.person import Person

Visit = Callable[..., Person]
TIMEOUT_MS = 30_000
CONFIG = """\
defaults: {{agent: demo, runtime: {runtime}}}
projects:
  app: {{path: ., budget: {{perDay: 5 USD, perSession: 2 USD}}}}
agents:
  builder: {{tool: demo, filters: {{labels: [build]}}}}
  anybody: {{tool: demo}}
reactions:
  approved-and-green: {{auto: true}}
"""
GOAL = "A house\n- Lay the ground\n- Build the walls (after 1)\n[[usage: input=10 output=5 usd=0.25]]"
MAKES = "[[write: {0}.txt|{0}]] [[commit: Make {0}]] [[done: made {0}]]"
CIRCLE = '[[plan: {"tasks": [{"id": "a", "title": "A", "dependencies": ["b"]}, {"id": "b", "title": "B", "dependencies": ["a"]}]}]]'


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    """A repository with two profiles, budgets, and a rule that merges approved changes."""
    with Sandbox(tmp_path, "tmux" if have_tmux() else "process") as box:
        box.repository("app", config=CONFIG.format(runtime=box.runtime))
        box.start()
        box.request("POST", "/api/projects", {"path": str(box.repo)})
        yield box


def row(page: Any, title: str) -> Any:
    return page.get_by_role("region", name="Tasks").get_by_role("row").filter(has_text=title)


def approve(box: Sandbox, session: str) -> None:
    box.wait_until(lambda: box.session(session)["status"] == "review_pending", f"{session} to be ready for review", 60)
    box.request("POST", f"/api/sessions/{session}/review", {"verdict": "approved"})


@pytest.mark.parametrize("appearance", [{}, {"phone": True, "dark": True}], ids=["desk, light", "phone, dark"])
def test_from_a_goal_to_merged_changes(site: Sandbox, visit: Visit, appearance: dict[str, Any]) -> None:
    person = visit(site, **appearance)
    page = person.page
    person.go("/plan")
    page.get_by_role("button", name="New plan").click()
    page.get_by_label("What is to be achieved").fill(GOAL)
    assert person.accessibility_violations() == []
    page.get_by_role("button", name="Plan", exact=True).click()

    expect(page.get_by_role("heading", name="A house")).to_be_visible(timeout=TIMEOUT_MS)
    expect(row(page, "Build the walls")).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.get_by_role("group", name="Graph of the plan").get_by_role("listitem")).to_have_count(2)
    expect(page.get_by_text("app $0.25 of $5.00")).to_be_visible()
    assert site.sessions() == []

    row(page, "Lay the ground").get_by_role("button", name="Edit").click()
    form = page.get_by_role("form", name="Task t1")
    form.get_by_label("Title of t1").fill(" ")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("task t1 has no title")
    assert person.accessibility_violations() == []
    form.get_by_label("Title of t1").fill("Lay solid ground")
    form.get_by_label("Description").fill(MAKES.format("ground"))
    form.get_by_label("Labels").fill("build")
    form.get_by_role("button", name="Save").click()
    expect(row(page, "Lay solid ground")).to_contain_text("build")
    expect(row(page, "Lay solid ground")).to_be_focused()
    row(page, "Build the walls").get_by_role("button", name="Edit").click()
    form = page.get_by_role("form", name="Task t2")
    expect(form.get_by_label("Lay solid ground")).to_be_checked()
    form.get_by_label("Description").fill(MAKES.format("walls"))
    form.get_by_label("Profile").select_option("anybody")
    form.get_by_role("button", name="Save").click()
    expect(form).to_have_count(0)

    page.get_by_role("button", name="Apply…").click()
    dialog = page.get_by_role("dialog", name="Apply P1?")
    dialog.get_by_label("At once at most").fill("1")
    assert person.accessibility_violations() == []
    dialog.get_by_role("button", name="Apply", exact=True).click()
    expect(row(page, "Build the walls")).to_contain_text("issue 1 is open", timeout=TIMEOUT_MS)
    first = row(page, "Lay solid ground")
    expect(first.get_by_role("link", name="lay-solid-ground")).to_be_visible(timeout=TIMEOUT_MS)
    assert site.session("app-lay-solid-ground")["profile"] == "builder"
    assert person.accessibility_violations() == []

    approve(site, "app-lay-solid-ground")
    expect(first).to_contain_text("Landed", timeout=TIMEOUT_MS)
    expect(row(page, "Build the walls").get_by_role("link", name="build-the-walls")).to_be_visible(timeout=TIMEOUT_MS)
    approve(site, "app-build-the-walls")
    expect(page.get_by_text("all 2 tasks landed")).to_be_visible(timeout=TIMEOUT_MS)
    assert site.git("show", "main:ground.txt", "main:walls.txt").split() == ["ground", "walls"]
    expect(page.get_by_text("Its tasks are issues now")).to_have_count(0, timeout=TIMEOUT_MS)
    assert person.accessibility_violations() == []
    wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide[0] <= wide[1], "the plan is wider than the window"
    assert [complaint for complaint in person.browser_errors if "422" not in complaint] == []


def test_an_invalid_plan_shows_the_reason_and_is_planned_again(site: Sandbox, visit: Visit) -> None:
    site.request("POST", "/api/plans", {"projectId": "app", "goal": CIRCLE})
    person, viewer = visit(site), visit(site, role="viewer")
    for visitor in (person, viewer):
        visitor.go("/plan/P1")
        expect(visitor.page.get_by_role("alert")).to_contain_text("a → b → a", timeout=TIMEOUT_MS)
        assert visitor.accessibility_violations() == []
    expect(viewer.page.get_by_role("main").get_by_role("button")).to_have_count(0)
    page = person.page
    page.get_by_role("button", name="Plan again").click()
    goal = page.get_by_label("What is to be achieved")
    expect(goal).to_have_value(CIRCLE)
    goal.fill("Think about it [[sleep: 60]]")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="thinking for 60 s")).to_be_visible(timeout=TIMEOUT_MS)
    page.get_by_role("button", name="Stop planning").click()
    page.get_by_role("button", name="Discard it").click()
    expect(page.get_by_role("heading", name="Plan", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Plans")).to_have_count(0)
    assert site.request("GET", "/api/plans")["plans"] == []
    assert person.browser_errors == [] and viewer.browser_errors == []


def test_an_account_at_its_limit_is_shown_and_can_be_released(site: Sandbox, visit: Visit) -> None:
    resets = (datetime.now(UTC) + timedelta(hours=2)).isoformat(timespec="seconds")
    spends = f"[[usage: usd=0.70 input=90000 model=m]] [[limit: {resets}]]"
    site.request("POST", "/api/sessions", {"name": "thirsty", "title": "The thirsty one", "prompt": spends})
    site.wait_until(lambda: site.session("app-thirsty")["status"] == "limited", "the limit to be met", 60)
    site.request("POST", "/api/sessions", {"name": "later", "title": "The later one", "prompt": "[[done: done]]"})
    person = visit(site)
    page = person.page
    expect(person.card("The later one", "Working")).to_contain_text(
        "waits for the usage limit of demo", timeout=TIMEOUT_MS
    )
    person.go("/usage")
    budgets = page.get_by_role("region", name="Budgets")
    expect(budgets).to_contain_text("$0.70 spent", timeout=TIMEOUT_MS)
    expect(budgets).to_contain_text("of $5.00")
    expect(budgets).to_contain_text("$2.00 at most")
    account = page.get_by_role("region", name="Accounts").get_by_role("listitem").filter(has_text="demo")
    expect(account).to_contain_text("held until")
    assert person.accessibility_violations() == []
    account.get_by_role("button", name="Use it again").click()
    expect(account).not_to_contain_text("held until", timeout=TIMEOUT_MS)
    assert person.browser_errors == []


def test_the_coordinator_is_shown_above_the_columns(site: Sandbox, visit: Visit) -> None:
    site.request("POST", "/api/orchestrator", {"projectId": "app", "goal": "[[ask: Which house first?]]"})
    person = visit(site)
    page = person.page
    strip = page.get_by_role("region", name="Coordinators").get_by_role("article", name="Coordinator")
    expect(strip).to_contain_text("Which house first?", timeout=TIMEOUT_MS)
    expect(page.get_by_role("region", name="Needs you")).to_contain_text("Nothing waits for you")
    assert person.accessibility_violations() == []
    strip.get_by_role("textbox").fill("The small one")
    strip.get_by_role("button", name="Answer").click()
    expect(strip.get_by_role("textbox")).to_have_count(0, timeout=TIMEOUT_MS)
    assert person.browser_errors == []
