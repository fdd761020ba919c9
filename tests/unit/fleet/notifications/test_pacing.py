"""When notifications are sent: explored for any arrivals, by a clock that is moved by hand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core.notices import Notice
from agent_orchestrator.fleet.notifications.rate import (
    DIGESTED,
    Pace,
    Past,
    Send,
    Skip,
    Wait,
    decide,
    is_repeated,
    remember,
)


@dataclass
class Run:
    """What became of each notice."""

    messages: list[tuple[float, tuple[Notice, ...]]] = field(default_factory=list)
    taken: list[tuple[float, Notice]] = field(default_factory=list)
    skipped: list[tuple[float, Notice]] = field(default_factory=list)

    def sent_at(self) -> dict[str, float]:
        return {one.id: at for at, notices in self.messages for one in notices}


def play(notices: list[Notice], pace: Pace) -> Run:
    """Let them come and go as the outbox does: one at a time, in order, each when it is due."""
    run, past = Run(), Past()
    due = {one.id: one.at for one in notices}
    marks = {one.id: one.mark() for one in notices}
    pending = {one.id: one for one in notices}
    for _ in range(20 * len(notices) + 20):
        if not pending:
            return run
        now = min(due[name] for name in pending)
        notice = next(one for one in notices if one.id in pending and due[one.id] <= now)
        here = [one for one in pending.values() if one.at <= now]
        match decide(notice, here, marks, pace, past, now):
            case Wait(until):
                assert until > now
                due[notice.id] = until
            case Skip():
                run.skipped.append((now, pending.pop(notice.id)))
            case Send(said, taken):
                assert notice in (*said, *taken)
                run.messages.append((now, said))
                run.taken += [(now, one) for one in taken]
                past = remember(past, [marks[one.id] for one in said], urgent=notice.urgent, pace=pace, at=now)
                for one in (*said, *taken):
                    del pending[one.id]
    raise AssertionError("it does not come to an end")


def arrivals() -> st.SearchStrategy[list[Notice]]:
    one = st.builds(
        lambda at, level, text: Notice("", "title", f"text {text}", level, "t", "app", "app-x", float(at)),
        st.integers(0, 400),
        st.sampled_from(["urgent", "action", "warning", "info"]),
        st.integers(0, 6),
    )
    return st.lists(one, max_size=25).map(
        lambda found: [replace(one, id=f"n{n}") for n, one in enumerate(sorted(found, key=lambda each: each.at))]
    )


def paces() -> st.SearchStrategy[Pace]:
    return st.builds(
        Pace,
        st.sampled_from([0.0, 0.0, 30.0, 120.0]),
        st.integers(1, 5),
        st.sampled_from([10.0, 60.0, 200.0]),
        st.sampled_from([0.0, 20.0, 300.0]),
    )


@given(arrivals(), paces())
def test_nothing_is_lost_and_nothing_doubled(notices: list[Notice], pace: Pace) -> None:
    run = play(notices, pace)
    ended = [one.id for _, said in run.messages for one in said]
    ended += [one.id for _, one in (*run.taken, *run.skipped)]
    assert sorted(ended) == sorted(one.id for one in notices)


@given(arrivals(), paces())
def test_no_more_is_sent_than_the_limit_allows(notices: list[Notice], pace: Pace) -> None:
    run = play(notices, pace)
    for urgent in (True, False):
        times = [at for at, said in run.messages if said and said[0].urgent == urgent]
        for start in times:
            assert sum(start <= at < start + pace.per for at in times) <= pace.most


@given(arrivals(), paces())
def test_what_is_not_said_was_said_a_moment_ago(notices: list[Notice], pace: Pace) -> None:
    run = play(notices, pace)
    said = [(at, one.mark()) for at, found in run.messages for one in found]
    for now, one in (*run.skipped, *run.taken):
        assert any(mark == one.mark() and (now == at or 0 <= now - at < pace.repeat_after) for at, mark in said)


@given(arrivals(), paces())
def test_who_must_act_does_not_wait_for_who_need_not(notices: list[Notice], pace: Pace) -> None:
    alone = play([one for one in notices if one.urgent], pace).sent_at()
    together = {one.id: at for one in notices if one.urgent for at in [play(notices, pace).sent_at().get(one.id)] if at}
    assert {name: at for name, at in alone.items() if at} == together


@given(arrivals(), paces())
def test_urgent_and_other_news_are_never_in_one_message(notices: list[Notice], pace: Pace) -> None:
    for _, said in play(notices, pace).messages:
        assert len({one.urgent for one in said}) <= 1


@given(arrivals(), paces())
def test_a_digest_collects_for_its_time_and_no_shorter(notices: list[Notice], pace: Pace) -> None:
    run = play(notices, pace)
    for at, said in run.messages:
        assert all(one.at <= at for one in said)
        if pace.digest and all(one.level in DIGESTED for one in said) and said:
            everybody = [*said, *(one for when, one in run.taken if when == at)]
            assert at >= min(one.at for one in everybody) + pace.digest


def test_what_came_together_is_told_apart_while_there_is_room() -> None:
    notices = [Notice(f"n{n}", "t", f"m{n}", "urgent", at=10.0) for n in range(3)]
    assert [len(said) for _, said in play(notices, Pace()).messages] == [1, 1, 1]


def test_the_last_message_that_is_allowed_takes_along_what_waits() -> None:
    notices = [Notice(f"n{n}", "t", f"m{n}", "action", at=10.0) for n in range(6)]
    run = play(notices, Pace(most=3, per=60.0))
    assert [(at, len(said)) for at, said in run.messages] == [(10.0, 1), (10.0, 1), (10.0, 4)]


def test_a_clock_that_was_set_back_keeps_nothing_waiting() -> None:
    notice = Notice("n1", "t", "m", "info", at=1_000_000.0)
    marks = {"n1": notice.mark()}
    past = Past(((1_000_000.0, False),) * 20, {"other": 1_000_000.0})
    assert decide(notice, [notice], marks, Pace(digest=60.0), past, 500.0) == Send((notice,))
    assert not is_repeated(notice.mark(), Pace(), Past(marks={notice.mark(): 1_000_000.0}), 500.0)


def test_the_same_words_about_another_request_are_other_news() -> None:
    notice = Notice("n1", "app-x: blocked", "Bash: make test", "urgent", "agent-blocked", "app", "app-x")
    assert notice.mark("permission 1") != notice.mark("permission 2")
    assert notice.mark("permission 1") == replace(notice, id="n2", at=9.0).mark("permission 1")
