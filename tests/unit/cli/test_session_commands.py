"""Commands that show a session or attach to it, with a scripted daemon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.program import run_ao
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon, session

EVENT = {
    "seq": 1,
    "type": "agent.asked",
    "session": "app-a",
    "project": "app",
    "source": "spool",
    "time": "2026-01-01T00:00:00Z",
    "data": {"question": "x\ny"},
}


def test_logs_are_shown_and_followed(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", r"/api/sessions/s/log\?tail=2", DaemonReply(chunks=[b"a\x1b]0;title\x07b\nc", b"d\n"]))
    assert run("logs", "s", "-n", "2").out == "a]0;titleb\ncd\n"
    daemon.route("GET", r"/api/sessions/s/log\?follow=1&raw=1", DaemonReply(chunks=[b"a\x1b[31m\xff"]))
    assert run_ao("logs", "s", "-f", "--raw").stdout == b"a\x1b[31m\xff"


def test_a_diff_is_shown_with_uncommitted_files(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route(
        "GET",
        "/api/sessions/s/diff",
        {"diff": "+a\n", "stat": " a | 1 +\n", "base": "b", "head": "h", "files": ["a"], "uncommitted": ["x"]},
    )
    assert run("diff", "s") == (0, "+a\n", "ao: not committed yet: x\n")
    assert run("diff", "s", "--stat").out == " a | 1 +\n"
    assert json.loads(run("diff", "s", "--json").out)["files"] == ["a"]


def test_an_exported_log_is_readable_by_its_owner_alone(daemon: ScriptedDaemon, run: Run, tmp_path: Path) -> None:
    daemon.route("GET", "/api/audit.*", {"entries": [{"seq": 1, "digest": "d"}]})
    existing, linked, link = tmp_path / "there", tmp_path / "mine", tmp_path / "link"
    existing.write_text("before")
    existing.chmod(0o666)
    linked.write_text("mine")
    link.symlink_to(linked)
    with existing.open() as opened_before:
        for file in (existing, link):
            assert run("audit", "--export", str(file)).code == 0
            assert (file.is_symlink(), file.stat().st_mode & 0o777) == (False, 0o600)
            assert json.loads(file.read_text())["seq"] == 1
        assert (opened_before.read(), linked.read_text()) == ("before", "mine")
    assert sorted(item.name for item in tmp_path.iterdir() if item.name.startswith(".ao-")) == []


def test_hidden_characters_of_a_change_are_shown(
    daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = '+if level != "user\u202e \u2066// only admins\u2069 \u2066":\u200b\x1b[2K\r\n+é 👩\u200d💻\n'
    daemon.route("GET", "/api/sessions/s/diff", {"diff": text, "stat": "", "base": "b", "head": "h", "files": ["a"]})
    assert run("diff", "s").out == text, "a program gets it as it is"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GIT_PAGER", "cat")
    first, second = run("diff", "s").out.splitlines()
    assert first == '+if level != "user⟦U+202E⟧ ⟦U+2066⟧// only admins⟦U+2069⟧ ⟦U+2066⟧":⟦U+200B⟧⟦U+001B⟧[2K'
    assert second == "+é 👩\u200d💻"


def test_events_are_listed_and_filtered(daemon: ScriptedDaemon, run: Run) -> None:
    later = EVENT | {"seq": 2}
    daemon.route("GET", r"/api/events\?limit=1000", {"events": [EVENT, later]})
    lines = run("events", "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [EVENT, later]
    assert run("events", "-n", "1").out.split()[:4] == ["2", "2026-01-01", "00:00:00", "agent.asked"]
    daemon.route("GET", "/api/sessions/a", session("a"))
    daemon.route("GET", r"/api/events\?project=app&session=app-a&after=1&limit=1000", {"events": []})
    assert run("events", "a", "-p", "app", "--after", "1").code == 0


def test_following_events_survives_a_broken_stream(daemon: ScriptedDaemon) -> None:
    def sse(*numbers: int) -> bytes:
        return b"".join(f"id: {seq}\ndata: {json.dumps(EVENT | {'seq': seq})}\n\n".encode() for seq in numbers)

    daemon.route("GET", r"/api/events\?limit=1000", {"events": [EVENT]})
    daemon.route(
        "GET",
        "/api/events",
        [
            DaemonReply(chunks=[sse(2)]),
            DaemonReply(sse(3) + b" " * 200, drop="within"),
            DaemonReply(chunks=[sse(3, 4)]),
        ],
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "agent_orchestrator", "events", "-f", "--json"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout:
        assert [json.loads(process.stdout.readline())["seq"] for _ in range(4)] == [1, 2, 3, 4]
        process.send_signal(2)
        process.wait(60)
    ids = [each.headers["last-event-id"] for each in daemon.requests_for("GET", "/api/events")[:3]]
    assert ids[:2] == ["1", "2"]


def test_a_recorded_log_can_be_replayed(daemon: ScriptedDaemon, run: Run, tmp_path: Path) -> None:
    step = {
        "seq": 1,
        "type": "agent.asked",
        "session": "app-a",
        "status": "needs_input",
        "intents": [{"kind": "notify", "due": None, "priority": "urgent"}],
    }
    daemon.route("POST", "/api/events/replay", {"steps": [step]})
    log = tmp_path / "log"
    log.write_text(json.dumps(EVENT) + "\n\n")
    ran = run("events", "--replay", str(log), "-p", "app")
    assert "needs_input" in ran.out and "would notify priority=urgent" in ran.out
    assert daemon.requests[-1].json() == {"events": [EVENT], "project": "app"}
    log.write_text(json.dumps(EVENT) + "\nnot json\n")
    ran = run("events", "--replay", str(log))
    assert ran.code == 2 and "line 2 is not an event" in ran.err


def test_why_prints_the_lines_of_the_daemon(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/sessions/s/why", {"lines": ["working", "  because \x1b[1mhook"], "facts": {}})
    assert run("why", "s").out == "working\n  because [1mhook\n"
    assert json.loads(run("why", "s", "--json").out)["facts"] == {}


def test_sh_runs_in_the_workspace_and_returns_the_exit_code(daemon: ScriptedDaemon, tmp_path: Path) -> None:
    daemon.route("GET", "/api/sessions/s/environment", {"cwd": str(tmp_path), "env": {"AO_PORT_0": "4000"}})
    ran = run_ao("sh", "s", "--", "sh", "-c", 'pwd; echo "$AO_PORT_0 $1"; exit 7', "-", "-x")
    assert (ran.returncode, ran.stdout.decode()) == (7, f"{tmp_path}\n4000 -x\n")
    assert run_ao("sh", "s", "no-such-program").returncode == 127
    assert run_ao("sh", "s", AO_SHELL="/bin/pwd").stdout.decode() == f"{tmp_path}\n"
    daemon.route("GET", "/api/sessions/s/environment", {"cwd": str(tmp_path / "gone"), "env": {}})
    assert run_ao("sh", "s", "true").returncode == 3


def test_path_prints_the_workspace(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/sessions/a", session("a", workspacePath="/w/a b"))
    daemon.route("GET", "/api/sessions/b", session("b", workspacePath=None))
    assert run("path", "a").out == "/w/a b\n"
    assert run("path", "b").code == 3


def test_attach_replaces_the_process(daemon: ScriptedDaemon) -> None:
    import pty

    argv = ["sh", "-c", 'echo "attached $X ${TMUX:-outside}"']
    daemon.route("GET", "/api/sessions/s/attach", {"argv": argv, "env": {"X": "1"}, "detach": "Ctrl-B D"})
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable, [sys.executable, "-m", "agent_orchestrator", "attach", "s"], os.environ | {"TMUX": "/x,1,2"}
        )
    output = b""
    try:
        while piece := os.read(terminal, 4096):
            output += piece
    except OSError:  # the other end of the terminal was closed
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"Ctrl-B Ctrl-B D detaches" in output and b"attached 1 outside" in output
