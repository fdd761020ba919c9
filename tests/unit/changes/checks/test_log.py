"""A check's output, whatever its length."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.changes.checks.log import Log
from agent_orchestrator.changes.checks.spec import Limits


def kept(file: Path, head: int, tail: int, *chunks: bytes) -> tuple[str, list[str]]:
    lines: list[str] = []
    with Log(file, Limits(log_head=head, log_tail=tail), lines.append) as log:
        for chunk in chunks:
            log.write(chunk)
    return file.read_text(), lines


def test_lines_are_told_whole_however_they_come(tmp_path: Path) -> None:
    text, lines = kept(tmp_path / "log", 1000, 1000, b"on", b"e\ntwo\r\nthr\xc3", b"\xa4e")
    assert text == "one\ntwo\nthräe"
    assert lines == ["one", "two", "thräe"]


def test_start_and_end_of_much_output_are_kept_and_it_says_what_is_missing(tmp_path: Path) -> None:
    chunks = [f"{number:06d}\n".encode() for number in range(1_000_000 // 7)]
    text, lines = kept(tmp_path / "log", 70, 70, *chunks)
    assert text.startswith("000000\n000001\n")
    assert text.endswith("142855\n142856\n")
    assert "1.0 MB of output left out here" in text
    assert len(text) < 300
    assert lines[:2] == ["000000", "000001"]
    assert len(lines) == 11


def test_what_fits_is_kept_whole(tmp_path: Path) -> None:
    data = b"".join(f"{number:03d}\n".encode() for number in range(40))
    text, _ = kept(tmp_path / "log", 100, 80, data)
    assert text == data.decode()


def test_the_end_is_that_of_the_last_section(tmp_path: Path) -> None:
    with Log(tmp_path / "log", Limits(), lambda _: None) as log:
        log.write(b"set-up error")
        log.section()
        log.write(b"a\nbb\ncc\n")
        assert log.end(100) == "a\nbb\ncc\n"
        assert log.end(5) == "cc\n"
    assert (tmp_path / "log").read_text() == "set-up error\na\nbb\ncc\n"


def test_no_more_than_the_end_is_held_in_memory(tmp_path: Path) -> None:
    with Log(tmp_path / "log", Limits(log_head=100, log_tail=100), lambda _: None) as log:
        for _ in range(1000):
            log.write(b"0123456789")
        assert len(log.end(1 << 20)) == 100
