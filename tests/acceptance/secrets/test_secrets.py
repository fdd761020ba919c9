"""No secret is recorded, logged, shown, sent or given to whom it is not for: canaries are planted everywhere, everything is searched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import unix_connect

from agent_orchestrator.testing.sandbox import Sandbox
from tests.acceptance.secrets import canaries as birds
from tests.acceptance.session_states import TIMEOUT, wait_for_session

EMIT = """\
terminal={terminal}; spool={spool}; commit={commit}; check={check}; issue={issue}
case $1 in
terminal) echo "the agent says $terminal and $APP_PASSWORD and $PROFILE_TOKEN"; env | sort; git remote -v ;;
spool) printf '{{"event": "progress", "done": 1, "total": 2, "step": "with %s and %s"}}\\n' "$spool" "$APP_PASSWORD" >> "$AO_SPOOL"
       printf '{{"event": "report", "name": "own", "data": "%s"}}\\n' "$spool" >> "$AO_SPOOL"
       printf '{{"event": "ask", "question": "is %s right?"}}\\n' "$spool" >> "$AO_SPOOL" ;;
commit) printf 'key = %s\\npassword = %s\\n' "$commit" "$APP_PASSWORD" > settings.txt
        git add -A; git commit -qm "Keep $commit and $APP_PASSWORD" ;;
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
    return birds.made()


@pytest.fixture(scope="module")
def forge(canaries: dict[str, str]) -> Iterator[birds.FailingForge]:
    with birds.FailingForge(canaries["error"]) as server:
        yield server


@pytest.fixture(scope="module")
def box(
    tmp_path_factory: pytest.TempPathFactory, canaries: dict[str, str], forge: birds.FailingForge
) -> Iterator[Sandbox]:
    with Sandbox(tmp_path_factory.mktemp("canaries"), env=birds.daemon_environment(canaries)) as sandbox:
        profile = (
            f"export LOGIN_API_KEY={birds.split(canaries['login'])} GREETING={birds.split(canaries['login-plain'])}\n"
        )
        (sandbox.user_home / ".profile").write_text(profile)
        hub = sandbox.repository("hub", config="defaults: {agent: demo}\n")
        (hub / "agent-orchestrator.yaml").unlink()
        app = sandbox.repository("app", config="")
        (app / "agent-orchestrator.yaml").unlink()
        known = {name: birds.split(value) for name, value in canaries.items()}
        (app / "emit.sh").write_text(EMIT.format(seen=sandbox.folder / "seen", **known))
        sandbox.git("add", "-A")
        sandbox.git("commit", "-qm", "tools")
        sandbox.git("remote", "add", "origin", f"http://someone:{canaries['remote']}@127.0.0.1:9/app.git")
        sandbox.home.path.mkdir(mode=0o700)
        text = CONFIG.format(app=app, hub=hub, url=forge.url, **canaries)
        sandbox.home.config.write_text(text)
        sandbox.start()
        yield sandbox


@pytest.fixture(scope="module")
def watching(box: Sandbox, canaries: dict[str, str]) -> Iterator[birds.Watching]:
    """A whole life: spawn, work, failing checks, message, review, stop, restore."""
    with birds.Watching(box, canaries, {"app": {"project", "profile"}, "hub": {"other"}}) as watch:
        _live(box, canaries, watch)
        yield watch


def _live(box: Sandbox, canaries: dict[str, str], watch: birds.Watching) -> None:
    box.request("POST", "/api/issues", {"title": f"By {canaries['issue']}", "body": f"It says {canaries['issue']}."})
    box.ao("new", "-p", "app", "--issue", "1", "--name", "other", "--no-wait")
    script = " ".join(f"[[sh: sh emit.sh {step}]]" for step in ("terminal", "spool", "commit", "leave", "done"))
    task = f"Use {canaries['task']} {script} [[wait]] [[sh: sh emit.sh terminal]]"
    box.ao("new", "-p", "app", "--name", "work", "-", stdin=task)
    box.ao("new", "-p", "hub", "--name", "else", "--no-wait", "[[wait]]", check=False)
    box.ao("new", "-p", "app", "--no-wait", "-", stdin=f"[[wait]] {canaries['task']}")
    box.until(lambda: watch.seen >= {"app-work", "app-other", "a check"}, "all of them to be seen", TIMEOUT)
    (box.folder / "seen").touch()
    checked = "a check that failed"
    wait_for_session(
        box, "app-work", lambda now: now["pr"] and "failure" in [one["state"] for one in now["pr"]["checks"]], checked
    )
    box.ao("send", "app-work", "-", stdin=f"also with {canaries['message']} and {canaries['project']}")
    box.request("POST", "/api/sessions/app-work/review", {"verdict": "changes_requested", "body": canaries["message"]})
    box.until(lambda: "message-delivered" in [one["type"] for one in box.events("app-work")], "a delivery", TIMEOUT)
    box.ao("stop", "app-work")
    wait_for_session(box, "app-work", lambda now: now["status"] == "stopped", "the stop")
    box.ao("restore", "app-work")
    wait_for_session(box, "app-work", lambda now: now["activity"] in ("idle", "waiting_input"), "its agent at rest")


def test_the_scene_is_what_it_should_be(box: Sandbox, watching: birds.Watching, canaries: dict[str, str]) -> None:
    """The canaries were there to be found: the agent printed them, the check did, the commit has them."""
    raw = box.home.terminal_log("app-work").read_bytes()
    for name in ("terminal", "project", "profile"):
        assert canaries[name].encode() in raw, name
    assert canaries["commit"] in box.git("show", "feature/work:settings.txt")
    assert watching.seen >= {"app-work", "app-other", "a check"}
    words = json.dumps(box.events())
    for said in ("[secret GitHub token]", "[secret GitLab token]", "[secret APP_PASSWORD]"):
        assert said in words, said
    assert "[secret package token]" in box.ao("doctor", check=False).stdout  # what the forge said


def test_nothing_below_the_home_has_one(box: Sandbox, watching: birds.Watching, canaries: dict[str, str]) -> None:
    found = [one for one in birds.in_files(canaries, box.home.path) if not one.endswith(": file config.yaml")]
    assert not found, "\n".join(found)


def test_no_route_shows_one(box: Sandbox, watching: birds.Watching, canaries: dict[str, str]) -> None:
    found = list(birds.in_routes(canaries, box))
    assert not found, "\n".join(found)


def test_no_command_prints_one(box: Sandbox, watching: birds.Watching, canaries: dict[str, str]) -> None:
    found = list(birds.in_commands(canaries, box))
    assert not found, "\n".join(found)


def test_no_process_has_one_that_is_not_its_own(watching: birds.Watching) -> None:
    assert not watching.found, "\n".join(sorted(watching.found))


def test_the_terminal_in_the_browser_shows_none(
    box: Sandbox, watching: birds.Watching, canaries: dict[str, str]
) -> None:
    async def seen() -> bytes:
        shown = b""
        path = "ws://ao/api/sessions/app-work/terminal?columns=400&rows=60"
        async with unix_connect(str(box.home.socket("daemon.sock")), path, max_size=None) as line:
            for keys, awaited in ((b"", b"> "), (b"[[sh: sh emit.sh terminal]]\r", b"(push)")):
                await line.send(keys)
                async with asyncio.timeout(60):
                    while awaited not in shown:
                        output = await line.recv()
                        shown += output if isinstance(output, bytes) else b""
        return shown

    shown = asyncio.run(seen())
    assert b"the agent says" in shown and b"****" in shown
    assert not birds.found_in(canaries, shown, "the terminal")


def test_no_tool_or_resource_for_agents_shows_one(
    box: Sandbox, watching: birds.Watching, canaries: dict[str, str]
) -> None:
    found = []
    for number, (method, given) in enumerate(_asked(box)):
        asked = {"jsonrpc": "2.0", "id": number, "method": method, "params": given}
        answer = box.request("POST", "/mcp", asked, Accept="application/json, text/event-stream")
        assert "result" in answer or "error" in answer
        found += birds.found_in(canaries, json.dumps(answer, ensure_ascii=False), f"MCP {method} {given}")
    assert not found, "\n".join(found)


def _asked(box: Sandbox) -> Iterator[tuple[str, dict[str, object]]]:
    yield "resources/list", {}
    for session in ("app-work", "app-other"):
        for kind in ("", "/log", "/diff", "/transcript"):
            yield "resources/read", {"uri": f"ao://sessions/{session}{kind}"}
        for tool in ("get_session", "get_diff", "get_log", "why"):
            yield "tools/call", {"name": tool, "arguments": {"session": session}}
    for tool in ("list_sessions", "list_issues", "list_queue", "list_conflicts", "list_backlog"):
        yield "tools/call", {"name": tool, "arguments": {}}


def test_a_forge_is_sent_none_but_its_own_token(
    box: Sandbox, forge: birds.FailingForge, watching: birds.Watching, canaries: dict[str, str]
) -> None:
    box.ao("doctor", check=False)  # asks the forge, should nothing else have done so yet
    assert forge.sent
    assert not [one for sent in forge.sent for one in birds.found_in(canaries, sent, "what the forge was sent")]


def test_a_private_key_is_covered_in_what_commands_print(tmp_path: Path) -> None:
    """Line after line: those of a rule, and those that a person has run in a workspace."""
    lines = [f"{number:03}{'MIIEpAIBAAKCAQEA7n5k' * 3}" for number in range(40)]
    key = tmp_path / "key.pem"
    key.write_text("\n".join(["see:", "-----BEGIN PRIVATE KEY-----", *lines]))
    rule = f"agent-blocked: {{action: command, delay: 0s, command: 'cat {key}'}}"
    with Sandbox(tmp_path / "box", "process") as box:
        box.repository(config=f"defaults: {{agent: demo, runtime: process}}\nreactions: {{{rule}}}\n")
        box.start()
        session = box.json("new", "[[block: Allow rm?]]")["id"]

        def finished() -> list[dict[str, Any]]:
            return [one["data"] for one in box.events(session) if one["type"] == "command-finished"]

        told = box.until(finished, "the rule's command")[0]
        with box.client() as client:
            ran = client.stream("POST", f"/api/sessions/{session}/run", {"command": ["cat", str(key)]}).read().decode()
        log = Path(told["log"]).read_text()
    for said in (log, ran, told["output"]):
        assert "MIIE" not in said and "*" * 63 in said, said
    assert log.startswith("see:\n-----BEGIN") and log.count("\n") == ran.count("output") == len(lines) + 2
