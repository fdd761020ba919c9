"""The board: keyboard use, search and filters, viewers, and recovery after interruptions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from tests.browser.person import Person

Visit = Callable[..., Person]
TIMEOUT_MS = 30_000


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Sandbox]:
    """A daemon without projects, and a repository that is not registered."""
    with Sandbox(tmp_path, "tmux" if have_tmux() else "process") as box:
        box.repository("app")
        box.start()
        yield box


def focused(person: Person) -> str:
    return str(person.page.evaluate("document.activeElement?.closest('[data-card]')?.dataset.card ?? ''"))


@pytest.mark.parametrize("phone", [False, True], ids=["keyboard", "phone"])
def test_from_an_empty_board_to_a_merged_task(bare: Sandbox, visit: Visit, phone: bool) -> None:
    person = visit(bare, phone=phone)
    page, keys = person.page, person.page.keyboard
    press = keys.press

    expect(page.get_by_role("heading", name="Add your first repository")).to_be_visible()
    assert person.accessibility_violations() == []
    page.get_by_label("Its folder on this machine, or an address to clone").focus()
    keys.type(str(bare.folder / "missing"))
    press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("missing")
    page.get_by_label("Its folder on this machine, or an address to clone").fill(str(bare.repo))
    press("Enter")

    expect(page.get_by_role("heading", name="Give an agent its first task")).to_be_visible()
    expect(page.get_by_label("What is to be done")).to_be_focused()
    keys.type(
        "Paint the shed\n\n[[ask: Which colour?]] [[write: shed.txt|{answer}\\n]] [[commit: Paint it]] [[done: painted]]"
    )
    press("Control+Enter")
    card = person.card("Paint the shed", "Needs you")
    expect(card).to_contain_text("Which colour?", timeout=TIMEOUT_MS)

    if phone:
        card.get_by_role("textbox").tap()
        keys.type("green")
        card.get_by_role("button", name="Answer").tap()
        person.card("Paint the shed", "In review").get_by_role("button", name="Review").tap(timeout=TIMEOUT_MS)
        page.get_by_role("button", name="Review", exact=True).tap()
        page.get_by_role("button", name="Approve", exact=True).tap()
        page.get_by_role("link", name="Board", exact=True).last.tap()
        person.card("Paint the shed", "Ready to merge").get_by_role("button", name="Merge").tap(timeout=TIMEOUT_MS)
        expect(person.card("Paint the shed", "Done")).to_contain_text("Merged", timeout=TIMEOUT_MS)
    else:
        press("j")
        press("r")
        keys.type("green")
        press("Enter")
        expect(person.card("Paint the shed", "In review")).to_be_visible(timeout=TIMEOUT_MS)
        press("Escape")
        bare.wait_until(lambda: press("j") or focused(person), "the card to have the focus")
        press(".")
        expect(page.get_by_text("shed.txt").first).to_be_visible()
        page.get_by_role("button", name="Review", exact=True).focus()
        press("Enter")
        page.get_by_role("button", name="Approve", exact=True).focus()
        press("Enter")
        expect(page.get_by_role("dialog", name="Review this change")).to_be_hidden()
        press("g")
        press("b")
        expect(person.card("Paint the shed", "Ready to merge")).to_be_visible(timeout=TIMEOUT_MS)
        press("j")
        press("m")
        expect(person.card("Paint the shed", "Done")).to_contain_text("Merged", timeout=TIMEOUT_MS)
    assert bare.git("show", "main:shed.txt") == "green"
    assert person.accessibility_violations() == []
    assert [complaint for complaint in person.browser_errors if "422" not in complaint] == []  # the missing folder


def test_keys_move_the_focus_between_cards(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    press = person.page.keyboard.press
    expect(person.card("Paint the shed", "Needs you")).to_be_visible()
    press("j")
    first = focused(person)
    assert first in ("app-asks", "app-blocked", "app-fails")
    press("ArrowDown")
    assert focused(person) not in ("", first)
    press("k")
    assert focused(person) == first
    for _ in range(3):
        press("l")
    assert focused(person) == "app-fence"
    press("Enter")
    expect(person.page).to_have_url(re.compile(r"/sessions/app-fence$"))
    person.page.go_back()
    expect(person.card("Build a fence", "Ready to merge")).to_be_visible()
    press("/")
    expect(person.page.get_by_label("Search the cards")).to_be_focused()
    assert person.browser_errors == []


def test_filters_are_part_of_the_url(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    page.get_by_label("Search the cards").fill("build")
    page.get_by_label("Status").select_option("mergeable")
    expect(page.get_by_role("article")).to_have_count(1)
    address = urlsplit(page.url).query
    assert "build" in address
    assert "mergeable" in address
    page.reload()
    expect(page.get_by_role("article")).to_have_count(1)
    expect(page.get_by_label("Search the cards")).to_have_value("build")
    page.get_by_role("button", name="Clear").click()
    expect(page.get_by_role("article")).to_have_count(8)


def test_the_palette_finds_sessions_and_commands(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    expect(page.get_by_role("article")).to_have_count(8)
    page.keyboard.press("Control+k")
    page.keyboard.type("teap")
    expect(page.get_by_role("option", name="Break the teapot").first).to_be_visible()
    assert person.accessibility_violations() == []
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/sessions/app-teapot$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Write to the agent")
    assert person.accessibility_violations() == []
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page).to_have_url(re.compile(r"/queue$"))


def test_a_viewer_sees_no_actions(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet, role="viewer")
    page = person.page
    expect(person.card("Paint the shed", "Needs you")).to_contain_text("Which colour shall it have?")
    expect(person.card("Clear the build folder", "Needs you")).to_contain_text("Allow rm -r build?")
    for name in ("Answer", "Allow", "Deny", "Reply", "Merge", "Restore", "New task"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.keyboard.press("n")
    expect(page.get_by_role("dialog")).to_have_count(0)
    person.go("/sessions/app-bench/changes")
    expect(page.get_by_text("bench.txt").first).to_be_visible()
    expect(page.get_by_role("button", name="Review")).to_have_count(0)
    expect(page.get_by_role("button", name="Actions")).to_have_count(0)
    assert person.browser_errors == []


def test_the_title_counts_sessions_that_need_a_person(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    expect(person.page).to_have_title("(3) Agent Orchestrator")
    person.go("/sessions/app-works")
    expect(person.page).to_have_title("(3) Think about the roof · Agent Orchestrator")
    person.page.get_by_role("link", name="Plan").click()
    expect(person.page).to_have_title("(3) Plan · Agent Orchestrator")


def test_the_board_recovers_from_a_restart_of_the_daemon(bare: Sandbox, visit: Visit) -> None:
    bare.request("POST", "/api/projects", {"path": str(bare.repo)})
    bare.request("POST", "/api/sessions", {"name": "first", "title": "First", "prompt": "[[say: hello]]"})
    person = visit(bare)
    page = person.page
    expect(person.card("First", "Needs you")).to_be_visible(timeout=TIMEOUT_MS)
    page.evaluate("window.same = true")
    port = urlsplit(str(bare.client().info()["url"])).port

    bare.stop()
    expect(page.get_by_role("alert")).to_contain_text("The daemon cannot be reached")
    expect(page.get_by_text("Connection lost")).to_be_visible()
    bare.start(port=port)
    bare.request("POST", "/api/sessions", {"name": "second", "title": "Second", "prompt": "[[sleep: 60]]"})

    expect(person.card("Second", "Working")).to_be_visible(timeout=TIMEOUT_MS)
    expect(page.get_by_text("Connected", exact=True)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(person.card("First", "Needs you")).to_be_visible()
    assert page.evaluate("window.same")


def test_the_board_recovers_after_the_machine_slept(bare: Sandbox, visit: Visit) -> None:
    bare.request("POST", "/api/projects", {"path": str(bare.repo)})
    bare.request("POST", "/api/sessions", {"name": "first", "title": "First", "prompt": "[[say: hello]]"})
    person = visit(bare)
    page = person.page
    page.clock.install()
    page.reload()
    expect(person.card("First", "Needs you")).to_be_visible(timeout=TIMEOUT_MS)

    person.context.set_offline(True)
    expect(page.get_by_text("Connection lost")).to_be_visible()
    bare.request("POST", "/api/sessions", {"name": "second", "title": "Second", "prompt": "[[sleep: 60]]"})
    person.context.set_offline(False)
    expect(person.card("Second", "Working")).to_be_visible(timeout=TIMEOUT_MS)

    with page.expect_request(lambda request: "/api/live?after=" in request.url):
        page.clock.fast_forward("02:00")
    expect(page.get_by_text("Connected", exact=True)).to_be_visible()
    bare.request("POST", "/api/sessions", {"name": "third", "title": "Third", "prompt": "[[sleep: 60]]"})
    expect(person.card("Third", "Working")).to_be_visible(timeout=TIMEOUT_MS)
