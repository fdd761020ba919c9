"""The demo: five issues of a small shop, five scripted agents, and every step from an issue to the base branch.

    python -m agent_orchestrator.testing.demo [--all] [--database URL] [--runtime NAME] [--image IMAGE] [--cluster ADDRESS --host ADDRESS]

One agent fixes a failing test, one breaks the checks and repairs them, one gets a review comment, one conflicts with it and rebases,
one asks the person. It prints each event as it happens, and leaves the daemon running with the session that waits. `--all` adds a
second act with every other trigger of a reaction (`demo_triggers.py`). No model, no key, no network; with or without tmux.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.demo_report import Event, automatic_actions, event_line
from agent_orchestrator.testing.demo_triggers import SecondAct
from agent_orchestrator.testing.sandbox import Sandbox, have_tmux

FILES = {
    "shop/__init__.py": "",
    "shop/price.py": "def total(prices):\n    return int(sum(prices))\n",
    "shop/cart.py": "def items(cart):\n    return sorted(cart)\n",
    "shop/report.py": "def headline():\n    return 'Orders'\n",
    "tests/__init__.py": "",
    "tests/test_price.py": (
        "import unittest\n\nfrom shop.price import total\n\n\nclass Price(unittest.TestCase):\n"
        "    def test_cents_are_kept(self):\n        self.assertEqual(total([1.5, 2.25]), 3.75)\n"
    ),
    "tests/test_cart.py": (
        "import unittest\n\nfrom shop.cart import items\n\n\nclass Cart(unittest.TestCase):\n"
        "    def test_items_are_sorted(self):\n        self.assertEqual(items(['b', 'a']), ['a', 'b'])\n"
    ),
    "tests/test_report.py": (
        "import unittest\n\nfrom shop.report import headline\n\n\nclass Report(unittest.TestCase):\n"
        "    def test_there_is_a_headline(self):\n        self.assertTrue(headline())\n"
    ),
    ".gitignore": "__pycache__/\n",
}

ISSUES = {
    "price": ("Cents are lost in totals", "`total([1.5, 2.25])` gives 3. The test for it fails."),
    "cart": ("Show each item once", "An item that is twice in the cart is listed twice."),
    "report": ("Name the month in the report", "The headline should say which month it is about."),
    "currency": ("Name the currency in the report", "The headline should say that amounts are in euro."),
    "storage": ("Store the orders", "Orders are lost when the shop restarts."),
}

SCRIPTS = {
    "price": (
        "[[progress: 1/2 reading the test]] [[sleep: 0.4]] "
        "[[write: shop/price.py|def total(prices):\\n    return round(sum(prices), 2)\\n]] "
        "[[commit: Keep the cents]] [[done: totals keep their cents]]"
    ),
    "cart": (
        "[[progress: 1/2 editing]] [[sleep: 0.5]] [[write: shop/cart.py|def items(cart):\\n    return list(set(cart))[::-1] + ['']\\n]] "
        "[[commit: List each item once]] [[done: each item is listed once]] [[wait]] "
        "[[progress: 2/2 repairing]] [[write: shop/cart.py|def items(cart):\\n    return sorted(set(cart))\\n]] "
        "[[commit: Keep the items sorted]] [[done: sorted again]]"
    ),
    "report": (
        "[[sleep: 0.6]] [[write: shop/report.py|def headline():\\n    return 'Orders in month 11'\\n]] "
        "[[commit: Name the month]] [[done: the headline names the month]] [[wait]] "
        "[[write: shop/report.py|def headline(month='November'):\\n    return f'Orders in {month}'\\n]] "
        "[[commit: Call the month by its name]] [[reply: {comment}|The month is a word now, and can be given.]] [[done: done as asked]]"
    ),
    "currency": (
        "[[sleep: 0.7]] [[write: shop/report.py|def headline():\\n    return 'Orders (EUR)'\\n]] "
        "[[commit: Name the currency]] [[done: the headline names the currency]] [[wait]] "
        "[[sh: git fetch -q origin main:main 2>/dev/null; git rebase main >/dev/null 2>&1; git checkout --ours shop/report.py 2>/dev/null; "
        "printf \"def headline(month='November'):\\n    return f'Orders in {month} (EUR)'\\n\" > shop/report.py; "
        "git add -A; GIT_EDITOR=true git rebase --continue >/dev/null 2>&1]] [[done: rebased; both are named]]"
    ),
    "storage": "[[progress: 1/3 looking around]] [[sleep: 0.8]] [[ask: Which database shall I use?]] "
    "[[write: shop/store.py|DATABASE = '{answer}'\\n]] [[commit: Store the orders]] [[done: orders are stored]]",
}


@dataclass(slots=True)
class Director:
    """Acts as the reviewer: comments once, approves what is green, and holds one approval until there was a merge conflict."""

    box: Sandbox
    has_commented: bool = False
    approved: set[str] = field(default_factory=set)

    def respond(self) -> None:
        """Review the sessions that wait for it now."""
        sessions = {session["name"]: session for session in self.box.sessions()}
        for name in ("price", "cart", "report", "currency"):
            session = sessions.get(name)
            if session is None or session["status"] != "review_pending" or not _has_passed_checks(session):
                continue
            if name == "report" and not self.has_commented:
                self.has_commented = True
                review_comment = {"path": "shop/report.py", "line": 2, "body": "Please write the month as a word."}
                self._review(name, "changes_requested", [review_comment])
            elif name not in self.approved and (name != "currency" or sessions["report"]["status"] == "merged"):
                if name == "currency" and session["pr"]["mergeable"] != "yes":
                    continue
                self.approved.add(name)
                self._review(name, "approved", [])

    def _review(self, name: str, verdict: str, comments: list[dict[str, Any]]) -> None:
        self.box.request(
            "POST", f"/api/sessions/shop-{name}/review", {"verdict": verdict, "body": "", "comments": comments}
        )

    def is_finished(self) -> bool:
        """Return whether four sessions are merged and cleaned up and one waits for input."""
        states = {session["name"]: (session["status"], session["workspacePath"]) for session in self.box.sessions()}
        all_merged = all(states.get(name) == ("merged", None) for name in ("price", "cart", "report", "currency"))
        return all_merged and states.get("storage", ("", None))[0] == "needs_input"


def _has_passed_checks(session: dict[str, Any]) -> bool:
    return bool(session["pr"]["mergeable"] == "yes" and session["pr"]["checks"]) and all(
        check["state"] not in ("queued", "running") for check in session["pr"]["checks"]
    )


def configuration(runtime: str, *, auto_merge: bool = True, python: str = sys.executable, image: str = "") -> str:
    """Return the shop's configuration: a check per module and an agent per issue; `auto_merge` merges what is approved and green."""
    checks = "\n".join(
        f"      {name}: {{command: {shlex.quote(python)} -m unittest -q tests.test_{name}}}"
        for name in ("price", "cart", "report")
    )
    profiles = "\n".join(
        f"  {name}:\n    tool: demo\n    script: |-\n      {script}" for name, script in SCRIPTS.items()
    )
    docker = f"\n    docker: {{image: {image}}}" if image else ""
    return f"""\
defaults: {{agent: demo, runtime: {runtime}}}
projects:
  shop:
    path: .{docker}
    ci:
{checks}
agents:
{profiles}
reactions:
  ci-failed: {{backoff: 1s..5s}}
  approved-and-green: {{auto: {str(auto_merge).lower()}}}
  agent-needs-input: {{delay: 1s}}
"""


def prepare(box: Sandbox, port: int | None = None, **settings: Any) -> None:
    """Create the shop's repository with a failing test and start the daemon, on its usual port if `port` is None."""
    box.repository("shop", config=configuration(box.runtime, **settings))
    for name, text in FILES.items():
        path = box.repo / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    box.git("add", "shop", "tests", ".gitignore")
    box.git("commit", "-q", "-m", "A small shop")
    box.start(port=port)


class DemoStage:
    """Reports events as lines and collects them."""

    def __init__(self, box: Sandbox, say: Callable[[str], None], patience: float = 120.0) -> None:
        self.box = box
        self.print_line = say
        self.timeout = patience
        self.events: list[Event] = []

    def run_until(self, respond: Callable[[], None], is_over: Callable[[], bool]) -> None:
        """Report events and call `respond` until `is_over` is true; raise `TimeoutError` after `patience` seconds."""
        deadline = time.monotonic() + self.timeout
        while time.monotonic() < deadline:
            self._report_new_events()
            respond()
            if is_over():
                self._report_new_events()
                return
            time.sleep(0.1)
        raise TimeoutError("the demo did not end as it should; see the daemon's log")

    def _report_new_events(self) -> None:
        last_seq = self.events[-1]["seq"] if self.events else 0
        for event in self.box.request("GET", f"/api/events?after={last_seq}&limit=500")["events"]:
            self.events.append(event)
            if line := event_line(event):
                self.print_line(line)


def play_first_act(stage: DemoStage) -> None:
    """Play the first act: five issues, five agents, until all are merged but the one that waits for the person."""
    box = stage.box
    for name, (title, body) in ISSUES.items():
        issue = box.request("POST", "/api/issues", {"title": title, "body": body})["number"]
        box.request("POST", "/api/sessions", {"name": name, "issue": str(issue), "agent": name})
    director = Director(box)
    stage.run_until(director.respond, director.is_finished)


def play_second_act(stage: DemoStage) -> None:
    """Play the second act: every other trigger."""
    act = SecondAct(stage.box)
    act.begin()
    stage.run_until(act.respond, lambda: act.is_finished(stage.events))


def print_summary(stage: DemoStage, *, everything: bool) -> None:
    """Print the automatic actions, where everything is, what to try next and how to end."""
    box, say, ao = stage.box, stage.print_line, Path(sys.executable).with_name("ao")
    commits = box.git("log", "--oneline", "-7" if everything else "-6").splitlines()
    commands = (
        ["status -A", "answer garden-asks green", "answer garden-blocked --allow", "why garden-stuck"]
        if everything
        else ["status", "answer shop-storage PostgreSQL", "why shop-cart", "start --demo --all   # every other trigger"]
    )
    summary = "All of the shop has landed; in the garden two wait" if everything else "Four have landed; one waits"
    parts = [
        ("On main now:", commits),
        ("What happened by itself:", [line[2:] for line in automatic_actions(stage.events)]),
        (
            f"{summary} for you. Try, in the repository:",
            [f"export AO_HOME={box.home.path}; cd {box.repo}", *(f"{ao} {each}" for each in commands)],
        ),
        (
            "The daemon stays. End it and its agents, their work saved:",
            [f"AO_HOME={box.home.path} {ao} shutdown --sessions"],
        ),
    ]
    for title, lines in parts:
        say("")
        say(title)
        for line in lines:
            say(f"  {line}")
    say("")
    say(f"In the browser; the address signs in once, and later so does: AO_HOME={box.home.path} {ao} dashboard")
    say(f"Dashboard: {box.request('POST', '/api/login-links')['url']}")


def main(argv: Sequence[str] | None = None) -> int:
    """Play the demo in a temporary folder and return the exit code."""
    parser = argparse.ArgumentParser(prog="demo")
    parser.add_argument("--all", action="store_true", help="every trigger of a reaction, in a second act")
    parser.add_argument("--database", metavar="URL", help="keep everything in this PostgreSQL database")
    parser.add_argument("--runtime", default="tmux" if have_tmux() else "process", help="the runtime of its sessions")
    parser.add_argument("--image", default="", help="the image of runtime docker; absent: the shipped one is built")
    parser.add_argument("--cluster", metavar="ADDRESS", default="auto", help="the Ray cluster of runtime ray")
    parser.add_argument("--host", metavar="ADDRESS", help="where nodes on other machines reach the daemon, by TLS")
    options = parser.parse_args(argv)
    everything = options.all
    folder = Path(tempfile.mkdtemp(prefix="ao-demo-"))
    box = Sandbox(folder, options.runtime).__enter__()
    settings = [f"database: {options.database}"] if options.database else []
    settings += [f"cluster: {{address: {options.cluster}}}"] if options.runtime == "ray" else []
    settings += [f"host: {options.host}", "tls: {own: true}"] if options.host else []
    box.home.path.mkdir(mode=0o700, parents=True)
    box.home.config.write_text("".join(f"{line}\n" for line in settings))
    stage = DemoStage(box, _print)
    try:
        prepare(box, image=options.image)
        _print(f"A repository with a failing test: {box.repo}")
        _print("The daemon runs. Five issues, five agents, at once:")
        play_first_act(stage)
        if everything:
            _print("")
            _print("Second act: you answer; and in another repository everything else that rules react to:")
            play_second_act(stage)
    except (TimeoutError, OSError) as error:
        sys.stderr.write(f"ao: the demo failed: {error}\n")
        box.clean_up()
        return 1
    except KeyboardInterrupt:
        box.clean_up()
        return 130
    print_summary(stage, everything=everything)
    return 0


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
