"""A session's page: terminal, messages and their states, timeline, checks, details, and new commits."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from agent_orchestrator.testing.sandbox import Sandbox
from tests.browser.fleet import wait_for_status
from tests.browser.person import Person

Visit = Callable[..., Person]
TIMEOUT_MS = 30_000


def test_the_terminal_shows_output_searches_and_accepts_input(fleet: Sandbox, visit: Visit) -> None:
    request = {"name": "typed", "title": "Typed into", "prompt": "[[ask: Which tree?]] [[say: it is an {answer}]]"}
    fleet.request("POST", "/api/sessions", request)
    wait_for_status(fleet, "typed", "needs_input")
    person = visit(fleet)
    page = person.page
    person.go("/sessions/app-typed")
    terminal = page.get_by_role("region", name="Terminal")
    expect(terminal.get_by_text("Live")).to_be_visible(timeout=TIMEOUT_MS)

    terminal.get_by_role("button", name="Find").click()
    search = page.get_by_label("Find in the terminal")
    search.fill("Which tree")
    expect(terminal.get_by_text(re.compile(r"^\d of \d$"))).to_be_visible(timeout=TIMEOUT_MS)
    search.fill("no such words")
    expect(terminal.get_by_text("none")).to_be_visible()
    search.press("Escape")

    page.keyboard.type("elm\n")
    wait_for_status(fleet, "typed", "idle")
    terminal.get_by_role("button", name="Earlier output").click()
    expect(page.get_by_role("dialog", name="Earlier output")).to_contain_text("it is an elm", timeout=TIMEOUT_MS)
    assert person.accessibility_violations() == []
    page.keyboard.press("Escape")
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.press("Shift+Escape")
    assert not page.evaluate("!!document.activeElement?.closest('.xterm')")
    assert person.browser_errors == []


def test_a_message_shows_its_state_and_is_in_the_timeline(fleet: Sandbox, visit: Visit) -> None:
    fleet.request("POST", "/api/sessions", {"name": "spoken", "title": "Spoken to", "prompt": "[[say: ready]]"})
    wait_for_status(fleet, "spoken", "idle")
    person = visit(fleet)
    page = person.page
    person.go("/sessions/app-spoken/timeline")
    expect(page.get_by_label("Message to the agent")).to_be_visible()
    page.keyboard.press("r")
    expect(page.get_by_label("Message to the agent")).to_be_focused()
    page.keyboard.type("Go on with it. [[say: going on]]")
    page.keyboard.press("Control+Enter")
    receipts = page.get_by_role("list", name="Messages and what became of them")
    expect(receipts).to_contain_text("Acknowledged", timeout=TIMEOUT_MS)
    expect(receipts).to_contain_text("Go on with it.")
    story = page.get_by_role("region", name="Timeline")
    expect(story).to_contain_text("Started: Spoken to")
    expect(story).to_contain_text("going on", timeout=TIMEOUT_MS)
    for word in ("You", "Seen", "Sent", "Acknowledged"):
        expect(story.get_by_text(f"{word} ·").first).to_be_visible()
    assert person.accessibility_violations() == []
    assert person.browser_errors == []


def test_checks_show_their_output(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    person.go("/sessions/app-teapot/checks")
    expect(page.get_by_role("link", name="Checks")).to_contain_text("1 failing")
    page.get_by_role("button", name="tests").click()
    expect(page.get_by_label("Output of tests")).to_contain_text("the teapot is broken")
    page.get_by_role("button", name="lint").click()
    expect(page.get_by_label("Output of lint")).to_contain_text("the lint is content")
    assert person.accessibility_violations() == []
    assert person.browser_errors == []


def test_details_show_workspace_prompt_and_reasons(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    person.go("/sessions/app-works/details")
    workspace = page.get_by_role("region", name="Workspace")
    expect(workspace).to_contain_text(fleet.session("app-works")["workspacePath"])
    expect(workspace.get_by_role("link", name="VS Code")).to_have_attribute("href", re.compile("^vscode://file/"))
    expect(page.get_by_role("region", name="Usage")).to_contain_text("90k tokens in")
    expect(page.get_by_role("region", name="Why it stands so")).to_contain_text("working")
    expect(page.get_by_role("region", name="Prompt")).to_contain_text("[[progress: 1/2 thinking]]")
    assert person.accessibility_violations() == []
    assert person.browser_errors == []


def test_changes_since_the_last_visit_can_be_shown_alone(fleet: Sandbox, visit: Visit) -> None:
    person = visit(fleet)
    page = person.page
    person.go("/sessions/app-bench/changes")
    expect(page.get_by_text("bench.txt").first).to_be_visible()
    expect(page.get_by_role("button", name="Since you last looked")).to_have_count(0)
    page.get_by_role("link", name="Details").click()
    head = fleet.session("app-bench")["pr"]["head"]
    words = "Varnish it. [[edit: varnish.txt|two coats]] [[commit: Varnish it]] [[done: varnished]]"
    fleet.request("POST", "/api/sessions/app-bench/message", {"content": words})
    fleet.wait_until(lambda: fleet.session("app-bench")["pr"]["head"] != head, "the new commit")

    page.get_by_role("link", name="Changes").click()
    page.get_by_role("button", name="Since you last looked").click(timeout=TIMEOUT_MS)
    expect(page.get_by_text("varnish.txt").first).to_be_visible()
    expect(page.get_by_text("bench.txt")).to_have_count(0)
    page.get_by_role("button", name="Whole change").click()
    expect(page.get_by_text("bench.txt").first).to_be_visible()
    assert person.browser_errors == []


def test_a_permission_request_is_answered_on_the_session_page(fleet: Sandbox, visit: Visit) -> None:
    wants = {"name": "wants", "title": "Wants something", "prompt": "[[block: Allow rm -r dist?]] [[say: removed]]"}
    fleet.request("POST", "/api/sessions", wants)
    wait_for_status(fleet, "wants", "blocked")
    person = visit(fleet)
    page = person.page
    person.go("/sessions/app-wants")
    expect(page.get_by_role("region", name="Wants to run")).to_contain_text("Allow rm -r dist?")
    page.get_by_role("button", name="Allow").click()
    wait_for_status(fleet, "wants", "idle")
    answered = [event["data"] for event in fleet.events("app-wants") if event["type"] == "permission-answered"]
    assert [answer["decision"] for answer in answered] == ["allow"]
    expect(page.get_by_role("region", name="Wants to run")).to_have_count(0)
    assert person.browser_errors == []


def test_a_stop_shows_what_was_saved_and_can_be_undone(fleet: Sandbox, visit: Visit) -> None:
    ends = {"name": "ends", "title": "Ends soon", "prompt": "[[edit: half.txt|half done]] [[sleep: 900]]"}
    fleet.request("POST", "/api/sessions", ends)
    fleet.wait_until(
        lambda: fleet.request("GET", "/api/sessions/app-ends/work")["uncommitted"], "something to be unsaved"
    )
    person = visit(fleet)
    page = person.page
    person.go("/sessions/app-ends")
    page.get_by_role("button", name="Actions").click()
    page.get_by_role("menuitem", name="Stop").click()
    page.get_by_role("button", name="Stop it").click()
    stopped = page.get_by_role("dialog", name="Stopped")
    expect(stopped).to_contain_text("ao restore app-ends", timeout=TIMEOUT_MS)
    assert person.accessibility_violations() == []
    stopped.get_by_role("button", name="Undo").click()
    fleet.wait_until(
        lambda: fleet.request("GET", "/api/sessions/app-ends/work")["uncommitted"], "it to be as it was", 60
    )
    assert person.browser_errors == []
