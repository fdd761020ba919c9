"""Targets that read texts of people, agents and programs: configuration, spool, terminal output."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, SequenceNode

from agent_orchestrator.base.text.terminal_output import last_lines, to_plain_text
from agent_orchestrator.changes.checks.log import Log
from agent_orchestrator.changes.checks.spec import Limits
from agent_orchestrator.changes.checks.summary import strip_escapes
from agent_orchestrator.config.edit import get_value, set_value, split_key
from agent_orchestrator.config.load import load_file, load_text
from agent_orchestrator.config.prices import Prices
from agent_orchestrator.core import events as e
from agent_orchestrator.core.events import Event
from agent_orchestrator.core.facts import SessionFacts
from agent_orchestrator.core.fold.sessions import reduce
from agent_orchestrator.core.status import derive_status
from agent_orchestrator.core.store.codec import dump
from agent_orchestrator.errors import AoError, ConfigError
from agent_orchestrator.fleet.plans.validation import PlanContext, check_plan, extract_json
from agent_orchestrator.fleet.plans.yaml_text import tasks_from_yaml
from agent_orchestrator.plugins.agents.shared.spool import SpoolReader, clean_text, parse
from agent_orchestrator.plugins.runtimes.pty_holder.terminal import Modes, Scrollback, without_answers
from agent_orchestrator.plugins.runtimes.screen_text import _render
from agent_orchestrator.protocols.reports import Report
from agent_orchestrator.sessions.agents.listener import event_body_of, event_time, find_message_id
from tests.fuzz.target import FuzzTarget

SAMPLES = Path(__file__).parents[1] / "samples"
ENVIRON = {"HOME": "/home/person", "TOKEN": "t", "SLACK_WEBHOOK_URL": "https://example.invalid/x"}
SPEC = e.SessionCreated("t", "s", "", "", "demo", "process", "worktree", "b", "main", "/r", "/w")
FACTS = SessionFacts("app-x", "app", SPEC, 0.0, 0.0, requested_state="run", admitted=True)
PRICES = Prices(Path("/nowhere/prices.json"))
CONTROL = frozenset(map(chr, [*range(9), *range(11, 32), *range(127, 160)]))
"""Control characters; line feeds and tabs are text."""


@contextmanager
def folder() -> Iterator[Path]:
    """Yield a temporary folder for one input."""
    with tempfile.TemporaryDirectory(prefix="ao-fuzz-") as name:
        yield Path(name)


def pieces(data: bytes) -> Iterator[list[bytes]]:
    """Yield the same bytes cut in several ways: into single bytes, into small pieces, in the middle."""
    size = len(data)
    for step in (1, 3, 7) if size < 2000 else (509,):
        yield [data[at : at + step] for at in range(0, size, step)]
    yield [data[: size // 2], data[size // 2 :]]


# -- configuration -----------------------------------------------------------------------------------------------------


def configuration(data: bytes) -> None:
    """Check that a file loads, the same way each time, or is refused by an error that names it."""
    with folder() as folder_path:
        path = folder_path / "agent-orchestrator.yaml"
        path.write_bytes(data)
        try:
            loaded = load_file(path, ENVIRON)
        except ConfigError as error:
            assert all(line.startswith(str(path)) for line in error.text.split("\n")), error.text
            assert error.text.replace("\n", "").isprintable(), error.text
            return
        assert load_file(path, ENVIRON) == loaded
        dumped = loaded.config.model_dump(mode="json", by_alias=True)
        json.dumps(dumped, allow_nan=False).encode()


def setting(data: bytes) -> None:
    """Check that `ao config set` changes the key, keeps comments and is idempotent; or fails and changes nothing."""
    key, value, text = ([*data.split(b"\x00", 2), b"", b""])[:3]
    with folder() as folder_path:
        path = folder_path / "agent-orchestrator.yaml"
        path.write_bytes(text)
        name, new_value = key.decode(errors="replace"), value.decode(errors="replace")
        try:
            set_value(path, name, new_value, ENVIRON)
        except AoError:
            assert path.read_bytes() == text
            return
        after = path.read_text(encoding="utf-8")
        load_text(after, path, ENVIRON)
        missing = [word for word in _comments(text.decode("utf-8-sig"), name) if word not in after]
        assert not missing, f"lost {missing} in {after}"
        first_value = get_value(path, name, ENVIRON)
        set_value(path, name, new_value, ENVIRON)
        assert repr(get_value(path, name, ENVIRON)) == repr(first_value)
        assert not [word for word in _comments(after, name) if word not in path.read_text(encoding="utf-8")]


def _comments(text: str, key: str) -> Iterable[str]:
    """Yield comment lines, except in multi-line texts and in the replaced value."""
    loader = YAML(typ="safe", pure=True)
    values = json.dumps(loader.load(text), default=str, ensure_ascii=False)
    replaced = _line_range(loader.compose(text), split_key(key))
    for number, line in enumerate(text.splitlines()):
        comment = line.strip()
        if (
            comment.startswith("# ")
            and comment.isascii()
            and comment.isprintable()
            and comment[2:] not in values
            and number not in replaced
        ):
            yield comment


def _line_range(node: Any, steps: Sequence[str]) -> range:
    for step in steps:
        if isinstance(node, MappingNode):
            folded = step.replace("_", "").lower()
            node = next((v for k, v in node.value if str(k.value).replace("_", "").lower() == folded), None)
        elif isinstance(node, SequenceNode) and step.isdecimal() and int(step) < len(node.value):
            node = node.value[int(step)]
        else:
            return range(0)
    if node is None:
        return range(0)
    last = node
    while isinstance(last, MappingNode | SequenceNode) and last.value:
        last = last.value[-1][1] if isinstance(last, MappingNode) else last.value[-1]
    return range(node.start_mark.line, last.end_mark.line + 1)


def plan(data: bytes) -> None:
    """Check that a plan, edited by a person or answered by an agent, is read or refused."""
    text = data.decode(errors="replace")
    try:
        tasks_from_yaml(text)
    except AoError as error:
        assert "\n" not in str(error), error
    try:
        answer = extract_json(text)
    except ValueError:
        return
    json.dumps(dump(check_plan(answer, PlanContext(profiles=frozenset({"backend"})))), allow_nan=False).encode()


# -- what agents report ------------------------------------------------------------------------------------------------


def record_report(report: Report, facts: SessionFacts = FACTS) -> SessionFacts:
    """Turn a report into an event and facts, check that both can be stored, and return the facts."""
    body = event_body_of(report, facts, "key", PRICES)
    find_message_id(facts, getattr(report, "text", ""), set())
    if body is None:
        return facts
    when = event_time(report, facts, 1000.0)
    json.dumps(e.encode(body), ensure_ascii=False, allow_nan=False).encode()
    after = reduce(facts, Event(body, when, "spool", "key", "app", "app-x"))
    assert after is not None
    json.dumps(dump(after), ensure_ascii=False, allow_nan=False).encode()
    derive_status(after, 2000.0)
    return after


def spool(data: bytes) -> None:
    """Check that each line is one report, and that lines do not depend on how they were written."""
    facts = FACTS
    expected = _lines([data])
    for _, line in expected:
        facts = record_report(parse(line), facts)
    for cut in pieces(data):
        assert _lines(cut) == expected
    with folder() as folder_path:
        path = folder_path / "spool"
        path.write_bytes(data)
        reader = SpoolReader(path)
        first = reader.read()
        os.truncate(path, len(data) // 2)
        after_truncation = reader.read(final=True)
        with path.open("ab") as file:
            file.write(b'\n{"event": "done"}\n')
        after = reader.read(final=True)
        assert len({offset for offset, _ in [*first, *after_truncation, *after]}) == len(
            [*first, *after_truncation, *after]
        )


def _lines(cut: list[bytes]) -> list[tuple[int, bytes]]:
    lines = []
    with folder() as folder_path:
        path = folder_path / "spool"
        path.touch()
        reader = SpoolReader(path)
        with path.open("ab", buffering=0) as file:
            for piece in cut:
                file.write(piece)
                lines += reader.read()
        return [*lines, *reader.read(final=True)]


# -- terminals ---------------------------------------------------------------------------------------------------------


def text_cleaning(data: bytes) -> None:
    """Check that cleaned text has no control characters, and that cleaning is idempotent."""
    text = data.decode(errors="surrogateescape")
    cleaned = clean_text(text)
    assert not CONTROL & set(cleaned)
    assert clean_text(cleaned) == cleaned
    cleaned.encode()
    readable_text = to_plain_text(data)
    assert not (CONTROL - {"\b"}) & set(readable_text), readable_text
    readable_text.encode()
    assert "\x1b" not in strip_escapes(data.decode(errors="replace"))
    with folder() as folder_path:
        path = folder_path / "log"
        path.write_bytes(data)
        assert not (CONTROL - {"\b"}) & set(last_lines(path))


def screen(data: bytes) -> None:
    """Check that any output renders to a screen of the right size."""
    for columns, rows in ((80, 24), (1, 1), (20, 3)):
        rendered = _render(data, columns, rows)
        assert len(rendered.split("\n")) == rows + 1
        assert "\x1b" not in rendered


def scrollback(data: bytes) -> None:
    """Check that modes and scrollback do not depend on how the output is split, and are bounded by its size."""
    expected = Modes()
    expected.feed(data)
    for cut in pieces(data):
        modes, scrollback = Modes(), Scrollback()
        for piece in cut:
            modes.feed(piece)
            scrollback.add(piece)
        assert modes.active == expected.active
        assert len(scrollback.replay()) <= len(data)
    assert len(without_answers(data)) <= len(data)
    assert len(expected.sequence()) <= len(data) + 64


def check_log(data: bytes) -> None:
    """Check that the lines of a check's output do not depend on how it is split."""
    results = []
    for cut in ([data], *pieces(data)):
        lines: list[str] = []
        with folder() as folder_path, Log(folder_path / "log", Limits(), lines.append) as log:
            for piece in cut:
                log.write(piece)
            log.tail(100)
        results.append(lines)
    assert all(lines == results[0] for lines in results)


TARGETS = (
    FuzzTarget(
        "configuration", configuration, "lines", (b"projects:\n", b"defaults: ", b"  - ", b": "), 15, (SAMPLES,)
    ),
    FuzzTarget("setting", setting, "lines", (b"projects.", b'"', b".", b"# note\n", b"  # x\n"), 8),
    FuzzTarget("plan", plan, "lines", (b"tasks:\n", b"```json\n", b"- title: x\n")),
    FuzzTarget("spool", spool, "json", (b'{"event": "', b'"}\n')),
    FuzzTarget("stripping", text_cleaning, "bytes", (b"\x1b[31m", b"\x1b]0;t\x07", b"\x1bP", b"\b", b"\x1b[200~"), 30),
    FuzzTarget("screen", screen, "bytes", (b"\x1b[2J", b"\x1b[?1049h", b"\x1b[38;2;1;2;3m", b"\x1b[99;99H", b"\x1b[r")),
    FuzzTarget(
        "held", scrollback, "bytes", (b"\x1b[?2004h", b"\x1b[?2004", b"\x1b[6n", b"\x1b[?1049;2004h", b"\x1b[1;1R"), 30
    ),
    FuzzTarget("check-log", check_log, "bytes"),
)
