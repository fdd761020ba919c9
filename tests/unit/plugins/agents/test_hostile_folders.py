"""Hostile files in the CLIs' own folders, which agents may write: they neither block a launch nor redirect a write."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from agent_orchestrator.base.files.safe import MAX_FILE_BYTES, UnsafePath
from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import Conflict, Temporary
from agent_orchestrator.plugins.agents.claude_code.plugin import ClaudeCode
from agent_orchestrator.plugins.agents.codex import rollouts
from agent_orchestrator.plugins.agents.codex.plugin import Codex
from agent_orchestrator.plugins.agents.copilot import Copilot
from agent_orchestrator.plugins.agents.cursor import Cursor
from agent_orchestrator.plugins.agents.gemini import Gemini
from agent_orchestrator.plugins.agents.goose.plugin import Goose
from agent_orchestrator.plugins.agents.goose.session_store import GooseStore
from agent_orchestrator.plugins.agents.kimicode import KimiCode, folder_key
from agent_orchestrator.plugins.agents.shared import agent_cli, user_files
from agent_orchestrator.plugins.agents.shared.user_files import lock_folder
from agent_orchestrator.protocols import AgentContext, AgentLaunch

T = TypeVar("T")
TIMEOUT = 40.0
CONVERSATION = "0199a213-81c0-7800-8aa1-bbab2a035a53"
MINE = '{"mine": 1}'
HUGE = 1 << 40


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def context(tmp_path: Path, home: Path) -> AgentContext:
    for name in ("workspace", "private", "bin"):
        (tmp_path / name).mkdir()
    for name in ("claude", "codex", "copilot", "gemini", "kimi", "goose", "cursor-agent"):
        program = tmp_path / "bin" / name
        program.write_text("#!/bin/sh\necho '{}'\n")
        program.chmod(0o755)
    return AgentContext(
        session="app-fix",
        project="app",
        workspace=tmp_path / "workspace",
        branch="feature/fix",
        base="main",
        prompt="Fix it",
        task_file=tmp_path / "private" / "task.md",
        private=tmp_path / "private",
        repo=tmp_path / "workspace",
        env={"HOME": str(home), "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "GEMINI_API_KEY": "key"},
    )


def in_time(work: Callable[[], T]) -> T:
    """Return or raise the outcome of some work, and fail if it blocks."""
    outcomes: list[Callable[[], T]] = []

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            outcomes.append(lambda error=error: (_ for _ in ()).throw(error))  # type: ignore[misc]
        else:
            outcomes.append(lambda: result)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert outcomes, "it waits for ever"
    return outcomes[0]()


def launched(launch: Coroutine[Any, Any, AgentLaunch]) -> AgentLaunch:
    return in_time(lambda: asyncio.run(launch))


def add(data: dict[str, Any]) -> bool:
    data["ours"] = 2
    return True


# -- whose symlink it is -----------------------------------------------------------------------------------------------


def test_a_symlink_of_the_users_is_followed_one_in_the_agents_folder_only_within_it(home: Path) -> None:
    agents, dotfiles = home / ".cli", home / "dotfiles"
    agents.mkdir()
    dotfiles.mkdir()
    (home / ".cli.json").symlink_to("dotfiles/cli.json")
    assert user_files.resolve(home / ".cli.json", agents) == dotfiles / "cli.json"
    (agents / "near").symlink_to("real.json")
    assert user_files.resolve(agents / "near", agents) == agents / "real.json"
    (home / "moved").symlink_to(".cli")
    assert user_files.resolve(home / "moved/near", home / "moved") == agents / "real.json"
    (agents / "far").symlink_to(dotfiles / "cli.json")
    (agents / "up").symlink_to("../dotfiles")
    (home / "through").symlink_to(".cli/far")
    (agents / "circle").symlink_to("circle")
    for name in (agents / "far", agents / "up/cli.json", home / "through", home / "moved/far", agents / "circle"):
        with pytest.raises(UnsafePath):
            user_files.resolve(name, agents)


@pytest.mark.parametrize("there", [True, False])
def test_no_merge_writes_through_an_agents_symlink(home: Path, there: bool) -> None:
    agents, other = home / ".cli", home / "other.json"
    agents.mkdir()
    (agents / "config.json").symlink_to(other)
    if there:
        other.write_text(MINE)
    with capture_logs() as logs:
        agent_cli.merge_json(agents / "config.json", add, agents)
    assert other.exists() == there and (not there or other.read_text() == MINE)
    assert len(logs) == 1 and "leads out of" in logs[0]["error"]
    assert (agents / "config.json").is_symlink() and len(list(agents.iterdir())) == 1


def test_a_folder_that_becomes_a_symlink_before_it_is_written_is_not_entered(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents, outside = home / ".cli", home / "outside"
    (agents / "sub").mkdir(parents=True)
    outside.mkdir()

    def swap(data: dict[str, Any]) -> bool:
        (agents / "sub").rmdir()
        (agents / "sub").symlink_to(outside)
        return add(data)

    followed = user_files.resolve
    monkeypatch.setattr(user_files, "resolve", lambda path, agents: _as_first_seen(path, agents, followed))
    with pytest.raises(UnsafePath):
        agent_cli.merge_json(agents / "sub/x.json", swap, agents)
    assert list(outside.iterdir()) == []


def _as_first_seen(path: Path, agents: Path, followed: Callable[[Path, Path], Path]) -> Path:
    """As it was before an agent exchanged it, right after it was looked at."""
    return path if path.parent.is_symlink() else followed(path, agents)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)


def _deep(path: Path) -> None:
    path.write_text("[" * 200_000)


@pytest.mark.parametrize("plant", [_pipe, _sparse, _deep, Path.mkdir])
def test_a_pipe_or_folder_does_not_block_a_merge(home: Path, plant: Callable[[Path], None]) -> None:
    agents = home / ".cli"
    agents.mkdir()
    plant(agents / "config.json")
    in_time(lambda: agent_cli.merge_json(agents / "config.json", add, agents))
    assert [path.name for path in agents.iterdir()] == ["config.json"]


def test_half_a_character_in_a_file_is_no_end_of_it(home: Path) -> None:
    file = home / "config.json"
    file.write_text('{"half": "\\ud800", "whole": "ä"}')
    agent_cli.merge_json(file, add, home)
    assert json.loads(file.read_text()) == {"half": "\ud800", "whole": "ä", "ours": 2}


# -- locks -------------------------------------------------------------------------------------------------------------


def test_a_lock_that_is_none_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("full", "link", "file", "ahead"):
        lock = tmp_path / f"{name}.lock"
        match name:
            case "full":
                (lock / "x").mkdir(parents=True)
            case "link":
                lock.symlink_to(tmp_path)
            case "file":
                lock.touch()
            case "ahead":
                lock.mkdir()
                os.utime(lock, (HUGE >> 6, HUGE >> 6))
        acquired: list[bool] = []

        def take(name: str = name, acquired: list[bool] = acquired) -> None:
            with lock_folder(tmp_path / name, patience=2 * TIMEOUT) as held:
                acquired.append(held)

        in_time(take)
        assert acquired == [name == "ahead"], name


@pytest.mark.anyio
async def test_waiting_for_a_lock_does_not_block_the_event_loop(context: AgentContext, home: Path) -> None:
    lock = home / ".claude.json.lock"
    lock.mkdir()
    launching = asyncio.create_task(ClaudeCode({}, LocalHost()).launch(context))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not launching.done()
    lock.rmdir()
    await launching
    assert json.loads((home / ".claude.json").read_text())["hasCompletedOnboarding"] is True


@pytest.mark.anyio
async def test_a_lock_that_stays_is_one_line_with_the_remedy(context: AgentContext, home: Path) -> None:
    (home / ".claude.json.lock/x").mkdir(parents=True)
    with pytest.raises(Temporary) as caught:
        await ClaudeCode({}, LocalHost()).launch(context)
    assert caught.value.remedy == f"if none runs, remove {home}/.claude.json.lock"


# -- Claude Code -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plant", [_pipe, lambda path: path.symlink_to("../other.json"), lambda path: path.write_text("{}")]
)
def test_the_copy_of_its_state_is_made_whatever_stands_there(
    context: AgentContext, home: Path, plant: Callable[[Path], None]
) -> None:
    (home / ".claude").mkdir()
    (home / ".claude.json").write_text(MINE)
    (home / "other.json").write_text(MINE)
    copy = home / ".claude/.claude.json"
    plant(copy)
    (home / ".claude/.claude.json.lock/x").mkdir(parents=True)
    with capture_logs() as logs:
        in_time(lambda: ClaudeCode({}, LocalHost()).keeps(context.env, context.private))
    assert (home / "other.json").read_text() == MINE
    assert copy.is_file() and not copy.is_symlink()
    assert json.loads(copy.read_text())["mine"] == 1
    assert [line["lock"] for line in logs if "lock" in line] == [f"{copy}.lock"]


def test_projects_in_an_unexpected_format_do_not_prevent_a_launch(context: AgentContext, home: Path) -> None:
    (home / ".claude").mkdir()
    (home / ".claude.json").write_text(json.dumps({"projects": {"/a": {}}}))
    (home / ".claude/.claude.json").write_text('{"projects": [1], "learnt": 1}')
    ClaudeCode({}, LocalHost()).keeps(context.env, context.private)
    assert json.loads((home / ".claude/.claude.json").read_text()) == {"projects": {"/a": {}}, "learnt": 1}


@pytest.mark.parametrize("plant", [_pipe, lambda path: path.symlink_to("../other.json")])
def test_claude_code_starts_whatever_its_moved_folder_holds(
    context: AgentContext, home: Path, plant: Callable[[Path], None]
) -> None:
    (home / ".cw").mkdir()
    (home / "other.json").write_text(MINE)
    plant(home / ".cw/.claude.json")
    moved = replace(context, env={**context.env, "CLAUDE_CONFIG_DIR": str(home / ".cw")})
    assert launched(ClaudeCode({}, LocalHost()).launch(moved)).conversation
    assert (home / "other.json").read_text() == MINE


@pytest.mark.parametrize("which", ["projects", "workspace", "sparse"])
def test_a_conversation_is_copied_to_no_place_outside_and_within_bounds(
    context: AgentContext, home: Path, which: str
) -> None:
    projects, outside = home / ".claude/projects", home / "outside"
    there = projects / "-elsewhere" / f"{CONVERSATION}.jsonl"
    there.parent.mkdir(parents=True)
    outside.mkdir()
    there.write_text("{}\n")
    here = projects / str(context.workspace).replace("/", "-").replace("_", "-").replace(".", "-")
    match which:
        case "projects":
            projects.rename(outside / "kept")
            projects.symlink_to(outside / "kept")
        case "workspace":
            here.symlink_to(outside)
        case "sparse":
            _sparse(there)
    with pytest.raises(Conflict, match="cannot be brought here"):
        launched(ClaudeCode({}, LocalHost()).launch(replace(context, resume=CONVERSATION)))
    assert not list(home.glob(f"**/{here.name}/*")) and not list(outside.glob("*.jsonl"))


# -- the others --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plant", [_pipe, _sparse, _deep, lambda path: path.write_text('{"models": [1, {"slug": 2}]}')])
@pytest.mark.parametrize("name", ["models_cache.json", "config.toml"])
def test_codex_starts_whatever_its_folder_holds(
    context: AgentContext, home: Path, plant: Callable[[Path], None], name: str
) -> None:
    (home / ".codex").mkdir()
    plant(home / ".codex" / name)
    (home / ".codex/state_1.sqlite").touch()
    assert launched(Codex({}, LocalHost()).launch(context)).argv


def test_settings_of_codex_may_be_the_users_symlink(context: AgentContext, home: Path) -> None:
    (home / ".codex").mkdir()
    (home / "dotfiles.toml").write_text('developer_instructions = "Mine."')
    (home / ".codex/config.toml").symlink_to("../dotfiles.toml")
    assert "Mine." in str(launched(Codex({}, LocalHost()).launch(context)).argv)


def test_a_rollout_of_a_terabyte_is_read_within_bounds(home: Path) -> None:
    rollout = home / f"sessions/2026/01/02/rollout-2026-01-02T03-04-05-{CONVERSATION}.jsonl"
    rollout.parent.mkdir(parents=True)
    _sparse(rollout)
    with rollout.open("ab") as file:
        file.write(b'\n{"type":"turn_context","payload":{"model":"gpt-5"}}\n{"turn_context"\n')
    assert in_time(lambda: rollouts.model_of(home, CONVERSATION)) == "gpt-5"
    assert in_time(lambda: rollouts.tokens_used(home, CONVERSATION)) == {}


@pytest.mark.parametrize(
    ("agent", "file"), [(Copilot, ".copilot/config.json"), (Gemini, ".gemini/settings.json")], ids=["copilot", "gemini"]
)
@pytest.mark.parametrize("plant", [_pipe, _sparse, lambda path: path.symlink_to("../other.json")])
def test_copilot_and_gemini_write_nothing_elsewhere(
    context: AgentContext, home: Path, agent: type[Copilot | Gemini], file: str, plant: Callable[[Path], None]
) -> None:
    (home / file).parent.mkdir()
    plant(home / file)
    assert launched(agent({}, LocalHost()).launch(context)).argv
    assert not (home / "other.json").exists()


def test_a_chat_of_a_terabyte_is_read_within_bounds(context: AgentContext, home: Path) -> None:
    chat = home / f".gemini/tmp/x/chats/session-1-{CONVERSATION[:8]}.jsonl"
    chat.parent.mkdir(parents=True)
    _sparse(chat)
    (chat.parent / f"session-2-{CONVERSATION[:8]}.jsonl").symlink_to("nowhere")
    launch = launched(Gemini({}, LocalHost()).launch(replace(context, resume=CONVERSATION)))
    assert "--session-id" in launch.argv


def test_trust_of_kimi_is_written_where_it_belongs(context: AgentContext, home: Path) -> None:
    folder, file = home / ".kimi-code/workspace-trust", folder_key(context.workspace)
    folder.mkdir(parents=True)
    (folder / file).symlink_to(home / "other.json")
    session = home / f".kimi-code/sessions/{file}/session_1/agents/main"
    session.mkdir(parents=True)
    (session / "wire.jsonl").symlink_to("nowhere")
    assert launched(KimiCode({}, LocalHost()).launch(context)).argv
    assert not (home / "other.json").exists()
    assert json.loads((folder / file).read_text())["root"] == str(context.workspace)
    (folder / file).unlink()
    folder.rmdir()
    (home / "outside").mkdir()
    folder.symlink_to(home / "outside")
    with capture_logs() as logs:
        assert launched(KimiCode({}, LocalHost()).launch(context)).argv
    assert list((home / "outside").iterdir()) == [] and len(logs) == 1


def test_cursor_starts_beside_a_chat_that_leads_nowhere(context: AgentContext, home: Path) -> None:
    key = str(context.workspace).strip("/").replace("/", "-").replace("_", "-")
    chats = home / ".cursor/projects" / key / "agent-transcripts"
    chats.mkdir(parents=True)
    (chats / "a.jsonl").symlink_to("nowhere")
    assert launched(Cursor({}, LocalHost()).launch(context)).plugin_data["before"] == "a"


ENDLESS = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id FROM n"
HEAVY = f"SELECT randomblob({4 * MAX_FILE_BYTES}) AS id"
WORDS = "SELECT 'many' AS id"


@pytest.mark.parametrize("rows", ["", ENDLESS, HEAVY, WORDS])
def test_goose_starts_whatever_its_store_holds(context: AgentContext, home: Path, rows: str) -> None:
    path = home / ".local/share/goose/sessions/sessions.db"
    path.parent.mkdir(parents=True)
    if rows:
        with closing(sqlite3.connect(path)) as store:
            store.execute(f"CREATE VIEW messages AS {rows}")
            store.commit()
    else:
        os.mkfifo(path)
    assert launched(Goose({}, LocalHost()).launch(context)).plugin_data["row"] == "0"


@pytest.mark.anyio
async def test_a_slow_store_of_goose_does_not_block_the_event_loop(
    context: AgentContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()

    def locked(_store: GooseStore, _query: str, *_values: object) -> list[tuple[Any, ...]]:
        assert free.wait(TIMEOUT)
        return []

    monkeypatch.setattr(GooseStore, "query", locked)
    launching = asyncio.create_task(Goose({}, LocalHost()).launch(context))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not launching.done()
    free.set()
    await launching
