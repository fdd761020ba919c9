"""The figures of a load run: they fail for what is lost, duplicated, late, growing or left running, byte by byte for terminals."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from benchmarks.load.assessment import LoadRun, figures
from benchmarks.load.plan import COMMENTS_PER_MINUTE, LoadPlan, random_times
from benchmarks.load.samples import Sample
from benchmarks.load.viewers import BoardViewer, EventLogViewer, TerminalViewer, printed_block

SESSION = "one-n000"
PLAN = LoadPlan(sessions=1, viewers=5, webhooks=60, minutes=1.0)
BLOCK = printed_block(300)


def screen_with(*numbers: int) -> TerminalViewer:
    screen = TerminalViewer(SESSION, BLOCK)
    for number in numbers:
        screen.receive(b"[chatter %d]\r\n%b" % (number, BLOCK))
    return screen


def log_viewer_with(*numbers: int) -> EventLogViewer:
    viewer = EventLogViewer()
    for number in numbers:
        viewer.receive(b"id: %d\nevent: agent-progress\ndata: {}" % number)
    return viewer


def event(seq: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "type": kind, "session": SESSION, "data": data}


def faultless_run() -> LoadRun:
    """Return a run without any failure."""
    run = LoadRun(PLAN, spawn_seconds=1.0, load_seconds=60.0, last_event=3, shutdown_seconds=1.0)
    run.samples = [Sample(float(at), 100.0, 50, 8, at / 10) for at in range(0, 62, 2)]
    run.pulse = [{"at": float(at), "tasks": 30} for at in range(0, 62, 2)]
    run.probe_results = {"took": {"list": [0.01] * 200}, "wrong": [], "messages": [(SESSION, "lm0.")], "cpu": 1.0}
    run.webhook_results = {
        "answers": [("a", 202, True), ("a", 202, False), ("b", 202, True)],
        "took": [0.01] * 3,
        "cpu": 1.0,
    }
    boards = [[(1, 5), (2, 6), (3, 7), (3, 8)], [(1, 5), (2, 6), (3, 7), (3, 8)]]
    run.viewer_results = {
        "boards": boards,
        "logs": [log_viewer_with(1, 2, 3)],
        "screens": [screen_with(1, 2)],
        "ended": [],
        "cpu": 1.0,
    }
    run.forge_results = {"comments": ["lc0."], "answered": {202: 1}, "asked": {}, "cpu": 1.0}
    run.events = [
        event(1, "agent-progress"),
        event(2, "comment-added", body="lc0. please"),
        event(3, "message-queued", text="lm0. noted"),
    ]
    run.agent_log = [
        {"event": "message", "text": "lm0. noted"},
        {"event": "chatter", "session": SESSION, "blocks": 3, "bytes": 900},
    ]
    run.report_counts, run.log_bytes = {SESSION: 1}, {SESSION: 900}
    return run


def missed_figures(run: LoadRun) -> list[str]:
    return [figure.name for figure in figures(run) if not figure.holds]


def test_a_run_without_failures_misses_no_figure() -> None:
    assert missed_figures(faultless_run()) == []


def test_a_load_of_comments_alone_sends_no_other_webhook() -> None:
    plan = LoadPlan(webhooks=COMMENTS_PER_MINUTE)
    assert list(random_times(Random(1), plan.webhooks - plan.comments, 60.0)) == []
    times = list(random_times(Random(1), plan.comments, 600.0))
    assert times == sorted(times) and times[-1] < 600.0 and 500 < len(times) < 700
    run = faultless_run()
    run.webhook_results = {"answers": [], "took": [], "cpu": 1.0}
    assert missed_figures(run) == []


def _leak(run: LoadRun) -> None:
    run.samples = [replace(sample, memory=100.0 + sample.at / 20) for sample in run.samples]


def _more_descriptors(run: LoadRun) -> None:
    run.samples = [replace(sample, descriptors=int(50 + sample.at)) for sample in run.samples]


@pytest.mark.parametrize(
    ("harm", "figure"),
    [
        (lambda run: run.webhook_results["answers"].append(("c", 503, None)), "webhooks not answered with 202"),
        (lambda run: run.webhook_results["answers"].append(("b", 202, True)), "webhooks taken twice, or answered and not taken"),
        (lambda run: run.webhook_results["answers"].append(("c", 202, False)), "webhooks taken twice, or answered and not taken"),
        (lambda run: run.forge_results["comments"].append("lc1."), "what webhooks told of and is not in the log exactly once"),
        (lambda run: run.report_counts.update({SESSION: 2}), "agents' reports that are not in the log exactly once"),
        (lambda run: run.agent_log.append(run.agent_log[0]), "messages accepted and not heard exactly once"),
        (lambda run: run.viewer_results["logs"].append(log_viewer_with(1, 3)), "events that a viewer of the log missed or saw twice"),
        (lambda run: run.viewer_results["logs"].append(log_viewer_with(1, 2, 2, 3)), "events that a viewer of the log missed or saw twice"),
        (lambda run: run.viewer_results["logs"].append(log_viewer_with(1, 2)), "events that a viewer of the log missed or saw twice"),
        (lambda run: run.viewer_results["boards"][1].pop(), "viewers of the board that were not told the same"),
        (lambda run: run.viewer_results["ended"].append("one"), "viewers that were cut off"),
        (lambda run: run.log_bytes.update({SESSION: 600}), "terminals whose log lacks something that was printed"),
        (
            lambda run: run.viewer_results["screens"].append(screen_with(0, 2)),
            "blocks that a terminal's viewer missed, saw twice or broken",
        ),
        (
            lambda run: run.viewer_results["screens"].append(screen_with(0, 1)),
            "blocks that a terminal's viewer missed, saw twice or broken",
        ),
        (lambda run: run.probe_results["took"]["list"].extend([0.2] * 5), "API, list (p99)"),
        (_leak, "growth of the daemon's memory after warm-up"),
        (_more_descriptors, "drift of the daemon's descriptors"),
        (lambda run: run.leftover_pids.append(7), "processes left"),
        (lambda run: run.error_lines.append("Traceback"), "faults in the daemon's log"),
    ],
)  # fmt: skip
def test_each_failure_misses_its_figure(harm: Callable[[LoadRun], object], figure: str) -> None:
    run = faultless_run()
    harm(run)
    assert figure in missed_figures(run)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_a_terminals_output_may_arrive_in_pieces_of_any_size(size: int) -> None:
    output = b"".join(b"[chatter %d]\r\n%b  noted\r\n" % (number, BLOCK) for number in range(5))
    screen = TerminalViewer(SESSION, BLOCK)
    for at in range(0, len(output), size):
        screen.receive(output[at : at + size])
    assert (screen.first, screen.last, screen.count, screen.wrong) == (0, 4, 5, [])


def test_a_changed_byte_in_a_terminals_output_is_noticed() -> None:
    output = b"".join(b"[chatter %d]\r\n%b" % (number, BLOCK) for number in range(3))
    screen = TerminalViewer(SESSION, BLOCK)
    screen.receive(re.sub(rb"(chatter 1\]\r\n.{20}).", rb"\1#", output, count=1))
    assert screen.wrong


def test_a_boards_frames_are_distinguished_from_its_heartbeat() -> None:
    board = BoardViewer()
    board.receive(b"event: pulse\ndata: {}")
    board.receive(b"id: 4\nevent: live\ndata: {}")
    assert [number for number, _ in board.frames] == [4]
