"""Any CLI as an agent, configured in YAML only: how it gets its task, how its state is detected, how it ends and resumes."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from agent_orchestrator.sessions.lifecycle.delivery import FIRST_REPORT_TIMEOUT
from agent_orchestrator.testing.sandbox import RUNTIMES, Sandbox, have_tmux
from tests.acceptance.commands import send_and_wait

CONFIG = """\
defaults: {{runtime: {runtime}}}
projects:
  app:
    path: .
    sessionPrefix: p
    ports: {{base: 4000, count: 3}}
    env: {{PROJECT_VALUE: "from project"}}
agents:
  my-cli:
    tool: command
    command: [my-agent-cli, --task, "{{{{prompt}}}}", --worktree, "{{{{workspacePath}}}}", --branch, "{{{{branch}}}}"]
    prompt: argument
    resume: [my-agent-cli, --continue]
    env: {{MY_KEY: "${{MY_KEY}}"}}
  by-file: {{tool: command, command: [by-file], prompt: file}}
  by-stdin: {{tool: command, command: [by-stdin], prompt: stdin}}
  by-paste: {{tool: command, command: [screened], prompt: paste, screen: {screen}}}
  seen: {{tool: command, command: [screened, "{{{{prompt}}}}"], prompt: argument, screen: {screen}}}
  doorman: {{tool: command, command: [doorman, "{{{{prompt}}}}"], prompt: argument, screen: {{blocked: 'Allow.'}}}}
  silent: {{tool: command, command: [silent, "{{{{prompt}}}}"], prompt: argument, screen: {{blocked: 'Allow.'}}}}
  one-shot: {{tool: command, command: [one-shot, "{{{{prompt}}}}"]}}
  spooler: {{tool: command, command: [spooler], prompt: file}}
  missing: {{tool: command, command: [no-such-program, "{{{{prompt}}}}"]}}
"""

SCREEN = r"{ready: '^> $', busy: 'esc to interrupt', blocked: 'Allow\?'}"

SCRIPTS = {
    # Records how it was called, then ends as its task says.
    "my-agent-cli": r"""
i=0; for a in "$@"; do printf '%s\n' "$a" >> "$AO_WORKSPACE/../args.$AO_SESSION"; done
env > "$AO_WORKSPACE/../env.$AO_SESSION"; pwd > "$AO_WORKSPACE/../pwd.$AO_SESSION"
case "$*" in
  *commit*) echo work > work.txt; git add work.txt; git commit -q -m work;;
  *leave*) echo left > left.txt;;
  *fail*) echo "something is very wrong"; exit 7;;
esac
""",
    "by-file": r"""cat "$AO_TASK_FILE" > got.txt""",
    "by-stdin": r"""cat > got.txt""",
    "one-shot": r"""printf '%s\n' "$1" >> got.txt""",
    # Asks before it has reported anything.
    "doorman": r"""
sleep 0.3; printf 'Allow? '; IFS= read -r word; printf '%s\n' "$word" >> words.txt; printf '\033[2J\033[H'
while :; do printf '> '; IFS= read -r line || exit 0; printf '%s\n' "$line" >> lines.txt; done
""",
    # Reports nothing and reads its input.
    "silent": r"""while IFS= read -r line; do printf '%s\n' "$line" >> lines.txt; done""",
    # An interactive program: shows a prompt, works, asks.
    "screened": r"""
printf '%s\n' "$1" > first.txt
while :; do
  printf '> '
  IFS= read -r line || exit 0
  printf '%s\n' "$line" >> lines.txt
  case "$line" in
    *work*) printf '\033[2J\033[Hthinking, esc to interrupt\n'
      while [ ! -e ../go.$AO_SESSION ]; do sleep 0.05; done; printf '\033[2J\033[H';;
    *danger*) printf '\033[2J\033[HAllow? '; IFS= read -r word; printf '%s\n' "$word" >> words.txt; printf '\033[2J\033[H';;
  esac
done
""",
    # Reports by its spool, and acknowledges what comes into its inbox.
    "spooler": r"""
say() { printf '%s\n' "$1" >> "$AO_SPOOL"; }
say '{"event": "progress", "done": 3, "total": 5, "step": "writing tests"}'
say '{"event": "usage", "model": "m", "input": 1200, "output": 300, "usd": 0.012}'
say '{"event": "activity", "state": "idle"}'
seen=0
while :; do
  total=$(wc -l < "$AO_INBOX")
  while [ "$seen" -lt "$total" ]; do
    seen=$((seen + 1))
    id=$(sed -n "${seen}p" "$AO_INBOX" | sed 's/^{"message": "\([^"]*\)".*/\1/')
    say "{\"event\": \"ack\", \"message\": \"$id\"}"
    case "$(sed -n "${seen}p" "$AO_INBOX")" in
      *block*) say '{"event": "activity", "state": "blocked", "detail": "Allow it?"}';;
      *ask*) say '{"event": "ask", "question": "Which database?"}';;
      *finish*) say '{"event": "done", "summary": "all done"}';;
      *garbage*) printf 'this is not JSON\n{"event": "progress", "done": 4, "total": 5}\n' >> "$AO_SPOOL";;
    esac
  done
  [ -e ../unblock.$AO_SESSION ] && { rm ../unblock.$AO_SESSION; say '{"event": "activity", "state": "idle"}'; }
  sleep 0.05
done
""",
}


@pytest.fixture(scope="module", params=RUNTIMES)
def cli(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Yield a project whose agents are shell scripts, on each runtime."""
    if request.param == "tmux" and not have_tmux():
        pytest.skip("tmux is not installed")
    folder = tmp_path_factory.mktemp("cli")
    programs = folder / "bin"
    programs.mkdir()
    for name, text in SCRIPTS.items():
        file = programs / name
        file.write_text(f"#!/bin/sh\n{text.lstrip()}")
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    env = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "MY_KEY": "key from outside"}
    with Sandbox(folder, request.param, env) as box:
        box.repository(config=CONFIG.format(runtime=request.param, screen=SCREEN))
        box.start()
        yield box


def _wait_for(box: Sandbox, session: str, **expected: Any) -> dict[str, Any]:
    def matching_session() -> dict[str, Any]:
        now = box.session(session)
        return now if all(now[key] == value for key, value in expected.items()) else {}

    try:
        return box.wait_until(matching_session, f"{session} to be {expected}")
    except TimeoutError as error:
        raise AssertionError(f"{session} is {box.session(session)}") from error


def _read_beside(session: dict[str, Any], name: str) -> str:
    return (Path(session["workspacePath"]).parent / name).read_text()


def _read_inside(session: dict[str, Any], name: str) -> str:
    return (Path(session["workspacePath"]) / name).read_text()


def test_the_command_gets_its_variables_and_environment(cli: Sandbox) -> None:
    task = "commit this: $(touch /tmp/never) \"quoted\" 'single' `x`\nand a second line"
    cli.ao("new", task, "--agent", "my-cli", "--name", "one", check=False)
    done = _wait_for(cli, "p-one", activity="exited", exitCode=0)
    assert (done["agent"], done["profile"]) == ("command", "my-cli")
    args = _read_beside(done, "args.p-one").splitlines()
    assert args == ["--task", *task.splitlines(), "--worktree", done["workspacePath"], "--branch", "feature/one"]
    env = dict(line.split("=", 1) for line in _read_beside(done, "env.p-one").splitlines() if "=" in line)
    private = cli.home.path / "sessions" / "p-one"
    assert env["AO_SESSION"] == "p-one"
    assert env["AO_PROJECT"] == "app"
    assert env["AO_WORKSPACE"] == done["workspacePath"] == _read_beside(done, "pwd.p-one").strip()
    assert (env["AO_BRANCH"], env["AO_BASE"]) == ("feature/one", "main")
    assert Path(env["AO_TASK_FILE"]).read_text() == task
    for name in ("AO_TASK_FILE", "AO_SPOOL", "AO_INBOX"):
        assert Path(env[name]).is_relative_to(private) and Path(env[name]).exists()
    assert env["AO_URL"] == json.loads(cli.home.daemon_info.read_text())["url"]
    ports = [int(env[f"AO_PORT_{number}"]) for number in range(3)]
    assert ports == list(range(ports[0], ports[0] + 3)) and env["PORT"] == str(ports[0])
    assert (env["MY_KEY"], env["PROJECT_VALUE"]) == ("key from outside", "from project")
    assert "AO_HOME" not in env or env["AO_HOME"] == str(cli.home.path)


def test_the_token_is_good_for_its_own_session_only(cli: Sandbox) -> None:
    cli.ao("new", "hello", "--agent", "spooler", "--name", "tok")
    cli.ao("new", "hello", "--agent", "spooler", "--name", "other")
    env = cli.request("GET", "/api/sessions/p-tok/environment")["env"]

    def ask(path: str, method: str = "GET", body: Any = None) -> int:
        data = None if body is None else json.dumps(body).encode()
        request = Request(env["AO_URL"] + path, data, method=method)
        request.add_header("Authorization", f"Bearer {env['AO_TOKEN']}")
        request.add_header("Content-Type", "application/json")
        try:
            with urlopen(request) as answer:
                return int(answer.status)
        except HTTPError as error:
            error.close()
            return error.code

    assert ask("/api/sessions/p-tok") == 200
    assert ask("/api/sessions/p-other") in (401, 403, 404)
    assert ask("/api/sessions/p-other/message", "POST", {"content": "hi"}) in (401, 403, 404)
    assert ask("/api/sessions/p-other", "DELETE") in (401, 403, 404)
    assert ask("/api/sessions", "POST", {"projectId": "app", "prompt": "x"}) in (401, 403)
    assert ask("/api/shutdown", "POST", {}) in (401, 403)
    assert ask("/api/tokens") in (401, 403)


def test_exit_code_zero_means_done(cli: Sandbox) -> None:
    cli.ao("new", "commit it", "--agent", "my-cli", "--name", "done", check=False)
    done = _wait_for(cli, "p-done", activity="exited", exitCode=0, status="review_pending")
    assert done["pr"]["state"] == "open"
    assert cli.git("show", "feature/done:work.txt") == "work"
    cli.ao("new", "leave it", "--agent", "my-cli", "--name", "left", check=False)
    without_commit = _wait_for(cli, "p-left", status="exited", exitCode=0)
    assert _read_inside(without_commit, "left.txt") == "left\n"
    assert cli.json("diff", "left")["uncommitted"] == ["left.txt"]
    assert "left.txt" in cli.ao("diff", "left").stdout


def test_any_other_exit_code_is_a_failure_shown_with_the_last_output(cli: Sandbox) -> None:
    cli.ao("new", "fail please", "--agent", "my-cli", "--name", "bad", check=False)
    bad = _wait_for(cli, "p-bad", status="failed", exitCode=7)
    assert bad["column"] == "Needs you"
    for command in ("status", "why", "logs"):
        output = cli.ao(command, "bad").stdout
        assert "something is very wrong" in output, (command, output)


def test_a_failed_start_is_reported_once_with_a_hint(cli: Sandbox) -> None:
    cli.ao("config", "set", "agents.absent.command", "[no-such-program]")
    created = cli.request("POST", "/api/sessions", {"prompt": "x", "name": "absent", "agent": "absent"})
    updates = []
    with cli.client() as ao, ao.stream("GET", f"/api/sessions/{created['id']}/wait?until=running") as stream:
        while (line := stream.read_line()) is not None:
            updates.append(json.loads(line))
    *states, last = updates
    assert last["session"]["status"] == "failed" and "'no-such-program'" in last["session"]["why"]
    assert "your login shell's PATH" in last["session"]["waitingFor"]
    assert not any("no-such-program" in str(state) for state in states)


def test_resume_runs_the_resume_command(cli: Sandbox) -> None:
    cli.ao("new", "leave this", "--agent", "my-cli", "--name", "again", check=False)
    done = _wait_for(cli, "p-again", activity="exited")
    cli.ao("stop", "again")
    cli.ao("restore", "again", check=False)
    cli.wait_until(lambda: "--continue" in _read_beside(done, "args.p-again").splitlines(), "the resume command")
    assert _read_inside(done, "left.txt") == "left\n"


@pytest.mark.parametrize("way", ["by-file", "by-stdin"])
def test_the_prompt_is_passed_by_file_or_standard_input(cli: Sandbox, way: str) -> None:
    text = "línea uno\n\ttabs and 'quotes' and $HOME\n" + "x" * 5000
    cli.ao("new", "-", "--agent", way, "--name", way, stdin=text, check=False)
    done = _wait_for(cli, f"p-{way}", activity="exited", exitCode=0)
    assert _read_inside(done, "got.txt") == text


def test_the_prompt_is_pasted_once_the_program_is_ready(cli: Sandbox) -> None:
    cli.ao("new", "type me", "--agent", "by-paste", "--name", "pasted")
    now = _wait_for(cli, "p-pasted", activity="idle")
    lines = Path(now["workspacePath"]) / "lines.txt"
    cli.wait_until(lambda: lines.exists() and lines.read_text(), "the prompt")
    assert _read_inside(now, "lines.txt").splitlines() == ["type me"]
    assert _read_inside(now, "first.txt") == "\n"


def test_ready_busy_and_blocked_are_detected_on_the_screen(cli: Sandbox) -> None:
    cli.ao("new", "first", "--agent", "seen", "--name", "scr")
    now = _wait_for(cli, "p-scr", activity="idle", status="idle")
    assert now["evidence"]["source"] == "screen"
    workspace = Path(now["workspacePath"])
    assert cli.json("send", "scr", "please work")["state"] in ("queued", "delivered")
    assert _wait_for(cli, "p-scr", activity="active")["status"] == "working"
    (workspace.parent / "go.p-scr").touch()
    _wait_for(cli, "p-scr", activity="idle")
    cli.ao("send", "scr", "danger")
    blocked = _wait_for(cli, "p-scr", status="blocked")
    assert blocked["column"] == "Needs you" and "Allow?" in blocked["waitingFor"]
    message_ids = [cli.json("send", "scr", text)["messageId"] for text in ("held one", "held two")]
    states = {
        message["messageId"]: message for message in cli.request("GET", "/api/sessions/p-scr/messages")["messages"]
    }
    cli.wait_until(
        lambda: cli.request("GET", f"/api/sessions/p-scr/messages/{message_ids[0]}")["state"] == "held",
        "the first to be held",
    )
    assert states[message_ids[1]]["state"] in ("queued", "held")
    assert not (workspace / "words.txt").exists()
    cli.ao("answer", "scr", "--allow")
    cli.wait_until(
        lambda: _read_inside(now, "lines.txt").splitlines()[-2:] == ["held one", "held two"], "the held messages"
    )
    assert _read_inside(now, "words.txt").splitlines() == ["y"]


def test_a_message_before_an_agents_first_report_does_not_answer_its_dialog(cli: Sandbox) -> None:
    cli.ao("new", "first", "--agent", "doorman", "--name", "door")
    cli.json("send", "door", "hello")
    now = _wait_for(cli, "p-door", status="blocked")
    assert not (Path(now["workspacePath"]) / "words.txt").exists()
    cli.ao("answer", "door", "--allow")
    lines = Path(now["workspacePath"]) / "lines.txt"
    cli.wait_until(lambda: lines.exists() and lines.read_text() == "hello\n", "the message")
    assert _read_inside(now, "words.txt").splitlines() == ["y"]


def test_a_message_to_a_silent_agent_is_delivered_only_after_a_timeout(cli: Sandbox) -> None:
    """The first thing it shows may be a dialog."""
    cli.request("POST", "/api/sessions", {"projectId": "app", "prompt": "first", "agent": "silent", "name": "still"})
    cli.request("POST", "/api/sessions/p-still/message", {"content": "hello"})
    workspace = cli.wait_until(lambda: cli.session("p-still").get("workspacePath"), "a workspace")
    lines = Path(str(workspace)) / "lines.txt"
    cli.wait_until(lambda: lines.exists() and lines.read_text() == "hello\n", "the message")
    events = [json.loads(line) for line in cli.ao("events", "p-still", "--json").stdout.splitlines()]
    at = {event["type"]: datetime.fromisoformat(event["time"]).timestamp() for event in events}
    assert at["message-delivered"] - at["agent-launched"] >= FIRST_REPORT_TIMEOUT


def test_a_message_to_a_one_shot_agent_runs_it_again(cli: Sandbox) -> None:
    cli.ao("new", "first", "--agent", "one-shot", "--name", "shot", check=False)
    done = _wait_for(cli, "p-shot", activity="exited", exitCode=0)
    texts = ["first"]
    for text in ("second", "third"):
        texts.append(text)
        assert cli.json("send", "shot", text, "--wait")["state"] == "delivered"
        cli.wait_until(lambda: _read_inside(done, "got.txt").splitlines() == texts, f"the run with {text}")
        _wait_for(cli, "p-shot", activity="exited", exitCode=0)  # a message to an agent that ends meanwhile fails


def test_reports_acknowledgements_and_questions_are_read_from_the_spool(cli: Sandbox) -> None:
    cli.ao("new", "hello", "--agent", "spooler", "--name", "sp")
    now = _wait_for(cli, "p-sp", activity="idle")
    assert now["progress"] == {"done": 3, "total": 5, "step": "writing tests", "testsPassed": None}
    assert now["usage"] == {"input": 1200, "output": 300, "usd": 0.012}
    assert now["evidence"]["source"] == "spool"
    assert "3/5 steps (60 %)" in cli.ao("status").stdout
    send_and_wait(cli, "sp", "hello there")
    inbox = [json.loads(line) for line in (cli.home.path / "sessions/p-sp/inbox.jsonl").read_text().splitlines()]
    assert inbox[-1]["text"] == "hello there"
    assert cli.json("send", "sp", "ask me", "--wait")["state"] == "acknowledged"
    session = _wait_for(cli, "p-sp", status="needs_input")
    assert session["waitingFor"] == "Which database?"
    cli.ao("send", "sp", "garbage", "--wait")
    _wait_for(cli, "p-sp", progress={"done": 4, "total": 5, "step": "writing tests", "testsPassed": None})


def test_a_message_waits_while_a_permission_dialog_is_open(cli: Sandbox) -> None:
    cli.ao("new", "hello", "--agent", "spooler", "--name", "hold")
    now = _wait_for(cli, "p-hold", activity="idle")
    send_and_wait(cli, "hold", "block now")
    _wait_for(cli, "p-hold", status="blocked", waitingFor="Allow it?")
    waiting = cli.json("send", "hold", "later")
    path = f"/api/sessions/p-hold/messages/{waiting['messageId']}"
    held_message = cli.wait_until(
        lambda: (message := cli.request("GET", path))["state"] == "held" and message, "it to be held"
    )
    assert held_message["reason"]
    (Path(now["workspacePath"]).parent / "unblock.p-hold").touch()
    cli.wait_until(lambda: cli.request("GET", path)["state"] == "acknowledged", "it to be delivered")


def test_a_missing_program_fails_the_session(cli: Sandbox) -> None:
    done = cli.ao("new", "x", "--agent", "missing", "--name", "gone", check=False)
    assert done.returncode == 1 and "no-such-program" in done.stderr, (done.stdout, done.stderr)
    failed = cli.session("p-gone")
    assert failed["status"] == "failed"


def test_a_message_reaches_a_program_that_is_resumed(cli: Sandbox) -> None:
    cli.ao("new", "leave this", "--agent", "my-cli", "--name", "cont", check=False)
    done = _wait_for(cli, "p-cont", activity="exited")
    cli.ao("send", "cont", "and now that")
    cli.wait_until(
        lambda: _read_beside(done, "args.p-cont").splitlines()[-2:] == ["--continue", "and now that"], "the second run"
    )
    inbox = (cli.home.path / "sessions/p-cont/inbox.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in inbox] == ["and now that"]
