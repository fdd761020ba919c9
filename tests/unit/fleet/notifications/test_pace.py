"""Pacing of notifications, for any arrivals and with a simulated clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from agent_orchestrator.core.notices import Notice
from agent_orchestrator.fleet.notifications.rate_limit import (
    DIGEST_LEVELS,
    Postpone,
    Send,
    SendHistory,
    SendLimits,
    Skip,
    decide,
    is_repeated,
    remember,
)


@dataclass
class Run:
    """The outcome of each notice."""

    messages: list[tuple[float, tuple[Notice, ...]]] = field(default_factory=list)
    merged: list[tuple[float, Notice]] = field(default_factory=list)
    skipped: list[tuple[float, Notice]] = field(default_factory=list)

    def sent_at(self) -> dict[str, float]:
        return {notice.id: at for at, notices in self.messages for notice in notices}


def play(notices: list[Notice], pace: SendLimits) -> Run:
    """Decide about the notices as the outbox does: one at a time, in order, each when it is due."""
    run, past = Run(), SendHistory()
    due = {item.id: item.at for item in notices}
    marks = {item.id: item.content_hash() for item in notices}
    pending = {item.id: item for item in notices}
    for _ in range(20 * len(notices) + 20):
        if not pending:
            return run
        now = min(due[name] for name in pending)
        notice = next(item for item in notices if item.id in pending and due[item.id] <= now)
        waiting = [item for item in pending.values() if item.at <= now]
        match decide(notice, waiting, marks, pace, past, now):
            case Postpone(until):
                assert until > now
                due[notice.id] = until
            case Skip():
                run.skipped.append((now, pending.pop(notice.id)))
            case Send(sent, merged):
                assert notice in (*sent, *merged)
                run.messages.append((now, sent))
                run.merged += [(now, item) for item in merged]
                past = remember(past, [marks[item.id] for item in sent], urgent=notice.urgent, pace=pace, at=now)
                for item in (*sent, *merged):
                    del pending[item.id]
    raise AssertionError("it does not come to an end")


def arrivals() -> st.SearchStrategy[list[Notice]]:
    notice_strategy = st.builds(
        lambda at, level, text: Notice("", "title", f"text {text}", level, "t", "app", "app-x", float(at)),
        st.integers(0, 400),
        st.sampled_from(["urgent", "action", "warning", "info"]),
        st.integers(0, 6),
    )
    return st.lists(notice_strategy, max_size=25).map(
        lambda drawn: [replace(notice, id=f"n{n}") for n, notice in enumerate(sorted(drawn, key=lambda each: each.at))]
    )


def paces() -> st.SearchStrategy[SendLimits]:
    return st.builds(
        SendLimits,
        st.sampled_from([0.0, 0.0, 30.0, 120.0]),
        st.integers(1, 5),
        st.sampled_from([10.0, 60.0, 200.0]),
        st.sampled_from([0.0, 20.0, 300.0]),
    )


@given(arrivals(), paces())
def test_no_notice_is_lost_or_duplicated(notices: list[Notice], pace: SendLimits) -> None:
    run = play(notices, pace)
    ended = [notice.id for _, sent in run.messages for notice in sent]
    ended += [notice.id for _, notice in (*run.merged, *run.skipped)]
    assert sorted(ended) == sorted(notice.id for notice in notices)


@given(arrivals(), paces())
def test_the_rate_limit_is_kept(notices: list[Notice], pace: SendLimits) -> None:
    run = play(notices, pace)
    for urgent in (True, False):
        times = [at for at, sent in run.messages if sent and sent[0].urgent == urgent]
        for start in times:
            assert sum(start <= at < start + pace.period_seconds for at in times) <= pace.max_messages


@given(arrivals(), paces())
def test_only_recently_repeated_notices_are_skipped(notices: list[Notice], pace: SendLimits) -> None:
    run = play(notices, pace)
    sent = [(at, notice.content_hash()) for at, message in run.messages for notice in message]
    for now, notice in (*run.skipped, *run.merged):
        assert any(
            mark == notice.content_hash() and (now == at or 0 <= now - at < pace.repeat_after) for at, mark in sent
        )


@given(arrivals(), paces())
def test_urgent_notices_do_not_wait_for_others(notices: list[Notice], pace: SendLimits) -> None:
    alone = play([notice for notice in notices if notice.urgent], pace).sent_at()
    together = {
        notice.id: at
        for notice in notices
        if notice.urgent
        for at in [play(notices, pace).sent_at().get(notice.id)]
        if at
    }
    assert {name: at for name, at in alone.items() if at} == together


@given(arrivals(), paces())
def test_urgent_and_other_notices_are_never_combined(notices: list[Notice], pace: SendLimits) -> None:
    for _, sent in play(notices, pace).messages:
        assert len({notice.urgent for notice in sent}) <= 1


@given(arrivals(), paces())
def test_a_digest_collects_for_its_whole_time(notices: list[Notice], pace: SendLimits) -> None:
    run = play(notices, pace)
    for at, sent in run.messages:
        assert all(notice.at <= at for notice in sent)
        if pace.digest_seconds and all(notice.level in DIGEST_LEVELS for notice in sent) and sent:
            everybody = [*sent, *(notice for when, notice in run.merged if when == at)]
            assert at >= min(notice.at for notice in everybody) + pace.digest_seconds


def test_simultaneous_notices_are_separate_messages_within_the_limit() -> None:
    notices = [Notice(f"n{n}", "t", f"m{n}", "urgent", at=10.0) for n in range(3)]
    assert [len(sent) for _, sent in play(notices, SendLimits()).messages] == [1, 1, 1]


def test_the_last_message_within_the_limit_includes_all_that_wait() -> None:
    notices = [Notice(f"n{n}", "t", f"m{n}", "action", at=10.0) for n in range(6)]
    run = play(notices, SendLimits(max_messages=3, period_seconds=60.0))
    assert [(at, len(sent)) for at, sent in run.messages] == [(10.0, 1), (10.0, 1), (10.0, 4)]


def test_a_clock_set_back_delays_nothing() -> None:
    notice = Notice("n1", "t", "m", "info", at=1_000_000.0)
    marks = {"n1": notice.content_hash()}
    past = SendHistory(((1_000_000.0, False),) * 20, {"other": 1_000_000.0})
    assert decide(notice, [notice], marks, SendLimits(digest_seconds=60.0), past, 500.0) == Send((notice,))
    assert not is_repeated(
        notice.content_hash(), SendLimits(), SendHistory(marks={notice.content_hash(): 1_000_000.0}), 500.0
    )


def test_the_same_text_about_another_request_is_no_repetition() -> None:
    notice = Notice("n1", "app-x: blocked", "Bash: make test", "urgent", "agent-blocked", "app", "app-x")
    assert notice.content_hash("permission 1") != notice.content_hash("permission 2")
    assert notice.content_hash("permission 1") == replace(notice, id="n2", at=9.0).content_hash("permission 1")
