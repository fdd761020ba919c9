"""Agents from a local plugin file: interactive ones whose records are read, and headless ones with one turn per message."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.commands import assert_refused

# Reads typed lines. Like a real agent it keeps a record (busy or idle) and a journal of its messages and answers.
PROGRAM = """\
import json, os, subprocess, sys, time
private = os.path.dirname(os.environ["AO_SPOOL"])
def record(state):
    with open(private + "/record.tmp", "w") as file: json.dump({"state": state}, file)
    os.replace(private + "/record.tmp", private + "/record.json")
def journal(**line):
    with open(private + "/journal.jsonl", "a") as file: file.write(json.dumps(line) + "\\n")
def turn(text):
    record("busy"); journal(kind="user", text=text)
    if "commit" in text:
        open("made.txt", "a").write("x")
        subprocess.run(["git", "add", "-A"]); subprocess.run(["git", "commit", "-qm", "made"])
    if "permission" in text:
        journal(kind="permission", command="rm -rf build")
        record("waiting")
        if sys.stdin.readline().strip() == "y": open("allowed.txt", "w").write("yes")
        record("busy")
    said = "Which database?" if "ask" in text else "Finished."
    journal(kind="said", text=said); record("idle")
if len(sys.argv) > 1: turn(sys.argv[1])
for line in sys.stdin: turn(line.rstrip("\\n"))
"""

PLUGIN = """\
import asyncio, json, re, sys
from agent_orchestrator.plugins.agents.shared.journals import Journal
from agent_orchestrator.protocols import Activity, AgentLaunch, InstalledAgent, ReportBatch, ScreenRules
from agent_orchestrator.protocols.reports import (
    ActivityReport, AckReport, PermissionReport, ProgressReport, MessageTakenReport, TurnReport, UsageReport,
)

STATES = {"busy": Activity.ACTIVE, "idle": Activity.IDLE}

class Own:
    name = "own"
    screen = ScreenRules(busy=re.compile("never"))
    interrupt_keys = ("C-c",)
    permission_keys = {"allow": ("y", "Enter"), "deny": ("n", "Enter")}
    def __init__(self, config, host): self.program = config["program"]
    async def detect(self): return InstalledAgent(self.program)
    async def launch(self, context):
        return AgentLaunch((sys.executable, self.program, *([context.task] if context.task else [])))
    async def listen(self, run):
        journal = Journal(run.private / "journal.jsonl", run)
        record = run.private / "record.json"
        run.changes.watch(record)
        more = True
        while more:
            async for line in journal.lines():
                text = line.data.get("text", "")
                if line.data["kind"] == "user":
                    yield journal.make_batch(line, MessageTakenReport(text), ActivityReport(Activity.ACTIVE))
                elif line.data["kind"] == "permission":
                    yield journal.make_batch(line, PermissionReport("Bash", line.data["command"], "it is in the way"))
                else:
                    yield journal.make_batch(line, TurnReport(text), UsageReport("m", 10, 5), ProgressReport(1, 2, "one"))
            more = await run.changes.next()
"""

HEADLESS = """\
    def turn(self, context, prompt, conversation):
        from agent_orchestrator.protocols import TurnCommand
        say = {"prompt": prompt, "conversation": conversation, "system": context.system}
        code = "import json,sys,time,os; d=json.load(sys.stdin); print(json.dumps({'id': 'c1'})); " \\
            "time.sleep(60) if 'sleep' in d['prompt'] else None; print(json.dumps({'said': d['prompt'].upper(), " \\
            "'went on': d['conversation']})); sys.exit(3 if 'fail' in d['prompt'] else 0)"
        return TurnCommand((sys.executable, "-c", code), stdin=json.dumps(say))
    def read_turn(self, line):
        from agent_orchestrator.protocols import TurnLine
        from agent_orchestrator.protocols.reports import ConversationReport
        data = json.loads(line)
        if "id" in data: return TurnLine(reports=(ConversationReport(data["id"]),))
        return TurnLine(f"{data['said']} ({data['went on']})", (UsageReport("m", 7, 3, usd=0.01), TurnReport(data["said"])))
"""


@pytest.fixture
def bare_box(tmp_path: Path, runtime: str) -> Iterator[Sandbox]:
    """Yield a home without a repository; each test creates its own."""
    with Sandbox(tmp_path, runtime) as sandbox:
        yield sandbox


def _with_agent(box: Sandbox, *, headless: bool = False) -> None:
    program, plugin = box.folder / "program.py", box.folder / "own.py"
    program.write_text(PROGRAM)
    plugin.write_text(PLUGIN + (HEADLESS if headless else ""))
    mode = "headless" if headless else "tui"
    box.repository(
        config=f"plugins: [{{path: {plugin}}}]\ndefaults: {{agent: mine, runtime: {box.runtime}}}\n"
        f"agents: {{mine: {{tool: own, mode: {mode}, options: {{program: {program}}}}}}}\n"
        "projects: {app: {path: .}}\n",
    )
    box.start()


def _message_state(box: Sandbox, session: str, message: str) -> str:
    return str(box.request("GET", f"/api/sessions/{session}/messages/{message}")["state"])


def _has_states(box: Sandbox, session: str, expected: list[tuple[str, str]]) -> bool:
    """Return whether these are the states of the session's messages."""
    return _message_states(box, session) == expected


def _message_states(box: Sandbox, session: str) -> list[tuple[str, str]]:
    messages = box.request("GET", f"/api/sessions/{session}/messages")["messages"]
    return [(message["content"], message["state"]) for message in messages]


def test_an_agents_state_is_read_from_its_records(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box)
    box.ao("new", "commit it", "--name", "l")
    box.wait_until(lambda: box.session("l")["pr"], "its pull request")
    done = box.wait_until(lambda: (now := box.session("l"))["pr"]["state"] == "open" and now, "ready: all is committed")
    assert done["evidence"]["source"] in ("transcript", "pr")
    assert done["usage"]["input"] == 10 and done["progress"]["done"] == 1 and done["progress"]["step"] == "one"
    sent = box.json("send", "l", "ask me")
    box.wait_until(lambda: _message_state(box, "l", sent["messageId"]) == "acknowledged", "the acknowledgement")
    asking = box.wait_until(lambda: (now := box.session("l"))["status"] == "needs_input" and now, "its question")
    assert asking["waitingFor"] == "Which database?" and asking["evidence"]["source"] == "transcript"


def test_reports_are_recorded_once_despite_crashes_of_the_daemon(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box)
    box.ao("new", "hello", "--name", "l")
    box.wait_until(lambda: box.session("l")["activity"] == "idle", "the first turn")
    for number in range(3):
        box.ao("send", "l", "the same text")
        acknowledged = [("the same text", "acknowledged")] * (number + 1)
        box.wait_until(partial(_has_states, box, "l", acknowledged), f"{number}")
        box.stop(9)
        box.start()
    box.wait_until(lambda: box.session("l")["usage"]["input"] == 40, "four turns")
    types = [event["type"] for event in box.events("l")]
    assert types.count("agent-turn-ended") == 4 and types.count("agent-ack") == 3


def test_a_permission_is_shown_with_tool_and_command_and_answered(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box)
    box.ao("new", "needs permission", "--name", "p")
    box.wait_until(lambda: box.session("p")["status"] == "blocked", "the request")
    assert box.session("p")["waitingFor"] == "Bash: rm -rf build"
    box.ao("answer", "p", "--allow")
    allowed = Path(box.session("p")["workspacePath"]) / "allowed.txt"
    box.wait_until(allowed.exists, "what it was allowed to do")
    box.wait_until(lambda: box.session("p")["activity"] == "idle", "the end of its turn")


def test_a_permanent_permission_is_not_asked_again_until_it_is_withdrawn(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box)
    box.ao("new", "needs permission", "--name", "p")
    box.wait_until(lambda: box.session("p")["status"] == "blocked", "the request")
    permission = box.json("answer", "p")["questions"][0]["permission"]
    assert permission == {"tool": "Bash", "command": "rm -rf build", "reason": "it is in the way"}
    box.ao("answer", "p", "--always")
    box.wait_until(lambda: box.session("p")["activity"] == "idle", "the end of its turn")
    assert [(rule["tool"], rule["command"]) for rule in box.json("permissions")["permissions"]] == [
        ("Bash", "rm -rf build")
    ]
    box.ao("new", "needs permission", "--name", "q")
    box.wait_until(lambda: box.session("q")["activity"] == "idle", "the second session, without a person")
    answers = [event["data"] for event in box.events("q") if event["type"] == "permission-answered"]
    assert [(answer["decision"], answer["by"]) for answer in answers] == [("allow", "a person allowed it for good")]
    box.ao("permissions", "--withdraw", "1")
    box.ao("new", "needs permission", "--name", "r")
    box.wait_until(lambda: box.session("r")["status"] == "blocked", "the request, asked again")
    box.ao("answer", "r", "--deny", "use make clean")
    box.wait_until(
        lambda: _message_states(box, "r") == [("use make clean", "acknowledged")], "the message with the denial"
    )
    assert not (Path(box.session("r")["workspacePath"]) / "allowed.txt").exists()


def _is_idle_after(box: Sandbox, session: str, turns: int) -> bool:
    """Return whether this many turns of seven tokens each have ended and the agent is idle."""
    now = box.session(session)
    return bool(now["usage"]["input"] == 7 * turns and now["activity"] == "idle")


def test_each_message_to_a_headless_agent_is_a_turn(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box, headless=True)
    box.ao("new", "first task", "--name", "h")
    box.wait_until(lambda: box.session("h")["activity"] == "idle", "the first turn")
    assert box.session("h")["usage"] == {"input": 7, "output": 3, "usd": 0.01}
    sent = box.json("send", "h", "second", "--wait")
    assert sent["state"] == "acknowledged"
    box.wait_until(lambda: "SECOND (c1)" in box.ao("logs", "h").stdout, "the second turn, in the same conversation")
    box.wait_until(lambda: _is_idle_after(box, "h", 2), "the end of the second turn")
    sent = box.json("send", "h", "sleep long")
    box.wait_until(lambda: _message_state(box, "h", sent["messageId"]) == "acknowledged", "the long turn")
    box.wait_until(lambda: box.session("h")["activity"] == "active", "the long turn")
    box.ao("send", "h", "after it", "--interrupt")
    box.wait_until(lambda: "AFTER IT (c1)" in box.ao("logs", "h").stdout, "the message after the interrupted turn")
    box.wait_until(lambda: _is_idle_after(box, "h", 3), "the end of it")
    box.ao("send", "h", "fail now")
    failed = box.wait_until(lambda: (now := box.session("h"))["status"] == "needs_input" and now, "the failed turn")
    assert "exit 3" in failed["waitingFor"]


def test_a_headless_session_without_a_task_runs_its_first_message_once(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box, headless=True)
    box.ao("create", "c")
    sent = box.json("send", "c", "hello", "--wait")
    assert sent["state"] == "acknowledged"
    box.ao("send", "c", "and more", "--wait")
    box.wait_until(lambda: "AND MORE (c1)" in box.ao("logs", "c").stdout, "the second turn")
    assert box.ao("logs", "c").stdout.count("HELLO (") == 1


def test_a_restored_headless_session_continues_its_conversation(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box, headless=True)
    box.ao("new", "first task", "--name", "h")
    box.wait_until(lambda: box.session("h")["activity"] == "idle", "the first turn")
    box.ao("stop", "h")
    box.ao("restore", "h")
    box.wait_until(lambda: box.session("h")["activity"] == "idle", "the restored driver")
    box.ao("send", "h", "again", "--wait")
    box.wait_until(lambda: "AGAIN (c1)" in box.ao("logs", "h").stdout, "the same conversation")
    assert box.ao("logs", "h").stdout.count("FIRST TASK") == 1


def test_the_prompt_of_an_agent_can_be_shown(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box)
    config = box.repo / "agent-orchestrator.yaml"
    text = config.read_text().replace(
        "{app: {path: .}}", "{app: {path: ., agentRules: Be brief., ci: {command: make test}}}"
    )
    config.write_text(text)
    box.ao("new", "hello there", "--name", "t")
    prompt = box.json("status", "t", "--prompt")
    assert "feature/t" in prompt["system"] and "`make test`" in prompt["system"] and "Be brief." in prompt["system"]
    assert prompt["prompt"] == "hello there\n\nBe brief."
    assert "hello there" in box.ao("status", "t", "--prompt").stdout
    assert_refused(box.ao("status", "--prompt", check=False), 2, "name the session")


def test_a_conversation_started_by_hand_can_be_resumed(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box, headless=True)
    box.ao("new", "go on", "--name", "h", "--resume-id", "by-hand")
    box.wait_until(lambda: "GO ON (by-hand)" in box.ao("logs", "h").stdout, "the first turn, in that conversation")


def test_a_session_can_continue_an_existing_pull_request(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box)
    box.ao("new", "commit it", "--name", "l")
    number = box.wait_until(lambda: (box.session("l")["pr"] or {}).get("number"), "its pull request")
    assert_refused(box.ao("new", "--pr", str(number), check=False), 1, "ao stop app-l")
    box.ao("stop", "l")
    box.ao("new", "--pr", f"#{number}", "--name", "again")
    again = box.session("again")
    assert again["branch"] == "feature/l" and again["title"] == "commit it"
    assert_refused(box.ao("new", "--pr", "999", check=False), 3, "no pull request #999")


@pytest.mark.parametrize("runtime", ["process"])
def test_full_permissions_need_sandbox_none_to_take_effect(bare_box: Sandbox) -> None:
    box = bare_box
    _with_agent(box)
    config = box.repo / "agent-orchestrator.yaml"
    full = config.read_text().replace("{app: {path: .}}", "{app: {path: ., agentConfig: {permissions: full}}}")
    config.write_text(full)
    box.ao("new", "needs permission", "--name", "a")
    box.wait_until(lambda: box.session("a")["status"] == "blocked", "the request: full does not count")
    assert any("sandbox: none" in note for note in box.session("a")["notes"])
    config.write_text(full.replace("path: .,", "path: ., sandbox: none,"))
    box.ao("new", "needs permission", "--name", "b")
    box.wait_until(lambda: box.session("b")["activity"] == "idle", "everything allowed")
    assert (Path(box.session("b")["workspacePath"]) / "allowed.txt").exists()
