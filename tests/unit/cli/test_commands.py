"""The commands that look at things and change settings, against a scripted daemon."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.cli import out
from tests.unit.cli.conftest import Run
from tests.unit.cli.scripted import Daemon, Reply, problem, session

EVENT = {
    "seq": 1,
    "type": "agent.asked",
    "session": "app-a",
    "project": "app",
    "source": "spool",
    "time": "2026-01-01T00:00:00Z",
    "data": {"question": "x\ny"},
}


def ao(*argv: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The real program in a process of its own."""
    command = [sys.executable, "-m", "agent_orchestrator", *argv]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=False
    )


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("category", "code"), [("failed", 1), ("usage", 2), ("not-found", 3), ("unreachable", 4)])
def test_a_problem_is_one_line_and_its_exit_code(daemon: Daemon, run: Run, category: str, code: int) -> None:
    daemon.route(
        "GET", "/api/sessions/x", problem(category, "no session\nx", "see `ao status`", status=404, exit_code=code)
    )
    ran = run("status", "x")
    assert (ran.code, ran.out, ran.err) == (code, "", "ao: no session x: see `ao status`\n")


@pytest.mark.parametrize("group", ["config", "issue", "notify", "secret", "skill", "token"])
def test_a_group_alone_says_what_there_is_below_it(daemon: Daemon, run: Run, group: str) -> None:
    ran = run(group)
    assert ran.code == 2 and ran.out == ""
    assert ran.err.startswith(f"Usage: ao {group} [OPTIONS] COMMAND") and "\nCommands:\n" in ran.err


def test_a_notice_goes_to_standard_error(daemon: Daemon, run: Run) -> None:
    daemon.route("GET", "/api/agents", Reply({"agents": []}, headers={"X-AO-Notice": "port%203000%20is%20taken"}))
    ran = run("agents", "--json")
    assert ran.err == "ao: port 3000 is taken\n" and json.loads(ran.out) == {"agents": []}


def test_a_defect_shows_no_traceback_unless_asked_for(daemon: Daemon) -> None:
    daemon.route("GET", "/api/projects", {"surprise": 1})
    ran = ao("projects")
    assert (
        ran.returncode == 1
        and ran.stderr.count(b"\n") == 1
        and b"KeyError" in ran.stderr
        and b"daemon.log" in ran.stderr
    )
    assert b"Traceback" in ao("projects", AO_DEBUG="1").stderr


def test_an_unreachable_daemon_is_exit_4(own_world: Path) -> None:
    (own_world / "file").write_text("")
    ran = ao("status", AO_HOME=str(own_world / "file" / "ao"))
    assert (
        ran.returncode == 4
        and ran.stderr.startswith(b"ao: the daemon could not be started")
        and ran.stderr.count(b"\n") == 1
    )


def test_a_closed_pipe_is_no_error(daemon: Daemon) -> None:
    daemon.route("GET", "/api/sessions/s/log", Reply(chunks=[b"line\n" * 1000] * 500))
    command = f"{sys.executable} -m agent_orchestrator logs s | head -n 1"
    ran = subprocess.run(command, shell=True, capture_output=True, timeout=30, check=False)
    assert (ran.stdout, ran.stderr) == (b"line\n", b"")


def test_version_and_help_are_known(run: Run) -> None:
    assert run("--version").out.startswith("ao 0.")
    shown = run("--help").out
    assert "status, list, ls" in shown and "spawn" in shown and "Everyday" in shown
    assert run("new", "-h").code == 0


def test_help_of_the_group_loads_no_command() -> None:
    program = (
        "import sys\nfrom agent_orchestrator.cli import main\nmain(['--help'])\nprint(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (
        "agent_orchestrator.cli.sessions.status" not in ran.stderr.split()
        and "agent_orchestrator.client.daemon_client" not in ran.stderr.split()
    )


# -- what a session did ------------------------------------------------------------------------------------------------


def test_logs(daemon: Daemon, run: Run) -> None:
    daemon.route("GET", r"/api/sessions/s/log\?tail=2", Reply(chunks=[b"a\x1b]0;title\x07b\nc", b"d\n"]))
    assert run("logs", "s", "-n", "2").out == "a]0;titleb\ncd\n"
    daemon.route("GET", r"/api/sessions/s/log\?follow=1&raw=1", Reply(chunks=[b"a\x1b[31m\xff"]))
    assert ao("logs", "s", "-f", "--raw").stdout == b"a\x1b[31m\xff"


def test_diff(daemon: Daemon, run: Run) -> None:
    daemon.route(
        "GET",
        "/api/sessions/s/diff",
        {"diff": "+a\n", "stat": " a | 1 +\n", "base": "b", "head": "h", "files": ["a"], "uncommitted": ["x"]},
    )
    assert run("diff", "s") == (0, "+a\n", "ao: not committed yet: x\n")
    assert run("diff", "s", "--stat").out == " a | 1 +\n"
    assert json.loads(run("diff", "s", "--json").out)["files"] == ["a"]


def test_an_exported_log_is_nobody_elses_to_read_whatever_had_its_name(
    daemon: Daemon, run: Run, tmp_path: Path
) -> None:
    daemon.route("GET", "/api/audit.*", {"entries": [{"seq": 1, "digest": "d"}]})
    there, mine, link = tmp_path / "there", tmp_path / "mine", tmp_path / "link"
    there.write_text("before")
    there.chmod(0o666)
    mine.write_text("mine")
    link.symlink_to(mine)
    with there.open() as opened_before:
        for file in (there, link):
            assert run("audit", "--export", str(file)).code == 0
            assert (file.is_symlink(), file.stat().st_mode & 0o777) == (False, 0o600)
            assert json.loads(file.read_text())["seq"] == 1
        assert (opened_before.read(), mine.read_text()) == ("before", "mine")
    assert sorted(one.name for one in tmp_path.iterdir() if one.name.startswith(".ao-")) == []


def test_a_change_hides_nothing_from_who_reads_it(daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '+if level != "user\u202e \u2066// only admins\u2069 \u2066":\u200b\x1b[2K\r\n+é 👩\u200d💻\n'
    daemon.route("GET", "/api/sessions/s/diff", {"diff": text, "stat": "", "base": "b", "head": "h", "files": ["a"]})
    assert run("diff", "s").out == text, "a program gets it as it is"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GIT_PAGER", "cat")
    first, second = run("diff", "s").out.splitlines()
    assert first == '+if level != "user⟦U+202E⟧ ⟦U+2066⟧// only admins⟦U+2069⟧ ⟦U+2066⟧":⟦U+200B⟧⟦U+001B⟧[2K'
    assert second == "+é 👩\u200d💻"


def test_events(daemon: Daemon, run: Run) -> None:
    later = EVENT | {"seq": 2}
    daemon.route("GET", r"/api/events\?limit=1000", {"events": [EVENT, later]})
    lines = run("events", "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [EVENT, later]
    assert run("events", "-n", "1").out.split()[:4] == ["2", "2026-01-01", "00:00:00", "agent.asked"]
    daemon.route("GET", "/api/sessions/a", session("a"))
    daemon.route("GET", r"/api/events\?project=app&session=app-a&after=1&limit=1000", {"events": []})
    assert run("events", "a", "-p", "app", "--after", "1").code == 0


def test_events_are_followed_across_a_broken_stream(daemon: Daemon) -> None:
    def sse(*numbers: int) -> bytes:
        return b"".join(f"id: {seq}\ndata: {json.dumps(EVENT | {'seq': seq})}\n\n".encode() for seq in numbers)

    daemon.route("GET", r"/api/events\?limit=1000", {"events": [EVENT]})
    daemon.route(
        "GET",
        "/api/events",
        [Reply(chunks=[sse(2)]), Reply(sse(3) + b" " * 200, drop="within"), Reply(chunks=[sse(3, 4)])],
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "agent_orchestrator", "events", "-f", "--json"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process.stdout:
        assert [json.loads(process.stdout.readline())["seq"] for _ in range(4)] == [1, 2, 3, 4]
        process.send_signal(2)
        process.wait(60)
    asked = [each.headers["last-event-id"] for each in daemon.asked("GET", "/api/events")[:3]]
    assert asked[:2] == ["1", "2"]


def test_a_recorded_log_is_replayed(daemon: Daemon, run: Run, tmp_path: Path) -> None:
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


def test_why(daemon: Daemon, run: Run) -> None:
    daemon.route("GET", "/api/sessions/s/why", {"lines": ["working", "  because \x1b[1mhook"], "facts": {}})
    assert run("why", "s").out == "working\n  because [1mhook\n"
    assert json.loads(run("why", "s", "--json").out)["facts"] == {}


# -- stepping into it --------------------------------------------------------------------------------------------------


def test_sh_runs_in_the_workspace_and_passes_the_exit_code_on(daemon: Daemon, tmp_path: Path) -> None:
    daemon.route("GET", "/api/sessions/s/environment", {"cwd": str(tmp_path), "env": {"AO_PORT_0": "4000"}})
    ran = ao("sh", "s", "--", "sh", "-c", 'pwd; echo "$AO_PORT_0 $1"; exit 7', "-", "-x")
    assert (ran.returncode, ran.stdout.decode()) == (7, f"{tmp_path}\n4000 -x\n")
    assert ao("sh", "s", "no-such-program").returncode == 127
    assert ao("sh", "s", AO_SHELL="/bin/pwd").stdout.decode() == f"{tmp_path}\n"
    daemon.route("GET", "/api/sessions/s/environment", {"cwd": str(tmp_path / "gone"), "env": {}})
    assert ao("sh", "s", "true").returncode == 3


def test_path(daemon: Daemon, run: Run) -> None:
    daemon.route("GET", "/api/sessions/a", session("a", workspacePath="/w/a b"))
    daemon.route("GET", "/api/sessions/b", session("b", workspacePath=None))
    assert run("path", "a").out == "/w/a b\n"
    assert run("path", "b").code == 3


def test_attach_becomes_the_terminal(daemon: Daemon) -> None:
    import pty

    argv = ["sh", "-c", 'echo "attached $X ${TMUX:-outside}"']
    daemon.route("GET", "/api/sessions/s/attach", {"argv": argv, "env": {"X": "1"}, "detach": "Ctrl-B D"})
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable, [sys.executable, "-m", "agent_orchestrator", "attach", "s"], os.environ | {"TMUX": "/x,1,2"}
        )
    shown = b""
    try:
        while piece := os.read(terminal, 4096):
            shown += piece
    except OSError:  # the other end of the terminal was closed
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"Ctrl-B Ctrl-B D detaches" in shown and b"attached 1 outside" in shown


# -- projects, configuration, tokens -----------------------------------------------------------------------------------

PROJECT = {
    "id": "app",
    "name": "app",
    "path": "/r/app",
    "repo": None,
    "defaultBranch": "main",
    "config": None,
    "trusted": False,
    "sessions": 2,
}


def test_projects(daemon: Daemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.route("GET", "/api/projects", {"projects": [PROJECT]})
    daemon.route(
        "POST", "/api/projects", Reply(PROJECT | {"created": "/r/app/agent-orchestrator.yaml", "agent": "demo"}, 201)
    )
    daemon.route("DELETE", "/api/projects/app", {})
    assert run("projects").out.splitlines()[1].split() == ["app", "2", "main", "no", "/r/app"]
    assert run("remove-project", "app").code == 0
    monkeypatch.chdir(tmp_path)
    assert run("init").code == 2
    (tmp_path / ".git").mkdir()
    wrote, agent, *_ = run("init").out.splitlines()
    assert wrote == "wrote /r/app/agent-orchestrator.yaml"
    assert (
        agent.startswith("agent demo, which is scripted")
        and "ao shutdown, then ao config set defaults.agent NAME" in agent
    )
    run("add-project", "https://example.invalid/x.git")
    run("start", str(tmp_path), "--no-open")
    assert [each.json() for each in daemon.asked("POST", "/api/projects")] == [
        {"path": str(tmp_path), "init": True},
        {"url": "https://example.invalid/x.git", "init": True},
        {"path": str(tmp_path), "init": True},
    ]
    assert run("add-project", "/nowhere").code == 2


def test_start_says_where_the_dashboard_is_and_refuses_another_address(
    daemon: Daemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    daemon.route("POST", "/api/login-links", Reply(LINK, 201))
    ran = run("start", "--port", "3999")
    assert ran.code == 0 and LINK["url"] in ran.out and "no repository here" in ran.err
    ran = run("start", "--no-open")
    assert ran.out.splitlines() == ["dashboard http://127.0.0.1:3999", "  `ao dashboard` opens it, signed in"]
    ran = run("start", "--port", "4000")
    assert ran.code == 1 and "already runs at http://127.0.0.1:3999" in ran.err
    assert "already runs at http://127.0.0.1:3999" in run("start", "--tls").err
    assert "already runs" in run("start", "--foreground").err


LINK = {"url": "http://127.0.0.1:3999/#login=CODE", "expiresAt": "2026-01-02T03:06:05Z"}


@pytest.mark.parametrize(
    ("here", "opens"),
    [
        ({"DISPLAY": ":0"}, True),
        ({"WAYLAND_DISPLAY": "w"}, True),
        ({"BROWSER": "x"}, True),
        ({}, False),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "1 2 3 4"}, False),
    ],
)
def test_the_dashboard_is_opened_signed_in_where_a_browser_is_seen(
    daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch, here: dict[str, str], opens: bool
) -> None:
    daemon.route("POST", "/api/login-links", Reply(LINK, 201))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))  # type: ignore[func-returns-value]
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    ran = run("dashboard")
    assert (ran.code, opened) == (0, [LINK["url"]] if opens else [])
    assert ("login=" in ran.out) != opens  # what was opened is not left on the screen
    assert ("ssh -L 3999:127.0.0.1:3999" in ran.out) == ("SSH_CONNECTION" in here)
    opened.clear()
    assert LINK["url"] in run("dashboard", "--no-open").out and opened == []
    assert json.loads(run("dashboard", "--json").out) == {
        "url": "http://127.0.0.1:3999",
        "link": LINK["url"],
        "expiresAt": LINK["expiresAt"],
    }


def test_a_browser_that_cannot_be_opened_is_no_reason_to_fail(
    daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.route("POST", "/api/login-links", Reply(LINK, 201))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    ran = run("dashboard")
    assert ran.code == 0 and LINK["url"] in ran.out


def test_trust_shows_the_commands(daemon: Daemon, run: Run) -> None:
    daemon.route("GET", "/api/projects/trust", {"project": "app", "commands": ["postCreate: npm ci"]})
    daemon.route("POST", "/api/projects/trust", {"project": "app", "commands": [], "trusted": True})
    ran = run("trust")
    assert ran.code == 0 and "npm ci" in ran.out and ran.out.endswith("Trusted.\n")
    assert daemon.asked("POST", "/api/projects/trust")


@pytest.mark.parametrize(
    ("commands", "trusted", "said"), [(["ci: make"], True, "Trusted already."), ([], False, "no commands")]
)
def test_trust_asks_for_what_it_needs(
    daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch, commands: list[str], trusted: bool, said: str
) -> None:
    monkeypatch.setattr("agent_orchestrator.cli.setup.projects.can_answer", lambda: True)
    daemon.route("GET", "/api/projects/trust", {"project": "app", "commands": commands, "trusted": trusted})
    daemon.route("POST", "/api/projects/trust", {"project": "app", "commands": commands, "trusted": True})
    ran = run("trust")
    assert ran.code == 0 and said in ran.out and "Trust them?" not in ran.out


@pytest.mark.parametrize(("usd", "explained"), [(None, True), (0.5, False)])
def test_dollars_that_are_not_known_are_explained(daemon: Daemon, run: Run, usd: float | None, explained: bool) -> None:
    used = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "usd": usd, "forgeCalls": 0}
    answer = {"rows": [used | {"key": "app-a"}], "total": used, "accounts": [], "budgets": []}
    daemon.route("GET", "/api/usage.*", answer)
    assert ("prices.json" in run("usage").out) is explained


def test_the_doctor_names_agents_that_nobody_uses_in_one_line(daemon: Daemon, run: Run) -> None:
    def check(name: str, state: str = "ok", detail: str = "not installed") -> dict[str, object]:
        return {"name": name, "state": state, "detail": detail, "remedy": "install it"}

    used = check("agent codex", "warning")
    checks = [
        check("git", detail="2.40"),
        check("agent aider"),
        used,
        check("agent amp"),
        check("agent demo", detail="1"),
    ]
    daemon.route("GET", "/api/doctor.*", {"checks": checks})
    assert [line for line in run("doctor").out.splitlines() if "agent" in line] == [
        "ok       agents not installed: aider, amp",
        "warning  agent codex: not installed",
        "ok       agent demo: 1",
    ]
    assert json.loads(run("doctor", "--json").out) == {"checks": checks}


def test_agents_that_are_not_found_were_looked_for_somewhere(daemon: Daemon, run: Run) -> None:
    there = {"name": "demo", "found": True, "version": "1", "path": "/demo"}
    daemon.route("GET", "/api/agents", {"agents": [there, {"name": "codex", "found": False}]})
    assert "your login shell's PATH" in run("agents").out
    daemon.route("GET", "/api/agents", {"agents": [there]})
    assert "PATH, as" not in run("agents").out


def test_config(daemon: Daemon, run: Run, tmp_path: Path) -> None:
    daemon.route(
        "GET", r"/api/config/value\?key=defaults\.agent", {"key": "defaults.agent", "value": "demo", "file": "f"}
    )
    daemon.route("PUT", "/api/config/value", lambda request: Reply({"file": "f"} | request.json()))
    daemon.route(
        "POST",
        "/api/config/validate",
        {"valid": False, "errors": ["f:3: unknown key prot, nearest port"], "warnings": []},
    )
    assert run("config", "get", "defaults.agent").out == "demo\n"
    assert run("config", "set", "port", "4000").out == "f: port = 4000\n"
    assert run("config", "set", "defaults.agent", "demo").out == 'f: defaults.agent = "demo"\n'
    (tmp_path / "c.yaml").write_text("prot: 1\n")
    ran = run("config", "validate", str(tmp_path / "c.yaml"))
    assert ran.code == 1 and "error: f:3: unknown key prot, nearest port" in ran.out
    assert daemon.requests[-1].json() == {"path": str(tmp_path / "c.yaml"), "text": "prot: 1\n"}
    run("config", "validate")
    assert daemon.requests[-1].json() == {}
    daemon.route("GET", "/api/config/help", Reply("port: …\n".encode()))
    assert run("config-help").out == "port: …\n"


def test_tokens(daemon: Daemon, run: Run) -> None:
    daemon.route("POST", "/api/tokens", Reply({"id": "t1", "token": "secret"}, 201))
    token = {"id": "t1", "kind": "token", "name": "phone", "role": "viewer", "createdAt": "2026", "expiresAt": None}
    daemon.route("GET", "/api/tokens", {"tokens": [token]})
    daemon.route("DELETE", "/api/tokens/t1", {})
    assert run("token", "new", "phone", "--role", "viewer").out == "secret\n"
    assert daemon.requests[-1].json() == {"name": "phone", "role": "viewer"}
    assert run("token", "list").out.splitlines()[1].split() == ["t1", "token", "phone", "viewer", "2026", "-"]
    assert run("token", "revoke", "t1").code == 0


@pytest.mark.parametrize("path", ["sessions", "/sessions", "/api/sessions", "api/sessions"])
def test_api_with_or_without_its_prefix(daemon: Daemon, path: str) -> None:
    daemon.route("POST", "/api/sessions", Reply(chunks=[b'{"a"', b": 1}"]))
    ran = ao("api", "post", path, "-d", '{"x": 1}', "-H", "X-Test: yes")
    assert (ran.returncode, ran.stdout) == (0, b'{"a": 1}\n')
    assert daemon.requests[-1].json() == {"x": 1} and daemon.requests[-1].headers["x-test"] == "yes"


def test_api_fails_on_an_error_and_on_a_body_that_is_no_json(daemon: Daemon) -> None:
    daemon.route("GET", "/healthz", problem("usage", "no", "do", exit_code=2))
    ran = ao("api", "GET", "/healthz")
    assert ran.returncode == 2 and ran.stderr == b"ao: no: do\n" and json.loads(ran.stdout)["detail"] == "no"
    assert ao("api", "POST", "x", "-d", "{").returncode == 2
    assert ao("api", "GET", "a b").returncode == 2


def test_prune(daemon: Daemon, run: Run) -> None:
    answer = {
        "removed": [{"kind": "workspace", "what": "/w/a", "why": "merged"}],
        "kept": [{"what": "/w/b", "why": "2 commits nowhere else"}],
        "dryRun": True,
    }
    daemon.route("POST", "/api/prune", answer)
    ran = run("prune", "--dry-run")
    assert ran.out == "would remove workspace /w/a: merged\nkept /w/b: 2 commits nowhere else\n"
    assert daemon.requests[-1].json() == {"dryRun": True}


def test_doctor(daemon: Daemon, run: Run) -> None:
    checks = [
        {"name": "git", "state": "ok", "detail": "2.39", "remedy": ""},
        {"name": "tmux", "state": "failed", "detail": "not found", "remedy": "install tmux"},
    ]
    daemon.route("GET", r"/api/doctor\?fix=1", {"checks": checks})
    ran = run("doctor", "--fix")
    assert ran.code == 1
    assert ran.out == "ok       git: 2.39\nfailed   tmux: not found\n         install tmux\n"


def test_doctor_without_a_daemon_says_what_it_can(own_world: Path) -> None:
    (own_world / "file").write_text("")
    ran = ao("doctor", "--json", AO_HOME=str(own_world / "file" / "ao"))
    states = {check["name"]: check["state"] for check in json.loads(ran.stdout)["checks"]}
    assert ran.returncode == 1 and states == {"python": "ok", "git": "ok", "home": "failed", "daemon": "failed"}


def test_shutdown(daemon: Daemon, run: Run, home: Path) -> None:
    def stop(_: object) -> Reply:
        (home / "daemon.json").write_text(json.dumps({"pid": 999999999, "socket": str(home / "gone")}))
        return Reply({}, 202)

    (home / "daemon.json").write_text(json.dumps(daemon.info | {"pid": 999999999}))
    daemon.route("POST", "/api/shutdown", stop)
    assert run("shutdown").out == "The daemon is stopped; sessions run on.\n"
    assert daemon.requests[0].json() == {"sessions": False}
    assert run("shutdown").out == "The daemon is not running.\n"


# -- plans -------------------------------------------------------------------------------------------------------------


def test_a_plan_in_a_narrow_terminal(daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a-task-{number}" for number in range(9)]
    task = {"effort": "small", "labels": [], "files": ["app/" * 9], "profile": None, "issue": None, "issueKey": None}
    tasks = [task | {"id": name, "title": f"Annotate the module {name}", "dependencies": []} for name in names]
    plan = {"id": "P1", "goal": "Go", "state": "draft", "tasks": tasks, "notes": [], "error": None}
    daemon.route("GET", "/api/plans/P1", plan)
    assert run("plan", "P1").out.splitlines()[2].split()[-3:] == ["LABELS", "PROFILE", "FILES"]
    monkeypatch.setattr(out, "width", lambda: 50)
    lines = run("plan", "P1").out.splitlines()
    assert all(out.cells(line) <= 50 for line in lines[:-1]), lines
    assert lines[2].split() == ["ID", "TITLE", "EFFORT"] or lines[2].split() == ["ID", "TITLE"]
    assert "Annotate the module a-task-0" in lines[3]
    assert lines[-5:-2] == [
        "  1  a-task-0   a-task-1   a-task-2   a-task-3",
        "     a-task-4   a-task-5   a-task-6   a-task-7",
        "     a-task-8",
    ]


def test_a_plan_that_is_fixed_opens_no_editor(daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "false")
    daemon.route("GET", "/api/plans/P1", {"id": "P1", "state": "applied"})
    refused = run("plan", "P1", "--edit")
    assert refused.code and refused.err == "ao: P1 is applied, and cannot be changed: change its issues: ao issues\n"
    assert run("plan", "P1", "P2").err == "ao: one plan at a time: ao plan P1\n"


@pytest.mark.parametrize("how", [(), ("--json",)])
@pytest.mark.parametrize("shape", [str, lambda text: {"x": text}])
def test_what_a_configuration_says_steers_no_terminal(
    daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch, how: tuple[str], shape: Callable[[str], object]
) -> None:
    said = "a\x1b]0;owned\x07\x9b31m\u202eb"
    daemon.route("GET", "/api/config/value.*", {"key": "k", "value": shape(said), "file": "f"})
    assert said in run("config", "get", "k").out or how or shape is not str, "a program gets it as it is"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run("config", "get", "k", *how).out
    assert "owned" in shown and all(letter.isprintable() or letter == "\n" for letter in shown)
    if how:
        assert json.loads(shown)["value"] == shape(said)


HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202eb"


@pytest.mark.parametrize(
    ("argv", "route", "answer"),
    [
        (["status", "s", "--prompt"], "/api/sessions/s/prompt", {"system": HOSTILE, "prompt": HOSTILE}),
        (["events", "--json"], "/api/events.*", {"events": [{"seq": 1, "type": "x", "data": {"rules": HOSTILE}}]}),
        (["audit", "--json"], "/api/audit.*", {"entries": [{"seq": 1, "time": "", "data": {"rules": HOSTILE}}]}),
        (["prune"], "/api/prune", {"removed": [{"what": HOSTILE}], "kept": [{"what": HOSTILE}]}),
        (["doctor"], "/api/doctor.*", {"checks": [{"name": HOSTILE, "state": "failed", "remedy": HOSTILE}]}),
        (["projects"], "/api/projects", {"projects": [{"id": "p", "defaultBranch": HOSTILE, "path": HOSTILE}]}),
        (["init"], "/api/projects", {"id": "p", "defaultBranch": HOSTILE, "path": HOSTILE, "created": HOSTILE}),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_nothing_that_is_told_steers_a_terminal(
    daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch, argv: list[str], route: str, answer: dict[str, Any]
) -> None:
    method = "POST" if argv[0] in ("prune", "init") else "GET"
    daemon.route(method, route, answer)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run(*argv).out
    assert "owned" in shown and all(letter.isprintable() or letter == "\n" for letter in shown), repr(shown)


def test_an_answer_of_the_api_steers_no_terminal_and_is_a_programs_byte_for_byte(
    daemon: Daemon, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [b'{"title": "owned \xc2', b"\x9b31m \xe2\x80", b'\xae \x1b]0;x"}']
    daemon.route("GET", "/api/sessions/s", Reply(chunks=pieces))
    assert run("api", "GET", "sessions/s").out == b"".join(pieces).decode() + "\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert run("api", "GET", "sessions/s").out == '{"title": "owned \\u009b31m \\u202e \\u001b]0;x"}\n'


def test_a_name_in_a_command_to_copy_is_a_name(daemon: Daemon, run: Run) -> None:
    """Whoever runs a check at a forge gives it its name."""
    name = "lint; $(touch owned) `touch owned` 'x'"
    numbers = dict.fromkeys(("passed", "failed", "skipped", "reason", "remedy", "command")) | {"new": 0, "known": 0}
    lists: dict[str, list[str]] = {
        key: [] for key in ("newFailures", "knownFailures", "ownedFailures", "vanished", "newlySkipped")
    }
    check = {"name": name, "state": "failure", "summary": "", **numbers, **lists}
    found = {"session": "s", "number": 1, "base": "main", "checks": [check], "failing": [check]}
    daemon.route("GET", "/api/sessions/s/review", found)
    copied = run("checks", "s").out.splitlines()[-1]
    assert shlex.split(copied) == ["ao", "checks", "s", "--log", name]


def test_neither_does_a_log_that_is_replayed(daemon: Daemon, run: Run, tmp_path: Path) -> None:
    daemon.route("POST", "/api/events/replay", {"steps": [{"seq": 1, "type": HOSTILE, "session": HOSTILE}]})
    recorded = tmp_path / "log"
    recorded.write_text(json.dumps({"type": HOSTILE, "session": HOSTILE}))
    shown = run("events", "--replay", str(recorded)).out
    assert "owned" in shown and all(letter.isprintable() or letter == "\n" for letter in shown), repr(shown)
