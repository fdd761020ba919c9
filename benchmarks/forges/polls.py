"""Requests a minute to GitHub while nothing changes, with ever more open pull requests; counted at a GitHub on loopback."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.fleet import at_once
from benchmarks.forges.pull_requests import published
from benchmarks.forges.webhooks import SECRET, taken
from benchmarks.measure import Figure, Growth, LeftOut, Result

SIZES = (0, 20, 50, 200)
REPOSITORY = "acme/app"
POLLS = 4
POLL = 2.0
BY_DEFAULT = 25.0
"""Seconds between two polls here, to be done sooner, and otherwise."""
SETTLING = 2 * POLL + 1
"""What was read in the second of its change is read once more."""
MUST = 5.0
"""Two a poll for each repository, and this is one."""
PATIENCE = 300.0
CONFIG = """
defaults: {{agent: demo, runtime: process}}
orchestrator: {{maxParallelAgents: 1000}}
projects:
  app:
    path: .
    repo: {repo}
    tracker: local
    scm: {{plugin: github, apiUrl: "{url}", token: "{token}", poll: {poll}s, webhook: {{secret: {secret}}}}}
"""


def watching(folder: Path) -> Iterator[Result]:
    """Sessions without agents, each with a pull request; polled as without webhooks, and at last storms of these."""
    schema = published()
    if schema is None:
        yield LeftOut(
            "idle: requests a minute to GitHub", "needs what `make test-forges` fetches: the published schema"
        )
        return
    asked: list[tuple[float, float]] = []
    with GitHubServer(schema=schema) as forge, Sandbox(folder / "box", "process") as box:
        _prepared(box, forge)
        for size in SIZES:
            _opened(box, range(int(asked[-1][0]) if asked else 0, size))
            asked.append((size, _a_minute(forge)))
        most = f"{SIZES[-1]} sessions with pull requests there"
        note = f"polled every {POLL:g} s here, every {BY_DEFAULT:g} s by default, which is counted"
        yield Figure(f"idle: requests a minute to GitHub, {most}", asked[-1][1], MUST, "requests", note=note)
        yield Growth("idle: requests a minute to GitHub", "sessions", asked, "requests", "constant", floor=1.0)
        yield taken(box, most, REPOSITORY)


def _prepared(box: Sandbox, forge: GitHubServer) -> None:
    forge.repository(REPOSITORY, {"a.txt": "1\n"}, people={"dev": "write"})
    token = forge.token("dev")
    box.repository(config=CONFIG.format(repo=REPOSITORY, url=forge.url, token=token, poll=POLL, secret=SECRET))
    box.git("remote", "add", "origin", forge.git_url(REPOSITORY))
    login = base64.b64encode(f"x:{token}".encode()).decode()
    box.git("-c", f"http.extraHeader=Authorization: Basic {login}", "fetch", "-q", "origin")
    box.git("reset", "-q", "--hard", "origin/main")
    box.start()


def _opened(box: Sandbox, numbers: range) -> None:
    """A branch with a commit each, and a session for it."""
    stream = ""
    for number in numbers:
        stream += f"commit refs/heads/c{number:03}\ncommitter P <p@example.invalid> 1700000000 +0000\n"
        stream += f"data 4\nwork\nfrom refs/heads/main\nM 100644 inline f{number}.txt\ndata 1\nx\n\n"
    subprocess.run(["git", "fast-import", "--quiet"], input=stream.encode(), cwd=box.repo, env=box.env, check=True)

    def ask(name: str) -> None:
        wanted = {"name": name, "title": f"Work on {name}", "branch": name, "base": "main", "defer": True}
        box.request("POST", "/api/sessions", wanted)

    at_once(ask, [f"c{number:03}" for number in numbers])

    def there() -> bool:
        return sum(bool(one["pr"]) for one in box.sessions()) == numbers.stop

    box.until(there, f"{numbers.stop} pull requests", PATIENCE)


def _a_minute(forge: GitHubServer) -> float:
    """Requests that a minute of polls takes."""
    time.sleep(SETTLING)
    before = forge.ledger.counts().get("rest", 0)
    time.sleep(POLLS * POLL)
    return (forge.ledger.counts().get("rest", 0) - before) / POLLS * 60 / BY_DEFAULT
