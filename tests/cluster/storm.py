"""Rounds of random failures, by a seed: `python -m tests.cluster.storm --rounds 50 --seed 1 [--ray]`. Needs root.

Counting agents work on three machines; machines lose their power or their network, workers and the daemon are killed
or frozen. After each round all must work again, and the agents' logs must prove: never two agents of one session at
once, no commit lost, of uncommitted work at most what came after the last checkpoint, no message twice. At the end
each accepted message was read once, or is shown as failed with its reason. The program prints a report; the exit code
is 1 if a rule was broken.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.engine import have_ray
from tests.cluster.fleet import LabFleet, LoggedLaunch, boot_time, overlaps
from tests.cluster.lab import ClusterLab, LabMachine, missing_requirement

SAVE_SECONDS = 3.0
"""Seconds until a commit is on the local branch, and until a due checkpoint is made and sent."""
RECOVERY_SECONDS = 15.0
CALM_SECONDS = 20.0
DOUBT_TEXT = "send it again if"
"""Part of the reason if it is unknown whether a lost agent had read the message."""


@dataclass(slots=True)
class Storm:
    """A run of rounds."""

    fleet: LabFleet
    chance: random.Random
    sessions: tuple[str, ...]
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    takeover_delays: list[float] = field(default_factory=list)
    """Seconds from an agent's last sign of life until its session worked elsewhere."""
    lost_lines: list[int] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of session and message id."""
    fates: Counter[str] = field(default_factory=Counter)
    doubts: Counter[str] = field(default_factory=Counter)
    """The reasons of failed messages."""
    checked_launches: dict[str, int] = field(default_factory=dict)

    # -- rounds --------------------------------------------------------------------------------------------------------

    def play_round(self, number: int) -> None:
        """Cause a failure and check that all sessions work again."""
        kinds = [self.power, self.power, self.cut, self.cut, self.flicker, self.worker, self.freeze, self.daemon]
        if self.fleet.engine:
            kinds.append(self.actor)
        misfortune, before = self.chance.choice(kinds), len(self.problems)
        self.counts[misfortune.__name__] += 1
        if not self.wait_until_saved():
            self.problems.append(f"round {number}: commits did not come here within {CALM_SECONDS:g} s of calm")
        self.message(f"word {number}")
        began, event = boot_time(), misfortune()
        self.message(f"word {number} afterwards")
        try:
            self.fleet.wait_until(
                lambda: self._all_work(began),
                f"all to work after {event}",
                self.fleet.lease + 1 + RECOVERY_SECONDS + 30,
            )
        except TimeoutError:
            states = {name: self.fleet.box.session(f"app-{name}")["status"] for name in self.sessions}
            self.problems.append(f"round {number}: {event}: not all work again: {states}")
        seconds = boot_time() - began
        self.restore()
        for name in self.sessions:
            self.check(number, event, name, began)
        print_line(f"{number:3} {event}; all at work after {seconds:.1f} s")
        for line in self.problems[before:]:
            print_line(f"    {line}")

    def _all_work(self, began: float) -> bool:
        """Return whether all sessions work; a session that lost too many nodes is restored, as a person would."""
        idle = [name for name in self.sessions if not self.fleet.is_working(name, began)]
        if idle:
            time.sleep(0.3)
        for name in idle:
            session = self.fleet.box.session(f"app-{name}")
            if session["status"] == "interrupted" and not session["node"]:
                self.counts["given up, and restored"] += 1
                self.fleet.box.ao("restore", f"app-{name}", "--no-wait", check=False)
        return not idle

    def wait_until_saved(self) -> bool:
        """Wait until older commits are on their local branches, so that a failure loses only recent work; return False on timeout."""
        end = time.monotonic() + CALM_SECONDS
        while time.monotonic() < end:
            if all(self._is_saved(name) for name in self.sessions):
                return True
            time.sleep(0.2)
        return False

    def _is_saved(self, name: str) -> bool:
        launch = self.fleet.launches(name)[-1]
        old_commits = [n for at, n in launch.committed if at < boot_time() - SAVE_SECONDS]
        title = self.fleet.last_commit_title(name)
        return not old_commits or (title.startswith("step ") and int(title.split()[-1]) >= old_commits[-1])

    def message(self, text: str) -> None:
        """Send a message to a random session, whose node may be lost."""
        name = self.chance.choice(self.sessions)
        accepted = self.fleet.box.request("POST", f"/api/sessions/app-{name}/message", {"content": text})
        self.sent.append((name, accepted["messageId"]))

    def restore(self) -> None:
        """Bring all machines and the daemon back."""
        for machine in self.fleet.lab.machines:
            self.fleet.recover(machine)
        if self.fleet.box.daemon_pid() is None:
            self.fleet.start_daemon()
        self.fleet.wait_until_ready()
        self.fleet.ready(*(machine.name for machine in self.fleet.lab.machines), timeout=60)

    def check(self, number: int, what: str, name: str, began: float) -> None:
        """Check the launches of a session in this round by its log."""
        lives = self.fleet.launches(name)
        first = max(self.checked_launches.get(name, 0) - 1, 0)
        self.checked_launches[name] = len(lives)
        for line in overlaps(lives[first:]):
            self.problems.append(f"round {number}: {what}: {name} twice at once: {line}")
        for first_life, second_life in zip(lives[first:], lives[first + 1 :], strict=False):
            self.compare(f"round {number}: {what}: {name}", first_life, second_life, min(began, first_life.last))
            if second_life.machine != first_life.machine:
                self.takeover_delays.append(second_life.begin - first_life.last)
        messages = Counter(message for life in lives for message in life.messages if message.startswith("word "))
        for message, times in messages.items():
            if times > 1:
                self.problems.append(f"round {number}: {what}: {name} got {message!r} {times} times")

    def compare(self, where: str, earlier: LoggedLaunch, later: LoggedLaunch, until: float) -> None:
        """Check that a launch found the work of the previous one that was saved before the failure."""
        commits = [n for at, n in earlier.committed if n > later.initial_commit and at < until - SAVE_SECONDS]
        if commits:
            self.problems.append(f"{where}: {later.machine} did not find the commits {commits}")
        unsaved = [n for at, n in earlier.wrote if n > later.initial_number]
        old = [
            n
            for at, n in earlier.wrote
            if n > later.initial_number and at < until - self.fleet.checkpoint - SAVE_SECONDS
        ]
        self.lost_lines.append(len(unsaved))
        if old:
            self.problems.append(f"{where}: {later.machine} did not find the lines {old}, which were to be saved")

    # -- failures ------------------------------------------------------------------------------------------------------

    def _machine(self) -> LabMachine:
        return self.chance.choice(self.fleet.lab.machines)

    def power(self) -> str:
        """Power a machine off, until its sessions work elsewhere."""
        machine = self._machine()
        machine.power_off()
        return f"{machine.name} lost its power"

    def cut(self) -> str:
        """Cut a machine off for longer than a lease."""
        machine = self._machine()
        machine.unplug()
        time.sleep(self.fleet.lease + self.chance.uniform(0.5, 6.0))
        if self.chance.random() < 0.5:
            machine.plug()
        return f"{machine.name} was cut off"

    def flicker(self) -> str:
        """Cut a machine off for about the duration of a lease."""
        machine, pause = self._machine(), self.chance.uniform(0.3, self.fleet.lease + 1.5)
        machine.unplug()
        time.sleep(pause)
        machine.plug()
        return f"{machine.name} was cut off for {pause:.1f} s"

    def worker(self) -> str:
        """Kill the worker of a machine, and start it again after a pause."""
        machine = self._machine()
        self._signal(machine, signal.SIGKILL)
        time.sleep(self.chance.uniform(0, 2))
        self.fleet.recover(machine)
        return f"the worker of {machine.name} was killed"

    def freeze(self) -> str:
        """Suspend a worker for a while; its sessions must not outlive their leases."""
        machine, pause = self._machine(), self.chance.uniform(1, self.fleet.lease * 2)
        self._signal(machine, signal.SIGSTOP)
        time.sleep(pause)
        self._signal(machine, signal.SIGCONT)
        return f"the worker of {machine.name} stood still for {pause:.1f} s"

    def daemon(self) -> str:
        """Kill the daemon and start it again."""
        self.fleet.box.stop(signal.SIGKILL)
        time.sleep(self.chance.uniform(0, 1.5))
        self.fleet.start_daemon()
        return "the daemon was killed"

    def actor(self) -> str:
        """Kill Ray's process of the node actor."""
        machine = self._machine()
        for pid in machine.processes("ray::NodeActor"):
            os.kill(pid, signal.SIGKILL)
        return f"the actor on {machine.name} was killed"

    def _signal(self, machine: LabMachine, number: int) -> None:
        name = "cluster.node" if self.fleet.engine else "nodes.worker"
        for pid in machine.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    # -- at the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Check that all commits are in the local repository, and that every message is accounted for."""
        heads: dict[str, str] = {}
        self.account()
        self.fleet.box.ao("stop", *self.sessions, check=False)
        for name in self.sessions:
            heads |= {line["head"]: name for line in self.fleet.log(name) if line["kind"] == "committed"}
        end = time.monotonic() + 20
        while (missing := [head for head in heads if not self._is_here(head)]) and time.monotonic() < end:
            time.sleep(0.5)
        if missing:
            lost = Counter(heads[head] for head in missing)
            self.problems.append(f"{len(missing)} of {len(heads)} commits are nowhere here: {dict(lost)}")
        self.counts["commits"] = len(heads)

    def account(self) -> None:
        """Check each message's state in the API against the agents' logs; no message may stay queued while its agent works."""
        end = time.monotonic() + CALM_SECONDS
        while (
            any(message_state["state"] in ("queued", "held") for message_state in self._messages().values())
            and time.monotonic() < end
        ):
            time.sleep(0.2)
        time.sleep(1.0)  # the last delivered messages are being read
        messages = self._messages()
        read = Counter(
            line["message"] for name in self.sessions for line in self.fleet.log(name) if line["kind"] == "message"
        )
        for name, message in self.sent:
            message_state = messages.get(message, {"state": "unknown", "reason": None, "content": message})
            state, reason, times = message_state["state"], message_state["reason"] or "", read[message]
            is_in_doubt = state == "failed" and DOUBT_TEXT in reason
            fate = f"{state}{', in doubt' if is_in_doubt else ''}, {'read' if times else 'not read'}"
            self.fates[fate] += 1
            if state == "failed":
                self.doubts[reason] += 1
            is_waiting = not times and not self.fleet.is_working(name)
            expectations = {
                "acknowledged": times == 1,
                "failed": bool(reason) and times <= is_in_doubt,
                "queued": is_waiting,
                "held": is_waiting,
            }
            if not expectations.get(state):
                self.problems.append(
                    f"{name}: message {message_state['content']!r} is {state} ({reason}), and was read {times} times"
                )

    def _messages(self) -> dict[str, dict[str, Any]]:
        """Return all messages in the API by id."""
        messages = {}
        for name in self.sessions:
            for message in self.fleet.box.request("GET", f"/api/sessions/app-{name}/messages")["messages"]:
                messages[message["messageId"]] = message
        return messages

    def _is_here(self, head: str) -> bool:
        try:
            self.fleet.box.git("cat-file", "-e", f"{head}^{{commit}}")
        except Exception:
            return False
        return True

    def report(self, rounds: int, seed: int, seconds: float) -> dict[str, Any]:
        """Return the figures of the run."""
        back = sorted(self.takeover_delays)
        return {
            "rounds": rounds,
            "seed": seed,
            "ray": self.fleet.engine is not None,
            "sessions": len(self.sessions),
            "lease": self.fleet.lease,
            "checkpoint": self.fleet.checkpoint,
            "seconds": round(seconds),
            "moves": len(back),
            "secondsWithoutAgent": {"median": round(back[len(back) // 2], 1), "most": round(back[-1], 1)}
            if back
            else {},
            "linesLostAtMost": max(self.lost_lines, default=0),
            **dict(self.counts),
            "messages": {"sent": len(self.sent), **self.fates},
            "reasons": dict(self.doubts),
            "broken": self.problems,
        }


def print_line(text: str) -> None:
    """Print a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run_storm(rounds: int, seed: int, *, ray: bool, sessions: int, seconds: float) -> dict[str, Any]:
    """Play the rounds, or as many as the time allows, and return the report."""
    began = time.monotonic()
    with ClusterLab(3) as lab, LabFleet(lab, ray=ray) as fleet:
        fleet.begin()
        storm = Storm(fleet, random.Random(seed), tuple(f"s{number}" for number in range(sessions)))
        for name in storm.sessions:
            fleet.create_session(name)
        fleet.wait_until(lambda: all(fleet.is_working(name) for name in storm.sessions), "all to work", 60)
        done = 0
        try:
            while done < rounds and time.monotonic() - began < seconds:
                done += 1
                storm.play_round(done)
            storm.finish()
        except (TimeoutError, OSError) as error:
            storm.problems.append(f"round {done}: {error}")
        return storm.report(done, seed, time.monotonic() - began)


def main() -> int:
    """Play the rounds and return the exit code."""
    parser = argparse.ArgumentParser(prog="tests.cluster.storm")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3600, help="no round begins after this")
    parser.add_argument("--ray", action="store_true", help="on a Ray cluster; otherwise workers started by hand")
    options = parser.parse_args()
    if lack := missing_requirement() or (
        "needs Ray: pip install 'agent-orchestrator[ray]'" if options.ray and not have_ray() else None
    ):
        print_line(lack)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = run_storm(
        options.rounds, options.seed, ray=options.ray, sessions=options.sessions, seconds=options.seconds
    )
    print_line(json.dumps(report, indent=2))
    return 1 if report["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
