"""Who did what and why, by a real daemon: people, tokens, browsers, agents and rules; and that nobody can change it unseen."""

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


def ask(box: Sandbox, token: str, method: str, path: str, body: Any = None) -> int:
    """One request over TCP with a token."""
    host = str(json.loads(box.home.info.read_text())["url"]).partition("://")[2]
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
    """What a command shows on a terminal of this width."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, columns))
    command = [sys.executable, "-m", "agent_orchestrator", *argv]
    try:
        with subprocess.Popen(command, env=box.env, cwd=box.repo, stdin=slave, stdout=slave, stderr=slave) as process:
            os.close(slave)
            shown = b""
            with contextlib.suppress(OSError):  # Linux's way to say that the terminal was closed
                while piece := os.read(master, 1 << 16):
                    shown += piece
        assert process.returncode == 0, shown
    finally:
        os.close(master)
    return shown.decode().splitlines()


def made(box: Sandbox, name: str, role: str) -> str:
    return str(box.json("token", "new", name, "--role", role)["token"])


def test_what_people_and_their_tokens_change_is_theirs(process_box: Sandbox) -> None:
    box = process_box
    box.ao("new", "--name", "fix", "say hello [[wait]]")
    box.until(lambda: entries(box, "--actor", "agent"), "a word of its agent")
    ci, viewer = made(box, "ci", "admin"), made(box, "eyes", "viewer")
    assert ask(box, ci, "POST", "/api/sessions/app-fix/message", {"content": "go on"}) == 202
    assert ask(box, ci, "PUT", "/api/config/value", {"key": "defaults.agent", "value": "demo"}) == 200
    assert ask(box, ci, "POST", "/api/prune", {"dryRun": False}) == 200
    assert ask(box, ci, "POST", "/api/issues?project=app", {"title": "It breaks"}) == 201
    assert ask(box, viewer, "DELETE", "/api/sessions/app-fix") == 403
    assert ask(box, "aot_wrong", "GET", "/api/sessions") == 401
    assert ask(box, ci, "DELETE", "/api/sessions/app-fix") == 200
    box.ao("token", "revoke", "ci")
    box.until(lambda: entries(box, "--kind", "session-stopped"))

    found = entries(box)
    by = {(entry["actor"], entry["type"]) for entry in found}
    for kind in ("message-queued", "setting-changed", "action-taken", "issue-opened", "stop-requested"):
        assert ("token ci", kind) in by, (kind, by)
    for kind in ("project-registered", "session-created", "token-made", "token-revoked"):
        assert (ME, kind) in by, (kind, by)
    refused = {entry["actor"]: entry["data"] for entry in found if entry["type"] == "access-refused"}
    assert refused["token eyes"] | {"method": "DELETE", "path": "/api/sessions/app-fix"} == refused["token eyes"]
    assert refused["anonymous 127.0.0.1"]["path"] == "/api/sessions"
    stopped = next(entry for entry in found if entry["type"] == "session-stopped")
    asked = next(entry for entry in found if entry["type"] == "stop-requested")
    assert (stopped["actor"], stopped["cause"] >= asked["seq"]) == ("daemon", True)
    assert {entry["type"] for entry in entries(box, "--actor", "agent")} <= {
        kind for who, kind in by if who == "agent app-fix"
    }
    assert entries(box, "--actor", "agent")
    assert "aot_" not in json.dumps(found)


def test_what_is_seen_while_somebody_looks_is_not_his_doing(process_box: Sandbox) -> None:
    eyes = made(process_box, "eyes", "viewer")
    for name in ("here", "there"):
        process_box.ao("new", "--name", name, f"[[write: a.txt|{name}]] [[commit: {name}]] [[wait]]")
    process_box.until(
        lambda: ask(process_box, eyes, "GET", "/api/conflicts?fresh=true") and process_box.json("conflicts")["pairs"]
    )
    assert {entry["actor"] for entry in entries(process_box, "--kind", "conflict-predicted")} == {"daemon"}
    assert entries(process_box, "--actor", "token eyes") == []


def test_a_rules_doing_names_the_rule_and_what_it_answers(process_box: Sandbox) -> None:
    box = process_box
    rule = "reactions: {agent-needs-input: {action: notify, delay: 0s}}\n"
    (box.repo / "agent-orchestrator.yaml").write_text(f"defaults: {{agent: demo, runtime: process}}\n{rule}")
    box.ao("new", "--name", "ask", "[[ask: Which port?]]")
    told = box.until(lambda: entries(box, "--actor", "rule", "-s", "app-ask", "--kind", "reacted"))[0]
    assert told["actor"] == f"rule {told['data']['rule']}"
    cause = next(entry for entry in entries(box) if entry["seq"] == told["cause"])
    assert (cause["actor"], cause["type"]) == ("agent app-ask", told["causeType"])
    assert cause["type"] in ("agent-ask", "agent-activity")


def test_an_agent_that_asks_for_more_than_its_own_is_named(process_box: Sandbox) -> None:
    box = process_box
    box.ao("new", "--name", "fix", "say hello [[wait]]")
    # As somebody may read it who may read its environment.
    token = str(box.request("GET", "/api/sessions/app-fix/environment")["env"]["AO_TOKEN"])
    assert ask(box, token, "GET", "/api/audit") == 403
    assert ask(box, token, "DELETE", "/api/sessions/app-fix") == 403

    def refusals() -> list[str]:
        found = entries(box, "--actor", "agent app-fix", "--kind", "access-refused")
        return [entry["data"]["path"] for entry in found]

    box.until(lambda: len(refusals()) == 2, "what nobody waits for to be written")
    assert refusals() == ["/api/audit", "/api/sessions/app-fix"]
    read = entries(box, "--kind", "environment-read")
    assert [(entry["actor"], entry["session"]) for entry in read] == [(ME, "app-fix")]


def test_what_was_written_cannot_be_changed_and_if_it_was_it_is_seen(process_box: Sandbox, tmp_path: Path) -> None:
    box, file = process_box, tmp_path / "audit.jsonl"
    box.ao("new", "--name", "fix", "say hello")
    made(box, "ci", "viewer")
    assert "unbroken" in box.ao("audit", "--verify").stdout
    kept = box.ao("audit", "--head").stdout.strip()
    box.ao("shutdown", "--sessions")
    box.until(lambda: not box.home.info.exists())

    def sql(*statements: str) -> None:
        with closing(sqlite3.connect(box.home.database, timeout=60)) as database:
            for statement in statements:
                database.execute(statement)
            database.commit()

    mine = "actor LIKE 'local %' AND type = 'token-made'"
    for statement in (f"UPDATE events SET actor = 'daemon' WHERE {mine}", f"DELETE FROM events WHERE {mine}"):
        with pytest.raises(sqlite3.IntegrityError, match="never"):
            sql(statement)
    box.start()
    box.ao("audit", "--export", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert box.ao("audit", "--verify", "--kept", kept).returncode == 0
    assert box.ao("audit", "--verify", str(file), "--kept", kept).returncode == 0
    box.ao("shutdown")
    box.until(lambda: not box.home.info.exists())

    sql("DROP TRIGGER events_stay", "DROP TRIGGER events_remain", f"UPDATE events SET actor = 'daemon' WHERE {mine}")
    box.start()
    (changed,) = (entry["seq"] for entry in entries(box, "--kind", "token-made"))
    broken = box.ao("audit", "--verify", check=False)
    assert (broken.returncode, broken.stdout.startswith(f"BROKEN at entry {changed}: it was changed")) == (1, True)
    assert box.ao("audit", "--verify", str(file)).returncode == 0
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines[:2], lines[2].replace("say hello", "say goodbye"), *lines[3:]]) + "\n")
    assert "BROKEN at entry 3" in box.ao("audit", "--verify", str(file), check=False).stdout

    sql("DELETE FROM events WHERE seq > 3", "DELETE FROM snapshots")
    cut = json.loads(box.ao("audit", "--verify", "--kept", kept, "--json", check=False).stdout)
    assert cut["broken"]["seq"] == int(kept.partition(":")[0])
    assert "ends before it" in cut["broken"]["reason"]


def test_the_table_fits_eighty_columns_and_the_options_do_what_they_say(process_box: Sandbox) -> None:
    box = process_box
    box.ao("new", "--name", "a-rather-long-name-for-a-session", "say hello")
    box.until(lambda: entries(box, "--actor", "agent"), "a word of its agent")
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
    for argv, words in {
        ("--since", "soon"): "no time",
        ("--kept", "1:00"): "--kept needs --verify",
        ("--head", "--verify"): "exclude each other",
        ("--verify", "--kept", "nonsense"): "SEQ:DIGEST",
        ("--verify", str(box.repo / "README.md")): "line 1 is no entry",
        ("--export", "/nowhere/x"): "cannot be written",
        ("-s", "nobody"): "no session nobody",
    }.items():
        failed = box.ao("audit", *argv, check=False)
        assert failed.returncode in (2, 3) and words in failed.stderr, (argv, failed)
        assert len(failed.stderr.splitlines()) == 1
