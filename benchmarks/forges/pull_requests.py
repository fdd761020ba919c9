"""The cost of polling pull requests at GitHub, counted at a test server: while nothing changes, and for a change."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.github import GitHubServer
from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.measure import Figure

FETCHED_FOLDER = Path(__file__).parents[2] / ".cache" / "forges"
SESSION_COUNT = 50
REPOSITORIES = ("acme/one", "acme/two", "acme/three")
QUIET_SECONDS = 120.0
"""Seconds without a change."""
TIMEOUT = 300.0
CHANGE_COUNT = 20
SECRET = "s3cret"
SCRIPT = "[[edit: {name}.txt|x]] [[commit: work]] [[done: worked]]"
CONFIG = """
defaults: {{agent: demo, runtime: process}}
orchestrator: {{maxParallelAgents: 300}}
projects:
  {name}:
    path: .
    repo: acme/{name}
    tracker: local
    scm: {{plugin: github, apiUrl: "{url}", token: "{token}", webhook: {{secret: {secret}}}}}
"""


def measure_pull_requests(folder: Path) -> Iterator[Figure]:
    """Measure 50 sessions with pull requests in three repositories: requests without changes, and the time until a change is read."""
    schema = published_schema()
    if schema is None:
        return
    with GitHubServer(schema=schema) as forge, Sandbox(folder / "box", "process") as box:
        prepare_repositories(box, forge)
        pulls = open_sessions(box, forge, range(SESSION_COUNT))
        yield from _measure_quiet(forge, "polling", 12)
        yield _measure_comment(box, forge, pulls, "polling", 30.0, 3)
        add_webhooks(box, forge)
        before = graphql_points(forge)
        yield _measure_comment(box, forge, pulls, "webhook", 1.0, CHANGE_COUNT)
        points = (graphql_points(forge) - before) / CHANGE_COUNT
        yield Figure("GraphQL points for a change", points, 2.0, "points")
        yield from _measure_quiet(forge, "webhooks", 1)


def published_schema() -> Path | None:
    """Return the path of GitHub's published schema (`$AO_GITHUB_SCHEMA`, or fetched), or None if it or its library is missing."""
    schemas = sorted(FETCHED_FOLDER.glob("octokit-graphql-schema-*/schema.graphql"))
    configured = os.environ.get("AO_GITHUB_SCHEMA")
    schema = Path(configured) if configured else next(iter(schemas), None)
    return schema if schema and importlib.util.find_spec("graphql") is not None else None


def webhook_url(box: Sandbox) -> str:
    """Return the URL for webhooks."""
    return f"{json.loads(box.home.daemon_info.read_text())['url']}/api/webhooks/github"


def add_webhooks(box: Sandbox, forge: GitHubServer) -> None:
    """Make every repository send webhooks."""
    for repo in REPOSITORIES:
        forge.hook(repo, webhook_url(box), SECRET)


def prepare_repositories(box: Sandbox, forge: GitHubServer) -> None:
    """Make repositories and their clones, and start the daemon."""
    for repo in REPOSITORIES:
        name = repo.partition("/")[2]
        forge.repository(repo, {"a.txt": "1\n"}, people={"dev": "write", "rev": "write"})
        token = forge.token("dev")
        box.repository(name, config=CONFIG.format(name=name, url=forge.url, token=token, secret=SECRET))
        box.git("remote", "add", "origin", forge.git_url(repo))
        login = base64.b64encode(f"x:{token}".encode()).decode()
        box.git("-c", f"http.extraHeader=Authorization: Basic {login}", "fetch", "-q", "origin")
        box.git("reset", "-q", "--hard", "origin/main")
    box.start()


def open_sessions(box: Sandbox, forge: GitHubServer, numbers: range) -> dict[str, int]:
    """Start sessions with these numbers; return the number of each session's pull request."""
    for number in numbers:
        repo = REPOSITORIES[number % len(REPOSITORIES)]
        box.repo = box.folder / repo.partition("/")[2]
        name = f"n{number:03}"
        box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": SCRIPT.format(name=name)})

    def new_sessions() -> list[dict[str, Any]]:
        return [session for session in box.sessions() if int(session["name"][1:]) in numbers]

    def are_open() -> bool:
        return [session["pr"]["state"] for session in new_sessions() if session["pr"]].count("open") == len(numbers)

    box.wait_until(are_open, f"{len(numbers)} pull requests", TIMEOUT)
    for session in new_sessions():
        forge.check(f"acme/{session['project']}", session["head"], "tests", "success")

    def are_reviewed() -> bool:
        return [session["status"] for session in new_sessions()].count("review_pending") == len(numbers)

    box.wait_until(are_reviewed, "their checks", TIMEOUT)
    return {session["id"]: session["pr"]["number"] for session in new_sessions()}


def graphql_points(forge: GitHubServer) -> float:
    """Return the GraphQL points spent at the test server."""
    return float(forge.ledger.counts().get("graphql points", 0))


def _measure_quiet(forge: GitHubServer, source: str, bound: float) -> Iterator[Figure]:
    time.sleep(60.0)  # two polls: the second one reads what changed in the second of the first
    before = dict(forge.ledger.counts())
    time.sleep(QUIET_SECONDS)
    after = forge.ledger.counts()
    requests_by_kind = {kind: after[kind] - before.get(kind, 0) for kind in after if after[kind] != before.get(kind, 0)}
    requests = requests_by_kind.get("rest", 0) / (QUIET_SECONDS / 60)
    fresh = requests_by_kind.get("rest", 0) - requests_by_kind.get("rest 304", 0)
    note = ", ".join(f"{count} {kind}" for kind, count in sorted(requests_by_kind.items())) or "none at all"
    yield Figure(
        f"requests a minute, {SESSION_COUNT} open pull requests, nothing changing, {source}",
        requests,
        bound,
        "requests",
        note=note,
    )
    yield Figure(f"of these, not answered by 304, {source}", float(fresh), 0.0, "requests")
    yield Figure(f"GraphQL points meanwhile, {source}", float(requests_by_kind.get("graphql points", 0)), 0.0, "points")


def _measure_comment(
    box: Sandbox, forge: GitHubServer, pulls: dict[str, int], source: str, bound: float, count: int
) -> Figure:
    seconds = []
    for number, session in enumerate(list(pulls)[:count]):
        repo = f"acme/{session.rpartition('-')[0]}"
        text = f"seen{source}{number} [[say: noted]]"
        begun = time.monotonic()
        forge.comment(forge.find_pull(repo, pulls[session]), text, by="rev")
        end = begun + 4 * bound
        while text not in json.dumps(box.events(session)) and time.monotonic() < end:
            time.sleep(0.05)
        seconds.append(time.monotonic() - begun)
    seconds.sort()
    middle = seconds[len(seconds) // 2]
    return Figure(
        f"a comment at GitHub → known here, {source} (worst of {count})",
        seconds[-1],
        bound,
        "s",
        note=f"median {middle:.2f} s",
    )
