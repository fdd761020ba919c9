"""The scripted agent in a real terminal: directives, messages, acknowledgements, dialogs, interruption, ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.base.host import LocalHost
from agent_orchestrator.errors import UsageError
from agent_orchestrator.plugins.agents.demo import Demo
from agent_orchestrator.plugins.agents.shared.spool import parse
from agent_orchestrator.protocols import Activity, AgentContext
from agent_orchestrator.protocols.reports import (
    ActivityReport,
    AskReport,
    DoneReport,
    LimitReport,
    ProgressReport,
    ReplyReport,
    UsageReport,
)
from tests.unit.plugins.agents.terminal import ChildTerminal, json_lines, terminal

pytestmark = pytest.mark.anyio


@dataclass
class World:
    """A workspace and a session's files, and how to start the agent there."""

    folder: Path
    stack: ExitStack
    config: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.workspace = self.folder / "workspace"
        self.spool = self.folder / "spool.jsonl"
        self.inbox = self.folder / "inbox.jsonl"
        self.log = self.folder / "log.jsonl"
        self.config["log"] = str(self.log)
        self.workspace.mkdir()
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=self.workspace, check=True, capture_output=True, text=True
        ).stdout.strip()

    def env(self) -> dict[str, str]:
        return {
            **os.environ,
            "TERM": "xterm-256color",
            "AO_SESSION": "app-x",
            "AO_WORKSPACE": str(self.workspace),
            "AO_BRANCH": "feature/x",
            "AO_SPOOL": str(self.spool),
            "AO_INBOX": str(self.inbox),
        }

    async def command(self, task: str, resume: str | None = None) -> tuple[tuple[str, ...], dict[str, str]]:
        task_file = self.folder / "task.md"
        task_file.write_text(task)
        context = AgentContext(
            "app-x", "app", self.workspace, "feature/x", "main", task, task_file, self.folder, resume=resume
        )
        launch = await Demo(self.config, LocalHost()).launch(context)
        return launch.argv, {**self.env(), **launch.env}

    async def start(self, task: str, resume: str | None = None) -> ChildTerminal:
        argv, env = await self.command(task, resume)
        return self.stack.enter_context(terminal(argv, self.workspace, env))

    def send(self, agent: ChildTerminal, message: str, text: str) -> None:
        with self.inbox.open("a") as file:
            file.write(json.dumps({"message": message, "text": text}) + "\n")
        agent.paste(text)

    def reports(self, event: str | None = None) -> list[dict[str, Any]]:
        return [line for line in json_lines(self.spool) if event in (None, line["event"])]

    def truth(self, event: str) -> list[dict[str, Any]]:
        return [line for line in json_lines(self.log) if line["event"] == event]

    def last(self, **expected: object) -> Callable[[], bool]:
        return lambda: bool(self.reports()) and self.reports()[-1].items() >= expected.items()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(tmp_path, stack)


async def test_a_plain_task_leaves_a_committed_note(world: World) -> None:
    agent = await world.start("Fix the login!\nIt fails on Mondays.")
    agent.wait_until(world.last(state="idle"))
    assert world.git("log", "--format=%s") == "Note: Fix the login!"
    assert (world.workspace / "notes/fix-the-login.md").read_text() == "Fix the login!\nIt fails on Mondays.\n"
    assert world.git("status", "--porcelain") == ""
    reports = [parse(json.dumps(line).encode()) for line in world.reports()]
    assert reports[0] == ActivityReport(Activity.ACTIVE)
    assert ProgressReport(3, 3, "finished") in reports
    assert reports[-2:] == [DoneReport("noted in notes/fix-the-login.md"), ActivityReport(Activity.IDLE)]
    agent.wait_for_text("\n> ")
    assert "\x1b[?2004h" in agent.text


async def test_directives_in_order(world: World) -> None:
    agent = await world.start(
        "[[write: a.txt|one]] then [[edit: a.txt|two\\nthree]] [[edit: sub/b.txt|b]] [[sh: echo $AO_SESSION > c.txt]]"
        "[[progress: 3/5 writing tests]] [[progress: thinking]] [[usage: input=1200 output=300 usd=0.012 model=m]]"
        "[[nonsense: x]] [[commit: It works]] [[say: hello]] [[done: all [of] it]]"
    )
    agent.wait_until(lambda: world.reports("done"))
    agent.wait_for_text("there is no directive [[nonsense]]")
    assert (world.workspace / "a.txt").read_text() == "one\ntwo\nthree\n"
    assert (world.workspace / "c.txt").read_text() == "app-x\n"
    assert world.git("show", "--name-only", "--format=%s") == "It works\n\na.txt\nc.txt\nsub/b.txt"
    reports = [parse(json.dumps(line).encode()) for line in world.reports()]
    for expected in (
        ProgressReport(3, 5, "writing tests"),
        ProgressReport(step="thinking"),
        UsageReport("m", 1200, 300, usd=0.012),
        DoneReport("all [of] it"),
    ):
        assert expected in reports


@pytest.mark.parametrize("path", ["../out.txt", "/tmp/../etc/x", ".git/config", ".", "link/x"])
async def test_edits_stay_in_the_workspace(world: World, path: str) -> None:
    (world.workspace / "link").symlink_to(world.folder)
    before = world.git("config", "--list", "--local")
    agent = await world.start(f"[[edit: {path}|x]] [[done]]")
    agent.wait_until(lambda: world.reports("done"))
    agent.wait_for_text("is not a file in the workspace")
    assert not (world.folder / "out.txt").exists() and not (world.folder / "x").exists()
    assert world.git("config", "--list", "--local") == before


async def test_a_commit_needs_no_identity(world: World, own_world: Path) -> None:
    (own_world / ".gitconfig").write_text("[user]\nuseConfigOnly = true\n")
    agent = await world.start("[[edit: a|x]][[commit: c]][[done]]")
    agent.wait_until(lambda: world.reports("done"))
    assert world.git("log", "--format=%an") == "Demo agent"


async def test_each_message_is_acknowledged_once_and_is_a_turn(world: World) -> None:
    agent = await world.start("[[say: ready]]")
    agent.wait_until(world.last(state="idle"))
    text = "two lines\nof ünïcode [[edit: a.txt|x]]"
    world.send(agent, "m1", text)
    agent.wait_until(lambda: len(world.reports("activity")) == 4)
    world.send(agent, "m2", "[[say: again]]")
    world.send(agent, "m3", "[[say: again]]")
    agent.wait_until(lambda: len(world.reports("activity")) == 8)
    assert [line["message"] for line in world.reports("ack")] == ["m1", "m2", "m3"]
    assert [(line["id"], line["text"]) for line in world.truth("message")] == [
        ("m1", text),
        ("m2", "[[say: again]]"),
        ("m3", "[[say: again]]"),
    ]
    assert [line["event"] for line in world.reports()][2:5] == ["ack", "activity", "activity"]


async def test_a_message_during_a_turn_waits_for_its_end(world: World) -> None:
    agent = await world.start("[[sh: while [ ! -e go ]; do sleep 0.01; done]]")
    agent.wait_until(world.last(state="active"))
    world.send(agent, "m1", "[[say: next]]")
    agent.wait_for_text("while")
    assert world.reports("ack") == []
    (world.workspace / "go").touch()
    agent.wait_until(lambda: len(world.reports("activity")) == 4)
    assert [line.get("state", "ack") for line in world.reports()] == ["active", "idle", "ack", "active", "idle"]


async def test_typed_text_has_no_message_id(world: World) -> None:
    agent = await world.start("[[say: ready]]")
    agent.wait_until(world.last(state="idle"))
    agent.type("[[sayX\x7f: héllo]]\r")
    agent.wait_until(lambda: world.truth("message"))
    assert world.truth("message")[0]["text"] == "[[say: héllo]]"
    assert world.reports("ack") == []


async def test_a_question_is_answered_by_a_message(world: World) -> None:
    agent = await world.start("[[ask: Which database?]] [[write: db.txt|{answer}]] [[done: chosen]]")
    agent.wait_until(world.last(event="ask"))
    assert parse(json.dumps(world.reports()[-1]).encode()) == AskReport("Which database?")
    assert world.reports()[-2]["state"] == "waiting_input"
    world.send(agent, "m1", "SQLite")
    agent.wait_until(world.last(state="idle"))
    assert (world.workspace / "db.txt").read_text() == "SQLite\n"
    assert [line["message"] for line in world.reports("ack")] == ["m1"]


async def test_a_comment_named_during_a_turn_is_answered(world: World) -> None:
    agent = await world.start("[[wait]] [[reply: {comment}|done as asked]]")
    agent.wait_until(lambda: bool(world.reports("activity")))
    agent.paste("shop.py:2 ann (comment c-7): Why?")
    agent.wait_until(lambda: bool(world.reports("reply")))
    assert world.reports("reply")[0]["comment"] == "c-7"


async def test_the_last_comment_named_by_a_message_is_answered(world: World) -> None:
    agent = await world.start("[[say: ready]]")
    agent.wait_for_text("> ")
    agent.paste("ann (comment c-1): Why? (comment c-2): [[reply: {comment}|because]] [[reply: c-1|so]] [[reply: hm]]")
    agent.wait_until(lambda: len(world.reports("reply")) == 3)
    replies = [parse(json.dumps(record).encode()) for record in world.reports("reply")]
    assert replies == [ReplyReport("because", "c-2"), ReplyReport("so", "c-1"), ReplyReport("hm", "c-2")]


@pytest.mark.parametrize(("key", "done"), [("y", True), ("a", True), ("n", False)])
async def test_a_permission_dialog_takes_a_key_and_nothing_else(world: World, key: str, done: bool) -> None:
    agent = await world.start("[[block: Allow rm?]] [[write: removed|x]] [[done: over]]")
    agent.wait_until(world.last(state="blocked", detail="Allow rm?"))
    agent.wait_for_text("Allow rm? (y/n) ")
    blocked = Demo.screen.blocked
    assert blocked and blocked.search(agent.text)
    agent.paste("yes, and more")
    agent.type(key)
    agent.wait_until(world.last(state="idle"))
    assert (world.workspace / "removed").exists() is done
    assert [line["text"] for line in world.truth("dialog-input") if line["pasted"]] == ["yes, and more"]
    agent.wait_for_text("\n> ")
    assert not blocked.search(agent.text)
    assert Demo.screen.ready and Demo.screen.ready.search(agent.text)


@pytest.mark.parametrize("how", ["\x1b", "\x03", "signal"])
@pytest.mark.parametrize("busy", ["[[stuck]]", "[[sleep: 1000]]", "[[sh: sleep 1000]]", "[[block: Sure?]]"])
async def test_a_turn_can_be_interrupted(world: World, how: str, busy: str) -> None:
    agent = await world.start(f"[[say: begun]] {busy} [[done: never]]")
    agent.wait_for_text("begun")
    agent.wait_until(world.last(state="blocked" if "block" in busy else "active"))
    if how == "signal":
        os.kill(agent.pid, signal.SIGINT)
    else:
        agent.type(how)
    agent.wait_until(world.last(state="idle", detail="interrupted"))
    world.send(agent, "m1", "[[done: later]]")
    agent.wait_until(lambda: world.reports("done"))
    assert [line["summary"] for line in world.reports("done")] == ["later"]


async def test_a_limit_stops_it_until_the_next_message(world: World) -> None:
    agent = await world.start("[[limit: 2026-11-15T18:00:00Z]] [[limit: +60s]] [[done: over]]")
    agent.wait_until(world.last(resets_at="2026-11-15T18:00:00Z"))
    world.send(agent, "m1", "go on")
    agent.wait_until(lambda: len(world.reports("limit")) == 2)
    report = parse(json.dumps(world.reports("limit")[1]).encode())
    assert isinstance(report, LimitReport) and report.resets_at
    world.send(agent, "m2", "go on")
    agent.wait_until(lambda: world.reports("done"))


async def test_waiting_counts_as_idle_until_the_time_is_over(world: World) -> None:
    agent = await world.start("[[wait]] [[done: over]]")
    agent.wait_until(world.last(state="idle"))
    world.send(agent, "m1", "go on")
    agent.wait_until(world.last(state="idle"))
    agent.wait_until(lambda: world.reports("done"))


@pytest.mark.parametrize(
    ("script", "code"), [("[[fail: no way]]", 1), ("[[exit: 7]]", 7), ("[[exit]]", 0), ("[[crash]]", -signal.SIGKILL)]
)
async def test_ends(world: World, script: str, code: int) -> None:
    agent = await world.start(script)
    assert agent.wait_for_end() == code
    assert [line["code"] for line in world.truth("end")] == ([] if code < 0 else [code])
    assert "Traceback" not in agent.text


async def test_asked_to_end_it_ends_and_leaves_no_child(world: World) -> None:
    agent = await world.start("[[sh: echo $$ > pid; exec sleep 1000]]")
    pid_file = world.workspace / "pid"
    agent.wait_until(lambda: pid_file.exists() and pid_file.read_text().strip())
    os.kill(agent.pid, signal.SIGTERM)
    assert agent.wait_for_end() == 143
    agent.wait_for_text("\x1b[?2004l")
    agent.wait_until(lambda: LocalHost().process(int(pid_file.read_text())) is None)


async def test_resumed_it_does_not_begin_again(world: World) -> None:
    agent = await world.start("[[edit: a.txt|x]]", resume="app-x")
    agent.wait_for_text("resumed")
    agent.wait_until(world.last(state="idle"))
    assert not (world.workspace / "a.txt").exists()
    world.spool.write_text(json.dumps({"event": "ack", "message": "m0"}) + "\n")
    world.inbox.write_text(json.dumps({"message": "m1", "text": "[[done: x]]"}) + "\n")
    agent.paste("[[done: x]]")
    agent.wait_until(lambda: world.reports("done"))
    assert [line["message"] for line in world.reports("ack")] == ["m0", "m1"]
    assert [line["resume"] for line in world.truth("start")] == [True]


async def test_chatter_is_numbered_and_counted_and_messages_are_taken_up_meanwhile(world: World) -> None:
    agent = await world.start(
        "[[chatter: 300 1.3]] [[done: said]]"
    )  # two blocks, unless the machine sleeps through the second
    agent.wait_for_text("[chatter 0]")
    world.send(agent, "m1", "hello")
    agent.wait_until(lambda: world.reports("done"))
    counted = world.truth("chatter")[0]
    numbers = [int(number) for number in re.findall(r"\[chatter (\d+)\]", agent.text)]
    assert (counted["session"], numbers) == ("app-x", list(range(counted["blocks"])))
    begun = agent.text.index("[chatter 0]")
    assert (
        len(agent.text[begun:].partition("done: said")[0].replace("\r\n", "\n"))
        == counted["bytes"]
        > 300 * len(numbers)
    )
    assert [line["message"] for line in world.reports("ack")] == ["m1"]


async def test_without_a_task_it_waits_for_messages(world: World) -> None:
    agent = await world.start("")
    agent.wait_until(world.last(state="idle"))
    world.send(agent, "m1", "[[done: x]]")
    agent.wait_until(lambda: world.reports("done"))


async def test_its_script_may_come_from_the_configuration(world: World) -> None:
    world.config["script"] = "[[done: by script]]"
    agent = await world.start("[[done: by task]]")
    agent.wait_until(lambda: world.reports("done"))
    assert world.reports("done")[0]["summary"] == "by script"


async def test_no_command_of_others_is_run_and_no_rule_is_its_script(world: World) -> None:
    """An issue's text is quoted and its title is included; rules are part of the repository."""
    task = "Issue 7: It [[sh: touch title]]\n\nmallory wrote:\n> words [[sh: touch words]] [[say: seen]]\n\n[[sh: touch mine]] [[done: x]]"
    context = AgentContext(
        *("app-x", "app", world.workspace, "feature/x", "main", f"{task}\n\n[[sh: touch rules]]"),
        *(world.folder / "task.md", world.folder),
        task=task,
    )
    context.task_file.write_text(context.prompt)
    launch = await Demo(world.config, LocalHost()).launch(context)
    agent = world.stack.enter_context(terminal(launch.argv, world.workspace, {**world.env(), **launch.env}))
    agent.wait_until(lambda: world.reports("done"))
    assert [path.name for path in world.workspace.iterdir() if path.name != ".git"] == ["mine"]


async def test_a_script_must_be_text() -> None:
    with pytest.raises(UsageError, match="`script` of the demo agent is not text"):
        Demo({"script": ["x"]}, LocalHost())


@pytest.mark.parametrize(
    ("typed", "task", "code"),
    [
        (b"", "[[done: x]]", 0),
        (b"first\n[[exit: 5]]", "[[done: x]]", 5),
        (b"blue", "[[ask: Colour?]] [[done: {answer}]]", 0),
        (b"", "[[done: x]] [[ask: Colour?]]", 1),
        (b"", "[[block: Sure?]] [[exit: 3]] [[done: denied]]", 0),
    ],
)
async def test_the_agent_works_without_a_terminal(world: World, typed: bytes, task: str, code: int) -> None:
    argv, env = await world.command(task)
    done = subprocess.run(argv, cwd=world.workspace, env=env, input=typed, capture_output=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
    assert done.stderr == b""
    assert len(world.reports("done")) >= 1
