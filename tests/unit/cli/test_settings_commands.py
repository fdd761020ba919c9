"""Commands for projects, trust, configuration, tokens, the daemon and the machine, with a scripted daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.program import run_ao
from tests.unit.cli.scripted import DaemonReply, ScriptedDaemon, problem

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


def test_projects_are_listed_added_and_removed(
    daemon: ScriptedDaemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.route("GET", "/api/projects", {"projects": [PROJECT]})
    daemon.route(
        "POST",
        "/api/projects",
        DaemonReply(PROJECT | {"created": "/r/app/agent-orchestrator.yaml", "agent": "demo"}, 201),
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
    assert [each.json() for each in daemon.requests_for("POST", "/api/projects")] == [
        {"path": str(tmp_path), "init": True},
        {"url": "https://example.invalid/x.git", "init": True},
        {"path": str(tmp_path), "init": True},
    ]
    assert run("add-project", "/nowhere").code == 2


def test_start_prints_the_dashboard_and_refuses_another_address(
    daemon: ScriptedDaemon, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    daemon.route("POST", "/api/login-links", DaemonReply(LINK, 201))
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
def test_the_dashboard_is_opened_only_where_a_browser_can_be_seen(
    daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch, here: dict[str, str], opens: bool
) -> None:
    daemon.route("POST", "/api/login-links", DaemonReply(LINK, 201))
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: not opened.append(url))  # type: ignore[func-returns-value]
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in here.items():
        monkeypatch.setenv(name, value)
    ran = run("dashboard")
    assert (ran.code, opened) == (0, [LINK["url"]] if opens else [])
    assert ("login=" in ran.out) != opens  # an opened link is not printed
    assert ("ssh -L 3999:127.0.0.1:3999" in ran.out) == ("SSH_CONNECTION" in here)
    opened.clear()
    assert LINK["url"] in run("dashboard", "--no-open").out and opened == []
    assert json.loads(run("dashboard", "--json").out) == {
        "url": "http://127.0.0.1:3999",
        "link": LINK["url"],
        "expiresAt": LINK["expiresAt"],
    }


def test_the_link_is_printed_if_no_browser_opens(
    daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.route("POST", "/api/login-links", DaemonReply(LINK, 201))
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    ran = run("dashboard")
    assert ran.code == 0 and LINK["url"] in ran.out


def test_trust_shows_the_commands(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("GET", "/api/projects/trust", {"project": "app", "commands": ["postCreate: npm ci"]})
    daemon.route("POST", "/api/projects/trust", {"project": "app", "commands": [], "trusted": True})
    ran = run("trust")
    assert ran.code == 0 and "npm ci" in ran.out and ran.out.endswith("Trusted.\n")
    assert daemon.requests_for("POST", "/api/projects/trust")


@pytest.mark.parametrize(
    ("commands", "trusted", "expected"), [(["ci: make"], True, "Trusted already."), ([], False, "no commands")]
)
def test_trust_asks_only_if_something_needs_trust(
    daemon: ScriptedDaemon, run: Run, monkeypatch: pytest.MonkeyPatch, commands: list[str], trusted: bool, expected: str
) -> None:
    monkeypatch.setattr("agent_orchestrator.cli.setup.projects.can_ask", lambda: True)
    daemon.route("GET", "/api/projects/trust", {"project": "app", "commands": commands, "trusted": trusted})
    daemon.route("POST", "/api/projects/trust", {"project": "app", "commands": commands, "trusted": True})
    ran = run("trust")
    assert ran.code == 0 and expected in ran.out and "Trust them?" not in ran.out


@pytest.mark.parametrize(("usd", "explained"), [(None, True), (0.5, False)])
def test_unknown_costs_are_explained(daemon: ScriptedDaemon, run: Run, usd: float | None, explained: bool) -> None:
    used = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "usd": usd, "forgeCalls": 0}
    answer = {"rows": [used | {"key": "app-a"}], "total": used, "accounts": [], "budgets": []}
    daemon.route("GET", "/api/usage.*", answer)
    assert ("prices.json" in run("usage").out) is explained


def test_unused_agents_are_one_line_of_the_doctor(daemon: ScriptedDaemon, run: Run) -> None:
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


def test_missing_agents_are_explained_with_the_path(daemon: ScriptedDaemon, run: Run) -> None:
    installed = {"name": "demo", "found": True, "version": "1", "path": "/demo"}
    daemon.route("GET", "/api/agents", {"agents": [installed, {"name": "codex", "found": False}]})
    assert "your login shell's PATH" in run("agents").out
    daemon.route("GET", "/api/agents", {"agents": [installed]})
    assert "PATH, as" not in run("agents").out


def test_configuration_values_are_read_written_and_validated(daemon: ScriptedDaemon, run: Run, tmp_path: Path) -> None:
    daemon.route(
        "GET", r"/api/config/value\?key=defaults\.agent", {"key": "defaults.agent", "value": "demo", "file": "f"}
    )
    daemon.route("PUT", "/api/config/value", lambda request: DaemonReply({"file": "f"} | request.json()))
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
    daemon.route("GET", "/api/config/help", DaemonReply("port: …\n".encode()))
    assert run("config-help").out == "port: …\n"


def test_tokens_are_created_listed_and_revoked(daemon: ScriptedDaemon, run: Run) -> None:
    daemon.route("POST", "/api/tokens", DaemonReply({"id": "t1", "token": "secret"}, 201))
    token = {"id": "t1", "kind": "token", "name": "phone", "role": "viewer", "createdAt": "2026", "expiresAt": None}
    daemon.route("GET", "/api/tokens", {"tokens": [token]})
    daemon.route("DELETE", "/api/tokens/t1", {})
    assert run("token", "new", "phone", "--role", "viewer").out == "secret\n"
    assert daemon.requests[-1].json() == {"name": "phone", "role": "viewer"}
    assert run("token", "list").out.splitlines()[1].split() == ["t1", "token", "phone", "viewer", "2026", "-"]
    assert run("token", "revoke", "t1").code == 0


@pytest.mark.parametrize("path", ["sessions", "/sessions", "/api/sessions", "api/sessions"])
def test_api_paths_may_omit_their_prefix(daemon: ScriptedDaemon, path: str) -> None:
    daemon.route("POST", "/api/sessions", DaemonReply(chunks=[b'{"a"', b": 1}"]))
    ran = run_ao("api", "post", path, "-d", '{"x": 1}', "-H", "X-Test: yes")
    assert (ran.returncode, ran.stdout) == (0, b'{"a": 1}\n')
    assert daemon.requests[-1].json() == {"x": 1} and daemon.requests[-1].headers["x-test"] == "yes"


def test_api_exits_with_the_code_of_an_error(daemon: ScriptedDaemon) -> None:
    daemon.route("GET", "/healthz", problem("usage", "no", "do", exit_code=2))
    ran = run_ao("api", "GET", "/healthz")
    assert ran.returncode == 2 and ran.stderr == b"ao: no: do\n" and json.loads(ran.stdout)["detail"] == "no"
    assert run_ao("api", "POST", "x", "-d", "{").returncode == 2
    assert run_ao("api", "GET", "a b").returncode == 2


def test_prune_lists_what_is_removed_and_kept(daemon: ScriptedDaemon, run: Run) -> None:
    answer = {
        "removed": [{"kind": "workspace", "what": "/w/a", "why": "merged"}],
        "kept": [{"what": "/w/b", "why": "2 commits nowhere else"}],
        "dryRun": True,
    }
    daemon.route("POST", "/api/prune", answer)
    ran = run("prune", "--dry-run")
    assert ran.out == "would remove workspace /w/a: merged\nkept /w/b: 2 commits nowhere else\n"
    assert daemon.requests[-1].json() == {"dryRun": True}


def test_doctor_prints_checks_with_remedies(daemon: ScriptedDaemon, run: Run) -> None:
    checks = [
        {"name": "git", "state": "ok", "detail": "2.39", "remedy": ""},
        {"name": "tmux", "state": "failed", "detail": "not found", "remedy": "install tmux"},
    ]
    daemon.route("GET", r"/api/doctor\?fix=1", {"checks": checks})
    ran = run("doctor", "--fix")
    assert ran.code == 1
    assert ran.out == "ok       git: 2.39\nfailed   tmux: not found\n         install tmux\n"


def test_the_doctor_works_without_a_daemon(own_world: Path) -> None:
    (own_world / "file").write_text("")
    ran = run_ao("doctor", "--json", AO_HOME=str(own_world / "file" / "ao"))
    states = {check["name"]: check["state"] for check in json.loads(ran.stdout)["checks"]}
    assert ran.returncode == 1 and states == {"python": "ok", "git": "ok", "home": "failed", "daemon": "failed"}


def test_shutdown_stops_the_daemon_and_keeps_sessions(daemon: ScriptedDaemon, run: Run, home: Path) -> None:
    def stop(_: object) -> DaemonReply:
        (home / "daemon.json").write_text(json.dumps({"pid": 999999999, "socket": str(home / "gone")}))
        return DaemonReply({}, 202)

    (home / "daemon.json").write_text(json.dumps(daemon.info | {"pid": 999999999}))
    daemon.route("POST", "/api/shutdown", stop)
    assert run("shutdown").out == "The daemon is stopped; sessions run on.\n"
    assert daemon.requests[0].json() == {"sessions": False}
    assert run("shutdown").out == "The daemon is not running.\n"
