"""The figures of a run with their bounds: nothing is lost, late, growing or left running."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load.plan import LoadPlan
from benchmarks.load.samples import Sample, after_warm_up, slope
from benchmarks.load.viewers import EventLogViewer, TerminalViewer
from benchmarks.measure import Figure, quantile

MAX_P99_MS = 100.0
MAX_MEMORY_GROWTH = 1.0
"""Megabytes per minute that count as flat."""
MAX_DRIFT = 6.0
"""How much the number of descriptors, threads or tasks may drift until the end."""
MAX_SPAWN_SECONDS = 180.0
MAX_SHUTDOWN_SECONDS = 120.0


@dataclass(slots=True)
class LoadRun:
    """Everything that was measured in a run."""

    plan: LoadPlan
    spawn_seconds: float = 0.0
    """Seconds until all sessions ran."""
    load_seconds: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    pulse: list[dict[str, Any]] = field(default_factory=list)
    probe_results: dict[str, Any] = field(default_factory=dict)
    webhook_results: dict[str, Any] = field(default_factory=dict)
    viewer_results: dict[str, Any] = field(default_factory=dict)
    forge_results: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    agent_log: list[dict[str, Any]] = field(default_factory=list)
    """The entries of the agents' log."""
    report_counts: dict[str, int] = field(default_factory=dict)
    """Progress reports in each session's spool."""
    log_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes of chatter in each terminal's log."""
    last_event: int = 0
    """The number of the last event while viewers were connected."""
    shutdown_seconds: float = 0.0
    """Seconds from the shutdown request until no process was left."""
    leftover_pids: list[int] = field(default_factory=list)
    error_lines: list[str] = field(default_factory=list)
    """Lines of the daemon's log that report an internal error."""
    cpu_share: float = 0.0
    """The share of all cores' time that was used."""


def figures(run: LoadRun) -> Iterator[Figure]:
    """Yield all figures."""
    yield from _loss_figures(run)
    yield from _delay_figures(run)
    yield from _growth_figures(run)
    yield from _shutdown_figures(run)


# -- nothing lost --------------------------------------------------------------------------------------------------------


def _loss_figures(run: LoadRun) -> Iterator[Figure]:
    yield from _webhooks(run)
    yield from _reports(run)
    yield from _viewers(run)
    yield from _terminals(run)


def _webhooks(run: LoadRun) -> Iterator[Figure]:
    answers: Sequence[tuple[str, int, bool | None]] = run.webhook_results["answers"]
    refused = Counter(status for _, status, _ in answers if status != 202)
    refused += Counter({status: n for status, n in run.forge_results["answered"].items() if status != 202})
    sent_count = len(answers) + sum(run.forge_results["answered"].values())
    note = f"{sent_count} sent, {sent_count / run.plan.minutes:.0f} a minute" + (
        f"; {dict(refused)}" if refused else ""
    )
    yield Figure("webhooks not answered with 202", sum(refused.values()), 0, "webhooks", note=note)
    taken_counts = Counter(id_ for id_, _, was_taken in answers if was_taken)
    accepted_ids = {id_ for id_, status, _ in answers if status == 202}
    wrong_count = sum(taken_counts[id_] != 1 for id_ in accepted_ids)
    repeated = sum(was_taken is False for _, _, was_taken in answers)
    note = f"{len(accepted_ids)} different ones, {repeated} came again and were known"
    yield Figure("webhooks taken twice, or answered and not taken", wrong_count, 0, "webhooks", note=note)
    recorded = Counter(
        str(event["data"]["body"]).partition(" ")[0] for event in run.events if event["type"] == "comment-added"
    )
    comments = run.forge_results["comments"]
    wrong_count = sum(recorded[event] != 1 for event in comments)
    note = (
        f"{len(comments)} comments on {run.plan.pulls} pull requests; {run.forge_results['asked']} asked of the forge"
    )
    yield Figure("what webhooks told of and is not in the log exactly once", wrong_count, 0, "comments", note=note)


def _reports(run: LoadRun) -> Iterator[Figure]:
    steps = Counter(event["session"] for event in run.events if event["type"] == "agent-progress")
    wrong_count = sum(abs(steps[session] - count) for session, count in run.report_counts.items())
    note = f"{sum(run.report_counts.values())} reports of {len(run.report_counts)} agents, by their own spools"
    yield Figure("agents' reports that are not in the log exactly once", wrong_count, 0, "reports", note=note)
    accepted: Sequence[tuple[str, str]] = run.probe_results["messages"]
    queued = Counter(_token(event["data"]["text"]) for event in run.events if event["type"] == "message-queued")
    read_counts = Counter(_token(event["text"]) for event in run.agent_log if event["event"] == "message")
    wrong_count = sum(queued[token] != 1 or read_counts[token] != 1 for _, token in accepted)
    note = f"{len(accepted)} messages, by the agents' own account"
    yield Figure("messages accepted and not heard exactly once", wrong_count, 0, "messages", note=note)


def _token(text: str) -> str:
    return text.partition(" ")[0]


def _viewers(run: LoadRun) -> Iterator[Figure]:
    logs: Sequence[EventLogViewer] = run.viewer_results["logs"]
    errors = [f"viewer {number}: {what}" for number, viewer in enumerate(logs) for what in viewer.wrong]
    late = [(number, viewer.last) for number, viewer in enumerate(logs) if viewer.last < run.last_event]
    errors += [f"viewer {number} saw {last} last, not {run.last_event}" for number, last in late]
    gaps = sum(a["seq"] + 1 != b["seq"] for a, b in zip(run.events, run.events[1:], strict=False))
    count = min((viewer.count for viewer in logs), default=0)
    note = "; ".join(errors[:3]) or f"{count} events to each of {len(logs)}, up to the log's last"
    yield Figure("events that a viewer of the log missed or saw twice", len(errors) + gaps, 0, "events", note=note)
    boards: Sequence[Sequence[tuple[int, int]]] = run.viewer_results["boards"]
    first = max((frames[1][0] for frames in boards if len(frames) > 1), default=0)
    later_frames = [[frame for frame in frames[1:] if frame[0] > first] for frames in boards]
    different = sum(frames != later_frames[0] for frames in later_frames)
    note = f"{len(later_frames[0]) if later_frames else 0} frames to each of {len(boards)}, the same bytes in the same order"
    yield Figure("viewers of the board that were not told the same", different, 0, "viewers", note=note)
    cut_off = run.viewer_results["ended"]
    note = "; ".join(cut_off[:3]) or f"{run.plan.viewers} looked on"
    yield Figure("viewers that were cut off", len(cut_off), 0, "viewers", note=note)


def _terminals(run: LoadRun) -> Iterator[Figure]:
    chatter_by_session = {chatter["session"]: chatter for chatter in run.agent_log if chatter["event"] == "chatter"}
    total_bytes = sum(chatter["bytes"] for chatter in chatter_by_session.values())
    wrong_sessions = [
        session for session, chatter in chatter_by_session.items() if run.log_bytes.get(session) != chatter["bytes"]
    ]
    rate = total_bytes / 1e6 / max(run.load_seconds, 1)
    note = f"{total_bytes / 1e6:.0f} MB of {len(chatter_by_session)} agents, by their own count: {rate:.2f} MB/s"
    lost = len(wrong_sessions) + run.plan.sessions - len(chatter_by_session)
    yield Figure("terminals whose log lacks something that was printed", lost, 0, "terminals", note=note)
    screens: Sequence[TerminalViewer] = run.viewer_results["screens"]
    faults = [f"{chatter.session}: {what}" for chatter in screens for what in chatter.wrong]
    for chatter in screens:
        blocks = chatter_by_session.get(chatter.session, {}).get("blocks", 0)
        if chatter.last != blocks - 1:
            faults.append(f"{chatter.session}: saw block {chatter.last} last of {blocks}")
    skipped = sum(chatter.skipped for chatter in screens)
    note = "; ".join(faults[:3]) or (
        f"{sum(chatter.size for chatter in screens) / 1e6:.1f} MB to {len(screens)} viewers"
        + (f"; {skipped} times one was too slow and was shown the end instead, as is meant" if skipped else "")
    )
    yield Figure("blocks that a terminal's viewer missed, saw twice or broken", len(faults), 0, "blocks", note=note)


# -- nobody waits --------------------------------------------------------------------------------------------------------


def _delay_figures(run: LoadRun) -> Iterator[Figure]:
    times_by_route: Mapping[str, Sequence[float]] = run.probe_results["took"]
    for route, route_times in times_by_route.items():
        yield Figure(
            f"API, {route} (p99)", quantile(route_times, 0.99) * 1e3, MAX_P99_MS, "ms", note=_percentiles(route_times)
        )
    all_times = [beat for route_times in times_by_route.values() for beat in route_times]
    yield Figure(
        "API, all of these (p99)", quantile(all_times, 0.99) * 1e3, MAX_P99_MS, "ms", note=_percentiles(all_times)
    )
    if webhook_times := run.webhook_results["took"]:
        note = _percentiles(webhook_times)
        yield Figure("webhook → answer (p99)", quantile(webhook_times, 0.99) * 1e3, MAX_P99_MS, "ms", note=note)
    wrong_answers = run.probe_results["wrong"]
    yield Figure(
        "requests not answered as they should be", len(wrong_answers), 0, "requests", note="; ".join(wrong_answers[:3])
    )
    late = [beat for beat in run.pulse if "late" in beat]
    own_delays = [beat["late"] for beat in late if beat["worked"] > 0.5 * beat["late"]]
    longest = max((beat["late"] for beat in late), default=0.0)
    note = (
        f"longest {longest * 1e3:.0f} ms; {len(own_delays)} of them by its own work (longest {max(own_delays, default=0.0) * 1e3:.0f} ms), "
        "the others waited for a core"
    )
    collected = [beat["collected"] for beat in run.pulse if "collected" in beat]
    note += f"; {len(collected)} searches for garbage took more than 10 ms (longest {max(collected, default=0.0) * 1e3:.0f} ms)"
    yield Figure(
        "times a minute that the event loop was late by more than 50 ms",
        len(late) / run.plan.minutes,
        10,
        "times",
        note=note,
    )


def _percentiles(values: Sequence[float]) -> str:
    parts = ", ".join(f"p{round(part * 100)} {quantile(values, part) * 1e3:.1f}" for part in (0.5, 0.95, 0.99))
    return f"{parts}, longest {max(values) * 1e3:.0f} ms; {len(values)} requests"


# -- nothing grows -------------------------------------------------------------------------------------------------------


def _growth_figures(run: LoadRun) -> Iterator[Figure]:
    memory = after_warm_up([(sample.at, sample.memory) for sample in run.samples])
    note = f"from {memory[0][1]:.0f} to {memory[-1][1]:.0f} MB, at most {max(value for _, value in memory):.0f} MB"
    yield Figure(
        "growth of the daemon's memory after warm-up", slope(memory), MAX_MEMORY_GROWTH, "MB a minute", note=note
    )
    files = after_warm_up([(sample.at, float(sample.descriptors)) for sample in run.samples])
    yield _drift("descriptors", files)
    threads = after_warm_up([(sample.at, float(sample.threads)) for sample in run.samples])
    yield _drift("threads", threads)
    tasks = after_warm_up([(sample["at"], float(sample["tasks"])) for sample in run.pulse if "tasks" in sample])
    yield _drift("tasks of the event loop", tasks)
    first, last = run.samples[0], run.samples[-1]
    load_cpu = [f"{name} {100 * result['cpu'] / run.load_seconds:.0f} %" for name, result in _others(run)]
    note = f"of one core; the load itself: {', '.join(load_cpu)}; all cores together were busy for {100 * run.cpu_share:.0f} %"
    cpu = 100 * (last.cpu - first.cpu) / (last.at - first.at)
    yield Figure("CPU of the daemon", cpu, 90, "%", note=note)


def _drift(what: str, points: Sequence[tuple[float, float]]) -> Figure:
    span = (points[-1][0] - points[0][0]) / 60
    values = [value for _, value in points]
    note = f"from {min(values):.0f} to {max(values):.0f}"
    return Figure(f"drift of the daemon's {what}", abs(slope(points)) * span, MAX_DRIFT, "", note=note)


def _others(run: LoadRun) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield "API", run.probe_results
    yield "webhooks", run.webhook_results
    yield "viewers", run.viewer_results
    yield "forge", run.forge_results


# -- nothing is left -----------------------------------------------------------------------------------------------------


def _shutdown_figures(run: LoadRun) -> Iterator[Figure]:
    yield Figure(f"{run.plan.sessions} sessions started", run.spawn_seconds, MAX_SPAWN_SECONDS, "s")
    note = f"{run.plan.sessions} agents stopped, their work saved"
    yield Figure("shut down with all sessions", run.shutdown_seconds, MAX_SHUTDOWN_SECONDS, "s", note=note)
    yield Figure("processes left", len(run.leftover_pids), 0, "processes")
    yield Figure(
        "faults in the daemon's log", len(run.error_lines), 0, "lines", note="; ".join(run.error_lines[:3])[:300]
    )


def report(run: LoadRun, results: Sequence[Figure]) -> str:
    """Return the plan, the figures and the measured series as JSON."""
    figure_list = [
        {
            "name": figure.name,
            "value": figure.value,
            "bound": figure.bound,
            "atLeast": figure.at_least,
            "unit": figure.unit,
            "holds": figure.holds,
            "note": figure.note,
        }
        for figure in results
    ]
    plan = {
        name: getattr(run.plan, name) for name in ("sessions", "viewers", "webhooks", "minutes", "runtime", "pulls")
    }
    memory = [[round(figure.at - run.samples[0].at, 1), round(figure.memory, 1)] for figure in run.samples]
    late = [round(figure["late"] * 1e3) for figure in run.pulse if "late" in figure]
    return json.dumps({"plan": plan, "figures": figure_list, "memory": memory, "late": late}, indent=1)
