"""Take the pictures of docs/dashboard.md from a real daemon with scripted agents: `python -m tests.browser.screenshots FOLDER`."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent_orchestrator.testing import demo
from agent_orchestrator.testing.sandbox import Sandbox, have_tmux
from tests.browser.person import Person, chromium, launch_browser, new_context

GOAL = "Customers see their orders"
ORDERS = (
    ("table", "Add a table for orders", (), ("shop/schema.sql",), "small"),
    ("api", "Serve orders over HTTP", ("table",), ("shop/api.py",), "medium"),
    ("export", "Export orders for the accountant", ("table",), ("shop/export.py",), "medium"),
    ("page", "Show orders on the account page", ("api",), ("web/orders.js",), "large"),
    ("manual", "Write about orders in the manual", ("page", "export"), ("docs/orders.md",), "small"),
)
COMMENT = {"path": "shop/report.py", "line": 2, "body": "Please write the month as a word."}


@dataclass(frozen=True)
class Picture:
    """A picture of a page in one appearance."""

    name: str
    path: str
    waits_for: str
    """A text that is visible when the page is complete."""
    phone: bool = False
    dark: bool = False


PICTURES = (
    Picture("board", "/", "Which database shall I use?"),
    Picture("board-dark", "/", "Which database shall I use?", dark=True),
    Picture("board-phone", "/", "Which database shall I use?", phone=True),
    Picture("session", "/sessions/shop-storage", "Which database shall I use?"),
    Picture("session-phone", "/sessions/shop-report/timeline", "You asked for changes", phone=True, dark=True),
    Picture("changes", "/sessions/shop-report/changes", "The month is a word now"),
    Picture("plan", "/plan", "Ship to other countries"),
    Picture("one-plan", "/plan/P1", "Export orders for the accountant"),
)


def prepare(box: Sandbox) -> None:
    """Create a fleet with content on every page."""
    demo.prepare(box, port=0, auto_merge=False, python="python3")
    for name, (title, body) in demo.ISSUES.items():
        number = box.request("POST", "/api/issues", {"title": title, "body": body})["number"]
        box.request("POST", "/api/sessions", {"name": name, "issue": str(number), "agent": name})
    for title, label in (("Ship to other countries", "feature"), ("Speed up the search", "performance")):
        box.request("POST", "/api/issues", {"title": title, "labels": [label]})
    later = {"name": "later", "title": "Translate the report", "prompt": "Translate it.", "after": ["shop-report"]}
    box.request("POST", "/api/sessions", later)
    box.request(
        "POST", "/api/plans", {"projectId": "shop", "goal": GOAL, "tasks": [_task(*fields) for fields in ORDERS]}
    )
    _until(box, "report", "review_pending")
    box.request("POST", "/api/sessions/shop-report/review", {"verdict": "changes_requested", "comments": [COMMENT]})
    _until(box, "price", "review_pending")
    box.request("POST", "/api/sessions/shop-price/review", {"verdict": "approved"})
    _until(box, "price", "mergeable", "approved")
    _until(box, "storage", "needs_input")
    box.wait_until(lambda: _answered(box), "the agent to answer", 60)


def _task(name: str, title: str, after: tuple[str, ...], files: tuple[str, ...], effort: str) -> dict[str, Any]:
    return {"id": name, "title": title, "dependencies": after, "files": files, "effort": effort}


def _until(box: Sandbox, name: str, *statuses: str) -> None:
    box.wait_until(lambda: box.session(f"shop-{name}")["status"] in statuses, f"{name} to be {statuses[0]}", 60)


def _answered(box: Sandbox) -> bool:
    threads = box.request("GET", "/api/sessions/shop-report/review")["threads"]
    return any(comment["byAgent"] for thread in threads for comment in thread["comments"])


def take_picture(browser: Any, box: Sandbox, picture: Picture, folder: Path) -> None:
    """Take a picture and write it to a folder."""
    person = Person(box, new_context(browser, phone=picture.phone, dark=picture.dark), phone=picture.phone)
    person.sign_in("admin")
    person.go(picture.path)
    person.page.get_by_text(picture.waits_for).first.wait_for()
    person.page.wait_for_timeout(700)  # fonts, colours of the diff, the terminal's first screen
    person.page.screenshot(path=str(folder / f"{picture.name}.png"))
    person.close()


def main() -> None:
    """Take all pictures."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="ao-pictures-") as home,
        Sandbox(Path(home), "tmux" if have_tmux() else "process") as box,
        launch_browser(chromium()) as browser,
    ):
        prepare(box)
        for picture in PICTURES:
            take_picture(browser, box, picture, folder)


if __name__ == "__main__":
    main()
