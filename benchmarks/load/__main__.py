"""`python -m benchmarks.load`: prints a table, writes a report; exits with 1 if a figure is not as it must be."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from agent_orchestrator.testing import sandbox
from agent_orchestrator.testing.sandbox import Sandbox
from benchmarks.load import forge, probes, viewers, webhooks
from benchmarks.load.assessment import Run, figures, report
from benchmarks.load.plan import REPOSITORIES, SECRET, Plan
from benchmarks.load.processes import Child
from benchmarks.load.samples import Sampler, cpu_of_machine
from benchmarks.load.viewers import printed
from benchmarks.measure import HEAD
from tests.forges import fetch

CONFIG = """
defaults: {{agent: demo, runtime: {runtime}}}
projects:
  {name}:
    path: .
    repo: acme/{name}
    tracker: local
    scm: {{plugin: github, apiUrl: "{url}", token: "{token}", webhook: {{secret: {secret}}}}}
"""
OFFERS = "[[edit: {name}.txt|x]] [[commit: work]] [[done: worked]]"
READY = "[[say: ready]]"
AT_ONCE = 4
"""People who make sessions at the same time."""
PATIENCE = 300.0
SETTLING = 3.0
"""Seconds without an event after which everything has come to its end."""


def main() -> int:
    """Play it, and judge."""
    parser = argparse.ArgumentParser(prog="benchmarks.load", description=__doc__)
    parser.add_argument("--sessions", type=int, default=200, help="agents that print a megabyte a second together")
    parser.add_argument("--viewers", type=int, default=50, help="of boards, logs and terminals, and programs that ask")
    parser.add_argument("--webhooks", type=int, default=1000, help="in a minute")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--runtime", choices=("process", "tmux"), default="process")
    parser.add_argument("--report", type=Path, help="write all of it there, as JSON")
    parser.add_argument(
        "--stacks", action="store_true", help="note what the daemon is at whenever its event loop is late"
    )
    parser.add_argument("--keep", action="store_true", help="leave the folder with logs and database")
    given = parser.parse_args()
    plan = Plan(given.sessions, given.viewers, given.webhooks, given.minutes, given.runtime, given.stacks)
    if not fetch.GRAPHQL.present:
        sys.stderr.write("GitHub's published schema is needed: make load fetches it\n")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="ao-load-"))
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
    try:
        run = played(plan, folder)
    finally:
        if given.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    found = list(figures(run))
    print(f"\n{HEAD}")
    print("\n".join(figure.row() for figure in found))
    if given.report:
        given.report.write_text(report(run, found))
    missed = [figure.name for figure in found if not figure.holds]
    if missed:
        print(f"\nmissed: {', '.join(missed)}")
    return 1 if missed else 0


def played(plan: Plan, folder: Path) -> Run:
    """One run."""
    run = Run(plan)
    pulse, own = folder / "pulse.jsonl", folder / "agents.jsonl"
    env = {"AO_LOAD_PULSE": str(pulse), "AO_DEMO_LOG": str(own), **({"AO_LOAD_STACKS": "1"} if plan.stacks else {})}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    sandbox.launch = _launch
    with ExitStack() as stack:
        github = _child(stack, forge.play, fetch.GRAPHQL.path(fetch.GRAPHQL.files[0]))
        at = github.hear()
        box = stack.enter_context(Sandbox(folder / "box", plan.runtime, env))
        _prepare(box, plan, at["url"], at["token"])
        run.spawned, sessions, pulls = _spawn(box, plan)
        _say(f"{len(sessions)} sessions after {run.spawned:.0f} s")
        github.tell(pulls)
        github.hear()
        _load(stack, box, run, github, sessions, pulls)
        _say("gathering")
        _gather(box, run, sessions, pulse, own)
        _end(box, run)
        github.tell("end")
    return run


def _launch(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-m", "benchmarks.load.daemon", *argv]
    return subprocess.Popen(command, env=env, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def _child(stack: ExitStack, part: Any, *given: Any) -> Child:
    child = Child(part, *given)
    stack.callback(child.end)
    return child


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


# -- before --------------------------------------------------------------------------------------------------------------


def _prepare(box: Sandbox, plan: Plan, url: str, token: str) -> None:
    """Clones of the forge's repositories, and a daemon."""
    for repo in REPOSITORIES:
        name = repo.partition("/")[2]
        box.repository(name, config=CONFIG.format(name=name, url=url, token=token, secret=SECRET, runtime=plan.runtime))
        box.git("remote", "add", "origin", f"{url.replace('://', f'://x-access-token:{token}@')}/{repo}.git")
        box.git("fetch", "-q", "origin")
        box.git("reset", "-q", "--hard", "origin/main")
        box.git("remote", "set-url", "origin", f"{url}/{repo}.git")
    box.start()


def _spawn(box: Sandbox, plan: Plan) -> tuple[float, list[str], dict[str, list[tuple[int, str]]]]:
    """All sessions: those with a pull request first; returns how long that took, their ids, and what is open where."""
    begun = time.monotonic()

    def make(number: int) -> None:
        from urllib.parse import quote

        name = f"n{number:03}"
        where = quote(str(box.folder / REPOSITORIES[number % len(REPOSITORIES)].partition("/")[2]))
        prompt = OFFERS.format(name=name) if number < plan.pulls else READY
        with box.client() as client:
            client.request(
                "POST", "/api/sessions", {"name": name, "title": name, "prompt": prompt}, headers={"X-AO-Cwd": where}
            )

    with ThreadPoolExecutor(AT_ONCE) as people:
        list(people.map(make, range(plan.sessions)))

    def ready() -> bool:
        found = box.sessions()
        opened = sum(bool(one["pr"]) and one["pr"]["state"] == "open" for one in found)
        idle = sum(
            one["activity"]["state"] == "idle" if isinstance(one["activity"], dict) else one["activity"] == "idle"
            for one in found
        )
        if time.monotonic() - begun > PATIENCE - 5:
            _say(f"{opened} open, {idle} idle of {len(found)}")
        time.sleep(0.5)
        return bool(opened == plan.pulls and idle == plan.sessions)

    box.until(ready, f"{plan.sessions} sessions", PATIENCE)
    took = time.monotonic() - begun
    sessions = box.sessions()
    pulls: dict[str, list[tuple[int, str]]] = {repo: [] for repo in REPOSITORIES}
    for one in sessions:
        if one["pr"]:
            pulls[f"acme/{one['project']}"].append((one["pr"]["number"], one["head"]))
    return took, [one["id"] for one in sessions], pulls


# -- meanwhile -----------------------------------------------------------------------------------------------------------


def _load(
    stack: ExitStack,
    box: Sandbox,
    run: Run,
    github: Child,
    sessions: Sequence[str],
    pulls: dict[str, list[tuple[int, str]]],
) -> None:
    plan, pid = run.plan, box.daemon_pid()
    assert pid is not None
    url = str(json.loads(box.home.info.read_text())["url"])
    tokens = {
        role: box.request("POST", "/api/tokens", {"name": f"load {role}", "role": role})["token"]
        for role in ("viewer", "operator")
    }
    hook = f"{url}/api/webhooks/github"
    viewer_process = _child(
        stack, viewers.play, url, tokens["viewer"], sessions[:: max(1, len(sessions) // max(1, plan.terminals))], plan
    )
    prober = _child(stack, probes.play, url, tokens["operator"], sessions, plan.seconds)
    sender = _child(stack, webhooks.play, hook, pulls, plan.webhooks - plan.comments, plan.seconds)
    for child in (viewer_process, prober, sender):
        child.hear(120)
    chatter = f"[[chatter: {plan.bytes_each} {plan.seconds:g}]]"
    with ThreadPoolExecutor(AT_ONCE) as people:
        list(
            people.map(lambda id_: box.request("POST", f"/api/sessions/{id_}/message", {"content": chatter}), sessions)
        )
    begun, busy = time.monotonic(), cpu_of_machine()
    _say(f"under load for {plan.minutes:g} min, daemon {pid}")
    with Sampler(pid) as sampler:
        github.tell((hook, plan.comments, plan.seconds))
        for child in (prober, sender):
            child.tell("go")
        run.probed = prober.hear(plan.seconds + 60)
        run.sent = sender.hear(plan.seconds + 60)
    run.samples, run.lasted = sampler.samples, time.monotonic() - begun
    worked, had = (after - before for after, before in zip(cpu_of_machine(), busy, strict=True))
    run.busy = worked / had
    run.forge = github.hear(60)
    _say("the last words")
    box.until(partial(_silent, Path(box.env["AO_DEMO_LOG"]), plan.sessions), "the agents' last words", 120)
    run.last = _last_event(box)
    viewer_process.tell("stop")
    run.watched = viewer_process.hear()


def _last_event(box: Sandbox) -> int:
    """The last event's number, once there was none for a while."""
    last, since = 0, time.monotonic()
    while time.monotonic() < since + SETTLING:
        newest = int(box.request("GET", "/api/events?limit=1")["events"][-1]["seq"])
        if newest != last:
            last, since = newest, time.monotonic()
        time.sleep(0.5)
    return last


def _silent(own: Path, sessions: int) -> bool:
    """Has every agent printed its last block?"""
    time.sleep(1.0)
    return own.read_text().count('"event": "chatter"') >= sessions


# -- afterwards ----------------------------------------------------------------------------------------------------------


def _gather(box: Sandbox, run: Run, sessions: Sequence[str], pulse: Path, own: Path) -> None:
    run.pulse = _lines(pulse)
    begun = run.samples[0].at
    run.pulse = [one for one in run.pulse if begun <= one["at"] <= begun + run.plan.seconds]
    if run.plan.stacks:
        for one in run.pulse:
            if "stack" in one:
                print(" < ".join(reversed(one["stack"][-12:])))
    run.agents = _lines(own)
    after = 0
    while page := box.request("GET", f"/api/events?limit=5000&after={after}")["events"]:
        run.events += page
        after = page[-1]["seq"]
    block = printed(run.plan.bytes_each)
    for session in sessions:
        run.reported[session] = (box.home.session(session) / "spool.1.jsonl").read_text().count('"event": "progress"')
        run.logged[session] = _printed(box.home.terminal_log(session), block)


def _printed(log: Path, block: bytes) -> int:
    """Bytes of whole blocks in order in a terminal's log, without the carriage returns that a terminal adds."""
    text, number, at, found = log.read_bytes(), 0, 0, 0
    while True:
        head = b"[chatter %d]\r\n" % number
        at = text.find(head + block, at)
        if at < 0:
            return found
        found += len((head + block).replace(b"\r\n", b"\n"))
        at += len(head + block)
        number += 1


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _end(box: Sandbox, run: Run) -> None:
    begun = time.monotonic()
    with box.client() as client:
        client.request("POST", "/api/shutdown", {"sessions": True})
    box.until(lambda: box.daemon_pid() is None, "the daemon's end", 300)
    end = time.monotonic() + 15
    while (left := box.processes()) and time.monotonic() < end:
        time.sleep(0.2)
    run.ended, run.left = time.monotonic() - begun, left
    lines = box.home.log.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines):
        if "Traceback" in line or "level=error" in line or "level=critical" in line:
            error = next((one for one in lines[number + 1 :] if not one.startswith(" ")), "")
            run.troubles.append(f"{line}: {error}" if line.startswith("Traceback") else line)


if __name__ == "__main__":
    sys.exit(main())
