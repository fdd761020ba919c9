"""Spool lines: each becomes a report or a named problem; no line is lost, duplicated or torn."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_orchestrator.plugins.agents.shared import spool
from agent_orchestrator.plugins.agents.shared.spool import SpoolReader, clean_text, parse
from agent_orchestrator.protocols import Activity
from agent_orchestrator.protocols.reports import (
    AckReport,
    ActivityReport,
    AskReport,
    DoneReport,
    InvalidReport,
    LimitReport,
    OtherReport,
    ProgressReport,
    ReplyReport,
    Report,
    UsageReport,
)

SIX = datetime(2026, 11, 15, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "report"),
    [
        ('{"event": "activity", "state": "active"}', ActivityReport(Activity.ACTIVE)),
        ('{"event": "activity"}', ActivityReport(Activity.ACTIVE)),
        (
            '{"event": "activity", "state": "blocked", "detail": "Allow?"}',
            ActivityReport(Activity.BLOCKED, "Allow?"),
        ),
        ('{"event": "ack", "message": "m1"}', AckReport("m1")),
        ('{"event": "ack"}', AckReport(None)),
        ('{"event": "progress", "done": 3, "total": 5, "step": "tests"}', ProgressReport(3, 5, "tests")),
        ('{"event": "progress", "done": 3.0, "tests_passed": 41}', ProgressReport(3, tests_passed=41)),
        (
            '{"event": "usage", "model": "m", "input": 1200, "output": 300, "usd": 0.012}',
            UsageReport("m", 1200, 300, usd=0.012),
        ),
        ('{"event": "usage", "cache_read": 7, "cache_write": 8}', UsageReport(cache_read=7, cache_write=8)),
        ('{"event": "limit", "resets_at": "2026-11-15T18:00:00Z"}', LimitReport(SIX)),
        ('{"event": "limit", "resets_at": "2026-11-15T19:00:00+01:00"}', LimitReport(SIX)),
        ('{"event": "limit", "resets_at": "2026-11-15T18:00:00"}', LimitReport(SIX)),
        (f'{{"event": "limit", "resets_at": {SIX.timestamp()}}}', LimitReport(SIX)),
        ('{"event": "limit", "resets_at": null}', LimitReport(None)),
        ('{"event": "ask", "question": "Which\\u001b[31m one?"}', AskReport("Which one?")),
        ('{"event": "done", "summary": "…", "time": "2026-11-15T18:00:00Z"}', DoneReport("…", SIX)),
        (
            '{"event": "reply", "comment": "c-1", "text": " Done.\\u0007 "}',
            ReplyReport("Done.", "c-1"),
        ),
        ('{"event": "reply", "text": "x"}', ReplyReport("x")),
        ('{"event": "new", "a": {"b\\u0007": ["\\u001bc"]}}', OtherReport("new", {"event": "new", "a": {"b": [""]}})),
    ],
)
def test_each_kind_of_line(line: str, report: Report) -> None:
    assert parse(line.encode()) == report


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "is not JSON"),
        (b"hello", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b"{}", "has no `event`"),
        (b'{"event": 1}', "has no `event`"),
        (b'{"event": "activity", "state": "exited"}', "`state` is 'exited'"),
        (b'{"event": "activity", "state": ["idle"]}', "`state` is not text"),
        (b'{"event": "progress", "done": "3"}', "`done` is not a number"),
        (b'{"event": "progress", "done": true}', "`done` is not a number"),
        (b'{"event": "progress", "done": -1}', "`done` is out of range"),
        (b'{"event": "progress", "done": 1.5}', "`done` is not a whole number"),
        (b'{"event": "reply", "comment": "c-1"}', "`text` is empty"),
        (b'{"event": "usage", "usd": NaN}', "has the number NaN"),
        (b'{"event": "usage", "usd": 1e999}', "`usd` is out of range"),
        (b'{"event": "usage", "input": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b'{"event": "limit", "resets_at": "soon"}', "`resets_at` is not a time"),
        (b'{"event": "limit", "resets_at": "0001-01-01T00:00:00+23:00"}', "`resets_at` is not a time"),
        (b'{"event": "x", "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "is nested too deeply"),
        (b'{"event": "x", "a": ' + b"[" * 20 + b"]" * 20 + b"}", "is nested too deeply"),
        (b'{"event": "done", "summary": "' + b"x" * spool.MAX_LINE_BYTES + b'"}', "longer than"),
    ],
)
def test_an_unusable_line_is_reported_with_its_problem(line: bytes, reason: str) -> None:
    report = parse(line)
    assert isinstance(report, InvalidReport)
    assert reason in report.reason
    assert len(report.excerpt) <= 200


def test_long_text_is_cut() -> None:
    report = parse(json.dumps({"event": "ask", "question": "x" * 50_000}).encode())
    assert isinstance(report, AskReport)
    assert len(report.question) == spool.MAX_TEXT_LENGTH and report.question.endswith("…")


calmly = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from(
    ["state", "detail", "message", "done", "total", "step", "usd", "input", "resets_at", "time", "x"]
)
events = st.sampled_from(["activity", "ack", "progress", "usage", "limit", "ask", "done", "reply", "other"])


@calmly
@given(
    st.binary()
    | st.builds(lambda e, d: json.dumps({**d, "event": e}).encode(), events, st.dictionaries(keys, json_values))
)
def test_parsing_never_raises(line: bytes) -> None:
    assert isinstance(parse(line), Report)


@calmly
@given(st.text())
@example("\x1b\x1b[201~[201~")
@example("\x1b]0;title\x07a\x1b]unfinished")
@example("\x9b31mred\x1b")
def test_cleaned_text_has_nothing_a_terminal_obeys(text: str) -> None:
    cleaned = clean_text(text)
    assert not [c for c in cleaned if (ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160]
    assert not set(cleaned) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert clean_text(cleaned) == cleaned
    cleaned.encode()


def test_cleaning_keeps_text() -> None:
    assert (
        clean_text("a\tb\r\nc\rd\x1b[1;31mé\x1b[0m🚀\x1b[201~\u202eevil\x1b]8;;http://x\x1b\\link")
        == "a\tb\nc\ndé🚀evillink"
    )


@calmly
@given(lines=st.lists(st.binary().map(lambda b: b.replace(b"\n", b"") + b"x"), max_size=8), data=st.data())
def test_any_split_of_writes_gives_the_same_lines(tmp_path: Path, lines: list[bytes], data: st.DataObject) -> None:
    path = tmp_path / "spool"
    path.unlink(missing_ok=True)
    content = b"".join(line + b"\n" for line in lines)
    reader = SpoolReader(path)
    read_lines: list[tuple[int, bytes]] = []
    written = 0
    while written < len(content):
        size = data.draw(st.integers(1, len(content) - written))
        with path.open("ab") as file:
            file.write(content[written : written + size])
        written += size
        read_lines += reader.read()
        if data.draw(st.booleans()):
            reader = SpoolReader(path, reader.offset)
    assert [line for _, line in read_lines] == lines
    assert all(content[offset : offset + len(line)] == line for offset, line in read_lines)
    assert reader.offset == len(content)
    assert reader.take_problems() == []


def test_a_missing_file_is_empty(tmp_path: Path) -> None:
    reader = SpoolReader(tmp_path / "none")
    assert reader.read() == [] and reader.take_problems() == []


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_only_a_regular_file_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "spool"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "secret").write_text('{"event": "done"}\n')
        path.symlink_to(tmp_path / "secret")
    reader = SpoolReader(path)
    assert reader.read() == [] == reader.read(final=True)
    (problem,) = reader.take_problems()
    assert str(path) in problem
    path.unlink()
    path.write_text("one\n")
    assert reader.read() == [(0, b"one")]


def test_the_last_line_counts_when_the_writer_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_bytes(b"one\ntwo")
    reader = SpoolReader(path)
    assert reader.read() == [(0, b"one")]
    assert reader.read(final=True) == [(4, b"two")]
    with path.open("ab") as file:
        file.write(b"three\n")
    assert SpoolReader(path, reader.offset).read() == [(7, b"three")]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_truncated_file_is_reported_and_nothing_is_read_twice(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "spool"
    path.write_bytes(b"one\ntwo\n")
    reader = SpoolReader(path)
    assert len(reader.read()) == 2
    if replaced:
        (tmp_path / "new").write_bytes(b"one\ntwo\nthree\n")
        (tmp_path / "new").replace(path)
    else:
        path.write_bytes(b"one\n")
    assert reader.read() == []
    assert len(reader.take_problems()) == 1
    with path.open("ab") as file:
        file.write(b"later\n")
    assert reader.read() == [(8, b"later")]
    assert reader.offset == 14
    assert reader.take_problems() == []


def test_an_endless_line_is_passed_over_in_bounded_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "MAX_READ_BYTES", 64 * 1024)
    path = tmp_path / "spool"
    path.write_bytes(b"x" * (spool.MAX_LINE_BYTES + 100_000) + b'\n{"event": "done"}\n')
    reader = SpoolReader(path)
    reads = [reader.read()]
    while reader.has_more:
        reads.append(reader.read())
    (_, long), (offset, done) = [line for lines in reads for line in lines]
    assert isinstance(parse(long), InvalidReport) and len(long) == spool.MAX_LINE_BYTES + 1
    assert offset == spool.MAX_LINE_BYTES + 100_001 and parse(done) == DoneReport()
    assert len(reads) > 5


@pytest.mark.parametrize("end", ["\n", ""])
def test_many_short_lines_are_read_some_at_a_time(tmp_path: Path, end: str) -> None:
    path = tmp_path / "spool"
    path.write_text("\n".join(str(number) for number in range(2 * spool.MAX_LINES)) + end)
    reader = SpoolReader(path)
    reads = [reader.read(final=True)]
    while reader.has_more:
        reads.append(reader.read(final=True))
    assert max(map(len, reads)) == spool.MAX_LINES and len(reads) == 2
    assert [int(line) for lines in reads for _, line in lines] == list(range(2 * spool.MAX_LINES))
    assert reader.offset == reader.end == path.stat().st_size


def test_a_command_that_a_permission_is_asked_for_is_not_tidied() -> None:
    line = json.dumps({"event": "permission", "tool": "Bash", "command": "git status\r\x1b[2Krm x"}).encode()
    report = parse(line)
    assert getattr(report, "command", None) == "git status\r\x1b[2Krm x"


def test_a_file_with_nothing_in_it_but_a_size_is_one_line_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_bytes(b'{"event": "done"}\n')
    reader = SpoolReader(path)
    assert len(reader.read()) == 1
    os.truncate(path, 1 << 40)
    ((start, line),) = reader.read()
    assert (start, parse(line)) == (18, InvalidReport("longer than 262144 bytes", ""))
    assert reader.offset == 1 << 40 and not reader.has_more and reader.take_problems()
    with path.open("ab") as file:
        file.write(b'{"event": "ack"}\n')
    assert reader.read() == [(1 << 40, b'{"event": "ack"}')]
    assert SpoolReader(path, 1 << 40).read() == [(1 << 40, b'{"event": "ack"}')], "after a restart too"
