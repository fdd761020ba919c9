"""The audit log: actors (people, tokens, browsers, agents and rules), causes, and detection of changes."""

from __future__ import annotations

import contextlib
import getpass
import http.client
import json
import os
import pty
import sqlite3
import subprocess
import sys
import termios
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agent_orchestrator.testing.sandbox import Sandbox

ME = f"local {getpass.getuser()}"


def entries(box: Sandbox, *argv: str) -> list[dict[str, Any]]:
    done = box.ao("audit", "--json", "-n", "1000", *argv)
    return [json.loads(line) for line in done.stdout.splitlines()]


def request_status(box: Sandbox, token: str, method: str, path: str, body: Any = None) -> int:
    """Send one request over TCP with a token and return its status."""
    host = str(json.loads(box.home.daemon_info.read_text())["url"]).partition("://")[2]
    connection = http.client.HTTPConnection(host, timeout=60)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def on_terminal(box: Sandbox, columns: int, *argv: str) -> list[str]:
    """Return the lines that a command prints on a terminal of this width."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, columns))
    command = [sys.executable, "-m", "agent_orchestrator", *argv]
    try:
        with subprocess.Popen(command, env=box.env, cwd=box.repo, stdin=slave, stdout=slave, stderr=slave) as process:
            os.close(slave)
            output = b""
            with contextlib.suppress(OSError):  # Linux's way to say that the terminal was closed
                while chunk := os.read(master, 1 << 16):
                    output += chunk
        assert process.returncode == 0, output
    finally:
        os.close(master)
    return output.decode().splitlines()


def new_token(box: Sandbox, name: str, role: str) -> str:
    return str(box.json("token", "new", name, "--role", role)["token"])


def test_changes_are_recorded_with_the_person_or_token_that_made_them(process_box: Sandbox) -> None:
    box = process_box
    box.ao("new", "--name", "fix", "say hello [[wait]]")
    box.wait_until(lambda: entries(box, "--actor", "agent"), "a report of its agent")
    ci, viewer = new_token(box, "ci", "admin"), new_token(box, "eyes", "viewer")
    assert request_status(box, ci, "POST", "/api/sessions/app-fix/message", {"content": "go on"}) == 202
    assert request_status(box, ci, "PUT", "/api/config/value", {"key": "defaults.agent", "value": "demo"}) == 200
    assert request_status(box, ci, "POST", "/api/prune", {"dryRun": False}) == 200
    assert request_status(box, ci, "POST", "/api/issues?project=app", {"title": "It breaks"}) == 201
    assert request_status(box, viewer, "DELETE", "/api/sessions/app-fix") == 403
    assert request_status(box, "aot_wrong", "GET", "/api/sessions") == 401
    assert request_status(box, ci, "DELETE", "/api/sessions/app-fix") == 200
    box.ao("token", "revoke", "ci")
    box.wait_until(lambda: entries(box, "--kind", "session-stopped"))

    log = entries(box)
    recorded = {(entry["actor"], entry["type"]) for entry in log}
    for kind in ("message-queued", "setting-changed", "action-taken", "issue-opened", "stop-requested"):
        assert ("token ci", kind) in recorded, (kind, recorded)
    for kind in ("project-registered", "session-created", "token-made", "token-revoked"):
        assert (ME, kind) in recorded, (kind, recorded)
    refused = {entry["actor"]: entry["data"] for entry in log if entry["type"] == "access-refused"}
    assert refused["token eyes"] | {"method": "DELETE", "path": "/api/sessions/app-fix"} == refused["token eyes"]
    assert refused["anonymous 127.0.0.1"]["path"] == "/api/sessions"
    stopped = next(entry for entry in log if entry["type"] == "session-stopped")
    requested = next(entry for entry in log if entry["type"] == "stop-requested")
    assert (stopped["actor"], stopped["cause"] >= requested["seq"]) == ("daemon", True)
    assert {entry["type"] for entry in entries(box, "--actor", "agent")} <= {
        kind for actor, kind in recorded if actor == "agent app-fix"
    }
    assert entries(box, "--actor", "agent")
    assert "aot_" not in json.dumps(log)


def test_conflicts_found_during_a_read_are_attributed_to_the_daemon(process_box: Sandbox) -> None:
    viewer = new_token(process_box, "eyes", "viewer")
    for name in ("here", "there"):
        process_box.ao("new", "--name", name, f"[[write: a.txt|{name}]] [[commit: {name}]] [[wait]]")
    process_box.wait_until(
        lambda: (
            request_status(process_box, viewer, "GET", "/api/conflicts?fresh=true")
            and process_box.json("conflicts")["pairs"]
        )
    )
    assert {entry["actor"] for entry in entries(process_box, "--kind", "conflict-predicted")} == {"daemon"}
    assert entries(process_box, "--actor", "token eyes") == []


def test_an_action_of_a_rule_names_the_rule_and_its_cause(process_box: Sandbox) -> None:
    box = process_box
    rule = "reactions: {agent-needs-input: {action: notify, delay: 0s}}\n"
    (box.repo / "agent-orchestrator.yaml").write_text(f"defaults: {{agent: demo, runtime: process}}\n{rule}")
    box.ao("new", "--name", "ask", "[[ask: Which port?]]")
    reaction = box.wait_until(lambda: entries(box, "--actor", "rule", "-s", "app-ask", "--kind", "reacted"))[0]
    assert reaction["actor"] == f"rule {reaction['data']['rule']}"
    cause = next(entry for entry in entries(box) if entry["seq"] == reaction["cause"])
    assert (cause["actor"], cause["type"]) == ("agent app-ask", reaction["causeType"])
    assert cause["type"] in ("agent-ask", "agent-activity")


def test_refused_requests_of_an_agent_name_the_agent(process_box: Sandbox) -> None:
    box = process_box
    box.ao("new", "--name", "fix", "say hello [[wait]]")
    # As a reader of the agent's environment would get it.
    token = str(box.request("GET", "/api/sessions/app-fix/environment")["env"]["AO_TOKEN"])
    assert request_status(box, token, "GET", "/api/audit") == 403
    assert request_status(box, token, "DELETE", "/api/sessions/app-fix") == 403

    def refusals() -> list[str]:
        refused_entries = entries(box, "--actor", "agent app-fix", "--kind", "access-refused")
        return [entry["data"]["path"] for entry in refused_entries]

    box.wait_until(lambda: len(refusals()) == 2, "the refusals to be written")
    assert refusals() == ["/api/audit", "/api/sessions/app-fix"]
    read = entries(box, "--kind", "environment-read")
    assert [(entry["actor"], entry["session"]) for entry in read] == [(ME, "app-fix")]


def test_the_audit_log_cannot_be_changed_unnoticed(process_box: Sandbox, tmp_path: Path) -> None:
    box, file = process_box, tmp_path / "audit.jsonl"
    box.ao("new", "--name", "fix", "say hello")
    new_token(box, "ci", "viewer")
    assert "unbroken" in box.ao("audit", "--verify").stdout
    saved_head = box.ao("audit", "--head").stdout.strip()
    box.ao("shutdown", "--sessions")
    box.wait_until(lambda: not box.home.daemon_info.exists())

    def sql(*statements: str) -> None:
        with closing(sqlite3.connect(box.home.database, timeout=60)) as database:
            for statement in statements:
                database.execute(statement)
            database.commit()

    own_tokens = "actor LIKE 'local %' AND type = 'token-made'"
    for statement in (
        f"UPDATE events SET actor = 'daemon' WHERE {own_tokens}",
        f"DELETE FROM events WHERE {own_tokens}",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            sql(statement)
    box.start()
    box.ao("audit", "--export", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert box.ao("audit", "--verify", "--kept", saved_head).returncode == 0
    assert box.ao("audit", "--verify", str(file), "--kept", saved_head).returncode == 0
    box.ao("shutdown")
    box.wait_until(lambda: not box.home.daemon_info.exists())

    sql(
        "DROP TRIGGER events_stay",
        "DROP TRIGGER events_remain",
        f"UPDATE events SET actor = 'daemon' WHERE {own_tokens}",
    )
    box.start()
    (changed,) = (entry["seq"] for entry in entries(box, "--kind", "token-made"))
    broken = box.ao("audit", "--verify", check=False)
    assert (broken.returncode, broken.stdout.startswith(f"BROKEN at entry {changed}: it was changed")) == (1, True)
    assert box.ao("audit", "--verify", str(file)).returncode == 0
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], lines[2].replace("say hello", "say goodbye"), *lines[3:]]) + "\n")
    assert "BROKEN at entry 3" in box.ao("audit", "--verify", str(file), check=False).stdout

    sql("DELETE FROM events WHERE seq > 3", "DELETE FROM snapshots")
    verification = json.loads(box.ao("audit", "--verify", "--kept", saved_head, "--json", check=False).stdout)
    assert verification["broken"]["seq"] == int(saved_head.partition(":")[0])
    assert "ends before it" in verification["broken"]["reason"]


def test_the_table_fits_eighty_columns_and_the_options_filter_it(process_box: Sandbox) -> None:
    box = process_box
    box.ao("new", "--name", "a-rather-long-name-for-a-session", "say hello")
    box.wait_until(lambda: entries(box, "--actor", "agent"), "a report of its agent")
    head, *rows = on_terminal(box, 80, "audit")
    assert max(map(len, (head, *rows))) <= 80
    assert head.split()[0] == "#" and head.split()[2:] == ["WHO", "WHAT", "ON", "WHY"]
    assert any(" agent " in row for row in rows) and any("#" in row[40:] for row in rows)
    assert rows[0].split()[2:4] == ["daemon", "daemon-started"]
    assert [entry["type"] for entry in entries(box, "--kind", "session-created", "--since", "1h")] == [
        "session-created"
    ]
    assert entries(box, "--until", "1h") == []
    assert [entry["seq"] for entry in entries(box)][:2] == [1, 2]
    for argv, problem in {
        ("--since", "soon"): "no time",
        ("--kept", "1:00"): "--kept needs --verify",
        ("--head", "--verify"): "exclude each other",
        ("--verify", "--kept", "nonsense"): "SEQ:DIGEST",
        ("--verify", str(box.repo / "README.md")): "line 1 is no entry",
        ("--export", "/nowhere/x"): "cannot be written",
        ("-s", "nobody"): "no session nobody",
    }.items():
        failed = box.ao("audit", *argv, check=False)
        assert failed.returncode in (2, 3) and problem in failed.stderr, (argv, failed)
        assert len(failed.stderr.splitlines()) == 1
