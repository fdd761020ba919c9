"""A person at the dashboard, who signs in, navigates, clicks, and collects the browser's errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESK = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def chromium() -> str:
    """Return the path of the browser, or "" if none is installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")


def new_context(browser: Any, *, phone: bool = False, dark: bool = False) -> Any:
    """Return a new browser context with the size of a desktop or a phone."""
    return browser.new_context(
        viewport=PHONE if phone else DESK,
        has_touch=phone,
        is_mobile=phone,
        color_scheme="dark" if dark else "light",
    )


@contextmanager
def launch_browser(path: str) -> Iterator[Any]:
    """Yield a headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_ARGUMENTS)
        yield browser
        browser.close()


_WAIT_FOR_ANIMATIONS = """() => Promise.allSettled(document.getAnimations()
    .filter((one) => one.effect?.getComputedTiming().iterations !== Infinity).map((one) => one.finished))"""
"""Waits until all finite animations have ended."""


class Person:
    """A browser window that is signed in to a daemon."""

    def __init__(self, box: Sandbox, context: Any, *, phone: bool = False) -> None:
        self.box = box
        self.phone = phone
        self.context = context
        self.page = context.new_page()
        self.browser_errors: list[str] = []
        """Errors in the console, refused requests, and requests that left the daemon."""
        self._url = str(box.client().info()["url"])
        self.page.on("console", lambda message: self._record_error(message.type, message.text))
        self.page.on("pageerror", lambda error: self.browser_errors.append(str(error)))
        self.page.on("request", lambda request: self._check_origin(request.url))

    def _record_error(self, kind: str, text: str) -> None:
        if kind == "error":
            self.browser_errors.append(text)

    def _check_origin(self, url: str) -> None:
        if not url.startswith((self._url, self._url.replace("http", "ws", 1), "data:", "blob:")):
            self.browser_errors.append(f"asked a third party: {url}")

    def sign_in(self, role: str) -> None:
        """Sign in by a one-time link, as `ao dashboard` creates it."""
        self.page.goto(self.box.request("POST", "/api/login-links", {"role": role})["url"])
        self.page.get_by_role("navigation", name="Pages").wait_for()

    def go(self, path: str) -> None:
        """Open a page by its path."""
        self.page.goto(self._url + path)

    def card(self, title: str, column: str) -> Any:
        """Return a session's card in a column of the board; on a phone the column is selected first."""
        if self.phone:
            self.page.get_by_role("navigation", name="Columns").get_by_role("button", name=column).click()
        return self.page.get_by_role("region", name=column).get_by_role("article", name=title)

    def accessibility_violations(self) -> list[str]:
        """Return the accessibility violations that axe finds (WCAG 2.2 AA)."""
        if not self.page.evaluate("() => 'axe' in window"):
            self.page.evaluate(AXE.read_text())
        self.page.evaluate(_WAIT_FOR_ANIMATIONS)
        results = self.page.evaluate("(rules) => axe.run({runOnly: {type: 'tag', values: rules}})", _RULES)
        return [
            f"{violation['id']}: {violation['help']} ({violation['nodes'][0]['target']}: {violation['nodes'][0].get('failureSummary')})"
            for violation in results["violations"]
        ]

    def close(self) -> None:
        """Close the window."""
        self.context.close()
