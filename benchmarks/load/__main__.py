"""`python -m benchmarks.load`: print a table, write a report; exit with 1 if a figure misses its bound."""

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
from benchmarks.load.assessment import LoadRun, figures, report
from benchmarks.load.plan import REPOSITORIES, SECRET, LoadPlan
from benchmarks.load.processes import MeasuringProcess
from benchmarks.load.samples import ProcessSampler, cpu_of_machine
from benchmarks.load.viewers import printed_block
from benchmarks.measure import TABLE_HEAD
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
PULL_REQUEST_TASK = "[[edit: {name}.txt|x]] [[commit: work]] [[done: worked]]"
READY_TASK = "[[say: ready]]"
PARALLEL_REQUESTS = 4
"""Sessions requested at the same time."""
TIMEOUT = 300.0
SETTLING = 3.0
"""Seconds without an event after which the load has ended."""


def main() -> int:
    """Run the load and print the figures."""
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
    options = parser.parse_args()
    plan = LoadPlan(
        options.sessions, options.viewers, options.webhooks, options.minutes, options.runtime, options.stacks
    )
    if not fetch.GRAPHQL.is_present:
        sys.stderr.write("GitHub's published schema is needed: make load fetches it\n")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="ao-load-"))
    print(
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )
    try:
        run = play_load(plan, folder)
    finally:
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    results = list(figures(run))
    print(f"\n{TABLE_HEAD}")
    print("\n".join(figure.row() for figure in results))
    if options.report:
        options.report.write_text(report(run, results))
    missed = [figure.name for figure in results if not figure.holds]
    if missed:
        print(f"\nmissed: {', '.join(missed)}")
    return 1 if missed else 0


def play_load(plan: LoadPlan, folder: Path) -> LoadRun:
    """Run the load once and return everything measured."""
    run = LoadRun(plan)
    pulse, agent_log = folder / "pulse.jsonl", folder / "agents.jsonl"
    env = {
        "AO_LOAD_PULSE": str(pulse),
        "AO_DEMO_LOG": str(agent_log),
        **({"AO_LOAD_STACKS": "1"} if plan.stacks else {}),
    }
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    sandbox.launch = _launch
    with ExitStack() as stack:
        github = _child(stack, forge.play, fetch.GRAPHQL.path(fetch.GRAPHQL.files[0]))
        forge_address = github.receive()
        box = stack.enter_context(Sandbox(folder / "box", plan.runtime, env))
        _prepare(box, plan, forge_address["url"], forge_address["token"])
        run.spawn_seconds, sessions, pulls = _spawn(box, plan)
        _print_progress(f"{len(sessions)} sessions after {run.spawn_seconds:.0f} s")
        github.send(pulls)
        github.receive()
        _load(stack, box, run, github, sessions, pulls)
        _print_progress("gathering")
        _gather(box, run, sessions, pulse, agent_log)
        _end(box, run)
        github.send("end")
    return run


def _launch(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-m", "benchmarks.load.daemon", *argv]
    return subprocess.Popen(command, env=env, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def _child(stack: ExitStack, play: Any, *arguments: Any) -> MeasuringProcess:
    child = MeasuringProcess(play, *arguments)
    stack.callback(child.end)
    return child


def _print_progress(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


# -- before --------------------------------------------------------------------------------------------------------------


def _prepare(box: Sandbox, plan: LoadPlan, url: str, token: str) -> None:
    """Clone the forge's repositories and start the daemon."""
    for repo in REPOSITORIES:
        name = repo.partition("/")[2]
        box.repository(name, config=CONFIG.format(name=name, url=url, token=token, secret=SECRET, runtime=plan.runtime))
        box.git("remote", "add", "origin", f"{url.replace('://', f'://x-access-token:{token}@')}/{repo}.git")
        box.git("fetch", "-q", "origin")
        box.git("reset", "-q", "--hard", "origin/main")
        box.git("remote", "set-url", "origin", f"{url}/{repo}.git")
    box.start()


def _spawn(box: Sandbox, plan: LoadPlan) -> tuple[float, list[str], dict[str, list[tuple[int, str]]]]:
    """Start all sessions, those with a pull request first; return the seconds, their ids, and the open pull requests by repository."""
    started_at = time.monotonic()

    def make(number: int) -> None:
        from urllib.parse import quote

        name = f"n{number:03}"
        folder = quote(str(box.folder / REPOSITORIES[number % len(REPOSITORIES)].partition("/")[2]))
        prompt = PULL_REQUEST_TASK.format(name=name) if number < plan.pulls else READY_TASK
        with box.client() as client:
            client.request(
                "POST", "/api/sessions", {"name": name, "title": name, "prompt": prompt}, headers={"X-AO-Cwd": folder}
            )

    with ThreadPoolExecutor(PARALLEL_REQUESTS) as people:
        list(people.map(make, range(plan.sessions)))

    def ready() -> bool:
        sessions = box.sessions()
        open_count = sum(bool(session["pr"]) and session["pr"]["state"] == "open" for session in sessions)
        idle = sum(
            session["activity"]["state"] == "idle"
            if isinstance(session["activity"], dict)
            else session["activity"] == "idle"
            for session in sessions
        )
        if time.monotonic() - started_at > TIMEOUT - 5:
            _print_progress(f"{open_count} open, {idle} idle of {len(sessions)}")
        time.sleep(0.5)
        return bool(open_count == plan.pulls and idle == plan.sessions)

    box.wait_until(ready, f"{plan.sessions} sessions", TIMEOUT)
    seconds = time.monotonic() - started_at
    sessions = box.sessions()
    pulls: dict[str, list[tuple[int, str]]] = {repo: [] for repo in REPOSITORIES}
    for session in sessions:
        if session["pr"]:
            pulls[f"acme/{session['project']}"].append((session["pr"]["number"], session["head"]))
    return seconds, [session["id"] for session in sessions], pulls


# -- meanwhile -----------------------------------------------------------------------------------------------------------


def _load(
    stack: ExitStack,
    box: Sandbox,
    run: LoadRun,
    github: MeasuringProcess,
    sessions: Sequence[str],
    pulls: dict[str, list[tuple[int, str]]],
) -> None:
    plan, pid = run.plan, box.daemon_pid()
    assert pid is not None
    url = str(json.loads(box.home.daemon_info.read_text())["url"])
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
        child.receive(120)
    chatter = f"[[chatter: {plan.bytes_each} {plan.seconds:g}]]"
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as people:
        list(
            people.map(lambda id_: box.request("POST", f"/api/sessions/{id_}/message", {"content": chatter}), sessions)
        )
    started_at, cpu_before = time.monotonic(), cpu_of_machine()
    _print_progress(f"under load for {plan.minutes:g} min, daemon {pid}")
    with ProcessSampler(pid) as sampler:
        github.send((hook, plan.comments, plan.seconds))
        for child in (prober, sender):
            child.send("go")
        run.probe_results = prober.receive(plan.seconds + 60)
        run.webhook_results = sender.receive(plan.seconds + 60)
    run.samples, run.load_seconds = sampler.samples, time.monotonic() - started_at
    busy_seconds, core_seconds = (after - before for after, before in zip(cpu_of_machine(), cpu_before, strict=True))
    run.cpu_share = busy_seconds / core_seconds
    run.forge_results = github.receive(60)
    _print_progress("waiting for the last output")
    box.wait_until(partial(_silent, Path(box.env["AO_DEMO_LOG"]), plan.sessions), "the agents' last output", 120)
    run.last_event = _last_event(box)
    viewer_process.send("stop")
    run.viewer_results = viewer_process.receive()


def _last_event(box: Sandbox) -> int:
    """Wait until there are no new events; return the last event's number."""
    last, since = 0, time.monotonic()
    while time.monotonic() < since + SETTLING:
        newest = int(box.request("GET", "/api/events?limit=1")["events"][-1]["seq"])
        if newest != last:
            last, since = newest, time.monotonic()
        time.sleep(0.5)
    return last


def _silent(agent_log: Path, sessions: int) -> bool:
    """Return whether every agent has printed its last block."""
    time.sleep(1.0)
    return agent_log.read_text().count('"event": "chatter"') >= sessions


# -- afterwards ----------------------------------------------------------------------------------------------------------


def _gather(box: Sandbox, run: LoadRun, sessions: Sequence[str], pulse: Path, agent_log: Path) -> None:
    run.pulse = _lines(pulse)
    begun = run.samples[0].at
    run.pulse = [entry for entry in run.pulse if begun <= entry["at"] <= begun + run.plan.seconds]
    if run.plan.stacks:
        for entry in run.pulse:
            if "stack" in entry:
                print(" < ".join(reversed(entry["stack"][-12:])))
    run.agent_log = _lines(agent_log)
    after = 0
    while page := box.request("GET", f"/api/events?limit=5000&after={after}")["events"]:
        run.events += page
        after = page[-1]["seq"]
    block = printed_block(run.plan.bytes_each)
    for session in sessions:
        run.report_counts[session] = (
            (box.home.session(session) / "spool.1.jsonl").read_text().count('"event": "progress"')
        )
        run.log_bytes[session] = _whole_blocks(box.home.terminal_log(session), block)


def _whole_blocks(log: Path, block: bytes) -> int:
    """Return the bytes of complete blocks in order in a terminal's log, without the carriage returns that a terminal adds."""
    text, number, position, count = log.read_bytes(), 0, 0, 0
    while True:
        head = b"[chatter %d]\r\n" % number
        position = text.find(head + block, position)
        if position < 0:
            return count
        count += len((head + block).replace(b"\r\n", b"\n"))
        position += len(head + block)
        number += 1


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _end(box: Sandbox, run: LoadRun) -> None:
    started_at = time.monotonic()
    with box.client() as client:
        client.request("POST", "/api/shutdown", {"sessions": True})
    box.wait_until(lambda: box.daemon_pid() is None, "the daemon's end", 300)
    end = time.monotonic() + 15
    while (remaining := box.processes()) and time.monotonic() < end:
        time.sleep(0.2)
    run.shutdown_seconds, run.leftover_pids = time.monotonic() - started_at, remaining
    lines = box.home.log.read_text(errors="replace").splitlines()
    for number, line in enumerate(lines):
        if "Traceback" in line or "level=error" in line or "level=critical" in line:
            error = next(
                (following_line for following_line in lines[number + 1 :] if not following_line.startswith(" ")), ""
            )
            run.error_lines.append(f"{line}: {error}" if line.startswith("Traceback") else line)


if __name__ == "__main__":
    sys.exit(main())
