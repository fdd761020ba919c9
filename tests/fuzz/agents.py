"""Targets that read what agents store and print: transcripts, protocols, screens. Plugins must keep reading after any input."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.base.malformed_records import parse_turn_line
from agent_orchestrator.plugins.agents import copilot, cursor, gemini
from agent_orchestrator.plugins.agents.aider.plugin import Aider
from agent_orchestrator.plugins.agents.claude_code import dialogs
from agent_orchestrator.plugins.agents.claude_code.listener import ClaudeListener, projects_folder
from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode
from agent_orchestrator.plugins.agents.codex import screen as codex_screen
from agent_orchestrator.plugins.agents.codex.plugin import Codex
from agent_orchestrator.plugins.agents.codex.rollouts import remember_start
from agent_orchestrator.plugins.agents.copilot import Copilot
from agent_orchestrator.plugins.agents.cursor import Cursor
from agent_orchestrator.plugins.agents.gemini import Gemini
from agent_orchestrator.plugins.agents.goose import listener
from agent_orchestrator.plugins.agents.goose.plugin import Goose
from agent_orchestrator.plugins.agents.kimicode import KimiCode, folder_key
from agent_orchestrator.plugins.agents.opencode.plugin import OpenCode
from agent_orchestrator.plugins.agents.opencode.server_events import ConversationReader
from agent_orchestrator.plugins.agents.shared.forge_commands import forge_calls
from agent_orchestrator.plugins.agents.shared.window_titles import WindowTitleReader
from agent_orchestrator.protocols import ReportBatch, RunningLaunch
from agent_orchestrator.protocols.reports import Report
from tests.fuzz.target import FuzzTarget
from tests.fuzz.texts import FACTS, folder, record_report

ID = "11111111-2222-4333-8444-555555555555"
ROLLOUT = "01a1df14-1e00-7000-8000-000000000001"
BEGIN = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC).timestamp()
WORKSPACE_MARK = b"<<WORKSPACE>>"
"""Placeholder of the workspace's path in stored inputs."""


class ScriptedChanges:
    """`protocols.Changes` that runs the next step before each change; after the last one the agent has ended."""

    def __init__(self, steps: Sequence[Callable[[], object]], ended: asyncio.Event) -> None:
        self.steps, self.ended, self.idle = list(steps), ended, 0

    def watch(self, path: Path) -> None:
        """Do nothing: every step is a change."""

    async def next(self, within: float | None = None) -> bool:
        """Run the next step; a wait with a time limit ends at once."""
        self.idle += within is not None
        if within is not None and self.idle < 3:
            return True
        if not self.steps:
            self.ended.set()
            return False
        self.idle = 0
        self.steps.pop(0)()
        return True


def collect_reports(batches: AsyncIterator[ReportBatch]) -> list[ReportBatch]:
    """Return all reports until the agent has ended."""

    async def hear() -> list[ReportBatch]:
        return [batch async for batch in batches]

    return asyncio.run(asyncio.wait_for(hear(), 20))


def make_run(folder_path: Path, file: Path, data: bytes, memo: dict[str, str], **fields: Any) -> RunningLaunch:
    """Return a launch that writes the data in three parts to its file and terminal, and then ends."""
    workspace, private = folder_path / "workspace", folder_path
    workspace.mkdir(exist_ok=True)
    log = folder_path / "terminal.log"
    log.touch()
    ended = asyncio.Event()
    screen_text = data[-4000:].decode(errors="replace")

    def write(part: bytes) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        for path in (file, log):
            with path.open("ab") as opened:
                opened.write(part)

    async def screen() -> str:
        return screen_text

    data = data.replace(WORKSPACE_MARK, str(workspace).encode())
    third = len(data) // 3
    parts = (data[:third], data[third : 2 * third], data[2 * third :])
    steps = [lambda part=part: write(part) for part in parts]
    run = RunningLaunch(
        session="app-x",
        generation=1,
        pid=4711,
        started="1180535",
        workspace=workspace,
        private=private,
        log=log,
        conversation=None,
        plugin_data=memo,
        cursors={},
        changes=ScriptedChanges(steps, ended),
        screen=screen,
        ended=ended,
    )
    return replace(run, **fields)


def reduce_reports(batches: Sequence[ReportBatch]) -> Counter[str]:
    """Turn reports into events and facts, and count the reports by kind."""
    facts = FACTS
    for batch in batches:
        assert 0 <= batch.start <= batch.end
        for report in batch.reports:
            facts = record_report(report, facts)
    return Counter(type(report).__name__ for batch in batches for report in batch.reports)


def headless_turn_check(agent: Any) -> Callable[[bytes], Counter[str]]:
    """Return a check that reads the output of a headless turn line by line."""

    def check(data: bytes) -> Counter[str]:
        reader, kinds = agent({}, LocalHost()), Counter[str]()
        for line in data.decode(errors="replace").split("\n"):
            read = parse_turn_line(reader, line)
            kinds += reduce_reports([ReportBatch(tuple(read.reports), "transcript")])
            assert isinstance(read.show, str)
        return kinds

    return check


def claude(data: bytes) -> Counter[str]:
    """Read Claude Code's transcript, hooks and record."""
    with folder() as place:
        config = place / "config"
        workspace = place / "workspace"
        file = projects_folder(config, workspace) / f"{ID}.jsonl"
        run = make_run(place, file, data, {"hooks": "hooks.jsonl", "launched": "2026-11-15T12:00:00Z"}, conversation=ID)
        (place / "hooks.jsonl").write_bytes(data)
        (config / "sessions").mkdir(parents=True)
        (config / "sessions" / "4711.json").write_bytes(data.split(b"\n")[0])

        return reduce_reports(collect_reports(ClaudeListener(run, config, lambda: BEGIN).listen()))


def codex(data: bytes) -> Counter[str]:
    """Read Codex's rollout."""
    with folder() as place:
        home = place / "home"
        remember_start(place, home, None, BEGIN)
        file = home / "sessions/2026/11/15" / f"rollout-2026-11-15T12-00-00-{ROLLOUT}.jsonl"
        memo = {"home": str(home), "log": "0", "waits": ""}
        with mock.patch("agent_orchestrator.plugins.agents.codex.plugin.OUTPUT_POLL_SECONDS", 0):
            return reduce_reports(collect_reports(Codex({}, LocalHost()).listen(make_run(place, file, data, memo))))


def gemini_chat(data: bytes) -> Counter[str]:
    """Read Gemini's chat."""
    with folder() as place:
        home = place / "home/.gemini"
        file = home / "tmp/x/chats" / f"session-2026-11-15T11-29-{ID[:8]}.jsonl"
        memo = {"home": str(home), "prompt": "yes", "resumed": "", "before": "{}"}
        return reduce_reports(
            collect_reports(Gemini({}, LocalHost()).listen(make_run(place, file, data, memo, conversation=ID)))
        )


def copilot_events(data: bytes) -> Counter[str]:
    """Read Copilot's events."""
    with folder() as place:
        file = place / "home/session-state" / ID / "events.jsonl"
        memo = {"home": str(place / "home"), "prompt": "yes"}
        return reduce_reports(
            collect_reports(Copilot({}, LocalHost()).listen(make_run(place, file, data, memo, conversation=ID)))
        )


def kimi(data: bytes) -> Counter[str]:
    """Read Kimi's wire log."""
    with folder() as place:
        key = folder_key(place / "workspace")
        file = place / "home/sessions" / key / "session_1/agents/main/wire.jsonl"
        memo = {"home": str(place / "home"), "prompt": "yes"}
        return reduce_reports(collect_reports(KimiCode({}, LocalHost()).listen(make_run(place, file, data, memo))))


def cursor_transcript(data: bytes) -> Counter[str]:
    """Read Cursor's transcript."""
    with folder() as place:
        memo = {"folder": str(place / "transcripts"), "before": "old"}
        return reduce_reports(
            collect_reports(
                Cursor({}, LocalHost()).listen(make_run(place, place / "transcripts/c1/c1.jsonl", data, memo))
            )
        )


def aider(data: bytes) -> Counter[str]:
    """Read Aider's chat history and events."""
    with folder() as place:
        (place / "aider").mkdir()
        (place / "aider" / "events.jsonl").write_bytes(data)
        return reduce_reports(
            collect_reports(
                Aider({}, LocalHost()).listen(make_run(place, place / "aider" / "chat.history.md", data, {}))
            )
        )


def goose(data: bytes) -> Counter[str]:
    """Read goose's store, log and terminal."""
    with folder() as place:
        store, logs = place / "sessions.db", place / "logs"
        (place / "goose").mkdir()
        with contextlib.closing(sqlite3.connect(store)) as connection:
            connection.execute(
                "CREATE TABLE sessions (id TEXT PRIMARY KEY, name TEXT, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, extension_data"
                " TEXT, accumulated_input_tokens INTEGER, accumulated_output_tokens INTEGER, accumulated_cost REAL, model_config_json TEXT)"
            )
            connection.execute(
                "CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT, role TEXT, content_json TEXT)"
            )
            lines = data.decode(errors="replace").split("\n")
            extra = {key: lines[place % len(lines)] for place, key in enumerate(("data", "input", "cost", "model"))}
            connection.execute(
                "INSERT INTO sessions VALUES ('1', 'app-x-1', 0, :data, :input, :input, :cost, :model)",
                extra,
            )
            for number, line in enumerate(lines):
                role = ("user", "assistant")[number % 2]
                connection.execute(
                    "INSERT INTO messages (session_id, role, content_json) VALUES ('1', ?, ?)", (role, line)
                )
            connection.commit()
        memo = {"session": "app-x-1", "store": str(store), "logs": str(logs), "spent": "[0, 0, 0.0]"}
        return reduce_reports(
            collect_reports(Goose({}, LocalHost()).listen(make_run(place, logs / "cli/2026-11-15/1.log", data, memo)))
        )


def opencode(data: bytes) -> Counter[str]:
    """Read the events of OpenCode's server."""
    reader = ConversationReader(None, 0.0, {})
    batches: list[ReportBatch] = []
    for line in data.split(b"\n"):
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            batches += reader.read_event(event)
    reader.unanswered_messages()
    return reduce_reports(batches)


def screens(data: bytes) -> None:
    """Run every parser of screens."""
    text = data.decode(errors="replace")
    if dialog := dialogs.parse_dialog(text):
        for decision in ("allow", "always", "deny"):
            dialogs.key_for(dialog, text[:40], decision)
    dialogs.prompt_text(text)
    dialogs.retried_error(text)
    dialogs.is_put_back(text, text)
    if dialog_request := codex_screen.parse_dialog(text):
        for decision in ("allow", "always", "deny"):
            dialog_request.keys(decision)
        dialog_request.shows(text[:40])
        dialog_request.can_be_for(text[:40])
    reports: list[Report | None] = [gemini.dialog_report(text), gemini.opening_report(text, begun=False)]
    reduce_reports([ReportBatch(tuple(report for report in reports if report), "screen")])
    copilot.retry_notice(text)
    listener.shows_dialog(text)
    listener.parse_request(data, [text[:20]], Path("/w"))
    forge_calls(text)
    cursor.text_of({"role": "user", "text": text})


def titles(data: bytes) -> None:
    """Check that window titles do not depend on how the output is split."""

    def read(cuts: Sequence[bytes]) -> list[tuple[str, int, int]]:
        with folder() as place:
            run = make_run(place, place / "x", b"", {})
            reader, titles = WindowTitleReader(run), []
            for cut in cuts:
                with run.log.open("ab") as file:
                    file.write(cut)
                titles += [(title.text, title.start, title.end) for title in reader.read()]
            return titles

    expected = read([data])
    for cut in (len(data) // 2, len(data) // 3, len(data) - 1):
        assert read([data[:cut], data[cut:]]) == expected


TARGETS = (
    FuzzTarget("claude", claude, "json", (b'{"type":"user"', b'"message":')),
    FuzzTarget("claude-turn", headless_turn_check(ClaudeCode), "json"),
    FuzzTarget("codex", codex, "json"),
    FuzzTarget("codex-turn", headless_turn_check(Codex), "json"),
    FuzzTarget("gemini", gemini_chat, "json"),
    FuzzTarget("copilot", copilot_events, "json"),
    FuzzTarget("kimicode", kimi, "json"),
    FuzzTarget("cursor", cursor_transcript, "json"),
    FuzzTarget("aider", aider, "json", (b"\n#### ", b"\n> ", b"> Tokens: 8k sent, 1 received. Cost: $")),
    FuzzTarget("aider-turn", headless_turn_check(Aider), "json"),
    FuzzTarget("goose", goose, "json"),
    FuzzTarget("goose-turn", headless_turn_check(Goose), "json"),
    FuzzTarget(
        "opencode",
        opencode,
        "json",
        seeds=(Path(__file__).parents[1] / "unit/plugins/agents/opencode/server_events.jsonl",),
    ),
    FuzzTarget("opencode-turn", headless_turn_check(OpenCode), "json"),
    FuzzTarget(
        "screens", screens, "lines", ("❯ 1. Yes".encode(), "› 2. No".encode(), b"Do you want to proceed?\n"), 30
    ),
    FuzzTarget("titles", titles, "bytes", (b"\x1b]0;x\x07", b"\x1b]2;", b"\x1b\\"), 20),
)
