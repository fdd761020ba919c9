"""Requests per minute to GitHub without changes, with a growing number of pull requests; counted at a test server."""

from __future__ import annotations

import base64
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.fleet import call_in_parallel
from benchmarks.forges.pull_requests import published_schema
from benchmarks.forges.webhooks import SECRET, measure_rate
from benchmarks.measure import Figure, Growth, Result, SkippedResult

SIZES = (0, 20, 50, 200)
REPOSITORY = "acme/app"
MEASURED_POLLS = 4
POLL_INTERVAL = 2.0
DEFAULT_INTERVAL = 25.0
"""The default seconds between two polls; `POLL_INTERVAL` is shorter to save time."""
SETTLE_SECONDS = 2 * POLL_INTERVAL + 1
"""Data read in the second of its change is read once more."""
MAX_REQUESTS_PER_MINUTE = 5.0
"""Two requests per poll and repository; here is one repository."""
TIMEOUT = 300.0
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


def measure_polls(folder: Path) -> Iterator[Result]:
    """Measure sessions without agents, each with a pull request: polling without webhooks, then the rate of webhooks."""
    schema = published_schema()
    if schema is None:
        yield SkippedResult(
            "idle: requests a minute to GitHub", "needs what `make test-forges` fetches: the published schema"
        )
        return
    requests_by_size: list[tuple[float, float]] = []
    with GitHubServer(schema=schema) as forge, Sandbox(folder / "box", "process") as box:
        _prepare_repository(box, forge)
        for size in SIZES:
            _open_sessions(box, range(int(requests_by_size[-1][0]) if requests_by_size else 0, size))
            requests_by_size.append((size, _requests_per_minute(forge)))
        title = f"{SIZES[-1]} sessions with pull requests there"
        note = f"polled every {POLL_INTERVAL:g} s here, every {DEFAULT_INTERVAL:g} s by default, which is counted"
        yield Figure(
            f"idle: requests a minute to GitHub, {title}",
            requests_by_size[-1][1],
            MAX_REQUESTS_PER_MINUTE,
            "requests",
            note=note,
        )
        yield Growth(
            "idle: requests a minute to GitHub", "sessions", requests_by_size, "requests", "constant", floor=1.0
        )
        yield measure_rate(box, title, REPOSITORY)


def _prepare_repository(box: Sandbox, forge: GitHubServer) -> None:
    forge.repository(REPOSITORY, {"a.txt": "1\n"}, people={"dev": "write"})
    token = forge.token("dev")
    box.repository(config=CONFIG.format(repo=REPOSITORY, url=forge.url, token=token, poll=POLL_INTERVAL, secret=SECRET))
    box.git("remote", "add", "origin", forge.git_url(REPOSITORY))
    login = base64.b64encode(f"x:{token}".encode()).decode()
    box.git("-c", f"http.extraHeader=Authorization: Basic {login}", "fetch", "-q", "origin")
    box.git("reset", "-q", "--hard", "origin/main")
    box.start()


def _open_sessions(box: Sandbox, numbers: range) -> None:
    """Make a branch with a commit and a session for each number."""
    stream = ""
    for number in numbers:
        stream += f"commit refs/heads/c{number:03}\ncommitter P <p@example.invalid> 1700000000 +0000\n"
        stream += f"data 4\nwork\nfrom refs/heads/main\nM 100644 inline f{number}.txt\ndata 1\nx\n\n"
    subprocess.run(["git", "fast-import", "--quiet"], input=stream.encode(), cwd=box.repo, env=box.env, check=True)

    def request_session(name: str) -> None:
        body = {"name": name, "title": f"Work on {name}", "branch": name, "base": "main", "defer": True}
        box.request("POST", "/api/sessions", body)

    call_in_parallel(request_session, [f"c{number:03}" for number in numbers])

    def all_open() -> bool:
        return sum(bool(session["pr"]) for session in box.sessions()) == numbers.stop

    box.wait_until(all_open, f"{numbers.stop} pull requests", TIMEOUT)


def _requests_per_minute(forge: GitHubServer) -> float:
    """Return the requests of the polls of a minute."""
    time.sleep(SETTLE_SECONDS)
    before = forge.ledger.counts().get("rest", 0)
    time.sleep(MEASURED_POLLS * POLL_INTERVAL)
    return (forge.ledger.counts().get("rest", 0) - before) / MEASURED_POLLS * 60 / DEFAULT_INTERVAL
