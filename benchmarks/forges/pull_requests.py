"""What watching pull requests at GitHub costs, counted at a GitHub on loopback: nothing while nothing changes, and little for a change."""

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

FETCHED = Path(__file__).parents[2] / ".cache" / "forges"
COUNT = 50
REPOSITORIES = ("acme/one", "acme/two", "acme/three")
QUIET = 120.0
"""Seconds in which nothing changes."""
PATIENCE = 300.0
CHANGES = 20
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


def forging(folder: Path) -> Iterator[Figure]:
    """Fifty sessions with open pull requests in three repositories: requests while nothing changes, and how soon a change is seen."""
    schema = published()
    if schema is None:
        return
    with GitHubServer(schema=schema) as forge, Sandbox(folder / "box", "process") as box:
        prepared(box, forge)
        pulls = opened(box, forge, range(COUNT))
        yield from _quiet(forge, "polling", 12)
        yield _seen(box, forge, pulls, "polling", 30.0, 3)
        hooked(box, forge)
        before = points_of(forge)
        yield _seen(box, forge, pulls, "webhook", 1.0, CHANGES)
        points = (points_of(forge) - before) / CHANGES
        yield Figure("GraphQL points for a change", points, 2.0, "points")
        yield from _quiet(forge, "webhooks", 1)


def published() -> Path | None:
    """GitHub's published schema, as `make test-forges` fetches it or as named; none: this cannot be measured here."""
    fetched = sorted(FETCHED.glob("octokit-graphql-schema-*/schema.graphql"))
    named = os.environ.get("AO_GITHUB_SCHEMA")
    schema = Path(named) if named else next(iter(fetched), None)
    return schema if schema and importlib.util.find_spec("graphql") is not None else None


def address(box: Sandbox) -> str:
    """Where webhooks are taken."""
    return f"{json.loads(box.home.info.read_text())['url']}/api/webhooks/github"


def hooked(box: Sandbox, forge: GitHubServer) -> None:
    """Let every repository send its webhooks."""
    for repo in REPOSITORIES:
        forge.hook(repo, address(box), SECRET)


def prepared(box: Sandbox, forge: GitHubServer) -> None:
    """Repositories, their clones, and a daemon."""
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


def opened(box: Sandbox, forge: GitHubServer, numbers: range) -> dict[str, int]:
    """Sessions of these numbers beside those that there are, and the number of each one's pull request."""
    for number in numbers:
        repo = REPOSITORIES[number % len(REPOSITORIES)]
        box.repo = box.folder / repo.partition("/")[2]
        name = f"n{number:03}"
        box.request("POST", "/api/sessions", {"name": name, "title": name, "prompt": SCRIPT.format(name=name)})

    def fresh() -> list[dict[str, Any]]:
        return [one for one in box.sessions() if int(one["name"][1:]) in numbers]

    def ready() -> bool:
        return [one["pr"]["state"] for one in fresh() if one["pr"]].count("open") == len(numbers)

    box.until(ready, f"{len(numbers)} pull requests", PATIENCE)
    for session in fresh():
        forge.check(f"acme/{session['project']}", session["head"], "tests", "success")

    def settled() -> bool:
        return [one["status"] for one in fresh()].count("review_pending") == len(numbers)

    box.until(settled, "their checks", PATIENCE)
    return {one["id"]: one["pr"]["number"] for one in fresh()}


def points_of(forge: GitHubServer) -> float:
    """Points of GraphQL that were spent there."""
    return float(forge.ledger.counts().get("graphql points", 0))


def _quiet(forge: GitHubServer, way: str, most: float) -> Iterator[Figure]:
    time.sleep(
        60.0
    )  # what was under way comes to its end: two polls, the second for what changed in the second of its reading
    before = dict(forge.ledger.counts())
    time.sleep(QUIET)
    after = forge.ledger.counts()
    spent = {kind: after[kind] - before.get(kind, 0) for kind in after if after[kind] != before.get(kind, 0)}
    requests = spent.get("rest", 0) / (QUIET / 60)
    fresh = spent.get("rest", 0) - spent.get("rest 304", 0)
    note = ", ".join(f"{count} {kind}" for kind, count in sorted(spent.items())) or "none at all"
    yield Figure(
        f"requests a minute, {COUNT} open pull requests, nothing changing, {way}", requests, most, "requests", note=note
    )
    yield Figure(f"of these, not answered by 304, {way}", float(fresh), 0.0, "requests")
    yield Figure(f"GraphQL points meanwhile, {way}", float(spent.get("graphql points", 0)), 0.0, "points")


def _seen(box: Sandbox, forge: GitHubServer, pulls: dict[str, int], way: str, most: float, times: int) -> Figure:
    took = []
    for number, session in enumerate(list(pulls)[:times]):
        repo = f"acme/{session.rpartition('-')[0]}"
        text = f"seen{way}{number} [[say: noted]]"
        begun = time.monotonic()
        forge.comment(forge.find_pull(repo, pulls[session]), text, by="rev")
        end = begun + 4 * most
        while text not in json.dumps(box.events(session)) and time.monotonic() < end:
            time.sleep(0.05)
        took.append(time.monotonic() - begun)
    took.sort()
    middle = took[len(took) // 2]
    return Figure(
        f"a comment at GitHub → known here, {way} (worst of {times})",
        took[-1],
        most,
        "s",
        note=f"median {middle:.2f} s",
    )
