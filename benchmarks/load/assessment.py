"""What came of it, beside what it must be: nothing lost, nobody waits, nothing grows, nothing is left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load.plan import Plan
from benchmarks.load.samples import Sample, settled, slope
from benchmarks.load.viewers import Shown, Told
from benchmarks.measure import Figure, share

P99 = 100.0
GROWTH = 1.0
"""Megabytes in a minute that count as flat."""
STEADY = 6.0
"""Descriptors, or tasks, by which their number may drift until the end."""
SPAWNING = 180.0
ENDING = 120.0


@dataclass(slots=True)
class Run:
    """Everything that is known of a run."""

    plan: Plan
    spawned: float = 0.0
    """Seconds until all sessions ran."""
    lasted: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    pulse: list[dict[str, Any]] = field(default_factory=list)
    probed: dict[str, Any] = field(default_factory=dict)
    sent: dict[str, Any] = field(default_factory=dict)
    watched: dict[str, Any] = field(default_factory=dict)
    forge: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    agents: list[dict[str, Any]] = field(default_factory=list)
    """What agents wrote down themselves."""
    reported: dict[str, int] = field(default_factory=dict)
    """Steps in each session's spool."""
    logged: dict[str, int] = field(default_factory=dict)
    """Bytes of chatter in each terminal's log."""
    last: int = 0
    """The last event while viewers looked on."""
    ended: float = 0.0
    """Seconds from the order to shut down until nothing ran any more."""
    left: list[int] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    """Lines of the daemon's log that tell of a fault of its own."""
    busy: float = 0.0
    """The part of all cores that was at work."""


def figures(run: Run) -> Iterator[Figure]:
    """All of them."""
    yield from _lost(run)
    yield from _late(run)
    yield from _growing(run)
    yield from _ended(run)


# -- nothing lost --------------------------------------------------------------------------------------------------------


def _lost(run: Run) -> Iterator[Figure]:
    yield from _webhooks(run)
    yield from _reports(run)
    yield from _viewers(run)
    yield from _terminals(run)


def _webhooks(run: Run) -> Iterator[Figure]:
    answers: Sequence[tuple[str, int, bool | None]] = run.sent["answers"]
    refused = Counter(status for _, status, _ in answers if status != 202)
    refused += Counter({status: n for status, n in run.forge["answered"].items() if status != 202})
    told = len(answers) + sum(run.forge["answered"].values())
    note = f"{told} sent, {told / run.plan.minutes:.0f} a minute" + (f"; {dict(refused)}" if refused else "")
    yield Figure("webhooks not answered with 202", sum(refused.values()), 0, "webhooks", note=note)
    taken = Counter(id_ for id_, _, was_taken in answers if was_taken)
    known = {id_ for id_, status, _ in answers if status == 202}
    wrong = sum(taken[id_] != 1 for id_ in known)
    again = sum(was_taken is False for _, _, was_taken in answers)
    note = f"{len(known)} different ones, {again} came again and were known"
    yield Figure("webhooks taken twice, or answered and not taken", wrong, 0, "webhooks", note=note)
    said = Counter(str(one["data"]["body"]).partition(" ")[0] for one in run.events if one["type"] == "comment-added")
    comments = run.forge["comments"]
    wrong = sum(said[one] != 1 for one in comments)
    note = f"{len(comments)} comments on {run.plan.pulls} pull requests; {run.forge['asked']} asked of the forge"
    yield Figure("what webhooks told of and is not in the log exactly once", wrong, 0, "comments", note=note)


def _reports(run: Run) -> Iterator[Figure]:
    steps = Counter(one["session"] for one in run.events if one["type"] == "agent-progress")
    wrong = sum(abs(steps[session] - count) for session, count in run.reported.items())
    note = f"{sum(run.reported.values())} reports of {len(run.reported)} agents, by their own spools"
    yield Figure("agents' reports that are not in the log exactly once", wrong, 0, "reports", note=note)
    accepted: Sequence[tuple[str, str]] = run.probed["messages"]
    queued = Counter(_token(one["data"]["text"]) for one in run.events if one["type"] == "message-queued")
    heard = Counter(_token(one["text"]) for one in run.agents if one["event"] == "message")
    wrong = sum(queued[token] != 1 or heard[token] != 1 for _, token in accepted)
    note = f"{len(accepted)} messages, by the agents' own account"
    yield Figure("messages accepted and not heard exactly once", wrong, 0, "messages", note=note)


def _token(text: str) -> str:
    return text.partition(" ")[0]


def _viewers(run: Run) -> Iterator[Figure]:
    logs: Sequence[Told] = run.watched["logs"]
    wrong = [f"viewer {number}: {what}" for number, one in enumerate(logs) for what in one.wrong]
    late = [(number, one.last) for number, one in enumerate(logs) if one.last < run.last]
    wrong += [f"viewer {number} saw {last} last, not {run.last}" for number, last in late]
    gaps = sum(a["seq"] + 1 != b["seq"] for a, b in zip(run.events, run.events[1:], strict=False))
    count = min((one.count for one in logs), default=0)
    note = "; ".join(wrong[:3]) or f"{count} events to each of {len(logs)}, up to the log's last"
    yield Figure("events that a viewer of the log missed or saw twice", len(wrong) + gaps, 0, "events", note=note)
    boards: Sequence[Sequence[tuple[int, int]]] = run.watched["boards"]
    first = max((frames[1][0] for frames in boards if len(frames) > 1), default=0)
    each = [[frame for frame in frames[1:] if frame[0] > first] for frames in boards]
    lacking = sum(frames != each[0] for frames in each)
    note = f"{len(each[0]) if each else 0} frames to each of {len(boards)}, the same bytes in the same order"
    yield Figure("viewers of the board that were not told the same", lacking, 0, "viewers", note=note)
    cut = run.watched["ended"]
    note = "; ".join(cut[:3]) or f"{run.plan.viewers} looked on"
    yield Figure("viewers that were cut off", len(cut), 0, "viewers", note=note)


def _terminals(run: Run) -> Iterator[Figure]:
    own = {one["session"]: one for one in run.agents if one["event"] == "chatter"}
    whole = sum(one["bytes"] for one in own.values())
    wrong = [session for session, one in own.items() if run.logged.get(session) != one["bytes"]]
    note = f"{whole / 1e6:.0f} MB of {len(own)} agents, by their own count: {whole / 1e6 / max(run.lasted, 1):.2f} MB/s"
    lost = len(wrong) + run.plan.sessions - len(own)
    yield Figure("terminals whose log lacks something that was printed", lost, 0, "terminals", note=note)
    screens: Sequence[Shown] = run.watched["screens"]
    faults = [f"{one.session}: {what}" for one in screens for what in one.wrong]
    for one in screens:
        blocks = own.get(one.session, {}).get("blocks", 0)
        if one.last != blocks - 1:
            faults.append(f"{one.session}: saw block {one.last} last of {blocks}")
    skipped = sum(one.skipped for one in screens)
    note = "; ".join(faults[:3]) or (
        f"{sum(one.size for one in screens) / 1e6:.1f} MB to {len(screens)} viewers"
        + (f"; {skipped} times one was too slow and was shown the end instead, as is meant" if skipped else "")
    )
    yield Figure("blocks that a terminal's viewer missed, saw twice or broken", len(faults), 0, "blocks", note=note)


# -- nobody waits --------------------------------------------------------------------------------------------------------


def _late(run: Run) -> Iterator[Figure]:
    took: Mapping[str, Sequence[float]] = run.probed["took"]
    for route, each in took.items():
        yield Figure(f"API, {route} (p99)", share(each, 0.99) * 1e3, P99, "ms", note=_spread(each))
    every = [one for each in took.values() for one in each]
    yield Figure("API, all of these (p99)", share(every, 0.99) * 1e3, P99, "ms", note=_spread(every))
    yield Figure(
        "webhook → answer (p99)", share(run.sent["took"], 0.99) * 1e3, P99, "ms", note=_spread(run.sent["took"])
    )
    wrong = run.probed["wrong"]
    yield Figure("requests not answered as they should be", len(wrong), 0, "requests", note="; ".join(wrong[:3]))
    late = [one for one in run.pulse if "late" in one]
    own = [one["late"] for one in late if one["worked"] > 0.5 * one["late"]]
    longest = max((one["late"] for one in late), default=0.0)
    note = (
        f"longest {longest * 1e3:.0f} ms; {len(own)} of them by its own work (longest {max(own, default=0.0) * 1e3:.0f} ms), "
        "the others waited for a core"
    )
    collected = [one["collected"] for one in run.pulse if "collected" in one]
    note += f"; {len(collected)} searches for garbage took more than 10 ms (longest {max(collected, default=0.0) * 1e3:.0f} ms)"
    yield Figure(
        "times a minute that the event loop was late by more than 50 ms",
        len(late) / run.plan.minutes,
        10,
        "times",
        note=note,
    )


def _spread(values: Sequence[float]) -> str:
    parts = ", ".join(f"p{round(part * 100)} {share(values, part) * 1e3:.1f}" for part in (0.5, 0.95, 0.99))
    return f"{parts}, longest {max(values) * 1e3:.0f} ms; {len(values)} requests"


# -- nothing grows -------------------------------------------------------------------------------------------------------


def _growing(run: Run) -> Iterator[Figure]:
    memory = settled([(one.at, one.memory) for one in run.samples])
    note = f"from {memory[0][1]:.0f} to {memory[-1][1]:.0f} MB, at most {max(value for _, value in memory):.0f} MB"
    yield Figure("growth of the daemon's memory after warm-up", slope(memory), GROWTH, "MB a minute", note=note)
    files = settled([(one.at, float(one.descriptors)) for one in run.samples])
    yield _drift("descriptors", files)
    threads = settled([(one.at, float(one.threads)) for one in run.samples])
    yield _drift("threads", threads)
    tasks = settled([(one["at"], float(one["tasks"])) for one in run.pulse if "tasks" in one])
    yield _drift("tasks of the event loop", tasks)
    first, last = run.samples[0], run.samples[-1]
    own = [f"{name} {100 * told['cpu'] / run.lasted:.0f} %" for name, told in _others(run)]
    note = f"of one core; the load itself: {', '.join(own)}; all cores together were busy for {100 * run.busy:.0f} %"
    used = 100 * (last.cpu - first.cpu) / (last.at - first.at)
    yield Figure("CPU of the daemon", used, 90, "%", note=note)


def _drift(what: str, points: Sequence[tuple[float, float]]) -> Figure:
    span = (points[-1][0] - points[0][0]) / 60
    values = [value for _, value in points]
    note = f"from {min(values):.0f} to {max(values):.0f}"
    return Figure(f"drift of the daemon's {what}", abs(slope(points)) * span, STEADY, "", note=note)


def _others(run: Run) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "API", run.probed
    yield "webhooks", run.sent
    yield "viewers", run.watched
    yield "forge", run.forge


# -- nothing is left -----------------------------------------------------------------------------------------------------


def _ended(run: Run) -> Iterator[Figure]:
    yield Figure(f"{run.plan.sessions} sessions started", run.spawned, SPAWNING, "s")
    note = f"{run.plan.sessions} agents stopped, their work saved"
    yield Figure("shut down with all sessions", run.ended, ENDING, "s", note=note)
    yield Figure("processes left", len(run.left), 0, "processes")
    yield Figure("faults in the daemon's log", len(run.troubles), 0, "lines", note="; ".join(run.troubles[:3])[:300])


def report(run: Run, found: Sequence[Figure]) -> str:
    """All of it, for programs."""
    told = [
        {
            "name": one.name,
            "value": one.value,
            "bound": one.bound,
            "atLeast": one.at_least,
            "unit": one.unit,
            "holds": one.holds,
            "note": one.note,
        }
        for one in found
    ]
    plan = {
        name: getattr(run.plan, name) for name in ("sessions", "viewers", "webhooks", "minutes", "runtime", "pulls")
    }
    memory = [[round(one.at - run.samples[0].at, 1), round(one.memory, 1)] for one in run.samples]
    late = [round(one["late"] * 1e3) for one in run.pulse if "late" in one]
    return json.dumps({"plan": plan, "figures": told, "memory": memory, "late": late}, indent=1)
