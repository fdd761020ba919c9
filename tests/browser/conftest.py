"""Fixtures with a real browser and a real daemon with scripted agents; `make test-browser` installs Chromium and Playwright."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing import demo
from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from tests.browser.fleet import start_fleet
from tests.browser.person import Person, chromium, launch_browser, new_context


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not chromium():
        pytest.skip("Chromium is not here: scripts/install-chromium")
    with launch_browser(chromium()) as running:
        yield running


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Sandbox]:
    """The demo's shop with a running daemon and no sessions; nothing is merged automatically."""
    with Sandbox(tmp_path, "tmux" if have_tmux() else "process") as box:
        demo.prepare(box, port=0, auto_merge=False)
        yield box


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A fleet with something in every column, for tests that do not disturb each other."""
    with Sandbox(tmp_path_factory.mktemp("fleet"), "tmux" if have_tmux() else "process") as box:
        start_fleet(box)
        yield box


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[..., Person]]:
    """Open the dashboard signed in: visit(box, phone=True, dark=True, role="viewer")."""
    people: list[Person] = []

    def open_page(box: Sandbox, *, phone: bool = False, dark: bool = False, role: str = "admin") -> Person:
        person = Person(box, new_context(browser, phone=phone, dark=dark), phone=phone)
        people.append(person)
        person.sign_in(role)
        return person

    yield open_page
    for person in people:
        person.close()
