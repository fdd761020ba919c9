"""Play the demo while the daemon is killed repeatedly: `python -m tests.faults.loop --rounds 10 --seed 1`.

However often it is killed, every change is merged exactly once, every message reaches its agent at most once, and the base passes
its checks.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from agent_orchestrator.errors import AoError
from agent_orchestrator.testing import demo
from agent_orchestrator.testing.sandbox import Sandbox

TIMEOUT = 120.0


def play(seed: int, runtime: str = "process") -> list[str]:
    """Play one demo and return the problems."""
    folder = Path(tempfile.mkdtemp(prefix="ao-loop-"))
    with Sandbox(folder, runtime, {"AO_DEMO_LOG": str(folder / "truth.jsonl")}) as box:
        demo.prepare(box)
        for name, (title, body) in demo.ISSUES.items():
            issue = box.request("POST", "/api/issues", {"title": title, "body": body})["number"]
            box.request("POST", "/api/sessions", {"name": name, "issue": str(issue), "agent": name})
        kills = _play_while_killing(box, random.Random(seed))
        wrong = _problems(box, folder / "truth.jsonl")
        sys.stderr.write(f"seed {seed}: the daemon was killed {kills} times\n")
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return [f"seed {seed} ({folder}): {line}" for line in wrong]


def _play_while_killing(box: Sandbox, chance: random.Random) -> int:
    director, kills, end = demo.Director(box), 0, time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        quiet_until = time.monotonic() + chance.uniform(0.2, 2.5)
        while time.monotonic() < quiet_until:
            with contextlib.suppress(AoError):
                director.respond()
                if director.is_finished():
                    return kills
            time.sleep(0.05)
        if kills < 12:
            box.stop(signal.SIGKILL)
            box.start()
            kills += 1
    states = [(session["id"], session["status"], session["why"]) for session in box.sessions()]
    raise TimeoutError(f"the loop did not come to its end; the sessions: {states}")


def _problems(box: Sandbox, truth: Path) -> list[str]:
    wrong = []
    titles = Counter(box.git("log", "--format=%s", "main").splitlines())
    for name in ("price", "cart", "report", "currency"):
        matching = [(title, count) for title, count in titles.items() if title.startswith(demo.ISSUES[name][0])]
        if [count for _, count in matching] != [1]:
            wrong.append(f"{name} landed as {matching}")
    received = Counter(
        entry["id"] for line in truth.read_text().splitlines() if (entry := json.loads(line))["event"] == "message"
    )
    wrong += [f"message {message} was received {count} times" for message, count in received.items() if count > 1]
    tests = subprocess.run(
        [sys.executable, "-m", "unittest", "-q"],
        cwd=box.repo,
        env={**os.environ, **box.env},
        capture_output=True,
        check=False,
    )
    if tests.returncode:
        wrong.append(f"main fails its own tests: {tests.stderr.decode()[-300:]}")
    if box.git("status", "--porcelain", "--untracked-files=no"):
        wrong.append("the user's checkout is not what main is")
    return wrong


def main() -> int:
    """Play the requested number of demos."""
    parser = argparse.ArgumentParser(prog="tests.faults.loop")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for number in range(options.rounds):
        if wrong := play(options.seed + number):
            sys.stderr.writelines(f"WRONG {line}\n" for line in wrong)
            return 1
    sys.stdout.write(f"{options.rounds} loops under fire, nothing lost and nothing doubled\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
