"""Rounds of misfortune, by a seed: `python -m tests.cluster.storm --rounds 50 --seed 1 [--ray]`. Needs root.

Agents that count work on three machines; machines lose their power or their network, workers and the daemon are
killed or frozen. After each round all must work again, and the agents' own logs must prove: never two of one session
at once, no commit lost, of what was not committed at most what the last checkpoint did not have, no message twice.
At the end each message that was accepted is accounted for: read once, or shown as failed with its reason.
Ends with a report; the exit code is 1 if anything was broken.
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
from tests.cluster.fleet import Fleet, Life, boot_time, overlaps
from tests.cluster.lab import Lab, Machine, lacking

SAVED_WITHIN = 3.0
"""Seconds until a commit is on the branch here; and beyond the checkpoint's interval, until it is made and sent."""
BACK_WITHIN = 15.0
CALM_WITHIN = 20.0
IN_DOUBT = "send it again if"
"""So the reason ends where nobody can tell whether an agent that was lost had read a message."""


@dataclass(slots=True)
class Storm:
    """One run."""

    fleet: Fleet
    chance: random.Random
    sessions: tuple[str, ...]
    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    back: list[float] = field(default_factory=list)
    """Seconds from the end of the lease until a session worked elsewhere."""
    lost_lines: list[int] = field(default_factory=list)
    sent: list[tuple[str, str]] = field(default_factory=list)
    """Sessions and ids of messages."""
    fates: Counter[str] = field(default_factory=Counter)
    doubts: Counter[str] = field(default_factory=Counter)
    """Reasons of those that failed."""
    seen: dict[str, int] = field(default_factory=dict)

    # -- one round -----------------------------------------------------------------------------------------------------

    def round(self, number: int) -> None:
        """Something happens; all must work again."""
        kinds = [self.power, self.power, self.cut, self.cut, self.flicker, self.worker, self.freeze, self.daemon]
        if self.fleet.engine:
            kinds.append(self.actor)
        kind, before = self.chance.choice(kinds), len(self.broken)
        self.counts[kind.__name__] += 1
        if not self.calm():
            self.broken.append(f"round {number}: commits did not come here within {CALM_WITHIN:g} s of calm")
        self.message(f"word {number}")
        began, what = boot_time(), kind()
        self.message(f"word {number} afterwards")
        try:
            self.fleet.until(
                lambda: self._all_work(began), f"all to work after {what}", self.fleet.lease + 1 + BACK_WITHIN + 30
            )
        except TimeoutError:
            states = {name: self.fleet.box.session(f"app-{name}")["status"] for name in self.sessions}
            self.broken.append(f"round {number}: {what}: not all work again: {states}")
        took = boot_time() - began
        self.mend()
        for name in self.sessions:
            self.check(number, what, name, began)
        say(f"{number:3} {what}; all at work after {took:.1f} s")
        for line in self.broken[before:]:
            say(f"    {line}")

    def _all_work(self, began: float) -> bool:
        """Does everybody? Whom too many nodes were lost with is started by a person, as he is told to."""
        idle = [name for name in self.sessions if not self.fleet.beats(name, began)]
        if idle:
            time.sleep(0.3)
        for name in idle:
            shown = self.fleet.box.session(f"app-{name}")
            if shown["status"] == "interrupted" and not shown["node"]:
                self.counts["given up, and restored"] += 1
                self.fleet.box.ao("restore", f"app-{name}", "--no-wait", check=False)
        return not idle

    def calm(self) -> bool:
        """Wait until what was committed a while ago is on its branch here: whoever is lost now must lose no more than the last moments."""
        end = time.monotonic() + CALM_WITHIN
        while time.monotonic() < end:
            if all(self._told(name) for name in self.sessions):
                return True
            time.sleep(0.2)
        return False

    def _told(self, name: str) -> bool:
        life = self.fleet.lives(name)[-1]
        old = [n for at, n in life.committed if at < boot_time() - SAVED_WITHIN]
        title = self.fleet.landed(name)
        return not old or (title.startswith("step ") and int(title.split()[-1]) >= old[-1])

    def message(self, text: str) -> None:
        """One to somebody, who may be about to be lost, or just lost."""
        name = self.chance.choice(self.sessions)
        accepted = self.fleet.box.request("POST", f"/api/sessions/app-{name}/message", {"content": text})
        self.sent.append((name, accepted["messageId"]))

    def mend(self) -> None:
        """Everything is switched on again, and in order."""
        for machine in self.fleet.lab.machines:
            self.fleet.back(machine)
        if self.fleet.box.daemon_pid() is None:
            self.fleet.start_daemon()
        self.fleet.settle()
        self.fleet.ready(*(machine.name for machine in self.fleet.lab.machines), timeout=60)

    def check(self, number: int, what: str, name: str, began: float) -> None:
        """What its own log proves of the launches of this round."""
        lives = self.fleet.lives(name)
        first = max(self.seen.get(name, 0) - 1, 0)
        self.seen[name] = len(lives)
        for line in overlaps(lives[first:]):
            self.broken.append(f"round {number}: {what}: {name} twice at once: {line}")
        for one, two in zip(lives[first:], lives[first + 1 :], strict=False):
            self.compare(f"round {number}: {what}: {name}", one, two, min(began, one.last))
            if two.machine != one.machine:
                self.back.append(two.begin - one.last)
        words = Counter(word for life in lives for word in life.messages if word.startswith("word "))
        for word, times in words.items():
            if times > 1:
                self.broken.append(f"round {number}: {what}: {name} got {word!r} {times} times")

    def compare(self, where: str, one: Life, two: Life, until: float) -> None:
        """What the later one found of the earlier one's work, as far as it could be told before the misfortune."""
        commits = [n for at, n in one.committed if n > two.found_committed and at < until - SAVED_WITHIN]
        if commits:
            self.broken.append(f"{where}: {two.machine} did not find the commits {commits}")
        unsaved = [n for at, n in one.wrote if n > two.found]
        old = [n for at, n in one.wrote if n > two.found and at < until - self.fleet.checkpoint - SAVED_WITHIN]
        self.lost_lines.append(len(unsaved))
        if old:
            self.broken.append(f"{where}: {two.machine} did not find the lines {old}, which were to be saved")

    # -- misfortunes ---------------------------------------------------------------------------------------------------

    def _machine(self) -> Machine:
        return self.chance.choice(self.fleet.lab.machines)

    def power(self) -> str:
        """A machine is off, until its sessions are back elsewhere."""
        machine = self._machine()
        machine.power_off()
        return f"{machine.name} lost its power"

    def cut(self) -> str:
        """A machine is cut off for longer than a lease."""
        machine = self._machine()
        machine.unplug()
        time.sleep(self.fleet.lease + self.chance.uniform(0.5, 6.0))
        if self.chance.random() < 0.5:
            machine.plug()
        return f"{machine.name} was cut off"

    def flicker(self) -> str:
        """A machine is cut off for about a lease: who is first?"""
        machine, pause = self._machine(), self.chance.uniform(0.3, self.fleet.lease + 1.5)
        machine.unplug()
        time.sleep(pause)
        machine.plug()
        return f"{machine.name} was cut off for {pause:.1f} s"

    def worker(self) -> str:
        """Our process on a machine is killed, and perhaps not started again at once."""
        machine = self._machine()
        self._signal(machine, signal.SIGKILL)
        time.sleep(self.chance.uniform(0, 2))
        self.fleet.back(machine)
        return f"the worker of {machine.name} was killed"

    def freeze(self) -> str:
        """It stands still for a while: its sessions must not outlive their leases."""
        machine, pause = self._machine(), self.chance.uniform(1, self.fleet.lease * 2)
        self._signal(machine, signal.SIGSTOP)
        time.sleep(pause)
        self._signal(machine, signal.SIGCONT)
        return f"the worker of {machine.name} stood still for {pause:.1f} s"

    def daemon(self) -> str:
        """The daemon is killed and started again."""
        self.fleet.box.stop(signal.SIGKILL)
        time.sleep(self.chance.uniform(0, 1.5))
        self.fleet.start_daemon()
        return "the daemon was killed"

    def actor(self) -> str:
        """Ray's own process for our actor is killed."""
        machine = self._machine()
        for pid in machine.processes("ray::NodeActor"):
            os.kill(pid, signal.SIGKILL)
        return f"the actor on {machine.name} was killed"

    def _signal(self, machine: Machine, number: int) -> None:
        name = "cluster.node" if self.fleet.engine else "nodes.worker"
        for pid in machine.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    # -- at the end ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """All that was ever committed must be in the repository here, and each message must be accounted for."""
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
            self.broken.append(f"{len(missing)} of {len(heads)} commits are nowhere here: {dict(lost)}")
        self.counts["commits"] = len(heads)

    def account(self) -> None:
        """What became of each message, by the API and by the agents' own logs; what nobody waits for must be settled soon."""
        end = time.monotonic() + CALM_WITHIN
        while any(one["state"] in ("queued", "held") for one in self._shown().values()) and time.monotonic() < end:
            time.sleep(0.2)
        time.sleep(1.0)  # what was delivered just now is being read
        shown = self._shown()
        read = Counter(
            line["message"] for name in self.sessions for line in self.fleet.log(name) if line["kind"] == "message"
        )
        for name, message in self.sent:
            one = shown.get(message, {"state": "unknown", "reason": None, "content": message})
            state, reason, times = one["state"], one["reason"] or "", read[message]
            doubted = state == "failed" and IN_DOUBT in reason
            fate = f"{state}{', in doubt' if doubted else ''}, {'read' if times else 'not read'}"
            self.fates[fate] += 1
            if state == "failed":
                self.doubts[reason] += 1
            waits = not times and not self.fleet.beats(name)
            fits = {
                "acknowledged": times == 1,
                "failed": bool(reason) and times <= doubted,
                "queued": waits,
                "held": waits,
            }
            if not fits.get(state):
                self.broken.append(
                    f"{name}: message {one['content']!r} is {state} ({reason}), and was read {times} times"
                )

    def _shown(self) -> dict[str, dict[str, Any]]:
        """All messages as the API shows them."""
        found = {}
        for name in self.sessions:
            for one in self.fleet.box.request("GET", f"/api/sessions/app-{name}/messages")["messages"]:
                found[one["messageId"]] = one
        return found

    def _is_here(self, head: str) -> bool:
        try:
            self.fleet.box.git("cat-file", "-e", f"{head}^{{commit}}")
        except Exception:
            return False
        return True

    def report(self, rounds: int, seed: int, took: float) -> dict[str, Any]:
        """What was seen."""
        back = sorted(self.back)
        return {
            "rounds": rounds,
            "seed": seed,
            "ray": self.fleet.engine is not None,
            "sessions": len(self.sessions),
            "lease": self.fleet.lease,
            "checkpoint": self.fleet.checkpoint,
            "seconds": round(took),
            "moves": len(back),
            "secondsWithoutAgent": {"median": round(back[len(back) // 2], 1), "most": round(back[-1], 1)}
            if back
            else {},
            "linesLostAtMost": max(self.lost_lines, default=0),
            **dict(self.counts),
            "messages": {"sent": len(self.sent), **self.fates},
            "reasons": dict(self.doubts),
            "broken": self.broken,
        }


def say(text: str) -> None:
    """At once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def weather(rounds: int, seed: int, *, ray: bool, sessions: int, seconds: float) -> dict[str, Any]:
    """So many rounds, or as many as there is time for."""
    began = time.monotonic()
    with Lab(3) as lab, Fleet(lab, ray=ray) as fleet:
        fleet.begin()
        storm = Storm(fleet, random.Random(seed), tuple(f"s{number}" for number in range(sessions)))
        for name in storm.sessions:
            fleet.new(name)
        fleet.until(lambda: all(fleet.beats(name) for name in storm.sessions), "all to work", 60)
        done = 0
        try:
            while done < rounds and time.monotonic() - began < seconds:
                done += 1
                storm.round(done)
            storm.finish()
        except (TimeoutError, OSError) as error:
            storm.broken.append(f"round {done}: {error}")
        return storm.report(done, seed, time.monotonic() - began)


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="tests.cluster.storm")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=3600, help="no round begins after this")
    parser.add_argument("--ray", action="store_true", help="on a Ray cluster; otherwise workers started by hand")
    given = parser.parse_args()
    if lack := lacking() or (
        "needs Ray: pip install 'agent-orchestrator[ray]'" if given.ray and not have_ray() else None
    ):
        say(lack)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = weather(given.rounds, given.seed, ray=given.ray, sessions=given.sessions, seconds=given.seconds)
    say(json.dumps(report, indent=2))
    return 1 if report["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
