"""Leases of nodes: a node's lease ends before the daemon considers it over, whatever is lost, late or restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.cluster.node.lease import (
    MARGIN_SECONDS,
    LeaseAnswer,
    LeaseGrants,
    LeaseRequest,
    Leases,
    boot_time,
    write_deadline,
)
from agent_orchestrator.errors import Conflict, Temporary

SESSION = "app-fix"
LENGTH = 10.0

DELAYS = st.sampled_from([0.0, 0.3, 2.0, 6.0, 9.5, 12.0, 25.0])
STEPS = st.one_of(
    st.tuples(st.just("ask"), DELAYS, DELAYS),
    st.tuples(st.just("lose the request"), DELAYS, st.just(0.0)),
    st.tuples(st.just("lose the answer"), DELAYS, st.just(0.0)),
    st.tuples(st.just("wait"), DELAYS, st.just(0.0)),
    st.tuples(st.just("restart the daemon"), st.just(0.0), st.just(0.0)),
    st.tuples(st.just("restart the worker"), st.just(0.0), st.just(0.0)),
    st.tuples(st.just("change the length"), st.sampled_from([2.0, 10.0, 40.0]), st.just(0.0)),
)


class Play:
    """A simulated node, daemon and network with a true time that neither of them knows."""

    def __init__(self, node: tuple[float, float], daemon: tuple[float, float]) -> None:
        self.time, self.node, self.daemon = 0.0, node, daemon
        self.generation = self.agent = 1
        self.length = self.longest = LENGTH
        self.file = 0.0
        """The deadline that the holder of the agent's terminal reads, by the node's clock."""
        self.under_way: list[tuple[float, str, Any]] = []
        self.restart_daemon()
        self.restart_worker()
        request = self.leases.create_request()
        self.leases.apply_answer(request, self.grants.grant(request.launches, lambda _session, _generation: True))

    def clock(self, of: tuple[float, float]) -> float:
        rate, start = of
        return start + self.time * rate

    def restart_daemon(self) -> None:
        self.grants = LeaseGrants(self.length, lambda: self.clock(self.daemon), self.longest)
        self.under_way = [item for item in self.under_way if item[1] != "request"]

    def restart_worker(self) -> None:
        self.leases = Leases(lambda: self.clock(self.node), lambda _path, deadline: self.write(deadline))
        self.leases.hold(SESSION, self.agent, Path("lease"))
        self.under_way = [item for item in self.under_way if item[1] != "answer"]

    def write(self, deadline: float) -> None:
        self.file = deadline

    def go(self, until: float) -> None:
        """Advance the time and deliver messages; the daemon starts another agent as soon as it may."""
        while self.time < until:
            due = min((at for at, _, _ in self.under_way), default=until)
            self.time = min(max(due, self.time), until, self.time + 1.0)
            arrived = [item for item in self.under_way if item[0] <= self.time]
            self.under_way = [item for item in self.under_way if item[0] > self.time]
            for _, kind, content in arrived:
                if kind == "request":
                    request, back = content
                    granted = self.grants.grant(request.launches, lambda _, number: number == self.generation)
                    if back is not None:
                        self.under_way.append((self.time + back, "answer", (request, granted)))
                else:
                    request, granted = content
                    self.leases.apply_answer(request, granted)
            self.check()

    def check(self) -> None:
        if self.generation == self.agent and self.grants.is_over(SESSION):
            self.grants.refuse_renewals(SESSION, self.generation)
            self.generation += 1
        if self.generation != self.agent:
            # Another agent runs elsewhere: the first must have ended, and stay so whatever arrives later.
            assert self.clock(self.node) >= self.file


@given(
    steps=st.lists(STEPS, min_size=2, max_size=12),
    starts=st.sampled_from([(0.0, 1e6), (1e6, 0.0), (5.0, 5.0)]),
    rate=st.sampled_from([0.99, 1.0, 1.01]),
)
def test_the_node_stops_before_another_agent_starts(
    steps: list[tuple[str, float, float]], starts: tuple[float, float], rate: float
) -> None:
    play = Play((rate, starts[0]), (1.0, starts[1]))
    for step, first, second in steps:
        if step == "wait":
            play.go(play.time + first)
        elif step == "restart the daemon":
            play.restart_daemon()
        elif step == "restart the worker":
            play.restart_worker()
        elif step == "change the length":
            play.length, play.longest = first, max(play.longest, first)
            play.restart_daemon()
        else:
            request = play.leases.create_request()
            if step != "lose the request":
                back = None if step == "lose the answer" else second
                play.under_way.append((play.time + first, "request", (request, back)))
            play.go(play.time + 0.1)
    play.go(play.time + 26 + 1.2 * play.longest)
    assert play.generation == 2, "without renewal another agent replaces it"


def test_a_lease_counts_from_its_request() -> None:
    now = 100.0
    written: list[float] = []
    leases = Leases(lambda: now, lambda _, deadline: written.append(deadline))
    leases.hold("a", 3, Path("a"))
    first = leases.create_request()
    now = 104.0
    second = leases.create_request()
    now = 107.0
    assert leases.apply_answer(second, LeaseAnswer(10.0)) == {} and written == [114.0]
    assert leases.apply_answer(first, LeaseAnswer(10.0)) == {} and written == [114.0], (
        "an older answer takes nothing back"
    )
    assert leases.deadline("a") == 114.0


def test_a_stale_launch_is_not_renewed() -> None:
    grants = LeaseGrants(10.0, lambda: 50.0)
    current = {"a": 2, "b": 1}
    assert grants.grant({"a": 1, "b": 1, "c": 1}, lambda s, g: current.get(s) == g).refused == ("a", "c")
    grants.refuse_renewals("b", 1)
    assert grants.grant({"b": 1}, lambda s, g: current.get(s) == g).refused == ("b",)
    assert grants.over_at("b") == 60.0 + MARGIN_SECONDS
    leases = Leases(lambda: 1.0, lambda _path, _deadline: None)
    leases.hold("a", 1, Path("a"))
    assert leases.apply_answer(leases.create_request(), LeaseAnswer(10.0, ("a",))) == {"a": 1}
    assert leases.deadline("a") is None


def test_a_launch_reported_as_ended_is_not_awaited() -> None:
    grants = LeaseGrants(10.0, lambda: 50.0)
    grants.grant({"a": 1}, lambda _s, _g: True)
    assert not grants.is_over("a")
    grants.record_agent_end("a")
    assert grants.is_over("a")


async def _keep(answers: list[LeaseAnswer | Exception], slept: list[float], stale: list[tuple[str, int]]) -> Leases:
    leases = Leases(lambda: 1.0, lambda _path, _deadline: None)
    leases.hold("a", 1, Path("a"))

    async def call(_request: LeaseRequest) -> LeaseAnswer:
        if not answers:
            raise asyncio.CancelledError
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def on_stale(session: str, generation: int) -> None:
        stale.append((session, generation))
        leases.drop(session, generation)
        leases.hold("b", 1, Path("b"))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    with pytest.raises(asyncio.CancelledError):
        await leases.keep_renewing(call, on_stale, sleep)
    return leases


def test_a_lease_is_renewed_repeatedly() -> None:
    slept: list[float] = []
    stale: list[tuple[str, int]] = []
    answers: list[LeaseAnswer | Exception] = [
        LeaseAnswer(8.0),
        Temporary("the link is lost"),
        LeaseAnswer(8.0),
        LeaseAnswer(8.0, ("a",)),
    ]
    leases = asyncio.run(_keep(list(answers), slept, stale))
    assert slept == [2.0, 1.0, 2.0, 2.0] and stale == [("a", 1)]
    assert leases.deadline("a") is None


def test_a_launch_needs_a_lease(tmp_path: Path) -> None:
    leases, path = Leases(), tmp_path / "lease"

    async def grant(request: LeaseRequest) -> LeaseAnswer:
        return LeaseAnswer(5.0)

    async def refuse(request: LeaseRequest) -> LeaseAnswer:
        return LeaseAnswer(5.0, tuple(request.launches))

    before = boot_time()
    asyncio.run(leases.begin("a", 1, path, grant))
    assert before + 5 <= int(path.read_text()) / 1e9 + 1e-6 and int(path.read_text()) / 1e9 <= boot_time() + 5
    with pytest.raises(Conflict, match="launch 2 of a is over"):
        asyncio.run(leases.begin("a", 2, path, refuse))
    assert leases.create_request().launches == {}
    write_deadline(path, 1.5)
    assert path.read_text() == "1500000000\n"
