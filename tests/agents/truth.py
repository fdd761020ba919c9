"""Checks that the shown activity is true: five sessions of a real agent are sampled every half second and get messages at random
moments; then the samples and messages are compared with the model's log.

    python -m tests.agents.truth --agent claude-code --messages 200 --seed 1
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_orchestrator.testing.model import ModelTurn, ScriptedModel
from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import LABS, AgentLab, write_files

SESSIONS = 5
SAMPLE_INTERVAL = 0.5
TOLERANCE_SECONDS = 1.0
"""Seconds by which the shown activity may differ from the model's log, in both directions."""
BUSY_ACTIVITIES = frozenset({"active", "retrying"})
QUIET_ACTIVITIES = frozenset({"idle", "waiting_input", "interrupted"})


@dataclass
class AccuracyResult:
    """The counts and errors of a run."""

    samples: int = 0
    wrong: list[str] = field(default_factory=list)
    messages: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unacknowledged: list[str] = field(default_factory=list)
    commits: int = 0

    @property
    def is_good(self) -> bool:
        return not (self.wrong or self.lost or self.doubled or self.unacknowledged) and self.commits == SESSIONS


class ActivitySampler(threading.Thread):
    """Samples all sessions every half second."""

    def __init__(self, box: Sandbox) -> None:
        super().__init__(daemon=True)
        self.box = box
        self.samples: list[tuple[float, str, str]] = []
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(SAMPLE_INTERVAL):
            before = time.time()
            sessions = self.box.sessions()
            if time.time() - before < SAMPLE_INTERVAL / 2:  # otherwise the moment of the sample is not exact
                self.samples += [(before, session["name"], session["activity"]) for session in sessions]


def measure(lab: AgentLab, installed_agent: dict[str, Any], folder: Path, messages: int, seed: int) -> AccuracyResult:
    """Run the sessions, sample them, and return the result."""
    result, chance = AccuracyResult(), random.Random(seed)
    with ScriptedModel() as model:
        path = os.pathsep.join([*installed_agent["path"], os.environ["PATH"]])
        with Sandbox(folder, "tmux", {**lab.env(model.url), "PATH": path}) as box:
            for name, source in installed_agent.get("seeds", {}).items():
                shutil.copytree(source, box.user_home / name, symlinks=True)
            write_files(box.user_home, lab.files(model.url))
            agent = {"permissions": "auto-edit", **({"model": lab.model} if lab.model else {})}
            settings = {
                "defaults": {"agent": lab.agent, "runtime": "tmux"},
                "orchestrator": {"maxParallelAgents": SESSIONS + 1},
                "projects": {"app": {"path": ".", "agentConfig": agent}},
            }
            box.repository(config=json.dumps(settings))
            box.start()
            sampler = ActivitySampler(box)
            sampler.start()
            names = [f"s{number}" for number in range(SESSIONS)]
            for name in names:
                box.ao("new", lab.commit(f"{name}.txt", name), "--name", name, "--no-wait")
            box.wait_until(lambda: all(box.session(name)["activity"] == "idle" for name in names), "five commits", 180)
            sent = _send(box, model, names, messages, chance)
            sampler.ended.set()
            sampler.join()
            _check_messages(box, model, sent, result)
            _check_states(model, sampler.samples, result)
            result.commits = sum(
                f"{name}.txt" in box.git("ls-tree", "--name-only", f"feature/{name}").split() for name in names
            )
    return result


def _send(
    box: Sandbox, model: ScriptedModel, names: list[str], messages: int, chance: random.Random
) -> dict[str, tuple[str, str]]:
    sent: dict[str, tuple[str, str]] = {}
    for number in range(messages):
        name, text = chance.choice(names), f"message {number:04} [[wait: {chance.uniform(0, 1.5):.2f}]] [[say: ok]]"
        answer = box.request("POST", f"/api/sessions/{name}/message", {"content": text})
        sent[f"message {number:04}"] = (name, answer["messageId"])
        time.sleep(chance.expovariate(1.0))

    def all_acknowledged() -> bool:
        states = [
            message["state"]
            for name in names
            for message in box.request("GET", f"/api/sessions/{name}/messages")["messages"]
        ]
        busy = any(box.session(name)["activity"] in BUSY_ACTIVITIES for name in names)
        return all(state in ("acknowledged", "failed") for state in states) and not busy

    box.wait_until(all_acknowledged, "all messages to be acknowledged", 60 + messages)
    time.sleep(2 * SAMPLE_INTERVAL)
    return sent


def _check_messages(
    box: Sandbox, model: ScriptedModel, sent: dict[str, tuple[str, str]], result: AccuracyResult
) -> None:
    result.messages = len(sent)
    acknowledged: dict[str, int] = {}
    for name in {name for name, _ in sent.values()}:
        after = 0
        while page := box.request("GET", f"/api/sessions/{name}/events?limit=1000&after={after}")["events"]:
            for event in page:
                if event["type"] == "agent-ack":
                    message = event["data"]["message"]
                    acknowledged[message] = acknowledged.get(message, 0) + 1
            after = page[-1]["seq"]
    for text, (name, message) in sent.items():
        count = model.count(text)
        if count == 0:
            result.lost.append(f"{name}: {text}")
        elif count > 1:
            result.doubled.append(f"{name}: {text} came {count} times")
        if acknowledged.get(message, 0) != 1:
            result.unacknowledged.append(f"{name}: {text} {acknowledged.get(message, 0)} times")


def _check_states(model: ScriptedModel, samples: list[tuple[float, str, str]], result: AccuracyResult) -> None:
    folders = {exchange.request.session: Path(exchange.request.folder or "").name for exchange in model.exchanges}
    turns: dict[str, list[ModelTurn]] = {}
    for turn in model.turns():
        turns.setdefault(folders.get(turn.session, ""), []).append(turn)
    for sampled_at, name, activity in samples:
        if activity not in BUSY_ACTIVITIES | QUIET_ACTIVITIES:
            continue  # starting: no activity is shown yet
        result.samples += 1
        is_shown_busy = activity in BUSY_ACTIVITIES
        if not any(
            _busy(turns.get(name, []), sampled_at + shift / 10) == is_shown_busy
            for shift in range(-int(TOLERANCE_SECONDS * 10), 11)
        ):
            result.wrong.append(f"{name} at {sampled_at:.1f}: shown {activity}")


def _busy(turns: list[ModelTurn], moment: float) -> bool:
    return any(turn.began <= moment <= (turn.ended or moment) for turn in turns)


def main() -> int:
    """Print the figures; return 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", default="claude-code")
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    installer = Path(__file__).parents[2] / "scripts" / "agents"
    installed_agents = json.loads(subprocess.check_output([sys.executable, str(installer), "--json"]))
    with tempfile.TemporaryDirectory(prefix="ao-truth-") as folder:
        result = measure(
            LABS[options.agent], installed_agents[options.agent], Path(folder), options.messages, options.seed
        )
    sys.stdout.write(
        f"{options.agent}: {result.commits} of {SESSIONS} committed; {result.samples} samples, {len(result.wrong)} not true; "
        f"{result.messages} messages, {len(result.lost)} lost, {len(result.doubled)} doubled, "
        f"{len(result.unacknowledged)} not acknowledged exactly once\n"
    )
    for line in [*result.wrong[:20], *result.lost, *result.doubled, *result.unacknowledged]:
        sys.stdout.write(f"  {line}\n")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
