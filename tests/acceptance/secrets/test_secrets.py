"""No secret is recorded, logged, shown or sent to the wrong recipient: canaries from every source are searched for everywhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import unix_connect

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.secrets import canaries as canary_tools
from tests.acceptance.session_states import TIMEOUT, wait_for_session

EMIT = """\
terminal={terminal}; spool={spool}; commit={commit}; check={check}; issue={issue}
case $1 in
terminal) echo "the agent says $terminal and $APP_PASSWORD and $PROFILE_TOKEN"; env | sort; git remote -v ;;
spool) printf '{{"event": "progress", "done": 1, "total": 2, "step": "with %s and %s"}}\\n' "$spool" "$APP_PASSWORD" >> "$AO_SPOOL"
       printf '{{"event": "report", "name": "own", "data": "%s"}}\\n' "$spool" >> "$AO_SPOOL"
       printf '{{"event": "ask", "question": "is %s right?"}}\\n' "$spool" >> "$AO_SPOOL" ;;
commit) printf 'key = %s\\npassword = %s\\n' "$commit" "$APP_PASSWORD" > settings.txt
        git add -A; printf "Keep %s and %s" "$commit" "$APP_PASSWORD" | git commit -qF - ;;
done) printf '{{"event": "done", "summary": "made with %s and %s"}}\\n' "$spool" "$APP_PASSWORD" >> "$AO_SPOOL" ;;
check) until test -e {seen}; do sleep 0.1; done
       echo "FAILED with $check and $APP_PASSWORD"; echo "$FORGE_TOKEN $DAEMON_SECRET $LOGIN_API_KEY $GREETING"; exit 1 ;;
leave) echo "unsaved $commit" > left.txt ;;
esac
"""
CONFIG = """\
defaults: {{runtime: process, agent: demo}}
agents:
  worker: {{tool: demo, env: {{PROFILE_TOKEN: {profile}}}}}
projects:
  app:
    path: {app}
    agent: worker
    env: {{APP_PASSWORD: {project}}}
    agentRules: Never print {project}.
    ci: {{command: sh emit.sh check, on: done}}
    postCreate: ["echo set up with $APP_PASSWORD"]
  hub:
    path: {hub}
    repo: acme/hub
    env: {{HUB_PASSWORD: {other}}}
    scm: {{plugin: github, apiUrl: "{url}", token: "${{FORGE_TOKEN}}", webhook: {{secretEnvVar: HOOK_SECRET}}}}
    tracker: {{plugin: local}}
"""


@pytest.fixture(scope="module")
def canaries() -> dict[str, str]:
    return canary_tools.make_canaries()


@pytest.fixture(scope="module")
def forge(canaries: dict[str, str]) -> Iterator[canary_tools.FailingForge]:
    with canary_tools.FailingForge(canaries["error"]) as server:
        yield server


@pytest.fixture(scope="module")
def box(
    tmp_path_factory: pytest.TempPathFactory, canaries: dict[str, str], forge: canary_tools.FailingForge
) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("canaries"), env=canary_tools.daemon_environment(canaries)) as sandbox:
        split = canary_tools.split_for_shell
        profile = f"export LOGIN_API_KEY={split(canaries['login'])} GREETING={split(canaries['login-plain'])}\n"
        (sandbox.user_home / ".profile").write_text(profile)
        hub = sandbox.repository("hub", config="defaults: {agent: demo}\n")
        (hub / "agent-orchestrator.yaml").unlink()
        app = sandbox.repository("app", config="")
        (app / "agent-orchestrator.yaml").unlink()
        split_values = {name: canary_tools.split_for_shell(value) for name, value in canaries.items()}
        (app / "emit.sh").write_text(EMIT.format(seen=sandbox.folder / "seen", **split_values))
        sandbox.git("add", "-A")
        sandbox.git("commit", "-qm", "tools")
        sandbox.git("remote", "add", "origin", f"http://someone:{canaries['remote']}@127.0.0.1:9/app.git")
        sandbox.home.path.mkdir(mode=0o700)
        text = CONFIG.format(app=app, hub=hub, url=forge.url, **canaries)
        sandbox.home.config.write_text(text)
        sandbox.start()
        yield sandbox


@pytest.fixture(scope="module")
def watcher(box: Sandbox, canaries: dict[str, str]) -> Iterator[canary_tools.ProcessWatcher]:
    """Watch processes while sessions run: spawn, work, failing checks, message, review, stop, restore."""
    with canary_tools.ProcessWatcher(box, canaries, {"app": {"project", "profile"}, "hub": {"other"}}) as watch:
        _run_sessions(box, canaries, watch)
        yield watch


def _run_sessions(box: Sandbox, canaries: dict[str, str], watch: canary_tools.ProcessWatcher) -> None:
    box.request("POST", "/api/issues", {"title": f"By {canaries['issue']}", "body": f"It says {canaries['issue']}."})
    box.ao("new", "-p", "app", "--issue", "1", "--name", "other", "--no-wait")
    script = " ".join(f"[[sh: sh emit.sh {step}]]" for step in ("terminal", "spool", "commit", "leave", "done"))
    task = f"Use {canaries['task']} {script} [[wait]] [[sh: sh emit.sh terminal]]"
    box.ao("new", "-p", "app", "--name", "work", "-", stdin=task)
    box.ao("new", "-p", "hub", "--name", "else", "--no-wait", "[[wait]]", check=False)
    box.ao("new", "-p", "app", "--no-wait", "-", stdin=f"[[wait]] {canaries['task']}")
    box.wait_until(
        lambda: watch.seen_processes >= {"app-work", "app-other", "a check"}, "all of them to be seen", TIMEOUT
    )
    (box.folder / "seen").touch()
    description = "a check that failed"
    wait_for_session(
        box,
        "app-work",
        lambda now: now["pr"] and "failure" in [item["state"] for item in now["pr"]["checks"]],
        description,
    )
    box.ao("send", "app-work", "-", stdin=f"also with {canaries['message']} and {canaries['project']}")
    box.request("POST", "/api/sessions/app-work/review", {"verdict": "changes_requested", "body": canaries["message"]})
    box.wait_until(
        lambda: "message-delivered" in [item["type"] for item in box.events("app-work")], "a delivery", TIMEOUT
    )
    box.ao("stop", "app-work")
    wait_for_session(box, "app-work", lambda now: now["status"] == "stopped", "the stop")
    box.ao("restore", "app-work")
    wait_for_session(box, "app-work", lambda now: now["activity"] in ("idle", "waiting_input"), "its agent at rest")


def test_the_canaries_were_present_where_agents_write(
    box: Sandbox, watcher: canary_tools.ProcessWatcher, canaries: dict[str, str]
) -> None:
    """The canaries existed: the agent and the check printed them, and the commit contains them."""
    raw = box.home.terminal_log("app-work").read_bytes()
    for name in ("terminal", "project", "profile"):
        assert canaries[name].encode() in raw, name
    assert canaries["commit"] in box.git("show", "feature/work:settings.txt")
    assert watcher.seen_processes >= {"app-work", "app-other", "a check"}
    events = json.dumps(box.events())
    for placeholder in ("[secret GitHub token]", "[secret GitLab token]", "[secret APP_PASSWORD]"):
        assert placeholder in events, placeholder
    assert "[secret package token]" in box.ao("doctor", check=False).stdout  # the forge's message


def test_no_file_below_the_home_contains_a_canary(
    box: Sandbox, watcher: canary_tools.ProcessWatcher, canaries: dict[str, str]
) -> None:
    leaks = [
        leak for leak in canary_tools.find_in_files(canaries, box.home.path) if not leak.endswith(": file config.yaml")
    ]
    assert not leaks, "\n".join(leaks)


def test_no_route_shows_a_canary(box: Sandbox, watcher: canary_tools.ProcessWatcher, canaries: dict[str, str]) -> None:
    leaks = list(canary_tools.find_in_routes(canaries, box))
    assert not leaks, "\n".join(leaks)


def test_no_command_prints_a_canary(
    box: Sandbox, watcher: canary_tools.ProcessWatcher, canaries: dict[str, str]
) -> None:
    leaks = list(canary_tools.find_in_commands(canaries, box))
    assert not leaks, "\n".join(leaks)


def test_no_process_has_a_canary_of_another_project(watcher: canary_tools.ProcessWatcher) -> None:
    assert not watcher.leaks, "\n".join(sorted(watcher.leaks))


def test_the_browser_terminal_shows_no_canary(
    box: Sandbox, watcher: canary_tools.ProcessWatcher, canaries: dict[str, str]
) -> None:
    async def read_terminal() -> bytes:
        screen = b""
        path = "ws://ao/api/sessions/app-work/terminal?columns=400&rows=60"
        async with unix_connect(str(box.home.socket("daemon.sock")), path, max_size=None) as connection:
            for keys, awaited in ((b"", b"> "), (b"[[sh: sh emit.sh terminal]]\r", b"(push)")):
                await connection.send(keys)
                async with asyncio.timeout(60):
                    while awaited not in screen:
                        output = await connection.recv()
                        screen += output if isinstance(output, bytes) else b""
        return screen

    screen = asyncio.run(read_terminal())
    assert b"the agent says" in screen and b"****" in screen
    assert not canary_tools.find_canaries(canaries, screen, "the terminal")


def test_no_mcp_tool_or_resource_shows_a_canary(
    box: Sandbox, watcher: canary_tools.ProcessWatcher, canaries: dict[str, str]
) -> None:
    leaks = []
    for number, (method, params) in enumerate(_mcp_requests(box)):
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answer = box.request("POST", "/mcp", request, Accept="application/json, text/event-stream")
        assert "result" in answer or "error" in answer
        leaks += canary_tools.find_canaries(canaries, json.dumps(answer, ensure_ascii=False), f"MCP {method} {params}")
    assert not leaks, "\n".join(leaks)


def _mcp_requests(box: Sandbox) -> Iterator[tuple[str, dict[str, object]]]:
    yield "resources/list", {}
    for session in ("app-work", "app-other"):
        for kind in ("", "/log", "/diff", "/transcript"):
            yield "resources/read", {"uri": f"ao://sessions/{session}{kind}"}
        for tool in ("get_session", "get_diff", "get_log", "why"):
            yield "tools/call", {"name": tool, "arguments": {"session": session}}
    for tool in ("list_sessions", "list_issues", "list_queue", "list_conflicts", "list_backlog"):
        yield "tools/call", {"name": tool, "arguments": {}}


def test_a_forge_is_sent_no_canary_except_its_own_token(
    box: Sandbox, forge: canary_tools.FailingForge, watcher: canary_tools.ProcessWatcher, canaries: dict[str, str]
) -> None:
    box.ao("doctor", check=False)  # queries the forge, in case nothing else has done so yet
    assert forge.sent
    assert not [
        leak for sent in forge.sent for leak in canary_tools.find_canaries(canaries, sent, "what the forge was sent")
    ]


def test_private_keys_are_redacted_in_the_output_of_commands(tmp_path: Path) -> None:
    """Commands of a rule, and commands that a person runs in a workspace."""
    lines = [f"{number:03}{'MIIEpAIBAAKCAQEA7n5k' * 3}" for number in range(40)]
    key = tmp_path / "key.pem"
    key.write_text("\n".join(["see:", "-----BEGIN PRIVATE KEY-----", *lines]))
    rule = f"agent-blocked: {{action: command, delay: 0s, command: 'cat {key}'}}"
    with Sandbox(tmp_path / "box", "process") as box:
        box.repository(config=f"defaults: {{agent: demo, runtime: process}}\nreactions: {{{rule}}}\n")
        box.start()
        session = box.json("new", "[[block: Allow rm?]]")["id"]

        def finished() -> list[dict[str, Any]]:
            return [event["data"] for event in box.events(session) if event["type"] == "command-finished"]

        result = box.wait_until(finished, "the rule's command")[0]
        with box.client() as client:
            run_output = (
                client.stream("POST", f"/api/sessions/{session}/run", {"command": ["cat", str(key)]}).read().decode()
            )
        log = Path(result["log"]).read_text()
    for text in (log, run_output, result["output"]):
        assert "MIIE" not in text and "*" * 63 in text, text
    assert log.startswith("see:\n-----BEGIN") and log.count("\n") == run_output.count("output") == len(lines) + 2
