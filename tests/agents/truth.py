"""Is what is shown true? Five sessions of a real agent at once, looked at every half second, sent messages at random moments; then
everything is compared with the model's own log.

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

from agent_orchestrator.testing.model import ScriptedModel, Turn
from agent_orchestrator.testing.sandbox import Sandbox
from tests.agents.labs import LABS, Lab, write_files

SESSIONS = 5
EVERY = 0.5
LAG = 1.0
"""Seconds by which what is shown may be behind, or the agent's own word before, the model's log."""
BUSY = frozenset({"active", "retrying"})
QUIET = frozenset({"idle", "waiting_input", "interrupted"})


@dataclass
class Result:
    """What came of it."""

    samples: int = 0
    wrong: list[str] = field(default_factory=list)
    messages: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    unacknowledged: list[str] = field(default_factory=list)
    commits: int = 0

    @property
    def good(self) -> bool:
        return not (self.wrong or self.lost or self.doubled or self.unacknowledged) and self.commits == SESSIONS


class Sampler(threading.Thread):
    """Looks at all sessions every half second."""

    def __init__(self, box: Sandbox) -> None:
        super().__init__(daemon=True)
        self.box = box
        self.seen: list[tuple[float, str, str]] = []
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(EVERY):
            before = time.time()
            sessions = self.box.sessions()
            if time.time() - before < EVERY / 2:  # otherwise nobody knows when it was so
                self.seen += [(before, one["name"], one["activity"]) for one in sessions]


def measure(lab: Lab, known: dict[str, Any], folder: Path, messages: int, seed: int) -> Result:
    """Run it all."""
    result, chance = Result(), random.Random(seed)
    with ScriptedModel() as model:
        path = os.pathsep.join([*known["path"], os.environ["PATH"]])
        with Sandbox(folder, "tmux", {**lab.env(model.url), "PATH": path}) as box:
            for name, source in known.get("seeds", {}).items():
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
            sampler = Sampler(box)
            sampler.start()
            names = [f"s{number}" for number in range(SESSIONS)]
            for name in names:
                box.ao("new", lab.commit(f"{name}.txt", name), "--name", name, "--no-wait")
            box.until(lambda: all(box.session(name)["activity"] == "idle" for name in names), "five commits", 180)
            sent = _send(box, model, names, messages, chance)
            sampler.ended.set()
            sampler.join()
            _judge_messages(box, model, sent, result)
            _judge_states(model, sampler.seen, result)
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

    def settled() -> bool:
        states = [
            one["state"] for name in names for one in box.request("GET", f"/api/sessions/{name}/messages")["messages"]
        ]
        busy = any(box.session(name)["activity"] in BUSY for name in names)
        return all(state in ("acknowledged", "failed") for state in states) and not busy

    box.until(settled, "all messages to be acknowledged", 60 + messages)
    time.sleep(2 * EVERY)
    return sent


def _judge_messages(box: Sandbox, model: ScriptedModel, sent: dict[str, tuple[str, str]], result: Result) -> None:
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


def _judge_states(model: ScriptedModel, seen: list[tuple[float, str, str]], result: Result) -> None:
    folders = {one.request.session: Path(one.request.folder or "").name for one in model.exchanges}
    turns: dict[str, list[Turn]] = {}
    for turn in model.turns():
        turns.setdefault(folders.get(turn.session, ""), []).append(turn)
    for at, name, activity in seen:
        if activity not in BUSY | QUIET:
            continue  # starting: it claims nothing
        result.samples += 1
        shown = activity in BUSY
        if not any(_busy(turns.get(name, []), at + shift / 10) == shown for shift in range(-int(LAG * 10), 11)):
            result.wrong.append(f"{name} at {at:.1f}: shown {activity}")


def _busy(turns: list[Turn], at: float) -> bool:
    return any(turn.began <= at <= (turn.ended or at) for turn in turns)


def main() -> int:
    """Print the figures; 1 if anything was not true."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agent", default="claude-code")
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    installer = Path(__file__).parents[2] / "scripts" / "agents"
    known = json.loads(subprocess.check_output([sys.executable, str(installer), "--json"]))
    with tempfile.TemporaryDirectory(prefix="ao-truth-") as folder:
        result = measure(LABS[given.agent], known[given.agent], Path(folder), given.messages, given.seed)
    sys.stdout.write(
        f"{given.agent}: {result.commits} of {SESSIONS} committed; {result.samples} samples, {len(result.wrong)} not true; "
        f"{result.messages} messages, {len(result.lost)} lost, {len(result.doubled)} doubled, "
        f"{len(result.unacknowledged)} not acknowledged exactly once\n"
    )
    for line in [*result.wrong[:20], *result.lost, *result.doubled, *result.unacknowledged]:
        sys.stdout.write(f"  {line}\n")
    return 0 if result.good else 1


if __name__ == "__main__":
    sys.exit(main())
