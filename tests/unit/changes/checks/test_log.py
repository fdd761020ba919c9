"""The log of a check: passed on by lines, and limited in size."""

from __future__ import annotations

from pathlib import Path

from agent_orchestrator.changes.checks.log import Log
from agent_orchestrator.changes.checks.spec import Limits


def write_log(file: Path, head: int, tail: int, *chunks: bytes) -> tuple[str, list[str]]:
    lines: list[str] = []
    with Log(file, Limits(log_head=head, log_tail=tail), lines.append) as log:
        for chunk in chunks:
            log.write(chunk)
    return file.read_text(), lines


def test_complete_lines_are_passed_on_however_the_output_is_split(tmp_path: Path) -> None:
    text, lines = write_log(tmp_path / "log", 1000, 1000, b"on", b"e\ntwo\r\nthr\xc3", b"\xa4e")
    assert text == "one\ntwo\nthräe"
    assert lines == ["one", "two", "thräe"]


def test_long_output_keeps_its_start_and_end_and_the_size_of_the_gap(tmp_path: Path) -> None:
    output = b"".join(f"{number:06d}\n".encode() for number in range(1_000_000 // 7))
    chunks = [output[at : at + 1000] for at in range(0, len(output), 1000)]
    text, lines = write_log(tmp_path / "log", 70, 70, *chunks)
    assert text.startswith("000000\n000001\n")
    assert text.endswith("142855\n142856\n")
    assert "1.0 MB of output left out here" in text
    assert len(text) < 300
    assert lines[:2] == ["000000", "000001"]
    assert len(lines) == 11


def test_short_output_is_kept_completely(tmp_path: Path) -> None:
    data = b"".join(f"{number:03d}\n".encode() for number in range(40))
    text, _ = write_log(tmp_path / "log", 100, 80, data)
    assert text == data.decode()


def test_the_end_belongs_to_the_last_section(tmp_path: Path) -> None:
    with Log(tmp_path / "log", Limits(), lambda _: None) as log:
        log.write(b"set-up error")
        log.begin_section()
        log.write(b"a\nbb\ncc\n")
        assert log.tail(100) == "a\nbb\ncc\n"
        assert log.tail(5) == "cc\n"
    assert (tmp_path / "log").read_text() == "set-up error\na\nbb\ncc\n"


def test_only_the_end_is_held_in_memory(tmp_path: Path) -> None:
    with Log(tmp_path / "log", Limits(log_head=100, log_tail=100), lambda _: None) as log:
        for _ in range(1000):
            log.write(b"0123456789")
        assert len(log.tail(1 << 20)) == 100
