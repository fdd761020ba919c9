"""A fleet with sessions in every column of the board, shared by modules that do not change it."""

from __future__ import annotations

from agent_orchestrator.testing.sandbox import Sandbox

CONFIG = """\
defaults: {{agent: demo, runtime: {runtime}}}
projects:
  app:
    path: .
    ci:
      lint: {{command: "while test -e ~/hold; do sleep 0.1; done; echo the lint is content"}}
      tests: {{command: "! test -f broken.txt || (echo the teapot is broken; exit 1)"}}
reactions:
  ci-failed: {{action: notify}}
  approved-and-green: {{auto: false}}
  agent-needs-input: {{delay: 0s}}
"""

TASKS = {
    "asks": ("Paint the shed", "[[ask: Which colour shall it have?]] [[say: painted]]"),
    "blocked": ("Clear the build folder", "[[block: Allow rm -r build?]] [[say: cleared]]"),
    "works": (
        "Think about the roof",
        "[[progress: 1/2 thinking]] [[usage: usd=0.70 input=90000 model=m]] [[sleep: 900]]",
    ),
    "fails": ("Measure everything", "[[fail: out of memory]]"),
    "bench": ("Build a bench", "[[edit: bench.txt|oak]] [[commit: Build a bench]] [[done: built]]"),
    "fence": ("Build a fence", "[[edit: fence.txt|ash]] [[commit: Build a fence]] [[done: built]]"),
    "teapot": ("Break the teapot", "[[edit: broken.txt|x]] [[commit: Break it]] [[done: broken]]"),
}
STATES = {
    "asks": "needs_input",
    "blocked": "blocked",
    "works": "working",
    "fails": "failed",
    "bench": "review_pending",
    "fence": "mergeable",
    "teapot": "ci_failed",
}
HOLD = "hold"
"""While this file is in the user's home, checks do not end."""
ISSUE = "Ship to other countries"


def start_fleet(box: Sandbox) -> None:
    """Create the repository, start the daemon, and run each session as far as it goes without a person."""
    box.repository("app", config=CONFIG.format(runtime=box.runtime))
    box.start()
    for name, (title, prompt) in TASKS.items():
        box.request("POST", "/api/sessions", {"name": name, "title": title, "prompt": prompt})
    later = {"name": "later", "title": "Paint the bench", "prompt": "Paint it.", "after": ["app-bench"]}
    box.request("POST", "/api/sessions", later)
    box.request("POST", "/api/issues", {"title": ISSUE, "labels": ["feature"]})
    wait_for_status(box, "fence", "review_pending")
    box.request("POST", "/api/sessions/app-fence/review", {"verdict": "approved"})
    for name, status in STATES.items():
        wait_for_status(box, name, status)


def wait_for_status(box: Sandbox, name: str, status: str) -> None:
    """Wait until a session's status is this one."""
    box.wait_until(lambda: box.session(f"app-{name}")["status"] == status, f"{name} to be {status}", 60)
